"""Parameters that become something else before they meet the data are clipped exactly, without the fallback."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from discreet.learning import Engine, Flat
from tests.learning.engine import truth

B, T, D = 5, 4, 6


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class Model(nn.Module):
    """A function of its parameters and of inputs [B, T, D]."""

    def __init__(self, function, **shapes):
        super().__init__()
        self.function = function
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(0.5 * randn(*shape)))

    def forward(self, x):
        return self.function(self, x)


def attention_bias(m, scores):
    index = (torch.arange(T)[:, None] - torch.arange(T)[None, :]) + T - 1
    bias = m.table[index.view(-1)].view(T, T, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
    return (scores + bias).softmax(-1)


def biased_attention(m, x):
    heads = x.view(-1, T, 2, 3).transpose(1, 2)
    return attention_bias(m, heads @ heads.mT) @ heads


def fused_attention(m, x):
    heads = x.view(-1, T, 2, 3).transpose(1, 2)
    bias = F.embedding(torch.arange(T * T).view(T, T) % 7, m.table).permute(2, 0, 1)[None]
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)


def windows(m, x):
    """Two windows of each example, flattened into the batch as in a Swin transformer."""
    heads = x.reshape(-1, 2, 2, D).flatten(0, 1).unsqueeze(1)
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=m.table[None, None]).view(-1, T, D)


def chunks(m, x):
    q, k, v = (F.linear(x, weight) for weight in m.packed.chunk(3))
    return (q @ k.mT).softmax(-1) @ v


def recurrence(m, x):
    h = torch.zeros(x.shape[0], D, dtype=x.dtype)
    for t in range(T):
        h = torch.tanh(x[:, t] + h @ m.u)
    return h


def with_prompt(m, x):
    prompt = m.prompt.tanh().unsqueeze(0).repeat(x.shape[0], 1, 1)
    return torch.cat([prompt, x], 1).cumsum(1)


def rows(m, x):
    first, second = m.pair.unbind()
    return (x * first).tanh() + x * second


def normalized(m, x):
    weight = m.v / m.v.norm(dim=1, keepdim=True) * m.g
    return F.linear(x, weight)


BASE = randn(D, D)

RULED = {
    "one plus a scale": (lambda m, x: x * (1.0 + m.scale.double()), {"scale": (D,)}),
    "a slice of positions": (lambda m, x: (x + m.position[:, :T]).tanh(), {"position": (1, 9, D)}),
    "packed projections": (chunks, {"packed": (3 * D, D)}),
    "a merged adapter": (lambda m, x: F.linear(x, BASE + 0.5 * m.b @ m.a), {"a": (2, D), "b": (D, 2)}),
    "an outer product": (lambda m, x: x @ torch.outer(m.a, m.b), {"a": (D,), "b": (D,)}),
    "a normalized weight": (normalized, {"v": (3, D), "g": (3, 1)}),
    "a table of biases": (biased_attention, {"table": (2 * T - 1, 2)}),
    "biases of fused attention": (fused_attention, {"table": (7, 2)}),
    "biases of windows": (windows, {"table": (2, 2)}),
    "a temperature": (lambda m, x: (x / m.tau.exp()).softmax(-1), {"tau": (1,)}),
    "a power": (lambda m, x: x.abs() ** m.exponent.exp(), {"exponent": (D,)}),
    "a mask token": (lambda m, x: torch.where(x > 0, x, m.token * 2), {"token": (D,)}),
    "a prompt": (with_prompt, {"prompt": (2, D)}),
    "tiles": (lambda m, x: x * m.tile.repeat(2, 3), {"tile": (2, 2)}),
    "two rows": (rows, {"pair": (2, D)}),
    "a convolution": (lambda m, x: F.conv1d(x, m.kernel.softmax(-1)), {"kernel": (3, T, 2)}),
    "a weight and its transpose": (lambda m, x: (x @ m.w).tanh() @ m.w.t().contiguous(), {"w": (D, 2)}),
    "a value in two places": (lambda m, x: (x * m.s.exp()).tanh() * m.s.exp() + m.s, {"s": (D,)}),
    "a product with einsum": (lambda m, x: torch.einsum("btd,hkd->bhtk", x, m.w), {"w": (2, 3, D)}),
    "einsum with an ellipsis": (lambda m, x: torch.einsum("d k, ... d -> ... k", m.w, x), {"w": (D, 2)}),
    "einsum over several indices": (lambda m, x: torch.einsum("btd,tdk->kb", x, m.w).t(), {"w": (T, D, 2)}),
    "a vector": (lambda m, x: (x @ m.w).tanh(), {"w": (D,)}),
    "a product from the left": (lambda m, x: m.w @ x, {"w": (3, T)}),
    "a transposed table": (lambda m, x: F.embedding((x[..., 0] > 0).long(), m.w.T), {"w": (D, 2)}),
    "a transposed convolution": (
        lambda m, x: F.conv_transpose1d(x, m.w.tanh(), m.b, stride=2, padding=1, output_padding=1, groups=2),
        {"w": (T, 3, 3), "b": (6,)},
    ),
    "slopes below zero": (lambda m, x: F.prelu(x, m.slope) + F.prelu(-x, m.one.exp()), {"slope": (T,), "one": (1,)}),
    "a state that starts at zero": (recurrence, {"u": (D, D)}),
}


def loss(model, batch):
    return model(batch).flatten(1).square().sum(1)


def assert_exact(model, *, compile=False, examples=B, order=2):
    batch = randn(examples, T, D)
    engine = Engine(model, loss, Flat(0.3, order=order), compile=compile)
    found = engine(batch, torch.ones(examples, dtype=torch.bool))
    each = truth.gradients(model, loss, batch)
    weights = (0.3 / truth.norms(each, order)).clamp(max=1.0)
    assert truth.worst(found.sums, truth.clipped(each, weights)) < 1e-9
    return engine.report


@pytest.mark.parametrize("name", RULED)
def test_a_value_that_all_examples_share_has_a_rule(name):
    torch.manual_seed(0)
    function, shapes = RULED[name]
    assert "fallback" not in assert_exact(Model(function, **shapes))


SOME = ["a merged adapter", "a table of biases", "two rows"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("examples", [T, D, 1])
def test_the_number_of_examples_may_be_that_of_another_dimension(name, examples):
    torch.manual_seed(0)
    function, shapes = RULED[name]
    assert "fallback" not in assert_exact(Model(function, **shapes), examples=examples)


@pytest.mark.parametrize("name", SOME)
def test_its_gradient_is_clipped_in_l1_too(name):
    torch.manual_seed(0)
    function, shapes = RULED[name]
    assert "fallback" not in assert_exact(Model(function, **shapes), order=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULED)
def test_it_compiles(name):
    torch.manual_seed(0)
    function, shapes = RULED[name]
    assert "\ncompiled" in assert_exact(Model(function, **shapes), compile=True)


def test_a_parametrization_has_a_rule():
    torch.manual_seed(0)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(D, 3)), nn.Tanh(), nn.Linear(3, 2)).double()
    assert "fallback" not in assert_exact(model)


def converted_for_nothing(m, x):
    m.scale.float()
    return x * (1.0 + m.scale.float())


@pytest.mark.parametrize("function", [lambda m, x: x * (1.0 + m.scale.float()), converted_for_nothing])
def test_conversions_that_do_nothing_in_one_type_do_not_hide_it(function):
    """In float32 `float()` returns the parameter itself, in the dry run's float64 it returns a copy."""
    torch.manual_seed(0)
    model = Model(function, scale=(D,)).float()
    engine = Engine(model, loss, Flat(0.3), compile=False)
    engine(randn(B, T, D).float(), torch.ones(B, dtype=torch.bool))
    assert "scale: mul" in engine.report


def in_place(m, x):
    doubled = m.w * 2
    doubled.mul_(3)
    return x * doubled


def through_a_view(m, x):
    doubled = m.w * 2
    first = doubled[:3]
    doubled.mul_(3)
    return x[..., :3] * first


def dropped(m, x):
    return x * F.dropout(m.w.exp(), 0.5)


@pytest.mark.parametrize("function", [in_place, through_a_view])
def test_a_value_that_is_written_in_place_is_clipped_exactly(function):
    torch.manual_seed(0)
    assert_exact(Model(function, w=(D,)))


def test_a_value_that_draws_random_numbers_is_none_of_these():
    """They would be others when it is computed again for the gradients."""
    torch.manual_seed(0)
    engine = Engine(Model(dropped, w=(D,)), loss, Flat(1e6), compile=False)
    engine(randn(B, T, D), torch.ones(B, dtype=torch.bool))
    assert "w: fallback (vmap), because of dropout" in engine.report


def masked(m, x):
    """Looks at the values of a mask to leave out work, but not while it is traced, as transformers' models do."""
    bias = m.bias.unsqueeze(0)
    if not torch.compiler.is_compiling() and not isinstance(x, torch._subclasses.FakeTensor) and (x < 1e9).all():
        return x + bias
    return x + torch.where(x < 1e9, 0.0, 1.0) * bias.exp() + bias


def test_the_dry_run_takes_the_way_that_the_trace_took():
    """The code with values has no `exp`: a dry run that took it would record other operations than the trace."""
    torch.manual_seed(0)
    model = Model(masked, bias=(T, D))
    assert "fallback" not in assert_exact(model)


COMPARISONS = {
    "below nothing": lambda number: number < -0.0,
    "above nothing": lambda number: number > 0.0,
    "from nothing on": lambda number: number >= 0.0,
    "up to everything": lambda number: number <= 1.0,
    "below everything": lambda number: torch.lt(number, 1.5),
    "above everything": lambda number: number.gt(1.0),
}


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_comparison_that_no_draw_changes_does_not_end_the_proof(compare):
    """As of models that leave out a layer with a probability of 0."""

    def with_layers(m, x):
        return x * m.w if COMPARISONS[compare](torch.rand([])) else x + m.w

    torch.manual_seed(0)
    assert "w: " + ("add" if "above every" in compare or "below no" in compare else "mul") in assert_exact(
        Model(with_layers, w=(D,))
    )


UNDECIDED = {
    "a probability": (torch.rand, lambda number: number < 0.5),
    "up to nothing": (torch.rand, lambda number: number <= 0.0),
    "other numbers": (torch.randn, lambda number: number < 0.0),
    "a number that was written": (torch.rand, lambda number: number.add_(1) < 1.0),
    "an answer that was written": (torch.rand, lambda number: (number < 0.0).logical_not_()),
    "several numbers": (torch.rand, lambda number: (number.expand(2) < 0.0).all()),
}


@pytest.mark.parametrize("draw", UNDECIDED)
def test_any_other_branch_on_a_draw_is_not_proved(draw):
    function, compare = UNDECIDED[draw]

    def with_layers(m, x):
        return x * m.w if compare(function([])) else x + m.w

    torch.manual_seed(0)
    engine = Engine(Model(with_layers, w=(D,)), loss, Flat(0.3), compile=False)
    engine(randn(B, T, D), torch.ones(B, dtype=torch.bool))
    assert "not proved apart: the pass could not be traced without data" in engine.report
