"""A model's tensors are collected again as soon as it holds others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.engine.model_tensors import ModelTensors
from tests.learning.engine import truth


def model_and_tensors():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
    return model, ModelTensors(model)


def read_by_torch(model):
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    return trainable, frozen | dict(model.named_buffers())


def agrees(model, tensors):
    return all(
        a.keys() == b.keys() and all(a[name] is b[name] for name in a)
        for a, b in zip(tensors.tensors(), read_by_torch(model), strict=True)
    )


def test_every_change_of_a_model_is_noticed():
    model, tensors = model_and_tensors()
    assert agrees(model, tensors)
    model[0].weight = nn.Parameter(torch.zeros(3, 2))
    assert agrees(model, tensors)
    model[1][1].bias.requires_grad_(False)
    assert agrees(model, tensors)
    model[1][0].running_mean = torch.ones(3)
    assert agrees(model, tensors)
    model[1].append(nn.Linear(1, 1))
    assert agrees(model, tensors)
    del model[1][2]
    assert agrees(model, tensors)
    model[1].register_buffer("more", torch.ones(1))
    assert agrees(model, tensors)


def test_nothing_is_collected_again_without_a_change():
    model, tensors = model_and_tensors()
    first = tensors.tensors()
    with torch.no_grad():
        model[0].weight.add_(1.0)
    assert all(a is b for a, b in zip(tensors.tensors(), first, strict=True))


def test_modes_follow_the_modules():
    model, tensors = model_and_tensors()
    assert all(tensors.modes())
    model[1].eval()
    assert tensors.modes() == tuple(module.training for module in model.modules())


class TwoNames(nn.Module):
    """One layer under two names, used twice."""

    def __init__(self, trainable):
        super().__init__()
        self.first = nn.Linear(4, 4).requires_grad_(trainable)
        self.again, self.out = self.first, nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.again(torch.tanh(self.first(x))))


@pytest.mark.parametrize("trainable", [True, False])
def test_a_module_with_two_names_keeps_its_weights_and_is_exact(trainable):
    torch.manual_seed(0)
    model, batch = TwoNames(trainable), (torch.randn(6, 4), torch.arange(6) % 3)
    weight = model.first.weight

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    engine = Engine(model, loss, Flat(0.5), compile=False)
    found = engine(batch, torch.ones(6, dtype=torch.bool))
    assert model.first.weight is weight
    each = truth.gradients(model, loss, batch)
    weights = (0.5 / truth.norms(each)).clamp(max=1.0)
    assert truth.worst(found.sums, truth.clipped(each, weights)) < 1e-5
