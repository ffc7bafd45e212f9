"""`PrivateFedAvg` as a strategy of Flower, on a grid in this process."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import discreet as dp
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import Plan
from discreet.learning.clipping import Adaptive
from discreet.learning.federated import PrivateFedAvg, clients, replies, rounds
from discreet.learning.federated._flower import flower
from discreet.ledger import Account
from discreet.ledger.reservation import Reservation
from tests.learning.federated.grids import FunctionGrid, failure, record, reply, sent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the federated extra"),
]

INITIAL = {"weight": np.zeros(4, np.float32), "steps": np.array(3)}
IDS = range(101, 111)


def plan_of(number=10, **change):
    """With next to no noise, so that a release shows the mean."""
    given = {"rate": 1.0, "rounds": 3, "clip_norm": 1.0, "noise_multiplier": 1e-9, "delta": 1e-5}
    return Plan.federated(clients(number), **{**given, **change})


def moving(by=0.125, **more):
    def client(message):
        arrays = sent(message)
        return reply(message, {**arrays, "weight": arrays["weight"] + np.float32(by)}, **more)

    return client


def arrays_of(result):
    return {name: array.numpy() for name, array in result.arrays.items()}


def run(plan, client, strategy=None, ids=IDS, **more):
    made = PrivateFedAvg(plan, strategy, **more)
    return made, made.start(FunctionGrid(ids, client), record(INITIAL), num_rounds=plan.rounds)


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())


def test_rounds_move_the_model_by_the_mean_and_leave_integers_alone():
    strategy, result = run(plan_of(), moving())
    assert isinstance(strategy, flower("flwr.serverapp.strategy").Strategy)
    assert arrays_of(result)["weight"] == pytest.approx(np.full(4, 0.375), abs=1e-6)
    assert arrays_of(result)["weight"].dtype == np.float32
    assert arrays_of(result)["steps"] == 3
    assert [facts["clip-norm"] for facts in result.train_metrics_clientapp.values()] == [1.0] * 3


def test_the_plan_is_charged_once_before_the_first_message(account):
    plan = plan_of(noise_multiplier=2.0)
    seen = []

    def client(message):
        seen.append(len([entry for entry in account.history() if entry.kind == "reserve"]))
        return moving()(message)

    strategy, result = run(plan, client, account=account)
    assert set(seen) == {1}
    assert strategy.receipt.event == plan.event
    assert [entry.event for entry in account.history() if entry.kind == "reserve"] == [plan.event]
    epsilons = [facts["epsilon"] for facts in result.train_metrics_clientapp.values()]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == pytest.approx(plan.guarantee.epsilon)


def test_a_plan_that_does_not_fit_sends_no_message(account):
    grid = FunctionGrid(IDS, moving())
    with pytest.raises(BudgetExceeded):
        PrivateFedAvg(plan_of(), account=account).start(grid, record(INITIAL))
    assert grid.asked == []


def test_an_optimizer_that_needs_more_than_arrays_is_refused_before_the_charge(account):
    """QFedAvg weighs replies by their losses, which are private and dropped."""
    kind = flower("flwr.serverapp.strategy").QFedAvg
    grid = FunctionGrid(IDS, moving())
    with pytest.raises(InvalidArgument, match="QFedAvg"):
        PrivateFedAvg(plan_of(noise_multiplier=2.0), kind(client_learning_rate=0.1), account=account).start(
            grid, record(INITIAL)
        )
    assert grid.asked == []
    assert [entry.kind for entry in account.history()].count("reserve") == 0


def test_a_finished_training_is_returned_again_and_asks_nobody(account, tmp_path):
    plan, path = plan_of(noise_multiplier=2.0), tmp_path / "c"
    _, first = run(plan, moving(), account=account, checkpoint=path)
    grid = FunctionGrid(IDS, moving())
    again = PrivateFedAvg(plan, account=account, checkpoint=path, resume=True).start(grid, record(INITIAL))
    assert grid.asked == []
    assert np.array_equal(arrays_of(again)["weight"], arrays_of(first)["weight"])
    assert [entry.kind for entry in account.history()].count("reserve") == 1


def test_the_optimizer_and_the_clip_norm_survive_a_restart(tmp_path):
    """Adam's moments after a restart are those before it: two halves equal one run, with next to no noise."""
    kind = flower("flwr.serverapp.strategy").FedAdam
    clipping = {"clip_norm": None, "clipping": Adaptive(0.1, count_noise=1e-3), "noise_multiplier": 1e-9}
    plan = plan_of(rounds=6, **clipping)
    _, whole = run(plan, moving(), kind())

    def dies(message):
        if message.content["config"]["server-round"] == 4:
            raise KeyboardInterrupt
        return moving()(message)

    with pytest.raises(KeyboardInterrupt):
        run(plan, dies, kind(), checkpoint=tmp_path / "c")
    second = PrivateFedAvg(plan, kind(), checkpoint=tmp_path / "c", resume=True)
    assert second.taken == 4
    assert second.clip_norm != pytest.approx(0.1, rel=1e-3)
    norms = whole.train_metrics_clientapp
    assert second.clip_norm == pytest.approx(norms[4]["clip-norm"], rel=1e-2)
    result = second.start(FunctionGrid(IDS, moving()), record(INITIAL))
    assert sorted(result.train_metrics_clientapp) == [5, 6]
    assert second.server.m_t["weight"].any()


def test_example_counts_do_not_weigh():
    """A mutant that weighs by num-examples moves the model by what the client with a million examples sent."""

    def client(message):
        heavy = message.metadata.dst_node_id == IDS[0]
        return moving(0.25 if heavy else 0.0, examples=10**6 if heavy else 1)(message)

    _, result = run(plan_of(rounds=1), client)
    assert arrays_of(result)["weight"] == pytest.approx(np.full(4, 0.025), abs=1e-6)


def test_absent_failed_and_broken_clients_contribute_zero_and_leave_the_divisor():
    def client(message):
        node, arrays = message.metadata.dst_node_id, sent(message)
        match node - IDS[0]:
            case 0:
                return moving(0.25)(message)
            case 1:
                return None
            case 2:
                return failure(message, "patient 7 has a rare disease")
            case 3:
                return reply(message, {"weight": np.full(4, np.nan, np.float32)})
            case 4:
                return reply(message, {"weight": np.zeros(9, np.float32)})
            case 5:
                return [reply(message, arrays), moving(0.25)(message)]  # a second reply is ignored
            case 6:
                app = flower("flwr.app")
                return app.Message(app.RecordDict({}), reply_to=message)
            case 7:
                app = flower("flwr.app")
                broken = app.ArrayRecord({"weight": app.Array("float32", (4,), "numpy.ndarray", b"no array")})
                return app.Message(app.RecordDict({"arrays": broken}), reply_to=message)
            case _:
                return reply(message, arrays)

    strategy, result = run(plan_of(rounds=1), client)
    assert arrays_of(result)["weight"] == pytest.approx(np.full(4, 0.025), abs=1e-6)
    counts = strategy.counts[0]
    assert (counts.drawn, counts.summed, counts.failed, counts.refused, counts.absent) == (10, 4, 1, 4, 1)
    assert counts.ignored == 1


def test_a_late_reply_is_ignored():
    kept = []

    def client(message):
        kept.append(moving(0.25)(message))
        return kept[0]  # in later rounds, the reply to the first one

    strategy, result = run(plan_of(number=1, rounds=2), client, ids=[7])
    assert [counts.summed for counts in strategy.counts] == [1, 0]
    assert strategy.counts[1].ignored == 1
    assert arrays_of(result)["weight"] == pytest.approx(np.full(4, 0.25), abs=1e-6)


def test_whoever_connects_later_is_never_drawn_and_whoever_left_is_absent():
    """A mutant that draws from whoever is connected asks node 999."""
    grid = FunctionGrid(IDS, moving())
    strategy = PrivateFedAvg(plan_of())
    arrays, config = record(INITIAL), flower("flwr.app").ConfigRecord
    first = list(strategy.configure_train(1, arrays, config(), grid))
    strategy.aggregate_train(1, grid.send_and_receive(first))
    grid.ids = [999, *IDS[:5]]
    second = list(strategy.configure_train(2, arrays, config(), grid))
    assert {message.metadata.dst_node_id for message in first} == set(IDS)
    assert {message.metadata.dst_node_id for message in second} == set(IDS[:5])
    strategy.aggregate_train(2, grid.send_and_receive(second))
    assert strategy.counts[1].drawn == 10


def test_the_number_of_clients_must_be_that_of_the_plan():
    for ids in (IDS[:9], [*IDS, 999]):
        with pytest.raises(InvalidArgument, match="connected"):
            PrivateFedAvg(plan_of()).start(FunctionGrid(ids, moving()), record(INITIAL), timeout=0.0)


def test_the_log_shows_neither_who_was_drawn_nor_how_many_nor_what_they_said(caplog):
    """At rate 1/2, with secret words and numbers in the replies, at the level of debugging."""
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    before, logger.level = logger.level, logging.DEBUG

    def client(message):
        if message.metadata.dst_node_id % 2:
            return failure(message, "patient 7 has a rare disease")
        return moving(0.25, examples=31337, loss=0.31337)(message)

    try:
        _strategy, result = run(plan_of(rate=0.5), client)
    finally:
        logger.removeHandler(caplog.handler)
        logger.level = before
    text = caplog.text + repr(result)
    assert "ROUND 3/3" in text
    assert not any(str(node) in text for node in IDS)
    assert not any(word in text for word in ("31337", "patient", "ampled", "eceived"))
    assert "10" in text  # the public number of clients is there


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam", "FedAdagrad", "FedYogi", "FedAvgM", "FedProx"])
def test_any_server_optimizer_does_with_the_noisy_mean_what_it_does_with_the_exact_one(name):
    kind = getattr(flower("flwr.serverapp.strategy"), name)
    options = {"FedAvgM": {"server_momentum": 0.9}, "FedProx": {"proximal_mu": 0.1}}.get(name, {})
    received = []

    def client(message):
        received.append(dict(message.content["config"]))
        return moving()(message)

    _, ours = run(plan_of(), client, kind(**options))
    grid = FunctionGrid(IDS, moving())
    # Everyone sends the same update, so Flower's own mean of the replies is the exact one.
    theirs = kind(**options, fraction_evaluate=0.0).start(grid, record({"weight": INITIAL["weight"]}), num_rounds=3)
    assert arrays_of(ours)["weight"] == pytest.approx(arrays_of(theirs)["weight"], rel=1e-4)
    assert arrays_of(ours)["weight"].dtype == np.float32
    if name == "FedProx":
        assert received[0]["proximal-mu"] == 0.1
    assert received[0]["server-round"] == 1


def test_clients_are_not_asked_to_evaluate():
    types = []

    def client(message):
        types.append(message.metadata.message_type)
        return moving()(message)

    run(plan_of(), client)
    assert set(types) == {"train"}


def test_server_side_evaluation_is_called_as_flower_does():
    rounds = []

    def evaluate(number, arrays):
        rounds.append(number)
        return flower("flwr.app").MetricRecord({"accuracy": 0.5})

    made = PrivateFedAvg(plan_of())
    result = made.start(FunctionGrid(IDS, moving()), record(INITIAL), evaluate_fn=evaluate)
    assert rounds == [0, 1, 2, 3]
    assert result.evaluate_metrics_serverapp[3]["accuracy"] == 0.5


def test_what_is_not_a_plan_an_account_or_a_strategy_is_refused():
    plan = plan_of()
    for arguments in ({"plan": "plan"}, {"plan": plan, "strategy": "FedAdam"}, {"plan": plan, "account": "fed"}):
        with pytest.raises(InvalidArgument):
            PrivateFedAvg(**arguments)
    with pytest.raises(InvalidArgument, match="num_rounds"):
        PrivateFedAvg(plan).start(FunctionGrid(IDS, moving()), record(INITIAL), num_rounds=2)
    with pytest.raises(InvalidArgument, match="floats"):
        PrivateFedAvg(plan).start(FunctionGrid(IDS, moving()), record({"a": np.array(1)}))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "?"])
def test_arrays_are_read_as_flower_reads_them(shape, kind):
    for order in "CF":
        array = np.asarray(
            np.arange(max(1, int(np.prod(shape))))[: int(np.prod(shape))].reshape(shape), kind, order=order
        )
        read = replies.arrays_of(record({"a": array}))["a"]
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


def test_an_array_of_objects_is_not_read():
    app = flower("flwr.app")
    header = np.lib.format.magic(1, 0)
    stored = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
    data = header + len(stored).to_bytes(2, "little") + stored + bytes(8)
    with pytest.raises(ValueError, match="objects"):
        replies.arrays_of({"a": app.Array("object", (1,), "numpy.ndarray", data)})


class Crashes:
    """Dies at one of the writes of a server, before or after it: to the ledger, to the file, or at a message."""

    def __init__(self, at, after):
        self.at, self.after, self.calls = at, after, 0

    def around(self, call):
        def crashing(*arguments, **more):
            self.calls += 1
            number = self.calls
            if number == self.at and not self.after:
                raise KeyboardInterrupt
            value = call(*arguments, **more)
            if number == self.at:
                raise KeyboardInterrupt
            return value

        return crashing


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_or_message_takes_no_round_twice_and_charges_once(tmp_path, monkeypatch, after):
    plan, at, crashed = plan_of(number=2, noise_multiplier=5.0), 0, True
    while crashed:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        account = dp.Ledger(folder / "a.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())
        asked = []

        def client(message, asked=asked):
            asked.append((message.content["config"]["server-round"], message.metadata.dst_node_id))
            return moving()(message)

        def serve(answer, account=account, folder=folder):
            made = PrivateFedAvg(plan, account=account, checkpoint=folder / "c", resume=True)
            return made.start(FunctionGrid([7, 8], answer), record(INITIAL))

        crashes = Crashes(at, after)
        with monkeypatch.context() as patch:
            patch.setattr(rounds, "replace_file", crashes.around(rounds.replace_file))
            patch.setattr(Account, "reserve", crashes.around(Account.reserve))
            patch.setattr(Reservation, "start_block", crashes.around(Reservation.start_block))
            try:
                serve(crashes.around(client))
                crashed = False
            except KeyboardInterrupt:
                pass
        before = len(asked)
        serve(client)
        assert len(asked) == len(set(asked))
        assert crashed or len(asked) == before == 6
        assert [entry.event for entry in account.history() if entry.kind == "reserve"] == [plan.event]
    assert at > 12  # three rounds of two messages, two starts and a file each


SERVER = """
    import os, signal, sys
    import numpy as np
    import discreet as dp
    from discreet.learning import Plan
    from discreet.learning.federated import PrivateFedAvg, clients
    from discreet.learning.federated._flower import flower
    from tests.learning.federated.grids import FunctionGrid, record, reply, sent

    folder, kill_at = sys.argv[1], int(sys.argv[2])
    calls = 0

    def client(message):
        global calls
        calls += 1
        with open(f"{folder}/asked", "a") as file:
            print(message.content["config"]["server-round"], message.metadata.dst_node_id, file=file)
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        arrays = sent(message)
        return reply(message, {**arrays, "weight": arrays["weight"] + np.float32(0.125)})

    plan = Plan.federated(clients(2), rate=1.0, rounds=6, clip_norm=1.0, noise_multiplier=5.0, delta=1e-5)
    account = dp.Ledger(f"{folder}/a.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())
    adam = flower("flwr.serverapp.strategy").FedAdam()
    made = PrivateFedAvg(plan, adam, account=account, checkpoint=f"{folder}/c", resume=True)
    made.start(FunctionGrid([7, 8], client), record({"weight": np.zeros(4, np.float32)}), num_rounds=6)
"""


def test_a_server_that_is_killed_resumes_takes_no_round_twice_and_is_charged_once(tmp_path):
    def serve(kill_at):
        root = Path(__file__).parents[3]
        path = os.pathsep.join([str(root / "src"), str(root)])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", textwrap.dedent(SERVER), str(tmp_path), str(kill_at)]
        return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False).returncode

    assert serve(1) == -signal.SIGKILL  # the very first message
    assert serve(4) == -signal.SIGKILL  # within a round
    assert serve(0) == 0
    asked = [tuple(line.split()) for line in (tmp_path / "asked").read_text().splitlines()]
    assert len(asked) == len(set(asked))  # nobody was asked twice in one round
    assert asked[0][0] == "1"
    assert asked[-1][0] == "6"
    account = dp.Ledger(tmp_path / "a.ledger").account("fed")
    assert [entry.kind for entry in account.history()].count("reserve") == 1
