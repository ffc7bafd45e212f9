"""What one unit contributes: a single row, or all of a person's rows, of which at most `max_rows` are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Person, Relation, Rows, Unit
from discreet.queries.grid import column, plain


def limit_rows(persons: ArrayLike, *, max_rows: int) -> NDArray[np.bool_]:
    """A mask that keeps the first `max_rows` rows of each person, in the order given.

    Which of a person's rows are kept depends on that person's rows alone. Rows without a person (None, NaN) are
    dropped, and so are rows whose ids are not plain values: no person's limit would cover them. Ids that are equal in
    Python, such as 1 and 1.0, are one person.

    Guarantee: after the mask no person has more than `max_rows` rows; adding, removing or changing one person's rows
    changes the mask on that person's rows only. Not protected: the length of the mask.

    >>> limit_rows(["ann", "bob", "ann", "ann", None], max_rows=2)
    array([ True,  True,  True, False, False])
    """
    limit = _check.integer("max_rows", max_rows, "it is the number of rows of one person that are used")
    ids = column(persons, "persons")
    kept = np.zeros(ids.size, dtype=bool)
    seen: dict[Any, int] = {}
    for row, value in enumerate(ids.tolist()):
        person = plain(value)
        if person is None:
            continue
        seen[person] = seen.get(person, 0) + 1
        kept[row] = seen[person] <= limit
    return kept


def used_rows(rows: int, persons: ArrayLike | None, max_rows: int | None) -> tuple[NDArray[np.bool_], Unit, int]:
    """Which rows a query may use, the unit it protects, and how many rows one unit may have."""
    if (persons is None) != (max_rows is None):
        raise _check.fail(
            "max_rows", "be given together with persons", max_rows, "both protect a person with many rows"
        )
    if persons is None or max_rows is None:
        return np.ones(rows, dtype=bool), Rows(), 1
    unit = Person(None, max_rows)
    kept = limit_rows(persons, max_rows=unit.max_rows)
    if kept.size != rows:
        raise _check.fail("persons", "have one id for each row", "another length", "derive it from the same table")
    return kept, unit, unit.max_rows


def sensitivities(
    present: Sensitivity, swapped: Sensitivity, unit: Unit, dimension: int
) -> dict[Relation, Sensitivity]:
    """The sensitivity under each relation.

    `present` bounds the contribution of one row, `swapped` the difference of two rows' contributions. Exchanging a
    person for another pairs their rows; a row without a partner counts as present in one dataset only.
    """
    if isinstance(unit, Rows):
        add_remove, replace_one = present, swapped
    else:
        rows = unit.max_rows
        add_remove = present.times(rows, dimension)
        replace_one = larger(present, swapped).times(rows, dimension)
    return {ADD_REMOVE: add_remove, REPLACE_ONE: replace_one, ZERO_OUT: add_remove}


def larger(left: Sensitivity, right: Sensitivity) -> Sensitivity:
    """The larger of two bounds, norm by norm."""
    return Sensitivity(
        max(left.l0, right.l0),
        max(left.l1, right.l1),
        max(left.l2_squared, right.l2_squared),
        max(left.linf, right.linf),
    )


def first(wanted: Relation, bounds: dict[Relation, Sensitivity]) -> dict[Relation, Sensitivity]:
    """`bounds` with `wanted` first: the relation that mechanisms use by default."""
    return {wanted: bounds[wanted], **bounds}
