"""No round is taken twice, whatever dies when, and the ledger shows one event."""

from __future__ import annotations

import stat

import numpy as np
import pytest

import discreet as dp
from discreet.errors import BudgetExceeded, Exhausted, InvalidArgument, NotACheckpoint
from discreet.learning import Plan
from discreet.learning.federated import CorrelatedPlan, clients
from discreet.learning.federated.rounds import RoundsTaken
from discreet.ledger.reservation import Reservation

ARRAYS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array(4)}
SERVER = {"m_t": {"dict": {"weight": np.ones(2)}}, "momentum_vector": [np.zeros(2), np.ones(1)]}


def plan_of(rounds=4, **change):
    given = {"rate": 0.5, "rounds": rounds, "clip_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    return Plan.federated(clients(10), **{**given, **change})


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())


def correlated_plan(**change):
    given = {"clients_per_round": 2, "participations": 2, "separation": 1, "rounds": 4}
    return CorrelatedPlan.make(clients(10), clip_norm=1.0, noise_multiplier=4.0, delta=1e-5, **{**given, **change})


def account_for(plan, folder):
    neighbors = {"unit": plan.neighbors.unit, "relation": plan.relation}
    return dp.Ledger(folder / "n.ledger").account("fed", budget=dp.ApproxDP(20.0, 1e-4), **neighbors)


def rounds_of(path, account=None, plan=None, key=None, resume=True):
    return RoundsTaken(plan or plan_of(), account, key, "test", path, resume)


def events_of(account):
    return [entry.event for entry in account.history() if entry.kind in ("reserve", "spend")]


def take(rounds, number):
    rounds.charge()
    rounds.start(number)
    rounds.save(ARRAYS, 0.5, SERVER)


@pytest.mark.parametrize("charged", [False, True])
def test_a_killed_server_continues_after_the_last_round_that_began(tmp_path, account, charged):
    path, payer = tmp_path / "c", account if charged else None
    first = rounds_of(path, payer)
    take(first, 1)
    first.start(2)  # and the server dies before the release
    second = rounds_of(path, payer)
    second.charge()
    assert second.taken == 2
    with pytest.raises(Exhausted):
        second.start(2)
    take(second, 3)
    take(second, 4)
    with pytest.raises(Exhausted):
        second.start(5)
    assert events_of(account) == ([plan_of().event] if charged else [])


def test_a_server_that_dies_right_after_the_charge_is_not_charged_again(tmp_path, account):
    rounds_of(tmp_path / "c", account).charge()
    again = rounds_of(tmp_path / "c", account)
    again.charge()
    assert again.taken == 0
    assert len(events_of(account)) == 1


def test_the_file_gives_back_arrays_norm_and_the_state_of_the_optimizer(tmp_path, account):
    path = tmp_path / "c"
    take(rounds_of(path, account), 1)
    saved = rounds_of(path, account).saved
    assert saved.taken == 1
    assert saved.clip_norm == 0.5
    assert saved.arrays["weight"].dtype == np.float32
    np.testing.assert_equal(saved.arrays, ARRAYS)
    np.testing.assert_equal(saved.server, SERVER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_plan_is_charged_before_the_first_round_and_only_if_it_fits(tmp_path, account):
    expensive = rounds_of(tmp_path / "c", account, plan_of(noise_multiplier=0.1))
    with pytest.raises(BudgetExceeded):
        expensive.charge()
    assert events_of(account) == []
    assert expensive.receipt is None


def test_another_unit_is_refused_before_the_charge(tmp_path):
    rows = dp.Ledger(tmp_path / "a.ledger").account("rows", budget=dp.ApproxDP(10.0, 1e-4))
    with pytest.raises(InvalidArgument, match="one client"):
        rounds_of(None, rows, resume=False).charge()


def test_a_training_stays_with_its_account_and_its_key(tmp_path, account):
    path = tmp_path / "c"
    take(rounds_of(path, account, key="run 1"), 1)
    with pytest.raises(InvalidArgument, match="account"):
        rounds_of(path, None)
    other = dp.Ledger(tmp_path / "b.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())
    with pytest.raises(InvalidArgument, match="another ledger"):
        rounds_of(path, other)
    with pytest.raises(InvalidArgument, match="key"):
        rounds_of(path, account, key="run 2")


def test_a_key_pays_for_one_training(tmp_path, account):
    take(rounds_of(None, account, key="run 1", resume=False), 1)
    with pytest.raises(Exhausted, match="run 1"):
        rounds_of(None, account, key="run 1", resume=False).charge()


@pytest.mark.parametrize("plan", [plan_of(), correlated_plan()], ids=lambda plan: type(plan).__name__)
def test_a_training_that_began_without_an_account_goes_on_with_one(tmp_path, plan):
    path = tmp_path / "c"
    take(rounds_of(path, plan=plan), 1)
    take(rounds_of(path, plan=plan), 2)
    account = account_for(plan, tmp_path)
    paid = rounds_of(path, account, plan)
    paid.charge()
    assert paid.taken == 2
    paid.start(3)
    again = rounds_of(path, account, plan)
    again.charge()
    assert again.taken == 3
    assert events_of(account) == [plan.event]


def test_the_ledger_counts_the_rounds_of_correlated_noise_and_refuses_an_old_copy_of_the_file(tmp_path):
    """A copy of the file does not know who took part since, nor which noise was used."""
    path, plan = tmp_path / "c", correlated_plan()
    account = account_for(plan, tmp_path)
    first = rounds_of(path, account, plan)
    take(first, 1)
    copy = path.read_bytes()
    first.start(2)  # and the server dies
    kept = path.read_bytes()
    path.write_bytes(copy)
    with pytest.raises(NotACheckpoint, match="older than the ledger"):
        rounds_of(path, account, plan).charge()
    path.write_bytes(kept)
    second = rounds_of(path, account, plan)
    second.charge()
    assert second.taken == 2
    take(second, 3)
    assert events_of(account) == [plan.event]


def test_a_server_that_dies_between_its_file_and_the_ledger_continues(tmp_path, monkeypatch):
    path, plan = tmp_path / "c", correlated_plan()
    account = account_for(plan, tmp_path)
    first = rounds_of(path, account, plan)
    take(first, 1)

    def die(self, steps=1):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reservation, "start_block", die)
        with pytest.raises(KeyboardInterrupt):
            first.start(2, {"who": np.ones(1)})
    second = rounds_of(path, account, plan)
    second.charge()
    assert second.taken == 2
    assert "who" in second.saved.secret
    second.start(3)


def test_two_servers_do_not_share_a_training(tmp_path, account):
    path = tmp_path / "c"
    first = rounds_of(path, account)
    first.charge()
    second = rounds_of(path, account)
    second.charge()
    first.start(1)
    with pytest.raises(Exhausted, match="another process"):
        second.start(1)


def test_rounds_run_in_order_and_after_the_charge(tmp_path, account):
    rounds = rounds_of(None, account, resume=False)
    rounds.charge()
    for wrong in (0, 2, 5):
        with pytest.raises(Exhausted):
            rounds.start(wrong)


def test_rounds_that_never_started_are_handed_back(tmp_path, account):
    rounds = rounds_of(None, account, resume=False)
    take(rounds, 1)
    rounds.close()
    one = dp.Ledger(tmp_path / "b.ledger").account("fed", budget=dp.ApproxDP(10.0, 1e-4), unit=dp.client())
    one.spend(plan_of(1).event, "one round")
    assert account.remaining() == one.remaining()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a file of ours" * 100])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "c"
    path.write_bytes(content)
    with pytest.raises(NotACheckpoint):
        rounds_of(path)
    assert path.read_bytes() == content


def test_a_file_of_another_plan_or_an_unexpected_file_is_refused(tmp_path):
    path = tmp_path / "c"
    take(rounds_of(path), 1)
    with pytest.raises(NotACheckpoint, match="another plan"):
        rounds_of(path, plan=plan_of(clip_norm=2.0))
    with pytest.raises(InvalidArgument, match="resume=True"):
        rounds_of(path, resume=False)
    with pytest.raises(InvalidArgument, match="checkpoint"):
        rounds_of(None, resume=True)
