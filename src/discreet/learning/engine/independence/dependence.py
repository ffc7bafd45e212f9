"""Which example each element of a tensor may depend on.

The elements of a tensor are free of examples, belong to examples along one dimension, all belong to one example, or may
depend on several. The answer is kept per *storage*, as stripes of bytes that belong to example 0, 1, 2, … in turn. What
a view depends on follows from its strides, so views, permutations and reshapes need no rules, and a write through one
view is seen through every other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Free:
    """Depends on no example: parameters, constants, and random numbers (`random`), alike at every position."""

    random: bool = False


@dataclass(frozen=True)
class Along:
    """The element at index i of `dim` depends on example ((i + offset) // inner) mod B at most."""

    dim: int
    inner: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Single:
    """Every element depends on this one example at most."""

    example: int


@dataclass(frozen=True)
class Mixed:
    """May depend on several examples; `reason` says which operation made it so, and where."""

    reason: str


@dataclass(frozen=True)
class Stripes:
    """The byte at address a of a storage depends on example ((a − phase) // step) mod B at most."""

    step: int
    phase: int


Dependence = Free | Along | Single | Mixed
#: What is known of a storage as a whole.
Memory = Free | Stripes | Single | Mixed

FREE = Free()
RANDOM = Free(random=True)


def free_of(inputs: Iterable[Dependence]) -> Free:
    """The dependence of a result whose inputs are all free: random if one of them is."""
    return RANDOM if any(isinstance(value, Free) and value.random for value in inputs) else FREE


def settled(dependence: Dependence, shape: tuple[int, ...], examples: int) -> Dependence:
    """One spelling per meaning: `Single` where the indices of a shape reach one example, and the smallest offset."""
    if 0 in shape:
        return FREE
    if not isinstance(dependence, Along):
        return dependence
    size, inner = shape[dependence.dim], dependence.inner
    offset = dependence.offset % (inner * examples)
    if examples == 1 or offset % inner + size <= inner:
        return Single(offset // inner % examples)
    return replace(dependence, offset=offset)


def in_view(tensor: Tensor, memory: Memory, examples: int) -> Dependence:
    """What a tensor's elements depend on, given what its storage does."""
    if not isinstance(memory, Stripes):
        return memory
    if tensor.numel() == 0:
        return FREE
    size, period = tensor.itemsize, memory.step * examples
    start = (tensor.storage_offset() * size - memory.phase) % period
    # A dimension that moves by whole periods does not change the example.
    moving = [
        (stride * size, length, dim)
        for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if length > 1 and stride * size % period
    ]
    extent = size + sum(stride * (length - 1) for stride, length, _ in moving)
    if start % memory.step + extent <= memory.step:
        return Single(start // memory.step)
    if moving:
        stride, length, dim = max(moving)
        rest = extent - stride * (length - 1)  # the bytes that the smaller dimensions cover
        if memory.step % stride == 0 and start % stride + rest <= stride:
            return settled(Along(dim, memory.step // stride, start // stride), tuple(tensor.shape), examples)
    return Mixed("a view that cuts across examples")


def in_memory(tensor: Tensor, dependence: Dependence, examples: int) -> Memory:
    """The dependence of a storage whose only contents are this tensor."""
    dependence = settled(dependence, tuple(tensor.shape), examples)
    if not isinstance(dependence, Along):
        return dependence
    size = tensor.itemsize
    stride = tensor.stride(dependence.dim) * size
    step = stride * dependence.inner
    if step == 0:
        return Mixed("a tensor whose examples share their memory")
    phase = int(tensor.storage_offset() * size - dependence.offset * stride) % (step * examples)
    # A view of part of each row leaves open where the rows begin: at multiples of their length, if that fits.
    for stripes in (Stripes(step, phase - phase % step), Stripes(step, phase)):
        # Read back: stripes are right only if no other dimension crosses them.
        if in_view(tensor, stripes, examples) == dependence:
            return stripes
    return Mixed("an unusual order in memory")


def joined(tensor: Tensor, before: Memory, written: Dependence, examples: int) -> Memory:
    """What a storage depends on after `written` went into the elements of one view of it."""
    written = settled(written, tuple(tensor.shape), examples)
    if isinstance(before, Mixed):
        return before
    if isinstance(written, Mixed):
        return written
    if isinstance(written, Free):
        if not isinstance(before, Free):
            return before  # elements that no longer depend on their example may still be said to
        everything = tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()
        return written if everything else (before if before == written else FREE)
    if isinstance(before, Free):
        if isinstance(written, Along):
            return in_memory(tensor, written, examples)
        # One example's row of a result that is filled in a loop: equal stripes are the natural reading.
        size = tensor.untyped_storage().nbytes()
        before = Stripes(size // examples, 0) if size % examples == 0 and size else Mixed("a row of unknown length")
    if in_view(tensor, before, examples) == written:
        return before
    return Mixed("a write that puts examples next to others")
