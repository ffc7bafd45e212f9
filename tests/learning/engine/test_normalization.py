"""The traced group normalization equals torch's and keeps the memory order of the images."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from discreet.learning.clipping import Flat
from discreet.learning.engine import Engine
from discreet.learning.engine.operations import memory_format
from discreet.learning.engine.operations.normalization import group_norm
from tests.learning.engine.test_operations import SINGLE, compare


def last(shape):
    return torch.randn(shape, dtype=torch.float64).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_output_and_gradients_are_those_of_torch(affine):
    torch.manual_seed(0)
    x, grad = last((3, 12, 5, 4)).requires_grad_(), last((3, 12, 5, 4))
    weight = None if affine == "none" else torch.randn(12, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(12, dtype=torch.float64, requires_grad=True) if affine == "both" else None
    known = [t for t in (x, weight, bias) if t is not None]
    found, mean, scale = group_norm(x, 4, weight, bias, 1e-5)
    expected = F.group_norm(x, 4, weight, bias, 1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    pairs = zip(torch.autograd.grad(found, known, grad), torch.autograd.grad(expected, known, grad), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)
    assert mean.shape == scale.shape == (3, 12, 1, 1)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_the_type_is_that_of_torch():
    x, weight = torch.randn(2, 4, 3, 3), torch.ones(4)
    for kind in (torch.float32, torch.bfloat16):
        expected = F.group_norm(x.to(kind), 2, weight.to(kind))
        assert group_norm(x.to(kind), 2, weight.to(kind), None, 1e-5)[0].dtype == expected.dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert group_norm(x.bfloat16(), 2, weight, None, 1e-5)[0].dtype == torch.float32


VIEWS = {
    "chunk": lambda y: y.tanh().chunk(2, 1)[0],
    "second chunk": lambda y: y.tanh().chunk(2, 1)[1],
    "every other": lambda y: y.tanh()[:, ::2],
    "batch slice": lambda y: torch.cat([y, y]).tanh()[3:],
    "padded and cut": lambda y: F.pad(y.tanh(), (1, 1, 1, 1))[:, :, 1:-1, 1:-1],
    "expanded": lambda y: y.tanh().mean(1, keepdim=True).expand(-1, 4, -1, -1),
    "turned": lambda y: y.tanh().transpose(2, 3),
    "sum": lambda y: y.tanh() + y,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # parts of the compiler warn about each other
@pytest.mark.parametrize("view", VIEWS)
def test_a_compiled_group_norm_reads_views_correctly(view):
    def function(y):
        with torch.enable_grad():
            live = y.detach().requires_grad_()
            output = group_norm(VIEWS[view](live), 2, None, None, 1e-5)[0]
            return output.detach(), torch.autograd.grad(output.square().sum() + output.sin().sum(), live)[0]

    y = torch.randn(6, 4, 5, 5)
    traced = make_fx(function, tracing_mode="fake")(y)
    with torch.no_grad():
        found = torch.compile(traced)(y)
    live = y.clone().requires_grad_()
    output = F.group_norm(VIEWS[view](live), 2)
    torch.testing.assert_close(found[0], output.detach(), rtol=1e-4, atol=1e-5)
    expected = torch.autograd.grad(output.square().sum() + output.sin().sum(), live)[0]
    torch.testing.assert_close(found[1], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_batch_in_another_order_of_memory_is_another_graph(monkeypatch):
    monkeypatch.setattr(memory_format, "wants_channels_last", lambda x: x.dim() == 4)
    torch.manual_seed(0)
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 3, 3), nn.Flatten(), nn.Linear(48, 3))
    inputs, targets = torch.randn(5, 4, 6, 6), torch.randint(0, 3, (5,))
    turned = inputs.transpose(0, 1).contiguous().transpose(0, 1)
    compiled, eager = (Engine(model, F.cross_entropy, Flat(0.5), compile=how) for how in (True, False))
    mask = torch.ones(5, dtype=torch.bool)
    for order in (inputs, inputs.contiguous(memory_format=torch.channels_last), turned):
        found, expected = (engine((order, targets), mask) for engine in (compiled, eager))
        torch.testing.assert_close(found.norms, expected.norms, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found.losses, expected.losses, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_clipped_sums_with_channels_last_throughout_are_right(monkeypatch):
    monkeypatch.setattr(memory_format, "wants_channels_last", lambda x: x.dim() == 4)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.GroupNorm(4, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3),
    )  # fmt: skip
    batch = torch.randn(5, 3, 6, 6), torch.randint(0, 3, (5,))
    engine = compare(model, batch, SINGLE, compile=True)
    assert "\ncompiled" in engine.report
    sums = engine(batch, torch.ones(5, dtype=torch.bool)).sums
    assert all(sums[name].is_contiguous() for name in sums), "noise is added to all sums in one launch"
