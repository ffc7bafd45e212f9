"""The flow once per question, on a table in the user's own engine: bound there, charge first, noise a few integers."""

from discreet.analytics.aggregates import Aggregate, count, count_distinct, mean, median, quantile, std, sum, variance
from discreet.analytics.answer import Answer
from discreet.analytics.expressions import Expression
from discreet.analytics.preview import Preview
from discreet.analytics.private import Groups, Private
from discreet.analytics.result import Result

__all__ = [
    "Aggregate",
    "Answer",
    "Expression",
    "Groups",
    "Preview",
    "Private",
    "Result",
    "count",
    "count_distinct",
    "mean",
    "median",
    "quantile",
    "std",
    "sum",
    "variance",
]
