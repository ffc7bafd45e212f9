"""SQL about several tables by their names."""

from __future__ import annotations

from collections.abc import Mapping

from discreet import _check
from discreet.analytics.result.result import Result
from discreet.analytics.table.private import Private
from discreet.analytics.table.public import Public


def sql(
    query: str,
    tables: Mapping[str, Private | Public],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    noise: str = "auto",
    keys: object = None,
    purpose: str | None = None,
) -> Result:
    """Release what a query about several tables asks for; as `Private.sql`.

    `dp.sql("SELECT … FROM visits JOIN wards USING (ward)", {"visits": visits, "wards": dp.public(wards)}, epsilon=1)`

    Args:
        query: the query, which must begin with a private table in `FROM`.
        tables: the tables by the names that the query uses: private ones of one account, and `dp.public(…)`.
        epsilon: as in `Answer.release`, as are `delta`, `rho`, `noise` and `purpose`.
        delta: see `epsilon`.
        rho: see `epsilon`.
        noise: see `epsilon`.
        keys: the keys of `GROUP BY`, as `Private.group_by` takes them.
        purpose: see `epsilon`.

    Guarantee: as `Answer.release`, for the account of the private tables.
    """
    if not isinstance(tables, Mapping):
        raise _check.fail("tables", "map names to tables", type(tables).__name__, 'such as {"visits": visits}')
    private = [table for table in tables.values() if isinstance(table, Private)]
    if not private:
        raise _check.fail("tables", "have a private table", list(tables), "give at least one dp.Private(…)")
    return private[0].sql(
        query, epsilon=epsilon, delta=delta, rho=rho, noise=noise, keys=keys, purpose=purpose, tables=tables
    )
