"""A limit on how deeply expressions nest: that of Python's stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from discreet import _check


@contextmanager
def within_the_stack() -> Iterator[None]:
    """Refuse expressions that are nested more deeply than Python's stack, before anything is charged."""
    try:
        yield
    except RecursionError:
        remedy = "list values with isin(), join conditions side by side, or store the result of a part first"
        raise _check.fail("expression", "be nested less deeply", "one beyond Python's stack", remedy) from None
