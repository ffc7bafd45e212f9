"""Products by convolution are products, and a graph uses them only where they are faster and as precise."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.engine.graph import compilation, products
from discreet.learning.engine.graph.recompute import PART, RULES
from discreet.learning.engine.operations import arithmetic

PRODUCT = torch.ops.discreet.product.default


def matrices(rows, depth, columns, left_turned, right_turned):
    left = torch.randn(depth, rows).t() if left_turned else torch.randn(rows, depth)
    right = torch.randn(columns, depth).t() if right_turned else torch.randn(depth, columns)
    return left, right


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("right_turned", [False, True])
@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize("sizes", [(5, 7, 3), (1, 4, 1), (4, 1, 6), (130, 65, 33)])
def test_a_product_by_convolution_is_the_product(sizes, left_turned, right_turned, biased):
    torch.manual_seed(0)
    left, right = matrices(*sizes, left_turned, right_turned)
    bias = torch.randn(sizes[2]) if biased else None
    found = products.product_by_convolution(left, right, bias)
    expected = left.double() @ right.double() + (0.0 if bias is None else bias.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    assert found.is_contiguous()
    assert found.stride() == PRODUCT(left.to("meta"), right.to("meta"), None).stride()


def test_settings_that_changed_since_the_trace_leave_a_graph_uncompiled(monkeypatch, caplog):
    """Compiled code would round in another way than the norms in it allow for."""
    module, _ = traced()
    later = compilation.Later(module, on_gpu=False, written=[], fixed=0, lend=False)
    monkeypatch.setattr(compilation, "compile_regions", lambda graph, *rest: [graph])
    settings = compilation.precision_settings()
    monkeypatch.setattr(compilation, "precision_settings", lambda: ("bf16", *settings[1:]))
    later.compile()
    assert later._compiled is None
    assert "torch.compile failed" in caplog.text
    monkeypatch.setattr(compilation, "precision_settings", lambda: settings)
    later.compile()
    assert later._compiled is not None


def test_an_environment_that_lets_onednn_round_counts(monkeypatch):
    cpu = torch.device("cpu")
    try:
        for value, digits in (("BF16", 8), ("any", 8), ("STRICT", 24), ("", 24)):
            monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", value)
            arithmetic._onednn_may_round.cache_clear()
            assert arithmetic.float32_digits(cpu) == arithmetic.float32_digits(cpu, convolution=True) == digits
    finally:
        monkeypatch.undo()
        arithmetic._onednn_may_round.cache_clear()


def traced(dtype=torch.float32):
    def function(x, w, b, small):
        repeated = torch.addmm(b[:1], x, w.t())
        return torch.addmm(b, x, w.t()), x.t() @ x, small @ small, torch.addmm(b, x, w.t(), alpha=2.0), repeated

    arguments = torch.randn(256, 128), torch.randn(192, 128), torch.randn(192), torch.randn(8, 8)
    arguments = tuple(value.to(dtype) for value in arguments)
    return make_fx(function, tracing_mode="fake")(*arguments), arguments


def count(module):
    return len(module.graph.find_nodes(op="call_function", target=PRODUCT))


def test_large_products_are_replaced_where_that_is_faster(monkeypatch):
    for faster in (False, True):
        monkeypatch.setattr(products, "_is_faster", lambda *nodes, faster=faster: faster)
        module, arguments = traced()
        expected = module(*arguments)
        products.use_faster_products(module)
        assert count(module) == (2 if faster else 0)  # not the small one, nor those with a factor or a repeated bias
        module.recompile()
        for found, value in zip(module(*arguments), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-3)


def test_sums_of_clipped_gradients_are_not_computed_as_rows_of_pixels(monkeypatch):
    """oneDNN adds up a thousand products in a row there, and margins allow for fewer."""
    monkeypatch.setattr(products, "_is_faster", lambda *nodes: True)
    module, _ = traced()
    for node in module.graph.nodes:
        node.meta[PART] = RULES
    products.use_faster_products(module)
    (replaced,) = module.graph.find_nodes(op="call_function", target=PRODUCT)
    assert replaced.args[0].meta["val"].stride(1) != 1


def test_the_graph_that_runs_meanwhile_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(products, "_is_faster", lambda *nodes: True)
    monkeypatch.setattr(compilation, "compile_regions", lambda graph, *rest: [count(graph)])
    module, _ = traced()
    assert compilation._compile(module, on_gpu=False) == 2
    assert count(module) == 0


def test_products_are_timed_in_their_own_type_and_long_ones_only_twice(monkeypatch):
    kinds, clock = [], iter(range(100))
    monkeypatch.setattr(products, "_faster", {})
    monkeypatch.setattr(products.time, "perf_counter", lambda: next(clock))  # a second for each look
    original = products.product_by_convolution
    monkeypatch.setattr(
        products, "product_by_convolution", lambda *given: kinds.append(given[0].dtype) or original(*given)
    )
    module, _ = traced()
    first = module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)[0]
    torch.set_default_dtype(torch.float64)
    try:
        products._is_faster(*first.args)
    finally:
        torch.set_default_dtype(torch.float32)
    assert kinds == [torch.float32] * 2


def test_products_are_timed_once_for_each_shape(monkeypatch):
    timed = []

    def seconds(usual, other):
        torch.testing.assert_close(usual(), other())
        timed.append(len(timed))
        return 1.0, timed[-1] * 0.95

    monkeypatch.setattr(products, "_faster", {})
    monkeypatch.setattr(products, "_seconds", seconds)
    for _ in range(2):
        module, _ = traced()
        products.use_faster_products(module)
        assert count(module) == 1  # a twentieth less is not enough
    assert len(timed) == 2


def test_other_types_and_coarser_convolutions_are_left_alone(monkeypatch):
    monkeypatch.setattr(products, "_is_faster", lambda *nodes: True)
    module, _ = traced(torch.float64)
    products.use_faster_products(module)
    assert not count(module)
    monkeypatch.setattr(products, "float32_digits", lambda device, convolution=False: 8 if convolution else 24)
    module, _ = traced()
    products.use_faster_products(module)
    assert not count(module)


def test_clipped_sums_with_them_are_those_of_eager(monkeypatch):
    monkeypatch.setattr(products, "_is_faster", lambda *nodes: True)
    replaced = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 3))
    batch, mask = (torch.randn(96, 256), torch.randint(0, 3, (96,))), torch.arange(96) < 90
    eager = Engine(model, F.cross_entropy, Flat(0.1), compile=False)(batch, mask)
    use = products.use_faster_products
    monkeypatch.setattr(
        "discreet.learning.engine.graph.compilation.use_faster_products",
        lambda module: use(module) or replaced.append(count(module)),
    )
    compiled = Engine(model, F.cross_entropy, Flat(0.1), compile=True)(batch, mask)
    assert sum(replaced) > 2
    for name, value in eager.sums.items():
        torch.testing.assert_close(compiled.sums[name], value, rtol=1e-4, atol=1e-5)
