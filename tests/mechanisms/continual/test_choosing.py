"""The best counter is the best, streams of unknown length are counted, and nobody takes part too often."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet import accounting, events
from discreet.errors import InvalidArgument
from discreet.mechanisms import Laplace
from discreet.mechanisms import continual as dc
from tests.mechanisms.continual.kinds import counters, noise_of, query


@pytest.mark.parametrize("delta", [None, 1e-6, 1e-15])
@pytest.mark.parametrize("measure", ["mean", "max"])
def test_the_choice_has_the_least_error(delta, measure):
    choice = dc.best_for(16, 1.0, delta, measure=measure)
    compare = dc.Counter.mean_error if measure == "mean" else dc.Counter.max_error
    others = [c for c in counters(delta=delta or 1e-6) if delta or isinstance(c.noise, Laplace)]
    others = [c for c in others if isinstance(getattr(c, "workload", dc.Total()), dc.Total)]
    assert compare(choice.counter) <= min(compare(c) for c in others) * 1.006
    text = str(choice)
    assert "squared error" in text.splitlines()[0]
    assert f"{choice._error(choice.table[0]):.5g}" in text
    errors = [choice._error(row) for row in choice.table]
    assert errors == sorted(errors)


def test_laplace_wins_where_delta_is_tiny():
    assert isinstance(dc.best_for(1024, 1.0, 1e-15).counter.noise, Laplace)
    assert not isinstance(dc.best_for(1024, 1.0, 1e-3).counter.noise, Laplace)


@pytest.mark.parametrize("work", [dc.Window(8), dc.Decayed(0.9)])
def test_windows_and_decays_have_less_error_than_totals(work):
    """A window that is the difference of two running totals has about twice their error."""
    total = dc.best_for(200, 1.0, 1e-6).counter
    choice = dc.best_for(200, 1.0, 1e-6, workload=work)
    assert choice.counter.mean_error() < total.mean_error()
    assert accounting.epsilon(choice.counter.event, 1e-6).upper <= 1.0


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_a_stream_of_unknown_length_costs_one_epoch(delta, monkeypatch):
    doubling = dc.Doubling(dc.Stream(4), 1.0, delta)
    state = doubling.start()
    with noise_of(monkeypatch, lambda i: 0):
        for step in range(1, 41):
            state, release = doubling.step(state, query(3))
            assert release.step == step
            assert release.value == pytest.approx(3 * step, abs=1e-6)
            assert release.standard_error == pytest.approx(math.sqrt(doubling.error(step)))
            state = dc.State.from_bytes(state.to_bytes())
    assert state.content["epoch"] == 3
    # A unit is in one epoch, and no epoch costs more than the event.
    for epoch in range(4):
        counter = doubling.counter(epoch)
        assert counter.stream.steps == 4 << epoch
        if delta is None:
            assert accounting.pure(counter.event).epsilon <= accounting.pure(doubling.event).epsilon
        else:
            assert accounting.gdp(counter.event).mu <= accounting.gdp(doubling.event).mu
    assert doubling.error(28) == sum(doubling.counter(e).error(4 << e) for e in range(3))
    assert doubling.guarantee.epsilon == 1.0
    assert isinstance(doubling.event, events.Claimed if delta is None else events.Gaussian)
    with pytest.raises(InvalidArgument, match="state must belong"):
        doubling.step(dc.Doubling(dc.Stream(5), 1.0, delta).start(), query(1))


def test_persons_are_admitted_as_often_as_planned_and_no_sooner():
    record = dc.Participation.of(dc.Stream(100, participations=2, separation=3))
    used = []
    for step in range(1, 12):
        record, mask = record.admit(step, ["ann", "ann", None, math.nan, f"guest{step}"])
        used.append(mask.tolist())
    steps = [step for step, mask in enumerate(used, 1) if mask[0]]
    assert steps == [1, 4]
    assert all(mask[0] == mask[1] for mask in used)
    assert all(mask[2:] == [False, False, True] for mask in used)
    assert "ann" not in repr(record)


def test_a_person_changes_nothing_about_others():
    alone = dc.Participation(1)
    together = dc.Participation(1)
    for step in range(1, 6):
        others = [f"p{i}" for i in range(step)]
        alone, mask = alone.admit(step, others)
        together, with_ann = together.admit(step, ["ann", *others])
        assert np.array_equal(mask, with_ann[1:])
