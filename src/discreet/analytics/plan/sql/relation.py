"""Rows that a SELECT reads: a private table, what is done to it, and the names that the query may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.analytics.plan.sql.steps import TableStep
from discreet.analytics.plan.sql.values import Scope
from discreet.analytics.table.doors import spec_of
from discreet.neighbors import Person


def person_of(private: Any) -> str | None:
    """The column of a private table with the person's id, where persons are protected."""
    unit = spec_of(private).unit
    return unit.column if isinstance(unit, Person) else None


@dataclass(frozen=True)
class FromRows:
    """Rows that a FROM reads: the private table and the steps that make them, and their names."""

    start: Any
    steps: tuple[TableStep, ...]
    scope: Scope

    @classmethod
    def of(cls, private: Any) -> FromRows:
        """The rows of a private table."""
        return cls(private, (), Scope(private.columns, person_of(private)))

    def private(self) -> Any:
        """The private table of these rows."""
        table = self.start
        for step in self.steps:
            table = step.apply(table)
        return table
