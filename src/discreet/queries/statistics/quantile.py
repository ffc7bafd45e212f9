"""How well each public candidate serves as a quantile: scores for the exponential mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import LARGEST, Scores
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation, Rows, Unit
from discreet.queries.contributions import used_rows
from discreet.queries.grid import Grid, numbers
from discreet.queries.statistics.marks import Marks, merged


def quantile_scores(
    values: ArrayLike,
    *,
    quantile: float | Fraction = Fraction(1, 2),
    candidates: Sequence[float],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Scores:
    """Scores for choosing the `quantile` of `values` among public candidates: 0 at the quantile, negative elsewhere.

    With q = a/d and L rows below the candidate, H at or above it, the score is −|(d − a)L − aH|: an integer that is
    0 where the candidate splits the rows as the quantile does (Smith 2011). Rows without a value count on no side.

    Args:
        values: one number for each row.
        quantile: strictly between 0 and 1; taken as a fraction with a denominator of at most 1000.
        candidates: ascending public numbers, such as a grid over plausible values.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are used.

    Guarantee: a row moves each score by at most max(a, d − a) (add/remove, zero-out) or d (replace-one); a person
    `max_rows` times that. Not protected: the candidates.

    >>> quantile_scores([1, 5, 9], candidates=range(11))
    <quantile scores: 11 candidates, scores hidden, sensitivity 1>
    """
    exact = fraction(quantile)
    a, d = exact.numerator, exact.denominator
    cuts = [float(_check.real("candidates", c, "candidates are finite public numbers")) for c in candidates]
    if not cuts or any(x >= y for x, y in pairwise(cuts)):
        raise _check.fail("candidates", "be ascending and at least one", candidates, "list the answers that may come")
    amounts = numbers(values)
    use, unit, rows = used_rows(amounts.size, persons, max_rows)
    ordered = np.sort(amounts[use & ~np.isnan(amounts)])
    below = np.searchsorted(ordered, np.array(cuts), side="left").astype(np.int64)
    scores = -np.abs((d - a) * below - a * (ordered.size - below))
    return Scores(scores, tuple(candidates), moves(exact, rows), "quantile scores", unit)


def scores_of_cells(
    candidates: tuple[float, ...],
    quantile: Fraction,
    counts: Sequence[int],
    unit: Unit,
    *,
    scale: int = 1,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """Scores of ascending candidates as the quantile of one group, given how many rows lie on and between them.

    `counts` are those of 2m + 1 cells for m candidates: cell 2i + 1 holds the rows on candidate i, cell 2i those
    between the candidates i − 1 and i. With q = a/d, N rows, L of them below a candidate and E on it, the score is
    −max(dL − aN, aN − d(L + E)). Where the candidate is a q-quantile of the rows, this is d times how far inside of its
    own rows the quantile lies; elsewhere it is −d times the number of rows between the candidate and the quantile.

    Guarantee: adding a row moves dL − aN by d − a or −a, and aN − d(L + E) by a or a − d, so each score by at most
    max(a, d − a) times its weight; exchanging a row by at most twice that; a person's rows weigh at most `max_rows`
    times `scale` in all. These bounds hold for the changes of all groups added up, so one draw for each group costs as
    much as a single draw (docs/proofs/analytics-person-bounds.md). Assumes that the engine counted each row in one cell
    and weighted persons. Not protected: the candidates.
    """
    a, d = quantile.numerator, quantile.denominator
    most = LARGEST // (d * len(counts))  # clamping a count moves no two of them further apart
    cells = np.minimum(np.asarray(counts, dtype=np.int64), most)
    rows, on, upto = int(cells.sum()), cells[1::2], np.cumsum(cells)[1::2]
    values = -np.maximum(d * (upto - on) - a * rows, a * rows - d * upto)
    return Scores(values, candidates, _moved(quantile, unit, scale, relation), "quantile", unit)


class Place(NamedTuple):
    """A place where a quantile may lie: on a level (all three are equal), or between two; `value` stands for it."""

    value: float
    low: float
    high: float


@lru_cache(maxsize=256)
def places_of(points: tuple[float, ...], bounds: tuple[float, float]) -> tuple[Place, ...]:
    """All places that ascending points make of the range between bounds: below, on and between them, and above."""
    ends = (min(bounds[0], points[0]), *points, max(bounds[1], points[-1]))
    places = []
    for low, high in pairwise(ends):
        places += [Place(low + (high - low) / 2, low, high), Place(high, high, high)]
    return tuple(places[:-1])


def scores_of_places(
    places: tuple[Place, ...],
    quantile: Fraction,
    counts: Sequence[int] | NDArray[np.int64],
    unit: Unit,
    *,
    scale: int = 1,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """Scores of the places that points make of a range as the quantile of one group, given the rows in each place.

    Places are disjoint and cover the range, so one of them holds the quantile, and the best score is at least 0. With
    q = a/d, N rows, L of them below a place and E in it, the score is −max(dL − aN, aN − d(L + E)): if negative, −d
    times the number of rows between the place and the quantile, and else d times how far inside the quantile lies.

    Guarantee: as `scores_of_cells`.
    """
    a, d = quantile.numerator, quantile.denominator
    most = LARGEST // (d * len(counts))
    cells = np.minimum(np.asarray(counts, dtype=np.int64), most)
    upto = np.cumsum(cells)
    rows = int(upto[-1])
    values = -np.maximum(d * (upto - cells) - a * rows, a * rows - d * upto)
    return Scores(values, places, _moved(quantile, unit, scale, relation), "quantile", unit)


@dataclass(frozen=True, eq=False)
class RefinedScores:
    """Scores for two passes: those of coarse places and, for the place that a first draw released, those of fine ones.

    Guarantee: for any place, `fine` is a query of the same rows whose candidates and sensitivity depend on that place
    alone. So two draws cost what the two mechanisms cost one after the other (docs/proofs/analytics-person-bounds.md).
    """

    coarse: Scores
    fine: Callable[[Any], Scores]


def refined_scores(
    marks: Marks,
    quantile: Fraction,
    counts: Sequence[int],
    unit: Unit,
    *,
    scale: int = 1,
    relation: Relation = ADD_REMOVE,
) -> RefinedScores:
    """Scores of the places that coarse marks make, and then of those of finer marks around the one that was chosen.

    In either pass the places cover the whole range, so the best score is at least 0: what the first pass chose decides
    how narrow the places near the quantile are, and not how many rows may lie between the answer and the quantile.

    Guarantee: in each pass as `scores_of_places`; `counts` are those of the cells that all marks make.
    """
    cells = np.asarray(counts, dtype=np.int64)
    bounds = marks.coarse[0], marks.coarse[-1]

    def scores(kept: tuple[int, ...]) -> Scores:
        places = places_of(tuple(marks.points[index] for index in kept), bounds)
        return scores_of_places(places, quantile, merged(cells, kept), unit, scale=scale, relation=relation)

    coarse = scores(marks.places)

    def fine(chosen: Any) -> Scores:
        return scores(marks.around(coarse.candidates.index(chosen)))

    return RefinedScores(coarse, fine)


def scores_of_bins(
    cuts: tuple[float, ...],
    quantile: Fraction,
    counts: Sequence[int],
    unit: Unit,
    *,
    upper: bool,
    scale: int = 1,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """Scores of the intervals between successive cuts as the place of the quantile of one group.

    `counts` are those of `scores_of_cells`. An interval with L rows below its left end and U rows up to its right end,
    both ends included, has the score −max(dL − aN, aN − dU), which is at least 0 where the quantile lies in it. The
    answer is its left end or, with `upper`, its right end; the outermost cut for the two intervals without such an end.

    Guarantee: as `scores_of_cells`, since dL − aN and aN − dU move by at most max(a, d − a) for each added row.
    """
    a, d = quantile.numerator, quantile.denominator
    most = LARGEST // (d * len(counts))
    cells = np.minimum(np.asarray(counts, dtype=np.int64), most)
    upto = np.cumsum(cells)
    rows = int(upto[-1])
    below = np.concatenate([[0], upto[0::2][:-1]])  # before each cut; the first interval has none
    through = np.concatenate([upto[1::2], [rows]])  # through each cut; the last interval has none
    values = -np.maximum(d * below - a * rows, a * rows - d * through)
    ends = (*cuts, cuts[-1]) if upper else (cuts[0], *cuts)
    return Scores(values, ends, _moved(quantile, unit, scale, relation), "range", unit)


def _moved(quantile: Fraction, unit: Unit, scale: int, relation: Relation) -> dict[Relation, int]:
    """How far a unit moves the scores of all groups in all, under each relation; the given one comes first."""
    rows_of_a_unit = 1 if isinstance(unit, Rows) else unit.max_rows
    added = moves(quantile, rows_of_a_unit * scale)[ADD_REMOVE]
    # A unit that is exchanged may leave one group and enter another: both changes count.
    moved = {ADD_REMOVE: added, REPLACE_ONE: 2 * added, ZERO_OUT: added}
    return {relation: moved[relation], **moved}


@lru_cache(maxsize=64)
def levels_of(grid: Grid) -> tuple[float, ...]:
    """The values of a grid's levels: public answers that a quantile is chosen among."""
    return tuple(float(grid.center + level * grid.step) for level in range(grid.lower, grid.upper + 1))


def fraction(quantile: object) -> Fraction:
    """The quantile as a fraction with a denominator of at most 1000."""
    exact = _check.real("quantile", quantile, "0.5 is the median").limit_denominator(1000)
    if not 0 < exact < 1:
        raise _check.fail(
            "quantile", "lie in [0.001, 0.999]", quantile, "0.5 is the median; the ends need bounds instead"
        )
    return exact


def moves(quantile: Fraction, rows: int) -> dict[Relation, int]:
    """How far a unit of `rows` rows moves one score, under each relation."""
    a, d = quantile.numerator, quantile.denominator
    single_move = rows * max(a, d - a)
    return {ADD_REMOVE: single_move, REPLACE_ONE: rows * d, ZERO_OUT: single_move}
