"""What one unit adds: a single row, or all of a person's rows, of which at most `max_rows` are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Person, Relation, Rows, Unit
from discreet.queries.grid import column, is_missing


def limit_rows(persons: ArrayLike, *, max_rows: int) -> NDArray[np.bool_]:
    """A mask that keeps the first `max_rows` rows of each person, in the order given.

    Which of a person's rows are kept depends on that person's rows alone. Rows without a person (None, NaN) are
    dropped: nobody's limit would cover them.

    Guarantee: after the mask no person has more than `max_rows` rows; adding, removing or changing one person's rows
    changes the mask on that person's rows only. Not protected: the length of the mask.

    >>> limit_rows(["ann", "bob", "ann", "ann", None], max_rows=2)
    array([ True,  True,  True, False, False])
    """
    limit = _check.integer("max_rows", max_rows, "it is the number of rows of one person that are used")
    ids = column(persons, "persons")
    kept = np.zeros(ids.size, dtype=bool)
    seen: dict[Any, int] = {}
    for row, person in enumerate(ids.tolist()):
        key = _key(person)
        if key is None:
            continue
        seen[key] = seen.get(key, 0) + 1
        kept[row] = seen[key] <= limit
    return kept


def _key(value: object) -> object | None:
    """A hashable stand-in for a person's id; None for a missing or an unusable one."""
    try:
        hash(value)
        return None if is_missing(value) else value
    except Exception:  # an id may be any object: none of them may raise out of here
        return None


def used_rows(rows: int, persons: ArrayLike | None, max_rows: int | None) -> tuple[NDArray[np.bool_], Unit, int]:
    """Which rows a query may use, the unit it protects, and how many rows one unit may have."""
    if (persons is None) != (max_rows is None):
        raise _check.fail(
            "max_rows", "be given together with persons", max_rows, "both protect a person with many rows"
        )
    if persons is None or max_rows is None:
        return np.ones(rows, dtype=bool), Rows(), 1
    kept = limit_rows(persons, max_rows=max_rows)
    if kept.size != rows:
        raise _check.fail("persons", "have one id for each row", "another length", "derive it from the same table")
    return kept, Person(None, max_rows), max_rows


def sensitivities(present: Sensitivity, swapped: Sensitivity, rows: int, dimension: int) -> dict[Relation, Sensitivity]:
    """The sensitivity under each relation.

    `present` bounds the contribution of one row, `swapped` the difference of two rows' contributions. Exchanging a
    person for another pairs up to `rows` rows; a row without a partner counts as present in one dataset only.
    """
    one = present.times(rows, dimension)
    if rows == 1:
        two = swapped
    else:
        worst = Sensitivity(
            max(present.l0, swapped.l0),
            max(present.l1, swapped.l1),
            max(present.l2_squared, swapped.l2_squared),
            max(present.linf, swapped.linf),
        )
        two = worst.times(rows, dimension)
    return {ADD_REMOVE: one, REPLACE_ONE: two, ZERO_OUT: one}
