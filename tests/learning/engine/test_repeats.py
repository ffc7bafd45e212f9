"""A function that a trace calls many times: traced once, with the same operations and values as if traced each time."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.engine.flat import FlatCall
from discreet.learning.engine.graph import compilation, repeats
from discreet.learning.engine.graph.copies import copied
from discreet.learning.engine.graph.regions import compile_regions
from tests.learning.engine import traces


@dataclasses.dataclass(frozen=True)
class Scaled:
    """(x + y) · factor, and how often it was computed."""

    factor: float
    calls: list[None] = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, x, y):
        self.calls.append(None)
        return (x + y) * self.factor


def expanded(program, arguments):
    graph = compilation.trace_flat(program, arguments)
    repeats.expand(graph)
    return graph


def operations(graph):
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_equal_calls_are_traced_once_and_have_their_own_operations():
    function = Scaled(3.0)

    def program(x, y, z):
        return [
            repeats.repeated(function, x, y),
            repeats.repeated(Scaled(3.0), y, z),  # equal, so the first one is called
            repeats.repeated(Scaled(5.0), y, z),
        ]

    arguments = [torch.randn(4) for _ in range(3)]
    graph = expanded(program, arguments)
    assert operations(graph) == ["aten.add.Tensor", "aten.mul.Tensor"] * 3
    assert len(function.calls) <= 2, "once for its look and once for its operations"
    others = [torch.randn(4) for _ in range(3)]
    for found, expected in zip(graph(*others), program(*others), strict=True):
        assert torch.equal(found, expected)


def test_a_call_with_one_tensor_twice_is_not_a_model_for_other_calls():
    """The mutant that traces a function for the arguments themselves takes the second argument for the first one."""

    def program(x, y):
        return [repeats.repeated(Scaled(2.0), x, x), repeats.repeated(Scaled(2.0), x, y)]

    graph = expanded(program, [torch.ones(3), torch.ones(3)])
    twice, both = graph(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 30.0]))
    assert twice.tolist() == [4.0, 8.0, 12.0]
    assert both.tolist() == [22.0, 44.0, 66.0]


def test_calls_that_look_different_are_traced_apart():
    def program(x, y):
        return [repeats.repeated(Scaled(2.0), x, x), repeats.repeated(Scaled(2.0), y, y)]

    arguments = [torch.randn(3, 4), torch.randn(4, 3).t()]
    graph = expanded(program, arguments)
    for node, expected in zip(graph.graph.find_nodes(op="output")[0].args[0], program(*arguments), strict=True):
        assert node.meta["val"].stride() == expected.stride()


def test_without_a_trace_a_function_is_simply_called():
    assert repeats.repeated(Scaled(2.0), torch.ones(1), torch.ones(1)).item() == 4.0


def deep(layers):
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Tanh())]
    return torch.nn.Sequential(*parts, torch.nn.Linear(8, 3))


def test_a_clipped_sum_has_the_operations_that_it_has_when_all_is_traced(monkeypatch):
    batch = torch.randn(6, 5, 8), torch.randint(0, 3, (6,))

    def loss(model, rows):
        return F.cross_entropy(model(rows[0]).mean(1), rows[1], reduction="none")

    graph, arguments = traces.traced(deep(4), loss, batch, None, monkeypatch)
    monkeypatch.setattr("discreet.learning.engine.clipped.repeated", lambda function, *tensors: function(*tensors))
    whole, same = traces.traced(deep(4), loss, batch, None, monkeypatch)
    assert sorted(operations(graph)) == sorted(operations(whole))
    assert not any("repeat" in name.split(".") for name in operations(graph))
    for found, expected in zip(graph(*arguments), whole(*same), strict=True):
        assert torch.equal(found, expected)


def test_inputs_of_a_region_share_no_memory_even_if_equal_layers_share_their_stand_ins(monkeypatch):
    """A compiler takes inputs in one memory for one value: the norm of one layer would become that of another."""
    monkeypatch.setattr("discreet.learning.engine.graph.regions._SHORTEST", 8)
    batch = torch.randn(6, 8), torch.randint(0, 3, (6,))
    graph, _ = traces.traced(deep(6), F.cross_entropy, batch, None, monkeypatch)
    seen = []

    def compiler(module, inputs):
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        for value, node in zip(inputs, module.graph.find_nodes(op="placeholder"), strict=True):
            assert repeats.look(value) == repeats.look(node.meta["val"])
        seen.append(len({value.untyped_storage()._cdata for value in tensors}) == len(tensors))
        return module

    compile_regions(graph, compiler)
    assert len(seen) > 1
    assert all(seen)


def test_a_large_graph_runs_before_it_is_expanded_and_is_compiled_expanded(monkeypatch):
    monkeypatch.setattr(compilation, "_MANY_REPEATS", 4)
    compiled = []

    def compiler(module, inputs, options):
        compiled.append(module)
        return module

    monkeypatch.setattr("torch._inductor.compile", compiler)
    batch, mask = (torch.randn(6, 8), torch.randint(0, 3, (6,))), torch.ones(6, dtype=torch.bool)
    engine = Engine(deep(4), F.cross_entropy, Flat(0.1), calls=10**9)
    first = engine(batch, mask)
    (traced,) = engine._compiled.values()
    assert repeats.count_repeats(traced.function) > 4
    traced.later.compile()
    assert not any("repeat" in name for module in compiled for name in operations(module))
    traced.function = traced.later.taken_over(engine_arguments(engine, batch, mask))
    plain = Engine(deep(4), F.cross_entropy, Flat(0.1), compile=False)(batch, mask)
    for result in (first, engine(batch, mask)):
        torch.testing.assert_close(result.norms, plain.norms)
        for name, value in plain.sums.items():
            torch.testing.assert_close(result.sums[name], value)


def engine_arguments(engine, batch, mask):
    return FlatCall(*engine._tensors(), batch, mask, torch.tensor(0.1, dtype=torch.float64)).arguments


def test_a_function_that_returns_its_argument_gives_it_memory_of_its_own():
    def program(x):
        return [repeats.repeated(torch.Tensor.detach, x)]

    graph = compilation.trace_flat(program, [torch.ones(3)])
    value = torch.ones(3)
    (result,) = graph(value)
    assert result.untyped_storage()._cdata != value.untyped_storage()._cdata


def test_a_graph_is_not_expanded_under_other_settings_than_it_was_traced(monkeypatch):
    """The mutant would take norms for products with more digits than those that are multiplied later."""
    traced, original = [], compilation.trace_flat

    def keep(*given):
        traced.append(original(*given))
        return copied(traced[-1])

    monkeypatch.setattr("discreet.learning.engine.engine.trace_flat", keep)
    batch = torch.randn(6, 8), torch.randint(0, 3, (6,))
    Engine(deep(1), F.cross_entropy, Flat(0.1), compile=False)(batch, torch.ones(6, dtype=torch.bool))
    monkeypatch.setattr("discreet.learning.engine.clipped.precision_settings", lambda: ("other",))
    with pytest.raises(RuntimeError, match="must not change"):
        repeats.expand(traced[0])
