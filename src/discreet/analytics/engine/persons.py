"""Queries about persons as a whole: their numbers of rows and of groups; and sums over all groups."""

from __future__ import annotations

from typing import Any

import ibis

from discreet.analytics.aggregates.terms import PersonsBy
from discreet.analytics.engine.compiling import narrow
from discreet.analytics.engine.grouping import CODE
from discreet.analytics.plan.keys import Keys
from discreet.neighbors import Person


def persons_by(table: Any, asked: PersonsBy, keys: Keys | None, unit: Person) -> Any:
    """One row for each cell that occurs: `level` is the cell, and `rows` how many persons lie in it.

    Only rows with one of the keys count. A person lies in one cell, which that person's rows alone decide.
    """
    owned = narrow(table, keys, unit, {})
    if asked.groups and keys is not None:
        owned = owned.select("person", CODE).distinct()
    counted = owned.group_by("person").aggregate(many=owned.count())
    tried = [(counted["many"] <= cut, _int64(cell)) for cell, cut in enumerate(asked.cuts)]
    placed = counted.select(level=ibis.cases(*tried, else_=_int64(len(asked.cuts))))
    return placed.group_by("level").aggregate(rows=placed.count())


def pooled(totals: Any) -> Any:
    """The sums over all groups: one row; zeros where no row has a key."""
    names = [name for name in totals.columns if name != CODE]
    return totals.aggregate(**{name: totals[name].sum().fill_null(0) for name in names})


def _int64(value: int) -> Any:
    return ibis.literal(value, type="int64")
