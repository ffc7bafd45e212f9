"""The result of a mechanism: a noisy value with its event, its guarantee and its error.

>>> from discreet import events
>>> from discreet.guarantees import PureDP
>>> from fractions import Fraction
>>> count = Release(41, events.DiscreteLaplace(1, Fraction(2)), PureDP(0.5))
>>> count.map(lambda n: max(n, 0)).event == count.event
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check
from discreet.bounded import Finish
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.numeric.noise_sums import gaussian_sum_quantile, laplace_sum_quantile

#: Discrete Gaussians with a smaller σ get their tails by summation, larger ones by comparison with a normal.
_SUMMED_BELOW = 64

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class NoiseLaw:
    """The distribution of a release's noise, for error bars only: its family, and its scale (b or σ) in grid units."""

    gaussian: bool
    rounded: bool
    scale: float

    def standard_deviation(self) -> float:
        """The standard deviation in grid units.

        Discrete Laplace: 1/(√2 sinh h), rounded Laplace: √(cosh h/2)/sinh h, with h = 1/2b. Gaussian: by summation
        below σ = 4; from there on σ (discrete) or √(σ² + 1/12) (rounded), which is exact to float precision.
        """
        if not self.gaussian:
            h = 1 / (2 * self.scale)
            if h > 300:  # sinh and cosh would overflow
                return math.exp(-h / 2) if self.rounded else math.sqrt(2.0) * math.exp(-h)
            return math.sqrt(math.cosh(h) / 2 if self.rounded else 0.5) / math.sinh(h)
        if self.scale >= 4:
            return math.sqrt(self.scale**2 + (1 / 12 if self.rounded else 0.0))
        x = np.arange(-60.0, 61.0)  # ±15 σ: the mass beyond is far below float precision
        if self.rounded:
            mass = special.ndtr((x + 0.5) / self.scale) - special.ndtr((x - 0.5) / self.scale)
        else:
            with np.errstate(over="ignore"):
                mass = np.exp(-0.5 * (x / self.scale) ** 2)
        return float(np.sqrt(np.sum(mass * x * x) / np.sum(mass)))

    def half_width(self, tail: float) -> float:
        """A bound t in grid units that |noise| exceeds with probability at most `tail`.

        Laplace: P(|X| > t) ≤ 2/(1+e^{−1/b}) e^{−(t+1)/b} (discrete) or e^{−(t+1/2)/b} (rounded), for integers t.
        Rounded Gaussian: |noise| > t exactly if the normal exceeds t + 1/2. Discrete Gaussian: by summation below
        σ = 64. From there on, for m ≥ 1 each exp(−x²/2σ²), x ≥ m, is at most its integral over [x − 1, x], and the
        discrete normalizer is at least √(2πσ²), so P(X ≥ m) ≤ P(N ≥ m − 1).
        """
        if self.gaussian:
            normal = float(-special.ndtri(tail / 2)) * self.scale
            if self.rounded:
                return max(0.0, math.ceil(normal - 0.5))
            return math.ceil(normal) if self.scale >= _SUMMED_BELOW else self._summed_half_width(tail)
        if self.rounded:
            return max(0.0, math.ceil(-math.log(tail) * self.scale - 0.5))
        q = math.exp(-1 / self.scale)
        return max(0.0, math.ceil(math.log(2 / ((1 + q) * tail)) * self.scale - 1))

    def _summed_half_width(self, tail: float) -> float:
        """The least integer t with P(|X| > t) ≤ `tail` for a discrete Gaussian; terms beyond 40σ are below 1e-340."""
        x = np.arange(0.0, math.ceil(40 * self.scale) + 2)
        with np.errstate(over="ignore", under="ignore"):
            mass = np.exp(-0.5 * (x / self.scale) ** 2)
        beyond = np.cumsum(mass[::-1])[::-1]  # beyond[t] is the mass of all x ≥ t, smallest terms first
        share = 2 * beyond[1:] / (2 * beyond[1] + mass[0])
        return float(np.argmax(share <= tail * (1 - 1e-12)))  # more than the round-off of the sums

    def sum_width(self, weights: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
        """A bound that |Σ weight·noise| exceeds with probability at most `tail`; one row of `weights` for each noise.

        Discrete noise is at most 1, and rounded noise at most 1/2, further from 0 than a continuous noise of the same
        scale with which it can be drawn together (for the tails, see `half_width`), so this much is added for each.
        """
        sizes = np.abs(np.asarray(weights, dtype=np.float64))
        scales = sizes * self.scale
        wide = gaussian_sum_quantile(scales, tail) if self.gaussian else laplace_sum_quantile(scales, tail)
        return np.asarray(wide + (0.5 if self.rounded else 1.0) * sizes.sum(axis=0))


@dataclass(frozen=True)
class Error:
    """The error of a noisy statistic: the noise, carried through the post-processing that made the statistic."""

    finish: Finish
    noisy: NDArray[np.int64]
    noise: NoiseLaw

    def standard_error(self) -> Any:
        """The standard error of the statistic, shaped like it."""
        return self.finish.standard_error(self.noisy, self.noise.standard_deviation())

    def interval(self, level: float) -> tuple[Any, Any]:
        """(low, high) that hold the exact statistic with probability at least `level`."""
        return self.finish.interval(self.noisy, self.noise, 1 - level)


@dataclass(frozen=True)
class Release(Generic[T]):
    """A private value, with what was run to get it, what that promises, and its error.

    Attributes:
        value: the noisy result; it may be used freely.
        event: what was run, for an accountant or a ledger to price.
        guarantee: what this release promises on its own.
        error: the error of the value, or None if it is not known (a selection, or after `map`).
        labels: the public names of the value's coordinates, if they have names.
    """

    value: T
    event: Event
    guarantee: Guarantee
    error: Error | None = None
    labels: tuple[Any, ...] | None = None

    def map(self, function: Callable[[T], S]) -> Release[S]:
        """Apply `function` to the value. The event stays the same: post-processing is free.

        `function` must not look at the protected data again. The error of the result is not known.

        Guarantee: post-processing (Dwork & Roth 2014, Proposition 2.1): the event and the guarantee stay as they are.
        """
        return Release(function(self.value), self.event, self.guarantee)

    @property
    def standard_error(self) -> Any:
        """The standard error due to the noise, shaped like the value; None if it is not known."""
        return None if self.error is None else self.error.standard_error()

    def confidence_interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """(low, high) that hold the statistic of the given data with probability at least `level`.

        The interval accounts for the noise only, not for clamping, nor for sampling from a population. Each coordinate
        has its own interval.
        """
        share = float(
            _check.probability("level", level, "it is the probability that the interval is right, such as 0.95")
        )
        if not 0 < share < 1:
            raise _check.fail("level", "be strictly between 0 and 1", level, "for example 0.95")
        if self.error is None:
            raise _check.fail("error", "be known", None, "ask before map(), or derive the error of your own function")
        return self.error.interval(share)

    def margin(self, level: float = 0.95) -> Any:
        """The ± of the value: the statistic lies within value ± margin with probability at least `level`.

        It is the distance to the farther end of `confidence_interval(level)`, shaped like the value. All ± that this
        package prints have this meaning, at 95%.
        """
        low, high = self.confidence_interval(level)
        value: Any = self.value
        widest = np.maximum(np.subtract(high, value), np.subtract(value, low))
        return float(widest) if np.ndim(widest) == 0 else widest

    def as_dict(self) -> dict[Any, Any]:
        """The values by label, for a release with labels."""
        if self.labels is None:
            raise _check.fail("labels", "be known", None, "this release has a single value: use .value")
        return dict(zip(self.labels, np.asarray(self.value).tolist(), strict=True))

    def __str__(self) -> str:
        if self.error is None or isinstance(self.value, np.ndarray):
            return f"{self.value} [{self.guarantee}]"
        shown = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:.6g}"
        return f"{shown} ± {self.margin():.3g} [{self.guarantee}]"
