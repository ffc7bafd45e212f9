"""`train` charges before it runs, shows its progress, and shares one budget with everything else."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
from typing import Any

import pytest
import torch

import discreet as dp
from discreet.errors import BudgetExceeded, Exhausted, InvalidArgument
from discreet.learning import Plan, Step, train
from discreet.learning.allowance import Allowance
from discreet.learning.loop import TrainingLoop
from discreet.learning.run import History
from tests.learning import small


def go(plan, *, net=None, data=None, **more):
    net = small.model() if net is None else net
    more = {"progress": False, "compile": False, **more}
    optimizer = more.pop("optimizer", None) or torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
    return train(net, small.loss, small.data() if data is None else data, plan, optimizer=optimizer, **more)


@pytest.fixture
def account(tmp_path):
    ledger = dp.Ledger(tmp_path / "census.ledger")
    return ledger.account("census", budget=dp.ApproxDP(8.0, 1e-4))


def secure(**changes):
    settings = {"noise_multiplier": 2.0, "insecure_seed": None, "steps": 6, **changes}
    return small.plan(**settings)


def test_a_run_says_what_it_promises(account):
    plan = Plan.for_epsilon(2.0, delta=1e-6, examples=60, batch_size=12, epochs=1, clip_norm=1.0)
    run = go(plan, account=account)
    assert str(run.guarantee) == "(2, 1e-06)-DP, add or remove one row"
    assert run.finished
    assert run.steps == plan.steps == 5
    assert run.receipt.event == plan.event
    assert "5 of 5 steps" in repr(run)


def test_queries_and_a_training_add_up_in_one_statement(account):
    people = dp.Private({"age": [30, 40, 50, 60]}, unit=dp.rows(), account=account)
    people.mean("age", bounds=(0, 100)).release(epsilon=0.5)
    plan = secure()
    go(plan, account=account, purpose="income model")
    statement = account.statement(delta=1e-4)
    text = str(statement)
    assert "income model" in text
    spent = [entry.event for entry in account.history() if entry.kind in ("spend", "reserve")]
    assert len(spent) == 2
    assert spent[1] == plan.event
    together = dp.accounting.epsilon(dp.events.Composed(tuple(spent)), 1e-4)
    assert f"{together.upper:.4g}"[:5] in text
    assert together.upper > dp.accounting.epsilon(plan.event, 1e-4).upper


def test_the_ledger_is_charged_before_the_first_step(account, monkeypatch):
    seen = []
    real = Step.__call__

    def watched(self, batch):
        charged = [entry for entry in account.history() if entry.kind == "reserve"]
        started = max(entry.steps for entry in account.history() if entry.kind == "start")
        assert len(charged) == 1
        assert started > batch.step
        seen.append(batch.step)
        return real(self, batch)

    monkeypatch.setattr(Step, "__call__", watched)
    go(secure(), account=account)
    assert seen == list(range(6))


@pytest.mark.parametrize("mutant", ["no reserve", "no start"])
def test_a_skipped_charge_is_caught(account, monkeypatch, mutant):
    if mutant == "no reserve":
        monkeypatch.setattr(Allowance, "reserve", lambda self: 0)
        monkeypatch.setattr(Allowance, "start", lambda self, position: 6)
    else:
        monkeypatch.setattr(Allowance, "start", lambda self, position: 6)
    with pytest.raises((AssertionError, ValueError)):
        test_the_ledger_is_charged_before_the_first_step(account, monkeypatch)


def test_a_training_that_does_not_fit_takes_no_step(tmp_path, monkeypatch):
    poor = dp.Ledger(tmp_path / "poor.ledger").account("poor", budget=dp.ApproxDP(0.1, 1e-9))
    net = small.model()
    before = small.flat(net)
    monkeypatch.setattr(Step, "__call__", lambda *_: pytest.fail("a step was taken"))
    with pytest.raises(BudgetExceeded):
        go(secure(noise_multiplier=0.3), net=net, account=poor)
    assert torch.equal(before, small.flat(net))
    assert len(poor.history()) == 1


def test_repeatable_noise_is_refused_by_the_ledger(account):
    with pytest.raises(InvalidArgument, match="randomness"):
        go(small.plan(insecure_seed=3), account=account)


def test_another_unit_or_relation_is_refused_by_the_ledger(account):
    with pytest.raises(InvalidArgument, match="neighbors"):
        go(secure(sampling="without replacement"), account=account)
    with pytest.raises(InvalidArgument, match="neighbors"):
        go(secure(unit=dp.person("who", max_rows=2)), account=account, persons=list(range(60)))


def test_a_key_stands_for_one_training(account):
    plan = secure()
    go(plan, account=account, key="model v1")
    with pytest.raises(Exhausted, match="model v1"):
        go(plan, account=account, key="model v1")
    assert sum(entry.kind == "reserve" for entry in account.history()) == 1


def test_shuffled_epochs_are_charged_epoch_by_epoch(tmp_path):
    ledger = dp.Ledger(tmp_path / "x.ledger")
    budget = dp.ApproxDP(50.0, 1e-4).protecting(dp.Neighbors(dp.REPLACE_ONE))
    account = ledger.account("x", budget=budget)
    plan = secure(sampling="shuffle", batch_size=20, steps=7)  # three steps per epoch
    run = go(plan, account=account)
    assert run.steps == 7
    assert run.receipt.event.count == 3
    assert account.history()[-1].steps == 3


def interrupt_after(steps, monkeypatch):
    real = Step.__call__

    def watched(self, batch):
        observed = real(self, batch)
        if batch.step + 1 == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return observed

    monkeypatch.setattr(Step, "__call__", watched)


def test_ctrl_c_stops_and_hands_back_what_never_ran(account, monkeypatch):
    interrupt_after(3, monkeypatch)
    plan = secure(steps=50)
    run = go(plan, account=account)
    assert not run.finished
    assert run.steps == 3
    last = account.history()[-1]
    assert (last.kind, last.steps) == ("close", 3)
    assert run.guarantee == plan.guarantee_after(3)
    assert run.guarantee.epsilon < plan.guarantee.epsilon


def test_ctrl_c_with_a_checkpoint_can_go_on(account, tmp_path, monkeypatch):
    interrupt_after(3, monkeypatch)
    run = go(secure(steps=10), account=account, checkpoint=tmp_path / "c.pt")
    assert run.steps == 3
    assert account.history()[-1].kind == "start"
    run.resume()
    assert run.finished
    assert run.steps == 10
    assert account.history()[-1].kind == "close"
    assert run.history.step == list(range(10))


def test_a_stopped_run_can_be_closed(account, tmp_path, monkeypatch):
    interrupt_after(3, monkeypatch)
    run = go(secure(steps=10), account=account, checkpoint=tmp_path / "c.pt")
    assert run.close() == run.plan.guarantee_after(3)
    with pytest.raises(Exhausted, match="closed"):
        run.resume()


def test_history_is_exact_and_stays_out_of_what_is_given_away(account, tmp_path):
    run = go(secure(), account=account)
    assert len(run.history) == 6
    assert run.history.epsilon[-1] == (6, pytest.approx(run.guarantee.epsilon))
    assert "not private" in repr(run.history)
    assert "loss" not in repr(run)
    run.save(tmp_path / "model.pt")
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert set(content) == {"model", "guarantee", "plan", "event", "steps", "receipt"}
    assert all(f"{loss:.6f}"[:7] not in str(content) for loss in run.history.loss)
    assert not (tmp_path / "model.pt.history.json").exists()
    run.save(tmp_path / "model.pt", history=True)
    kept = tmp_path / "model.pt.history.json"
    assert json.loads(kept.read_text())["private"] is False
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert History.read(kept) == run.history
    fresh = small.model()
    fresh.load_state_dict(content["model"])
    assert torch.equal(small.flat(fresh), small.flat(run.model))


def test_a_scheduler_is_stepped_once_a_step():
    net = small.model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    go(small.plan(steps=3), net=net, optimizer=optimizer, scheduler=scheduler)
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_a_plot_is_drawn():
    pytest.importorskip("matplotlib")
    figure = go(secure()).plot()
    assert len(figure.axes) == 3


def test_the_mechanism_trains_anew_and_charges_nothing(account):
    run = go(secure(), account=account)
    rows, state = len(account.history()), small.flat(run.model)
    one, two = run.mechanism(small.data()), run.mechanism(small.data())
    assert len(account.history()) == rows
    assert torch.equal(state, small.flat(run.model))
    assert list(one) == [name for name, _ in run.model.named_parameters()]
    assert not torch.equal(one["0.weight"], two["0.weight"])
    # From the initial parameters, not from the trained ones: with almost no noise both calls agree with the run.
    quiet = go(small.plan(noise_multiplier=1e-6, batch_size=60))
    again = quiet.mechanism(small.data())
    assert torch.allclose(again["0.weight"], quiet.model[0].weight, atol=1e-4)


def test_the_bar_is_drawn_and_says_what_is_spent(capsys):
    go(secure(steps=8), progress=True)
    out = capsys.readouterr().out
    assert "private training" in out


def test_training_learns():
    """With hardly any noise (so not private) the loss must fall if signs and scales are right."""
    net = small.model()
    plan = small.plan(noise_multiplier=1e-3, steps=150, batch_size=30)
    go(plan, net=net, optimizer=torch.optim.SGD(net.parameters(), lr=2.0))
    inputs, targets = small.data()
    assert float((net(inputs).argmax(1) == targets).float().mean()) > 0.95


@pytest.mark.parametrize("empty", [True, False])
def test_no_exception_or_figure_depends_on_how_many_examples_there_are(empty):
    inputs, targets = small.data(60)
    rows = slice(0, 0) if empty else slice(0, 1)
    run = go(secure(), data=(inputs[rows], targets[rows]))
    assert run.steps == 6
    assert all(math.isnan(loss) or loss > 0 for loss in run.history.loss)


def test_a_scheduler_that_follows_the_exact_loss_is_refused_before_the_charge(account):
    net = small.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InvalidArgument, match="not look at the loss"):
        go(secure(), net=net, optimizer=optimizer, scheduler=scheduler, account=account)
    assert len(account.history()) == 1


@pytest.mark.parametrize("wrong", [None, "sgd"])
def test_what_is_no_optimizer_is_refused_before_anything_is_charged(account, wrong):
    net, before = small.model(), account.remaining()
    with pytest.raises(InvalidArgument, match=r"optimizer must be one of torch's"):
        train(net, small.loss, small.data(), secure(), optimizer=wrong, account=account)
    assert account.remaining() == before


def test_what_is_no_plan_and_no_account_is_refused_in_words(account):
    with pytest.raises(InvalidArgument, match=r"plan must be a Plan, got 'float'"):
        go(3.0, account=account)
    with pytest.raises(InvalidArgument, match=r"account must be an account of a ledger, got 'str'"):
        go(secure(), account="census")
    assert len(account.history()) == 1


def prepared(plan: Plan, account: Any, path: Any = None, resume: bool = False) -> TrainingLoop:
    net = small.model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    step = plan.step(net, small.loss, optimizer, compile=False)
    loop = TrainingLoop(plan, net, step, optimizer, None, account, "", False)
    loop.prepare(small.data(), None, "one key", path, 1, resume)
    return loop


def test_two_processes_with_one_key_do_not_share_one_charge(account):
    plan = small.plan(insecure_seed=None)
    first, second = prepared(plan, account), prepared(plan, account)
    first.run()
    with pytest.raises(Exhausted):
        second.run()
    assert first.step.updates == plan.steps
    assert second.step.updates == 0


def test_two_processes_that_resume_one_checkpoint_run_each_step_once(account, tmp_path):
    plan, path = small.plan(insecure_seed=None), tmp_path / "c.pt"
    begun = prepared(plan, account, path)
    begun._allow(0)
    begun.step(begun._stream.next())
    first, second = prepared(plan, account, path, True), prepared(plan, account, path, True)
    first._allow(first.step.position)
    with pytest.raises(Exhausted, match="another process"):
        second._allow(second.step.position)
    first.run()  # the first is not disturbed
    assert first.step.position == plan.steps


def test_a_loss_that_cannot_be_trained_is_refused_before_the_charge(account):
    net = small.model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    settings: Any = {"optimizer": optimizer, "account": account, "progress": False, "compile": False}
    with pytest.raises(InvalidArgument, match="one value per example"):
        train(net, lambda m, b: small.loss(m, b).mean(), small.data(), small.plan(insecure_seed=None), **settings)
    assert not any(entry.kind == "reserve" for entry in account.history())
