"""Compiled code for CPUs has the values of torch's operations, example by example; freed memory is used again."""

from __future__ import annotations

import platform
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
import torch
from torch import nn
from torch._inductor import cpp_builder
from torch._inductor.codecache import CppCodeCache
from torch.nn import functional as F

from discreet.learning import Engine, Flat, cpu_kernels
from discreet.learning.engine.graph import compilation
from discreet.learning.engine.operations import recurrent_steps


@pytest.fixture(autouse=True)
def built():
    cpu_kernels.build()
    if cpu_kernels._library is None:
        pytest.skip("no C++ compiler")


def drawn(length, examples, size):
    """Products with the inputs, initial states and U."""
    torch.manual_seed(0)
    shapes = (length, examples, 4 * size), (examples, size), (examples, size), (4 * size, size)
    return [torch.randn(shape) / 4 for shape in shapes]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("length", "examples", "size"), [(1, 1, 16), (7, 3, 32), (4, 13, 48), (5, 64, 80)])
def test_values_and_gradients_are_those_of_torchs_operations(length, examples, size, reverse):
    gates, hidden, cell, u = drawn(length, examples, size)
    assert cpu_kernels.supports(gates, hidden, cell, u)
    exact = recurrent_steps.lstm(gates.double(), hidden.double(), cell.double(), u.double(), reverse)
    found = recurrent_steps.lstm(gates, hidden, cell, u, reverse)
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0.0, atol=3e-6)
    of_outputs, of_cell = torch.randn(length, examples, size), torch.randn(examples, size)
    for given in ((of_outputs, of_cell), (of_outputs, None), (None, of_cell)):
        wide = [None if value is None else value.double() for value in given]
        back = recurrent_steps.lstm_backward(*wide, cell.double(), u.double(), exact[2], exact[3], reverse)
        ours = recurrent_steps.lstm_backward(*given, cell, u, found[2], found[3], reverse)
        for found_grad, exact_grad in zip(ours, back, strict=True):
            torch.testing.assert_close(found_grad.double(), exact_grad, rtol=0.0, atol=2e-5)


def test_the_arguments_stay_as_they_are_in_any_memory_order():
    gates, hidden, cell, u = drawn(4, 6, 32)
    turned = [
        gates.transpose(0, 1).contiguous().transpose(0, 1),
        hidden.t().contiguous().t(),
        cell[:1].expand(6, -1),
        u,
    ]
    before = [value.clone() for value in turned]
    outputs, _, cells, kept = cpu_kernels.lstm(*turned, False)
    plain = cpu_kernels.lstm(*(value.contiguous() for value in turned), False)
    assert torch.equal(outputs, plain[0])
    grad, of_cell = torch.randn(6, 4, 32).transpose(0, 1), torch.randn(6, 32)
    kept_back = grad.clone(), of_cell.clone()
    plain = cpu_kernels.lstm_backward(grad.contiguous(), of_cell, turned[2].contiguous(), u, cells, kept, False)
    spread = torch.stack([grad, -grad], 3)[..., 0]  # numbers of a step do not lie next to each other
    states = [turned[2], u, cells, kept]
    for given in (grad, spread):
        for order in (states, [value.mT.contiguous().mT for value in states]):
            results = cpu_kernels.lstm_backward(given, of_cell, *order, False)
            assert all(torch.equal(a, b) for a, b in zip(results, plain, strict=True))
    assert all(torch.equal(a, b) for a, b in zip([*turned, grad, of_cell], [*before, *kept_back], strict=True))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_example_sees_nothing_of_the_others(threads, monkeypatch):
    """To the last bit, also if the others are not finite."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    gates, hidden, cell, u = drawn(5, 9, 32)
    grad = torch.randn(5, 9, 32)

    def results():
        outputs, _, cells, kept = cpu_kernels.lstm(gates, hidden, cell, u, False)
        grads, of_cell = cpu_kernels.lstm_backward(grad, None, cell, u, cells, kept, False)
        return outputs[:, 4], kept[:, :, 4], grads[:, 4], of_cell[4]

    before = results()
    others = torch.arange(9) != 4
    for value in (gates, grad):
        value[:, others] = float("nan")
    hidden[others], cell[others] = 1e30, float("inf")
    assert all(torch.equal(now, then) for now, then in zip(results(), before, strict=True))


def test_hyperbolic_tangents_are_accurate_and_values_that_are_not_finite_stay_so():
    sizes = torch.logspace(-30, 1.5, 8000)
    x = torch.cat([sizes, -sizes, torch.tensor([0.0, float("inf"), -float("inf"), float("nan")])])
    x = F.pad(x, (0, -len(x) % 64)).view(1, -1, 64)
    open_gate, closed = torch.full_like(x, 1e4), torch.full_like(x, -1e4)
    gates = torch.cat([open_gate, closed, x, open_gate], 2)  # the new cell is tanh(x)
    zeros = torch.zeros(x.shape[1:])
    cells = cpu_kernels.lstm(gates, zeros, zeros, torch.zeros(256, 64), False)[2]
    exact = x.double().tanh()
    torch.testing.assert_close(cells.double(), exact, rtol=6e-7, atol=1e-38, equal_nan=True)
    assert cells.nan_to_num(0.0).abs().max() <= 1.0
    assert torch.equal(cells[x.abs() > 9.6].abs(), torch.ones(int((x.abs() > 9.6).sum())))
    gates = torch.cat([x, closed, open_gate, open_gate], 2)  # the new cell is the sigmoid of x
    cells = cpu_kernels.lstm(gates, zeros, zeros, torch.zeros(256, 64), False)[2]
    torch.testing.assert_close(cells.double(), x.double().sigmoid(), rtol=0.0, atol=2e-7, equal_nan=True)
    assert not cells[x < -19.2].any(), "a closed gate lets nothing through"


def test_other_sizes_and_types_run_as_torchs_operations():
    gates, hidden, cell, u = drawn(3, 2, 5)
    assert not cpu_kernels.supports(gates, hidden, cell, u)
    assert recurrent_steps.lstm(gates, hidden, cell, u, False)[0].shape == (3, 2, 5)
    forward = tuple(drawn(3, 2, 64))
    outputs, _, cells, kept = recurrent_steps.lstm(*forward, False)
    backward = outputs, forward[1], forward[2], forward[3], cells, kept
    assert cpu_kernels.supports_backward(None, None, *backward[2:])
    for covers, tensors in ((cpu_kernels.supports, forward), (cpu_kernels.supports_backward, backward)):
        assert covers(*tensors)
        for position, tensor in enumerate(tensors):
            for other in (tensor.double(), tensor.bfloat16(), tensor.to("meta"), tensor[..., :1], tensor[:0]):
                assert not covers(*tensors[:position], other, *tensors[position + 1 :])


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_a_cell_of_another_type_is_not_read_as_float32(kind):
    gates, hidden, cell, u = drawn(3, 8, 32)
    cell = cell.to(kind)

    def outputs():
        try:
            return recurrent_steps.lstm(gates, hidden, cell, u, False)[0]
        except RuntimeError:  # torch's operations refuse to mix some types
            return None

    before = outputs()
    cell[2] = 3.0
    after = outputs()
    assert before is None or (after != before).any(2).any(0).tolist() == [example == 2 for example in range(8)]


def test_gram_matrices_of_wide_rows_round_as_often_as_margins_allow_for():
    """Equal numbers round in the same direction each time."""
    for width in (271, 768, 4096, 16384, 16399):
        for value in (0.1, 0.3, 0.7, 1.1):
            rows = torch.full((1, 4, width), value)
            exact = float(rows[0, 0, 0].double() ** 2) * width
            assert abs(float(cpu_kernels.grams(rows)[0, 0, 0]) / exact - 1) <= 32 * 2.0**-24


@pytest.mark.parametrize("width", [192, 193, 512])
@pytest.mark.parametrize("length", [4, 8, 36])
def test_gram_matrices_are_those_of_a_product(length, width):
    torch.manual_seed(0)
    for rows in (
        torch.randn(3, length, width),
        torch.randn(length, 3, width).transpose(0, 1),
        torch.randn(3, width, length).mT,
        torch.randn(1, length, width).expand(3, -1, -1),
    ):
        found = cpu_kernels.grams(rows)
        torch.testing.assert_close(found.double(), rows.double() @ rows.double().mT, rtol=1e-6, atol=1e-4)
        assert torch.equal(found, found.mT)
        assert found.stride() == torch.ops.discreet.grams(rows.to("meta")).stride()


def test_the_gram_matrix_of_an_example_sees_nothing_of_the_others():
    torch.manual_seed(0)
    rows = torch.randn(5, 12, 200)
    before = cpu_kernels.grams(rows)[2].clone()
    rows[[0, 1, 3, 4]] = float("nan")
    assert torch.equal(cpu_kernels.grams(rows)[2], before)
    rows[2, 7, 199] = float("nan")
    assert cpu_kernels.grams(rows)[2, 7].isnan().all()


def test_gram_matrices_that_the_kernel_does_not_cover_are_torchs():
    for rows in (
        torch.randn(2, 5, 300),
        torch.randn(2, 8, 20),
        torch.randn(2, 8, 300).double(),
        torch.randn(0, 8, 300),
    ):
        torch.testing.assert_close(cpu_kernels.grams(rows), rows @ rows.mT)


PAGES = """
import ctypes, resource
import torch
from discreet.learning.engine.graph.freed_memory import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
sizes = [6_000_000 - 4096 * i for i in range(8)]
blocks = (ctypes.c_void_p * len(sizes))()

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        for i, size in enumerate(sizes):
            blocks[i] = libc.malloc(ctypes.c_size_t(size))
            ctypes.memset(blocks[i], 1, size)
        for block in blocks:
            libc.free(ctypes.c_void_p(block))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10

pages()
usual = pages()
keep_freed_memory()
pages()
print(usual, pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limit is glibc's")
def test_freed_memory_is_used_again_without_asking_the_system():
    """48 MB are 11,700 pages."""
    result = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    usual, kept = map(float, result.stdout.split())
    assert kept < 100, f"{usual} before"


@pytest.fixture
def no_compiler(monkeypatch):
    """A process in which the kernels were not built yet, and cannot be."""

    def fails(*args, **kwargs):
        raise OSError("no compiler")

    monkeypatch.setattr(cpu_kernels, "_library", None)
    monkeypatch.setattr(cpu_kernels, "_failure", "")
    monkeypatch.setattr(cpu_kernels, "_warned", False)
    monkeypatch.setattr(CppCodeCache, "load", fails)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_warning_says_so_once(caplog):
    for _ in range(2):
        cpu_kernels.build()
    assert len(caplog.records) == 1
    gates, hidden, cell, u = drawn(3, 2, 32)
    assert not cpu_kernels.supports(gates, hidden, cell, u)
    assert recurrent_steps.lstm(gates, hidden, cell, u, False)[0].isfinite().all()


@pytest.mark.parametrize(("is_gcc", "added"), [(True, {"-ftree-loop-vectorize"}), (False, set())])
def test_only_gcc_is_given_flags_that_only_it_knows(is_gcc, added, monkeypatch):
    """An unknown flag is an error in clang, and then there would be no kernel on a Mac."""
    known_to_both = {
        "-ffp-contract=fast",
        "-fno-finite-math-only",
        "-fno-unsafe-math-optimizations",
        "-fno-associative-math",
        "-fno-math-errno",
    }
    given = []
    monkeypatch.setattr(cpp_builder, "is_gcc", lambda: is_gcc)
    monkeypatch.setattr(CppCodeCache, "load", lambda source, extra_flags: given.extend(extra_flags) or MagicMock())
    cpu_kernels._load()
    assert set(given) == known_to_both | added


class Reader(nn.Module):
    """An embedding, an LSTM in both directions, and a classifier."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 32), nn.Linear(64, 3)
        self.lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0].mean(1))


def test_a_compiled_graph_uses_the_kernels_and_sums_are_those_of_eager(monkeypatch):
    calls = []
    original = cpu_kernels.lstm_backward
    torch.manual_seed(0)
    model, batch = Reader(), (torch.randint(0, 20, (6, 7)), torch.randint(0, 3, (6,)))
    mask = torch.tensor([True] * 5 + [False])
    with monkeypatch.context() as patched:
        patched.setattr(cpu_kernels, "_library", None)
        eager = Engine(model, F.cross_entropy, Flat(0.1), compile=False)(batch, mask)
    monkeypatch.setattr(cpu_kernels, "_library", None)  # a compiled graph loads it again
    monkeypatch.setattr(cpu_kernels, "lstm_backward", lambda *args: calls.append(1) or original(*args))
    compiled = Engine(model, F.cross_entropy, Flat(0.1), compile=True)(batch, mask)
    assert calls
    for name, value in eager.sums.items():
        torch.testing.assert_close(compiled.sums[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("no_compiler")
def test_a_missing_compiler_is_mentioned_only_if_the_graph_uses_a_kernel(monkeypatch, caplog):
    """Noise is drawn without one. The graph itself is not compiled here."""
    monkeypatch.setattr(compilation, "compile_regions", lambda graph, *_: (graph.forward, 0))
    labels = torch.randint(0, 3, (6,))
    plain = Engine(nn.Linear(20, 3), F.cross_entropy, Flat(0.1), compile=True)
    plain((torch.randn(6, 20), labels), torch.ones(6, dtype=torch.bool))
    assert "could not be built" not in caplog.text
    reader = Engine(Reader(), F.cross_entropy, Flat(0.1), compile=True)
    reader((torch.randint(0, 20, (6, 7)), labels), torch.ones(6, dtype=torch.bool))
    assert "could not be built (OSError)" in caplog.text
