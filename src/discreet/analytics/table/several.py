"""SQL about several tables by their names."""

from __future__ import annotations

from collections.abc import Mapping

from discreet import _check
from discreet.analytics.answer import Answer
from discreet.analytics.table.private import Private
from discreet.analytics.table.public import Public


def plan(query: str, tables: Mapping[str, Private | Public], *, keys: object = None) -> Answer:
    """The answer that a query about several tables asks for, to preview or to release; as `Private.plan`.

    `dp.plan("SELECT … FROM visits JOIN wards USING (ward)", {"visits": visits, "wards": dp.public(wards)})`
    """
    private = [table for table in tables.values() if isinstance(table, Private)]
    if not private:
        remedy = "give at least one dp.Private(…)"
        raise _check.fail("tables", "have a private table", list(tables), remedy)
    return private[0].plan(query, keys=keys, tables=tables)
