"""Compiled code for what is slow on a CPU otherwise: the steps of an LSTM, Gram matrices, and normal noise.

The code is C++ (cpu_kernels.cpp). torch's compiler builds it, with the C++ compiler that it uses for its own code, and
keeps it on disk. It is built when a graph is compiled for a CPU: a training that is too short for that does without.
Before that, where building fails, and for types and sizes that it does not cover, torch's and numpy's operations are
used.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_log = logging.getLogger("discreet.learning")
_LOCK = threading.Lock()
#: Products and sums of the kernels may be contracted to one operation that rounds once. Values that are not finite stay
#: so, and sums keep their order, whatever torch's compiler is configured to allow for its own code. Loops of normals
#: become vectors, which needs square roots without errno. Each compiler must know these: clang refuses unknown flags.
_FLAGS = (
    "-ffp-contract=fast",
    "-fno-finite-math-only",
    "-fno-unsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-math-errno",
)
#: torch's own code has its vectors written out, so torch tells GCC not to vectorize loops; clang does so by default.
_FLAGS_OF_GCC = ("-ftree-loop-vectorize",)

#: For shorter rows torch's own product takes less time.
_NARROWEST = 192

#: The operations of a graph that the kernels make faster.
OPERATIONS = frozenset({"discreet.grams.default", "discreet.lstm_steps.default", "discreet.lstm_backward.default"})

_library: Any = None
_failure = ""
_warned = False


def build(wanted: bool = True) -> None:
    """Build the kernels, or load those that were built before.

    Args:
        wanted: warn once if that fails. Where only noise would use them, numpy draws it, and nobody needs to know.
    """
    global _library, _failure, _warned
    with _LOCK:
        if _library is None and not _failure:
            try:
                _library = _load()
            except Exception as error:  # no C++ compiler, or one that fails in any way
                _failure = type(error).__name__
        if _failure and wanted and not _warned:
            _warned = True
            _log.warning("the kernels for CPUs could not be built (%s); continuing without them, slower", _failure)


def _load() -> Any:
    from torch._inductor.codecache import CppCodeCache  # slow to import
    from torch._inductor.cpp_builder import is_gcc

    source = resources.files(__package__).joinpath("cpu_kernels.cpp").read_text(encoding="utf-8")
    library: Any = CppCodeCache.load(source, extra_flags=(*_FLAGS, *(_FLAGS_OF_GCC if is_gcc() else ())))
    library.lanes.restype = ctypes.c_int64
    return library


@torch.library.custom_op("discreet::grams", mutates_args=())
def grams(rows: Tensor) -> Tensor:
    """⟨a_t, a_s⟩ for all pairs of the T rows of each example, from [B, T, d] to [B, T, T]."""
    _, length, width = rows.shape
    covered = rows.device.type == "cpu" and rows.dtype == torch.float32 and length % 4 == 0 and width >= _NARROWEST
    if _library is None or not covered:
        return rows @ rows.mT
    rows = rows if rows.stride(2) == 1 else rows.contiguous()
    result = rows.new_empty(rows.shape[0], rows.shape[1], rows.shape[1])
    numbers = (*rows.shape, rows.stride(0), rows.stride(1), torch.get_num_threads())
    _library.grams(_address(rows), _address(result), *map(ctypes.c_int64, numbers))
    return result


@grams.register_fake
def _(rows: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], rows.shape[1], rows.shape[1])


def is_built() -> bool:
    """Whether the kernels can be used in this process."""
    return _library is not None


def normals(words: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """Fill `out` with independent standard normals, made of fair random bits by the formula of Box and Muller.

    As `GaussianNoise` makes them of the same bits, up to a relative error of 1e-6 and an absolute one of 1e-6.

    Args:
        words: 6 bytes for each number: first a 32-bit integer for the angle of each pair, then a 64-bit one for its
            radius.
        out: contiguous, and of even length: the cosines of all pairs, then their sines.
    """
    assert out.size % 2 == 0, "normals come in pairs"
    assert words.size == 6 * out.size, "each pair takes 12 bytes"
    assert words.flags.c_contiguous, "the kernel reads words that lie next to each other"
    assert out.flags.c_contiguous, "the kernel writes numbers that lie next to each other"
    pairs = out.size // 2
    addresses = words.ctypes.data, words.ctypes.data + 4 * pairs, out.ctypes.data, out.ctypes.data + 4 * pairs
    _library.normals(*map(ctypes.c_void_p, addresses), ctypes.c_int64(pairs))


def supports(gates: Tensor, hidden: Tensor, cell: Tensor, u: Tensor) -> bool:
    """Whether the kernel is there and covers these products with the inputs [T, B, 4·H], states [B, H] and U.

    The kernels read memory by these shapes, so they must hold for every tensor.
    """
    (examples, size), length = hidden.shape, gates.shape[0]
    shapes = (length, examples, 4 * size), (examples, size), (examples, size), (4 * size, size)
    return _covers(size, zip((gates, hidden, cell, u), shapes, strict=True))


def supports_backward(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, u: Tensor, cells: Tensor, kept: Tensor
) -> bool:
    """Whether the kernel of the backward pass is there and covers these tensors."""
    length, examples, size = cells.shape
    tensors = grad, grad_cell, cell, u, cells, kept
    state, steps = (examples, size), (length, examples, size)
    shapes = steps, state, state, (4 * size, size), steps, (length, 5, examples, size)
    return _covers(size, zip(tensors, shapes, strict=True))


def _covers(size: int, expected: Iterable[tuple[Tensor | None, tuple[int, ...]]]) -> bool:
    if _library is None or size % _library.lanes():
        return False
    given = ((tensor, shape) for tensor, shape in expected if tensor is not None)
    return all(
        tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.shape == shape and tensor.numel() > 0
        for tensor, shape in given
    )


def lstm(
    gates: Tensor, hidden: Tensor, cell: Tensor, u: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `recurrent_steps.lstm`."""
    length, examples, size = *gates.shape[:2], hidden.shape[1]
    outputs, cells = (gates.new_empty(length, examples, size) for _ in range(2))
    kept = gates.new_empty(length, 5, examples, size)
    inputs = [value.contiguous() for value in (gates, hidden, cell, u.t())]
    _run(_library.lstm_forward, [*inputs, outputs, cells, kept], kept, reverse)
    return outputs, cells[0 if reverse else -1].clone(), cells, kept


def lstm_backward(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, u: Tensor, cells: Tensor, kept: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """As `recurrent_steps.lstm_backward`."""
    grads = cells.new_empty(*cells.shape[:2], 4 * cells.shape[2])
    of_cell = (
        cells.new_zeros(cell.shape) if grad_cell is None else grad_cell.clone(memory_format=torch.contiguous_format)
    )
    of_outputs = torch.zeros_like(cells) if grad is None else grad
    of_outputs = of_outputs if of_outputs.stride(2) == 1 else of_outputs.contiguous()
    tensors = [of_outputs, *(value.contiguous() for value in (cell, u, cells, kept)), grads, of_cell]
    _run(_library.lstm_backward, tensors, kept, reverse, *of_outputs.stride()[:2])
    return grads, of_cell


def _run(function: Any, tensors: list[Tensor], kept: Tensor, reverse: bool, *strides: int) -> None:
    length, _, examples, size = kept.shape
    numbers = (length, examples, size, int(reverse), min(torch.get_num_threads(), examples), *strides)
    function(*map(_address, tensors), *map(ctypes.c_int64, numbers))


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
