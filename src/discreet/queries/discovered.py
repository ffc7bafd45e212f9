"""How many units hold each key that occurs in the data: the input of a private selection of keys.

Here the keys are data: only `mechanisms.KeySelection` may reveal which of them occur, and how many. So the counts are
not a `Bounded`, which any mechanism would accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.bounded import LARGEST, Bounded, Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation, Rows, Unit
from discreet.queries.contributions import first


@dataclass(frozen=True, eq=False, repr=False)
class KeyCounts:
    """The exact, unprotected number of units for each key that occurs; even how many there are is secret."""

    values: NDArray[np.int64]
    unit: Unit
    relation: Relation

    def __repr__(self) -> str:
        return f"<key counts: keys and values hidden, for {self.unit}, {self.relation.value}>"


def keys_moved(unit: Unit, relation: Relation) -> int:
    """How many keys one unit may join or leave: its own keys, and under replace-one those of two units."""
    own = 1 if isinstance(unit, Rows) else min(unit.max_rows, unit.max_groups or unit.max_rows)
    return own * (2 if relation is REPLACE_ONE else 1)


def key_limits(unit: Unit, *, relation: Relation = ADD_REMOVE) -> Bounded:
    """How far one unit moves the counts of all keys, without the counts: public facts, for calibration."""
    moved = {r: keys_moved(unit, r) for r in (ADD_REMOVE, REPLACE_ONE, ZERO_OUT)}
    bounds = {r: Sensitivity(m, m, m, 1) for r, m in moved.items()}
    return Bounded(np.zeros(1, dtype=np.int64), Fraction(1), first(relation, bounds), "key counts", unit, direction=1)


def key_counts(values: Sequence[int] | NDArray[np.int64], unit: Unit, *, relation: Relation = ADD_REMOVE) -> KeyCounts:
    """The numbers of units that hold each of the keys that occur, as an engine counted them.

    Guarantee: one unit moves at most `keys_moved` counts, each by 1, as `key_limits` says; a key that nobody else holds
    appears or vanishes with it. Assumes that the engine counts a unit once in a key, and a person in at most
    `max_groups` keys. Not protected: nothing is shown before a selection.
    """
    return KeyCounts(np.minimum(np.asarray(values, dtype=np.int64), LARGEST), unit, relation)
