"""Clipping bounds the gradient in float32 and in narrower types, also where squares vanish or nearly overflow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.learning import Automatic, Flat
from discreet.learning.engine import Engine


def _squares(net: Any, batch: Any) -> Tensor:
    return (net(batch[0]) - batch[1]).square().flatten(1).sum(1)


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


def test_a_narrow_type_does_not_round_a_gradient_beyond_the_norm():
    net = nn.Linear(20, 30, bias=False)
    engine = Engine(net, _squares, Flat(1.0), compile=False, dtype=torch.bfloat16)
    alone = torch.tensor([True, False, False])
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        batch = (torch.randn(3, 20, generator=generator), 10 * torch.randn(3, 30, generator=generator))
        assert float(engine(batch, alone).sums["weight"].double().norm()) <= 1.0
