"""Free post-processing on request: nonnegative counts, whole numbers, groups that add up to their total."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.analytics.plan.spending import TOTAL_SHARE
from discreet.numeric.search import bisect
from discreet.release import NoiseLaw


@dataclass(frozen=True)
class Consistency:
    """What released counts and sums should satisfy. This uses released numbers alone, so it is free.

    Attributes:
        nonnegative: counts, and sums whose bounds allow no negative value, are moved up to 0.
        integer: counts are rounded to whole numbers.
        total: the groups' counts and sums are moved so that they add up to their total, which is measured as well, at
            the cost of this part of the column's share of the budget.
    """

    nonnegative: bool = False
    integer: bool = False
    total: Fraction | None = None

    @classmethod
    def of(cls, nonnegative: object, integer: object, total: object) -> Consistency:
        """The checked request."""
        for name, value in (("nonnegative", nonnegative), ("integer", integer)):
            if not isinstance(value, bool):
                raise _check.fail(name, "be True or False", value, "it asks for post-processing")
        if total is None or total is False:
            return cls(bool(nonnegative), bool(integer))
        share = Fraction(TOTAL_SHARE) if total is True else _check.positive("total", total, _TOTAL)
        if share >= 1:
            raise _check.fail("total", "be < 1", total, _TOTAL)
        return cls(bool(nonnegative), bool(integer), share)


_TOTAL = "it is the part of a column's share of the budget that its total gets; True takes a fifth"


@dataclass(frozen=True)
class Measured:
    """Released numbers with their errors, at 95% or another level; `noise` is on a grid of `step`."""

    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    noise: NoiseLaw
    step: float

    @property
    def variance(self) -> float:
        """The variance of the noise, in the numbers' own units."""
        return (self.noise.standard_deviation() * self.step) ** 2


@dataclass(frozen=True)
class Settled:
    """Numbers after post-processing, with their errors, and their total where one was measured."""

    values: NDArray[Any]
    errors: NDArray[np.float64]
    total: tuple[float, float] | None = None


def settled(
    groups: Measured,
    total: Measured | None,
    wanted: Consistency,
    *,
    counts: bool,
    lower: float,
    level: float = 0.95,
) -> Settled:
    """The measured numbers, made consistent.

    Moving a negative number to 0 moves it toward the truth, which is not negative, so its error stays. Every other
    step adds to the errors as much as it moves the numbers.
    """
    floor = wanted.nonnegative and (counts or lower >= 0)
    round_counts = wanted.integer and counts
    if total is None or groups.values.size == 0:
        values = np.maximum(groups.values, 0) if floor else groups.values
        rounded = np.rint(values).astype(np.int64) if round_counts else values
        return Settled(rounded, groups.errors + np.abs(rounded - values))
    fitted, (target, target_error) = least_squares(groups, total, level)
    aim = max(target, 0.0) if floor else target
    aim = float(np.rint(aim)) if round_counts else aim
    lowered = _excess(fitted.values, aim) if floor else (target - aim) / fitted.values.size
    values = fitted.values - lowered
    values = np.maximum(values, 0.0) if floor else values
    rounded = rounded_to(values, int(aim)) if round_counts else values
    errors = fitted.errors + abs(lowered) + np.abs(rounded - values)
    return Settled(rounded, errors, (aim, target_error + abs(aim - target)))


def least_squares(groups: Measured, total: Measured, level: float = 0.95) -> tuple[Measured, tuple[float, float]]:
    """The groups that add up to the best estimate of their total, that estimate, and the errors of all at a level.

    Weighted by the variances v of a group and w of the total: each of G groups moves by (total − sum)·c with
    c = v/(w + Gv), and so they add up to sum + (total − sum)·Gc. The errors are quantiles of the same sums of noises.
    """
    count, v, w = groups.values.size, groups.variance, total.variance
    pull = v / (w + count * v) if w + count * v > 0 else 1 / (count + 1)  # with hardly any noise all weigh alike
    gap = float(total.values.ravel()[0]) - float(groups.values.sum())
    of_group, of_total = (groups.noise, groups.step), (total.noise, total.step)
    group_error = quantile([(1 - pull, 1, *of_group), (pull, count - 1, *of_group), (pull, 1, *of_total)], level)
    total_error = quantile([(1 - count * pull, count, *of_group), (count * pull, 1, *of_total)], level)
    moved = Measured(groups.values + pull * gap, np.full(count, group_error), groups.noise, groups.step)
    return moved, (float(groups.values.sum()) + count * pull * gap, total_error)


def quantile(summands: list[tuple[float, int, NoiseLaw, float]], level: float = 0.95) -> float:
    """A t with P(|Σ weight·noise| ≤ t) ≥ `level`, where each independent noise occurs `many` times.

    By Gil-Pelaez: a symmetric sum with the characteristic function φ has P(|S| ≤ t) = (2/π)∫ φ(s) sin(st)/s ds. Noise
    is taken as continuous here; one weighted grid step is added for each part.
    """
    spread = math.sqrt(
        sum(many * (weight * noise.standard_deviation() * step) ** 2 for weight, many, noise, step in summands)
    )
    if spread <= 0:
        return 0.0
    s = np.linspace(0.0, 200.0 / spread, 1 << 15)[1:]
    phi = np.ones_like(s)
    for weight, many, noise, step in summands:
        width = noise.standard_deviation() if noise.gaussian else noise.scale
        x = (weight * width * step * s) ** 2
        phi *= np.exp(-many * x / 2) if noise.gaussian else (1 + x) ** -float(many)

    def covers(t: float) -> bool:
        area = float(np.trapezoid(phi * np.sin(s * t) / s, s)) + t * float(s[0])
        return 2 / math.pi * area >= level

    covering = bisect(covers, 0.0, 30.0 * spread, absolute=1e-5 * spread).high
    return covering + sum(abs(weight) * step for weight, _, _, step in summands)


def _excess(values: NDArray[np.float64], total: float) -> float:
    """By how much to lower all numbers so that those still above 0 add up to `total` ≥ 0; the nearest such numbers."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, values.size + 1)
    last = int(np.flatnonzero(ordered - excess > 0)[-1]) if np.any(ordered - excess > 0) else 0
    return float(excess[last])


def rounded_to(values: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers next to `values` that add up to `total`: those with the largest fractions are rounded up."""
    floors = np.floor(values).astype(np.int64)
    short = total - int(floors.sum())
    order = np.argsort(-(values - floors), kind="stable")
    floors[order[: max(0, min(short, values.size))]] += 1
    return floors
