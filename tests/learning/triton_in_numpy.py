"""Runs the kernels of `chacha_kernel` on a CPU: as much of Triton as they use, in numpy, one program after the other.

Every access to memory is checked: a kernel that reads or writes outside the tensors that it was given fails.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from discreet.learning.noise import chacha_kernel


class Numbers(np.ndarray):
    """A block of numbers, or one number as a block of one."""

    def to(self, kind: Any, bitcast: bool = False) -> Any:
        if isinstance(kind, _PointerTo):
            return Pointer(self, kind.element)
        return self.view(kind) if bitcast else self.astype(kind)


def numbers(value: Any, kind: Any) -> Numbers:
    return np.atleast_1d(np.asarray(value, kind)).view(Numbers)


class _PointerTo:
    def __init__(self, element: Any) -> None:
        self.element = np.dtype(element)


class Pointer:
    """Addresses of elements of one type."""

    memory: tuple[Tensor, ...] = ()

    def __init__(self, addresses: Numbers, element: Any) -> None:
        self.addresses, self.element = addresses, np.dtype(element)

    def __add__(self, places: Any) -> Pointer:
        return Pointer(self.addresses + self.element.itemsize * np.asarray(places, np.int64), self.element)

    def cells(self, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """The tensor that the addresses are in, as a flat array, and where in it they are."""
        wanted = np.asarray(self.addresses)[np.broadcast_to(True if mask is None else mask, self.addresses.shape)]
        for tensor in self.memory:
            size = tensor.numel() * tensor.element_size()
            if size and wanted.size and tensor.data_ptr() <= wanted.min() and wanted.max() < tensor.data_ptr() + size:
                flat = tensor.as_strided((tensor.numel(),), (1,)).numpy()
                assert flat.dtype == self.element
                return flat, (wanted - tensor.data_ptr()) // self.element.itemsize
        assert not wanted.size, "an access outside all tensors"
        return np.empty(0, self.element), wanted


def _load(pointer: Pointer, mask: Any = None, other: float = 0.0) -> Numbers:
    read = np.full(pointer.addresses.shape, other, pointer.element)
    flat, places = pointer.cells(mask)
    read[np.broadcast_to(True if mask is None else mask, read.shape)] = flat[places]
    return read.view(Numbers)


def _store(pointer: Pointer, value: Numbers, mask: Any) -> None:
    flat, places = pointer.cells(mask)
    flat[places] = np.asarray(value)[np.asarray(mask)]


class _Kernel:
    """A function that is called by other kernels, or launched as kernel[grid](…)."""

    program = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*arguments: Any, num_warps: int, **constants: Any) -> None:
            del num_warps
            tensors = tuple(value for value in arguments if isinstance(value, Tensor))
            with memory_of(tensors):
                for _Kernel.program in range(grid[0]):
                    self._function(*map(_given, arguments), **constants)

        return launch


def _given(value: Any) -> Any:
    """An argument as a kernel gets it: a pointer, or a number in 32 bits where it fits in."""
    if isinstance(value, Tensor):
        return Pointer(numbers(value.data_ptr(), np.int64), value.numpy().dtype)
    if isinstance(value, float):
        return numbers(value, np.float32)
    return numbers(value, np.int32 if -(1 << 31) <= value < 1 << 31 else np.int64)


@contextlib.contextmanager
def memory_of(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let kernels use the memory of these tensors too."""
    before = Pointer.memory
    Pointer.memory = (*before, *tensors)
    try:
        yield
    finally:
        Pointer.memory = before


def _jit(function: Any = None, **options: Any) -> Any:
    return _jit if function is None else _Kernel(function)


_LANGUAGE = {
    "constexpr": int,
    "pointer_type": _PointerTo,
    "program_id": lambda axis: numbers(_Kernel.program, np.int32),
    "zeros": lambda shape, kind: np.zeros(shape, kind).view(Numbers),
    "arange": lambda start, end: np.arange(start, end, dtype=np.int32).view(Numbers),
    "load": _load,
    "store": _store,
    **{name: getattr(np, name) for name in ("sqrt", "log", "cos", "sin", "where")},
    **{name: getattr(np, name) for name in ("int32", "uint32", "int64", "uint64", "float32", "float64")},
}


def emulated(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`chacha_kernel` with this Triton, whatever the machine has, for tensors on the CPU."""
    language = ModuleType("triton.language")
    vars(language).update(_LANGUAGE)
    triton = ModuleType("triton")
    vars(triton).update(jit=_jit, language=language)
    spec = importlib.util.spec_from_file_location("emulated_chacha_kernel", chacha_kernel.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "triton", triton)
        patch.setitem(sys.modules, "triton.language", language)
        spec.loader.exec_module(module)
    of_torch: Any = SimpleNamespace(**{name: getattr(torch, name) for name in ("empty", "float32")})
    of_torch.tensor = lambda values, pin_memory: torch.tensor(values)
    in_one_launch: Any = module.noisy

    def noisy(values: Sequence[Tensor], out: Sequence[Tensor], *rest: Any) -> None:
        with memory_of([*values, *out]):
            in_one_launch(values, out, *rest)

    vars(module).update(torch=of_torch, noisy=noisy, supports=lambda device: True)
    return module
