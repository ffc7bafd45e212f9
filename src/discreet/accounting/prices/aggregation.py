"""Sums of many parties' discrete noise. The theorems and their proofs are in docs/proofs/secure-aggregation.md."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from discreet.accounting.forms import renyi
from discreet.accounting.losses import of_events
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.of_events import View
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.refusal import unknown
from discreet.events import DiscreteGaussian, DistributedDiscreteGaussian, Event, Skellam
from discreet.neighbors import Relation
from discreet.numeric.rounding import UNIT, Floats, float_down, float_root_up, float_up, raised, rounded_up, up

# Parties whose share in τ is summed one by one; the shares fall, so the last one stands for all further parties.
_SUMMED_PARTIES = 4096
# Above this e^{−2π²s²} the lemma on sums is not used; it needs 2e_k < 1, which holds up to about 0.45.
_MOST_DISTORTION = 0.25
# τ is at least this, so that it does not underflow to 0.
_LEAST_TAU = 1e-300
# Roundings allowed for the exponent in `_tau`, a product of a few numbers.
_EXPONENT_ROUNDINGS = 16
# Masses below e^{−700} are not summed one by one; together they stay below `_NEGLIGIBLE`.
_LOG_NEGLIGIBLE, _NEGLIGIBLE = -700.0, 1e-300
# Skellam noise of a larger variance is priced by its moments alone: its atoms would be too many and too inexact.
_LARGEST_VARIANCE = 1e6
# A larger shift has more atoms than are summed one by one.
_LARGEST_SHIFT = 100_000
# The error of ln P(k): quotients err by at most 64 roundings of the variance in total, and each of the sums, which stay
# below 1024, by one rounding for each atom.
_QUOTIENT_ROUNDINGS, _LARGEST_LOG = 64, 1024
# The factor from one k that `_reach` tries to the next, and how far beyond twice the reach the recurrence starts.
_FARTHER, _FORGOTTEN = 1.1, 64
# Orders at which the zCDP of Skellam noise may change from one lemma to the other; any cut is valid.
_CUTS = (2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 129.0)
# sinh overflows above 710.
_LARGEST_HALF = 300.0
# Up to this variance I₁/I₀ is computed, with an error of at most 32 roundings in its logarithm; beyond, it is bounded.
_LARGEST_RATIO_VARIANCE, _RATIO_ERROR = 1e6, 32 * UNIT


class DistributedDiscreteGaussianPrice(EventPrices):
    """A sum of discrete Gaussians, by its distance from one discrete Gaussian of the same variance.

    Each coordinate's log-density differs from that of one discrete Gaussian by a function whose range is at most τ. So
    a loss moves by at most τ for each coordinate that a unit moves, and a probability changes by a factor e^τ at most.
    """

    has_losses = True

    def losses(self, event: DistributedDiscreteGaussian, view: View) -> Losses:
        moved = _distortion(event) if _shares(event) > 1 else 0.0
        total_noise = DiscreteGaussian(event.sensitivity_squared, event.total_variance, event.coordinates)
        losses = of_events.losses(frozenset({(total_noise, 1)}), view)
        if _shares(event) == 1:
            return losses
        return replace(losses, shift=losses.shift + moved, inflation=losses.inflation + moved, exact=False)

    def exact(self, event: DistributedDiscreteGaussian) -> bool:
        return _shares(event) == 1 and _moved(event) == 1

    def pure(self, event: Event, relation: Relation) -> float:
        return math.inf

    def gdp(self, event: DistributedDiscreteGaussian, relation: Relation) -> float:
        raise unknown(event, "GDP accounting", "no μ is known to be valid for it")

    def zcdp(self, event: DistributedDiscreteGaussian, relation: Relation) -> float:
        """½(Δ₂/σ + 2τ√d)² with σ² the total variance and d the number of coordinates that move."""
        square = event.sensitivity_squared / event.total_variance
        if _shares(event) == 1:
            return float_up(square / 2)
        root = up(float_root_up(square) + up(2 * _tau(event) * float_root_up(Fraction(_moved(event)))))
        return math.inf if math.isinf(root) else float_up(Fraction(root) ** 2 / 2)

    def rdp(self, event: DistributedDiscreteGaussian, orders: Floats, relation: Relation) -> Floats:
        """The least of αρ and αΔ₂²/2σ² + dτα/(α−1)."""
        plain = renyi.linear(orders, float_up(event.sensitivity_squared / (2 * event.total_variance)))
        if _shares(event) == 1:
            return plain
        moved = raised(_distortion(event) * orders / (orders - 1))
        return np.minimum(renyi.linear(orders, self.zcdp(event, relation)), raised(plain + moved))

    def scaled(self, event: Any, factor: float) -> Event | None:
        return _more_noise(event, factor)


class SkellamPrice(EventPrices):
    """Skellam noise: exact in one coordinate, where the largest shift is the worst, and by curvature in several.

    If −ln P(k) has second differences of at most c, a shift by Δ has Rényi divergence at most αcΔ₂²/2 at every integer
    order α. For Skellam noise of variance v, c = 1/v + 1/(2v²) up to terms of third order.
    """

    has_losses = True

    def losses(self, event: Skellam, view: View) -> Losses:
        variance, shift = float_down(event.total_variance), math.isqrt(event.sensitivity_squared)
        if _moved(event) == 1 and variance <= _LARGEST_VARIANCE and shift <= _LARGEST_SHIFT:
            loss, error = _skellam_atoms(shift, variance)
            return replace(Losses.of(loss), shift=error, inflation=error, exact=False)
        if view.upper:
            return Losses(concentrated=self.zcdp(event, view.relation), exact=False)
        return Losses(exact=False)

    def pure(self, event: Event, relation: Relation) -> float:
        return math.inf

    def gdp(self, event: Skellam, relation: Relation) -> float:
        raise unknown(event, "GDP accounting", "no μ is known to be valid for it")

    def zcdp(self, event: Skellam, relation: Relation) -> float:
        """cΔ₂²/2 times the least, over cuts a, of the factors that Lemmas 2 and 3 give above and below the order a."""
        factors = [max(1 + 0.25 / (cut * (cut - 1)), _growth(event, cut)) for cut in _CUTS]
        return up(up(_slope(event)) * up(min(factors)))

    def rdp(self, event: Skellam, orders: Floats, relation: Relation) -> Floats:
        """αcΔ₂²/2 at integers α. (α−1)·D_α is convex in α, so between two integers it lies below their chord (Lemma 2).

        At every order also cΔ₂²/2·(1 + (α−1)K) with a factor K that is near 1 at small orders (Lemma 3).
        """
        below, share = np.floor(orders), orders - np.floor(orders)
        chord = ((1 - share) * below * (below - 1) + share * (below + 1) * below) / (orders - 1)
        smooth = np.array([1 + (order - 1) * _growth(event, float(order)) for order in orders])
        return raised(_slope(event) * np.minimum(chord, smooth))

    def scaled(self, event: Any, factor: float) -> Event | None:
        return _more_noise(event, factor)


def _slope(event: Skellam) -> float:
    """cΔ₂²/2, rounded up."""
    return up(_curvature(event.total_variance) * float_up(Fraction(event.sensitivity_squared, 2)))


def _growth(event: Skellam, order: float) -> float:
    """The K of Lemma 3: vc·(sinh(y/2)/(y/2))² with y = (α−1)cΔ, rounded up; inf where it overflows."""
    c = _curvature(event.total_variance)
    half = up((order - 1) * c * float_root_up(Fraction(event.sensitivity_squared))) / 2
    if half > _LARGEST_HALF:
        return math.inf
    rise = math.sinh(half) / half if half > 0 else 1.0
    return up(up(float_up(event.total_variance) * c) * up(rise * rise))


def _shares(event: DistributedDiscreteGaussian) -> int:
    return event.parties - event.dropouts


def _moved(event: DistributedDiscreteGaussian | Skellam) -> int:
    """How many coordinates one unit moves at most: integers that move do so by at least 1 each."""
    return min(event.coordinates, event.sensitivity_squared)


def _distortion(event: DistributedDiscreteGaussian) -> float:
    """dτ, rounded up."""
    return up(float_up(Fraction(_moved(event))) * _tau(event))


def _more_noise(event: DistributedDiscreteGaussian | Skellam, factor: float) -> Event:
    return replace(event, variance=rounded_up(event.variance * Fraction(factor) ** 2))


def _tau(event: DistributedDiscreteGaussian) -> float:
    """The range of ln(P/P₀) for one coordinate: Σ_k 2·artanh(2e_k), rounded up.

    e_k = Σ_j exp(−2π²s²j²) with s² = σ²k/(k+1) is what adding one more party to k others distorts.
    """
    shares = _shares(event)
    k = np.arange(1, min(shares, _SUMMED_PARTIES + 1), dtype=np.float64)
    first = np.exp(-2 * math.pi**2 * float_down(event.variance) * k / (k + 1) * (1 - _EXPONENT_ROUNDINGS * UNIT))
    if first[0] >= _MOST_DISTORTION:
        why = "the noise of one party is too small for the sum to be close to a discrete Gaussian; use a variance ≥ 1/2"
        raise unknown(event, "accounting", why)
    # Beyond the first term the squares j² are at least 4, 9, …, so the rest is below a geometric series.
    distortion = 2 * first * (1 + first**3 / (1 - first))
    each = 2 * np.arctanh(raised(distortion))
    further = max(0, shares - 1 - k.size) * float(each[-1])
    return max(_LEAST_TAU, up(float(np.sum(each)) * (1 + _SUMMED_PARTIES * UNIT) + up(further)))


def _curvature(variance: Fraction) -> float:
    """The largest second difference of −ln P(k) for Skellam noise, rounded up.

    At k = 0 it is 2·ln(I₀/I₁). At k ≥ 1 it is −ln(1 − T) with T ≤ min(1/2, 1/√(v² + 3/4)) (docs/proofs).
    """
    v = float_down(variance)
    if v <= _LARGEST_RATIO_VARIANCE:
        ratio = float(special.i1e(v) / special.i0e(v))
        middle = -2 * math.log(ratio) + _RATIO_ERROR if ratio > 0 else math.inf
    else:
        # I₁/I₀ ≥ v/(1/2 + √(v² + 9/4)): Amos 1974; proof: docs/proofs/secure-aggregation.md.
        middle = 2 * math.log1p((0.5 + 2.25 / (math.sqrt(v * v + 2.25) + v)) / v)
    beside = -math.log1p(-min(0.5, 1 / math.sqrt(v * v + 0.75)))
    return up(max(middle, beside))


@lru_cache(maxsize=16)
def _skellam_atoms(shift: int, variance: float) -> tuple[AtomLoss, float]:
    """The loss of Skellam noise against itself moved by `shift`, and a bound on the error of its logarithms.

    P(k) ∝ I_k(v), and the quotients r_k = I_{k+1}/I_k follow by 1/r_{k−1} = 2k/v + r_k from above, where all terms are
    positive. The error of each quotient shrinks from step to step by the factor r_k·r_{k−1}.
    """
    far = _reach(variance) + shift + 1
    # The recurrence forgets its start: from twice as far out, nothing of it is left.
    start = 2 * far + _FORGOTTEN
    quotients = np.empty(start + 1)
    quotients[start] = math.exp(-math.asinh((start + 1) / variance))
    for k in range(start, 0, -1):
        quotients[k - 1] = 1 / (2 * k / variance + quotients[k])
    logs = np.concatenate(([0.0], np.cumsum(np.log(quotients[: far + shift]))))
    both = np.concatenate((logs[:0:-1], logs))
    both = both - math.log(math.fsum(np.exp(both)))
    x = np.arange(-far, far + 1)
    middle = far + shift
    log_p, log_q = both[middle + x], both[middle + x - shift]
    error = UNIT * (_QUOTIENT_ROUNDINGS * variance + _LARGEST_LOG * len(both))
    order = np.argsort(log_p - log_q, kind="stable")
    losses = AtomLoss((log_p - log_q)[order], np.exp(log_p[order]), np.exp(log_q[order]), _NEGLIGIBLE, _NEGLIGIBLE)
    return losses, error


def _reach(variance: float) -> int:
    """A k with P(k) < e^{−700}, by P(k) ≤ exp(√(v² + k²) − v − k·asinh(k/v)) (Chernoff's bound on P(X ≥ k))."""
    k = 1
    while math.hypot(variance, k) - variance - k * math.asinh(k / variance) > _LOG_NEGLIGIBLE:
        k = math.ceil(k * _FARTHER) + 1
    return k
