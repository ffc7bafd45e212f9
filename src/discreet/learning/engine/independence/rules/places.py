"""Rules of operations that put elements elsewhere: concatenation, gather and scatter, indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discreet.learning.engine.independence.dependence import (
    FREE,
    Along,
    Dependence,
    Free,
    Mixed,
)
from discreet.learning.engine.independence.rules.base import Call, Dependences, aligned, alike, dim_of


def concatenated(call: Call) -> Dependences:
    """Side by side along another dimension; or along the examples' own, if whole turns follow each other."""
    tensors = [t for t in call.given["tensors"] if t.numel()]
    dim = call.given.get("dim", 0) % call.out.dim()
    owns = [call.of(t) for t in tensors]
    alongs = [own for own in owns if not isinstance(own, Free)]
    own = alongs[0]
    if not isinstance(own, Along) or any(other != own for other in alongs):
        return call.mixed("puts examples next to others")
    if own.dim != dim:
        free = [t for t, o in zip(tensors, owns, strict=True) if isinstance(o, Free)]
        same = all(alike(call, t, own, t.dim()) for t in free)
        return own if same else call.mixed("a constant differs from position to position in the batch")
    turn = own.inner * call.examples
    whole = len(alongs) == len(tensors) and own.offset == 0 and all(t.shape[dim] % turn == 0 for t in tensors)
    return own if whole else call.mixed("adds to the batch")


def stacked(call: Call) -> Dependences:
    """Side by side along a new dimension."""
    tensors = call.given["tensors"]
    dim = call.given.get("dim", 0) % call.out.dim()
    own = aligned(call, tensors, tuple(tensors[0].shape))
    return Along(own.dim + (own.dim >= dim), own.inner, own.offset) if isinstance(own, Along) else own


def repeated(call: Call) -> Dependences:
    """Whole copies, one after the other."""
    source, repeats = call.given["self"], call.given["repeats"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    dim = own.dim + len(repeats) - source.dim()
    whole = source.shape[own.dim] % (own.inner * call.examples) == 0
    return Along(dim, own.inner, own.offset) if whole or repeats[dim] == 1 else call.mixed("repeats part of a batch")


def gathered(call: Call) -> Dependences:
    """Picks along one dimension, by indices that have the other dimensions' places."""
    source, index, dim = call.given["self"], call.given["index"], call.given["dim"] % max(call.given["self"].dim(), 1)
    own, picked = call.of(source), call.of(index)
    if isinstance(own, Free):
        return picked if isinstance(picked, Along) and _alike_but(call, source, picked, dim) else call.mixed("no rule")
    if not isinstance(own, Along) or own.dim == dim:
        return call.mixed("picks from other examples")
    if picked == own or (isinstance(picked, Free) and alike(call, index, own, index.dim())):
        return own
    return call.mixed("indices of other examples")


def _alike_but(call: Call, constant: Tensor, along: Along, dim: int) -> bool:
    """Whether a free source is the same for all examples; along the picked dimension anything may differ."""
    return along.dim == dim or alike(call, constant, along, constant.dim())


def scattered(call: Call) -> Dependences:
    """Puts values along one dimension, at indices that have the other dimensions' places."""
    source, index, dim = call.given["self"], call.given["index"], call.given["dim"] % max(call.given["self"].dim(), 1)
    values = [call.given[name] for name in ("src",) if isinstance(call.given.get(name), Tensor)]
    owns = [call.of(t) for t in (source, index, *values)]
    alongs = [own for own in owns if not isinstance(own, Free)]
    own = alongs[0]
    if not isinstance(own, Along) or own.dim == dim or any(other != own for other in alongs):
        return call.mixed("puts values into other examples")
    if index.shape[own.dim] != source.shape[own.dim]:
        return call.mixed("puts values into some examples and not into others")
    free = [t for t, o in zip((source, index, *values), owns, strict=True) if isinstance(o, Free)]
    same = all(alike(call, t, own, t.dim()) for t in free)
    return own if same else call.mixed("a constant differs from position to position in the batch")


def index_select(call: Call) -> Dependences:
    """Picks whole slices along one dimension."""
    source, index = call.given["self"], call.given["index"]
    dim = call.given["dim"] % max(source.dim(), 1)
    own, picked = call.of(source), call.of(index)
    if isinstance(own, Free):
        return Along(dim, picked.inner, picked.offset) if isinstance(picked, Along) else call.mixed("no rule")
    if isinstance(own, Along) and own.dim != dim and isinstance(picked, Free):
        return own
    return call.mixed("picks from other examples")


def indexed(call: Call) -> Dependences:
    """`x[i, :, j]` with tensors of indices: where they pick examples, each must pick its own (`arange(B)`)."""
    source, indices = call.given["self"], call.given["indices"]
    layout = _Indexing.of(source, indices)
    if layout is None:
        return call.mixed("a shape that depends on values")
    own = call.of(source)
    # The index that picks the examples differs from position to position, as it must; `_own_examples` looks at it.
    picks = [index for dim, index in enumerate(indices) if index is not None and dim != dim_of(own)]
    from_indices = aligned(call, picks, layout.broadcast)
    if isinstance(from_indices, Mixed):
        return from_indices
    answer: Dependence = FREE
    if isinstance(from_indices, Along):
        answer = Along(from_indices.dim + layout.start, from_indices.inner, from_indices.offset)
    if isinstance(own, Along):
        placed = _own_examples(call, layout, own)
        if placed is None or not (isinstance(answer, Free) or answer == placed):
            return call.mixed("picks from other examples")
        if not _picks_alike(call, layout, own, placed):
            return call.mixed("a constant differs from position to position in the batch")
        answer = placed
    return answer


def _picks_alike(call: Call, layout: _Indexing, own: Along, placed: Along) -> bool:
    """Whether free indices pick the same of every example; the one that picks the example itself is checked before."""
    dim, rank = placed.dim - layout.start, len(layout.broadcast)
    if not 0 <= dim < rank:
        return True  # the examples are along a dimension that has no index
    within = Along(dim, placed.inner, placed.offset)
    others = [index for axis, index in enumerate(layout.indices) if index is not None and axis != own.dim]
    return all(alike(call, index, within, rank) for index in others if isinstance(call.of(index), Free))


@dataclass(frozen=True)
class _Indexing:
    """Where the dimensions of `x[indices]` come from."""

    indices: tuple[Tensor | None, ...]
    broadcast: tuple[int, ...]
    #: Where the broadcast dimensions of the indices begin in the result.
    start: int
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, source: Tensor, indices: Sequence[Tensor | None]) -> _Indexing | None:
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
            return None
        padded = (*indices, *(None for _ in range(source.dim() - len(indices))))
        used = [axis for axis, index in enumerate(padded) if index is not None]
        adjacent = used == list(range(used[0], used[-1] + 1))
        shapes = [index.shape for index in padded if index is not None]
        shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]  # torch's own
        return cls(padded, tuple(shape), used[0] if adjacent else 0, tuple(source.shape))


def _own_examples(call: Call, layout: _Indexing, own: Along) -> Along | None:
    """Where the examples of the source lie in the result, if the indices leave each example its own."""
    index = layout.indices[own.dim]
    if index is None:
        before = sum(earlier is None for earlier in layout.indices[: own.dim])
        dim = before if before < layout.start else before + len(layout.broadcast)
        return Along(dim, own.inner, own.offset)
    value = call.value(index) if isinstance(call.of(index), Free) else None
    if value is None:
        return None
    value = torch.where(value < 0, value + layout.lengths[own.dim], value)  # counted from the end
    position = (value + own.offset).expand(layout.broadcast)
    example = (position // own.inner) % call.examples
    relative = position - example * own.inner  # where in its example
    for dim, length in enumerate(layout.broadcast):
        inner = length // call.examples
        if inner * call.examples != length or not inner:
            continue
        turn = torch.arange(length, device=value.device) // inner
        shape = [1] * len(layout.broadcast)
        shape[dim] = length
        same = torch.equal(relative.narrow(dim, inner, length - inner), relative.narrow(dim, 0, length - inner))
        if same and torch.equal(example, turn.reshape(shape).expand(layout.broadcast)):
            return Along(dim + layout.start, inner)
    return None


def put(call: Call) -> Dependences:
    """`x[i, :, j] = values`, written to a copy or in place: indices and values must belong to the places' examples."""
    source, values = call.given["self"], call.given["values"]
    layout = _Indexing.of(source, call.given["indices"])
    if layout is None:
        # A boolean mask of the leading dimensions selects places; one number for all of them is element by element.
        (mask,) = [index for index in call.given["indices"] if index is not None]
        if values.numel() == 1 and isinstance(call.of(values), Free) and call.given["indices"][0] is mask:
            shape = (*mask.shape, *(1 for _ in range(source.dim() - mask.dim())))
            spread = call.of(mask)
            own = call.of(source)
            if isinstance(spread, Free):
                return (
                    own if isinstance(own, Along) and alike(call, mask.reshape(shape), own, source.dim()) else _no(call)
                )
            if isinstance(own, Free):
                same = isinstance(spread, Along) and alike(call, source, spread, source.dim())
                return spread if same else _no(call)
            return spread if own == spread else _no(call)
        return call.mixed("a shape that depends on values")
    own = call.of(source)
    picks = [index for index in call.given["indices"] if index is not None]
    along = own if isinstance(own, Along) else None
    if along is None:
        # Free places: values along their kept dimension are the only case that is told apart.
        if all(isinstance(call.of(index), Free) for index in picks):
            shape = _put_shape(source, layout)
            seen = aligned(call, [values], shape)
            if isinstance(seen, Along):
                for dim in range(source.dim()):
                    candidate = Along(dim, seen.inner, seen.offset)
                    same = alike(call, source, candidate, source.dim()) and _picks_alike(call, layout, candidate, seen)
                    if same and _own_examples(call, layout, candidate) == seen:
                        return candidate
        return _no(call)
    placed = _own_examples(call, layout, along)
    if placed is None or not _picks_alike(call, layout, along, placed):
        return _no(call)
    shape = _put_shape(source, layout)
    seen = aligned(call, [values], shape)
    if isinstance(seen, Free) and not alike(call, values, placed, len(shape)):
        return _no(call)
    from_indices = aligned(call, picks, layout.broadcast)
    if isinstance(from_indices, Along):
        from_indices = Along(from_indices.dim + layout.start, from_indices.inner, from_indices.offset)
    fits = all(isinstance(dependence, Free) or dependence == placed for dependence in (seen, from_indices))
    return along if fits else _no(call)


def _put_shape(source: Tensor, layout: _Indexing) -> tuple[int, ...]:
    kept = [length for length, index in zip(source.shape, layout.indices, strict=True) if index is None]
    return (*kept[: layout.start], *layout.broadcast, *kept[layout.start :])


def _no(call: Call) -> Mixed:
    return call.mixed("puts values into other examples")
