"""Secure aggregation on Flower's SecAgg+ stages: the server opens exactly the sum of what clients sent."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning.federated import IntegerUpdates, PrivateFedAvg, SecureFedAvg, SecurePlan, secure_updates
from discreet.learning.federated._flower import flower
from discreet.learning.federated.secure_sum import SecureSum
from tests.learning.federated.grids import FunctionGrid, record, reply, sent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the federated extra"),
]

INITIAL = {"weight": np.zeros(6, np.float32), "steps": np.array(3)}
IDS = range(11, 17)
ROTATION = bytes(32)


def plan_of(**change):
    given = {"rounds": 2, "delta": 1e-5, "parties": 6, "dropouts": 2, "dimension": 6, "clip_norm": 1.0}
    return SecurePlan.make(6, **{**given, "noise_multiplier": 0.01, **change})


def federation(plan, update=0.125, leaves=None, app=None):
    """A grid whose clients run the mod; `leaves` maps a client to the stage before which it leaves."""
    names = flower("flwr.common.secure_aggregation.secaggplus_constants")
    contexts = {}

    def train(message, context):
        arrays = sent(message)
        moved = {**arrays, "weight": arrays["weight"] + np.float32(update)}
        return reply(message, moved, examples=10**6, loss=0.31337)

    def client(message):
        node = message.metadata.dst_node_id
        if node not in contexts:
            kind = flower("flwr.app").Context
            contexts[node] = kind(1, node, {}, flower("flwr.app").RecordDict(), {})
        stage = message.content.config_records[names.RECORD_KEY_CONFIGS][names.Key.STAGE]
        if (leaves or {}).get(node) == stage:
            return None
        return secure_updates(plan)(message, contexts[node], app or train)

    return FunctionGrid(IDS, client), contexts


@pytest.fixture
def sums(monkeypatch):
    """The integers that clients send, before masks, by the order in which they send."""
    kept, original = [], IntegerUpdates.noisy

    def noisy(self, *arguments):
        kept.append(original(self, *arguments))
        return kept[-1]

    monkeypatch.setattr(IntegerUpdates, "noisy", noisy)
    return kept


def content():
    app = flower("flwr.app")
    return app.RecordDict({"arrays": record(INITIAL), "config": app.ConfigRecord({"server-round": 1})})


@pytest.mark.parametrize("leaves", [{}, {12: "setup"}, {12: "share_keys"}, {12: "collect_masked_vectors"}])
def test_the_opened_sum_is_the_sum_of_the_integers_that_were_sent(sums, leaves):
    plan = plan_of()
    grid, _ = federation(plan, leaves=leaves)
    opened = SecureSum(plan, grid, 1).run(IDS, content(), ROTATION)
    assert len(sums) == 6 - len(leaves)
    assert np.array_equal(opened, sum(sums) & (2**32 - 1))


def test_a_client_that_leaves_before_the_unmasking_is_still_in_the_sum(sums):
    plan = plan_of()
    grid, _ = federation(plan, leaves={12: "unmask", 15: "unmask"})
    opened = SecureSum(plan, grid, 1).run(IDS, content(), ROTATION)
    assert len(sums) == 6
    assert np.array_equal(opened, sum(sums) & (2**32 - 1))


@pytest.mark.parametrize("stage", ["setup", "share_keys", "collect_masked_vectors", "unmask"])
def test_nothing_is_opened_if_more_clients_leave_than_the_price_allows(stage):
    plan = plan_of()
    grid, _ = federation(plan, leaves=dict.fromkeys([11, 12, 13], stage))
    assert SecureSum(plan, grid, 1).run(IDS, content(), ROTATION) is None


def other_curve():
    """A key of another curve than the protocol's."""
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    asymmetric = flower("flwr.supercore.primitives.asymmetric")
    return asymmetric.public_key_to_bytes(ec.generate_private_key(ec.SECP256R1()).public_key())


#: What a client may send instead of its answer, by the stage at which it does.
NONSENSE = {
    "no key": ("setup", {"pk1": b"key", "pk2": b"key"}),
    "a number for a key": ("setup", {"pk1": 10**15, "pk2": 10**15}),
    "another curve": ("setup", other_curve),
    "lists of two lengths": ("share_keys", {"dsts": [11, 12], "ctxts": [b"a"]}),
    "a client twice": ("share_keys", {"dsts": [11, 11], "ctxts": [b"a", b"b"]}),
    "no lists": ("share_keys", {"dsts": 3, "ctxts": 4}),
    "a number for a vector": ("collect_masked_vectors", {"masked_params": 7}),
    "a short vector": ("collect_masked_vectors", {"masked_params": [b"1234"]}),
    "nothing at all": ("collect_masked_vectors", {}),
    "shares of two lengths": ("unmask", {"nids": [11, 12], "shares": [b"a"]}),
}


@pytest.mark.parametrize(("stage", "answer"), NONSENSE.values(), ids=NONSENSE)
def test_an_answer_that_cannot_be_used_counts_as_leaving_and_is_never_fatal(sums, stage, answer):
    app, names = flower("flwr.app"), flower("flwr.common.secure_aggregation.secaggplus_constants")
    if answer is other_curve:
        answer = dict.fromkeys(("pk1", "pk2"), other_curve())
    plan = plan_of()
    grid, _ = federation(plan)
    honest = grid.client

    def client(message):
        now = message.content.config_records[names.RECORD_KEY_CONFIGS][names.Key.STAGE]
        if message.metadata.dst_node_id == 12 and now == stage:
            record = app.RecordDict({names.RECORD_KEY_CONFIGS: app.ConfigRecord(answer)})
            return [app.Message(record, reply_to=message), app.Message(record, reply_to=message)]
        return honest(message)

    grid.client = client
    protocol = SecureSum(plan, grid, 1)
    opened = protocol.run(IDS, content(), ROTATION)
    assert np.array_equal(opened, sum(sums) & (2**32 - 1))
    summed = 6 if stage == "unmask" else 5
    assert (protocol.counts.drawn, protocol.counts.summed) == (6, summed)
    assert (protocol.counts.refused, protocol.counts.ignored) == (1, 1)


def test_forged_shares_open_nothing_and_are_not_fatal():
    """The share of one client for all others is of another length, so no secret can be put together."""
    app, plan = flower("flwr.app"), plan_of()
    grid, _ = federation(plan)
    honest = grid.client

    def client(message):
        given = honest(message)
        (sent_record,) = given.content.config_records.values()
        if message.metadata.dst_node_id == 12 and "shares" in sent_record:
            forged = {"nids": sent_record["nids"], "shares": [b"1234"] * len(sent_record["nids"])}
            record = app.RecordDict({"secaggplus_configs": app.ConfigRecord(forged)})
            return app.Message(record, reply_to=message)
        return given

    grid.client = client
    strategy = SecureFedAvg(plan)
    result = strategy.start(grid, record(INITIAL))
    assert not result.arrays["weight"].numpy().any()
    assert [counts.summed for counts in strategy.counts] == [0, 0]


def test_what_a_client_sends_is_masked_and_nothing_else_of_its_reply(sums):
    """A masked vector equals an unmasked one with probability 2^−256."""
    plan = plan_of()
    grid, _ = federation(plan)
    replies, original = [], grid.send_and_receive
    grid.send_and_receive = lambda messages, **more: replies.extend(original(messages)) or replies[-len(messages) :]
    SecureSum(plan, grid, 1).run(IDS, content(), ROTATION)
    third = replies[12:18]
    for one, unmasked in zip(third, sums, strict=True):
        assert not one.content.array_records
        assert not one.content.metric_records
        (only,) = one.content.config_records.values()
        assert list(only) == ["masked_params"]
        assert only["masked_params"][0] != unmasked.astype("<u4").tobytes()


def test_a_training_moves_by_the_mean_and_charges_once(tmp_path):
    """Noise of 0.01·√(6/4)/6 = 0.002 in each round: the tolerance is above 30 sigmas."""
    plan = plan_of(noise_multiplier=0.01)
    grid, contexts = federation(plan)
    strategy = SecureFedAvg(plan, checkpoint=tmp_path / "c")
    result = strategy.start(grid, record(INITIAL), num_rounds=2)
    assert result.arrays["weight"].numpy() == pytest.approx(np.full(6, 0.25), abs=0.1)
    assert result.arrays["steps"].numpy() == 3
    with pytest.raises(InvalidArgument, match="rounds"):  # a client takes part in no more rounds than the plan has
        SecureSum(plan, grid, 3).run(IDS, content(), ROTATION)
    assert contexts[11].state.config_records["discreet_secure_rounds"]["rounds"] == 2


def test_the_account_must_protect_zeroed_out_clients(tmp_path):
    plan, ledger = plan_of(noise_multiplier=5.0), dp.Ledger(tmp_path / "a.ledger")
    grid, _ = federation(plan)
    wrong = ledger.account("a", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())
    with pytest.raises(InvalidArgument, match="zero out"):
        SecureFedAvg(plan, account=wrong).start(grid, record(INITIAL))
    right = ledger.account("b", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client(), relation=dp.ZERO_OUT)
    SecureFedAvg(plan, account=right).start(grid, record(INITIAL))
    assert [entry.event for entry in right.history() if entry.kind == "reserve"] == [plan.event]


def test_an_app_that_fails_on_its_data_still_sends_noise(sums):
    def broken(message, context):
        raise ValueError("patient 7 has a rare disease")

    plan = plan_of()
    grid, _ = federation(plan, app=broken)
    opened = SecureSum(plan, grid, 1).run(IDS, content(), ROTATION)
    assert len(sums) == 6
    assert opened is not None


def test_a_client_refuses_another_plan_other_messages_and_to_reveal_both_secrets():
    plan, app = plan_of(), flower("flwr.app")
    grid, contexts = federation(plan)
    other, _ = federation(plan_of(dropouts=1))
    with pytest.raises(InvalidArgument, match="setup"):
        SecureSum(plan, other, 1).run(IDS, content(), ROTATION)
    send = secure_updates(plan)
    with pytest.raises(InvalidArgument, match="secure aggregation"):
        send(app.Message(content(), dst_node_id=11, message_type="train"), None, None)
    SecureSum(plan, grid, 1).run(IDS, content(), ROTATION)
    lists = {"stage": "unmask", "active_nids": [11, 12, 13, 14], "dead_nids": [14, 15, 16]}
    asked = app.RecordDict({"secaggplus_configs": app.ConfigRecord(lists)})
    with pytest.raises(InvalidArgument, match="once"):
        send(app.Message(asked, dst_node_id=11, message_type="train"), contexts[11], None)


def test_wrong_plans_and_models_are_refused_before_the_first_message():
    plan = plan_of()
    grid, _ = federation(plan)
    with pytest.raises(InvalidArgument, match="SecurePlan"):
        SecureFedAvg("plan")
    with pytest.raises(InvalidArgument, match="FederatedPlan"):
        PrivateFedAvg(plan)
    with pytest.raises(InvalidArgument, match="numbers"):
        SecureFedAvg(plan).start(grid, record({"weight": np.zeros(7, np.float32)}))
    assert grid.asked == []
    with pytest.raises(InvalidArgument, match="start"):
        SecureFedAvg(plan).configure_train(1, record(INITIAL), None, grid)
