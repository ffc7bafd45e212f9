"""Which ε meets two demands at once: a largest ε for privacy, and a largest error for the statistic. Spends nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from scipy import special

from discreet import _check
from discreet.bounded import Bounded
from discreet.errors import InvalidArgument, MissingExtra
from discreet.mechanisms._gaussian import Gaussian
from discreet.mechanisms._l2_laplace import L2Laplace
from discreet.mechanisms._laplace import Laplace
from discreet.mechanisms.additive import Additive
from discreet.mechanisms.protection import require_bounded
from discreet.neighbors import Relation
from discreet.numeric.search import bisect_ratio
from discreet.release import NoiseLaw

#: The noises with a calibration to ε and a tail in closed form.
NoiseFamily = Literal["laplace", "gaussian", "l2-laplace"]
#: The search for the least ε ends here on either side: beyond, noise is none, or more than any answer.
_LEAST, _MOST = 1e-9, 1e6
#: The least ε is found to within this factor, from the side that is accurate enough.
_CLOSE = 1 + 1e-9


@dataclass(frozen=True)
class EpsilonRange:
    """Every ε that is private enough and accurate enough, or the news that there is none.

    Attributes:
        name: the query.
        noise: "laplace", "gaussian" or "l2-laplace".
        delta: the δ of the release; 0 for "laplace".
        max_epsilon: the most ε that may be spent.
        error: the error t that is wanted, in the statistic's units.
        probability: how often the error may exceed t.
        low: the least ε that is accurate enough.
        high: the largest ε that is private enough; `max_epsilon`.
        reached_error: the error that `max_epsilon` keeps with the wanted probability.
        reached_probability: how often the error exceeds t at `max_epsilon`.
        sensitivity: how far one unit moves the statistic.
        needed_sensitivity: how far it might move it for `max_epsilon` to be accurate enough, about.
    """

    name: str
    noise: NoiseFamily
    delta: float
    max_epsilon: float
    error: float
    probability: float
    low: float
    high: float
    reached_error: float
    reached_probability: float
    sensitivity: float
    needed_sensitivity: float
    _calibration: _Calibration = field(repr=False, compare=False)

    @property
    def fits(self) -> bool:
        """Whether any ε meets both demands."""
        return self.low <= self.high

    def __contains__(self, epsilon: object) -> bool:
        return isinstance(epsilon, int | float | Fraction) and self.low <= epsilon <= self.high

    def error_at(self, epsilon: float) -> float:
        """The error that the release at `epsilon` exceeds with the wanted probability at most."""
        return self._calibration.error(epsilon, self.probability)

    def probability_at(self, epsilon: float) -> float:
        """How often the release at `epsilon` errs by more than the wanted error."""
        return self._calibration.exceeds(epsilon, self.error)

    @property
    def words(self) -> str:
        """The answer in words; where no ε fits, also what would have to give."""
        demand = f"an error of more than {self.error:.6g} with probability at most {self.probability:.3g}"
        if self.fits:
            return (
                f"Every ε from {self.low:.4g} to {self.high:.4g} fits: {self.noise} noise on the {self.name} then has "
                f"{demand}. At ε = {self.high:.4g} the error stays within {self.reached_error:.4g} that often."
            )
        gives = [
            f"privacy: allow ε = {self.low:.4g}",
            f"accuracy: accept an error of {self.reached_error:.4g}",
            f"certainty: accept a larger error than {self.error:.6g} with probability {self.reached_probability:.3g}",
            *self._less_sensitive(),
        ]
        listed = "; ".join(f"({number}) {give}" for number, give in enumerate(gives, 1))
        return (
            f"No ε fits: ε ≤ {self.max_epsilon:.4g} and {demand} exclude each other for {self.noise} noise on the "
            f"{self.name}. One of these would have to give: {listed}."
        )

    def _less_sensitive(self) -> list[str]:
        """How a smaller sensitivity would help, where a query can have one: one row moves a count by no less than 1."""
        ratio = self.sensitivity / self.needed_sensitivity
        sizes = f"at most about {self.needed_sensitivity:.4g} instead of {self.sensitivity:.4g}"
        match self.name:
            case "sum":
                return [f"bounds: tighten them, so that one unit moves the sum by {sizes}"]
            case "mean" | "accuracy":
                return [f"data: use about {ratio:.3g} times as many rows, so that one moves the {self.name} by {sizes}"]
            case _:
                return []

    def __str__(self) -> str:
        return self.words

    def plot(self, axes: Any = None) -> Any:
        """Draw the error over ε, both demands, and where they meet, into `axes` of matplotlib; return the axes."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as missing:
                raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
            axes = Figure(figsize=(6, 4), layout="constrained").subplots()
        ends = sorted((self.low, self.high))
        epsilons = np.geomspace(ends[0] / 5, ends[1] * 5, 601)
        errors = [self.error_at(float(epsilon)) for epsilon in epsilons]
        axes.loglog(epsilons, np.maximum(errors, min(e for e in [*errors, self.error] if e > 0) / 2), color="#264653")
        axes.axhline(self.error, color="#e76f51", linestyle="--", label=f"error at most {self.error:.4g}")
        axes.axvline(self.high, color="#2a9d8f", linestyle="--", label=f"ε at most {self.high:.4g}")
        if self.fits:
            axes.axvspan(self.low, self.high, color="#2a9d8f", alpha=0.2, linewidth=0)
            title = f"{self.low:.3g} ≤ ε ≤ {self.high:.3g} fits"
        else:
            axes.axvspan(self.high, self.low, color="#e76f51", alpha=0.15, linewidth=0)
            title = f"no ε fits: accuracy needs ε ≥ {self.low:.3g}"
        axes.set_title(f"{self.name}, {self.noise} noise: {title}", fontsize=10)
        axes.set(xlabel="ε", ylabel=f"error exceeded with probability {self.probability:.3g}")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


@dataclass(frozen=True)
class _Calibration:
    """The noise that each ε gives. It holds the query's bound, not its value."""

    query: Bounded
    noise: NoiseFamily
    delta: float | None
    relation: Relation

    def mechanism(self, epsilon: float) -> Additive:
        if self.noise == "laplace":
            return Laplace.for_epsilon(self.query, epsilon, self.relation)
        assert self.delta is not None
        if self.noise == "gaussian":
            return Gaussian.for_epsilon(self.query, epsilon, self.delta, relation=self.relation)
        return L2Laplace.for_epsilon(self.query, epsilon, self.delta, self.relation)

    def _law(self, epsilon: float) -> NoiseLaw:
        return self.mechanism(epsilon).noise_law(self.query.granularity)

    def error(self, epsilon: float, probability: float) -> float:
        return self._law(epsilon).half_width(probability) * float(self.query.granularity)

    def exceeds(self, epsilon: float, error: float) -> float:
        steps = math.floor(_check.real("error", error, "it is the largest error") / self.query.granularity)
        return tail(self._law(epsilon), steps)


def tail(law: NoiseLaw, steps: int) -> float:
    """P(|noise| > `steps`) in grid units, for discrete Laplace noise, and for rounded Laplace and Gaussian noise.

    Discrete Laplace: 2q^{t+1}/(1 + q) with q = e^{−1/b}. Rounded noise exceeds t exactly if the continuous one
    exceeds t + 1/2.
    """
    if not law.rounded:
        assert not law.gaussian
        return min(1.0, 2 * math.exp(-(steps + 1) / law.scale) / (1 + math.exp(-1 / law.scale)))
    if law.gaussian:
        return float(2 * special.ndtr(-(steps + 0.5) / law.scale))
    return math.exp(-(steps + 0.5) / law.scale)


def epsilon_range(
    query: Bounded,
    *,
    max_epsilon: float,
    error: float,
    probability: float,
    noise: NoiseFamily = "laplace",
    delta: float | None = None,
    relation: Relation | str | None = None,
) -> EpsilonRange:
    """Which ε is private enough for one demand and accurate enough for another. Spends nothing.

    The noise's tail is known in closed form, so nothing is simulated: the least ε is the smallest at which the release
    (`dp.laplace`, `dp.gaussian` or `dp.l2_laplace`) errs by more than `error` with probability at most `probability`.

    Args:
        query: a query with one number: a count, a sum, or a mean or accuracy under replace-one.
        max_epsilon: the most ε that may be spent.
        error: the error that the statistic may have, in its own units.
        probability: how often the error may exceed that, such as 0.05.
        noise: "laplace" (pure ε-DP), "gaussian" or "l2-laplace" ((ε, δ)-DP).
        delta: the δ of the last two.
        relation: which neighbors to protect; by default the first one that the query is bounded for.

    Guarantee: looks at the query's sensitivity and grid, never at its value, so the answer is public.

    >>> from discreet.queries import count
    >>> found = epsilon_range(count([1, 2, 3]), max_epsilon=1.0, error=10, probability=0.05)
    >>> found.fits, round(found.low, 3)
    (True, 0.284)
    >>> epsilon_range(count([1, 2, 3]), max_epsilon=0.1, error=10, probability=0.05).fits
    False
    """
    wanted = require_bounded(query, relation)
    _check.one_of("noise", noise, ("laplace", "gaussian", "l2-laplace"), "these have a tail in closed form")
    if query.dimension != 1 or query.finish is None or query.finish.mixes != 1:
        raise InvalidArgument(
            f"query must be a single number whose error is its noise, got {query.name}: the error of a quotient of "
            f"noisy sums depends on the data; use a count, a sum, or a mean with relation='replace-one'"
        )
    most = float(_check.epsilon(max_epsilon, "max_epsilon"))
    if not _LEAST <= most <= _MOST:
        raise _check.fail("max_epsilon", f"lie in [{_LEAST:g}, {_MOST:g}]", max_epsilon, "0.01 to 10 is usual")
    allowed = float(_check.positive("error", error, "it is the largest error, in the statistic's units"))
    often = float(_check.probability("probability", probability, "it is how often the error may be larger"))
    if not 1e-300 <= often < 1:
        raise _check.fail("probability", "be in [1e-300, 1)", probability, "for example 0.05")
    if noise == "laplace" and delta is not None:
        raise _check.fail("delta", "be left out with laplace noise", delta, "it is pure ε-DP")
    slack = None if noise == "laplace" else float(_check.delta(delta))
    calibration = _Calibration(query, noise, slack, wanted)
    steps = math.floor(Fraction(allowed) / query.granularity)

    def accurate(epsilon: float) -> bool:
        return tail(calibration._law(epsilon), steps) <= often

    low = _least(accurate)
    moved = math.sqrt(query.sensitivity(wanted).l2_squared) * float(query.granularity)
    reached = calibration.error(most, often)
    return EpsilonRange(
        name=query.name,
        noise=noise,
        delta=0.0 if slack is None else slack,
        max_epsilon=most,
        error=allowed,
        probability=often,
        low=low,
        high=most,
        reached_error=reached,
        reached_probability=tail(calibration._law(most), steps),
        sensitivity=moved,
        needed_sensitivity=moved * min(1.0, allowed / reached) if reached > 0 else moved,
        _calibration=calibration,
    )


def _least(accurate: Any) -> float:
    """The least ε that is accurate enough, to within `_CLOSE`; the ends of the search where it lies beyond them."""
    if accurate(_LEAST):
        return _LEAST
    if not accurate(_MOST):
        return math.inf
    return bisect_ratio(accurate, _LEAST, _MOST, ratio=_CLOSE).high
