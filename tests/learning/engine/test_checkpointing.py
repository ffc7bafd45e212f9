"""Models that use gradient checkpointing give the same clipped sums, and nothing of theirs runs twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from discreet.learning import Engine, Flat
from discreet.learning.engine.trace.checkpointing import without_checkpointing
from tests.learning import small


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.net, self.reentrant, self.calls = small.model(torch.float64), reentrant, 0

    def block(self, inputs):
        self.calls += 1
        return torch.tanh(self.net[0](inputs))

    def forward(self, inputs):
        if self.reentrant is None:
            return self.net[2](self.block(inputs))
        hidden = checkpoint.checkpoint(self.block, inputs, use_reentrant=self.reentrant)
        return self.net[2](hidden)


def loss(net, batch):
    return nn.functional.cross_entropy(net(batch[0].double()), batch[1], reduction="none")


def sums(reentrant, compile=False):
    engine = Engine(Checkpointed(reentrant), loss, Flat(0.3), compile=compile)
    inputs, targets = small.data(8)
    found = engine((inputs, targets), torch.ones(8, dtype=torch.bool))
    assert "fallback" not in engine.report
    return found


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_model_is_proved_and_gives_the_same_sums(reentrant):
    expected, found = sums(None), sums(reentrant)
    # Not to the last bit: a library's products may depend on where a tensor begins in memory.
    torch.testing.assert_close(found.sums, expected.sums, rtol=1e-5, atol=1e-6)


def test_a_checkpointed_part_runs_once():
    model = Checkpointed(False)
    inputs, targets = small.data(8)
    with without_checkpointing():
        losses = loss(model, (inputs, targets))
    losses.sum().backward()
    assert model.calls == 1


def test_checkpointing_works_again_afterwards():
    model = Checkpointed(False)
    with pytest.raises(ZeroDivisionError), without_checkpointing():
        raise ZeroDivisionError
    loss(model, small.data(8)).sum().backward()
    assert model.calls == 2
