"""Exact statements about two counts: how often an event happened on each of two neighboring datasets.

H₀: P₁ ≤ c + s·P₀, one line above a claim's curve. With Y hits among n₁ runs on one dataset and X false alarms among n₀
on the other, T = Y/n₁ − s·X/n₀ has mean at most c. `Runs.p_value` bounds the probability of a T this large by
Chernoff's bound times a bound on how far T overshoots, over all P₀ within a confidence interval around X/n₀ whose own
error is added (Berger & Boos 1994). It holds for any number of runs (docs/proofs/audit-tests.md) and looks at both
counts at once; two separate confidence intervals (Clopper & Pearson 1934) need up to twice as many runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from discreet.auditing.refuted import largest

Floats = NDArray[np.float64]
RateRange = tuple[float, float]

# Exponents per run at which the least bound is looked for; refined afterwards.
_TILTS = np.geomspace(1e-7, 60.0, 121)
# The share of the false-alarm rate that the confidence interval around X/n₀ may use.
_INTERVAL_SHARE = 0.1
# Beyond this ε, e^ε P₀ exceeds 1 for any P₀ that could be measured.
_LARGEST_EPSILON = 512.0
_LARGEST_EXPONENT = 700.0
# The distance of a sum of independent terms, which need not be distributed alike, from a normal is at most this much of
# its Lyapunov ratio (Tyurin 2009, arXiv 0912.0726; Shevtsova 2010, Doklady Mathematics 82, has 0.5600).
_BERRY_ESSEEN = 0.5606


def clopper_pearson(successes: int, trials: int, tail: float) -> RateRange:
    """Bounds on a probability, each of which fails with probability at most `tail` (Clopper & Pearson 1934)."""
    lower = 0.0 if successes == 0 else float(special.betaincinv(successes, trials - successes + 1, tail))
    upper = 1.0 if successes == trials else float(special.betainccinv(successes + 1, trials - successes, tail))
    return lower, upper


@dataclass(frozen=True)
class Line:
    """P₁ ≤ intercept + slope·P₀: one (ε, δ) of a claim."""

    slope: float
    intercept: float

    def at(self, rate: Floats) -> Floats:
        """The largest P₁ at P₀."""
        return np.asarray(np.minimum(1.0, self.intercept + self.slope * rate))


@dataclass(frozen=True)
class Runs:
    """How many independent runs there are on the dataset of the null hypothesis, and on the other."""

    below: int
    above: int

    def p_value(self, false_alarms: int, hits: int, line: Line, alpha: float) -> float:
        """A p-value of H₀: P₁ ≤ line(P₀), for a test at level `alpha`."""
        share = _INTERVAL_SHARE * alpha
        rates = clopper_pearson(false_alarms, self.below, share / 2)
        observed = hits / self.above - line.slope * false_alarms / self.below
        return min(1.0, share + math.exp(self._log_bound(observed, line, rates)))

    def critical(self, rate: float, line: Line, alpha: float) -> float:
        """The least difference T that a test at level `alpha` rejects, if the rate of false alarms is about `rate`."""
        share = _INTERVAL_SHARE * alpha
        rates = clopper_pearson(round(rate * self.below), self.below, share / 2)
        enough = math.log(alpha - share)
        if self._log_bound(1.0, line, rates) > enough:
            return math.inf
        low, high = line.intercept, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self._log_bound(middle, line, rates) <= enough else (middle, high)
        return high

    def spread(self, rate: float, hit_rate: float, line: Line) -> float:
        """The standard deviation of T at these rates."""
        return math.sqrt(hit_rate * (1 - hit_rate) / self.above + line.slope**2 * rate * (1 - rate) / self.below)

    def power(self, rate: float, hit_rate: float, line: Line, critical: float) -> float:
        """P(T ≥ critical) at these rates, by the normal approximation: it states power and decides nothing."""
        gap, spread = hit_rate - line.slope * rate - critical, self.spread(rate, hit_rate, line)
        return float(special.ndtr(gap / spread)) if spread > 0 else float(gap >= 0)

    def epsilon_lower(self, false_alarms: int, hits: int, *, delta: float, alpha: float, distance: int = 1) -> float:
        """An ε such that the counts refute (ε′, δ)-DP at level `alpha` for every ε′ below it; 0 if they refute none.

        A group of k units has e^{kε} and δ(e^{kε} − 1)/(e^ε − 1).
        """

        def refuted(epsilon: float) -> bool:
            growth = math.exp(min(_LARGEST_EXPONENT, distance * epsilon))
            slack = delta * (distance if epsilon <= 0 else (growth - 1) / math.expm1(epsilon))
            return slack < 1 and self.p_value(false_alarms, hits, Line(growth, slack), alpha) <= alpha

        return largest(refuted, at_most=_LARGEST_EPSILON, rounds=30)

    def _log_bound(self, observed: float, line: Line, rates: RateRange) -> float:
        """ln of a bound on P(T ≥ observed) over all P₀ in `rates`, with P₁ = line(P₀). Every λ > 0 gives one."""
        if observed <= line.intercept:
            return 0.0
        values = self._chernoff(_TILTS, observed, line, rates)
        best = int(np.argmin(values))
        refined = optimize.minimize_scalar(
            lambda log_tilt: float(self._chernoff(np.array([math.exp(log_tilt)]), observed, line, rates)[0]),
            bounds=(math.log(_TILTS[max(0, best - 1)]), math.log(_TILTS[min(len(_TILTS) - 1, best + 1)])),
            method="bounded",
        )
        return min(0.0, float(values[best]), float(refined.fun))

    def _chernoff(self, tilt: Floats, observed: float, line: Line, rates: RateRange) -> Floats:
        """ln(e^{−λ·observed} E[e^{λY/n₁}] E[e^{−λsX/n₀}]), largest over P₀, and ln of what T overshoots by.

        λ is such that one run counts e^{±tilt}. The first part is concave in P₀, and its derivative vanishes on a
        linear equation.
        """
        scale = tilt / max(1 / self.above, line.slope / self.below)
        up, down = np.expm1(scale / self.above), np.expm1(-scale * line.slope / self.below)
        free = -self.below * down * (1 + line.intercept * up) - self.above * line.slope * up
        # Beyond the P₀ where P₁ reaches 1, the bound only falls.
        most = min(rates[1], max(rates[0], (1 - line.intercept) / line.slope))
        rate = np.clip(free / (line.slope * down * up * (self.below + self.above)), rates[0], most)
        hits = self.above * np.log1p(line.at(rate) * up)
        bound = -scale * observed + self.below * np.log1p(rate * down) + hits
        return np.asarray(bound + np.log(self._overshoot(scale, line, rates)))

    def _overshoot(self, scale: Floats, line: Line, rates: RateRange) -> Floats:
        """A bound on E[e^{−λ(T − t)}; T ≥ t] for the tilted counts, over all P₀ in `rates` and all t.

        T lies in an interval of length w with probability at most w/(σ√2π) + 2·0.5606·L, by Berry & Esseen's theorem
        for sums of independent terms, where L is the sum of their third absolute central moments over σ³.
        """
        variance, third = np.zeros_like(scale), np.zeros_like(scale)
        ends = np.array(rates)
        for runs, chances, weight in ((self.below, ends, -line.slope), (self.above, line.at(ends), 1.0)):
            low, high = (_tilted(chance, scale * weight / runs) for chance in chances)
            least = np.minimum(low * (1 - low), high * (1 - high))
            middle = np.clip(0.5, low, high)
            most = middle * (1 - middle)
            # E|x − q|³ of a coin is q(1 − q)(q² + (1 − q)²) = v(1 − 2v), which grows with v = q(1 − q) ≤ 1/4.
            variance += weight**2 * least / runs
            third += abs(weight) ** 3 * most * (1 - 2 * most) / runs**2
        spread = np.sqrt(variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = 1 / (scale * spread * math.sqrt(2 * math.pi)) + 2 * _BERRY_ESSEEN * third / spread**3
        return np.where(spread > 0, np.minimum(1.0, bound), 1.0)


def _tilted(chance: float, tilt: Floats) -> Floats:
    """The chance of a coin whose two sides are weighted 1 and e^tilt."""
    return np.asarray(special.expit(special.logit(chance) + tilt))
