"""Attacks that once worked against private training: each test is one that no longer does."""

from __future__ import annotations

import copy
import dataclasses
import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import discreet as dp
from discreet.errors import DiscreetError, Exhausted, InvalidArgument
from discreet.learning import Adaptive, Automatic, Flat, PerLayer, Plan, train
from discreet.learning.data import persons_rows
from discreet.learning.engine import Engine, clipped_sum
from discreet.learning.training import Training
from tests.learning import small


def _squares(net: Any, batch: Any) -> Tensor:
    return (net(batch[0]) - batch[1]).square().flatten(1).sum(1)


def _step(plan: Plan) -> Any:
    net = small.model()
    return plan.step(net, small.loss, torch.optim.SGD(net.parameters(), 0.1), compile=False)


def _prepared(plan: Plan, account: Any, path: Any = None, resume: bool = False) -> Training:
    net = small.model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    step = plan.step(net, small.loss, optimizer, compile=False)
    training = Training(plan, net, step, optimizer, None, account, "", False)
    training.prepare(small.data(), None, "one key", path, 1, resume)
    return training


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(50.0, 1e-4))


def test_two_processes_with_one_key_do_not_share_one_charge(account):
    plan = small.plan(insecure_seed=None)
    first, second = _prepared(plan, account), _prepared(plan, account)
    first.go_on()
    with pytest.raises(Exhausted):
        second.go_on()
    assert first.step.updates == plan.steps
    assert second.step.updates == 0


def test_two_processes_that_resume_one_checkpoint_run_each_step_once(account, tmp_path):
    plan, path = small.plan(insecure_seed=None), tmp_path / "c.pt"
    begun = _prepared(plan, account, path)
    begun._allow(0)
    begun.step(begun._stream.next())
    first, second = _prepared(plan, account, path, True), _prepared(plan, account, path, True)
    first._allow(first.step.position)
    with pytest.raises(Exhausted, match="another process"):
        second._allow(second.step.position)
    first.go_on()  # the first is not disturbed by it
    assert first.step.position == plan.steps


def test_a_changed_copy_of_a_plan_shows_its_own_guarantee():
    plan = Plan.for_epsilon(1.0, delta=1e-5, examples=1000, batch_size=100, steps=10, clip_norm=1.0)
    assert plan.guarantee.epsilon == pytest.approx(1.0)
    longer = dataclasses.replace(plan, steps=1000)
    assert longer.guarantee.epsilon == pytest.approx(longer.guarantee_after(1000).epsilon)
    assert longer.guarantee.epsilon > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads, in newer Pythons
def test_a_forked_process_does_not_draw_the_same_noise():
    step = _step(small.plan(insecure_seed=None))
    child = os.fork()
    if child == 0:
        try:
            step._noise(0, 1.0)
        except DiscreetError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    step._noise(0, 1.0)


def test_a_step_is_not_copied_with_its_noise():
    step = _step(small.plan(insecure_seed=None))
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="noise"):
            copied(step)


def test_an_adaptive_norm_does_not_fall_until_its_noise_vanishes():
    step = _step(small.plan(insecure_seed=None, clipping=Adaptive(1e-29, learning_rate=30.0, count_noise=0.6)))
    for _ in range(20):
        step._move_norm(step.plan.clipping, 0.5)
    noise = step._noise(0, step.clip_norm)
    assert (noise.abs() > torch.finfo(torch.float32).tiny).all()


@pytest.mark.parametrize("norm", [1e-43, 1e-100, 1e60])
def test_norms_that_float32_has_no_room_for_are_refused(norm):
    with pytest.raises(InvalidArgument, match="between"):
        Flat(norm)
    with pytest.raises(InvalidArgument, match="between"):
        small.plan(clip_schedule=((0, 1.0), (2, norm)))


def test_persons_that_differ_after_a_nul_are_two_persons():
    assert len(persons_rows(["a", "a\0", "b"], 3)) == 3


def test_a_share_for_a_layer_that_is_not_there_is_refused_before_anything_runs():
    with pytest.raises(InvalidArgument, match="layers"):
        _step(small.plan(clipping=PerLayer(1.0, {"0": 1.0, "2": 1.0, "4": 1.0})))


@pytest.mark.parametrize("changes", [{"clipping": "flat"}, {"unit": "rows"}])
def test_a_plan_names_what_is_of_the_wrong_kind(changes):
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        small.plan(**changes)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("clipping", [Automatic(1.0), Flat(0.001)])
def test_tiny_inputs_and_huge_gradients_do_not_hide_each_other(length, clipping):
    net = nn.Linear(1000, 40, bias=False)
    engine = Engine(net, _squares, clipping, compile=False)
    alone = torch.tensor([True, False, False])
    engine((torch.randn(3, length, 1000), torch.randn(3, length, 40)), alone)
    # Squares of the inputs vanish in float32, those of the output gradients nearly overflow.
    found = engine((torch.full((3, length, 1000), 2.6e-23), torch.full((3, length, 40), 1e18)), alone)
    assert found.finite.all()
    assert float(found.sums["weight"].double().norm()) <= clipping.norm


class _Counting(nn.Module):
    """Keeps a running mean of what it sees, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.last(x)


class _Bounded(nn.Module):
    """A frozen table whose rows are shortened, in place, when they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4, max_norm=0.5)
        self.table.weight.requires_grad_(False)
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.table(x).mean(1))


@pytest.mark.parametrize("net", [_Counting(), _Bounded()])
def test_a_model_that_writes_its_examples_down_is_refused(net):
    inputs = torch.randn(4, 3) if isinstance(net, _Counting) else torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(InvalidArgument, match="without noise"):
        clipped_sum(net, _squares, (inputs, torch.randn(4, 1)), clipping=Flat(1.0))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


class _Cumulative(nn.Module):
    """Each example less the mean of those before it: nothing reaches the first ones, and no gradient shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.cumsum(0) / torch.arange(1, len(x) + 1, dtype=x.dtype).unsqueeze(1)
        return self.last(x - mean.detach())


class _Centered(nn.Module):
    """Words less the mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(10, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.table(x).mean(1)
        return self.last(found - found.mean(0).detach())


@pytest.mark.parametrize("net", [_Cumulative(), _Centered()])
def test_examples_that_mix_in_one_direction_or_in_a_batch_of_copies_are_found(net):
    one = torch.randn(1, 3) if isinstance(net, _Cumulative) else torch.tensor([[3, 5, 7]])
    with pytest.raises(InvalidArgument, match="mixes"):  # a draw of one example is filled up with copies
        clipped_sum(net, _squares, (one.expand(8, 3), torch.randn(1, 1).expand(8, 1)), clipping=Flat(1.0))


def test_a_narrow_type_does_not_round_a_gradient_beyond_the_norm():
    net = nn.Linear(20, 30, bias=False)
    engine = Engine(net, _squares, Flat(1.0), compile=False, dtype=torch.bfloat16)
    alone = torch.tensor([True, False, False])
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        batch = (torch.randn(3, 20, generator=generator), 10 * torch.randn(3, 30, generator=generator))
        assert float(engine(batch, alone).sums["weight"].double().norm()) <= 1.0


class _Dropping(nn.Module):
    """Dropout beside a parameter that has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Bilinear(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.dropout(self.first(x), 0.5)
        return self.last(hidden, hidden)


def test_dropout_is_not_taken_for_mixing_where_a_parameter_needs_the_fallback():
    found = clipped_sum(_Dropping(), _squares, (torch.randn(4, 3), torch.randn(4, 1)), clipping=Flat(0.1))
    whole = torch.cat([value.flatten() for value in found.sums.values()])
    assert 0 < float(whole.norm()) <= 0.4


def test_a_loss_that_cannot_be_trained_is_refused_before_the_charge(account):
    net = small.model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    settings: Any = {"optimizer": optimizer, "account": account, "progress": False, "compile": False}
    with pytest.raises(InvalidArgument, match="one value per example"):
        train(net, lambda m, b: small.loss(m, b).mean(), small.data(), small.plan(insecure_seed=None), **settings)
    assert not any(entry.kind == "reserve" for entry in account.history())
