"""New columns of a private table, each computed from its own row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from discreet import _check
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.table.expressions import Column, Expression, compilable, within_the_stack
from discreet.analytics.table.spec import TableSpec
from discreet.neighbors import Person


def mutated(spec: TableSpec, expressions: Mapping[str, Expression], *, replacing: bool = False) -> TableSpec:
    """A table with new columns, as `Private.mutate` adds them.

    Engines do not tell upper and lower case apart in names. With `replacing`, a new column takes the place of one whose
    name differs in case alone; otherwise such a name is refused.
    """
    new: dict[str, Any] = {}
    for name, expression in expressions.items():
        _require_expression(name, expression)
        _require_free(name, spec, new, replacing)
        with within_the_stack():
            spec.check(expression)
            require_exact(spec.table, sorted(expression.exact_columns()))
            new[name] = compilable(expression.to_ibis(spec.table))
    gone = {other for other in spec.table.columns if any(_alike(name, other) for name in new)}
    replaced = gone | new.keys()
    spans = {name: expression.span(spec.bounds) for name, expression in expressions.items()}
    domains = {name: _domain(expression, spec) for name, expression in expressions.items()}
    bounds = {name: pair for name, pair in spec.bounds.items() if name not in replaced}
    bounds |= {name: span for name, span in spans.items() if span is not None and span[0] < span[1]}
    bins = {name: values for name, values in spec.bins.items() if name not in replaced}
    bins |= {name: values for name, values in domains.items() if values is not None}
    return replace(
        spec,
        table=_with(spec.table, new, gone),
        columns=tuple(dict.fromkeys((*(name for name in spec.columns if name not in gone), *new))),
        bounds=bounds,
        bins=bins,
        computed=(spec.computed - gone) | new.keys(),
    )


def _require_expression(name: str, given: object) -> None:
    if not isinstance(given, Expression):
        raise _check.fail(name, "be an expression", type(given).__name__, "such as people.hours * 52")


def _require_free(name: str, spec: TableSpec, new: Mapping[str, Any], replacing: bool) -> None:
    """Refuse a name that a new column cannot have."""
    person = spec.unit.column if isinstance(spec.unit, Person) else None
    if name == person or (replacing and person is not None and _alike(name, person)):
        raise _check.fail("mutate", "leave the person's id alone", name, "choose another name")
    if any(_alike(name, other) for other in (*(() if replacing else spec.table.columns), *new)):
        remedy = "engines do not tell upper and lower case apart: choose another name"
        raise _check.fail("mutate", "name columns that differ by more than case", name, remedy)


def _domain(expression: Expression, spec: TableSpec) -> tuple[Any, ...] | None:
    """The public keys of a new column: those that its expression has, or those of the column that it renames."""
    return spec.bins.get(expression.name) if isinstance(expression, Column) else expression.domain()


def _alike(name: str, other: str) -> bool:
    """Whether two names differ in case alone."""
    return name != other and name.lower() == other.lower()


def _with(table: Any, new: Mapping[str, Any], gone: set[str]) -> Any:
    """A table with new columns and without some; all of the new ones are computed from the table as it was."""
    if not gone:
        return table.mutate(**new)
    kept = {name: table[name] for name in table.columns if name not in gone and name not in new}
    return table.select(**kept, **new)
