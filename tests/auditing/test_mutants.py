"""Mutants of mechanisms that are easy to get wrong: each is caught, with a power that is asserted.

False alarms: 1e-6 for each audit. The probability of missing a mutant is computed from the two rates of the event that
tells it apart, which are known here, and from what the last look of an audit needs (`missed`). The pilot may choose the
complement of the event instead, and a line of the claim that lies beside the best one. Sizes leave room for both: over
all pilots, each test fails with a probability below 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from discreet import events
from discreet.auditing import audit
from discreet.auditing.claims import claimed
from discreet.auditing.counts import Line, Runs
from discreet.auditing.targets import additive
from discreet.auditing.training import noisy_sum
from discreet.bounded import Bounded, Sensitivity
from discreet.learning import Plan
from discreet.learning.engine import Engine, clipped, engine
from discreet.learning.engine.dry_run import search
from discreet.learning.selection import RandomStopping, _select
from discreet.learning.selection.journal import Journal
from discreet.mechanisms import Exponential, L2Laplace, Laplace, NoisyMax
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE
from discreet.queries import count, votes

ALPHA = 1e-6
#: Of the runs, a twentieth chooses the event, and the last look gets half of α.
TESTED, LAST = 0.95, 0.5


def missed(rates, claim, samples, *, relation=ADD_REMOVE):
    """The probability that an audit of `samples` runs misses an event with these rates of false alarms and hits.

    It is the larger one of the event and of its complement, whose false alarms are counted on the other dataset.
    """
    promise = claimed(claim, relation=relation)
    runs = Runs(int(TESTED * samples), int(TESTED * samples))
    return max(
        1 - runs.power(alarms, hits, line, runs.critical(alarms, line, LAST * ALPHA))
        for alarms, hits, curves in ((*rates, promise.forward), (1 - rates[1], 1 - rates[0], promise.backward))
        for line in (Line(*curve.line(alarms)) for curve in curves)
    )


# --- noise

#: Two of three coordinates move by 100 steps of the grid, so that noise is as good as continuous.
VECTOR = Bounded(np.array([500, 700, 900]), Fraction(1, 4), {ADD_REMOVE: Sensitivity(2, 200, 20_000, 100)}, "vector")
MOVED = replace(VECTOR, values=VECTOR.values + np.array([100, 100, 0]))


@pytest.mark.slow
@pytest.mark.parametrize(("share", "samples"), [(Fraction(8, 10), 30_000), (Fraction(9, 10), 150_000)])
def test_missing_noise_of_the_l2_laplace_mechanism_is_seen_in_a_vector(share, samples):
    """What is read of an output is whether both coordinates that move are above where they were moved to.

    They are with probability 1/4, and with e^{−1/share}/4 where they were not moved: at share 1 the ratio is e, as the
    L1 branch of the theorem claims with ε = 1.
    """
    honest = L2Laplace.for_epsilon(VECTOR, 1.0, 1e-2)
    claim = honest.event(VECTOR)
    assert honest.scale / VECTOR.granularity == 200

    def above(mechanism):
        return lambda bounded, runs: (additive(mechanism, bounded, runs)[:, :2] >= [150, 200]).all(axis=1)

    settings = {"max_samples": samples, "vectorized": True}
    weak = replace(honest, scale=honest.scale * share)
    assert missed((math.exp(-1 / share) / 4, 1 / 4), claim, samples) < 1e-6
    caught = audit(above(weak), claim, [(VECTOR, MOVED)], **settings)
    assert caught.violated, str(caught)
    passed = audit(above(honest), claim, [(VECTOR, MOVED)], **settings)
    assert not passed.violated, str(passed)


def ballots(tea, coffee):
    return votes(["tea"] * tea + ["coffee"] * coffee, candidates=["tea", "coffee"])


@pytest.mark.slow
@pytest.mark.parametrize(("share", "samples"), [(0.8, 20_000), (0.9, 40_000)])
@pytest.mark.parametrize("kind", [Exponential, NoisyMax])
def test_missing_noise_of_a_choice_is_seen(kind, share, samples):
    """A voter changes from coffee to tea. Noise × s is a choice that spends ε/s and claims ε.

    The exponential mechanism with ε = 4 takes tea with probabilities 1/(1 + e^{ε/2}) at 1:2 and 1/(1 + e^{−ε/2}) at
    2:1. Permute-and-flip with ε = 2 takes coffee with probabilities 1/2 at 2:2 and e^{−ε}/2 at 3:1. Both reach their
    claims.
    """
    epsilon, sides = (4, ((1, 2), (2, 1))) if kind is Exponential else (2, ((3, 1), (2, 2)))
    spent = epsilon / share
    rates = (
        (1 / (1 + math.exp(spent / 2)), 1 / (1 + math.exp(-spent / 2)))
        if kind is Exponential
        else (math.exp(-spent) / 2, 1 / 2)
    )
    claim = kind(Fraction(epsilon)).event()
    assert missed(rates, claim, samples, relation=REPLACE_ONE) < 1e-6
    pair = tuple(ballots(*side) for side in sides)

    def chosen(mechanism):
        return lambda scores: mechanism.release(scores, relation=REPLACE_ONE).value == "tea"

    settings = {"relation": REPLACE_ONE, "max_samples": samples}
    weak = audit(chosen(kind(Fraction(spent))), claim, [pair], **settings)
    assert weak.violated, str(weak)
    honest = audit(chosen(kind(Fraction(epsilon))), claim, [pair], **settings)
    assert not honest.violated, str(honest)


LAW, SCALE = events.NegativeBinomialTrials(1, Fraction(9, 10)), Fraction(1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "samples"), [(Fraction(8, 10), 16_000), (Fraction(9, 10), 100_000)])
def test_missing_noise_in_the_runs_of_a_repeated_search_is_seen(share, samples):
    """Runs are 0 or 1 with discrete Laplace noise, and the largest of a geometric number of them is released.

    The price of a search is a bound that few searches reach. With 1.1 runs on average there is little room, and a tenth
    of missing noise is beyond it. With many runs, only the audit of a single run sees so little.

    What is read is whether the largest is at most a limit, and in 3 of 10 searches nothing. Without these, the rates
    lie where two lines of the claim meet: a pilot that is off by little chooses the wrong one, which sees nothing.
    """
    claim = events.SelectedFromRepeats(events.DiscreteLaplace(1, SCALE), LAW)
    read = 0.7
    misses = {
        t: missed(tuple(read * rate for rate in at_most(t, float(SCALE * share))), claim, samples) for t in range(-4, 5)
    }
    limit = min(misses, key=misses.get)
    assert limit == 0
    assert misses[limit] < 1e-6
    coins = np.random.default_rng()

    def within(scale):
        draws = endless(scale)

        def searched(data):
            best = _select._search([data], lambda exact: exact + next(draws), float, RandomStopping(LAW), Journal(None))
            return best[0] <= limit and coins.random() < read

        return searched

    caught = audit(within(SCALE * share), claim, [(1, 0)], max_samples=samples)
    assert caught.violated, str(caught)
    honest = audit(within(SCALE), claim, [(1, 0)], max_samples=samples)
    assert not honest.violated, str(honest)


def endless(scale):
    """Exact noise; drawn in blocks, which is faster."""
    while True:
        yield from samplers.discrete_laplace(scale, 50_000, entropy.SYSTEM).tolist()


def at_most(limit, scale):
    """P(largest ≤ limit) at 1 and at 0: the law of one run in the generating function of the number of runs."""
    ratio, stop = math.exp(-1 / scale), float(LAW.stop)

    def one(t):
        return 1 - ratio ** (t + 1) / (1 + ratio) if t >= 0 else ratio**-t / (1 + ratio)

    return tuple(stop * one(limit - exact) / (1 - (1 - stop) * one(limit - exact)) for exact in (1, 0))


# --- sensitivity

COUNT = count([0] * 10)


@pytest.mark.slow
@pytest.mark.parametrize("distance", [1, 3])
def test_half_the_sensitivity_is_seen(distance):
    """One unit moves the count by 2 where 1 is declared: noise for ε = 1 spends 2.

    At the moved count, half of the outputs lie above it, and e^{−2}/2 where it was not moved; e times that is claimed.
    (Counts are on a grid, which makes both a little larger.) In a group of three, e^{−6}/2 against e³.

    The pilot of 400 runs may choose another event. Whichever it chose in hundreds of simulated pilots, the test saw it
    by more than ten standard errors; a pilot of 200 chose one in a thousand times an event that tells nothing.
    """
    samples = 8_000
    mechanism = Laplace.for_epsilon(COUNT, 1.0)
    moved = replace(COUNT, values=COUNT.values + 2 * distance)
    ratio = math.exp(-1)
    rates = ratio ** (2 * distance) / (1 + ratio), 1 / (1 + ratio)
    runs = Runs(int(TESTED * samples), int(TESTED * samples))
    line = Line(math.exp(distance), 0.0)
    needed = runs.critical(rates[0], line, LAST * ALPHA)
    assert 1 - runs.power(*rates, line, needed) < 1e-6
    claim = mechanism.event(COUNT)
    report = audit(mechanism, claim, [(COUNT, moved)], max_samples=samples, distance=distance)
    assert report.violated, str(report)
    right = replace(COUNT, values=COUNT.values + distance)
    assert not audit(mechanism, claim, [(COUNT, right)], max_samples=samples, distance=distance).violated


# --- a batch norm that ghost clipping does not see

ROWS, WIDTH, C = 12, 4, 0.5


def batch(outlier):
    """Rows around one point; the outlier moves their mean and lengthens their spread."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(ROWS, WIDTH, generator=generator)
    targets = torch.zeros(ROWS, dtype=torch.long)
    if outlier:
        inputs = torch.cat([inputs, torch.full((1, WIDTH), 1e3)])
        targets = torch.cat([targets, torch.ones(1, dtype=torch.long)])
    return inputs, targets


def loss(net, rows):
    return nn.functional.cross_entropy(net(rows[0]), rows[1], reduction="none")


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, True])
def test_a_batch_norm_that_the_engine_does_not_see_is_caught_in_its_own_step(normalized, monkeypatch):
    """A torch model in a step of the engine, which is kept from proving that examples don't mix.

    Its ghost norms are then those of gradients that go through the statistics of the batch: each is clipped, and yet
    one example moves all of them.
    """
    monkeypatch.setattr(engine, "check", lambda model: None)
    monkeypatch.setattr(Engine, "_unproved", lambda *arguments: "")
    monkeypatch.setattr(search, "check_mixing", lambda *arguments, **named: None)
    monkeypatch.setattr(clipped, "verdict", lambda *arguments: None)
    monkeypatch.setattr(clipped, "_lie_as", lambda *arguments: True)
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(WIDTH, affine=False, track_running_stats=False) if normalized else nn.Identity()
    net = nn.Sequential(norm, nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
    plan = Plan.for_noise(1.0, delta=1e-5, examples=ROWS, batch_size=ROWS, steps=1, clip_norm=C)
    report = noisy_sum(plan, net, loss, (batch(False), batch(True)), max_samples=600)
    assert report.violated is normalized, str(report)
