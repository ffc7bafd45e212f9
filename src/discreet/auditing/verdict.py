"""What an audit found, how hard it looked, and on what it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attestation import Attestation

Floats = NDArray[np.float64]

# An attestation is a summary: it cuts longer texts, such as the repr of a long plan.
_LONGEST_TEXT = 2000

#: What each estimator takes for granted.
ASSUMES = {
    "threshold": "that runs are independent",
    "histogram": "that runs are independent",
    "mu": "that runs are independent, and that outputs are normal with equal variance on both datasets",
    "one_run": "that canaries were included by fair, independent coins; δ is that of the claim",
    "one_run_f": "that canaries were included by fair, independent coins; ε is that of the Gaussian with the same μ",
    "independent": "that canaries were included by fair, independent coins and that their scores are independent; ε is "
    "that of the Gaussian with the same μ",
}


@dataclass(frozen=True)
class Witness:
    """An event that two datasets were told apart by.

    Attributes:
        pair: the number of the pair of datasets.
        backward: whether false alarms were counted on the second dataset, and hits on the first.
        event: the set of outputs, in words.
        false_alarms: how often it happened on the dataset of the null hypothesis, and in how many runs.
        hits: the same for the other dataset.
        allowed: the largest rate of hits that the claim allows at this rate of false alarms.
        p_value: a bound on the probability of such counts if the claim holds.
    """

    pair: int
    backward: bool
    event: str
    false_alarms: tuple[int, int]
    hits: tuple[int, int]
    allowed: float
    p_value: float

    def __str__(self) -> str:
        (alarms, below), (hits, above) = self.false_alarms, self.hits
        sides = ("second", "first") if self.backward else ("first", "second")
        return (
            f"pair {self.pair}: {self.event} happened in {hits:,} of {above:,} runs on the {sides[1]} dataset "
            f"({hits / above:.2%}) and in {alarms:,} of {below:,} on the {sides[0]} ({alarms / below:.2%}); the claim "
            f"allows at most {self.allowed:.2%}"
        )


@dataclass(frozen=True)
class Power:
    """How small a fault would have been seen.

    Attributes:
        missing_noise: the least share of missing noise that is seen with this probability; None if even 99% is not.
        probability: the probability of seeing it.
    """

    missing_noise: float | None
    probability: float = 0.999

    def __str__(self) -> str:
        if self.missing_noise is None:
            return f"no missing noise would have been seen with probability {self.probability:.1%}: it needs more runs"
        return f"{self.missing_noise:.0%} less noise would have been seen with probability {self.probability:.1%}"


@dataclass(frozen=True)
class Audit:
    """The report of an audit. It can refute a claim; it can never prove one.

    Attributes:
        claim: what was claimed, in words.
        violated: whether the claim was refuted.
        witness: the event that was tested last, with its counts; it refutes the claim if `violated`.
        epsilon_lower: the target is not (ε, δ)-DP for any ε below this, at level `alpha`, on its own.
        delta: the δ of that ε.
        power: how small a fault would have been seen.
        alpha: the probability of a violation where there is none.
        samples: how many runs were made, over all pairs and both datasets.
        pairs: how many pairs of datasets were looked at.
        estimator: how it was tested: "threshold", "histogram", "mu", "one_run", "one_run_f" or "independent".
        assumes: what the test takes for granted.
    """

    claim: str
    violated: bool
    witness: Witness
    epsilon_lower: float
    delta: float
    power: Power
    alpha: float
    samples: int
    pairs: int
    estimator: str
    assumes: str
    #: Rates of false alarms and of hits: what the claim allows, and what the last event's score reached at every
    #: threshold.
    curves: tuple[Floats, Floats, Floats, Floats] = field(repr=False, compare=False)

    @property
    def verdict(self) -> str:
        """What was found, in words."""
        if self.violated:
            return f"violation: {self.witness} (p ≤ {self.witness.p_value:.1g})"
        if self.power.missing_noise is None:
            return f"no violation found; {self.power}"
        where = {"one_run": "by ideal canaries", "one_run_f": "by ideal canaries", "independent": "by these canaries"}
        where_seen = where.get(self.estimator, "on the pairs tested")
        return f"no violation found; {self.power} {where_seen}"

    def __str__(self) -> str:
        return (
            f"{self.verdict}\n"
            f"claim: {self.claim}\n"
            f"ε ≥ {self.epsilon_lower:.4g} at δ = {self.delta:.3g}; runs: {self.samples:,}, pairs: {self.pairs}, "
            f"false alarms: {self.alpha:.0e}\n"
            f"estimator: {self.estimator}; it assumes {self.assumes}"
        )

    def attestation(self, subject: str) -> Attestation:
        """What a ledger keeps of this audit: `account.attest(report.attestation("the count of visits"))`.

        Args:
            subject: what was tested, in words that others may read.
        """
        return Attestation(
            subject=subject,
            claim=self.claim[:_LONGEST_TEXT],
            verdict=self.verdict[:_LONGEST_TEXT],
            violated=self.violated,
            method=f"{self.estimator}; assumes {self.assumes}",
            epsilon_lower=self.epsilon_lower,
            delta=self.delta,
            alpha=self.alpha,
            missing_noise=self.power.missing_noise,
            probability=self.power.probability,
            samples=self.samples,
            pairs=self.pairs,
        )

    def plot(self, axes: Any = None, *, log: bool = False) -> Any:
        """Draw what the claim allows and what was reached into `axes` of matplotlib, or into a new figure.

        Args:
            axes: where to draw; a new figure if None.
            log: logarithmic axes, where low rates of false alarms can be seen.
        """
        from discreet.auditing.plotting import draw

        return draw(self, axes, log=log)
