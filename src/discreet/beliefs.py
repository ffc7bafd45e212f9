"""What an attacker may believe after a release: bounds on the posterior for any prior, from any guarantee.

The attacker weighs two hypotheses about one unit that differ as neighbors do, such as "this person is in the data"
against "this person is not", and knows everything else. A release multiplies the odds by e^L, where L is the privacy
loss of its result. What a guarantee says about L is what it says about the belief (docs/proofs/beliefs.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from discreet import _check
from discreet.errors import MissingExtra
from discreet.guarantees import ApproxDP, Guarantee
from discreet.numeric.rounding import SLACK, down, up

#: Points at which a concentrated guarantee is turned into (ε, δ) to bound how often a guess is right.
_POINTS = 400
#: Losses up to this many standard deviations are tried there; beyond them δ is below 1e-30 and gains nothing.
_DEVIATIONS = 12.0
#: Quantiles of the normal distribution below this probability lose their digits.
_LEAST_FAILURE = 1e-290


@dataclass(frozen=True)
class Posterior:
    """What an attacker may believe about one unit after a release, given what they believed before.

    Attributes:
        guarantee: what the release promises.
        prior: the probability that the attacker gave to the hypothesis before.
        low: the belief falls below this with probability at most `failure`, whichever hypothesis is true.
        high: the belief rises above this with probability at most `failure`, whichever hypothesis is true.
        failure: 0 where `low` and `high` hold always.
        right: the most that the probability of a right guess can be, over all ways to guess, for this prior.
    """

    guarantee: Guarantee
    prior: float
    low: float
    high: float
    failure: float
    right: float

    @property
    def words(self) -> str:
        """The same in two sentences."""
        when = "always" if self.failure <= 0 else f"except with probability at most {self.failure:.3g} on either side"
        if self.low <= 0 and self.high >= 1:
            moved = f"A belief of {_percent(self.prior)} may become anything: {self.guarantee} does not bound it"
            if isinstance(self.guarantee, ApproxDP) and self.failure <= self.guarantee.delta:
                moved += f" with a failure probability of {self.failure:.3g}, which is not above δ"
        else:
            moved = (
                f"A belief of {_percent(self.prior)} stays between {_percent(self.low)} and {_percent(self.high)}, "
                f"{when}"
            )
        return (
            f"{moved}. The attacker's best guess is right with probability at most {_percent(self.right)}; "
            f"without the release it is {_percent(max(self.prior, 1 - self.prior))}."
        )

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.words}"

    def plot(self, axes: Any = None) -> Any:
        """Draw the posterior over all priors, and this prior in it, into `axes` of matplotlib; return the axes."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as missing:
                raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
            axes = Figure(figsize=(5, 5), layout="constrained").subplots()
        loss = self.guarantee.most_loss(self.failure)
        priors = np.linspace(0.0, 1.0, 401)
        lows, highs = zip(*(_moved(float(prior), loss) for prior in priors), strict=True)
        axes.fill_between(priors, lows, highs, color="#2a9d8f", alpha=0.25, linewidth=0, label="belief after")
        axes.plot(priors, lows, color="#2a9d8f")
        axes.plot(priors, highs, color="#2a9d8f")
        axes.plot([0, 1], [0, 1], color="#999999", linestyle=":", label="belief before")
        axes.plot([self.prior, self.prior], [self.low, self.high], color="#e76f51", marker="o", linewidth=2)
        axes.annotate(
            f"{_percent(self.low)} to {_percent(self.high)}",
            (self.prior, (self.low + self.high) / 2),
            xytext=(8 if self.prior < 0.5 else -8, 0),
            textcoords="offset points",
            ha="left" if self.prior < 0.5 else "right",
            va="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )
        often = "" if self.failure <= 0 else f", except with probability {self.failure:.3g} on either side"
        axes.set(xlabel="belief before the release", ylabel="belief after it", xlim=(0, 1), ylim=(0, 1))
        axes.set_title(f"{self.guarantee}{often}", fontsize=10)
        axes.legend(frameon=False, loc="upper left" if self.prior > 0.5 else "lower right")
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def posterior(guarantee: Guarantee, prior: float, failure: float = 0.01) -> Posterior:
    """The bounds that `Guarantee.posterior` gives; see there."""
    before = float(_check.probability("prior", prior, "it is what the attacker believes before, such as 0.5"))
    allowed = float(_check.probability("failure", failure, "it is how often the belief may go further, such as 0.01"))
    if guarantee.never_fails:
        allowed = 0.0
    elif not _LEAST_FAILURE <= allowed < 1:
        remedy = "only pure ε-DP bounds the belief always; for example 0.01"
        raise _check.fail("failure", f"be in [{_LEAST_FAILURE:g}, 1)", failure, remedy)
    low, high = _moved(before, guarantee.most_loss(allowed))
    return Posterior(guarantee, before, low, high, allowed, guarantee.best_guess(before))


def approximate_loss(epsilon: float, delta: float, failure: float) -> float:
    """ln(x/α), α = max(e^{−ε}(x − δ), 1 − δ − e^ε(1 − x)): the curve's two lines allow power x from there on."""
    if delta <= 0:
        return epsilon
    growth = math.exp(min(epsilon, 700.0))
    steep = math.exp(-epsilon) * (failure - delta - SLACK * (failure + delta))
    # 1 − δ − e^ε(1 − x), without losing digits at a small ε. The errors count in terms of what is subtracted.
    jump = math.expm1(min(epsilon, 700.0))
    flat = growth * failure - jump - delta - SLACK * (growth * failure + jump + delta)
    least = max(steep, flat)
    return math.inf if least <= 0 else max(0.0, up(math.log(failure / least)))


def gaussian_loss(mu: float, failure: float) -> float:
    """ln(x/Φ(Φ⁻¹(x) − μ)): the test of N(0, 1) against N(μ, 1) with power x."""
    if math.isinf(mu):
        return math.inf
    quantile = float(special.ndtri(failure))
    # The quantile is good to some ulps; moved down, the type I error only falls and the loss only rises.
    lower = down(quantile) - mu
    return max(0.0, up(math.log(failure) - float(special.log_ndtr(down(lower)))))


def _moved(prior: float, loss: float) -> tuple[float, float]:
    """The least and the largest belief when the odds change by at most e^loss."""
    if prior <= 0 or prior >= 1:
        return prior, prior
    shrink = math.exp(-min(loss, 745.0))
    low = prior * shrink / (prior * shrink + (1 - prior))
    high = prior / (prior + (1 - prior) * shrink)
    if math.isinf(loss):
        return 0.0, 1.0
    return max(0.0, down(low)), min(1.0, up(high))


def guess_by_pairs(pairs: Sequence[tuple[float, float]], prior: float) -> float:
    """The least bound of several (ε, δ): each curve has three corners, and the best guess uses one of them."""
    best = 1.0
    for epsilon, delta in pairs:
        wrong = min(prior, 1 - prior, 1 / (1 + math.exp(min(epsilon, 700.0)))) * (1 - delta)
        best = min(best, 1 - wrong)
    return min(1.0, max(up(best), prior, 1 - prior))


def guess_by_zcdp(rho: float, prior: float) -> float:
    """The most that a guess can be right under ρ-zCDP."""
    return guess_by_pairs(_concentrated_pairs(rho, rho, lambda epsilon: _zcdp_delta(rho, epsilon)), prior)


def guess_by_rdp(pairs: Sequence[tuple[float, float]], prior: float) -> float:
    """The same under Rényi DP, from pairs of an order and its divergence."""
    least = min(e for _, e in pairs)
    # A loss scale for the grid: the ρ that the best order would have in zCDP.
    slope = min(e / a for a, e in pairs)
    return guess_by_pairs(_concentrated_pairs(least, slope, lambda epsilon: _rdp_delta(pairs, epsilon)), prior)


def _concentrated_pairs(divergence: float, slope: float, delta: Callable[[float], float]) -> list[tuple[float, float]]:
    """(ε, δ) that follow from a bound on Rényi divergences: by Pinsker's inequality at ε = 0, and on a grid of ε."""
    if math.isinf(divergence):
        return [(math.inf, 0.0)]
    spread = math.sqrt(2 * slope)
    most = slope + _DEVIATIONS * spread + 1e-9
    return [
        (0.0, min(1.0, up(math.sqrt(divergence / 2)))),
        *((float(e), min(1.0, up(delta(float(e))))) for e in np.linspace(0.0, most, _POINTS)),
    ]


def _zcdp_delta(rho: float, epsilon: float) -> float:
    """e^{−(ε − ρ)²/4ρ} for ε > ρ (Bun & Steinke 2016, Lemma 3.5)."""
    if epsilon <= rho or rho <= 0:
        return 1.0 if rho > 0 else 0.0
    return math.exp(-((epsilon - rho) ** 2) / (4 * rho))


def _rdp_delta(pairs: Sequence[tuple[float, float]], epsilon: float) -> float:
    """The least e^{(α−1)(ε_α − ε)} (Mironov 2017, Proposition 3)."""
    return min(math.exp(min(0.0, (a - 1) * (e - epsilon))) if e < math.inf else 1.0 for a, e in pairs)


def guess_by_gaussians(mu: float, prior: float) -> float:
    """The best guess between N(0, 1) and N(μ, 1): Φ at the two distances from where the densities balance."""
    if mu <= 0 or prior <= 0 or prior >= 1:
        return max(prior, 1 - prior)
    if math.isinf(mu):
        return 1.0
    shift = (math.log(1 - prior) - math.log(prior)) / mu
    wrong = (1 - prior) * float(special.ndtr(-(mu / 2 + shift))) + prior * float(special.ndtr(-(mu / 2 - shift)))
    return min(1.0, max(up(1 - wrong), prior, 1 - prior))


def _percent(share: float) -> str:
    """A probability as a percentage, without rounding it to a certainty that it is not."""
    shown = f"{100 * share:.3g}%"
    return f"{100 * share:.6g}%" if shown in {"100%", "0%"} and 0 < share < 1 else shown
