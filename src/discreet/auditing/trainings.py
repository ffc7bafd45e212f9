"""Audits of trainings, which are given as functions: canaries in one run, and attacks that guess who was trained on.

A training runs too long to be repeated thousands of times. One run is enough for gross faults: many canaries, each
included by its own fair coin. For small faults, audit the step instead: its noisy sum is a Gaussian, and
`audit(step, claim, pairs, estimator="mu")` sees a tenth of missing noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.auditing.claims import claimed
from discreet.auditing.plotting import draw_membership
from discreet.auditing.scores_test import of_scores
from discreet.auditing.verdict import Audit
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.mechanisms.sampling import samplers

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

# Standard deviations below this share of the largest one are noise of the arithmetic.
_LEAST_SPREAD = 1e-6
# Shadow models of either kind that a normal curve needs.
_LEAST_MODELS = 2


def audit_training(
    train: Callable[[Bits], ArrayLike],
    canaries: int,
    claim: Event | Guarantee,
    *,
    alpha: float = 0.01,
    delta: float | None = None,
    estimator: str = "auto",
) -> Audit:
    """Audit a training in one run.

    Args:
        train: a function that gets one bool for each canary, trains on the data and on the canaries that are True, and
            gives one score for each canary, high for those that seem to have been used. White box: the inner product of
            the canary's gradient with the noisy sums. Black box: minus the loss of the canary under the final model.
        canaries: how many canaries there are. They should be unlike the data and unlike each other.
        claim: what the training claims: the event of its plan, or its guarantee.
        alpha: the probability of reporting a violation where there is none.
        delta: the δ at which ε is stated; by default that of the claim.
        estimator: "one_run" (Steinke, Nasr & Jagielski 2023) or "one_run_f" (Mahloujifar, Melis & Chaudhuri 2024).

    Guarantee: none: `train` sees public or generated data. The coins are drawn here, fair and independent, which is all
    that the bounds assume.
    """
    number = _check.integer("canaries", canaries, "each is a coin to guess", at_least=10)
    level = float(_check.delta(alpha, "alpha"))
    included = samplers.uniform(2, number).astype(np.bool_)
    scores = np.asarray(train(included.copy()), dtype=np.float64)
    if scores.shape != (number,):
        raise _check.fail("train", f"give {number} scores", scores.shape, "one for each canary")
    return of_scores(scores, included, claim, estimator, level, delta)


@dataclass(frozen=True, eq=False)
class Membership:
    """How well scores tell members of the training data from others: the ROC curve of an attack.

    Attributes:
        false_alarms: the share of others above each threshold, from 0 to 1.
        hits: the share of members above it.
    """

    false_alarms: Floats
    hits: Floats

    @property
    def area(self) -> float:
        """The area under the curve: the probability that a member scores higher than another person; 0.5 is chance."""
        return float(np.sum(np.diff(self.false_alarms) * (self.hits[1:] + self.hits[:-1]) / 2))

    def hits_at(self, false_alarms: float) -> float:
        """The share of members that are found at this rate of false alarms; averages hide what happens at low ones."""
        return float(np.max(self.hits[self.false_alarms <= false_alarms]))

    def plot(self, axes: Any = None, *, claim: Event | Guarantee | None = None) -> Any:
        """Draw the curve on logarithmic axes, with the curve that a claim allows above it; return the axes."""
        return draw_membership(self.false_alarms, self.hits, axes, None if claim is None else claimed(claim))


def membership(members: ArrayLike, others: ArrayLike) -> Membership:
    """The attack that calls people members whose score is high, such as minus the loss of the model on them.

    Args:
        members: scores of examples that were trained on.
        others: scores of examples that were not.

    Guarantee: none: scores of real members are not private. Use public or generated data.
    """
    inside, outside = (np.sort(_numbers(name, given)) for name, given in (("members", members), ("others", others)))
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    hits = 1 - np.searchsorted(inside, thresholds) / len(inside)
    alarms = 1 - np.searchsorted(outside, thresholds) / len(outside)
    return Membership(np.concatenate([[0.0], alarms]), np.concatenate([[0.0], hits]))


def likelihood_scores(shadow_scores: ArrayLike, shadow_included: ArrayLike, scores: ArrayLike) -> Floats:
    """Scores against what other models gave the same examples (LiRA: Carlini et al. 2022, Algorithm 1).

    For each example, the scores of the shadow models that were trained on it and of those that were not are each taken
    as normal; the result is ln of how much likelier the example's score is under the first.

    Args:
        shadow_scores: a row for each shadow model and a column for each example.
        shadow_included: the same shape: whether the model was trained on the example.
        scores: the score of each example under the model that is attacked.
    """
    table, included, given = (
        _numbers("shadow_scores", shadow_scores),
        np.asarray(shadow_included),
        _numbers("scores", scores),
    )
    if table.ndim != 2 or included.shape != table.shape or included.dtype != np.bool_ or given.shape != table.shape[1:]:
        remedy = "give models × examples of scores and of bools, and one score for each example"
        raise _check.fail("shadow_scores", "fit shadow_included and scores", table.shape, remedy)
    if min(included.sum(axis=0).min(), (~included).sum(axis=0).min()) < _LEAST_MODELS:
        remedy = "train each model on a random half of the examples, and at least eight models"
        raise _check.fail(
            "shadow_included", f"have {_LEAST_MODELS} models with and without each example", "fewer", remedy
        )
    fits = []
    for chosen in (included, ~included):
        masked = np.where(chosen, table, np.nan)
        mean, spread = np.nanmean(masked, axis=0), np.nanstd(masked, axis=0)
        # A variance shared by all examples is steadier than one from a few models.
        shared = max(float(np.sqrt(np.nanmean(spread**2))), _LEAST_SPREAD * float(np.ptp(table)) + 1e-300)
        fits.append(-0.5 * ((given - mean) / shared) ** 2 - np.log(shared))
    return np.asarray(fits[0] - fits[1])


def _numbers(name: str, given: ArrayLike) -> Floats:
    numbers = np.asarray(given, dtype=np.float64)
    if not numbers.size or not np.all(np.isfinite(numbers)):
        raise _check.fail(name, "be finite numbers, at least one", numbers.shape, "leave out examples without a score")
    return numbers
