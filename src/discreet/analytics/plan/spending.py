"""How a release's budget becomes noise: the split among its aggregates, and which mechanism each of them gets.

Everything here follows from public facts: sensitivities, shares and the budget. So a preview may show it, and it is
charged before the query runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from discreet import _check
from discreet.accounting import closed_forms
from discreet.analytics.aggregates.measurement import Choice, DrawingMechanism, Measurement, Sums
from discreet.analytics.plan.question import Question
from discreet.bounded import Bounded
from discreet.events import Composed, Event
from discreet.guarantees import ZCDP, ApproxDP, Guarantee, PureDP
from discreet.mechanisms import DiscreteGaussian, Exponential, Gaussian, KeySelection, Laplace, NoisyMax
from discreet.mechanisms.refinement import Refinement
from discreet.neighbors import Neighbors, Relation
from discreet.numeric.rounding import down, float_down, float_up, root_up, up
from discreet.queries.discovered import key_limits

AdditiveNoise = Laplace | Gaussian | DiscreteGaussian
Family = Literal["laplace", "gaussian"]

#: The part of a column's share that its total over all groups gets by default.
TOTAL_SHARE = 0.2
#: More than the relative round-off of a few float operations.
_ROUND_OFF = 1e-12
#: Families of noise are compared by the width that they exceed with this probability.
_TAIL = 0.05
#: The same width of Gaussian noise, in standard deviations.
_GAUSSIAN_TAIL = 1.96


@dataclass(frozen=True)
class Spend:
    """What a release may cost: ε, or ε and δ, or ρ (with a δ where keys are discovered); and which noise it takes.

    `pure` says that the account's budget counts ε alone.
    """

    epsilon: Fraction | None
    delta: Fraction | None
    rho: Fraction | None
    noise: str
    pure: bool = False

    @classmethod
    def of(cls, epsilon: object, delta: object, rho: object, noise: object) -> Spend:
        """The checked budget of a release."""
        _check.exactly_one(epsilon=epsilon, rho=rho)
        chosen = _check.one_of("noise", noise, ("auto", "laplace", "gaussian"), "auto takes the smaller one")
        if rho is not None and chosen == "laplace":
            raise _check.fail("noise", "be gaussian for a ρ", noise, "give epsilon for Laplace noise")
        if epsilon is not None and chosen == "gaussian" and delta is None:
            raise _check.fail("delta", "be given for Gaussian noise", None, "or give rho, or take Laplace noise")
        return cls(
            None if epsilon is None else _check.epsilon(epsilon),
            None if delta is None else _check.delta(delta),
            None if rho is None else _check.positive("rho", rho, "it is the ρ of zCDP that may be spent"),
            str(chosen),
        )

    def families(self) -> tuple[Family, ...]:
        """The families of noise that are allowed."""
        if self.rho is not None or self.noise == "gaussian":
            return ("gaussian",)
        return ("laplace",) if self.noise == "laplace" or self.delta is None else ("laplace", "gaussian")


@dataclass(frozen=True)
class PricedMeasurement:
    """One measurement with its mechanism; `epsilon` is its own ε, None where its noise is Gaussian."""

    measurement: Measurement
    share: Fraction
    mechanism: AdditiveNoise | DrawingMechanism
    event: Event
    epsilon: Fraction | None

    @property
    def drawing(self) -> DrawingMechanism:
        """The mechanism of a choice."""
        assert not isinstance(self.mechanism, AdditiveNoise)
        return self.mechanism

    @property
    def noise(self) -> str:
        """The mechanism's name, for people."""
        names = {
            Laplace: "Laplace",
            Gaussian: "Gaussian",
            DiscreteGaussian: "discrete Gaussian",
            Exponential: "exponential mechanism",
            NoisyMax: "permute-and-flip",
        }
        if isinstance(self.mechanism, Refinement):
            first, second = self.mechanism.first, self.mechanism.second
            return f"two passes of {names[type(first)]}, ε = {float(first.epsilon):.3g} + {float(second.epsilon):.3g}"
        return names.get(type(self.mechanism), "top-k mechanism")


@dataclass(frozen=True)
class ReleasePlan:
    """Everything that a release will run: the selection of keys, the aggregates, and totals over all groups."""

    spend: Spend
    family: Family
    selection: KeySelection | None
    selection_event: Event | None
    parts: Mapping[str, PricedMeasurement]
    totals: Mapping[str, PricedMeasurement]
    why: str = ""

    @property
    def event(self) -> Event:
        """What is charged."""
        several = [] if self.selection_event is None else [self.selection_event]
        several += [priced.event for priced in (*self.parts.values(), *self.totals.values())]
        return several[0] if len(several) == 1 else Composed(tuple(several))

    def guarantee(self, neighbors: Neighbors) -> Guarantee:
        """What the release promises on its own: the ε, (ε, δ) or ρ that it was calibrated to."""
        spend = self.spend
        if spend.rho is not None:
            promise: Guarantee = ZCDP(float_up(spend.rho))
            if self.selection is not None:
                # A threshold fails with probability δ, which no ρ covers. ρ-zCDP is (ρ + 2√(ρ ln(1/δ)), δ)-DP (Bun &
                # Steinke 2016, Proposition 1.3).
                assert spend.delta is not None
                rho, delta = float_up(spend.rho), float_down(spend.delta)
                converted = (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + _ROUND_OFF)
                promise = ApproxDP(converted, float_up(2 * spend.delta))
        elif self.selection is not None or self.family == "gaussian":
            promise = ApproxDP(float_up(spend.epsilon or Fraction(0)), float_up(spend.delta or Fraction(0)))
        else:
            promise = PureDP(float_up(spend.epsilon or Fraction(0)))
        return promise.protecting(neighbors)

    @property
    def cost(self) -> str:
        """The price in words; mentions δ only if something uses it."""
        spend = self.spend
        uses_delta = self.selection is not None or (spend.rho is None and self.family == "gaussian")
        first = f"ε = {float(spend.epsilon):.6g}" if spend.epsilon is not None else f"ρ = {float(spend.rho or 0):.6g}"
        return first + (f", δ = {float(spend.delta):.6g}" if uses_delta and spend.delta is not None else "")


def plan_release(question: Question, spend: Spend, relation: Relation, total: Fraction | None = None) -> ReleasePlan:
    """The mechanism of each aggregate; if both families of noise are allowed, with the one whose errors are smaller."""
    if question.discover is not None and spend.delta is None:
        remedy = "it bounds the probability that a key comes out that one person alone has, such as 1e-7; or list keys"
        raise _check.fail("delta", "be given to discover keys", None, remedy)
    plans = [_Split(question, spend, relation, total).plan(family) for family in spend.families()]
    if len(plans) == 1:
        return plans[0]
    ratio = _ratio(*plans)
    if math.isinf(ratio):  # no noise is added to anything, so both plans are the same
        return plans[0]
    better, worse = (plans[1], plans[0]) if ratio < 1 else (plans[0], plans[1])
    factor = max(ratio, 1 / ratio)
    name = {"laplace": "Laplace", "gaussian": "Gaussian"}
    why = f"{name[better.family]}; {name[worse.family]} noise would be {factor:.3g} times as wide"
    return ReleasePlan(
        better.spend, better.family, better.selection, better.selection_event, better.parts, better.totals, why
    )


def _ratio(first: ReleasePlan, second: ReleasePlan) -> float:
    """The width of the second plan's noise relative to the first's: the geometric mean over all noisy numbers."""
    ratios: list[float] = []
    for own, other in zip(
        (*first.parts.values(), *first.totals.values()), (*second.parts.values(), *second.totals.values()), strict=True
    ):
        if isinstance(own.mechanism, AdditiveNoise) and isinstance(other.mechanism, AdditiveNoise):
            ratios.append(_width(other.mechanism) / _width(own.mechanism))
    if first.selection is not None and second.selection is not None:
        ratios.append(second.selection.threshold / first.selection.threshold)
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) if ratios else math.inf


def _width(mechanism: AdditiveNoise) -> float:
    """The width that the noise exceeds with a probability of 5%, in the column's own units."""
    if isinstance(mechanism, Laplace):
        return -math.log(_TAIL) * float(mechanism.scale)
    spread = mechanism.standard_deviation if isinstance(mechanism, Gaussian) else math.sqrt(mechanism.variance)
    return _GAUSSIAN_TAIL * float(spread)


class _Split:
    """Splits the budget of one release."""

    def __init__(self, question: Question, spend: Spend, relation: Relation, total: Fraction | None) -> None:
        self._question, self._spend, self._relation = question, spend, relation
        self._limits = key_limits(question.unit, relation=relation)
        discover = question.discover
        shares = {name: Fraction(measurement.aggregate.share) for name, measurement in question.asked.items()}
        all_shares = sum(shares.values(), Fraction(0)) + (Fraction(0) if discover is None else Fraction(discover.share))
        self._selection = Fraction(0) if discover is None else Fraction(discover.share) / all_shares
        self._totals = {
            name: shares[name] / all_shares * total
            for name, measurement in question.asked.items()
            if total is not None and measurement.aggregate.adds_up
        }
        self._parts = {name: share / all_shares - self._totals.get(name, 0) for name, share in shares.items()}
        noisy = sum(
            (self._parts[name] for name, measurement in question.asked.items() if isinstance(measurement, Sums)),
            Fraction(0),
        )
        # All Gaussian noise is calibrated together: the μ² add up, which costs less than calibrating each part alone.
        self._together = noisy + sum(self._totals.values(), Fraction(0)) + self._selection

    def plan(self, family: Family) -> ReleasePlan:
        asked = self._question.asked
        parts = {name: self._part(asked[name], share, family) for name, share in self._parts.items()}
        totals = {name: self._part(asked[name], share, family, groups=1) for name, share in self._totals.items()}
        selection = self._selected(family) if self._selection else None
        event = None if selection is None else selection.event(self._limits, self._relation)
        return ReleasePlan(self._spend, family, selection, event, parts, totals)

    def _selected(self, family: Family) -> KeySelection:
        assert self._question.discover is not None
        assert self._spend.delta is not None
        least = self._question.discover.least
        noise = self._noise(self._limits, self._selection, family)
        # Half of δ goes to Gaussian noise, if there is any, and the rest to the threshold.
        own = self._spend.delta if noise is None or not isinstance(noise, Gaussian) else self._spend.delta / 2
        return KeySelection.over(noise, self._limits, own, least=least, relation=self._relation)

    def _part(
        self, measurement: Measurement, share: Fraction, family: Family, *, groups: int | None = None
    ) -> PricedMeasurement:
        epsilon = self._spend.epsilon
        if isinstance(measurement, Sums):
            shape = self._question.shape(measurement, self._relation, groups=groups)
            noise = self._noise(shape, share, family)
            pure = None if epsilon is None or family == "gaussian" else epsilon * share
            return PricedMeasurement(measurement, share, noise, noise.event(shape, self._relation), pure)
        assert isinstance(measurement, Choice)
        own = (
            epsilon * share
            if epsilon is not None
            else _bounded_range(measurement.draws * (self._spend.rho or 0) * share)
        )
        mechanism = measurement.mechanism(own, pure=self._spend.pure)
        return PricedMeasurement(measurement, share, mechanism, mechanism.event(), own)

    def _noise(self, shape: Bounded, share: Fraction, family: Family) -> AdditiveNoise:
        spend, relation = self._spend, self._relation
        if spend.rho is not None:
            return DiscreteGaussian.for_rho(shape, spend.rho * share, relation)  # type: ignore[arg-type]  # exact
        assert spend.epsilon is not None
        if family == "laplace":
            return Laplace.for_epsilon(shape, spend.epsilon * share, relation)  # type: ignore[arg-type]  # exact
        assert spend.delta is not None
        delta = spend.delta / 2 if self._selection else spend.delta
        whole = closed_forms.gaussian_noise_multiplier(float_down(spend.epsilon * self._together), float_down(delta))
        squared = Fraction(up(whole)) ** 2 * self._together / share
        return Gaussian(root_up(squared * shape.sensitivity(relation).l2_squared) * shape.granularity)


def _bounded_range(rho: Fraction) -> Fraction:
    """The ε of the exponential mechanism that is ρ-zCDP: ρ = ε²/8 (docs/proofs/zcdp-of-pure-mechanisms.md)."""
    return Fraction(down(math.sqrt(8 * rho)))
