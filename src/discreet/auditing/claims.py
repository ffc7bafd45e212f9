"""What a claim allows an attacker: the greatest power of any test at each rate of false alarms.

A claim is a trade-off curve f: no test of "the unit is not in the data" has a type II error below f(α) at a type I
error α. Its power is then at most g(α) = 1 − f(α). Here g is the least of finitely many rising lines. Each of them
holds by itself, since each is one (ε, δ) of the claim: P₁(S) ≤ e^ε P₀(S) + δ, or the same for the complement of S with
the two datasets exchanged, P₁(S) ≤ 1 − e^{−ε}(1 − δ) + e^{−ε} P₀(S).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check, accounting
from discreet.accounting.adaptive.budgets import form_of
from discreet.errors import UnknownEvent
from discreet.events import Event, Gaussian
from discreet.guarantees import GDP, Guarantee
from discreet.neighbors import ADD_REMOVE, Relation

Floats = NDArray[np.float64]

# e^ε is not computed beyond this ε: such a line bounds nothing.
_LARGEST_EXPONENT = 700.0
# The ε at which a zCDP or Rényi claim is turned into lines.
_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 200)])
# False-alarm rates at which a curve is read: dense at both ends.
_RATES = special.expit(np.linspace(-16.0, 16.0, 513))
# Steps of one distance before a curve is called flat, while it is laid out on the scale of distances.
_MOST_STEPS = 2_000


@dataclass(frozen=True, eq=False)
class Curve:
    """g(α) = min over lines of intercept + slope·α, at most 1, for `distance` units that change together.

    A chain of k neighbors bounds a group of k: the power is at most g(g(…g(α))) (Dong, Roth & Su 2022, Theorem 2.14 of
    arXiv 1905.02383: 1 − (1 − f)^∘k).
    """

    slopes: Floats
    intercepts: Floats
    distance: int = 1

    def line(self, alpha: float) -> tuple[float, float]:
        """The slope and intercept of a line above the whole curve that is lowest at `alpha`.

        Rising lines stay above the curve when they are composed, as the curve is for a group.
        """
        slope, intercept, at = 1.0, 0.0, float(alpha)
        for _ in range(self.distance):
            best = int(np.argmin(self.intercepts + self.slopes * at))
            slope, intercept = (
                float(self.slopes[best]) * slope,
                float(self.intercepts[best] + self.slopes[best] * intercept),
            )
            at = min(1.0, float(self.intercepts[best] + self.slopes[best] * at))
        return slope, intercept

    def power(self, alpha: Floats) -> Floats:
        """g at each α."""
        at = np.asarray(alpha, dtype=np.float64)
        for _ in range(self.distance):
            at = np.minimum(1.0, np.min(self.intercepts + self.slopes * at[..., None], axis=-1))
        return at

    def inverse(self, power: float) -> float:
        """The least rate of false alarms at which the claim allows this power."""
        at = power
        for _ in range(self.distance):
            at = max(0.0, float(((at - self.intercepts) / self.slopes).max()))
        return at

    def largest_mu(self) -> float:
        """The largest μ for which telling N(0, 1) from N(μ, 1) stays within the claim."""
        power = self.power(_RATES)
        inside = (power < 1 - 1e-12) & (power > 0)  # beyond, the normal quantile loses all digits
        if not np.any(inside):
            return math.inf
        return float(np.min(special.ndtri(power[inside]) - special.ndtri(_RATES[inside])))

    def stretched(self, alpha: Floats, factor: float) -> Floats:
        """The power at `alpha` if one unit moved the output `factor` times as far, or if noise were that much smaller.

        g is read as a shift by one unit of distance: g(α) = F(T(α) + 1) with T = F⁻¹, so T(g(α)) = T(α) + 1. T is laid
        out from one smooth step on the normal scale; for the Gaussian this is exact, for others a good interpolation.
        It serves to state power, never to decide.
        """
        distances, rates = self._scale
        at = np.interp(_logit(np.asarray(alpha, dtype=np.float64)), rates, distances)
        return np.asarray(special.expit(np.interp(at + factor, distances, rates)))

    @cached_property
    def _scale(self) -> tuple[Floats, Floats]:
        """Distances, and the logits of the false-alarm rates that lie at them."""
        first = 0.5
        second = float(self.power(np.array([first]))[0])
        if not first < second < 1:  # no power beyond guessing, or all of it
            return np.array([0.0, 1.0]), np.array([0.0, 40.0 if second >= 1 else 0.0])
        along = np.linspace(0.0, 1.0, 17)[:-1]
        width = float(special.ndtri(second) - special.ndtri(first))
        base = special.ndtr(special.ndtri(first) + along * width)
        # T is quadratic on this step, and as steep at its end as the curve makes it: T′(g(α))·g′(α) = T′(α).
        ends = self.line(first)[0], math.exp(-(width**2) / 2)
        bend = 2 * ends[0] / sum(ends)
        share = bend * along + (1 - bend) * along**2
        up, down = [base], []
        for _ in range(_MOST_STEPS):
            up.append(self.power(up[-1]))
            if up[-1][0] > 1 - 1e-12:
                break
        at = base
        for _ in range(_MOST_STEPS):
            at = np.array([self.inverse(float(rate)) for rate in at])
            down.append(at)
            if at[-1] < 1e-12:
                break
        rates = np.concatenate([*down[::-1], *up])
        distances = np.concatenate([share + step for step in range(-len(down), len(up))])
        kept = (rates > 1e-14) & (rates < 1 - 1e-14)
        return distances[kept], _logit(rates[kept])


def _logit(rates: Floats) -> Floats:
    return np.asarray(special.logit(np.clip(rates, 1e-15, 1 - 1e-15)))


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim that can be tested.

    Attributes:
        promise: the event or the guarantee.
        forward: the curves of the test whose null hypothesis is the first, smaller dataset.
        backward: the curves of the test with the two datasets exchanged.
        delta: the δ at which ε is stated.
    """

    promise: Event | Guarantee
    forward: tuple[Curve, ...]
    backward: tuple[Curve, ...]
    delta: float

    def curves(self, *, backward: bool) -> tuple[Curve, ...]:
        """The curves of one direction; a violation must violate every one of them."""
        return self.backward if backward else self.forward

    def __str__(self) -> str:
        return str(self.promise) if isinstance(self.promise, Guarantee) else repr(self.promise)


def claimed(
    promise: object,
    *,
    relation: Relation = ADD_REMOVE,
    grows: bool = False,
    distance: int = 1,
    delta: float | None = None,
) -> Claim:
    """The claim that an event or a guarantee makes for two datasets at this distance.

    Args:
        promise: an event of `discreet.events` or a guarantee of `discreet.guarantees`.
        relation: which datasets are neighbors, for an event.
        grows: whether the second dataset has units that the first lacks; the two directions of a test then differ.
        distance: how many units differ.
        delta: the δ at which ε is stated; by default that of the promise, or 1e-6 if it has none but needs one.
    """
    if isinstance(promise, GDP) and 0 < promise.mu < math.inf:
        within = claimed(Gaussian(1 / promise.mu), relation=relation, distance=distance, delta=delta)
        return Claim(promise, within.forward, within.backward, within.delta)
    if isinstance(promise, Event):
        profiles = accounting.trade_off(promise, relation, "removing" if grows else None).profiles()
        forward = tuple(_lines(epsilons, test, other, distance) for epsilons, test, other in profiles)
        backward = tuple(_lines(epsilons, other, test, distance) for epsilons, test, other in profiles)
        return Claim(promise, forward, backward if grows else forward, _delta_of(promise, delta))
    if isinstance(promise, Guarantee):
        epsilons, deltas = np.array(form_of(promise).profile([float(e) for e in _EPSILONS])).T
        both = (_lines(epsilons, deltas, deltas, distance),)
        return Claim(promise, both, both, _delta_of(promise, delta))
    remedy = "give what was run (discreet.events) or what is promised (discreet.PureDP, …)"
    raise _check.fail("claim", "be an event or a guarantee", promise, remedy)


def _lines(epsilons: Floats, steep: Floats, flat: Floats, distance: int) -> Curve:
    """Lines of (ε, δ) in the direction of the test (`steep`) and in the other (`flat`)."""
    growth = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT))
    shrink = 1 / growth
    slopes = np.concatenate([growth, shrink])
    intercepts = np.concatenate([steep, 1 - shrink * (1 - flat)])
    return Curve(slopes, intercepts, distance)


# The δ at which the ε of a claim without a δ of its own is stated.
_DELTA = 1e-6


def _delta_of(promise: object, given: float | None) -> float:
    if given is not None:
        return float(_check.probability("delta", given, "it is the δ at which ε is stated"))
    if isinstance(promise, Guarantee):
        return float(form_of(promise).stated_delta)
    if isinstance(promise, Event) and _is_pure(promise):
        return 0.0
    return _DELTA


def _is_pure(event: Event) -> bool:
    try:
        return math.isfinite(accounting.pure(event).epsilon)
    except UnknownEvent:
        return False
