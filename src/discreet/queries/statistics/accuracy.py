"""How often a model is right on the rows that it is tested on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _check, neighbors
from discreet.bounded import Bounded
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.queries.grid import Grid, column, plain
from discreet.queries.statistics.mean import mean, mean_of_known_size


def accuracy(truth: ArrayLike, predicted: ArrayLike, *, relation: Relation | str = REPLACE_ONE) -> Bounded:
    """The share of rows where `predicted` equals `truth`.

    Args:
        truth: each row's label.
        predicted: the model's prediction for each row.
        relation: `dp.REPLACE_ONE` (the number m of test rows is public) or `dp.ADD_REMOVE` (a noisy sum and count).

    Guarantee: replace-one: Δ = 1/m; add/remove: as `mean` of values in [0, 1]. The model must not have been trained
    on these rows, or its training is a release of its own. Not protected: m under replace-one, the columns' types.

    >>> accuracy([1, 0, 1, 1], [1, 1, 1, 0])
    <accuracy: value hidden, L1 ≤ 0.25, L2 ≤ 0.25 for one row, replace-one>
    """
    labels, guesses = column(truth, "truth"), column(predicted, "predicted")
    if labels.size != guesses.size:
        raise _check.fail("predicted", "have one entry for each row", "another length", "predict the same rows")
    pairs = zip(labels.tolist(), guesses.tolist(), strict=True)
    hits = np.fromiter((_same(plain(a), plain(b)) for a, b in pairs), dtype=np.float64, count=labels.size)
    if neighbors.relation(relation) is REPLACE_ONE:
        return mean_of_known_size(_HIT_GRID, hits, "accuracy")
    return mean(hits, bounds=(0, 1), relation=relation)


#: Hits are 0 or 1: the two levels ±1 around one half.
_HIT_GRID = Grid.over((0, 1), center=True, levels=1)


def _same(a: Any, b: Any) -> bool:
    return a is not None and bool(a == b)
