"""Privacy guarantees: the forms that a promise takes, and the words that explain them.

Each is a frozen value that states itself (`str`), explains itself to readers who have never heard of ε (`explain`) and
says what it means for a group of people (`group`). `accounting` converts events into guarantees. How a budget in one of
these forms is spent is in `accounting.adaptive.budgets`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from discreet import _check
from discreet.neighbors import Neighbors
from discreet.numeric.rounding import times_up, up

if TYPE_CHECKING:
    from discreet.beliefs import Posterior

# The ends of the first two tiers of "How to DP-fy ML".
_STRONG, _REASONABLE = 1, 10
# Whoever publishes each record with this probability exposes somebody of a hundred people: no ε makes up for it.
_LARGE_DELTA = 0.01
# e^ε is not computed beyond this ε: a float overflows just above e^709.
_LARGEST_EXPONENT = 700.0
# More than the relative round-off of a product of three floats, one of them an exponential.
_ROUND_OFF = 1e-12
# The group for which `explain` gives an example.
_FAMILY = 4
# Orders that `str` shows of an RDP guarantee.
_ORDERS_SHOWN = 3
# The 95% quantile of N(0, 1): a test with 5% false alarms.
_QUANTILE_95 = 1.6448536269514722
# From about μ = 40 on, that test is always right in floating point. This also stands in for μ = inf.
_CERTAIN_MU = 1e3


def strength(epsilon: float, delta: float = 0.0) -> str:
    """A word for ε, by the tiers of "How to DP-fy ML" (Ponomareva et al. 2023, arXiv 2303.00654).

    "strong" up to 1 (its tier 1), "reasonable" up to 10 (tier 2), "weak" above (tier 3). Two words are ours: "perfect"
    for ε = δ = 0, and "none" without any bound. The tiers take a small δ for granted, so δ ≥ 0.01 makes any ε "weak".

    Other scales disagree. Most set strong apart at ε = 1, but practical books recommend 0.01 to 1, and some surveys
    call 5 to 10 weak where this one says reasonable. None of them knows the unit: the same ε for one day of a person
    protects less than for all of their data.

    >>> [strength(0), strength(0.5), strength(3), strength(11), strength(math.inf)]
    ['perfect', 'strong', 'reasonable', 'weak', 'none']
    """
    if math.isinf(epsilon) or delta >= 1:
        return "none"
    if delta >= _LARGE_DELTA:
        return "weak"
    if epsilon <= 0:
        return "strong" if delta > 0 else "perfect"
    if epsilon <= _STRONG:
        return "strong"
    return "reasonable" if epsilon <= _REASONABLE else "weak"


@dataclass(frozen=True)
class Guarantee:
    """Base of all guarantees. Abstract."""

    protects: Neighbors | None = field(default=None, kw_only=True, repr=False)

    def protecting(self, neighbors: Neighbors) -> Self:
        """The same guarantee, saying for whom it holds."""
        return replace(self, protects=neighbors)

    def group(self, people: int) -> Guarantee:
        """What this guarantee gives `people` units that change together."""
        raise NotImplementedError

    def explain(self) -> str:
        """This guarantee in words, for a reader who has never met differential privacy."""
        raise NotImplementedError

    def posterior(self, prior: float, *, failure: float = 0.01) -> Posterior:
        """What an attacker with this `prior` may believe about one unit after the release, in bounds and in words.

        The attacker weighs two hypotheses that differ as neighbors do (such as: this person is in the data, or is
        not) and knows everything else. Pure ε-DP bounds the belief always. Every other form bounds it except with
        probability `failure` on either side; an (ε, δ) with `failure` ≤ δ bounds nothing (docs/proofs/beliefs.md).

        Args:
            prior: the probability of the hypothesis before the release.
            failure: how often the belief may go further, whichever hypothesis is true.

        >>> belief = PureDP(1.0).posterior(0.1)
        >>> round(belief.low, 4), round(belief.high, 4), belief.failure
        (0.0393, 0.232, 0.0)
        """
        from discreet import beliefs  # it needs the classes below

        return beliefs.posterior(self, prior, failure)

    @property
    def never_fails(self) -> bool:
        """Whether the privacy loss is bounded always, not only except with some probability."""
        return False

    def most_loss(self, failure: float) -> float:
        """A privacy loss that is exceeded with probability at most `failure`, in either direction.

        For a trade-off curve f it is ln(x/α) with x = `failure` and α the least type I error of a test with power x:
        the results with a loss above ℓ are a test with power P(S) and type I error below e^{−ℓ}P(S). For Rényi DP it
        follows from Markov's inequality for e^{(α−1)L} (Bun & Steinke 2016, Lemma 3.5, first step).
        """
        raise _check.fail("guarantee", "bound the privacy loss", self, "use one of discreet.guarantees")

    def best_guess(self, prior: float) -> float:
        """The most that a guess can be right: 1 − min over α of (1 − p)α + p·f(α), with f the trade-off curve."""
        raise _check.fail("guarantee", "bound the privacy loss", self, "use one of discreet.guarantees")

    def _with_unit(self, text: str) -> str:
        return text if self.protects is None else f"{text}, {self.protects}"

    def _who(self) -> str:
        return "one person's record" if self.protects is None else str(self.protects.unit)


def _people(people: object) -> int:
    return _check.integer("people", people, "it is the number of units that change together")


def _odds(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "There is no limit on what the release may tell about anyone."
    exponent = min(epsilon, _LARGEST_EXPONENT)
    shown = f"{math.exp(exponent):.3g}" if epsilon <= _LARGEST_EXPONENT else "more than 1e304"
    # An attacker with even odds can become at most this sure.
    sure = 1.0 / (1.0 + math.exp(-exponent))
    return (
        f"Whatever an adversary knew before, seeing the release multiplies their odds about that record by at most "
        f"e^ε = {shown}: a guess that was 50% sure becomes at most {100 * sure:.3g}% sure."
    )


@dataclass(frozen=True)
class PureDP(Guarantee):
    """ε-differential privacy: P[M(D) ∈ S] ≤ e^ε P[M(D′) ∈ S] for all neighbors D, D′ and all S.

    >>> print(PureDP(1.0))
    1-DP
    >>> PureDP(0.5).group(4)
    PureDP(epsilon=2.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        _check.settle(self, "epsilon", _check.nonnegative, "it bounds the privacy loss", infinite=True)

    def __str__(self) -> str:
        return self._with_unit(f"{float(self.epsilon):.6g}-DP")

    def group(self, people: int) -> PureDP:
        return replace(self, epsilon=times_up(_people(people), self.epsilon))

    @property
    def never_fails(self) -> bool:
        return True

    def most_loss(self, failure: float) -> float:
        return float(self.epsilon)

    def best_guess(self, prior: float) -> float:
        from discreet import beliefs

        return beliefs.guess_by_pairs([(float(self.epsilon), 0.0)], prior)

    def explain(self) -> str:
        if math.isinf(self.epsilon):
            return f"{self}: no protection of {self._who()}. {_odds(self.epsilon)}"
        return (
            f"{self}: {strength(self.epsilon)} protection of {self._who()}. {_odds(self.epsilon)} "
            f"This holds always, with no probability of failure. "
            f"For a family of {_FAMILY} the same release gives ε = {_FAMILY * float(self.epsilon):.3g}."
        )


@dataclass(frozen=True)
class ApproxDP(Guarantee):
    """(ε, δ)-differential privacy: P[M(D) ∈ S] ≤ e^ε P[M(D′) ∈ S] + δ for all neighbors D, D′ and all S.

    Equivalently, for each pair of neighbors there are two distributions that satisfy the bound e^ε without any δ, each
    within a total variation distance of δ/(1 + e^ε) of the mechanism's (docs/proofs/what-delta-means.md). δ is not the
    probability that the privacy loss exceeds ε: that can be larger (`accounting.profile(event).loss_exceeds`). And a
    mechanism that reveals everything with probability δ is (0, δ)-DP.

    >>> print(ApproxDP(2.0, 1e-6))
    (2, 1e-06)-DP
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.settle(self, "epsilon", _check.nonnegative, "it bounds the privacy loss", infinite=True)
        _check.settle(self, "delta", _check.probability, "it bounds how far probabilities may exceed the bound e^ε")

    def __str__(self) -> str:
        return self._with_unit(f"({float(self.epsilon):.6g}, {float(self.delta):.6g})-DP")

    def group(self, people: int) -> ApproxDP:
        """(kε, k e^{(k−1)ε} δ) for k people: one after the other, δ + e^ε δ + … + e^{(k−1)ε} δ."""
        k = _people(people)
        if k == 1:
            return self
        exponent = (k - 1) * self.epsilon
        delta = math.inf if exponent > _LARGEST_EXPONENT else k * math.exp(exponent) * self.delta * (1 + _ROUND_OFF)
        return replace(self, epsilon=times_up(k, self.epsilon), delta=min(1.0, delta))

    @property
    def never_fails(self) -> bool:
        return self.delta <= 0

    def most_loss(self, failure: float) -> float:
        from discreet import beliefs

        return beliefs.approximate_loss(float(self.epsilon), float(self.delta), failure)

    def best_guess(self, prior: float) -> float:
        from discreet import beliefs

        return beliefs.guess_by_pairs([(float(self.epsilon), float(self.delta))], prior)

    def explain(self) -> str:
        if math.isinf(self.epsilon):
            return f"{self}: no protection of {self._who()}. {_odds(self.epsilon)}"
        family = self.group(_FAMILY)
        return (
            f"{self}: {strength(self.epsilon, self.delta)} protection of {self._who()}. {_odds(self.epsilon)} "
            f"{self._slack()} "
            f"For a family of {_FAMILY} the same release gives ε = {family.epsilon:.3g}, δ = {family.delta:.3g}."
        )

    def _slack(self) -> str:
        if self.delta <= 0:
            return "This holds always: δ = 0."
        return (
            f"δ = {float(self.delta):.3g} is the slack in that bound: the release behaves like one that always keeps "
            f"it, except with probability at most δ. Single results may exceed the factor e^ε somewhat more often than "
            f"that, but only by so little that δ covers it. At worst, the release tells everything about that record "
            f"with probability δ, so δ should be far below one over the number of people."
        )


@dataclass(frozen=True)
class ZCDP(Guarantee):
    """ρ-zero-concentrated DP: Rényi divergence of order α at most ρα for every α > 1 (Bun & Steinke 2016)."""

    rho: float

    def __post_init__(self) -> None:
        _check.settle(self, "rho", _check.nonnegative, "it bounds the slope of the Rényi divergence", infinite=True)

    def __str__(self) -> str:
        return self._with_unit(f"{float(self.rho):.6g}-zCDP")

    def group(self, people: int) -> ZCDP:
        """k²ρ for k people (Bun & Steinke 2016, Proposition 1.9)."""
        return replace(self, rho=times_up(_people(people) ** 2, self.rho))

    def most_loss(self, failure: float) -> float:
        return up(float(self.rho) + 2 * math.sqrt(float(self.rho) * -math.log(failure)))

    def best_guess(self, prior: float) -> float:
        from discreet import beliefs

        return beliefs.guess_by_zcdp(float(self.rho), prior)

    def explain(self) -> str:
        spread = math.sqrt(2 * self.rho)
        return (
            f"{self}: protection of {self._who()} whose privacy loss behaves like a bell curve with mean "
            f"{self.rho:.3g} and standard deviation {spread:.3g}, as with Gaussian noise of {1 / spread:.3g} times "
            f"the largest change one record can make."
            if 0 < self.rho < math.inf
            else f"{self}: {'no' if self.rho > 0 else 'perfect'} protection of {self._who()}."
        )


@dataclass(frozen=True)
class RDP(Guarantee):
    """Rényi DP: for each listed order α > 1, Rényi divergence at most the listed ε (Mironov 2017)."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        _check.settle_each(self, "orders", _check.real, "Rényi orders are finite")
        remedy = "each bounds the Rényi divergence of its order"
        _check.settle_each(self, "epsilons", _check.nonnegative, remedy, infinite=True)
        if len(self.orders) != len(self.epsilons) or not self.orders:
            raise _check.fail("orders", "be as many as epsilons, at least one", self.orders, "give one ε for each α")
        if min(self.orders) <= 1:
            raise _check.fail("orders", "be > 1", min(self.orders), "Rényi DP is defined for orders α > 1")

    def __str__(self) -> str:
        first = zip(self.orders[:_ORDERS_SHOWN], self.epsilons[:_ORDERS_SHOWN], strict=True)
        shown = ", ".join(f"({float(a):.4g}, {float(e):.4g})" for a, e in first)
        rest = len(self.orders) - _ORDERS_SHOWN
        more = f" and {rest} more orders" if rest > 0 else ""
        return self._with_unit(f"RDP at (α, ε) = {shown}{more}")

    def group(self, people: int) -> RDP:
        """For k = 2^c people, order α/k at 3^c ε, for orders α ≥ 2k (Mironov 2017, Proposition 2)."""
        steps = (_people(people) - 1).bit_length()
        doubled = 2**steps
        kept = [
            (a / doubled, times_up(3**steps, e))
            for a, e in zip(self.orders, self.epsilons, strict=True)
            if a >= 2 * doubled
        ]
        if steps == 0:
            return self
        if not kept:
            raise _check.fail("orders", f"reach {2 * doubled}", self.orders, f"a group of {people} needs larger orders")
        return replace(self, orders=tuple(a for a, _ in kept), epsilons=tuple(e for _, e in kept))

    def most_loss(self, failure: float) -> float:
        pairs = zip(self.orders, self.epsilons, strict=True)
        return up(min(float(e) - math.log(failure) / (float(a) - 1) for a, e in pairs))

    def best_guess(self, prior: float) -> float:
        from discreet import beliefs

        return beliefs.guess_by_rdp(
            [(float(a), float(e)) for a, e in zip(self.orders, self.epsilons, strict=True)], prior
        )

    def explain(self) -> str:
        return (
            f"{self}: the averages of the privacy loss's exponential moments for {self._who()} are bounded at "
            f"{len(self.orders)} orders. It is a form for adding up costs; convert it to (ε, δ) to interpret it."
        )


@dataclass(frozen=True)
class GDP(Guarantee):
    """μ-Gaussian DP: telling neighbors apart is no easier than telling N(0, 1) from N(μ, 1) (Dong, Roth & Su 2022)."""

    mu: float

    def __post_init__(self) -> None:
        _check.settle(self, "mu", _check.nonnegative, "it is the distance between the two bell curves", infinite=True)

    def __str__(self) -> str:
        return self._with_unit(f"{float(self.mu):.6g}-GDP")

    def group(self, people: int) -> GDP:
        """kμ for k people (Dong, Roth & Su 2022; Theorem 2.14 of arXiv 1905.02383)."""
        return replace(self, mu=times_up(_people(people), self.mu))

    def most_loss(self, failure: float) -> float:
        from discreet import beliefs

        return beliefs.gaussian_loss(float(self.mu), failure)

    def best_guess(self, prior: float) -> float:
        from discreet import beliefs

        return beliefs.guess_by_gaussians(float(self.mu), prior)

    def explain(self) -> str:
        # Power of the best test of N(0,1) against N(μ,1) at a 5% false-alarm rate.
        power = 0.5 * math.erfc((_QUANTILE_95 - min(self.mu, _CERTAIN_MU)) / math.sqrt(2.0))
        return (
            f"{self}: an attacker who wants to know whether {self._who()} was used, and accepts 5% false alarms, is "
            f"right in at most {100 * power:.3g}% of the cases where it was."
        )
