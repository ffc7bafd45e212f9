"""Which keys occur: add noise to the count of each key, and release the keys above a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check, accounting, events
from discreet.bounded import Bounded
from discreet.errors import InvalidSensitivity
from discreet.guarantees import ApproxDP
from discreet.mechanisms._discrete_gaussian import DiscreteGaussian
from discreet.mechanisms._gaussian import Gaussian
from discreet.mechanisms._laplace import Laplace
from discreet.mechanisms.additive import Additive, sensitivity_of
from discreet.mechanisms.protection import marked
from discreet.mechanisms.sampling import entropy
from discreet.mechanisms.sampling.fixed_point import exp_neg
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_up
from discreet.numeric.search import least_integer
from discreet.queries.discovered import KeyCounts, key_limits
from discreet.release import Release

#: scipy's normal tail has a relative error of about 1e-14; the threshold allows for far more.
_SLACK = 1 + 1e-9


@dataclass(frozen=True)
class KeySelection:
    """Releases the keys that at least `least` units hold and whose noisy count reaches `threshold`.

    Privacy: take a key whose count differs between neighbors. Either `least` units hold it in both datasets; then its
    noisy count is protected like any count. Or `least` units hold it in one dataset and `least` − 1 in the other; then
    it is released from the first with probability at most δ over the number of keys that a unit moves, and never from
    the other. So the event is that of the noise, composed with `Claimed(0, δ)` (docs/proofs/discover.md; Korolova,
    Kenthapadi, Mishra & Ntoulas 2009; Desfontaines, Voss, Gipson & Mandayam 2022).

    Error: a key that `threshold` units hold is released with probability at least 1/2, and one that `certain(p)` units
    hold with probability at least p.
    """

    noise: Additive
    threshold: int
    delta: Fraction
    least: int = 1

    @classmethod
    def over(
        cls,
        noise: Additive,
        limits: Bounded,
        delta: float | Fraction,
        *,
        least: int = 1,
        relation: Relation | str | None = None,
    ) -> KeySelection:
        """The lowest threshold that `noise` allows for `delta`, under the `limits` of `queries.key_limits`."""
        moved = sensitivity_of(limits, relation).l0
        exact = _check.delta(delta)
        least = _check.integer("least", least, "keys that fewer units hold are never released")
        return cls(noise, least + _reach(noise, exact / moved), exact, least)

    def event(self, limits: Bounded, relation: Relation | str | None = None) -> events.Composed:
        """The event of a choice."""
        return events.Composed((self.noise.event(limits, relation), events.Claimed(0.0, float_up(self.delta))))

    def guarantee(self, limits: Bounded, relation: Relation | str | None = None) -> ApproxDP:
        """The guarantee of a choice: the noise's ε without a δ, or at another δ as large as the threshold's."""
        event = self.noise.event(limits, relation)
        if isinstance(event, events.DiscreteLaplace):
            return ApproxDP(float_up(event.sensitivity / event.scale), float_up(self.delta))
        spent = accounting.epsilon(event, delta=float(self.delta)).upper
        return ApproxDP(spent, float_up(2 * self.delta))

    def certain(self, probability: float) -> int:
        """How many units must hold a key for it to be released with at least this probability."""
        tail = 1 - float(_check.probability("probability", probability, "such as 0.95"))
        return self.threshold + math.ceil(self.noise.noise_law(Fraction(1)).half_width(max(tail, 1e-300)))

    def release(self, counts: KeyCounts, *, insecure_seed: int | None = None) -> Release[NDArray[np.bool_]]:
        """Which keys are released: one answer per count. The caller may reveal only the keys that are True.

        Args:
            counts: the result of `queries.discovered.key_counts`.
            insecure_seed: repeatable noise, for tests and teaching only; the event is marked and guarantees nothing.

        Guarantee: (ε, δ)-DP, as `guarantee` says, for the set of released keys, under the relation of `counts`. Not
        protected: how long it takes, and the order of the counts: the caller must sort the keys.
        """
        if type(counts) is not KeyCounts:
            raise InvalidSensitivity(
                f"counts must be KeyCounts made by a query, got {type(counts).__name__}: see queries.discovered"
            )
        limits = key_limits(counts.unit, relation=counts.relation)
        if self.threshold < KeySelection.over(self.noise, limits, self.delta, least=self.least).threshold:
            raise InvalidSensitivity(
                f"threshold must be at least that of KeySelection.over, got {self.threshold}: δ requires it"
            )
        event, promise = marked(self.event(limits), self.guarantee(limits), counts.unit, counts.relation, insecure_seed)
        drawn = self.noise.draw(Fraction(1), counts.values.size, entropy.bits(insecure_seed))
        noisy = counts.values + np.clip(drawn, -(1 << 62), 1 << 62)
        return Release((counts.values >= self.least) & (noisy >= self.threshold), event, promise)


def _reach(noise: Additive, tail: Fraction) -> int:
    """The least t ≥ 1 that noise on a grid of step 1 reaches with probability at most `tail`."""
    if isinstance(noise, Laplace):
        scale = noise.scale
        return _least(lambda t: _laplace_within(scale, t, tail), float(scale) * -math.log(tail))
    if isinstance(noise, Gaussian):  # rounded noise reaches t if the normal reaches t − 1/2
        spread, off = float_up(noise.standard_deviation), 0.5
    elif isinstance(noise, DiscreteGaussian):  # P(X ≥ t) ≤ P(N ≥ t − 1), see `release.NoiseLaw`
        spread, off = math.sqrt(float_up(noise.variance)) * _SLACK, 1.0
    else:
        raise _check.fail(
            "noise", "be Laplace, Gaussian or discrete Gaussian", type(noise).__name__, "use one of these"
        )
    wanted = float(tail) / _SLACK
    return _least(lambda t: float(special.ndtr((off - t) / spread)) <= wanted, -float(special.ndtri(wanted)) * spread)


def _laplace_within(scale: Fraction, reach: int, tail: Fraction) -> bool:
    """Whether P(noise ≥ reach) = q^reach/(1 + q) ≤ `tail` for discrete Laplace noise, q = e^{−1/b}; in integers."""
    precision = 64 + 2 * (tail.denominator // tail.numerator).bit_length()
    above, below = exp_neg(reach / scale, precision)[1], exp_neg(1 / scale, precision)[0]
    return above * tail.denominator <= tail.numerator * ((1 << precision) + below)


def _least(fits: Callable[[int], bool], guess: float) -> int:
    """The least t ≥ 1 that fits, for a monotone `fits` and a good first guess."""
    high = max(1, math.ceil(guess))
    while not fits(high):
        high *= 2
    return least_integer(fits, 0, high)
