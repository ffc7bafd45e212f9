"""The flow once per question, on a table in the user's own engine: bound there, charge first, noise a few integers."""

from discreet.analytics.aggregates import (
    Aggregate,
    correlation,
    count,
    count_distinct,
    covariance,
    marginal,
    max,
    mean,
    median,
    min,
    quantile,
    std,
    sum,
    top_k,
    variance,
)
from discreet.analytics.answer import Answer
from discreet.analytics.discovery import Discover, discover
from discreet.analytics.expressions import Expression
from discreet.analytics.preview import Preview
from discreet.analytics.private import Groups, Private
from discreet.analytics.result import Result

__all__ = [
    "Aggregate",
    "Answer",
    "Discover",
    "Expression",
    "Groups",
    "Preview",
    "Private",
    "Result",
    "correlation",
    "count",
    "count_distinct",
    "covariance",
    "discover",
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
