"""Trainings: known mistakes of other libraries are caught in a step, and attacks guess who was trained on.

False alarms: 1e-6 for each audit of a step. A mistake below moves the noisy sum by at least twice what is claimed, or
leaves out a fifth of the noise; each is missed with a probability below 1e-6 by the sizes below.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import discreet as dp
from discreet import events
from discreet.auditing import attack_training, audit, audit_training, likelihood_scores, membership
from discreet.errors import InvalidArgument

C, SIGMA = 1.0, 1.0
U = np.array([1.0, 0.0, 0.0])


def clipped(rows):
    """Rows scaled to a norm of at most C."""
    rows = np.asarray(rows, dtype=np.float64).reshape(-1, 3)
    return rows * np.minimum(1.0, C / np.maximum(np.linalg.norm(rows, axis=1), 1e-12))[:, None]


def noisy(total, runs, scale=SIGMA * C):
    return total + scale * np.random.default_rng().normal(size=(runs, *np.shape(total)))


# --- steps: each takes the gradients of a batch and a number of runs


def honest(gradients, runs):
    return noisy(clipped(gradients).sum(axis=0), runs)


def noise_of_the_next_norm(gradients, runs):
    """The norm is lowered by the update, and the noise uses the new one."""
    return noisy(clipped(gradients).sum(axis=0), runs, scale=0.8 * SIGMA * C)


def clips_the_sum_of_a_microbatch(gradients, runs):
    """Sensitivity 2C: one example turns its microbatch's sum around."""
    pairs = [np.sum(gradients[i : i + 2], axis=0) for i in range(0, len(gradients), 2)]
    return noisy(clipped(pairs).sum(axis=0), runs)


def multiplies_the_mean_of_a_microbatch(gradients, runs, size=4):
    """Sensitivity 2kC: k times the clipped mean."""
    means = [np.mean(gradients[i : i + size], axis=0) for i in range(0, len(gradients), size)]
    return noisy(size * clipped(means).sum(axis=0), runs)


def ghost_batch_norm(gradients, runs):
    """Examples are centered by the batch's mean before they are clipped: one example turns all others around."""
    rows = np.asarray(gradients, dtype=np.float64)
    return noisy(clipped(rows - rows.mean(axis=0)).sum(axis=0), runs)


FEW = [-5 * U, -5 * U, -5 * U]
PAIR = (FEW, [*FEW, 100 * U])


@pytest.mark.parametrize(
    ("step", "caught"),
    [
        (honest, False),
        (noise_of_the_next_norm, True),
        (clips_the_sum_of_a_microbatch, True),
        (multiplies_the_mean_of_a_microbatch, True),
        (ghost_batch_norm, True),
    ],
)
def test_known_mistakes_of_a_step_are_caught(step, caught):
    """300 of 6,000 runs learn a direction. Student's t of the others is 53 if the claim is true and reached, and 58 is
    needed. With four fifths of the noise it is 66, with a spread of 1.2: it is missed with a probability of 2e-8."""
    report = audit(step, events.Gaussian(SIGMA), [PAIR], estimator="mu", vectorized=True, max_samples=6_000)
    assert report.violated is caught, str(report)


def poisson(data, runs, *, rate=0.1, shuffled=False):
    """The noisy sums of ten steps, of one example's gradient alone."""
    generator = np.random.default_rng()
    drawn = generator.random((runs, 10)) < rate
    if shuffled:
        drawn = generator.permuted(np.eye(10, dtype=bool)[np.zeros(runs, dtype=int)], axis=1)
    return np.max(len(data) * drawn * C + 0.4 * generator.normal(size=(runs, 10)), axis=1)


def test_a_shuffled_epoch_that_claims_poisson_samples_is_caught():
    """Poisson sampling misses the example in 35% of the epochs, shuffling never.

    The 2,000 runs that choose the event see this by more than ten standard errors, and those that test it by more than
    forty, of which 5.6 are needed: this fails with a probability below 1e-9.
    """
    claim = events.Repeated(events.PoissonSampled(0.1, events.Gaussian(0.4)), 10)
    pair = dp.auditing.Pair([], [0], grows=True)
    assert not audit(poisson, claim, [pair], vectorized=True, max_samples=40_000).violated
    assert audit(partial(poisson, shuffled=True), claim, [pair], vectorized=True, max_samples=40_000).violated


# --- membership


def test_membership_is_the_roc_curve_of_the_scores():
    attack = membership([3.0, 2.0, 1.0], [0.0, 1.0, -1.0])
    assert attack.hits_at(0.0) == pytest.approx(2 / 3)
    assert attack.hits_at(1.0) == 1.0
    assert attack.area == pytest.approx(8.5 / 9)
    assert membership([1.0] * 5, [1.0] * 5).area == pytest.approx(0.5)


def test_shadow_models_find_members_that_a_single_threshold_does_not():
    """Examples differ in how hard they are; only against other models does a score tell."""
    generator = np.random.default_rng(4)
    hardness = 10 * generator.normal(size=400)
    included = generator.random((16, 400)) < 0.5
    scores = hardness + 2.0 * included + generator.normal(size=included.shape)
    member = generator.random(400) < 0.5
    attacked = hardness + 2.0 * member + generator.normal(size=400)
    plain = membership(attacked[member], attacked[~member])
    ratios = likelihood_scores(scores, included, attacked)
    shadowed = membership(ratios[member], ratios[~member])
    assert plain.area < 0.65
    assert shadowed.area > 0.85
    assert shadowed.hits_at(0.01) > plain.hits_at(0.01)


def test_an_attack_trains_its_own_shadow_models():
    """Scores of members are ten deviations higher than their own scores elsewhere: nothing here is near chance."""
    generator = np.random.default_rng()
    hardness, runs = 100 * generator.normal(size=300), []

    def train(included):
        runs.append(included)
        return hardness + 10.0 * included + generator.normal(size=300)

    assert attack_training(train, 300, shadows=8).area > 0.99
    assert len(runs) == 9
    assert (np.array(runs[1:]).sum(axis=0) == 4).all()  # each example is in half of the shadow models
    assert attack_training(train, 300, shadows=0).area < 0.75
    with pytest.raises(InvalidArgument, match="shadows must be even"):
        attack_training(train, 300, shadows=3)
    with pytest.raises(InvalidArgument, match="train must give 300 scores"):
        attack_training(lambda included: [1.0], 300)


def test_a_membership_curve_is_drawn_below_its_claim(tmp_path):
    generator = np.random.default_rng(4)
    axes = membership(generator.normal(1, 1, 500), generator.normal(0, 1, 500)).plot(claim=dp.GDP(1.0))
    axes.figure.savefig(tmp_path / "membership.svg")
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_bad_scores_are_refused():
    with pytest.raises(InvalidArgument, match="members must be finite"):
        membership([np.nan], [1.0])
    with pytest.raises(InvalidArgument, match="train must give 20 scores"):
        audit_training(lambda included: [1.0], 20, dp.GDP(1.0))
    with pytest.raises(InvalidArgument, match="shadow_included must have 2 models"):
        likelihood_scores([[1.0], [2.0]], [[True], [True]], [1.0])
