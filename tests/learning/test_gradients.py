"""Private gradients for other people's loops: the same gradients, one charge, and nothing beside it."""

from __future__ import annotations

import json

import pytest
import torch

import discreet as dp
from discreet.errors import Exhausted, InvalidArgument, NotACheckpoint
from discreet.learning import Adaptive, PrivateGradients, train
from tests.learning import small


def gradients(plan, net, **settings):
    return PrivateGradients(plan, net, small.loss, small.data(), compile=False, **settings)


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))


def test_a_foreign_loop_trains_the_same_model_as_train():
    first, second = small.model(), small.model()
    plan = small.plan(physical_batch_size=5)
    sgd = torch.optim.SGD(first.parameters(), lr=0.3, momentum=0.9)
    train(first, small.loss, small.data(), plan, optimizer=sgd, compile=False, progress=False)
    sgd = torch.optim.SGD(second.parameters(), lr=0.3, momentum=0.9)
    steps = []
    for step in gradients(plan, second, optimizer=sgd):
        sgd.step()
        sgd.zero_grad()
        steps.append(step)
    assert steps == [0, 1, 2, 3]
    assert torch.equal(small.flat(first), small.flat(second))


def test_filling_sets_gradients_and_changes_no_parameter():
    net = small.model()
    before = small.flat(net)
    filled = gradients(small.plan(), net)
    filled.fill()
    assert torch.equal(small.flat(net), before)
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert filled.remaining == 3


def test_a_step_without_an_optimizer_only_fills():
    net, plan = small.model(), small.plan()
    step = plan.step(net, small.loss, compile=False)
    batch = next(plan.batches(small.data()))
    with pytest.raises(InvalidArgument, match="optimizer must be given"):
        step(batch)
    assert step.position == 0
    step.fill(batch)
    assert step.position == 1


def test_the_plan_is_charged_once_before_the_first_step(account):
    plan = small.plan(insecure_seed=None)
    filled = gradients(plan, small.model(), account=account)
    assert small.charges(account) == [plan.event]
    assert filled.receipt.event == plan.event
    for _ in filled:
        pass
    assert small.charges(account) == [plan.event]
    assert filled.guarantee == plan.guarantee


def test_no_step_is_taken_beyond_the_plan():
    filled = gradients(small.plan(), small.model())
    assert len(list(filled)) == 4
    with pytest.raises(Exhausted, match="all 4 steps"):
        filled.fill()


def test_a_backward_pass_of_the_loop_is_refused_and_leaves_no_gradient():
    net = small.model()
    filled = gradients(small.plan(), net)
    filled.fill()
    with pytest.raises(InvalidArgument, match="neither clipped nor noised"):
        small.loss(net, small.data()).sum().backward()
    assert any(parameter.grad is None for parameter in net.parameters())
    filled.close()
    small.loss(net, small.data()).sum().backward()  # after the training the model is anybody's


def test_a_model_that_mixes_examples_is_refused_before_the_charge(account):
    def mixing(net, batch):
        losses = small.loss(net, batch)
        return losses - losses.mean()

    with pytest.raises(InvalidArgument):
        PrivateGradients(small.plan(insecure_seed=None), small.model(), mixing, small.data(), account=account)
    assert not small.charges(account)


def test_a_resumed_training_is_charged_once_and_repeats_no_step(account, tmp_path):
    plan, record = small.plan(insecure_seed=None, steps=6), tmp_path / "run" / "steps.json"
    first = gradients(plan, small.model(), account=account, record=record)
    first.fill()
    first.fill()
    del first  # a crash: nothing is closed
    second = gradients(plan, small.model(), account=account, record=record, resume=True)
    assert second.position >= 2
    assert len(list(second)) == second.plan.steps - 2
    assert small.charges(account) == [plan.event]
    third = gradients(plan, small.model(), account=account, record=record, resume=True)
    assert third.remaining == 0


def test_without_an_account_the_record_decides_which_steps_are_taken(tmp_path):
    plan, record = small.plan(steps=200, insecure_seed=None), tmp_path / "steps.json"
    first = gradients(plan, small.model(), record=record)
    for _ in range(5):
        first.fill()
    allowed = json.loads(record.read_text())["allowed"]
    assert allowed == 8  # a fiftieth of the plan at a time, recorded before it runs
    assert gradients(plan, small.model(), record=record, resume=True).position == 8


def test_the_record_holds_no_key_and_belongs_to_its_plan(tmp_path):
    record = tmp_path / "steps.json"
    gradients(small.plan(), small.model(), record=record).fill()
    content = json.loads(record.read_text())
    assert content["secret"] is None
    assert set(content["step"]) == {"position", "updates", "clip_norm"}
    with pytest.raises(InvalidArgument, match="record must not exist yet"):
        gradients(small.plan(), small.model(), record=record)
    with pytest.raises(NotACheckpoint, match="another plan"):
        gradients(small.plan(noise_multiplier=2.0), small.model(), record=record, resume=True)
    record.write_text("{}")
    with pytest.raises(NotACheckpoint, match="damaged"):
        gradients(small.plan(), small.model(), record=record, resume=True)
    with pytest.raises(InvalidArgument, match="record must be given"):
        gradients(small.plan(), small.model(), resume=True)


@pytest.mark.slow
def test_a_resumed_adaptive_norm_continues(tmp_path):
    plan = small.plan(clipping=Adaptive(0.1, count_noise=10.0, learning_rate=2.0), steps=3, insecure_seed=None)
    first = gradients(plan, small.model(), record=tmp_path / "r.json")
    first.fill()
    first.fill()
    norm = json.loads((tmp_path / "r.json").read_text())["step"]["clip_norm"]
    second = gradients(plan, small.model(), record=tmp_path / "r.json", resume=True)
    assert second._step.clip_norm == norm != 0.1


@pytest.mark.slow
def test_a_shuffled_training_continues_with_its_order(tmp_path):
    plan = small.plan(sampling="shuffle", relation="replace-one", insecure_seed=None, steps=10)
    first = gradients(plan, small.model(), record=tmp_path / "r.json")
    first.fill()
    second = gradients(plan, small.model(), record=tmp_path / "r.json", resume=True)
    assert second._stream._secret.reveal() == first._stream._secret.reveal()


def test_no_step_is_filled_twice_if_an_account_comes_later(account, tmp_path):
    plan, record = small.plan(steps=120, insecure_seed=None), tmp_path / "r.json"
    first = gradients(plan, small.model(), record=record)
    for _ in range(5):
        first.fill()
    assert first.allowed == 6
    second = gradients(plan, small.model(), record=record, account=account, resume=True)
    assert second.position == 6
    assert list(second) == list(range(6, 120))
    assert account.history()[-1].steps == 120


def test_a_record_of_another_account_or_ledger_is_refused_before_a_charge(account, tmp_path):
    plan, record = small.plan(steps=120, insecure_seed=None), tmp_path / "r.json"
    gradients(plan, small.model(), record=record, account=account, key="k").fill()
    elsewhere = dp.Ledger(tmp_path / "b.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))
    for wrong in (elsewhere, None):
        with pytest.raises(InvalidArgument, match="account must be 'a'"):
            gradients(plan, small.model(), record=record, account=wrong, resume=True)
    with pytest.raises(InvalidArgument, match="key must be 'k'"):
        gradients(plan, small.model(), record=record, account=account, key="other", resume=True)
    assert small.charges(elsewhere) == []
    content = json.loads(record.read_text())
    for name in ("account", "receipt"):  # earlier versions wrote neither
        del content[name]
    record.write_text(json.dumps(content))
    assert gradients(plan, small.model(), record=record, account=account, resume=True).position == 2
