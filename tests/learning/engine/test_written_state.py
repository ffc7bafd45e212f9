"""What a pass writes does not reach the next one: not into buffers, nor into the batch, which is the caller's.

How many passes there are depends on the data: a batch runs again without rows that are not finite, and it may run in
pieces. With each mend taken out, one example moved the sum by three to fourteen clip norms.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from discreet.errors import InvalidArgument
from discreet.learning import Automatic, Engine, Flat
from discreet.learning.engine.independence import Unproved, prove
from discreet.learning.engine.operations.base import GradientRule
from discreet.learning.engine.operations.linear import LinearWeight
from discreet.learning.engine.shared_parameters import Use, join_products

B, D = 8, 5
EVERYONE = torch.ones(B, dtype=torch.bool)
WITHOUT = EVERYONE.clone()
WITHOUT[0] = False
WAYS = [False, pytest.param(True, marks=pytest.mark.slow)]


class Counts(nn.Module):
    """Each pass turns the sign of its outputs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * torch.cos(math.pi * self.calls)


class Writes(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(D, 1), function

    def forward(self, x):
        self.function(x)
        return self.linear(x)


IN_PLACE = {
    "a sign": lambda x: x.neg_(),
    "a shift": lambda x: x.sub_(1.0),
    "a part": lambda x: x[:, 0].neg_(),
    "the order of channels": lambda x: x.copy_(x.flip(1)),
}


def linear_loss(model, x):
    return model(x).sum(1)


def moved(first, second):
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def sums(engine, x, mask):
    return {name: value.clone() for name, value in engine(x, mask).sums.items()}


@pytest.mark.parametrize("compile", WAYS)
def test_a_row_that_is_not_finite_moves_nothing_through_a_buffer(compile):
    torch.manual_seed(0)
    x = torch.randn(B, D)
    spoiled = x.clone()
    spoiled[0] = float("nan")
    model = Counts()
    engine = Engine(model, linear_loss, Flat(1.0), compile=compile)
    expected = sums(engine, x, WITHOUT)
    assert moved(expected, sums(engine, spoiled, WITHOUT)) < 1e-6
    assert moved(expected, sums(engine, x, WITHOUT)) < 1e-6
    assert model.calls == 0


def test_what_the_code_itself_writes_is_put_back_where_no_graph_runs(monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("no trace")

    monkeypatch.setattr("discreet.learning.engine.engine.run_flat", fails)
    test_a_row_that_is_not_finite_moves_nothing_through_a_buffer(False)


@pytest.mark.parametrize("compile", WAYS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_model_may_write_to_its_batch_but_not_to_that_of_the_caller(name, compile):
    torch.manual_seed(0)
    x = torch.randn(B, D)
    spoiled = x.clone()
    spoiled[0] = float("nan")
    before = spoiled.clone()
    engine = Engine(Writes(IN_PLACE[name]), linear_loss, Flat(1.0), compile=compile)
    assert moved(sums(engine, x, WITHOUT), sums(engine, spoiled, WITHOUT)) < 1e-6
    assert torch.equal(spoiled.nan_to_num(7.0), before.nan_to_num(7.0))


def test_rows_that_share_memory_in_a_later_batch_are_not_written_through():
    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(D))

        def forward(self, batch):
            x, y, z = batch
            y.mul_(z)
            return (x * self.w).sum(1)

    engine = Engine(Scales(), lambda model, batch: model(batch), Flat(1.0), compile=False)
    ones = torch.ones(B, 1)
    engine((torch.randn(B, D), torch.randn(B, D), ones), EVERYONE)
    turned = ones.clone()
    turned[0] = -1.0
    found = []
    for z in (ones, turned):
        shared = torch.ones(B + 1, D)
        found.append(sums(engine, (shared[:-1], shared[1:], z), WITHOUT))
    assert moved(*found) == 0


def into_nothing(x):
    limit = torch.empty(0)
    torch.amax((x.abs() - 100).clamp(min=0), 0, out=limit)
    return x * (limit > 0)


def into_another_rank(x):
    """The result is [B, B], with the examples in the first dimension, which the sum takes away."""
    total = torch.empty(1, B, B)
    torch.sum(x[:, :1].expand(2, B, B).contiguous(), 0, out=total)
    return total.sum(0)


UNSAFE = {
    "out= into nothing": into_nothing,
    "out= into another rank": into_another_rank,
    "a bound of random integers": lambda x: x * torch.randint_like(x, (x[:, 0].abs().long() + 2)[0]),
    "a matrix with a row per position": lambda x: torch.addmv(
        x.sum(1), torch.arange(B * 3.0).view(B, 3), torch.ones(3)
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_it_is_not_proved(name):
    with pytest.raises(Unproved):
        prove(lambda fixed, x: UNSAFE[name](x).reshape(B, -1).sum(1), {}, {}, torch.randn(B, D))


@pytest.mark.parametrize("gamma", [1e-30, 1e-22, 1e-10])
def test_a_tiny_stabilizer_does_not_lengthen_gradients_whose_squares_underflow(gamma):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x * self.weight

    for size in (1e-25, 1e-20, 1e-12, 1.0):
        engine = Engine(Scale(), linear_loss, Automatic(1.0, gamma), compile=False)
        found = engine(torch.full((B, 1), size), ~WITHOUT).sums["weight"]
        assert float(found.abs()) <= 1.0


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-40, 1e40, float("nan"), torch.ones(B)])
def test_a_clip_norm_for_one_call_is_checked_like_any_other(value):
    engine = Engine(nn.Linear(D, 1), linear_loss, Flat(1.0), compile=False)
    with pytest.raises(InvalidArgument, match="clip_norm"):
        engine(torch.randn(B, D), EVERYONE, value)


def test_a_weight_too_small_for_its_type_counts_as_nothing():
    """The quotient of clip norm and norm has no digits left, and could round up to twice its value."""
    engine = Engine(nn.Linear(1, 1, bias=False), linear_loss, Flat(1e-30), compile=False)
    for size in (1e10, 1e13, 1e15):
        assert float(engine(torch.full((B, 1), size), ~WITHOUT).sums["weight"].abs()) <= 1e-30


def test_products_of_different_types_keep_their_own_margins():
    rule: GradientRule = LinearWeight()
    uses = [Use(rule, (torch.ones(B, 3, D, dtype=kind),), torch.ones(B, 3, 2, dtype=kind)) for kind in KINDS]
    assert [use.inputs[0].shape[1] for use in join_products(uses)] == [6, 3]


KINDS = [torch.bfloat16, torch.float32, torch.bfloat16]


def test_an_error_of_an_operation_that_the_model_expects_does_not_end_the_proof():
    def careful(x):
        try:
            return x @ torch.ones(D + 1, 1)
        except RuntimeError:
            return x @ torch.ones(D, 1)

    assert prove(lambda fixed, x: careful(x).sum(1), {}, {}, torch.randn(B, D)).examples == B
