"""Questions to a federation go the way of a round: drawn, clipped, noised, charged first."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import discreet as dp
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import Plan
from discreet.learning.clipping import Adaptive
from discreet.learning.federated import ask, clients
from tests.learning.federated.grids import FunctionGrid, failure, reply

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the federated extra"),
]

IDS = range(1, 11)


def plan_of(**change):
    given = {"rate": 1.0, "rounds": 1, "clip_norm": 1.0, "noise_multiplier": 1e-9, "delta": 1e-5}
    return Plan.federated(clients(10), **{**given, **change})


def one_bin(message):
    """Each client is in the bin of its last digit."""
    bins = np.zeros(3)
    bins[message.metadata.dst_node_id % 3] = 1.0
    assert message.metadata.message_type == "query.bins"
    return reply(message, {"anything": bins}, examples=10**6)


def test_a_histogram_is_the_mean_of_one_bin_for_each_client():
    answer = ask(FunctionGrid(IDS, one_bin), plan_of(), "bins", 3)
    assert answer.mean == pytest.approx([0.3, 0.4, 0.3], abs=1e-6)
    assert answer.standard_deviation == pytest.approx(1e-10)


def test_absent_failing_and_loud_clients_move_the_mean_by_their_clipped_share():
    def client(message):
        node = message.metadata.dst_node_id
        if node == 1:
            return reply(message, {"answer": np.array([1e9, 0, 0])})
        if node == 2:
            return failure(message, "patient 7 has a rare disease")
        return reply(message, {"answer": np.zeros(2)}) if node == 3 else None

    answer = ask(FunctionGrid(IDS, client), plan_of(), "bins", 3)
    assert answer.mean == pytest.approx([0.1, 0.0, 0.0], abs=1e-6)


def test_the_question_is_charged_before_it_is_asked(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("fed", budget=dp.ApproxDP(2.0, 1e-4), unit=dp.client())
    plan = plan_of(noise_multiplier=5.0)
    answer = ask(FunctionGrid(IDS, one_bin), plan, "bins", 3, account=account)
    assert answer.receipt.event == plan.event == answer.event
    grid = FunctionGrid(IDS, one_bin)
    with pytest.raises(BudgetExceeded):
        ask(grid, plan_of(), "bins", 3, account=account)
    assert grid.asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"plan": plan_of(rounds=2)},
        {"plan": plan_of(clip_norm=None, clipping=Adaptive(1.0))},
        {"plan": "plan"},
        {"question": "no name"},
        {"size": 0},
        {"account": "fed"},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused(change):
    given = {"plan": plan_of(), "question": "bins", "size": 3, **change}
    with pytest.raises(InvalidArgument):
        ask(FunctionGrid(IDS, one_bin), **given)
