"""What is compiled, when, and that cutting a graph into regions changes no value."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.engine.graph import compilation, repeats
from discreet.learning.engine.graph.regions import compile_regions, regions_of
from discreet.learning.engine.tracing import TRACE_LOCK
from tests.learning.engine import traces

MASK = torch.ones(6, dtype=torch.bool)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.outer(F.gelu(self.inner(self.norm(x))))


class Deep(nn.Module):
    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.out = nn.Sequential(*(Block() for _ in range(layers))), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layers(x))


def batch(seed=0):
    torch.manual_seed(seed)
    return torch.randn(6, 8), torch.arange(6) % 3


def traced(layers, monkeypatch):
    """The graph of a clipped sum, and its arguments."""
    return traces.traced(Deep(layers), F.cross_entropy, batch(), None, monkeypatch)


def test_a_deeper_model_has_no_more_to_compile_and_the_same_values(monkeypatch):
    """Except for one addition to the norm for each parameter."""
    monkeypatch.setattr("discreet.learning.engine.graph.regions._SHORTEST", 8)
    sizes = []
    for layers in (4, 6):
        graph, arguments = traced(layers, monkeypatch)
        compiled = []

        def compiler(module, inputs, compiled=compiled):
            for given, node in zip(inputs, module.graph.find_nodes(op="placeholder"), strict=True):
                assert given.shape == node.meta["val"].shape
            compiled.append(module)
            return module

        joined, different = compile_regions(graph, compiler)
        assert len(compiled) == different < len(regions_of(graph))
        with torch.no_grad():
            for found, expected in zip(joined(*arguments), graph(*arguments), strict=True):
                assert torch.equal(found, expected)
        sizes.append(sum(len(module.graph.nodes) for module in compiled))
    assert sizes[1] < 1.25 * sizes[0]


def test_a_shallow_model_is_one_region(monkeypatch):
    graph, _ = traced(1, monkeypatch)
    assert len(regions_of(graph)) == 1


def test_compiling_starts_only_if_the_calls_to_come_pay_for_it(monkeypatch):
    started = []

    def start(later):
        started.append(later)

    monkeypatch.setattr(compilation.Later, "start", start)
    for calls in (29, 10**9):
        engine = Engine(nn.Linear(2, 2), F.cross_entropy, Flat(1.0), calls=calls)
        for _ in range(8):
            engine((torch.ones(6, 2), torch.zeros(6, dtype=torch.long)), MASK)
        assert "not compiled" in engine.report
        assert bool(started) == (calls > 29)
        assert len(started) <= 8


def test_if_the_number_of_calls_is_unknown_compiling_starts_after_as_much_time():
    later = compilation.Later(torch.fx.GraphModule(nn.Module(), torch.fx.Graph()), False, [], 0, False)
    assert not later.pays(0.1, 10, None)
    assert later.pays(0.1, 1000, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # parts of the compiler warn about each other, and here a warning is an error
def test_compiled_code_is_taken_over_when_it_is_ready_and_gives_the_same_sums():
    engine = Engine(Deep(1), F.cross_entropy, Flat(0.1), calls=10**9)
    plain = Engine(Deep(1), F.cross_entropy, Flat(0.1), compile=False)
    deadline = time.monotonic() + 300
    while "\ncompiled" not in engine.report and time.monotonic() < deadline:
        engine(batch(), MASK)
        time.sleep(0.5)
    found, expected = engine(batch(1), MASK), plain(batch(1), MASK)
    assert "\ncompiled" in engine.report
    for name, value in expected.sums.items():
        torch.testing.assert_close(found.sums[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_compiler_that_fails_in_the_background_changes_nothing(monkeypatch, caplog):
    def fails(graph, on_gpu):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compilation, "_compile", fails)
    engine = Engine(nn.Linear(2, 2), F.cross_entropy, Flat(1.0), calls=10**12)
    for _ in range(10):
        engine((torch.ones(6, 2), torch.zeros(6, dtype=torch.long)), MASK)
        time.sleep(0.01)
    assert "continuing without it" in caplog.text
    assert "not compiled" in engine.report


def background(compiled, monkeypatch):
    """A graph to compile in the background, by a compiler that only calls `compiled`."""

    def compiler(module, inputs, options):
        compiled()
        return module

    monkeypatch.setattr("torch._inductor.compile", compiler)
    return compilation.Later(compilation.trace_flat(lambda x: [2 * x], [torch.ones(3)]), False, [], 0, False)


def test_threads_compile_one_by_one_because_the_compiler_keeps_global_state(monkeypatch):
    inside, at_once = [], []

    def compiled():
        inside.append(None)
        at_once.append(len(inside))
        time.sleep(0.05)
        inside.pop()

    waiting = [background(compiled, monkeypatch) for _ in range(2)]
    for later in waiting:
        later.start()
    arguments = [torch.ones(3)]
    compilation.compile_flat(compilation.trace_flat(lambda x: [3 * x], arguments), arguments, 0)
    for later in waiting:
        later.wait()
        assert later.taken_over([torch.ones(3)]) is not None
    assert at_once == [1, 1, 1]


def test_a_graph_that_waits_to_be_compiled_is_dropped_with_its_training(monkeypatch):
    compiled = []
    later = background(lambda: compiled.append(None), monkeypatch)
    with compilation._TURN:
        later.start()
        thread = later._thread
        del later
    thread.join()
    assert not compiled


def test_a_value_that_is_announced_is_known_before_later_regions_run(monkeypatch):
    told = []

    class Told:
        def send(self, value):
            told.append(bool(value))

    monkeypatch.setattr("discreet.learning.engine.graph.regions.Announcement", Told)

    def function(x):
        finite = torch.isfinite(x)
        return [x, x, finite, torch.where(finite, x, 0.0) * 2]

    graph = compilation.trace_flat(function, [torch.ones(3)])

    def compiler(module, inputs):
        number = len(told_at)
        told_at.append([])

        def run(*arguments):
            told_at[number].append(len(told))
            return module(*arguments)

        return run

    told_at: list[list[int]] = []
    joined, _ = compile_regions(graph, compiler, 2)
    for expected, values in ((True, torch.ones(3)), (False, torch.tensor([1.0, torch.inf, 2.0]))):
        results = joined(values)
        assert told[-1] is expected
        for result, value in zip(results, function(values), strict=True):
            assert torch.equal(result, value)
    assert told_at == [[0, 1], [1, 2]], "the second region runs after the announcement"
    assert compile_regions(graph, compiler)[0].announcement is None


def test_a_process_that_ends_waits_for_the_graph_in_the_compiler_and_for_no_other(monkeypatch):
    """A thread that Python kills within the compiler aborts the process."""
    monkeypatch.setattr(compilation, "_ENDING", threading.Event())
    began, may_end, compiled = threading.Event(), threading.Event(), []

    class Slow:
        def compile(self):
            began.set()
            assert may_end.wait(60)
            compiled.append(self)

    first, second = Slow(), Slow()
    threads = [
        threading.Thread(target=compilation._compile_in_turn, args=(weakref.ref(later),)) for later in (first, second)
    ]
    monkeypatch.setattr(compilation, "_threads", weakref.WeakSet(threads))
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    ending = threading.Thread(target=compilation._end)
    ending.start()
    assert compilation._ENDING.wait(60)
    assert ending.is_alive()
    may_end.set()
    ending.join(60)
    assert compiled == [first]
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("work", ["trace", "expand"])
def test_threads_trace_one_by_one_because_torch_patches_modules_meanwhile(work):
    arguments = [torch.ones(3), torch.ones(3)]
    graph = compilation.trace_flat(lambda x, y: [repeats.repeated(torch.add, x, y)], arguments)
    works = {
        "trace": lambda: compilation.trace_flat(lambda x, y: [x + y], arguments),
        "expand": lambda: repeats.expand(graph),
    }
    thread = threading.Thread(target=works[work])
    with TRACE_LOCK:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()


@torch.library.custom_op("discreet_tests::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return (2 * x).t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape)


def test_a_view_copies_where_an_operation_returns_other_strides_than_it_declares():
    x = torch.randn(3, 4)
    run = compilation.run_flat(compilation.trace_flat(lambda x: [turned(x).view(12) + 1], [x]), [x])
    torch.testing.assert_close(run.function(x)[0], 2 * x.reshape(12) + 1)


def test_a_view_that_is_written_to_does_not_copy():
    def writes(x):
        y = turned(x)
        y.view(12).add_(1)
        return [y]

    x = torch.randn(3, 4)
    with pytest.raises(compilation.NotCompiled, match="does not run"):
        compilation.run_flat(compilation.trace_flat(writes, [x]), [x])
