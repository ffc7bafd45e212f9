"""Private analytics: one question at a time, about a table in the user's own engine.

A question passes five stages, and the folders are named after them:

1. `table/`: a `Private` table says where the rows are, who is protected and what is public. Its methods, its SQL and
   the functions in `aggregates/` say what is wanted.
2. `plan/`: that becomes a `Question` (rows, groups, and a `Measurement` for each aggregate).
3. An `Answer` holds the question. For a budget it makes a `ReleasePlan`: which mechanism each measurement gets, and
   the event that is charged. `preview` shows it for free.
4. `engine/`: after the charge the engine turns rows into clamped integers and sums them by group. The totals become
   `Bounded` values (or `Scores`), and each mechanism adds its noise.
5. `result/`: the releases become a `Result`: columns with their errors.

Everything about one aggregate is in one file of `aggregates/`; `aggregates/registry.py` lists them.
"""

from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.aggregates.count import count, count_distinct
from discreet.analytics.aggregates.covariance import correlation, covariance
from discreet.analytics.aggregates.marginal import marginal
from discreet.analytics.aggregates.mean import mean
from discreet.analytics.aggregates.quantile import max, median, min, quantile
from discreet.analytics.aggregates.registry import bounds
from discreet.analytics.aggregates.sum import sum
from discreet.analytics.aggregates.top_k import top_k
from discreet.analytics.aggregates.variance import std, variance
from discreet.analytics.answer import Answer
from discreet.analytics.plan.discovery import Discover, discover
from discreet.analytics.plan.preview import Preview
from discreet.analytics.result.bias import Advice, Bias, Clamped, Estimate, advice
from discreet.analytics.result.hierarchy import hierarchy
from discreet.analytics.result.result import Result
from discreet.analytics.table.expressions import Expression
from discreet.analytics.table.private import Groups, Private

__all__ = [
    "Advice",
    "Aggregate",
    "Answer",
    "Bias",
    "Clamped",
    "Discover",
    "Estimate",
    "Expression",
    "Groups",
    "Preview",
    "Private",
    "Result",
    "advice",
    "bounds",
    "correlation",
    "count",
    "count_distinct",
    "covariance",
    "discover",
    "hierarchy",
    "marginal",
    "max",
    "mean",
    "median",
    "min",
    "quantile",
    "std",
    "sum",
    "top_k",
    "variance",
]
