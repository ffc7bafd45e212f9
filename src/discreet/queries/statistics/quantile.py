"""How well each public candidate serves as a quantile: scores for the exponential mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from discreet import _check
from discreet.bounded import Scores
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation
from discreet.queries.contributions import used_rows
from discreet.queries.grid import numbers


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
    one = rows * max(a, d - a)
    return {ADD_REMOVE: one, REPLACE_ONE: rows * d, ZERO_OUT: one}
