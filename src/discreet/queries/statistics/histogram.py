"""Counts by public category or by public interval, and the same counts as scores for a selection."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import LARGEST, Bounded, Scores, Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation, Rows, Unit
from discreet.queries.contributions import sensitivities, used_rows
from discreet.queries.grid import column, numbers, plain


def histogram(
    values: ArrayLike,
    *,
    categories: Sequence[Any] | None = None,
    edges: Sequence[float] | None = None,
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """How many rows fall into each of some public bins; rows that fall into none are not counted.

    Args:
        values: one entry for each row.
        categories: the public values to count, each a bin of its own. Equality decides; text is not normalized.
        edges: instead, ascending numbers: bin i holds edges[i] ≤ x < edges[i+1], and the last bin its right edge too.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are counted.

    Guarantee: add/remove changes one bin by 1 (L1 = L2 = 1); replace-one moves a row between two bins (L1 = 2,
    L2 = √2); a person with m rows: m times that. The bins are public: there is no way to take them from the data.

    >>> histogram(["a", "b", "a", "z"], categories=["a", "b", "c"])
    <histogram: value hidden, L1 ≤ 1, L2 ≤ 1 for one row, add/remove>
    """
    where, labels = _bins(values, categories, edges)
    use, unit, _ = used_rows(where.size, persons, max_rows)
    counts = np.bincount(where[use & (where >= 0)], minlength=len(labels))
    present = Sensitivity.scalar(1)
    moved = Sensitivity(2, 2, 2, 1) if len(labels) > 1 else present
    bounds = sensitivities(present, moved, unit, len(labels))
    return Bounded(counts.astype(np.int64), Fraction(1), bounds, "histogram", unit, labels=labels, direction=1)


def votes(
    values: ArrayLike,
    *,
    candidates: Sequence[Any],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Scores:
    """Scores for a selection: how many rows name each public candidate.

    Guarantee: one row changes one score by 1 (a person: `max_rows`); under add/remove and zero-out all scores move in
    one direction, so a selection costs half. Not protected: the candidates.

    >>> votes(["tea", "tea", "mate"], candidates=["tea", "coffee"])
    <votes: 2 candidates, scores hidden, sensitivity 1>
    """
    counted = histogram(values, categories=candidates, persons=persons, max_rows=max_rows)
    return Scores(
        counted.values,
        tuple(candidates),
        {relation: bound.linf for relation, bound in counted.sensitivities.items()},
        "votes",
        counted.unit,
        frozenset({ADD_REMOVE, ZERO_OUT}),
    )


def scores_of_counts(
    counts: Sequence[int],
    labels: tuple[Any, ...],
    unit: Unit,
    *,
    scale: int = 1,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """How often each public category occurs in one group, as scores for choosing the most frequent.

    Guarantee: adding a row raises one score by its weight and lowers none; a person's rows weigh `max_rows` times
    `scale` in all, or less. Under replace-one twice that covers the group that is left and the one that is entered.
    These bounds hold for the changes of all groups added up, so one draw for each group costs as much as a single draw
    (docs/proofs/covariance.md). Assumes that the engine counted each row in one category at most and weighted persons.
    Not protected: the categories.
    """
    values = np.array([min(int(count), LARGEST) for count in counts], dtype=np.int64)
    added = (1 if isinstance(unit, Rows) else unit.max_rows) * scale
    moved = {ADD_REMOVE: added, REPLACE_ONE: 2 * added, ZERO_OUT: added}
    monotone = frozenset({ADD_REMOVE, ZERO_OUT})
    return Scores(values, labels, {relation: moved[relation], **moved}, "choices", unit, monotone)


# Categories below this are looked up in a table.
_TABLE = 1 << 20
# Rows that are looked up at once: their arrays fit in the processor's cache.
_BLOCK = 1 << 15


def _bins(
    values: ArrayLike, categories: Sequence[Any] | None, edges: Sequence[float] | None
) -> tuple[NDArray[np.intp], tuple[Any, ...]]:
    """Each row's bin, −1 for none, and the bins' labels."""
    _check.exactly_one(categories=categories, edges=edges)
    if categories is not None:
        return categorized(values, categories)
    cuts = [float(_check.real("edges", edge, "bins have finite public edges")) for edge in edges or ()]
    if len(cuts) < 2 or any(a >= b for a, b in pairwise(cuts)):
        raise _check.fail("edges", "be at least two ascending numbers", edges, "n bins have n + 1 edges")
    amounts = numbers(values)
    where = np.minimum(np.searchsorted(cuts, amounts, side="right") - 1, len(cuts) - 2)
    where[~((amounts >= cuts[0]) & (amounts <= cuts[-1]))] = -1
    return where, tuple(pairwise(cuts))


def categorized(values: ArrayLike, categories: Sequence[Any]) -> tuple[NDArray[np.intp], tuple[Any, ...]]:
    """Each row's category, −1 for none, and the categories, which must be distinct and not missing."""
    labels = tuple(categories)
    index: dict[Any, int] = {}
    for position, label in enumerate(labels):
        if plain(label) is None:
            raise _check.fail("categories", "be plain values, none of them missing", label, "use text or numbers")
        if label in index:
            raise _check.fail("categories", "be distinct", label, "a row belongs to one bin")
        index[label] = position
    if not labels:
        raise _check.fail("categories", "name at least one value", categories, "the bins are public facts")
    entries = column(values)
    if entries.dtype.kind in "iu" and all(type(label) is int and 0 <= label < _TABLE for label in labels):
        # A table of all small integers: its size, and the time that it takes, depend on the categories alone.
        table = np.full(max(labels) + 2, -1, dtype=np.intp)
        table[list(labels)] = np.arange(len(labels))
        codes = np.empty(entries.size, dtype=np.intp)
        for start in range(0, entries.size, _BLOCK):
            block = entries[start : start + _BLOCK]
            inside = (block >= 0) & (block <= len(table) - 2)
            codes[start : start + _BLOCK] = table[np.where(inside, block, len(table) - 1).astype(np.intp)]
        return codes, labels
    indices = (index.get(plain(value), -1) for value in entries.tolist())
    return np.fromiter(indices, dtype=np.intp, count=entries.size), labels
