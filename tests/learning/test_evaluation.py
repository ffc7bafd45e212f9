"""`train(evaluate=)`: when it is called, what it may do, and what is recorded."""

from __future__ import annotations

import pytest
import torch

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning import History, train
from tests.learning import small


def trained(evaluate, net=None, **settings):
    net = small.model() if net is None else net
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    defaults = {"compile": False, "progress": False, "optimizer": sgd}
    return train(net, small.loss, small.data(), small.plan(steps=6, **settings.pop("plan", {})), evaluate=evaluate,
                 **(defaults | settings))  # fmt: skip


def test_the_model_is_evaluated_before_the_charge_and_every_so_many_steps():
    modes = []

    def evaluate(model):
        modes.append((model.training, torch.is_grad_enabled()))
        return {"accuracy": torch.tensor(0.5), "loss": 1}

    run = trained(evaluate, evaluate_every=4)
    assert [steps for steps, _ in run.history.evaluations] == [0, 4, 6]
    assert run.history.evaluations[0][1] == {"accuracy": 0.5, "loss": 1.0}
    assert set(modes) == {(False, False)}
    assert run.model.training


def test_one_number_is_enough_and_the_history_keeps_it(tmp_path):
    run = trained(lambda model: 0.25)
    run.history.write(tmp_path / "h.json")
    assert History.read(tmp_path / "h.json").evaluations == run.history.evaluations
    assert run.history.evaluations[-1] == (6, {"value": 0.25})


@pytest.mark.slow
def test_evaluation_changes_no_step():
    first, second = small.model(), small.model()
    trained(None, first)
    trained(lambda model: float(model(small.data()[0]).sum()), second, evaluate_every=1)
    assert torch.equal(small.flat(first), small.flat(second))


@pytest.mark.parametrize("evaluate", [lambda model: 1 / 0, lambda model: "good", 3])
def test_an_evaluation_that_fails_fails_before_the_charge(evaluate, tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))
    with pytest.raises((InvalidArgument, ZeroDivisionError)):
        trained(evaluate, account=account, plan={"insecure_seed": None})
    assert not small.charges(account)


def test_an_evaluation_must_not_change_the_model():
    def evaluate(model):
        model[0].weight.mul_(2)
        return 0.0

    with pytest.raises(InvalidArgument, match="must not change the model"):
        trained(evaluate)


def test_an_interval_needs_an_evaluation():
    with pytest.raises(InvalidArgument, match="used with evaluate"):
        trained(None, evaluate_every=2)
    with pytest.raises(InvalidArgument, match="evaluate_every must be"):
        trained(lambda model: 1.0, evaluate_every=0)
