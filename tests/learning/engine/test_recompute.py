"""Values of the forward pass that the backward pass computes again: less is kept, no value changes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.learning.engine.graph import kinds, recompute
from tests.learning.engine import traces

EXAMPLES = 4


class WrittenOut(nn.Module):
    """A GELU in elementary operations, as language models have it: in float32, it leaves much behind."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.045 * x.float().pow(3.0))))


class Block(nn.Module):
    def __init__(self, scaled=True):
        super().__init__()
        self.norm = nn.LayerNorm(8, elementwise_affine=scaled)
        self.inner = nn.Sequential(nn.Linear(8, 64), WrittenOut(), nn.Linear(64, 8))

    def forward(self, x):
        return x + self.inner(self.norm(x))


def traced(model, shape, dtype, monkeypatch):
    """The graph of a clipped sum and its arguments."""
    torch.manual_seed(0)
    batch = torch.randn(EXAMPLES, *shape), torch.arange(EXAMPLES) % 3
    return traces.traced(model, F.cross_entropy, batch, dtype, monkeypatch)


def kept_values(graph):
    """What the forward pass leaves for later."""
    return [
        n
        for n in graph.graph.nodes
        if recompute._is_value(n) and not recompute._is_later(n) and recompute._later_users(n)
    ]


def kept_bytes(graph):
    return sum(kinds.size_in_bytes(node) for node in kept_values(graph))


def lightened(graph):
    light = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    recompute.recompute_cheap(light)
    return light


@pytest.fixture
def transformer(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), Block(), nn.Flatten(), nn.Linear(40, 3))
    return traced(model, (5, 8), torch.bfloat16, monkeypatch)


def test_no_value_changes_and_less_is_kept(transformer):
    graph, arguments = transformer
    light = lightened(graph)
    with torch.no_grad():
        for found, expected in zip(light(*arguments), graph(*arguments), strict=True):
            assert torch.equal(found, expected)
    assert kept_bytes(light) < 0.6 * kept_bytes(graph)


def test_convolutions_and_recurrences_keep_their_values_too(monkeypatch):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Flatten(), nn.Linear(144, 3))
    graph, arguments = traced(model, (1, 8, 8), None, monkeypatch)
    with torch.no_grad():
        for found, expected in zip(lightened(graph)(*arguments), graph(*arguments), strict=True):
            assert torch.equal(found, expected)


class Scaled(nn.Module):
    """The gradient of the scale is computed from what a GELU returns, elementwise."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale, self.outer = nn.Linear(8, 64), nn.Parameter(torch.ones(64)), nn.Linear(64, 3)

    def forward(self, x):
        return self.outer(WrittenOut()(self.inner(x)) * self.scale).mean(1)


def test_what_norms_and_sums_read_is_computed_once(monkeypatch):
    """Both must see the same numbers, and a compiler could round two computations differently."""
    torch.manual_seed(0)
    graph, _ = traced(Scaled(), (5, 8), torch.bfloat16, monkeypatch)
    before = {node.name for node in graph.graph.nodes}
    again = [node for node in lightened(graph).graph.nodes if node.name not in before]
    assert any(not kinds.is_a_view(node) for node in again)
    for node in again:
        readers = [user for user in node.users if user.meta["discreet_part"] == "rules"]
        assert kinds.is_a_view(node) or not readers, (node, readers)


@pytest.mark.parametrize("much", [0, 1 << 30])
def test_narrow_copies_of_many_parameters_are_made_again(transformer, much, monkeypatch):
    monkeypatch.setattr(recompute, "_MUCH", much)
    graph, arguments = transformer
    light = lightened(graph)
    copies = [node for node in kept_values(light) if recompute._copies_an_argument(node)]
    assert bool(copies) is (much > 0)
    with torch.no_grad():
        for found, expected in zip(light(*arguments), graph(*arguments), strict=True):
            assert torch.equal(found, expected)


def test_a_sum_of_two_branches_is_not_computed_again(monkeypatch):
    """Otherwise the last layer would begin at the first one."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(False), Block(False), Block(False), nn.Flatten(), nn.Linear(40, 3))
    graph, _ = traced(model, (5, 8), torch.bfloat16, monkeypatch)
    sums = [node for node in kept_values(lightened(graph)) if node.target is torch.ops.aten.add.Tensor]
    assert len([node for node in sums if tuple(node.meta["val"].shape) == (EXAMPLES, 5, 8)]) >= 2


def test_random_numbers_are_not_drawn_again(monkeypatch):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 3))
    graph, _ = traced(model, (8,), None, monkeypatch)
    draws = [
        n for n in lightened(graph).graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
    ]
    assert draws
    assert not any(recompute._is_later(node) for node in draws)


def test_a_graph_that_writes_in_place_is_left_alone():
    def writes(x):
        y = x * 2.0
        y.add_(1.0)
        return (y.detach(),)

    graph = torch.fx.experimental.proxy_tensor.make_fx(writes)(torch.ones(3))
    before = [node.name for node in graph.graph.nodes]
    recompute.recompute_cheap(graph)
    assert [node.name for node in graph.graph.nodes] == before
