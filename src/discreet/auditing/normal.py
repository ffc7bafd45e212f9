"""The test of μ: how far apart two normal outputs lie, in units of their noise.

It assumes that the output, or its projection on a direction that was chosen beforehand, is normal with equal variance
on both datasets, as Gaussian noise on a sum is. Telling the datasets apart is then telling N(0, 1) from N(μ, 1), and
Student's t of two samples is a noncentral t with noncentrality μ√(n₀n₁/(n₀ + n₁)). It uses every run fully, where a
threshold sees one bit of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.auditing.refuted import largest

Floats = NDArray[np.float64]

# No larger μ is looked for: its ε is beyond what anyone claims.
_LARGEST_MU = 1e6


@dataclass(frozen=True)
class Separation:
    """Student's t of two samples.

    Attributes:
        statistic: the difference of the means over its standard error.
        runs: how many runs each mean is of.
    """

    statistic: float
    runs: tuple[int, int]

    @classmethod
    def of(cls, null: Floats, other: Floats) -> Separation:
        """Of two samples of numbers."""
        freedom = len(null) + len(other) - 2
        variance = ((len(null) - 1) * null.var(ddof=1) + (len(other) - 1) * other.var(ddof=1)) / freedom
        difference = float(other.mean() - null.mean())
        if variance <= 0:
            return cls(math.copysign(math.inf, difference) if difference else 0.0, (len(null), len(other)))
        return cls(difference / math.sqrt(variance * (1 / len(null) + 1 / len(other))), (len(null), len(other)))

    @property
    def factor(self) -> float:
        """√(n₀n₁/(n₀ + n₁)): the statistic over μ."""
        below, above = self.runs
        return math.sqrt(below * above / (below + above))

    def p_value(self, mu: float) -> float:
        """P(t ≥ statistic) if the distance is `mu`; Johnson & Welch's (1940) normal form of the noncentral t."""
        if math.isinf(self.statistic):
            return 0.0 if self.statistic > 0 else 1.0
        freedom = sum(self.runs) - 2
        spread = self._spread(self.statistic, freedom)
        return float(special.ndtr((mu * self.factor - self.statistic * (1 - 1 / (4 * freedom))) / spread))

    def below(self, errors: float) -> float:
        """The observed μ minus this many standard errors; at least 0."""
        if math.isinf(self.statistic):
            return math.inf if self.statistic > 0 else 0.0
        return max(0.0, self.statistic - errors * self._spread(self.statistic, sum(self.runs) - 2)) / self.factor

    def mu_lower(self, alpha: float) -> float:
        """A lower bound on μ that fails with probability at most `alpha`."""
        return largest(lambda mu: self.p_value(mu) <= alpha, at_most=_LARGEST_MU, rounds=60)

    @staticmethod
    def power(runs: tuple[int, int], claimed: float, mu: float, alpha: float) -> float:
        """The probability that a test of μ ≤ claimed at level `alpha` rejects if the distance is `mu`."""
        factor = math.sqrt(runs[0] * runs[1] / sum(runs))
        spread = Separation._spread(mu * factor, sum(runs) - 2)
        return float(special.ndtr((mu - claimed) * factor / spread + special.ndtri(alpha)))

    @staticmethod
    def _spread(statistic: float, freedom: int) -> float:
        """The standard deviation of t around its mean: that of a normal, and what the estimated variance adds."""
        return math.sqrt(1 + statistic**2 / (2 * freedom))
