"""What other packages may do with a private table beyond its public methods.

These are functions because a private table's attributes are its columns: a method named `spec` would hide the column of
that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.analytics.plan.sql import Parsed
    from discreet.analytics.table.expressions import Expression
    from discreet.analytics.table.private import Private
    from discreet.analytics.table.public import Public
    from discreet.analytics.table.spec import TableSpec


def spec_of(private: Private) -> TableSpec:
    """The facts about a private table."""
    return private._spec


def parsed(private: Private, sql: str, tables: Mapping[str, Private | Public] | None) -> tuple[Parsed, Private]:
    """What a query asks of a private table, and the rows that it aggregates."""
    return private._parsed(sql, tables)


def replaced(private: Private, expressions: Mapping[str, Expression]) -> Private:
    """`Private.mutate` as SQL names columns: a new one replaces a stored one whose name differs in case alone."""
    return private._replacing(expressions)


def joined(
    private: Private, other: Private | Public, on: object, how: str, rname: str, *, keep_keys: bool = False
) -> tuple[Private, dict[str, str]]:
    """`Private.join`, and what the right table's columns are called in the result."""
    return private._joined(other, on, how, rname, keep_keys=keep_keys)
