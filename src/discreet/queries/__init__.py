"""Data → Bounded: clamp, count and sum on an integer grid, with a proven bound on what one unit can change.

No query adds noise, and none takes a bound, a category or a size from the data. What comes back is not private yet:
hand it to a mechanism.
"""

from discreet.queries.accuracy import accuracy
from discreet.queries.clamp import clamp
from discreet.queries.contributions import limit_rows
from discreet.queries.count import count
from discreet.queries.covariance import correlation, covariance
from discreet.queries.histogram import histogram, votes
from discreet.queries.mean import mean
from discreet.queries.quantile import quantile_scores
from discreet.queries.sum import sum
from discreet.queries.variance import variance

__all__ = [
    "accuracy",
    "clamp",
    "correlation",
    "count",
    "covariance",
    "histogram",
    "limit_rows",
    "mean",
    "quantile_scores",
    "sum",
    "variance",
    "votes",
]
