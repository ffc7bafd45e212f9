"""Attacks that guess who was trained on: one threshold for all, or a comparison with a few shadow models (LiRA)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.auditing.claims import claimed
from discreet.auditing.plotting import draw_membership
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.mechanisms import observation
from discreet.mechanisms.sampling import samplers

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

# Standard deviations below this share of the largest one are noise of the arithmetic.
_LEAST_SPREAD = 1e-6
# With fewer false alarms than this, a rate is mostly chance.
_LEAST_ALARMS = 10
# Shadow models of either kind that a normal curve needs.
_LEAST_MODELS = 2


@dataclass(frozen=True, eq=False)
class Membership:
    """How well scores tell members of the training data from others: the ROC curve of an attack.

    Attributes:
        false_alarms: the share of others above each threshold, from 0 to 1.
        hits: the share of members above it.
        others: how many examples the false alarms are a share of.
    """

    false_alarms: Floats
    hits: Floats
    others: int

    @property
    def area(self) -> float:
        """The area under the curve: the probability that a member scores higher than another person; 0.5 is chance."""
        return float(np.sum(np.diff(self.false_alarms) * (self.hits[1:] + self.hits[:-1]) / 2))

    def hits_at(self, false_alarms: float) -> float:
        """The share of members that are found at this rate of false alarms; averages hide what happens at low ones."""
        return float(np.max(self.hits[self.false_alarms <= false_alarms]))

    def plot(self, axes: Any = None, *, claim: Event | Guarantee | None = None) -> Any:
        """Draw the curve on logarithmic axes, with the curve that a claim allows above it; return the axes.

        Where there are fewer than ten false alarms the curve is pale: there it is mostly chance.
        """
        sure = self.false_alarms * self.others >= _LEAST_ALARMS
        return draw_membership(self.false_alarms, self.hits, sure, axes, None if claim is None else claimed(claim))


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
    return Membership(np.concatenate([[0.0], alarms]), np.concatenate([[0.0], hits]), len(outside))


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


@observation.on_generated_data()
def attack_training(train: Callable[[Booleans], ArrayLike], examples: int, *, shadows: int = 8) -> Membership:
    """Attack a training: guess who was trained on, by the scores of the model and of a few shadow models.

    The training runs once on a random half of the examples, and `shadows` times on other random halves, each followed
    by its complement, so that every example is in half of them. Without shadows, one threshold serves all examples.

    Args:
        train: a function that gets one bool for each example, trains on those that are True, and gives one score for
            each example, such as ln(p/(1 − p)) of the probability p that the model gives its label.
        examples: how many examples there are.
        shadows: how many shadow models to train; an even number, at least four, or none.

    Guarantee: none: `train` sees public or generated data.
    """
    number = _check.integer("examples", examples, "each is a member or not", at_least=10)
    many = _check.integer("shadows", shadows, "it is the number of shadow models", at_least=0)
    if many % 2 or many == 2:
        raise _check.fail("shadows", "be even and at least 4, or 0", shadows, "each half is followed by its complement")
    member = samplers.uniform(2, number).astype(np.bool_)
    scores = _scored(train, member)
    if many:
        halves = [samplers.uniform(2, number).astype(np.bool_) for _ in range(many // 2)]
        included = np.array([coins for half in halves for coins in (half, ~half)])
        scores = likelihood_scores([_scored(train, coins) for coins in included], included, scores)
    return membership(scores[member], scores[~member])


def _scored(train: Callable[[Booleans], ArrayLike], included: Booleans) -> Floats:
    scores = np.asarray(train(included.copy()), dtype=np.float64)
    if scores.shape != included.shape:
        raise _check.fail("train", f"give {len(included)} scores", scores.shape, "one for each example")
    return scores


def _numbers(name: str, given: ArrayLike) -> Floats:
    numbers = np.asarray(given, dtype=np.float64)
    if not numbers.size or not np.all(np.isfinite(numbers)):
        raise _check.fail(name, "be finite numbers, at least one", numbers.shape, "leave out examples without a score")
    return numbers
