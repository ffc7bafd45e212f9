"""Correlated noise: the noise is C⁻¹z, and no client takes part more often, or sooner, than the price allows."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import events
from discreet.accounting.correlation import square_root_coefficients
from discreet.errors import Exhausted, InvalidArgument
from discreet.learning import Plan
from discreet.learning.federated import CorrelatedPlan, PrivateFTRL, clients
from discreet.learning.federated.correlated_plan import Calendar, CorrelatedNoise
from discreet.learning.noise import GaussianNoise, Secret
from discreet.neighbors import ZERO_OUT
from tests.learning.federated.grids import FunctionGrid, record, reply, sent

GIVEN = {
    "rounds": 12,
    "delta": 1e-5,
    "clients_per_round": 2,
    "participations": 3,
    "separation": 4,
    "clip_norm": 2.0,
}
needs_flower = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the federated extra"),
]


def plan_of(number=8, **change):
    return CorrelatedPlan.make(number, **{**GIVEN, "noise_multiplier": 1.5, **change})


def test_the_event_is_the_banded_square_root_with_the_pattern_of_the_plan():
    assert plan_of().event == events.SquareRootNoise(1.5, 8, 12, 3, 4)
    assert plan_of().event_of(5) == events.SquareRootNoise(1.5, 5, 5, 3, 4)
    assert plan_of(clients(8, per_person=3)).event == events.SquareRootNoise(0.5, 8, 12, 3, 4)
    assert str(plan_of().guarantee).endswith("zero out one client")


def test_one_client_more_moves_the_others_so_the_relation_is_zero_out():
    """Of three clients two are asked: if one of them were not there, the third would be, so sums move by two updates.

    It is asked in one of 24 rounds at least, except with a probability of 3⁻²⁴ < 1e-11.
    """
    plan = plan_of(3, rounds=24, participations=24, separation=1)
    calendar = Calendar.empty(plan, range(3))
    assert any(len(calendar.choose(number, range(3)) - {2}) < 2 for number in range(1, 25))
    assert plan.relation is ZERO_OUT


def test_nothing_of_a_lost_round_is_taken_back():
    """Row i of what is released is Σ_j C_ij n_j over the rounds that were not lost: fresh noise, used once."""
    plan, secret, size = plan_of(bands=5), Secret(7), 3
    stream, rows = CorrelatedNoise(plan), []
    for number in range(1, plan.rounds + 1):
        if number in (4, 5, 9):
            stream.skip(size)
            rows.append(np.zeros(size))
        else:
            rows.append(stream.next(size, secret))
            encoded = sum(c * rows[number - 1 - j] for j, c in enumerate(square_root_coefficients(5)) if j < number)
            own = secret.at("correlated", number)
            fresh = GaussianNoise(1.5).flat(size, 3.0, own, dtype=torch.float64).numpy()
            assert encoded == pytest.approx(fresh, abs=1e-12)


def test_noise_is_calibrated_to_epsilon():
    plan = plan_of(noise_multiplier=None, epsilon=2.0)
    assert plan.guarantee.epsilon == 2.0
    assert plan.guarantee_after(12).epsilon <= 2.0


@pytest.mark.parametrize("bands", [1, 3, 8, 12])
def test_the_encoded_noise_is_the_fresh_noise(bands):
    """C times the rows gives back z, of scale noise_multiplier × clip_norm."""
    plan, secret, size = plan_of(bands=bands), Secret(7), 5
    stream = CorrelatedNoise(plan)
    rows = [stream.next(size, secret) for _ in range(plan.rounds)]
    coefficients = square_root_coefficients(bands)
    for number in range(plan.rounds):
        encoded = sum(c * rows[number - j] for j, c in enumerate(coefficients) if j <= number)
        fresh = GaussianNoise(1.5).flat(size, 3.0, secret.at("correlated", number + 1), dtype=torch.float64).numpy()
        assert encoded == pytest.approx(fresh, abs=1e-12)


def test_the_model_has_less_noise_than_with_fresh_noise_at_the_same_price():
    """The sum over rounds is the model. With 4000 coordinates its spread is known to 1.2%; the margin is above 20%."""
    correlated = plan_of(rounds=64, participations=1, separation=64, bands=64, noise_multiplier=None, epsilon=1.0)
    stream, secret = CorrelatedNoise(correlated), Secret()
    total = sum(stream.next(4000, secret) for _ in range(64))
    fresh = plan_of(rounds=64, participations=1, separation=64, bands=1, noise_multiplier=None, epsilon=1.0)
    assert float(np.std(total)) < 0.8 * fresh.noise_multiplier * 2.0 * 8.0


@settings(max_examples=40, deadline=None)
@given(
    presence=st.lists(st.sets(st.integers(0, 7)), min_size=12, max_size=12),
    participations=st.integers(1, 4),
    separation=st.integers(1, 5),
)
def test_nobody_takes_part_too_often_or_too_soon(presence, participations, separation):
    plan = plan_of(participations=participations, separation=separation)
    calendar = Calendar.empty(plan, range(8))
    rounds = {client: [] for client in range(8)}
    for number, present in enumerate(presence, start=1):
        chosen = calendar.choose(number, present)
        assert chosen <= present
        assert len(chosen) <= 2
        for client in chosen:
            rounds[client].append(number)
    for taken in rounds.values():
        assert len(taken) <= participations
        assert all(later - earlier >= separation for earlier, later in itertools.pairwise(taken))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"clients_per_round": 9}, "clients_per_round"),
        ({"participations": 0}, "participations"),
        ({"separation": 0}, "separation"),
        ({"bands": 13}, "bands"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"rounds": 0}, "rounds"),
    ],
    ids=str,
)
def test_a_plan_without_a_price_is_refused(change, name):
    with pytest.raises(InvalidArgument, match=name):
        plan_of(**change)


class TestOnFlower:
    """The strategy, on a grid in this process."""

    pytestmark = needs_flower

    @staticmethod
    def client(message):
        arrays = sent(message)
        return reply(message, {"weight": arrays["weight"] + np.float32(0.25)}, examples=10**6)

    def run(self, plan, folder, die_at=None, **more):
        asked = []

        def client(message):
            number = message.content["config"]["server-round"]
            if number == die_at:
                raise KeyboardInterrupt
            asked.append((number, message.metadata.dst_node_id))
            return self.client(message)

        strategy = PrivateFTRL(plan, checkpoint=folder / "c", resume=True, **more)
        try:
            result = strategy.start(FunctionGrid(range(1, 9), client), record({"weight": np.zeros(3, np.float32)}))
        except KeyboardInterrupt:
            return asked, None
        return asked, result

    def test_a_training_keeps_its_calendar_and_its_noise_through_a_crash(self, tmp_path):
        given = {"unit": dp.client(), "relation": dp.ZERO_OUT}
        account = dp.Ledger(tmp_path / "a.ledger").account("fed", budget=dp.ApproxDP(50.0, 1e-4), **given)
        plan = plan_of()
        before, none = self.run(plan, tmp_path, die_at=6, account=account)
        assert none is None
        after, result = self.run(plan, tmp_path, account=account)
        assert next(number for number, _ in after) == 7  # round 6 is lost
        assert result is not None
        rounds = {}
        for number, node in before + after:
            rounds.setdefault(node, []).append(number)
        assert all(len(taken) <= 3 for taken in rounds.values())
        assert all(b - a >= 4 for taken in rounds.values() for a, b in itertools.pairwise(taken))
        assert [entry.event for entry in account.history() if entry.kind == "reserve"] == [plan.event]
        assert PrivateFTRL(plan, checkpoint=tmp_path / "c", resume=True, account=account)._rounds.saved.secret == {}

    def test_the_mean_is_over_the_public_number(self, tmp_path):
        """Two of two clients in each of 2 rounds move by 0.25; the noise is 1e-9."""
        plan = plan_of(2, rounds=2, separation=1, noise_multiplier=1e-9, clients_per_round=2)
        strategy = PrivateFTRL(plan)
        result = strategy.start(FunctionGrid([5, 6], self.client), record({"weight": np.zeros(3, np.float32)}))
        assert result.arrays["weight"].numpy() == pytest.approx(np.full(3, 0.5), abs=1e-6)
        assert strategy.counts[0].summed == 2

    def test_two_servers_do_not_share_a_file(self, tmp_path):
        plan = plan_of()
        first = PrivateFTRL(plan, checkpoint=tmp_path / "c", resume=True)
        first._rounds.charge()
        second = PrivateFTRL(plan, checkpoint=tmp_path / "c", resume=True)
        second._rounds.charge()
        first._rounds.start(1)
        with pytest.raises(Exhausted, match="another process"):
            second._rounds.start(1)

    def test_other_plans_and_single_rounds_are_refused(self):
        fixed = Plan.federated(8, rate=1.0, rounds=1, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)
        with pytest.raises(InvalidArgument, match="CorrelatedPlan"):
            PrivateFTRL(fixed)
        for call in (PrivateFTRL(plan_of()).configure_train, PrivateFTRL(plan_of()).aggregate_train):
            with pytest.raises(InvalidArgument, match="start"):
                call(*([None] * call.__code__.co_argcount)[1:])
