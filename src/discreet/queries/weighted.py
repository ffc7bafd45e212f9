"""Weights of persons' rows: a person with more rows than the limit counts as the limit in all, each row for less.

A row weighs an integer number of 1/`WEIGHT`: `WEIGHT` where its person keeps to the limit, and floor(`WEIGHT`·limit/n)
where they have n rows, more than the limit. The weights of one person's rows never add up to more than `WEIGHT`·limit,
and nobody's weight depends on anybody else (docs/proofs/analytics-person-bounds.md). Sums of weighted rows are integers
in units of 1/`WEIGHT`; the finishes here divide by it after noise is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.bounded import Finish, Tails
from discreet.neighbors import Rows, Unit
from discreet.queries.grid import MIN_LEVELS

#: The weight of a row of a person within the limit.
WEIGHT = 1 << 10
#: The largest allowed row limit of a person: with it a grid of 2^10 levels still sums within 64 bits.
MAX_PERSON_ROWS = 1 << 18
#: With these levels a row's weighted level is at most 2^28 in size, so sums over 2^32 rows stay within 2^60.
_LEVELS = 1 << 18
#: The aim for the sum of a person's weighted levels: it keeps the noise far below 64 bits.
_PERSON = 1 << 34


def scale(unit: Unit) -> int:
    """The largest weight of one row: 1 where rows are protected, which need no further bound."""
    if isinstance(unit, Rows):
        return 1
    if unit.max_rows > MAX_PERSON_ROWS:
        remedy = "a person with that many rows would need too coarse a grid"
        raise _check.fail("max_rows", f"be ≤ {MAX_PERSON_ROWS}", unit.max_rows, remedy)
    return WEIGHT


def levels(unit: Unit, most: int) -> int:
    """How fine a grid may be for units of this kind: `most` levels for rows, fewer for persons with many rows."""
    if isinstance(unit, Rows):
        return most
    return min(most, max(MIN_LEVELS, min(_LEVELS, _PERSON // (WEIGHT * unit.max_rows))))


@dataclass(frozen=True)
class Counted:
    """Finish of a count in units of 1/`scale`: the nearest whole number."""

    scale: int

    @property
    def mixes(self) -> int:
        return 1

    def value(self, noisy: NDArray[np.int64]) -> Any:
        return _whole((noisy + self.scale // 2) // self.scale)

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> Any:
        return spread / self.scale if noisy.ndim == 0 else np.full(noisy.shape, spread / self.scale)

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[Any, Any]:
        half = int(np.ceil(noise.half_width(tail)))
        return _whole((noisy - half) // self.scale), _whole(-((-noisy - half) // self.scale))


@dataclass(frozen=True)
class _Divided:
    """Noise in units of `scale` times its own."""

    noise: Tails
    scale: int

    def half_width(self, tail: float) -> float:
        return self.noise.half_width(tail) / self.scale

    def sum_width(self, weights: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
        return self.noise.sum_width(weights, tail) / self.scale


@dataclass(frozen=True)
class Weighted:
    """Finish of a statistic whose coordinates are in units of 1/`scale`."""

    inner: Finish
    scale: int

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    @property
    def vectorized(self) -> bool:
        """Whether coordinates may be rows of an array with one column for each group."""
        return bool(getattr(self.inner, "vectorized", False))

    def value(self, noisy: NDArray[np.int64]) -> Any:
        return self.inner.value(self._unweighted(noisy))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> Any:
        return self.inner.standard_error(self._unweighted(noisy), spread / self.scale)

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[Any, Any]:
        return self.inner.interval(self._unweighted(noisy), _Divided(noise, self.scale), tail)

    def _unweighted(self, noisy: NDArray[np.int64]) -> Any:
        return np.asarray(noisy) / self.scale  # finishes of several coordinates compute in floats


def _whole(counts: Any) -> Any:
    return int(counts) if np.ndim(counts) == 0 else counts
