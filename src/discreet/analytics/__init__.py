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
from discreet.analytics.aggregates.distinct import count_values
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
from discreet.analytics.plan.ranges import days, months, quarters, weeks, years
from discreet.analytics.result.bias import Advice, Bias, Clamped, Estimate, advice
from discreet.analytics.result.hierarchy import hierarchy
from discreet.analytics.result.result import Result
from discreet.analytics.table.expressions import Expression, case, coalesce, greatest, least
from discreet.analytics.table.partition import Partition
from discreet.analytics.table.private import Groups, Private
from discreet.analytics.table.public import Public, public
from discreet.analytics.table.several import sql

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
    "Partition",
    "Preview",
    "Private",
    "Public",
    "Result",
    "advice",
    "bounds",
    "case",
    "coalesce",
    "correlation",
    "count",
    "count_distinct",
    "count_values",
    "covariance",
    "days",
    "discover",
    "greatest",
    "hierarchy",
    "least",
    "marginal",
    "max",
    "mean",
    "median",
    "min",
    "months",
    "public",
    "quantile",
    "quarters",
    "sql",
    "std",
    "sum",
    "top_k",
    "variance",
    "weeks",
    "years",
]
