"""Accelerate: the settings of an Accelerator decide how private gradients are computed."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning.integrations.accelerate import private_gradients
from tests.learning import small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate"),
]


def prepared(**settings):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, **settings)
    net = small.model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(sgd, 1.0)
    return accelerator, net, *accelerator.prepare(net, sgd, schedule)


def test_a_prepared_loop_gives_the_model_of_train(tmp_path):
    from discreet.learning import train

    plan, first = small.plan(), small.model()
    sgd = torch.optim.SGD(first.parameters(), lr=0.1)
    train(first, small.loss, small.data(), plan, optimizer=sgd, compile=False, progress=False)
    accelerator, net, model, optimizer, schedule = prepared()
    for _ in private_gradients(accelerator, plan, model, small.loss, small.data(), optimizer=optimizer, compile=False):
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert torch.equal(small.flat(first), small.flat(net))


def test_bf16_is_autocast_and_a_backward_pass_is_refused(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))
    accelerator, net, model, optimizer, _ = prepared(mixed_precision="bf16")
    plan = small.plan(insecure_seed=None)
    filled = private_gradients(accelerator, plan, model, small.loss, small.data(), account=account, compile=False)
    filled.fill()
    optimizer.step()
    with pytest.raises(InvalidArgument, match="neither clipped nor noised"):
        accelerator.backward(small.loss(model, small.data()).mean())
    filled.close()
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
        ({"mixed_precision": "fp8"}, "mixed_precision"),
    ],
)
def test_what_changes_noisy_gradients_is_refused(settings, match):
    class Settings:
        mixed_precision = settings.get("mixed_precision", "no")
        gradient_accumulation_steps = settings.get("gradient_accumulation_steps", 1)
        distributed_type = type("Kind", (), {"name": "NO"})

    with pytest.raises(InvalidArgument, match=match):
        private_gradients(Settings(), small.plan(), small.model(), small.loss, small.data())
