"""Limits on expressions, checked before anything is charged: Python's stack, and how long their SQL becomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ibis.expr.operations as ops

from discreet import _check

#: The most parts of one expression's SQL. Some functions name their argument many times, so that each level of nesting
#: multiplies the text, and neither Ibis nor an engine would come to an end.
_MOST_PARTS = 200_000


@contextmanager
def within_the_stack() -> Iterator[None]:
    """Refuse expressions that are nested more deeply than Python's stack, before anything is charged."""
    try:
        yield
    except RecursionError:
        remedy = "list values with isin(), join conditions side by side, or store the result of a part first"
        raise _check.fail("expression", "be nested less deeply", "one beyond Python's stack", remedy) from None


def compilable(value: Any) -> Any:
    """An engine's expression, refused if its SQL would be too long to compile."""
    sizes: dict[Any, int] = {}

    def counted(operation: Any) -> int:
        if operation not in sizes:
            if isinstance(operation, ops.Field):  # of a table that was computed: engines may put in what computes it
                computed = operation.rel.values if isinstance(operation.rel, ops.Project) else {}
                inside = [computed[operation.name]] if operation.name in computed else []
            else:
                inside = operation.__children__
            sizes[operation] = 1 + sum(map(counted, inside))
        return sizes[operation]

    if counted(value.op()) > _MOST_PARTS:
        remedy = "nest fewer functions, or store the result of a part first"
        raise _check.fail("expression", "be short in SQL", "millions of parts", remedy)
    return value
