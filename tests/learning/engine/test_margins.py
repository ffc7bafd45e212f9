"""What one example adds to a sum has at most the clip norm, also where its terms cancel and products round coarsely.

The examples are made so that large terms cancel to a small gradient. Then the rounding of single terms, which a weight
other than 1 causes, is larger than the gradient itself. The tests compare what is really added with the clip norm.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.learning import Flat
from discreet.learning.engine import Engine
from discreet.learning.engine.clipped import clip_uses
from discreet.learning.engine.operations import arithmetic, convolution, embedding, linear, sequence_norms
from discreet.learning.engine.operations.base import GradientRule
from discreet.learning.engine.operations.convolution import ConvolutionWeight
from discreet.learning.engine.operations.elementwise import Broadcast
from discreet.learning.engine.operations.embedding import EmbeddingWeight
from discreet.learning.engine.operations.linear import BiasVector, LinearWeight
from discreet.learning.engine.operations.recurrent import RecurrentWeight
from discreet.learning.engine.operations.transformed import TransformedParameter
from discreet.learning.engine.shared_parameters import Use, norm_power
from tests.learning.engine.devices import DEVICES

DIGITS = {"ieee": 24, "tf32": 11, "bf16": 8}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 16-bit numbers as CUDA computes them: 16-bit factors, float32 sums."""
    for module in (arithmetic, convolution, linear):
        monkeypatch.setattr(module, "multiplies_narrow", lambda value: value.dtype in arithmetic._NARROW_DIGITS)


def _keep(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the digits of one of torch's precisions of float32 products, whether this CPU has them or not."""
    for module in (arithmetic, convolution, embedding, linear):
        monkeypatch.setattr(module, "float32_digits", lambda device, convolution=False: DIGITS[precision])


def canceling(width_in: int, width_out: int, *, pairs: int = 8, small: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Inputs [2, T, d] and output gradients [2, T, p] of examples whose terms cancel, but for a small last one.

    Terms come in pairs, (5u)(6v)ᵀ and −(6u)(5v)ᵀ, with integers u and v that bfloat16 holds five-fold and six-fold. A
    weight that is no power of two rounds 5u and 6u differently.
    """
    generator = torch.Generator().manual_seed(5)
    u = torch.randint(-16, 17, (2, pairs, width_in), generator=generator).float()
    v = torch.randint(-16, 17, (2, pairs, width_out), generator=generator).float()
    last = torch.full((2, 1, width_in), 1.0), torch.full((2, 1, width_out), small)
    return torch.cat([5 * u, 6 * u, last[0]], 1), torch.cat([6 * v, -5 * v, last[1]], 1)


def added(uses: list[Use], order: int = 2) -> float:
    """What an example's weighted sums add up to, over the bound: at most 1, for several weights."""
    norms = norm_power(uses, order)
    norms = norms.sqrt() if order == 2 else norms
    worst = 0.0
    for share in (1.0, 0.9, 0.77, 0.3, 1e-3, 3.3e-7):
        weights = share / norms
        for example in range(2):
            alone = torch.where(torch.arange(2, device=weights.device) == example, weights, 0.0)
            total = sum(use.rule.weighted_sum(use.inputs, use.grad, alone).double() for use in uses)
            assert isinstance(total, Tensor)
            size = total.abs().sum() if order == 1 else total.square().sum().sqrt()
            worst = max(worst, float(size / share))
    return worst / (1 + 16 * torch.finfo(torch.float32).eps)  # what weights are reduced by


#: A kernel of three places that do not overlap, for which norms come from Gram matrices over positions.
FEW_POSITIONS = ConvolutionWeight((600, 80, 3), (3,), ((0, 0),), (1,), 1)


def few_positions(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Images and output gradients whose terms cancel: in each patch only the pixel in the middle is not zero."""
    a, g = (value.mT for value in canceling(80, 600))
    x = torch.zeros(2, 80, 3 * a.shape[2])
    x[..., 1::3] = a * scale
    assert FEW_POSITIONS.has_small_grams(x, g)
    return x, g.contiguous() * scale


def rules(dtype: torch.dtype) -> dict[str, list[Use]]:
    """Uses of every rule whose norm and sum are computed in different ways, and of some whose are not."""
    a, g = (value.to(dtype) for value in canceling(8, 300))
    b, h = (value.to(dtype) for value in canceling(40, 12))
    ids = torch.zeros(2, a.shape[1], dtype=torch.int64)
    images = a.mT.contiguous(), g[..., :4].mT.contiguous()
    shapes = ((4, 8, 3), (1,), ((1, 1),), (1,))
    wide = ((300, 8, 1), (1,), ((0, 0),), (1,))
    grouped = ((4, 4, 1), (1,), ((0, 0),), (1,), 2)
    few = tuple(value.to(dtype) for value in few_positions())
    table = g[..., :8]
    scale = TransformedParameter(lambda value: value.softmax(0), torch.randn(300))
    return {
        "linear": [Use(LinearWeight(), (a,), g)],
        "transposed": [Use(LinearWeight(True), (b,), h)],
        "one term": [Use(LinearWeight(), (a[:, :1],), g[:, :1])],
        "linear twice": [Use(LinearWeight(), (a,), g), Use(LinearWeight(), (a * 3,), g * 5)],
        "recurrent": [Use(RecurrentWeight(), (a,), g)],
        "gated": [Use(RecurrentWeight(), (a, torch.ones_like(g[..., :100])), g)],
        "convolution": [Use(ConvolutionWeight(*shapes, 1), (images[0],), images[1])],
        "wide convolution": [Use(ConvolutionWeight(*wide, 1), (images[0],), g.mT.contiguous())],
        "few positions": [Use(FEW_POSITIONS, few[:1], few[1])],
        "grouped": [Use(ConvolutionWeight(*grouped), (images[0],), images[1])],
        "embedding": [Use(EmbeddingWeight(300), (ids,), g)],
        "tied": [Use(EmbeddingWeight(300), (ids,), table), Use(LinearWeight(), (a,), g)],
        "bias and table": [Use(BiasVector(), (), g), Use(Broadcast((300,), (1, 300)), (), g)],
        "transformed": [Use(scale, (), g.sum(1))],
    }


@pytest.mark.parametrize("name", rules(torch.float32))
@pytest.mark.parametrize("order", [1, 2])
def test_an_example_adds_at_most_its_bound_in_bfloat16(name, order, narrow):
    assert added(rules(torch.bfloat16)[name], order) <= 1.0


@pytest.mark.parametrize("name", rules(torch.float32))
@pytest.mark.parametrize("precision", DIGITS)
def test_an_example_adds_at_most_its_bound_in_float32(name, precision, monkeypatch):
    _keep(precision, monkeypatch)
    assert added(rules(torch.float32)[name]) <= 1.0


@pytest.mark.parametrize("precision", DIGITS)
def test_norms_from_positions_have_the_margins_of_the_proof(precision, monkeypatch):
    """(s + 5αR²)^½ + κR: each margin alone would hide that the other one is missing."""
    _keep(precision, monkeypatch)
    x, g = few_positions()  # small integers, but for the last pixel: the Gram matrices are nearly exact
    norms = FEW_POSITIONS.norm_power((x,), g, 2).double().sqrt()
    gradient = FEW_POSITIONS.per_example((x.double(),), g.double())
    reach = (x.double()[..., 1::3].norm(dim=1) * g.double().norm(dim=1)).sum(1)
    alpha = 2.0**-19
    rounded = (gradient.square().sum((1, 2, 3)) + 5 * alpha * reach**2).sqrt()
    kappa = 1.02 * 2.0 ** -DIGITS[precision] + 2 * alpha * 18 / 32  # the sum has 17 terms
    torch.testing.assert_close(norms, rounded + kappa * reach, rtol=0.02, atol=0.0)


def test_norms_from_positions_are_of_the_digits_that_the_sum_keeps(monkeypatch):
    _keep("tf32", monkeypatch)
    torch.manual_seed(0)
    x, g = torch.randn(2, 80, 51), torch.randn(2, 600, 17)
    cut = [arithmetic.on_grid(value, 11) for value in (x, g)]
    assert torch.equal(FEW_POSITIONS.norm_power((x,), g, 2), FEW_POSITIONS.norm_power((cut[0],), cut[1], 2))
    weights = torch.tensor([0.3, 0.7])
    assert torch.equal(
        FEW_POSITIONS.weighted_sum((x,), g, weights), FEW_POSITIONS.weighted_sum((cut[0],), cut[1], weights)
    )


def test_gram_matrices_are_of_the_digits_that_the_sum_keeps(monkeypatch):
    torch.manual_seed(0)
    rows = torch.randn(2, 8, 200)
    _keep("tf32", monkeypatch)
    assert torch.equal(arithmetic.gram(rows), arithmetic.gram(arithmetic.on_grid(rows, 11)))
    narrow = arithmetic.gram(rows.bfloat16())
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, rows.bfloat16().float() @ rows.bfloat16().float().mT)


def test_padding_counts_where_gram_matrices_over_positions_are_chosen():
    """With a padding of 36 at 8×8 positions, the padded image's Gram matrix has 41 million entries."""
    x, g = torch.zeros(1, 256, 8, 8), torch.zeros(1, 256, 8, 8)
    assert ConvolutionWeight((256, 256, 3, 3), (1, 1), ((1, 1),) * 2, (1, 1), 1).has_small_grams(x, g)
    assert not ConvolutionWeight((256, 256, 3, 3), (1, 1), ((36, 36),) * 2, (36, 36), 1).has_small_grams(x, g)


def test_norms_from_positions_do_not_depend_on_chunks(monkeypatch):
    torch.manual_seed(0)
    x, g = torch.randn(5, 80, 51), torch.randn(5, 600, 17)
    whole = FEW_POSITIONS.norm_from_positions(x, g)
    monkeypatch.setattr(arithmetic, "CHUNK_ELEMENTS", 3 * 2 * 51**2)
    torch.testing.assert_close(FEW_POSITIONS.norm_from_positions(x, g), whole)


def test_norms_from_positions_do_not_underflow():
    """The square of 1e-23 is zero in float32, but its product with 1e17 is not."""
    for sizes in ((1e-23, 1e17), (1e17, 1e-23)):
        x, g = torch.full((1, 80, 51), sizes[0]), torch.full((1, 600, 17), sizes[1])
        exact = FEW_POSITIONS.per_example((x.double(),), g.double()).square().sum((1, 2, 3))
        assert FEW_POSITIONS.norm_from_positions(x, g).double() >= exact


def test_norms_come_from_positions_only_where_their_rule_holds():
    torch.manual_seed(0)
    x, g = torch.randn(2, 80, 51), torch.randn(2, 600, 17)
    l1 = FEW_POSITIONS.per_example((x,), g).abs().sum((1, 2, 3))
    torch.testing.assert_close(FEW_POSITIONS.norm_power((x,), g, 1), l1, rtol=1e-2, atol=0.0)
    assert FEW_POSITIONS.has_small_grams(x, g)
    frames = x[:, None], g[:, None]
    assert not FEW_POSITIONS.has_small_grams(*frames)
    torch.testing.assert_close(
        FEW_POSITIONS.norm_power(frames[:1], frames[1], 2), FEW_POSITIONS.norm_power((x,), g, 2), rtol=1e-3, atol=0.0
    )
    many_places = ConvolutionWeight((600, 80, 65), (3,), ((32, 30),), (1,), 1)
    assert not many_places.has_small_grams(x, g)
    grouped = ConvolutionWeight((600, 80, 3), (3,), ((0, 0),), (1,), 2)
    assert not grouped.has_small_grams(torch.randn(2, 160, 51), g)


@pytest.mark.parametrize("place", [0, -1])
def test_hundreds_of_places_are_added_up_in_pairs(place):
    """One after the other, 2⁻²⁴ would be lost each time it is added to 1."""
    kernel = 512
    rule = ConvolutionWeight((1, 1, kernel), (kernel,), ((0, 0),), (1,), 1)
    x = torch.full((1, 1, kernel), 2.0**-12)
    x[0, 0, place] = 1.0
    found = float(rule.patch_grams(x, (1,)))
    assert found >= 1.0 + (kernel - 8) * 2.0**-24


def recurrent_with_gates() -> Use:
    """A GRU's recurrent weight, whose output gradients go through the reset gate."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 64, 8, generator=generator), torch.rand(2, 64, 8, generator=generator)
    return Use(
        RecurrentWeight(), tuple(x.bfloat16() for x in inputs), torch.randn(2, 64, 24, generator=generator).bfloat16()
    )


@pytest.mark.parametrize("name", ["linear", "transposed", "recurrent", "gated"])
def test_gradients_that_are_kept_are_those_of_the_rule(name, narrow, monkeypatch):
    """In bfloat16 they are computed by another product, which must see what the other answers of the rule see."""
    monkeypatch.setattr(linear, "multiplies_narrow", arithmetic.multiplies_narrow)
    (use,) = [recurrent_with_gates()] if name == "gated" else rules(torch.bfloat16)[name]
    kept = use.rule.kept_gradients(use.inputs, use.grad)
    assert kept.dtype == torch.bfloat16
    torch.testing.assert_close(kept.float(), use.rule.per_example(use.inputs, use.grad), rtol=0.02, atol=0.1)


def long_sequences(dtype: torch.dtype) -> dict[str, list[Use]]:
    """Uses whose per-example gradients are smaller than their inputs, so they are kept; the terms cancel."""
    a, g = (value.to(dtype) for value in canceling(8, 24, pairs=200))
    resets = torch.full((2, a.shape[1], 8), 0.3, dtype=dtype)
    padded = torch.nn.functional.pad(g, (0, 5), value=100.0)
    return {
        "linear": [Use(LinearWeight(), (a,), g)],
        "transposed": [Use(LinearWeight(True), (g,), a)],
        "padded": [Use(LinearWeight(rows=24), (a,), padded)],
        "gated": [Use(RecurrentWeight(), (a, resets), g)],
        "twice": [Use(LinearWeight(), (a,), g), Use(LinearWeight(True), (g * 3,), a * -0.7)],
    }


@pytest.mark.parametrize("name", long_sequences(torch.float32))
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_that_are_kept_in_bfloat16_add_at_most_the_clip_norm(name, order, narrow, monkeypatch):
    """With what a compiler may add by rounding them after the norm and before the sum: 2⁻⁸ of their size."""
    monkeypatch.setattr(linear, "multiplies_narrow", arithmetic.multiplies_narrow)
    uses = long_sequences(torch.bfloat16)[name]
    assert all(use.rule.keeps_gradients(use.inputs, use.grad) for use in uses)
    kept = [use.rule.kept_gradients(use.inputs, use.grad) for use in uses]
    assert all(value.shape == (2, 24, 8) and value.dtype == torch.bfloat16 for value in kept)
    for norm in (1.0, 1e-3, 1e9):  # the largest clips nothing
        for example in range(2):
            mask = torch.arange(2) == example
            given = {"w": uses}, {}, {"w": torch.zeros(24, 8)}, torch.zeros(2), mask, torch.tensor(norm)
            total = clip_uses(*given, Flat(norm, order=order)).sums["w"].double()
            size = float(torch.linalg.vector_norm(total, ord=order))
            assert size * (1 + 2.0**-8) <= norm
            if norm == 1e9:
                torch.testing.assert_close(total, sum(value[example].double() for value in kept), rtol=0.01, atol=0.0)


def test_gradients_in_float16_are_not_kept_in_it(narrow, monkeypatch):
    """Those below 6e-8 would be zero in float16, and those above 65,504 infinite."""
    monkeypatch.setattr(linear, "multiplies_narrow", arithmetic.multiplies_narrow)
    (use,) = long_sequences(torch.float16)["linear"]
    assert use.rule.kept_gradients(use.inputs, use.grad).dtype == torch.float32


def test_sums_written_as_additions_have_every_example():
    for examples in (1, 2, 3, 16):
        values, weights = torch.randn(examples, 3, 4), torch.rand(examples)
        expected = torch.einsum("bij,b->ij", values, weights)
        torch.testing.assert_close(arithmetic._added_up(values, weights), expected)
        in_bfloat16 = arithmetic._added_up(values.bfloat16(), weights)
        torch.testing.assert_close(in_bfloat16, torch.einsum("bij,b->ij", values.bfloat16().float(), weights))


@pytest.mark.parametrize("precision", DIGITS)
@pytest.mark.parametrize("name", ["linear", "transposed", "convolution", "few positions", "tied"])
def test_an_example_adds_at_most_its_bound_in_float16_and_mixed_types(name, precision, narrow, monkeypatch):
    _keep(precision, monkeypatch)
    assert added(rules(torch.float16)[name]) <= 1.0
    mixed = [Use(use.rule, tuple(x.bfloat16() if x.is_floating_point() else x for x in use.inputs), use.grad)
             for use in rules(torch.float32)[name]]  # fmt: skip
    assert added(mixed) <= 1.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_an_example_adds_at_most_its_bound_on_a_gpu(dtype, precision):
    a, g = (value.to(dtype) for value in canceling(8, 300))
    square = ConvolutionWeight((4, 8, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    images = Use(square, (a.mT[..., None].contiguous(),), g[..., :4].mT[..., None].contiguous())
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = torch.backends.cudnn.conv.fp32_precision = precision
        for name, uses in {**rules(dtype), "images": [images]}.items():
            if name != "transformed":  # its parameter is on the CPU
                moved = [Use(use.rule, tuple(x.cuda() for x in use.inputs), use.grad.cuda()) for use in uses]
                assert added(moved) <= 1.0, name
    finally:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = before


def test_without_the_margin_the_bound_does_not_hold(narrow, monkeypatch):
    """The mutant: no margin. The examples then add a multiple of the clip norm, so the tests above can fail."""
    for module in (sequence_norms, linear):
        monkeypatch.setattr(module, "weighting_error", lambda *_: 0.0)
    assert added(rules(torch.bfloat16)["transposed"]) > 3.0


def test_without_a_common_grid_the_bound_does_not_hold(monkeypatch):
    """The mutant: a product in TF32 that rounds what the norm did not round."""
    _keep("tf32", monkeypatch)
    a, g = canceling(8, 300)
    a, g = a * 1.37, g * 1.41  # no longer on the grid: they cancel, but not after they are cut
    use = Use(LinearWeight(), (a,), g)
    assert added([use]) <= 1.0
    exact = torch.einsum("btd,btp->bpd", a.double(), g.double()).flatten(1).norm(dim=1)
    rounded = use.rule.weighted_sum((a,), g, torch.ones(2)).double().norm()
    assert rounded > 3 * exact.norm()


def test_the_engine_adds_at_most_the_clip_norm(narrow):
    """The example that broke it: three tokens in bfloat16, two of which cancel before they are weighted."""
    net = nn.Linear(4, 64, bias=False).bfloat16()
    x, factor = (value.bfloat16() for value in canceling(4, 64, pairs=1))
    batch = tuple(torch.cat([value, value[:1]]) for value in (x, factor))

    def loss(model: Any, given: Any) -> Tensor:
        return (model(given[0]).float() * given[1].float()).flatten(1).sum(1)

    engine = Engine(net, loss, Flat(1.0), compile=False)
    for clip_norm in (1.0, 0.37, 1.1e-3):
        found = engine(batch, torch.tensor([True, False, False]), clip_norm)
        assert float(found.sums["weight"].double().norm()) <= clip_norm


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_compiled_code_adds_at_most_the_clip_norm(dtype):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 64)).to(dtype)
    x, factor = (value.to(dtype) for value in canceling(8, 64))
    batch = tuple(torch.cat([value, value[:1]]) for value in (x, factor))

    def loss(model: Any, given: Any) -> Tensor:
        return (model(given[0]).float() * given[1].float()).flatten(1).sum(1)

    engine = Engine(net, loss, Flat(1.0), compile=True)
    for clip_norm in (1.0, 0.37, 1.1e-3):
        found = engine(batch, torch.tensor([True, False, False]), clip_norm)
        squares = sum(float(value.double().square().sum()) for value in found.sums.values())
        assert squares**0.5 <= clip_norm


def test_products_of_what_they_keep_round_nothing():
    torch.manual_seed(0)
    value = torch.randn(1000) * 10.0 ** torch.randint(-30, 30, (1000,))
    for digits in (8, 11):
        cut = arithmetic.on_grid(value, digits)
        assert torch.equal(arithmetic.on_grid(cut, digits), cut)
        assert ((value - cut).abs() <= 2.0 ** (1 - digits) * value.abs()).all()
        nearest = arithmetic._nearest(value, digits)
        assert torch.equal(arithmetic.on_grid(nearest, digits), nearest)
        assert ((value - nearest).abs() <= 2.0**-digits * value.abs()).all()
    assert torch.equal(arithmetic.on_grid(value, 8).bfloat16().float(), arithmetic.on_grid(value, 8))
    for special in (float("nan"), float("inf"), -float("inf")):
        assert not torch.isfinite(arithmetic.on_grid(torch.tensor([special]), 8)).any()


def test_a_changed_precision_setting_is_another_graph():
    """A graph that was traced for exact products has no margin for coarser ones."""
    engine = Engine(nn.Linear(2, 3), nn.functional.mse_loss, Flat(1.0), compile=False)
    batch = (torch.randn(3, 2), torch.randn(3, 3))
    engine(batch, torch.ones(3, dtype=torch.bool))
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert arithmetic.float32_digits(torch.device("cpu")) == 8
        engine(batch, torch.ones(3, dtype=torch.bool))
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert len(engine._compiled) == 2


def test_settings_are_inherited_and_unknown_ones_are_the_coarsest(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    settings = {
        ("ieee", "tf32", "none", "none", "none", "none", "none"): (24, 24, 24, 11),
        ("none", "none", "tf32", "none", "none", "none", "none"): (24, 24, 11, 11),
        ("none", "none", "none", "none", "none", "none", "tf32"): (11, 11, 11, 11),
        ("none", "none", "none", "bf16", "none", "none", "ieee"): (8, 8, 24, 24),
        ("new", "none", "none", "none", "none", "none", "ieee"): (24, 24, 8, 8),
    }
    for given, digits in settings.items():
        monkeypatch.setattr(arithmetic, "precision_settings", lambda given=given: given)
        found = [arithmetic.float32_digits(device, conv) for device in (cpu, cuda) for conv in (False, True)]
        assert tuple(found) == digits


def test_the_margin_is_small_where_little_cancels(narrow):
    """It costs signal, so it must stay near the rounding: at most 4 % of the norm for 64 random terms in bfloat16."""
    torch.manual_seed(0)
    a, g = (torch.randn(2, 64, width).bfloat16() for width in (100, 120))
    exact = torch.einsum("btd,btp->bdp", a.double(), g.double()).flatten(1).norm(dim=1)
    found = sequence_norms.sequence_norm_squared(a, g).sqrt()
    assert (found >= exact).all()
    assert (found <= 1.04 * exact).all()
    wide = sequence_norms.sequence_norm_squared(a.float(), g.float()).sqrt()
    assert (wide <= 1.001 * exact).all()


def test_the_rules_with_sums_of_their_own_state_a_margin():
    """A rule that overrides the sum without a margin would be the old fault again."""

    def all_rules(kind: type[GradientRule]) -> list[type[GradientRule]]:
        return [kind, *(rule for child in kind.__subclasses__() for rule in all_rules(child))]

    for rule in all_rules(GradientRule)[1:]:
        if rule.weighted_sum is not GradientRule.weighted_sum:
            assert rule.margin is not GradientRule.margin, rule


class Lookup(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(5, width)

    def forward(self, x):
        return self.table(x[..., 0].long())


class Turned(nn.Module):
    """A linear layer whose output has the positions last in memory."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.linear(x).permute(2, 0, 1).contiguous().permute(1, 2, 0)


class Shift(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return x * self.shift


#: Models of one weight, and the shape of an example.
EQUAL_TERMS = {
    "embedding": (lambda: Lookup(8), (4096, 1)),
    "wide embedding": (lambda: Lookup(256), (1024, 1)),
    "linear": (lambda: nn.Linear(16, 16, bias=False), (4096, 16)),
    "turned linear": (lambda: Turned(16), (4096, 16)),
    "convolution": (lambda: nn.Conv2d(16, 16, 3, bias=False), (16, 66, 66)),
    "kept": (lambda: nn.Linear(64, 64, bias=False), (4096, 64)),
    "one position": (lambda: nn.Linear(2048, 512, bias=False), (2048,)),
    "many classes": (lambda: nn.Linear(64, 50257, bias=False), (64,)),
    "many inputs": (lambda: nn.Linear(1_000_003, 1, bias=False), (1_000_003,)),
    "a long vector": (lambda: Shift(1_000_003), (1_000_003,)),
}


#: Those whose norm is taken of another sum than what is added, at the size of a model that is too large to keep it.
APART = ["linear", "turned linear", "convolution"]


def over_the_bound(name, order, device, compile, monkeypatch):
    """By how much examples of equal terms exceed the clip norm, over it; at most 0."""
    make, shape = EQUAL_TERMS[name]
    monkeypatch.setattr("discreet.learning.engine.graph.products._is_faster", lambda *nodes: True)
    values = (1.0, 1.3636) if "embedding" in name else (1.07, 1.3636, 1.9565)
    clip_norms = torch.linspace(0.5, 1.0, 5)
    if name in APART:
        for rule in (LinearWeight, ConvolutionWeight):
            monkeypatch.setattr(rule, "keeps_gradients", lambda *_: False)
        # 4,096 of these, added one after the other in float32, are off by 1,024 roundings. The terms of the sum are
        # weighted: their error repeats every 2⁻¹² or so, hence clip norms in such a range.
        values, clip_norms = (1.9963379, 1.0140686), 1.03125 * (1 + torch.arange(8) / 8 * 2.0**-12)
    torch.manual_seed(0)
    engine = Engine(
        make().to(device),
        lambda model, batch: model(batch[0]).flatten(1).sum(1),
        Flat(1.0, order=order),
        compile=compile,
    )
    only_one, over = torch.tensor([True, False], device=device), []
    for value in values:
        batch = (torch.full((2, *shape), value, device=device),)
        for clip_norm in clip_norms:
            (total,) = engine(batch, only_one, float(clip_norm)).sums.values()
            over.append(float(total.double().norm(order)) / float(clip_norm) - 1)
    return max(over)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EQUAL_TERMS)
def test_an_example_of_equal_terms_adds_at_most_the_clip_norm(name, compile, order, device, monkeypatch):
    """In a sum of equal numbers each addition may round in the same direction, and pad tokens are equal numbers.

    A convolution on a CPU adds up its positions one after the other; without its own margin it would add 7e-5 more.
    """
    assert over_the_bound(name, order, device, compile, monkeypatch) <= 0.0


@torch.library.custom_op("discreet_tests::in_a_row", mutates_args=())
def in_a_row(left: Tensor, right: Tensor) -> Tensor:
    total = torch.zeros(*left.shape[:-1], right.shape[-1])
    for position in range(left.shape[-1]):
        total = total + left[..., position, None] * right[..., position, None, :]
    return total


@in_a_row.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


@pytest.mark.parametrize("order", [1, 2])
def test_terms_added_one_after_the_other_would_exceed_the_clip_norm(order, monkeypatch):
    """The mutant: products that add up 4,096 positions in a row. So the test above can fail."""
    monkeypatch.setitem(EQUAL_TERMS, "linear", (lambda: nn.Linear(4, 4, bias=False), (4096, 4)))
    monkeypatch.setattr(arithmetic, "multiplied", in_a_row)
    assert over_the_bound("linear", order, "cpu", False, monkeypatch) > 2.0**-15


def integers(*shape):
    """Small integers, whose sums are exact in any order."""
    return torch.randint(-9, 10, shape).float()


@pytest.mark.parametrize(
    "values",
    [
        integers(3, 1000),
        integers(3, 4, 1200, 2),
        integers(3, 4, 5, 6).to(memory_format=torch.channels_last),
        integers(3, 1, 700).expand(3, 5, 700),
        integers(3),
        integers(0, 4),
        integers(3, 0, 4),
        integers(700, 3).t().double(),
    ],
)
def test_sums_in_pieces_are_sums_over_all_dimensions_but_the_first(values):
    assert torch.equal(arithmetic.summed(values), values.flatten(1).sum(1) if values.dim() > 1 else values)


@pytest.mark.parametrize("length", [1, 7, 256, 257, 300])
def test_ids_are_counted_in_their_own_row(length):
    torch.manual_seed(0)
    ids = torch.randint(0, 40, (3, length))
    expected = [[row.tolist().count(value) for value in row.tolist()] for row in ids]
    assert embedding.occurrences(ids).tolist() == expected


@pytest.mark.parametrize("order", [1, 2])
def test_each_addition_to_a_row_of_an_embedding_counts_in_its_margin(order):
    """4,096 additions in a row may each round by 2⁻²⁴, in the sum and in the norm; if no id repeats, hardly any do."""
    length, unit = 4096, 2.0**-24
    g = torch.ones(2, length, 1)
    ids = torch.stack([torch.full((length,), 3), torch.arange(length)])
    equal, different = (EmbeddingWeight(length).margin((ids,), g, order) / (unit * length)).tolist()
    assert 2 * length <= equal <= 2 * (length + 4)
    assert 4 <= different <= 10
