"""Where the examples lie is proved on the traced pass; what three examples show may be a coincidence.

In each case something makes the dry run of three examples see another layout than that of the whole batch. Without the
proof, one example moved the sum by five to twenty clip norms.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning import Engine, Flat
from discreet.learning.engine.independence import Along, Misplaced, Watch
from discreet.learning.engine.layout import Layout
from discreet.learning.engine.trace.compiling import as_compiled
from discreet.learning.engine.trace.placement import placed

B, D, CLIP = 6, 3, 0.3
EVERYONE = torch.ones(B, dtype=torch.bool)
WITHOUT = EVERYONE.clone()
WITHOUT[4] = False


class Model(nn.Module):
    def __init__(self, function, **shapes):
        super().__init__()
        self.function, self.calls, self.kept = function, 0, None
        self.register_buffer("buffer", torch.zeros(D, dtype=torch.float64))
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, dtype=torch.float64) / 2))

    def forward(self, x):
        self.calls += 1
        return self.function(self, x)


def moved(engine, ordinary, extreme):
    """How far the sum moves, in clip norms, if example 4 comes and is extreme; and if it changes while it is away."""

    def total(one, other):
        return math.sqrt(sum(float((one[name] - other[name]).square().sum()) for name in one)) / CLIP

    def sums(batch, mask):
        return {name: value.clone() for name, value in engine(batch, mask).sums.items()}

    away = sums(ordinary, WITHOUT)
    return total(away, sums(extreme, EVERYONE)), total(away, sums(extreme, WITHOUT))


def assert_bounded(function, compile=False, loss=None, **shapes):
    torch.manual_seed(3)
    ordinary = torch.rand(B, D, dtype=torch.float64) + 0.5
    extreme = ordinary.clone()
    extreme[4] = 100.0
    engine = Engine(
        Model(function, **shapes), loss or (lambda m, x: m(x).flatten(1).sum(1)), Flat(CLIP), compile=compile
    )
    engine(ordinary, EVERYONE)
    come, away = moved(engine, ordinary, extreme)
    assert come <= 1 + 1e-9
    assert away <= 1e-9
    return engine.report


def crossed(m, x):
    """The gate is repeated to [B], and meets [B, 1]: a table of pairs, whose rows sum to something for large x only."""
    x = x.sum(1, keepdim=True)
    return (x * m.gate) - torch.lerp(torch.zeros_like(x), F.relu(x - 20), m.gate)


def crossed_vector(m, x):
    x = x[:, None, :]
    return x * m.gate - torch.addcmul(torch.zeros_like(x), F.relu(x - 20), m.gate)


def crossed_limit(m, x):
    x = x[:, None, :]
    return x * m.gate - torch.clamp(F.relu(x - 20), max=m.gate.exp())


def other_order(m, x):
    """Examples lie in the first factor of a dimension in a batch of three, and in the second in others."""
    x = x[:, None, :].expand(-1, B, -1) * torch.arange(1.0, B + 1)[:, None]
    flat = x.flatten(0, 1) if len(x) == 3 else x.transpose(0, 1).flatten(0, 1)
    h = F.linear(flat, m.w)
    return h.unflatten(0, (-1, B)) if len(x) == 3 else h.unflatten(0, (B, -1)).transpose(0, 1)


def other_order_later(m, x):
    x = x[:, None, :].expand(-1, B, -1) * torch.arange(1.0, B + 1)[:, None]
    later = m.calls > 1
    h = F.linear(x.flatten(0, 1) if later else x.transpose(0, 1).flatten(0, 1), m.w)
    return h.unflatten(0, (-1, B)) if later else h.unflatten(0, (B, -1)).transpose(0, 1)


CASES = {
    "a number": (crossed, {"gate": ()}),
    "a vector": (crossed_vector, {"gate": (D,)}),
    "a limit": (crossed_limit, {"gate": (D,)}),
    "the size of the batch": (other_order, {"w": (2, D)}),
    "a count of calls": (other_order_later, {"w": (2, D)}),
}


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_an_example_is_clipped_where_it_lies_in_the_whole_batch(name, compile):
    function, shapes = CASES[name]
    assert_bounded(function, compile, **shapes)


def test_a_layout_that_only_the_first_three_examples_suggest_is_not_used():
    """Their words happen to come from the first, second and last third of a table, so its rows look like examples."""
    torch.manual_seed(3)
    base = torch.zeros(12 * B, D, dtype=torch.float64)

    def loss(model, batch):
        return (F.embedding(batch[0], base + model.c) * batch[1]).flatten(1).sum(1)

    words = torch.randint(0, len(base), (B, 9))
    words[:3] = words[:3] % (4 * B) + 4 * B * torch.arange(3)[:, None]
    words[4] = torch.arange(9) * 5 % len(base)
    weights = torch.randn(B, 9, D, dtype=torch.float64) / 1000
    large = weights.clone()
    large[4] = 100.0
    engine = Engine(Model(None, c=(D,)), loss, Flat(CLIP), compile=False)
    engine((words, weights), EVERYONE)
    come, away = moved(engine, (words, weights), (words, large))
    assert come <= 1 + 1e-9
    assert away <= 1e-9


def test_a_value_that_is_the_same_for_each_example_is_marked_as_theirs():
    x = torch.randn(4, D)
    with Watch([x], 4) as watch:
        copies = torch.ones(D).expand(4, D)
        assert watch.of(placed(copies, (), Layout(0, "whole"), watch)) == Along(0)
        with pytest.raises(Misplaced):
            placed(x * torch.ones(4, 1), (), Layout(1, "whole"), watch)
        with pytest.raises(Misplaced):
            placed(torch.arange(4.0) * 2, (), Layout(0, "whole"), watch)
        with pytest.raises(Misplaced):
            placed(copies, (x.t().contiguous(),), Layout(0, "whole"), watch)


def constant_written(m, x):
    """The derivative of the sine is computed again after the pass, when the constant is another one."""
    c = torch.zeros(D, dtype=x.dtype)
    y = (m.w * 0.1 + c).sin()
    c.add_((x > 50).any().to(x.dtype) * math.pi)
    return x.abs() * y


def operand_written(m, x):
    z = m.v * 0.1
    y = (m.w * 0.1 + z).sin()
    with torch.no_grad():
        z.add_((x > 50).any().to(x.dtype) * math.pi)
    return x.abs() * y


def input_written_through_data(m, x):
    copy = x.clone()
    h = F.linear(copy, m.w).tanh()
    copy.data.mul_(1 - 2 * (x > 50).any().to(x.dtype))
    return h


def saved_value_written_through_data(m, x):
    y = x.clone()
    out = F.linear(x, m.w) * y
    y.data.mul_(1 - 2 * (x > 50).any().to(x.dtype))
    return out


def input_written_among_others(m, x):
    copy = x.clone()
    h = F.linear(copy, m.w).tanh()
    torch._foreach_mul_([copy], [1 - 2 * (x > 50).any().to(x.dtype)])
    return h


def saved_value_written_among_others(m, x):
    y = x.clone()
    out = F.linear(x, m.w) * y
    torch._foreach_mul_([y], [1 - 2 * (x > 50).any().to(x.dtype)])
    return out


def input_written_in_inference(m, x):
    copy = x.clone()
    h = F.linear(copy, m.w).tanh()
    with torch.inference_mode():
        copy.mul_(1 - 2 * (x > 50).any().to(x.dtype))
    return h


def input_written_behind_a_counter(m, x):
    copy = x.clone()
    h = F.linear(copy, m.w).tanh()
    with torch.autograd._unsafe_preserve_version_counter(copy):
        copy.mul_(1 - 2 * (x > 50).any().to(x.dtype))
    return h


WRITES = {
    "a constant": (constant_written, {"w": (D,)}),
    "another value": (operand_written, {"v": (D,), "w": (D,)}),
    "an input, through .data": (input_written_through_data, {"w": (D, D)}),
    "a saved value, through .data": (saved_value_written_through_data, {"w": (D, D)}),
    "an input, with several at once": (input_written_among_others, {"w": (D, D)}),
    "a saved value, with several at once": (saved_value_written_among_others, {"w": (D, D)}),
    "an input, in inference mode": (input_written_in_inference, {"w": (D, D)}),
    "an input, uncounted": (input_written_behind_a_counter, {"w": (D, D)}),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_rule_reads_later_is_not_written_with_other_examples(name):
    function, shapes = WRITES[name]
    try:
        assert_bounded(function, **shapes)
    except (DiscreetError, RuntimeError) as error:
        if "in-place" not in str(error) and "inplace" not in str(error):
            raise


def test_a_constant_that_changes_after_use_is_not_part_of_a_shared_value():
    assert "in turn" in assert_bounded(constant_written, w=(D,))


def written_in_another_shape(m, x):
    c = torch.zeros(D, dtype=x.dtype)
    y = (m.w * 0.1 + c).sin()
    if len(x) > B:
        c.add_((x > 50).any().to(x.dtype) * math.pi)
    return x.abs() * y


def dependent_in_another_shape(m, x):
    scale = torch.ones(1, 1, dtype=x.dtype) if len(x) <= B else x.sum(1, keepdim=True)
    return x.abs() * (m.w * scale).exp()


@pytest.mark.parametrize("function", [written_in_another_shape, dependent_in_another_shape])
def test_values_that_all_examples_share_are_proved_for_each_shape(function):
    torch.manual_seed(0)
    engine = Engine(Model(function, w=(D,)), lambda m, x: m(x).sum(1), Flat(CLIP), compile=False)
    engine(torch.rand(B, D, dtype=torch.float64), EVERYONE)
    assert "w: mul" in engine.report
    with pytest.raises(DiscreetError, match=r"must not change|depends on an example now"):
        engine(torch.rand(B + 1, D, dtype=torch.float64), torch.ones(B + 1, dtype=torch.bool))


def remembering(m, x):
    """Without a rule for its parameter; alone, an example reads the batch that was kept by the pass before."""
    sign = 1.0
    if len(x) == 1:
        sign = 1 - 2 * (m.kept > 50).any().to(x.dtype)
    else:
        m.kept = x
    doubled = m.w * 2
    doubled.mul_(3)
    return x.abs() * doubled.sin() * sign


def test_the_fallback_cannot_read_what_the_pass_before_left():
    with pytest.raises(InvalidArgument, match="one pass to the next"):
        assert_bounded(remembering, w=(D,))


def test_overlapping_passes_leave_no_flag_behind():
    first, second = as_compiled(), as_compiled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.compiler.is_compiling()
    second.__exit__(None, None, None)
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("shapes", [((B, 4, 1), (D, 2)), ((B, 4, D), (1, 2))])
def test_einsum_expands_a_size_of_one(shapes):
    torch.manual_seed(0)
    batch = torch.randn(shapes[0], dtype=torch.float64)
    model = Model(lambda m, x: torch.einsum("btd,dk->btk", x, m.w), w=shapes[1])
    engine = Engine(model, lambda m, x: m(x).flatten(1).sum(1), Flat(1e6), compile=False)
    found = engine(batch, EVERYONE).sums["w"]
    model(batch).sum().backward()
    torch.testing.assert_close(found, model.w.grad)


def test_a_parameter_with_as_many_numbers_as_examples_in_the_dry_run_is_clipped():
    """Repeated for three examples, it still fits three columns; for more it does not."""
    assert_bounded(lambda m, x: (x * m.s).clamp(max=m.t.exp() + 30), s=(), t=())


def test_complex_parameters_are_refused():
    model = nn.Linear(2, 2)
    model.weight = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    with pytest.raises(InvalidArgument, match="complex"):
        Engine(model, lambda m, x: m(x).abs().sum(1), Flat(1.0))


def buffer_written(m, x):
    """The write is in the graph before the proof ends, and the model goes on."""
    try:
        with torch.no_grad():
            m.buffer.copy_((x > 50).any().to(x.dtype).expand(D) * 2)
    except Exception:  # whatever ends the proof
        pass
    return F.linear(x, m.w).tanh() * x * (1 - m.buffer)


def values_read(read):
    def function(m, x):
        try:
            large = max(max(row) for row in read(x)) > 50
        except Exception:  # without data
            large = False
        return F.linear(x, m.w).tanh() * (-1 if large else 1)

    return function


CAUGHT = {
    "a write into a buffer": buffer_written,
    "tolist": values_read(lambda x: x.tolist()),
    "numpy": values_read(lambda x: x.numpy().tolist()),
}


@pytest.mark.parametrize("python_only", [False, True])
@pytest.mark.parametrize("name", CAUGHT)
def test_a_model_cannot_catch_the_end_of_its_proof(name, python_only, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("no trace")

    if python_only:  # then the code runs again, and is followed as it runs
        monkeypatch.setattr("discreet.learning.engine.engine.run_flat", fails)
    try:
        assert_bounded(CAUGHT[name], w=(D, D))
    except DiscreetError as error:
        if "proved" not in str(error) and "must not" not in str(error):
            raise


def test_a_recurrent_layer_that_reads_no_example_is_clipped():
    """Its gates are free, and what the layer returns is not computed from their copy."""
    torch.manual_seed(0)
    batch = torch.randn(B, 4, D, dtype=torch.float64)

    class Answers(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(D, D, batch_first=True).double()

        def forward(self, x):
            return self.gru(torch.ones_like(x))[0] * x

    model = Answers()
    engine = Engine(model, lambda m, x: m(x).flatten(1).sum(1), Flat(1e6), compile=False)
    found = engine(batch, EVERYONE).sums
    model(batch).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
