"""What a pass writes does not reach the next one: not into buffers, nor into the batch, which is the caller's.

How many passes there are depends on the data: a batch runs again without rows that are not finite, and it may run in
pieces. With each mend taken out, one example moved the sum by three to fourteen clip norms.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

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


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_clip_norm_on_the_device_bounds_too(value):
    engine = Engine(nn.Linear(D, 1), linear_loss, Flat(1.0), compile=False)
    found = engine(torch.ones(B, D), ~WITHOUT, torch.tensor(value, dtype=torch.float64)).sums
    assert all(bool(each.isfinite().all()) and float(each.abs().max()) <= 1e30 for each in found.values())


class InTurn(Counts):
    """Looks at values, so each example runs in turn, and counts passes where torch counts no write."""

    def forward(self, x):
        if float(x.abs().max()) > 0:
            self.calls.numpy()[...] += 1
        return self.linear(x) * torch.cos(math.pi * self.calls)


def test_a_count_that_numpy_writes_is_put_back_after_each_example():
    torch.manual_seed(0)
    model, x = InTurn(), torch.randn(B, D)
    engine = Engine(model, linear_loss, Flat(1.0), compile=False)
    first, second = sums(engine, x, EVERYONE), sums(engine, x, WITHOUT)
    assert math.hypot(*(float((first[name] - second[name]).norm()) for name in first)) <= 1 + 1e-6
    assert model.calls == 0


class Normalizes(Counts):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("variance", torch.ones(D))

    def forward(self, x):
        if float(x.abs().max()) > 50:
            F.batch_norm(torch.cat([x, x + 1]), self.mean, self.variance, training=True, momentum=1.0)
        return self.linear(x) * torch.cos(self.mean.sum())


def test_statistics_that_an_example_alone_would_write_are_refused():
    engine = Engine(Normalizes(), linear_loss, Flat(1.0), compile=False)
    engine(torch.ones(B, D), EVERYONE)
    assert "in turn" in engine.report
    with pytest.raises(InvalidArgument, match="must not write what it sees"):
        engine(torch.full((B, D), 1e4), EVERYONE)


def test_a_frozen_parameter_that_code_writes_where_no_graph_runs_is_refused(monkeypatch):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(D, 1)
            self.calls = nn.Parameter(torch.zeros(()), requires_grad=False)

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x) * torch.cos(math.pi * self.calls)

    def fails(*args, **options):
        raise RuntimeError("no trace")

    monkeypatch.setattr("discreet.learning.engine.engine.run_flat", fails)
    engine = Engine(Frozen(), linear_loss, Flat(1.0), compile=False)
    with pytest.raises(InvalidArgument, match="must not write to parameters"):
        engine(torch.randn(B, D), EVERYONE)


class Turns(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, D)
        self.register_buffer("matrix", torch.arange(D * D * 1.0).view(D, D))

    def forward(self, x):
        self.matrix.t_()
        return self.linear(x) @ self.matrix


def test_a_buffer_that_is_transposed_in_place_stays_as_it_was():
    model = Turns()
    engine = Engine(model, linear_loss, Flat(1.0), compile=False)
    x = torch.randn(B, D)
    spoiled = x.clone()
    spoiled[0] = float("nan")
    assert moved(sums(engine, x, WITHOUT), sums(engine, spoiled, WITHOUT)) < 1e-6
    assert torch.equal(model.matrix, torch.arange(D * D * 1.0).view(D, D))


def test_a_buffer_made_in_inference_mode_is_no_hindrance():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(D, 1)
            with torch.inference_mode():
                self.register_buffer("shift", torch.ones(D))

        def forward(self, x):
            return self.linear(x + 0 * x.mean(0) + self.shift)

    engine = Engine(Alone(), linear_loss, Flat(1.0), compile=False)
    assert engine(torch.randn(B, D), EVERYONE).finite.all()
    assert "not proved" in engine.report


@pytest.mark.slow
def test_compiled_code_takes_a_batch_with_gaps_that_the_model_writes_to():
    torch.manual_seed(0)
    x = torch.randn(B, 2 * D)[:, :D]
    engines = [Engine(Writes(lambda x: x.mul_(2)), linear_loss, Flat(1.0), compile=how) for how in (False, True)]
    engines[1].model.load_state_dict(engines[0].model.state_dict())
    assert moved(*(sums(engine, x, EVERYONE) for engine in engines)) < 1e-6


@pytest.mark.slow
def test_a_buffer_that_is_a_view_of_another_is_not_compiled():
    class Views(Counts):
        def __init__(self):
            super().__init__()
            self.register_buffer("part", self.calls.view(1))

        def forward(self, x):
            self.part.add_(1)
            return self.linear(x) * self.calls

    engine = Engine(Views(), linear_loss, Flat(1e6), compile=True)
    x = torch.randn(B, D)
    found = sums(engine, x, EVERYONE)
    torch.testing.assert_close(found["linear.weight"], x.sum(0, keepdim=True))


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
    shared = torch.ones(B + 1, D)
    with pytest.raises(InvalidArgument, match="must not share memory"):
        engine((shared[:-1], shared[1:], turned), WITHOUT)


def statistics(x):
    """Their place is not in the schema of the operation that writes them; the threshold hides them from a dry run."""
    mean, variance = torch.zeros(D), torch.ones(D)
    F.batch_norm(x, mean, variance, training=True, momentum=1.0)
    return x * (1 + (mean.abs() - 50).clamp(min=0))


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
    "running statistics": statistics,
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


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), torch.ones(B)])
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
