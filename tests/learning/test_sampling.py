"""Batches are drawn as their event says, with the system's randomness."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from discreet import events
from discreet.errors import InvalidArgument
from discreet.learning.data.batches import BatchStream
from discreet.learning.data.registry import SAMPLERS, make_sampler
from discreet.learning.data.sampling import (
    AllocatedEpochs,
    FixedSizeSampler,
    PoissonSampler,
    ShuffledEpochs,
    TruncatedPoissonSampler,
    grouped,
    limited,
)
from discreet.learning.noise import Secret
from discreet.neighbors import person
from tests.learning import small

STEP = events.Gaussian(2.0)


def test_each_sampler_emits_its_own_event():
    assert PoissonSampler(10, 40).whole(STEP, 7) == events.Repeated(events.PoissonSampled(0.25, STEP), 7)
    expected = events.Repeated(events.SampledWithoutReplacement(10, 40, STEP), 7)
    assert FixedSizeSampler(10, 40).whole(STEP, 7) == expected
    assert ShuffledEpochs(10, 40).whole(STEP, 8) == events.Repeated(events.ShuffledEpoch(10, 40, STEP), 2)
    assert ShuffledEpochs(10, 40).whole(STEP, 5) == events.Repeated(events.ShuffledEpoch(10, 40, STEP), 2)
    assert AllocatedEpochs(10, 40).whole(STEP, 5) == events.Repeated(events.RandomlyAllocated(4, 1, STEP), 2)
    assert AllocatedEpochs(10, 40, 3).whole(STEP, 12) == events.Repeated(events.RandomlyAllocated(12, 3, STEP), 1)


def test_nothing_but_poisson_draws_is_priced_as_poisson():
    for name in SAMPLERS:
        plan = small.plan(sampling=name)
        kinds = {type(part) for part in plan.event.walk()}
        assert (events.PoissonSampled in kinds) == (name == "poisson")


def test_poisson_units_join_independently_with_the_rate():
    """Each of 500 units over 4000 steps, and pairs of units; two-sided binomial tests, false alarm 1e-7 in total."""
    sampler, secret, steps, units = PoissonSampler(30, 1000), Secret(), 4000, 500
    joined = np.zeros((steps, units), dtype=bool)
    for step in range(steps):
        joined[step, sampler.draw(step, units, secret)] = True
    assert stats.binomtest(int(joined.sum()), steps * units, 0.03).pvalue > 1e-8
    worst = min(stats.binomtest(int(each), steps, 0.03).pvalue for each in joined.sum(0))
    assert worst > 1e-8 / units
    both = int((joined[:, ::2] & joined[:, 1::2]).sum())
    assert stats.binomtest(both, steps * units // 2, 0.03**2).pvalue > 1e-8
    again = int((joined[1:] & joined[:-1]).sum())
    assert stats.binomtest(again, (steps - 1) * units, 0.03**2).pvalue > 1e-8


def test_the_number_of_poisson_draws_varies():
    """A sampler of fixed size would have variance 0; the binomial's is 19.6 here."""
    sampler, secret = PoissonSampler(20, 1000), Secret()
    sizes = [len(sampler.draw(step, 1000, secret)) for step in range(2000)]
    # The variance of 2000 sizes is χ²-distributed up to skew: 0.7 and 1.35 are beyond 8 standard deviations.
    assert 0.7 < np.var(sizes) / 19.6 < 1.35


def test_a_rate_of_one_draws_everyone_and_a_tie_is_decided_by_lower_bits():
    assert len(PoissonSampler(40, 40).draw(0, 33, Secret())) == 33
    # 2⁻¹⁶/3 is below the resolution of the first 16 bits: all that join are ties. Poisson(20.3): 1e-7 tails.
    joined = sum(len(PoissonSampler(1, 3 << 16).draw(step, 1 << 18, Secret())) for step in range(16))
    assert 2 <= joined <= 60


def test_a_subset_has_its_size_and_is_uniform():
    """χ² over the units; false alarm 1e-7."""
    sampler, secret = FixedSizeSampler(5, 20), Secret()
    draws = [sampler.draw(step, 20, secret) for step in range(4000)]
    assert all(len(set(draw.tolist())) == 5 for draw in draws)
    counts = np.bincount(np.concatenate(draws), minlength=20)
    # Within a subset units exclude each other, which makes the statistic smaller by 15/19.
    assert stats.chi2.sf(((counts - 1000) ** 2 / 1000).sum() * 20 / 15, 19) > 1e-7


def test_a_shuffled_epoch_holds_each_unit_once_and_each_epoch_has_its_own_order():
    sampler, secret = ShuffledEpochs(7, 40), Secret()
    epochs = [np.concatenate([sampler.draw(6 * e + s, 40, secret) for s in range(6)]) for e in range(3)]
    for order in epochs:
        assert sorted(order.tolist()) == list(range(40))
    assert not np.array_equal(epochs[0], epochs[1])
    assert len(sampler.draw(5, 40, secret)) == 5  # 40 = 5·7 + 5


@pytest.mark.parametrize("selected", [1, 3])
def test_an_allocated_epoch_holds_each_unit_in_its_own_uniform_set_of_batches(selected):
    """χ² over sets of batches and over pairs of units, and the variance of sizes; false alarm 1e-7 each."""
    sampler, secret, units, epochs = AllocatedEpochs(50, 150, selected), Secret(), 150, 60
    batches = sampler.steps_of_event
    assert batches == 3 * selected
    joined = np.zeros((epochs, batches, units), dtype=np.int64)
    for epoch in range(epochs):
        for batch in range(batches):
            joined[epoch, batch, sampler.draw(epoch * batches + batch, units, secret)] += 1
    assert (joined.sum(1) == selected).all()
    sets = np.einsum("ebu,b->eu", joined, 2 ** np.arange(batches))
    counts = np.unique(sets, return_counts=True)[1]
    assert len(counts) == math.comb(batches, selected)
    assert stats.chisquare(counts).pvalue > 1e-7
    together = int((joined[:, :, ::2] * joined[:, :, 1::2]).sum(1).astype(bool).sum())
    meet = 1 - math.comb(batches - selected, selected) / math.comb(batches, selected)
    assert stats.binomtest(together, epochs * units // 2, meet).pvalue > 1e-7
    # A sampler of fixed sizes has variance 0; here it is units·(1/3)(2/3), up to 8 standard deviations of its estimate.
    assert 0.2 < np.var(joined.sum(2)) / (units * 2 / 9) < 2.5


def test_an_allocated_epoch_is_never_finished_with_another_secret():
    sampler = AllocatedEpochs(10, 40)
    assert [sampler.resumes_at(step) for step in (0, 1, 4, 5)] == [0, 4, 4, 8]
    plan = small.plan(sampling="allocation", steps=8)
    step = small.step(plan)
    first, second = iter(plan.batches(small.data())), iter(plan.batches(small.data()))
    step(next(first))
    next(second)
    with pytest.raises(InvalidArgument, match="one stream"):
        step(next(second))
    step(next(first))
    assert plan.sampler.steps_of_event > 2


def test_a_truncated_batch_is_a_uniform_part_of_a_poisson_batch():
    """χ² over the units; false alarm 1e-7. The batch is that of the Poisson sampler, unless it is too large."""
    sampler, plain, secret = TruncatedPoissonSampler(20, 60, 22), PoissonSampler(20, 60), Secret()
    counts, truncated = np.zeros(60), 0
    for step in range(3000):
        drawn, joined = sampler.draw(step, 60, secret), plain.draw(step, 60, secret)
        assert len(drawn) == min(22, len(joined))
        assert set(drawn.tolist()) <= set(joined.tolist())
        if len(joined) > 22:
            truncated += 1
            counts[drawn] += 1
    assert truncated > 300
    assert stats.chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum() * 60 / 38, 59) > 1e-7


def test_truncated_batches_need_a_bound_on_the_number_of_units():
    plan = small.plan(largest_batch=30)
    step = events.TruncatedPoissonSampled(0.2, 30, 60, events.Gaussian(1.0))
    assert plan.event == events.Insecure(events.Repeated(step, 4))
    assert plan.physical_batch_size <= 30
    assert "at most 30" in plan.explain()
    next(plan.batches(small.data(59)))
    with pytest.raises(InvalidArgument, match="at most the 60 units"):
        next(plan.batches(small.data(61)))
    with pytest.raises(InvalidArgument, match="largest_batch must be ≥ 12"):
        small.plan(largest_batch=11)
    with pytest.raises(InvalidArgument, match="largest_batch"):
        small.plan(largest_batch=30, sampling="allocation")


@pytest.mark.parametrize("kind", [FixedSizeSampler, ShuffledEpochs])
def test_a_public_number_of_units_must_be_right(kind):
    with pytest.raises(InvalidArgument, match="40 units"):
        kind(5, 40).draw(0, 41, Secret())


def test_a_private_number_of_units_is_not_compared():
    for kind in (PoissonSampler, AllocatedEpochs):
        kind(5, 40).draw(0, 41, Secret())
        assert len(kind(5, 40).draw(0, 0, Secret())) == 0


def test_seeds_outside_do_not_change_batches():
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        stream = BatchStream(small.plan(insecure_seed=None, batch_size=30), small.data())
        drawn.append([batch._rows.tolist() for batch in stream])
    assert drawn[0] != drawn[1]


def test_the_same_secret_draws_the_same_batches_in_every_process():
    secret = Secret()
    for name in SAMPLERS:
        sampler = make_sampler(name, 8, 40)
        for step in range(10):
            assert np.array_equal(sampler.draw(step, 40, secret), sampler.draw(step, 40, Secret(key=secret.reveal())))


def test_a_batch_says_nothing_about_its_size():
    batch = next(iter(small.plan().batches(small.data())))
    assert repr(batch) == "Batch(step=0)"
    with pytest.raises(TypeError):
        len(batch)


def test_only_an_order_that_is_not_secret_is_saved():
    for name, saved in (("poisson", False), ("allocation", False), ("without replacement", False), ("shuffle", True)):
        state = BatchStream(small.plan(sampling=name), small.data()).state()
        assert (state["secret"] is not None) == saved


def test_at_most_max_rows_of_a_person_are_in_a_batch_and_all_of_them_can_be():
    rows = [np.arange(0, 10), np.arange(10, 12), np.arange(12, 20)]
    secret, seen = Secret(), set()
    for step in range(200):
        drawn = limited(rows, np.array([0, 1]), 3, step, secret)
        assert len(drawn) == 5
        assert np.sum(drawn < 10) == 3
        assert len(set(drawn.tolist())) == 5
        seen |= set(drawn.tolist())
    assert seen == set(range(12))  # each of ten rows is missed 200 times with probability 0.7²⁰⁰ < 1e-30


@pytest.mark.parametrize("drawn", [np.arange(30), np.arange(29, -1, -1)])
def test_no_person_moves_the_choice_among_the_rows_of_another(drawn):
    secret, rows = Secret(), [np.arange(10 * unit, 10 * unit + 10) for unit in range(30)]
    other = [rows[0][:2], *rows[1:]]  # one person has fewer rows, so no choice is needed
    before = grouped(rows, np.arange(30), 2, 3, secret)[1:]
    assert np.array_equal(before, grouped(other, np.arange(30), 2, 3, secret)[1:])
    assert np.array_equal(before, grouped(rows, np.arange(1, 30), 2, 3, secret))  # one person was not drawn
    assert set(limited(rows, drawn, 2, 3, secret)) >= set(before.reshape(-1))
    assert len({tuple(line % 10) for line in before}) > 5  # and no two persons share a stream
    assert not np.array_equal(before, grouped(rows, np.arange(1, 30), 2, 4, secret))


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_the_choice_among_rows_is_not_in_the_saved_secret(sampling):
    plan = small.plan(
        unit=person("who", max_rows=2), examples=20, batch_size=20, steps=1, sampling=sampling, insecure_seed=None
    )
    ids, chosen = np.repeat(np.arange(20), 10), []
    key = Secret().reveal()
    for _ in range(2):
        stream = BatchStream(plan, small.data(200), ids, secret=Secret(key=key))
        assert stream.state()["secret"] in (None, key)
        chosen.append(stream.next()._rows)
    assert np.array_equal(ids[chosen[0]], ids[chosen[1]])  # the same persons
    assert not np.array_equal(chosen[0], chosen[1])  # equal with probability (1/90)²⁰


def test_persons_are_drawn_whole():
    plan = small.plan(unit=person("who", max_rows=2), examples=20, batch_size=10, steps=50)
    inputs, targets = small.data(40)
    ids = np.repeat(np.arange(20), 2)
    for batch in plan.batches({"inputs": inputs, "targets": targets, "who": ids}):
        assert all(count == 2 for count in np.unique(ids[batch._rows], return_counts=True)[1])


@pytest.mark.parametrize("bad", [0, -1, 41, 2.0, math.nan, True, "8"])
def test_a_batch_size_that_is_none_is_refused(bad):
    for name in SAMPLERS:
        with pytest.raises(InvalidArgument, match="batch_size"):
            make_sampler(name, bad, 40)
