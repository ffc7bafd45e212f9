"""What follows the release: computed columns, HAVING, ORDER BY and LIMIT. It looks at released numbers alone, so it
is free: post-processing keeps every guarantee (Dwork & Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import expressions as ast

from discreet.analytics.plan.sql.constants import constant
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.plan.sql.values import sides_of

#: A value computed from a released row; None is missing.
OfRow = Callable[[Mapping[str, Any]], Any]

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.EQ: operator.eq,
    ast.NEQ: operator.ne,
    ast.LT: operator.lt,
    ast.LTE: operator.le,
    ast.GT: operator.gt,
    ast.GTE: operator.ge,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mul: operator.mul,
    ast.Div: lambda a, b: a / b if b else None,
}


@dataclass(frozen=True)
class Afterwards:
    """What happens to a released table.

    Attributes:
        computed: new columns, computed from released ones. Their errors are not stated.
        hidden: columns that were measured for these, for HAVING or for ORDER BY alone.
        kept: which rows stay.
        order: what rows are sorted by, each with whether it descends.
        limit: the most rows that stay.
        offset: how many of the first rows are left out.
    """

    computed: Mapping[str, OfRow]
    hidden: tuple[str, ...] = ()
    kept: OfRow | None = None
    order: tuple[tuple[OfRow, bool], ...] = ()
    limit: int | None = None
    offset: int = 0

    def __call__(self, result: Any) -> Any:
        """The result with its rows computed, chosen, sorted and cut.

        Guarantee: looks at the released result alone.
        """
        rows = [{**row, **{name: compute(row) for name, compute in self.computed.items()}} for row in result.rows()]
        chosen = [index for index, row in enumerate(rows) if self.kept is None or self.kept(row)]
        for key, descending in reversed(self.order):
            ranks = {index: _rank(value) for index in chosen if (value := key(rows[index])) is not None}
            missing = [index for index in chosen if index not in ranks]
            chosen = sorted(ranks, key=ranks.__getitem__, reverse=descending) + missing
        chosen = chosen[self.offset :][: self.limit]
        gone = {name for output in result.outputs if output.name in self.hidden for name in output.columns}
        names = [name for name in (*result.columns, *self.computed) if name not in gone]
        columns = {name: tuple(rows[index][name] for index in chosen) for name in names}
        outputs = tuple(output for output in result.outputs if output.name not in self.hidden)
        taken = result.taking(chosen)
        sources = {name: source for name, source in taken.sources.items() if name not in self.hidden}
        return replace(taken, columns=columns, outputs=outputs, sources=sources)


@dataclass(frozen=True)
class ReleasedReader:
    """Reads expressions about a released row.

    Attributes:
        named: the released column that a node stands for, None if it is none.
    """

    named: Callable[[Any], str | None]

    def value(self, node: Any) -> OfRow:
        """What a node computes from a released row; missing if a part is."""
        name = self.named(node)
        if name is not None:
            return operator.itemgetter(name)
        public = constant(node)
        if public is not None:
            return lambda row: public.value
        match node:
            case ast.Paren():
                return self.value(node.this)
            case ast.Neg():
                return _of((self.value(node.this),), operator.neg)
            case ast.Add() | ast.Sub() | ast.Mul() | ast.Div():
                only(node, "this", "expression", "typed", "safe")
                return _of((self.value(node.this), self.value(node.expression)), _ARITHMETIC[type(node)])
            case ast.Round():
                only(node, "this", "decimals")
                digits = node.args.get("decimals")
                places = (lambda row: 0) if digits is None else self.value(digits)
                return _of((self.value(node.this), places), lambda x, n: round(x, int(n)))
            case ast.Abs():
                return _of((self.value(node.this),), abs)
            case ast.Nullif():
                return _of((self.value(node.this), self.value(node.expression)), lambda a, b: None if a == b else a)
            case ast.Coalesce():
                several = [self.value(argument) for argument in (node.this, *node.expressions)]
                return lambda row: next((v for candidate in several if (v := candidate(row)) is not None), None)
            case ast.Cast():
                return self.value(node.this)
        instead = "aggregates, columns of GROUP BY, numbers, +, -, *, /, ROUND, ABS, NULLIF and COALESCE"
        raise refused(node, instead)

    def condition(self, node: Any) -> OfRow:
        """Whether a condition holds, in SQL's three-valued logic: True, False or None."""
        match node:
            case ast.Paren():
                return self.condition(node.this)
            case ast.Not():
                return _of((self.condition(node.this),), operator.not_)
            case ast.And() | ast.Or():
                sides = [self.condition(side) for side in sides_of(node)]
                return _all(sides) if isinstance(node, ast.And) else _any(sides)
            case ast.EQ() | ast.NEQ() | ast.LT() | ast.LTE() | ast.GT() | ast.GTE():
                only(node, "this", "expression")
                return _of((self.value(node.this), self.value(node.expression)), _COMPARE[type(node)])
            case ast.Between():
                only(node, "this", "low", "high")
                three = tuple(self.value(node.args[key]) for key in ("this", "low", "high"))
                return _of(three, lambda x, low, high: low <= x <= high)
            case ast.In():
                only(node, "this", "expressions")
                listed = [self.value(item) for item in node.expressions]
                return _of((self.value(node.this), *listed), lambda x, *others: x in others)
            case ast.Is() if isinstance(node.expression, ast.Null):
                value = self.value(node.this)
                return lambda row: value(row) is None
        raise refused(node, "comparisons of released columns, BETWEEN, IN, IS NULL, AND, OR and NOT")


def _rank(value: Any) -> tuple[int, Any]:
    """A key that sorts values of any kind: the charge is made, so nothing may fail here."""
    if isinstance(value, int | float):
        return 0, float(value)
    return (1, value) if isinstance(value, str) else (2, str(value))


def _of(readers: Sequence[OfRow], compute: Callable[..., Any]) -> OfRow:
    """A function of values of a row; missing if one of them is, or if they cannot be compared or combined."""

    def value(row: Mapping[str, Any]) -> Any:
        values = [read(row) for read in readers]
        if any(each is None for each in values):
            return None
        try:
            return compute(*values)
        except (TypeError, ValueError, OverflowError, ZeroDivisionError):
            return None

    return value


def _all(sides: Sequence[OfRow]) -> OfRow:
    def value(row: Mapping[str, Any]) -> bool | None:
        truths = [side(row) for side in sides]
        return False if any(truth is False for truth in truths) else None if None in truths else True

    return value


def _any(sides: Sequence[OfRow]) -> OfRow:
    def value(row: Mapping[str, Any]) -> bool | None:
        truths = [side(row) for side in sides]
        return True if any(truth is True for truth in truths) else None if None in truths else False

    return value
