"""What a private step asks of an optimizer, before anything is charged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning import PrivateGradients, train
from discreet.learning.optimizers import check_optimizer, needs_closure
from tests.learning import small

TAKE_NO_CLOSURE = (
    "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor",
)  # fmt: skip


class Sharpness(torch.optim.Optimizer):
    """Needs a closure although its signature does not say so, and keeps another optimizer inside."""

    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__(parameters, {})
        self.inside = torch.optim.SGD(parameters, lr=0.1)

    def step(self, closure=None):
        assert closure is not None, "a closure is needed"
        closure()
        self.inside.step()


@pytest.mark.parametrize("name", TAKE_NO_CLOSURE)
def test_an_ordinary_optimizer_is_accepted_and_left_alone(name):
    net = small.model()
    before = small.flat(net)
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LinearLR(optimizer)  # wraps step
    called, state = [], len(optimizer.state)  # Adagrad has some from the start
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    assert not needs_closure(optimizer)
    assert torch.equal(small.flat(net), before)
    assert len(optimizer.state) == state
    assert not called


def test_optimizers_for_matrices_are_rehearsed_on_matrices():
    weight = nn.Parameter(torch.randn(3, 4))
    assert not needs_closure(torch.optim.Muon([weight], lr=0.1))


@pytest.mark.parametrize("optimizer", [torch.optim.LBFGS, Sharpness, torch.optim.SparseAdam])
def test_an_optimizer_that_cannot_step_is_refused_before_the_charge(optimizer, tmp_path):
    net = small.model()
    before = small.flat(net)
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(8.0, 1e-5))
    plan = small.plan(insecure_seed=None)
    with pytest.raises(InvalidArgument, match=f"got '{optimizer.__name__}'"):
        train(
            net, small.loss, small.data(), plan, optimizer=optimizer(net.parameters()), account=account, progress=False
        )
    with pytest.raises(InvalidArgument, match=f"got '{optimizer.__name__}'"):
        PrivateGradients(plan, net, small.loss, small.data(), optimizer=optimizer(net.parameters()), account=account)
    assert not small.charges(account)
    assert torch.equal(small.flat(net), before)


def test_foreign_parameters_are_refused():
    net, other = small.model(), small.model()
    named = dict(net.named_parameters())
    with pytest.raises(InvalidArgument, match="only parameters of the model"):
        check_optimizer(torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1), net, named)
