"""Networks with bounded gradients: no row, label or weights exceed the bound, and clipping changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from discreet.errors import InvalidArgument
from discreet.learning import LipschitzNetwork
from tests.learning import small


def gradient_norm(model, row, label):
    model.zero_grad()
    nn.functional.cross_entropy(model(row[None]), torch.tensor([label])).backward()
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))


@pytest.mark.parametrize(("sizes", "radius"), [((3, 2), 0.5), ((3, 2), 20.0), ((4, 5, 3), 2.0), ((2, 3, 3, 2), 1.5)])
def test_no_gradient_exceeds_the_bound(sizes, radius):
    torch.manual_seed(0)
    model = LipschitzNetwork(sizes, radius=radius, input_norm=2.0)
    largest = 0.0
    for trial in range(120):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 10.0 ** (trial % 4 - 1))
        row = torch.randn(sizes[0]) * 10.0 ** (trial % 5 - 1)
        largest = max(largest, *(gradient_norm(model, row, label) for label in range(sizes[-1])))
    assert largest <= model.gradient_bound
    assert largest > 0.05 * model.gradient_bound  # the trials do reach large gradients


def test_the_bound_is_reached():
    """A row of the largest norm that the weights classify wrongly, and with certainty."""
    model = LipschitzNetwork((1, 2), radius=40.0, input_norm=1.0)
    with torch.no_grad():
        model.layers[0].weight.copy_(torch.tensor([[20.0, 0.0], [-20.0, 0.0]]))
    norm = gradient_norm(model, torch.tensor([1.0]), 1)
    assert norm == pytest.approx(model.gradient_bound, rel=2e-3)
    assert norm <= model.gradient_bound


def test_a_private_step_at_the_bound_clips_nothing():
    """With hardly any noise, the step is the one of the exact mean gradient over the expected batch size."""
    torch.manual_seed(1)
    rows, labels = torch.randn(8, 3), torch.arange(8) % 2
    model = LipschitzNetwork((3, 4, 2), radius=2.0)
    plan = small.plan(noise_multiplier=1e-6, clip_norm=model.gradient_bound, examples=8, batch_size=8, steps=1)
    start = [p.detach().clone() for p in model.parameters()]
    nn.functional.cross_entropy(model(rows), labels).backward()
    wanted = [s - 0.5 * p.grad for s, p in zip(start, model.parameters(), strict=True)]
    model.zero_grad()
    step = plan.step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.5), compile=False)
    for batch in plan.batches((rows, labels)):
        step(batch)
    for got, expected in zip(model.parameters(), wanted, strict=True):
        assert torch.allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("bad", [{"sizes": (3,)}, {"sizes": (3, 0)}, {"radius": 0.0}, {"input_norm": -1.0}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        LipschitzNetwork(**{"sizes": (3, 2), **bad})
