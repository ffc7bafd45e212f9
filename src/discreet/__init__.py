"""Discreet: one privacy budget for everything that touches your data.

A query bounds a statistic, a mechanism releases it with exact noise, and the release states what was run and what that
promises:

>>> import discreet as dp
>>> ages = [34, 51, 28, 45, 39, 62, 27, 44]
>>> released = dp.laplace(dp.queries.count(ages), epsilon=1.0)
>>> print(released.guarantee)
1-DP, add or remove one row
"""

import typing

from discreet import accounting, datasets, errors, events, mechanisms, queries
from discreet.attestation import Attestation
from discreet.bounded import Bounded, Scores, Sensitivity
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.ledger import Ledger
from discreet.mechanisms import (
    discrete_gaussian,
    epsilon_range,
    exponential,
    gaussian,
    l2_laplace,
    laplace,
    noisy_max,
    randomized_response,
    sparse_vector,
    top_k,
)
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Neighbors, Relation, client, person, rows
from discreet.release import Release

if typing.TYPE_CHECKING:
    from discreet.analytics import Private, bounds, days, discover, months, public, quarters, sql, weeks, years
    from discreet.apps.client import connect

__version__ = "0.2.0"

__all__ = [
    "ADD_REMOVE",
    "GDP",
    "RDP",
    "REPLACE_ONE",
    "ZCDP",
    "ZERO_OUT",
    "ApproxDP",
    "Attestation",
    "Bounded",
    "Guarantee",
    "Ledger",
    "Neighbors",
    "Private",
    "PureDP",
    "Relation",
    "Release",
    "Scores",
    "Sensitivity",
    "accounting",
    "bounds",
    "client",
    "connect",
    "datasets",
    "days",
    "discover",
    "discrete_gaussian",
    "epsilon_range",
    "errors",
    "events",
    "exponential",
    "gaussian",
    "l2_laplace",
    "laplace",
    "mechanisms",
    "months",
    "noisy_max",
    "person",
    "public",
    "quarters",
    "queries",
    "randomized_response",
    "rows",
    "sparse_vector",
    "sql",
    "top_k",
    "weeks",
    "years",
]


def __getattr__(name: str) -> typing.Any:
    """Import names that need an extra on first use, so that the base install stays small."""
    if name == "connect":
        try:
            from discreet.apps.client import connect
        except ModuleNotFoundError as error:
            raise errors.MissingExtra("the client needs Ibis and DuckDB: pip install 'discreet[analytics]'") from error
        return connect
    if name not in ("Private", "bounds", "days", "discover", "months", "public", "quarters", "sql", "weeks", "years"):
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    try:
        from discreet import analytics
    except ModuleNotFoundError as error:
        raise errors.MissingExtra("private tables need Ibis and DuckDB: pip install 'discreet[analytics]'") from error
    return getattr(analytics, name)
