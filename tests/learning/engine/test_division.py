"""Parameters in a quotient have a rule, and are clipped exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from discreet.learning import Engine, Flat
from tests.learning.engine import truth


class Quotient(nn.Module):
    def __init__(self, divide) -> None:
        super().__init__()
        self.scale, self.divide = nn.Parameter(torch.rand(5, dtype=torch.float64) + 0.5), divide

    def forward(self, inputs):
        return self.divide(self.scale, inputs)


CASES = {
    "by the data": lambda scale, x: (scale / (1 + x.square())).sum((1, 2)),
    "by a constant": lambda scale, x: (torch.div(scale, torch.arange(1.0, 6.0).double()) * x).sum((1, 2)),
    "of the data": lambda scale, x: (x / scale).sum((1, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_divided_parameter_is_clipped_exactly(name):
    torch.manual_seed(0)
    model, batch = Quotient(CASES[name]), torch.randn(4, 3, 5, dtype=torch.float64)

    def loss(net, rows):
        return net(rows)

    engine = Engine(model, loss, Flat(0.2), compile=False)
    found = engine(batch, torch.ones(4, dtype=torch.bool))
    assert "fallback" not in engine.report
    each = truth.gradients(model, loss, batch)
    assert truth.worst(found.sums, truth.clipped(each, (0.2 / truth.norms(each)).clamp(max=1.0))) < 1e-10
