"""Values that carry their sensitivity: queries make them, and mechanisms take them.

A `Bounded` is a vector of integers on a public grid, with its sensitivity under each neighboring relation. A `Scores`
is the same for selection: one integer score for each public candidate. Only `queries` (and training) make them from
data, because whoever states a bound must have enforced it. Neither shows its value, which is not private yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet import _check, neighbors
from discreet.errors import InvalidArgument, InvalidSensitivity
from discreet.neighbors import Relation, Rows, Unit

#: The largest coordinate of a bounded value: with it, adding noise cannot overflow 64 bits.
LARGEST = 1 << 60


@dataclass(frozen=True)
class Sensitivity:
    """How far one unit can move a vector of integers: the number of coordinates, and the distance in three norms.

    `l2_squared` is the square of the L2 sensitivity. Like the other fields it is an integer, so nothing is rounded.
    """

    l0: int
    l1: int
    l2_squared: int
    linf: int

    def __post_init__(self) -> None:
        remedy = "it bounds how much one unit can change, in grid units"
        _check.settle_integers(self, "l0", "l1", "l2_squared", "linf", remedy=remedy)
        if not (self.linf <= self.l1 <= self.l0 * self.linf and self.linf**2 <= self.l2_squared <= self.l1 * self.linf):
            raise _check.fail("sensitivity", "have consistent norms", self, "linf ≤ l2 ≤ l1 ≤ l0·linf")

    @classmethod
    def scalar(cls, change: int) -> Sensitivity:
        """The sensitivity of a single number that moves by at most `change`."""
        change = int(change)
        return cls(1, change, change * change, change)

    def times(self, rows: int, dimension: int) -> Sensitivity:
        """The sensitivity to `rows` changes of this size at once, in a vector of `dimension` coordinates."""
        rows = int(rows)
        return Sensitivity(
            min(self.l0 * rows, dimension), self.l1 * rows, self.l2_squared * rows * rows, self.linf * rows
        )


class Tails(Protocol):
    """How far noise reaches, in grid units: the same noise is on every coordinate, independently."""

    def half_width(self, tail: float) -> float:
        """A bound that the size of one coordinate's noise exceeds with probability at most `tail`."""

    def sum_width(self, weights: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
        """The same bound for the sum of each coordinate's noise times its weight; `weights` has a row for each."""


class Finish(Protocol):
    """Post-processing that turns noisy grid integers into the requested statistic."""

    @property
    def mixes(self) -> int:
        """The number of noisy coordinates that one statistic depends on."""

    def value(self, noisy: NDArray[np.int64]) -> Any:
        """The statistic."""

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> Any:
        """Its standard error when each coordinate carries noise with standard deviation `spread`."""

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[Any, Any]:
        """A range that misses the statistic with probability at most `tail`."""


@dataclass(frozen=True)
class Scaled:
    """The default: multiply grid integers by the grid's step. With a step of 1, integers stay integers."""

    granularity: Fraction

    @property
    def mixes(self) -> int:
        return 1

    def value(self, noisy: NDArray[np.int64]) -> Any:
        return self._scale(noisy)

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> Any:
        error = spread * float(self.granularity)
        return error if noisy.ndim == 0 else np.full(noisy.shape, error)

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[Any, Any]:
        half = int(np.ceil(noise.half_width(tail)))
        return self._scale(noisy - half), self._scale(noisy + half)

    def _scale(self, grid: NDArray[np.int64]) -> Any:
        if self.granularity == 1:
            return int(grid) if grid.ndim == 0 else grid
        scaled = np.asarray(grid) * float(self.granularity)
        return float(scaled) if scaled.ndim == 0 else scaled


class _Guarded:
    """Shared by `Bounded` and `Scores`: sensitivities by relation, and a repr that hides the value."""

    name: str
    unit: Unit
    sensitivities: Mapping[Relation, Any]

    @property
    def relation(self) -> Relation:
        """The relation that mechanisms use by default: the first one that this value is bounded for."""
        return next(iter(self.sensitivities))

    def _lookup(self, relation: Relation | str | None) -> Any:
        wanted = self.relation if relation is None else neighbors.relation(relation)
        if wanted not in self.sensitivities:
            covered = ", ".join(repr(r) for r in self.sensitivities)
            raise InvalidSensitivity(
                f"relation must be one that {self.name} is bounded for ({covered}), got {wanted!r}: "
                f"make the query with that relation"
            )
        return self.sensitivities[wanted]


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(_Guarded):
    """Integers on a grid, with a bound on how far one unit can move them.

    Attributes:
        values: the exact, unprotected integers; 0- or 1-dimensional.
        granularity: the grid's step in the units of the statistic.
        sensitivities: how far one unit can move `values`, under each relation that is covered.
        unit: who is protected.
        finish: the post-processing that turns noisy integers into the statistic.
        labels: the public names of the coordinates, if they have names.
        name: the query's name in messages.
        direction: 1 if adding a unit can only raise the values, −1 if it can only lower them, else 0.
    """

    values: NDArray[np.int64]
    granularity: Fraction
    sensitivities: Mapping[Relation, Sensitivity]
    name: str
    unit: Unit = Rows()
    finish: Finish | None = None
    labels: tuple[Any, ...] | None = None
    direction: int = 0

    def __post_init__(self) -> None:
        _freeze(self)
        _check.one_of("direction", self.direction, (-1, 0, 1), "it says which way a unit moves the values")
        if self.values.ndim > 1:
            raise _check.fail("values", "be a number or a vector", f"{self.values.ndim} dimensions", "flatten it")
        if self.finish is None:
            object.__setattr__(self, "finish", Scaled(self.granularity))

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return int(self.values.size)

    def sensitivity(self, relation: Relation | str | None = None) -> Sensitivity:
        """How far one unit can move the value, in grid units, under `relation`."""
        sensitivity: Sensitivity = self._lookup(relation)
        return sensitivity

    def __repr__(self) -> str:
        s = self.sensitivity()
        return (
            f"<{self.name}: value hidden, L1 ≤ {s.l1 * float(self.granularity):.6g}, "
            f"L2 ≤ {s.l2_squared**0.5 * float(self.granularity):.6g} for {self.unit}, {self.relation.value}>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Scores(_Guarded):
    """One integer score for each public candidate, with a bound on how far one unit can move any of them.

    `monotone` lists the relations under which one unit moves all scores in the same direction. Selection then costs
    half.
    """

    values: NDArray[np.int64]
    candidates: tuple[Any, ...]
    sensitivities: Mapping[Relation, int]
    name: str
    unit: Unit = Rows()
    monotone: frozenset[Relation] = frozenset()

    def __post_init__(self) -> None:
        _freeze(self)
        if len(self.candidates) != self.values.size or not self.candidates:
            raise _check.fail(
                "candidates", "have one entry per score, and at least one", len(self.candidates), "list them all"
            )
        remedy = "it bounds how far one unit moves a score"
        checked = {r: _check.integer("sensitivity", s, remedy) for r, s in self.sensitivities.items()}
        object.__setattr__(self, "sensitivities", MappingProxyType(checked))

    def sensitivity(self, relation: Relation | str | None = None) -> int:
        """How far one unit can move one score, in grid units, under `relation`."""
        sensitivity: int = self._lookup(relation)
        return sensitivity

    def is_monotone(self, relation: Relation | None = None) -> bool:
        """Whether one unit moves all scores in the same direction under `relation`."""
        return (self.relation if relation is None else relation) in self.monotone

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.candidates)} candidates, scores hidden, sensitivity {self.sensitivity()}>"


def _freeze(instance: Bounded | Scores) -> None:
    """Check the fields that both classes share, and make them read-only."""
    values = np.array(instance.values, dtype=np.int64)
    if np.any(values > LARGEST) or np.any(values < -LARGEST):
        raise InvalidArgument(f"values of {instance.name} must lie within ±2^60: use a coarser grid")
    frozen = np.frombuffer(values.tobytes(), dtype=np.int64).reshape(values.shape)  # bytes cannot be made writable
    if not instance.sensitivities:
        raise InvalidSensitivity(f"sensitivities of {instance.name} must name a relation: nothing bounds it")
    object.__setattr__(instance, "values", frozen)
    object.__setattr__(instance, "sensitivities", MappingProxyType(dict(instance.sensitivities)))
