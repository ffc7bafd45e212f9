"""Clipped sums equal those from per-example gradients, for every operation."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from discreet.learning import Engine, Flat, PerLayer, clipped_sum
from discreet.learning.engine import operations
from discreet.learning.engine.operations import linear, registry
from discreet.learning.engine.operations.convolution import ConvolutionWeight
from discreet.learning.losses import per_example
from tests.learning.engine import truth
from tests.learning.engine.devices import DEVICES, on
from tests.learning.engine.zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
LOSS = per_example(F.cross_entropy)
#: Norms in float32 include what rounding may add to a sum, a few units of the last place for each of its terms.
SINGLE = 1e-4


def model_and_batch(name, dtype=torch.float64):
    torch.manual_seed(3)
    torch.set_default_dtype(dtype)
    try:
        model, batch = ZOO[name]
        return model(), batch()
    finally:
        torch.set_default_dtype(torch.float32)


def compare(model, batch, tolerance, *, order=2, compile=False):
    each = truth.gradients(model, LOSS, batch)
    exact = truth.norms(each, order)
    clip_norm = float(exact.median())
    mask = torch.ones(len(each), dtype=torch.bool, device=exact.device)
    mask[1] = False
    expected = truth.clipped(each, mask * torch.clamp(clip_norm / exact, max=1.0))
    engine = Engine(model, F.cross_entropy, Flat(clip_norm, order=order), compile=compile)
    found = engine(batch, mask)
    assert torch.allclose(found.norms[0].double(), exact.double(), rtol=tolerance)
    assert truth.worst(found.sums, expected) < tolerance
    assert found.finite.all()
    return engine


#: A few models of different kinds for what does not depend on the operation; the others are tried by slow tests.
A_FEW = ("linear", "conv2d", "transformer, tied", "no rule")
FEW_FIRST = [name if name in A_FEW else pytest.param(name, marks=pytest.mark.slow) for name in ZOO]
WITHOUT_RULE = {"no rule", "embedding bag, max"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ZOO)
def test_clipped_sums_equal_those_of_per_example_gradients(name, device):
    model, batch = model_and_batch(name)
    engine = compare(model.to(device), on(device, batch), 1e-9)
    assert ("fallback" in engine.report) == (name in WITHOUT_RULE)


@pytest.mark.parametrize("name", FEW_FIRST)
def test_clipped_sums_in_the_other_norm_equal_those_of_per_example_gradients(name):
    compare(*model_and_batch(name), 1e-9, order=1)


@pytest.mark.parametrize("name", FEW_FIRST)
def test_clipped_sums_are_right_in_single_precision(name):
    compare(*model_and_batch(name, torch.float32), SINGLE)


@pytest.mark.parametrize("name", ["linear"])
def test_clipped_sums_are_right_when_compiled(name):
    engine = compare(*model_and_batch(name, torch.float32), SINGLE, compile=True)
    assert "\ncompiled" in engine.report


#: Variants of other models with the same operations.
VARIANTS = {"transformer, untied", "transformer, time first", "attention, separate", "gru, no bias", "rnn, relu"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ZOO if n != "linear" and n not in VARIANTS])
def test_every_operation_compiles(name):
    engine = compare(*model_and_batch(name, torch.float32), SINGLE, compile=True)
    assert "\ncompiled" in engine.report


def test_a_parameter_without_a_rule_is_reported_with_the_reason():
    model, batch = model_and_batch("no rule")
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    engine(batch, torch.ones(5, dtype=torch.bool))
    assert "pair.weight: fallback (vmap), because of bilinear" in engine.report
    assert "head.weight: linear" in engine.report


def test_frozen_parameters_have_no_sum_and_unused_ones_have_zero():
    model, batch = model_and_batch("adapter")
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    found = engine(batch, torch.ones(5, dtype=torch.bool))
    assert set(found.sums) == {"down.weight", "up.weight", "unused.weight", "unused.bias"}
    assert not found.sums["unused.weight"].any()
    assert "unused.weight: not used by the loss" in engine.report


@settings(max_examples=4, deadline=None)
@given(
    batch=st.integers(1, 6),
    length=st.integers(1, 40),
    wide=st.integers(1, 9),
    narrow=st.integers(1, 7),
    seed=st.integers(0, 2**31),
)
def test_a_linear_layer_is_exact_for_all_shapes(batch, length, wide, narrow, seed):
    """On both sides of the choice between Gram matrices and materialized gradients."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(narrow, wide), nn.Tanh(), nn.LayerNorm(wide), nn.Linear(wide, 4)).double()
    inputs, targets = torch.randn(batch, length, narrow).double(), torch.randint(0, 4, (batch, length))

    def loss(model, data):
        return F.cross_entropy(model(data[0]).transpose(1, 2), data[1], reduction="none").mean(1)

    each = truth.gradients(model, loss, (inputs, targets))
    found = clipped_sum(model, loss, (inputs, targets), clipping=Flat(0.1))
    expected = truth.clipped(each, torch.clamp(0.1 / truth.norms(each).clamp_min(1e-300), max=1.0))
    assert truth.worst(found.sums, expected) < 1e-9


@settings(max_examples=4, deadline=None)
@given(
    batch=st.integers(1, 4),
    size=st.integers(5, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**31),
)
def test_a_convolution_is_exact_for_all_shapes(batch, size, kernel, stride, padding, dilation, groups, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, kernel, stride, padding, dilation, groups), nn.Flatten(), nn.Tanh(), nn.LazyLinear(3)
    ).double()
    data = (torch.randn(batch, 2, size, size).double(), torch.randint(0, 3, (batch,)))
    model(data[0])
    each = truth.gradients(model, LOSS, data)
    found = clipped_sum(model, F.cross_entropy, data, clipping=Flat(0.1))
    expected = truth.clipped(each, torch.clamp(0.1 / truth.norms(each), max=1.0))
    assert truth.worst(found.sums, expected) < 1e-9


@settings(max_examples=40, deadline=None)
@given(
    # by dimension: the size of the image, the kernel's, stride, padding on both sides, dilation
    dimensions=st.lists(
        st.tuples(
            st.integers(1, 5),
            st.integers(1, 3),
            st.integers(1, 2),
            st.tuples(st.integers(0, 2), st.integers(0, 2)),
            st.integers(1, 2),
        ),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 2**31),
)
def test_norms_from_grams_over_positions_are_those_of_gradients(dimensions, seed):
    sizes, kernel, stride, padding, dilation = zip(*dimensions, strict=True)
    lengths = [(n + sum(sides) - step * (k - 1) - 1) // each + 1 for n, k, each, sides, step in dimensions]
    assume(min(lengths) > 0)
    generator = torch.Generator().manual_seed(seed)
    x, g = (
        torch.randn(2, width, *shape, dtype=torch.float64, generator=generator)
        for width, shape in ((3, sizes), (4, lengths))
    )
    rule = ConvolutionWeight((4, 3, *kernel), stride, padding, dilation, 1)
    expected = rule.per_example((x,), g).square().flatten(1).sum(1)
    found = rule.norm_from_positions(x, g)
    assert (found >= expected).all()  # rounded up, by 5·33·2⁻⁵³ of the square that the norm has if nothing cancels
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["transformer, tied", "lstm", "conv2d", "no rule"])
def test_layers_are_clipped_on_their_own(name):
    model, batch = model_and_batch(name)
    each = truth.gradients(model, LOSS, batch)
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    clipping = PerLayer(0.5)
    groups = clipping.groups(names)
    share = 0.5 / (max(groups) + 1) ** 0.5
    found = clipped_sum(model, F.cross_entropy, batch, clipping=clipping)
    for group in range(max(groups) + 1):
        only = {n for n, g in zip(names, groups, strict=True) if g == group}
        norms = truth.norms(each, only=only)
        assert torch.allclose(found.norms[group], norms, rtol=1e-9)
        weights = torch.clamp(share / norms.clamp_min(1e-300), max=1.0)
        expected = truth.clipped([{n: one[n] for n in only} for one in each], weights)
        assert truth.worst({n: found.sums[n] for n in only}, expected) < 1e-9


def test_every_function_has_one_handler_and_every_operation_is_registered():
    registered = sum(len(operation.HANDLERS) for operation in registry.OPERATIONS)
    assert registered == len(registry.HANDLERS), "two operations handle the same function"
    modules = {module.name for module in pkgutil.iter_modules(operations.__path__, f"{operations.__name__}.")}
    with_handlers = {name for name in modules if hasattr(importlib.import_module(name), "HANDLERS")}
    assert with_handlers - {registry.__name__} == {operation.__name__ for operation in registry.OPERATIONS}


class Words(nn.Module):
    """An embedding that is also the output layer, for a number of words that is not even."""

    def __init__(self):
        super().__init__()
        self.words, self.inner = nn.Embedding(11, 6), nn.Linear(6, 6)
        self.scores = nn.Linear(6, 11, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, ids):
        return self.scores(torch.tanh(self.inner(self.words(ids)))).transpose(1, 2)


@pytest.mark.parametrize("kind", [Flat, PerLayer])
def test_columns_that_only_align_an_output_change_nothing(kind, monkeypatch):
    torch.manual_seed(0)
    model, batch = Words().double(), (torch.randint(0, 11, (4, 5)), torch.randint(0, 11, (4, 5)))
    expected = Engine(model, F.cross_entropy, kind(0.1), compile=False)(batch, torch.ones(4, dtype=torch.bool))
    seen = []

    def missing(x, weight):
        seen.append(weight.shape[0] == 11)
        return 5 if weight.shape[0] == 11 else 0

    monkeypatch.setattr("discreet.learning.engine.operations.linear._missing_columns", missing)
    found = Engine(model, F.cross_entropy, kind(0.1), compile=False)(batch, torch.ones(4, dtype=torch.bool))
    assert any(seen)
    torch.testing.assert_close(found.norms, expected.norms)
    for name, value in expected.sums.items():
        assert found.sums[name].shape == value.shape
        torch.testing.assert_close(found.sums[name], value)


def test_only_many_narrow_columns_on_a_gpu_are_aligned():
    assert linear._missing_columns(torch.zeros(1, dtype=torch.bfloat16), torch.zeros(50257, 1)) == 0
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2, 4, dtype=torch.bfloat16, device="cuda")
        assert [linear._missing_columns(x, torch.empty(p, 4)) for p in (10, 50257, 50304)] == [0, 47, 0]
