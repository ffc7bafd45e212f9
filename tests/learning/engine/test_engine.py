"""The engine's promises besides exactness: masks, splits, non-finite examples, randomness, types, refusals."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning import Engine, Flat, clipped_sum, losses
from discreet.learning.engine import clipped, shared_parameters
from discreet.learning.engine.operations import arithmetic
from discreet.learning.engine.operations.linear import BiasVector
from tests.learning.engine import truth
from tests.learning.engine.test_operations import LOSS, compare, model_and_batch


def mlp(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)


def data(size=8, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(size, 6, dtype=dtype), torch.randint(0, 4, (size,))


def rows(batch, *chosen):
    return tuple(x[list(chosen)] for x in batch)


def test_a_split_batch_gives_the_same_sum():
    """A microbatch only saves memory: examples are clipped one by one either way."""
    model, batch = mlp(), data()
    whole = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3)).sums
    first = clipped_sum(model, F.cross_entropy, rows(batch, 0, 1, 2), clipping=Flat(0.3)).sums
    second = clipped_sum(model, F.cross_entropy, rows(batch, 3, 4, 5, 6, 7), clipping=Flat(0.3)).sums
    assert truth.worst({n: first[n] + second[n] for n in first}, whole) < 1e-12


def test_masked_rows_add_exactly_nothing():
    model, batch = mlp(), data()
    mask = torch.tensor([True, False] * 4)
    masked = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3), mask=mask).sums
    alone = clipped_sum(model, F.cross_entropy, rows(batch, 0, 2, 4, 6), clipping=Flat(0.3)).sums
    assert truth.worst(masked, alone) < 1e-12
    nothing = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3), mask=torch.zeros(8, dtype=torch.bool))
    assert all(not value.any() for value in nothing.sums.values())


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e300])
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_example_that_is_not_finite_adds_nothing_and_spoils_nothing(poison, compile):
    model, batch = mlp(), data()
    batch[0][2] = poison
    batch[0][5, 0] = poison
    found = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3), compile=compile)
    alone = clipped_sum(model, F.cross_entropy, rows(batch, 0, 1, 3, 4, 6, 7), clipping=Flat(0.3))
    assert found.finite.tolist() == [True, True, False, True, True, False, True, True]
    assert truth.worst(found.sums, alone.sums) < 1e-12


def test_a_batch_without_a_finite_example_is_zero():
    model, batch = mlp(), data()
    batch[0].fill_(float("nan"))
    found = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3))
    assert not found.finite.any()
    assert all(not value.any() for value in found.sums.values())


def test_a_non_finite_first_batch_does_not_change_the_report():
    """The dry run sees it first, and must neither fail nor choose another path."""
    model, ordinary, nonfinite = mlp(), data(), data()
    nonfinite[0][:3] = float("nan")
    engines = [Engine(model, F.cross_entropy, Flat(1.0), compile=False) for _ in range(2)]
    for engine, batch in zip(engines, (ordinary, nonfinite), strict=True):
        engine(batch, torch.ones(8, dtype=torch.bool))
    reports = [engine.report.rpartition("\n")[0] for engine in engines]
    assert reports[0] == reports[1]


def test_no_example_moves_the_sum_by_more_than_the_norm():
    model, batch = mlp(torch.float32), data(dtype=torch.float32)
    for scale in (1e-6, 1.0, 1e6, 1e12):
        for row in range(3):
            one = (rows(batch, row)[0] * scale, rows(batch, row)[1])
            found = clipped_sum(model, F.cross_entropy, one, clipping=Flat(0.7))
            whole = torch.cat([value.flatten().double() for value in found.sums.values()])
            assert float(whole.norm()) <= 0.7


class Cancelling(nn.Module):
    """The gradient of the weight is a small difference of large terms: Σ_t g_t a_tᵀ with g_1 ≈ -g_2 and a_1 ≈ a_2."""

    def __init__(self, tilt):
        super().__init__()
        self.inner, self.tilt = nn.Linear(64, 64, bias=False), tilt

    def forward(self, x):
        pair = torch.stack([x, x * (1 + self.tilt)], 1)
        out = self.inner(pair)
        return (out[:, 0] - out[:, 1]) * 1e4


@pytest.mark.parametrize("tilt", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_terms_that_cancel_do_not_hide_a_long_gradient(tilt):
    """Gram matrices lose half of the digits, so the norm is rounded up by what they may have lost."""
    torch.manual_seed(0)
    model, one = Cancelling(tilt), (torch.randn(1, 64) * 30, torch.randint(0, 64, (1,)))
    found = clipped_sum(model, F.cross_entropy, one, clipping=Flat(1.0))
    assert float(found.sums["inner.weight"].double().norm()) <= 1.0


def test_a_tiny_clip_norm_bounds_gradients_whose_squares_underflow():
    model = nn.Linear(4, 4, bias=False)
    one = (torch.full((1, 4), 1e-24), torch.zeros(1).long())
    found = clipped_sum(model, F.cross_entropy, one, clipping=Flat(1e-30))
    assert float(found.sums["weight"].double().norm()) <= 1e-30


def test_the_clip_norm_is_an_argument():
    model, batch = mlp(), data()
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    mask = torch.ones(8, dtype=torch.bool)
    small = engine(batch, mask, 1e-3).sums
    smaller = engine(batch, mask, torch.tensor(5e-4, dtype=torch.float64)).sums
    assert truth.worst({n: value / 2 for n, value in small.items()}, smaller) < 1e-12
    with pytest.raises(InvalidArgument, match="clip_norm must be > 0"):
        engine(batch, mask, -1.0)


def test_dropout_draws_once_for_norm_and_sum():
    """The sum of one clipped example has norm C exactly, whatever was dropped."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 4)).double()
    engine = Engine(model, F.cross_entropy, Flat(1e-3), compile=False)
    seen, one = [], rows(data(), 0)
    for _ in range(3):
        found = engine(one, torch.ones(1, dtype=torch.bool))
        whole = torch.cat([value.flatten() for value in found.sums.values()])
        assert float(whole.norm()) == pytest.approx(1e-3, rel=1e-9)
        seen.append(float(found.losses[0]))
    assert len(set(seen)) == 3


@pytest.mark.slow
def test_compiled_dropout_draws_new_numbers_in_each_call():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 4)).double()
    engine = Engine(model, F.cross_entropy, Flat(1e-3), compile=True)
    one = rows(data(), 0)
    found = [engine(one, torch.ones(1, dtype=torch.bool)) for _ in range(3)]
    assert "\ncompiled" in engine.report
    assert len({float(result.losses[0]) for result in found}) == 3
    for result in found:
        whole = torch.cat([value.flatten() for value in result.sums.values()])
        assert float(whole.norm()) == pytest.approx(1e-3, rel=1e-9)


def test_the_dry_run_leaves_the_users_generator_alone():
    model, batch = mlp(), data()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    clipped_sum(model, F.cross_entropy, batch, clipping=Flat(1.0))
    assert torch.equal(torch.rand(3), expected)


def test_autocast_keeps_norms_and_sums_in_single_precision():
    model, batch = mlp(torch.float32), data(dtype=torch.float32)
    engine = Engine(model, F.cross_entropy, Flat(0.3), compile=False, dtype=torch.bfloat16)
    found = engine(batch, torch.ones(8, dtype=torch.bool))
    exact = clipped_sum(model, F.cross_entropy, batch, clipping=Flat(0.3))
    assert {value.dtype for value in found.sums.values()} == {torch.float32}
    assert found.norms.dtype == torch.float32
    assert truth.worst(found.sums, exact.sums) < 0.05


def test_nothing_is_left_on_the_model():
    model, batch = model_and_batch("lstm")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    clipped_sum(model, F.cross_entropy, batch, clipping=Flat(1.0))
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.inner._flat_weights[0] is model.inner.weight_ih_l0
    copy.deepcopy(model)


def test_a_change_of_mode_is_noticed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)).double()
    engine = Engine(model, F.cross_entropy, Flat(1e3), compile=False)
    mask = torch.ones(8, dtype=torch.bool)
    engine(data(), mask)
    model.eval()
    found = engine(data(), mask)
    assert truth.worst(found.sums, truth.clipped(truth.gradients(model, LOSS, data()), torch.ones(8))) < 1e-9


class Centered(nn.Module):
    """Subtracts the batch's mean, which shows in the gradients but in no module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 4)

    def forward(self, x):
        return self.inner(x - x.mean(0))


class Overwritten(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        x = x * 2
        y = self.inner(x)
        x += 1
        return self.head(y + x)


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (Centered, F.cross_entropy),
        (mlp, lambda model, b: F.cross_entropy(model(b[0]), b[1], reduction="none") / b[0].norm()),
        (mlp, lambda model, b: (lambda s: F.cross_entropy(s - s.mean(0), b[1], reduction="none"))(model(b[0]))),
    ],
)
def test_mixed_examples_are_refused(model, loss):
    with pytest.raises(InvalidArgument, match="one example at a time"):
        clipped_sum(model().double(), loss, data(), clipping=Flat(1.0))


def test_an_input_that_is_overwritten_is_refused():
    with pytest.raises((InvalidArgument, RuntimeError), match=r"in-place|inplace"):
        clipped_sum(Overwritten().double(), F.cross_entropy, data(), clipping=Flat(1.0))


def test_a_mean_over_the_batch_is_refused_with_the_fix():
    with pytest.raises(InvalidArgument, match='reduction="none"'):
        clipped_sum(mlp(), lambda m, b: F.cross_entropy(m(b[0]), b[1]), data(), clipping=Flat(1.0))


def test_a_batch_without_examples_in_its_rows_is_refused():
    with pytest.raises(InvalidArgument, match="first dimension"):
        clipped_sum(mlp(), F.cross_entropy, (torch.randn(8, 6), torch.zeros(7).long()), clipping=Flat(1.0))


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(InvalidArgument, match="trainable"):
        Engine(mlp().requires_grad_(False), F.cross_entropy, Flat(1.0))


def test_a_compiler_that_fails_logs_one_line(monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr("discreet.learning.engine.engine.compile_flat", broken)
    with caplog.at_level(logging.WARNING):
        found = clipped_sum(mlp(), F.cross_entropy, data(), clipping=Flat(0.3), compile=True)
    assert len(caplog.records) == 1
    assert "torch.compile failed" in caplog.text
    assert truth.worst(found.sums, clipped_sum(mlp(), F.cross_entropy, data(), clipping=Flat(0.3)).sums) < 1e-12


def test_a_path_that_depends_on_the_data_is_taken_by_each_example_alone():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            return self.a(x) if float(x.detach().sum()) > 0 else self.b(x) + self.a(x)

    model, (x, y) = Branching().double(), data()
    x = x.abs()  # all examples take one path, so that the dry run sees no mixing
    found = Engine(model, F.cross_entropy, Flat(0.3), compile=False)((x, y), torch.ones(8, dtype=torch.bool))
    each = truth.gradients(model, losses.per_example(F.cross_entropy), (x, y))
    expected = truth.clipped(each, (0.3 / truth.norms(each)).clamp(max=1.0))
    assert truth.worst(found.sums, expected) < 1e-12


# Mutants: a published implementation has made each of these mistakes, and the comparison above must catch it.


def clip_the_batch(monkeypatch):
    monkeypatch.setattr(clipped.torch, "stack", torch.stack)
    original = Flat.weights
    monkeypatch.setattr(
        Flat, "weights", lambda s, n, c: original(s, n.square().sum(1, keepdim=True).sqrt(), c).expand_as(n)
    )


def skip_the_bias(monkeypatch):
    monkeypatch.setattr(
        BiasVector, "per_example", lambda s, i, g: torch.zeros(g.shape[0], g.shape[s.channel], dtype=g.dtype)
    )


def forget_the_cross_terms(monkeypatch):
    monkeypatch.setattr(
        clipped, "norm_power", lambda uses, order: sum(u.rule.norm_power(u.inputs, u.grad, order) for u in uses)
    )


def ignore_the_mask(monkeypatch):
    original = clipped.clip_uses
    monkeypatch.setattr(clipped, "clip_uses", lambda p, w, s, n, m, *r: original(p, w, s, n, torch.ones_like(m), *r))


def clip_microbatches(monkeypatch):
    original = Flat.weights

    def weights(self, norms, clip_norm):
        pairs = norms.clone()
        pairs[:, :4] = norms[:, :4].view(-1, 2, 2).square().sum(2, keepdim=True).sqrt().expand(-1, 2, 2).reshape(-1, 4)
        return original(self, pairs, clip_norm)

    monkeypatch.setattr(Flat, "weights", weights)


def survives(name):
    try:
        return "fallback" not in compare(*model_and_batch(name), 1e-9).report
    except (AssertionError, DiscreetError):
        return False


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (clip_the_batch, "linear"),
        (skip_the_bias, "linear"),
        (forget_the_cross_terms, "transformer, tied"),
        (forget_the_cross_terms, "a layer called several times"),
        (ignore_the_mask, "linear"),
        (clip_microbatches, "linear"),
    ],
)
def test_the_comparison_catches(mutant, name, monkeypatch):
    mutant(monkeypatch)
    assert survives(name) is False


def test_a_wrong_rule_is_found_by_the_dry_run_and_replaced(monkeypatch):
    """The rule skips the bias, the dry run notices, and the fallback gives the right sums."""
    skip_the_bias(monkeypatch)
    engine = compare(*model_and_batch("linear"), 1e-9)
    assert "0.bias: fallback" in engine.report


def test_cross_terms_do_not_need_materialized_gradients(monkeypatch):
    """GPT-2's embedding table is never materialized per example."""
    monkeypatch.setattr(arithmetic, "CHUNK_ELEMENTS", 64)
    compare(*model_and_batch("transformer, tied"), 1e-9)
    calls = []
    original = shared_parameters.EmbeddingWeight.per_example
    monkeypatch.setattr(shared_parameters.EmbeddingWeight, "per_example", lambda *a: calls.append(1) or original(*a))
    model, batch = model_and_batch("transformer, tied")
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    mask = torch.ones(5, dtype=torch.bool)
    engine(batch, mask)
    calls.clear()
    engine(batch, mask)
    assert not calls


class Said:
    """An announcement that always gives the same answer, whatever the batch holds."""

    def __init__(self, answer: bool) -> None:
        self.answer, self.calls = answer, []

    def expect(self) -> None:
        self.calls.append("expect")

    def wait(self) -> bool:
        self.calls.append("wait")
        return self.answer


def test_an_announcement_that_does_not_come_makes_the_engine_look_for_itself(monkeypatch):
    said = Said(False)
    expected = Engine(mlp(), F.cross_entropy, Flat(1.0), compile=False)(data(), torch.ones(8, dtype=torch.bool))
    monkeypatch.setattr("discreet.learning.engine.graph.compilation.Compiled.announcement", said)
    engine = Engine(mlp(), F.cross_entropy, Flat(1.0), compile=False)
    for _ in range(2):
        result = engine(data(), torch.ones(8, dtype=torch.bool))
        assert bool(result.finite.all())
        for name, value in expected.sums.items():
            assert torch.allclose(result.sums[name], value)
    assert said.calls == ["expect", "wait"] * 2


def test_an_old_announcement_is_not_asked_about_a_call_without_one(monkeypatch):
    """The model's own code runs in the second call. The mutant, an engine that keeps the last answer, releases NaN."""
    said = Said(True)
    monkeypatch.setattr("discreet.learning.engine.graph.compilation.Compiled.announcement", said)
    engine, mask = Engine(mlp(), F.cross_entropy, Flat(1.0), compile=False), torch.ones(8, dtype=torch.bool)
    engine(data(), mask)
    engine._python_only = True
    inputs, targets = data()
    inputs[2] = float("nan")
    result = engine((inputs, targets), mask)
    assert result.finite.tolist() == [True, True, False, *[True] * 5]
    assert all(torch.isfinite(value).all() for value in result.sums.values())
    assert said.calls == ["expect", "wait"]


class Counted(nn.Module):
    """Notes on what its code ran: tensors with data, or without."""

    def __init__(self, tangled=False):
        super().__init__()
        self.inner, self.tangled, self.seen = nn.Linear(4, 3), tangled, []
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.seen.append(isinstance(x, FakeTensor))
        scale = torch.outer(self.scale, self.scale).diagonal() if self.tangled else self.scale
        return self.inner(x) * scale


@pytest.mark.parametrize(("tangled", "passes"), [(False, 1), (True, 2)])
def test_the_proof_the_dry_run_and_the_graph_come_from_one_trace(tangled, passes):
    """Unless the dry run finds that the pass has to change. The model's code runs without data first, and proves."""
    model, mask = Counted(tangled), torch.ones(6, dtype=torch.bool)
    batch = torch.randn(6, 4), torch.randint(0, 3, (6,))
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    engine.start(batch)
    engine(batch, mask)
    engine(batch, mask, 0.5)
    assert model.seen[0]
    assert model.seen.count(True) == passes
    assert "fallback" not in engine.report


def test_an_error_of_the_dry_run_leaves_nothing_behind():
    """It ends a trace. The next batch is traced and proved anew, and no mode of the trace stays on."""
    model = nn.Linear(4, 3)
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    batch, mask = (torch.randn(6, 4), torch.randint(0, 3, (6,))), torch.ones(6, dtype=torch.bool)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    with pytest.raises(DiscreetError, match="must be finite"):
        engine.start(batch)
    assert not isinstance(torch.ones(2), FakeTensor)
    with torch.no_grad():
        model.weight.fill_(0.1)
    assert engine(batch, mask).finite.all()


def limited(places: torch.Tensor, limit: int):
    return torch.where(places < limit, places, torch.tensor(limit).type_as(places))


class Scripted(nn.Linear):
    def forward(self, x):
        return super().forward(x) * limited(torch.arange(3, device=x.device), 2)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_a_function_that_torchscript_compiled_runs_as_python_and_is_compiled_again_after_it(monkeypatch):
    torch.manual_seed(0)
    compiled = torch.jit.script(limited)
    monkeypatch.setitem(globals(), "limited", compiled)
    engine = Engine(Scripted(4, 3).double(), F.cross_entropy, Flat(1e6), compile=False)
    for examples in (5, 3):  # another shape is another trace
        batch = torch.randn(examples, 4).double(), torch.randint(0, 3, (examples,))
        found = engine(batch, torch.ones(examples, dtype=torch.bool)).sums["weight"]
        engine.model.zero_grad()
        F.cross_entropy(engine.model(batch[0]), batch[1], reduction="sum").backward()
        torch.testing.assert_close(found, engine.model.weight.grad)
    assert "fallback" not in engine.report
    assert limited is compiled
