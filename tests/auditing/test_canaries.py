"""Canaries in one training: honest plans pass, lower bounds stay below the claim, and mutants are caught.

False alarms: 1e-6 for each audit. A lower bound exceeds the claimed ε with probability 1e-6 as well.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import discreet as dp
from discreet.auditing import one_run, training
from discreet.errors import InvalidArgument
from discreet.learning import Adaptive, PerLayer, Plan, PoissonSampler
from discreet.learning import step as stepping
from discreet.learning.canaries import example_scores, gradient_scores
from discreet.learning.engine import ClippedSum, Engine
from tests.learning import small

ALPHA = 1e-6
ROWS, CANARIES, STEPS = 100, 2_000, 10
EXAMPLES = ROWS + CANARIES // 2


def plan_for(epsilon):
    return Plan.for_epsilon(
        epsilon, delta=1e-5, examples=EXAMPLES, batch_size=EXAMPLES // 2, steps=STEPS, clip_norm=1.0
    )


def gradients(plan, **settings):
    net = small.model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    settings = {"canaries": CANARIES, "alpha": ALPHA} | settings
    return training.canary_gradients(plan, net, small.loss, small.data(ROWS), optimizer=sgd, **settings)


def examples(plan, **settings):
    """Each canary has an input of its own, and a label that nothing else explains."""
    inputs, targets = torch.zeros(ROWS, CANARIES), torch.zeros(ROWS, dtype=torch.long)
    net = nn.Linear(CANARIES, 2, bias=False)
    nn.init.zeros_(net.weight)
    sgd = torch.optim.SGD(net.parameters(), lr=1.0)
    canaries = 10 * torch.eye(CANARIES), torch.zeros(CANARIES, dtype=torch.long)
    settings = {"alpha": ALPHA} | settings
    return training.canary_examples(
        plan, net, nn.functional.cross_entropy, (inputs, targets), canaries, optimizer=sgd, **settings
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 2, 4, 8])
def test_correct_training_passes_and_its_lower_bound_is_below_the_claim(epsilon):
    """At ε = 8 the bound is far above zero: what white-box canaries reach at 1e-6 is above 1 in all of many runs."""
    plan = plan_for(epsilon)
    for report in (gradients(plan), gradients(plan, estimator="independent"), examples(plan)):
        assert not report.violated, str(report)
        assert report.epsilon_lower <= epsilon
        assert epsilon < 8 or report.epsilon_lower > 0.5, str(report)


@pytest.mark.slow
def test_a_third_of_the_noise_is_caught_in_both_accesses():
    weak, claim = plan_for(30.0), plan_for(1.0).event
    for report in (gradients(weak, claim=claim), examples(weak, claim=claim)):
        assert report.violated, str(report)
        assert report.epsilon_lower > 1


# --- mutants


class Grouped(Engine):
    """Clips the sum of `size` rows that lie side by side, or `size` times their mean."""

    size, times_mean = 2, False

    def __call__(self, batch, mask, clip_norm=None, meanwhile=None):
        self.start(batch)
        named = {f"model.{name}": p for name, p in self.model.named_parameters()}
        groups = pytree.tree_map(lambda x: x.unflatten(0, (-1, self.size)), (batch, mask))

        def total(parameters, group, counted):
            return (torch.func.functional_call(self._with_loss, parameters, (group,)) * counted).sum()

        sums = torch.func.vmap(torch.func.grad(total), in_dims=(None, 0, 0))(named, *groups)
        scale = self.size if self.times_mean else 1
        norms = sum((part / scale).flatten(1).square().sum(1) for part in sums.values()).sqrt()
        weights = torch.clamp(clip_norm / norms.clamp_min(1e-12), max=1.0)
        added = {
            name.removeprefix("model."): torch.einsum("g,g...->...", weights, part).detach()
            for name, part in sums.items()
        }
        if meanwhile is not None:
            meanwhile()
        zeros = torch.zeros(len(mask))
        return ClippedSum(added, zeros[None], zeros, torch.ones_like(mask))


class TimesMean(Grouped):
    size, times_mean = 4, True


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Engine, Grouped, TimesMean])
def test_both_mistakes_with_microbatches_are_caught_in_one_run(engine, monkeypatch):
    """One step on everybody with μ = 1. Clipping the sum of two rows moves it by 2C, four times a clipped mean by 5C.

    Four thousand scores on each side tell μ = 2 from a claim of 1 by more than twenty standard errors, of which a false
    alarm of 1e-6 takes 5.6.
    """
    monkeypatch.setattr(stepping, "Engine", engine)
    canaries = 4 * CANARIES
    everybody = 2 * canaries + ROWS
    plan = Plan.for_noise(1.0, delta=1e-5, examples=everybody, batch_size=everybody, steps=1, clip_norm=1.0)
    report = gradients(plan, opposed=True, estimator="independent", canaries=canaries)
    assert report.violated is (engine is not Engine), str(report)


@pytest.mark.slow
@pytest.mark.parametrize("shuffled", [False, True])
def test_shuffled_batches_that_claim_to_be_poisson_samples_are_caught(shuffled, monkeypatch):
    """Ten steps of a tenth: Poisson samples miss a canary in 35% of the trainings, a shuffled epoch never.

    The share of hits is 17 standard errors above the claim on average, which varies by 1.5 with the event that was
    chosen, and 5.6 are needed: the mutant passes with a probability below 1e-12.
    """
    if shuffled:
        orders = {}

        def draw(self, step, units, secret):
            order = orders.setdefault(units, np.random.default_rng().permutation(units))
            return np.sort(np.array_split(order, 10)[step])

        monkeypatch.setattr(PoissonSampler, "draw", draw)
    plan = Plan.for_noise(0.4, delta=1e-5, examples=6_100, batch_size=610, steps=10, clip_norm=1.0)
    report = gradients(plan, canaries=12_000, estimator="independent")
    assert report.violated is shuffled, str(report)


# --- what the scores are


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unit": dp.person("id", max_rows=2)},
        pytest.param({"relation": "replace_one", "sampling": "shuffle"}, marks=pytest.mark.slow),
        pytest.param({"clipping": PerLayer(0.5)}, marks=pytest.mark.slow),
        pytest.param({"clipping": Adaptive(0.5, count_noise=10.0)}, marks=pytest.mark.slow),
        pytest.param({"noise": "laplace"}, marks=pytest.mark.slow),
        pytest.param({"sampling": "allocation"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_canaries_are_told_apart_if_there_is_no_noise_to_speak_of(changes):
    """Everybody is in every batch, or in one of two: evidence is above 100 for a canary and below 1 for others."""
    included = np.random.default_rng(1).random(40) < 0.5
    net = small.model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    before = small.flat(net)
    size = 60 + (40 if "relation" in changes else int(included.sum()))  # a replaced canary is a row too
    settings = {"delta": 1e-5, "examples": size, "batch_size": size, "steps": 2} | changes
    if "sampling" in changes:
        settings["batch_size"] = size // 2
    if "clipping" not in changes:
        settings["clip_norm"] = 0.5
    plan = Plan.for_noise(0.05, **settings)
    persons = list(range(60)) if "unit" in changes else None
    scores = gradient_scores(plan, net, small.loss, small.data(60), included, optimizer=sgd, persons=persons)
    assert scores[included].min() > scores[~included].max() + 10
    assert torch.equal(before, small.flat(net))
    assert not sgd.state


def test_the_loss_of_included_examples_falls():
    included = np.arange(20) < 10
    plan = Plan.for_noise(0.05, delta=1e-5, examples=30, batch_size=30, steps=5, clip_norm=1.0)
    net = nn.Linear(20, 2, bias=False)
    sgd = torch.optim.SGD(net.parameters(), lr=5.0)
    canaries = torch.eye(20), torch.arange(20) % 2
    data = torch.zeros(20, 20), torch.zeros(20, dtype=torch.long)
    scores = example_scores(plan, net, nn.functional.cross_entropy, data, canaries, included, optimizer=sgd)
    assert scores[included].min() > scores[~included].max()
    with pytest.raises(InvalidArgument, match="included must be 20 bools"):
        example_scores(plan, net, nn.functional.cross_entropy, data, canaries, included[:5], optimizer=sgd)


def test_what_cannot_be_audited_is_refused():
    net = small.model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    layers = Plan.for_noise(
        1.0, delta=1e-5, examples=60, batch_size=12, steps=1, clipping=PerLayer(0.5, layers={"0": 1.0, "2": 1.0})
    )
    with pytest.raises(InvalidArgument, match=r"clipping\.layers must be None"):
        training.canary_gradients(layers, net, small.loss, small.data(), optimizer=sgd)
    plan = small.plan(insecure_seed=None)
    with pytest.raises(InvalidArgument, match="data must hold an example"):
        training.canary_gradients(plan, net, small.loss, small.data(0), optimizer=sgd)
    with pytest.raises(InvalidArgument, match="estimator must be one_run or one_run_f"):
        training.canary_examples(
            plan, net, small.loss, small.data(), small.data(20), optimizer=sgd, estimator="independent"
        )


# --- ties


def test_scores_that_tell_nothing_guess_no_coin_however_the_coins_are_laid_out():
    """Equal scores are ordered at random: 700 of 1,000 guesses with 480 right have a probability below 1e-20."""
    laid_out = np.arange(1_000) < 500
    for coins in (laid_out, ~laid_out):
        for guesses in one_run.attempts(np.zeros(1_000), coins):
            assert guesses.made < 700 or guesses.right < 480


def test_independent_canaries_see_what_one_run_bounds_do_not():
    """μ = 2 against a claim of 1: hits are 20 standard errors above what is needed, whichever event the pilot chose.

    Of 2,000 scores the pilot is so small that it chooses a useless event once in a hundred times.
    """
    generator = np.random.default_rng()
    included = generator.random(8_000) < 0.5
    for mu, caught in ((1.0, False), (2.0, True)):
        scores = generator.normal(size=8_000) + mu * included
        report = dp.auditing.audit(scores, dp.GDP(1.0), included, estimator="independent", delta=1e-5)
        assert report.violated is caught
        assert report.epsilon_lower > 2 or not caught
        assert "scores are independent" in report.assumes
    with pytest.raises(InvalidArgument, match="scores must be 300"):
        dp.auditing.audit(scores[:400], dp.GDP(1.0), included[:400], estimator="independent")
