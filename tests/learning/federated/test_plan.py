"""A federated plan is one event with a known price, and refuses what has none."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import discreet as dp
from discreet import accounting, events
from discreet.errors import InvalidArgument
from discreet.learning import Plan
from discreet.learning.clipping import Adaptive, Automatic, Flat
from discreet.learning.federated import CorrelatedPlan, FederatedPlan, Registry, SecurePlan, clients
from discreet.neighbors import ADD_REMOVE, Client, Neighbors

GIVEN = {"clients_per_round": 100, "rounds": 100, "clip_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}


def test_the_price_of_dp_fedavg_is_the_known_one():
    plan = Plan.federated(1000, **GIVEN)
    assert plan.event == events.Repeated(events.PoissonSampled(0.1, events.Gaussian(1.0)), 100)
    assert plan.guarantee.epsilon == pytest.approx(7.05, abs=0.01)
    known = dataclasses.replace(plan, secret_sample=False)
    assert known.event == events.Repeated(events.Gaussian(1.0), 100)
    assert known.guarantee.epsilon == pytest.approx(91.82, abs=0.01)


def test_the_plan_protects_clients():
    plan = Plan.federated(1000, **GIVEN)
    assert plan.neighbors == Neighbors(ADD_REMOVE, Client())
    assert str(plan.guarantee).endswith("add or remove one client")


def test_a_person_with_several_clients_is_priced_as_a_group_in_every_round():
    plan = Plan.federated(clients(1000, per_person=2), **GIVEN)
    assert plan.event == events.Repeated(events.Group(events.PoissonSampled(0.1, events.Gaussian(1.0)), 2), 100)
    assert plan.guarantee.epsilon > 2 * 7.05
    assert "one person (at most 2 clients)" in str(plan.guarantee)


def test_the_price_for_a_person_at_a_shared_client_covers_an_update_that_turns_around():
    """A hospital without one of its patients sends another update, and may move a sum by twice the clip norm.

    One round of noise 2 at rate 1/2, with an update of +C or of −C: δ at the plan's ε by a sum over a fine grid. For a
    client of their own, the price is lower, and it does not cover this.
    """
    given = {"rate": 0.5, "rounds": 1, "clip_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    grid, step = np.linspace(-40, 40, 400_001, retstep=True)

    def density(update):
        normal = [np.exp(-((grid - center) ** 2) / 8) / math.sqrt(8 * math.pi) for center in (0.0, update)]
        return (normal[0] + normal[1]) / 2

    def delta_of(plan):
        return float(np.sum(np.maximum(density(1) - math.exp(plan.guarantee.epsilon) * density(-1), 0)) * step)

    shared, own = Plan.federated(clients(10, shared=True), **given), Plan.federated(10, **given)
    assert shared.event == events.Repeated(events.Group(events.PoissonSampled(0.5, events.Gaussian(2.0)), 2), 1)
    assert "one person (at most 1 shared client)" in str(shared.guarantee)
    assert delta_of(shared) <= 1.001e-5
    assert delta_of(own) > 1e-4


@pytest.mark.parametrize("per_person", [1, 2])
def test_every_plan_prices_shared_clients_as_twice_as_many(per_person):
    plans = [
        lambda who: (
            SecurePlan.make(
                who,
                rounds=2,
                delta=1e-5,
                parties=6,
                dropouts=1,
                dimension=8,
                clip_norm=1.0,
                noise_multiplier=3.0,
            ).norm_squared
        ),
        lambda who: (
            CorrelatedPlan.make(
                who,
                rounds=2,
                delta=1e-5,
                clients_per_round=2,
                participations=1,
                separation=1,
                clip_norm=1.0,
                noise_multiplier=8.0,
            ).event.noise_multiplier
        ),
    ]
    shared, twice = (clients(8, per_person=per_person, shared=True), clients(8, per_person=2 * per_person))
    assert [plan(shared) for plan in plans] == [plan(twice) for plan in plans]
    assert shared.frozen(range(8)).group == 2 * per_person
    with pytest.raises(InvalidArgument, match="shared"):
        clients(8, shared=1)


def test_noise_is_calibrated_to_epsilon():
    plan = Plan.federated(1000, **{**GIVEN, "noise_multiplier": None}, epsilon=2.0)
    assert plan.guarantee.epsilon == 2.0
    assert 1.9999 <= accounting.epsilon(plan.event, 1e-5).upper <= 2.0


def test_the_divisor_is_public_and_does_not_depend_on_replies():
    assert Plan.federated(1000, **GIVEN).expected_clients == 100
    thirds = Plan.federated(3, **{**GIVEN, "clients_per_round": None}, rate=0.5)
    assert thirds.expected_clients == 1.5


def test_the_cost_of_the_quantile_is_in_the_price():
    """Sum and centered count together move by 1/z when both are scaled by their noise."""
    clipping = Adaptive(0.1, count_noise=5.0)
    plan = Plan.federated(1000, **{**GIVEN, "clip_norm": None}, clipping=clipping)
    assert plan.event == Plan.federated(1000, **GIVEN).event
    together = math.hypot(1 / plan.sum_multiplier, 0.5 / clipping.count_noise)
    assert together == pytest.approx(1 / plan.noise_multiplier, rel=1e-12)
    assert plan.sum_multiplier > plan.noise_multiplier


def test_a_plan_with_a_seed_guarantees_nothing():
    plan = Plan.federated(10, rate=0.5, rounds=2, clip_norm=1.0, epsilon=1.0, delta=1e-5, insecure_seed=3)
    assert isinstance(plan.event, events.Insecure)
    assert math.isinf(plan.guarantee.epsilon)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.0}, "rounds"),
        ({"delta": 0.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"clients_per_round": 1001}, "clients_per_round"),
        ({"clients_per_round": 0}, "clients_per_round"),
        ({"clients_per_round": None, "rate": 0.0}, "rate"),
        ({"clients_per_round": None, "rate": 1.5}, "rate"),
        ({"rate": 0.1}, "clients_per_round"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"clip_norm": None}, "clipping"),
        ({"clip_norm": None, "clipping": Automatic(1.0)}, "clipping"),
        ({"clip_norm": None, "clipping": Flat(1.0, order=1)}, "clipping"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": None}, "noise_multiplier"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"clip_norm": None, "clipping": Adaptive(1.0, count_noise=0.4)}, "count_noise"),
        ({"insecure_seed": -1}, "insecure_seed"),
    ],
    ids=str,
)
def test_what_has_no_price_is_refused(change, name):
    with pytest.raises(InvalidArgument, match=name):
        Plan.federated(1000, **{**GIVEN, **change})


def test_another_kind_of_registry_is_refused():
    for bad in ("1000", None, 1.5):
        with pytest.raises(InvalidArgument, match="clients"):
            Plan.federated(bad, **GIVEN)
    with pytest.raises(InvalidArgument):
        FederatedPlan(1000, 10, 1e-5, 0.1, Flat(1.0), 1.0)
    with pytest.raises(InvalidArgument, match="federated"):
        Plan.for_noise(1.0, delta=1e-5, examples=10, batch_size=1, steps=1, clip_norm=1.0, unit=dp.client())


def test_each_client_is_registered_once():
    assert clients([3, 1, 2]).ids == (3, 1, 2)
    assert clients(np.int64(7)) == Registry(7)
    with pytest.raises(InvalidArgument, match="distinct"):
        clients([1, 2, 1])
    for bad in ([], [-1], [2**64], [1.0], [True], 0, True, None):
        with pytest.raises(InvalidArgument):
            clients(bad)
    with pytest.raises(InvalidArgument, match="per_person"):
        clients(3, per_person=4)


def test_the_registry_is_frozen_from_the_nodes_of_the_start():
    assert clients(3).frozen([9, 7, 8, 7]).ids == (7, 8, 9)
    assert clients([1, 2]).frozen([5]).ids == (1, 2)
    for wrong in ([], [1, 2], [1, 2, 3, 4]):
        with pytest.raises(InvalidArgument, match="connected"):
            clients(3).frozen(wrong)


def test_the_words_of_a_plan_say_who_is_drawn_and_what_is_added():
    words = Plan.federated(1000, **GIVEN).explain()
    assert "each of 1000 clients" in words
    assert "divided by 100," in words
    assert "no amplification" in Plan.federated(1000, **GIVEN, secret_sample=False).explain()


def test_a_table_refuses_an_account_that_protects_clients(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("f", budget=dp.ApproxDP(1.0, 1e-6), unit=dp.client())
    with pytest.raises(InvalidArgument, match="one client"):
        dp.Private({"x": [1, 2]}, account=account)
