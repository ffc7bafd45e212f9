"""Data → Bounded: clamp, count and sum on an integer grid, with a proven bound on what one unit can change.

No query adds noise, and none takes a bound, a category or a size from the data. The result is not private yet: pass
it to a mechanism.
"""

from discreet.queries._clamp import clamp
from discreet.queries.contributions import limit_rows
from discreet.queries.statistics.accuracy import accuracy
from discreet.queries.statistics.count import count
from discreet.queries.statistics.covariance import correlation, covariance
from discreet.queries.statistics.histogram import histogram, votes
from discreet.queries.statistics.mean import mean
from discreet.queries.statistics.quantile import quantile_scores
from discreet.queries.statistics.sum import sum
from discreet.queries.statistics.variance import variance

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
