"""Models that mix examples or store them are refused; dropout is not mistaken for mixing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import InvalidArgument
from discreet.learning import Flat
from discreet.learning.engine import clipped_sum


def _squares(net: Any, batch: Any) -> Tensor:
    return (net(batch[0]) - batch[1]).square().flatten(1).sum(1)


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
