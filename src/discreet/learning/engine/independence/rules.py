"""One rule per aten operation: from what its inputs depend on to what its outputs depend on.

A rule is asked only when the inputs belong to examples along dimensions (`Along`) or to none: inputs that are all free,
all of one example, or mixed are settled before (`proof`). Where a rule cannot say, it answers `Mixed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.independence.dependence import (
    FREE,
    RANDOM,
    Along,
    Dependence,
    Free,
    Mixed,
    Single,
    settled,
)

aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """One call of an operation: its arguments by name, its results, and what each tensor argument depends on."""

    name: str
    given: dict[str, Any]
    results: tuple[Tensor, ...]
    examples: int
    of: Callable[[Any], Dependence]
    #: The value of a free tensor, or None where it is not known while tracing.
    value: Callable[[Tensor], Tensor | None]

    @property
    def out(self) -> Tensor:
        """The first result."""
        return self.results[0]

    def mixed(self, why: str) -> Mixed:
        """The answer of a rule that cannot keep examples apart."""
        return Mixed(f"{self.name}: {why}")

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor among the arguments."""
        for value in self.given.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (one for one in value if isinstance(one, Tensor))


Answer = Dependence | Sequence[Dependence]
Rule = Callable[[Call], Answer]


def aligned(call: Call, tensors: Sequence[Tensor], shape: Sequence[int]) -> Dependence:
    """The dependence of a result of `shape` whose elements come from the elements that broadcasting pairs up."""
    answer: Dependence = FREE
    for tensor in tensors:
        own = call.of(tensor)
        if isinstance(own, Free):
            continue
        if not isinstance(own, Along):
            return own if isinstance(own, Mixed) else call.mixed("one example meets several")
        dim = own.dim + len(shape) - tensor.dim()
        if dim < 0 or tensor.shape[own.dim] != shape[dim]:
            return call.mixed("the dimension of the examples is broadcast")
        placed = settled(Along(dim, own.inner, own.offset), tuple(shape), call.examples)
        if isinstance(answer, Free):
            answer = placed
        elif answer != placed:
            return call.mixed("examples of one input meet other examples of another")
    if isinstance(answer, Along):
        for tensor in tensors:
            if isinstance(call.of(tensor), Free) and not alike(call, tensor, answer, len(shape)):
                return call.mixed("a constant differs from position to position in the batch")
    return answer


def alike(call: Call, constant: Tensor, along: Along, dims: int) -> bool:
    """Whether a free tensor has the same values for every example, or random ones.

    Neighboring datasets put the same example at another position in the batch, so a value must not depend on that.
    """
    dim = along.dim - dims + constant.dim()
    if dim < 0 or constant.shape[dim] == 1 or constant.stride(dim) == 0:
        return True
    own = call.of(constant)
    if isinstance(own, Free) and own.random:
        return True
    value = call.value(constant)
    if value is None:
        return False
    length = value.shape[dim] - along.inner
    if length <= 0:
        return True
    return bool(torch.equal(value.narrow(dim, along.inner, length), value.narrow(dim, 0, length)))


def pointwise(call: Call) -> Answer:
    """Each element of the result comes from the elements of the inputs at its place."""
    return [aligned(call, list(call.tensors()), tuple(out.shape)) for out in call.results]


def overwritten(call: Call) -> Answer:
    """Values of the source, in place of what was there."""
    return aligned(call, [call.given["src"]], tuple(call.out.shape))


def constant(call: Call) -> Answer:
    """Only shapes and types of the inputs are read."""
    return FREE


def drawn(call: Call) -> Answer:
    """Random numbers that no value of the inputs has part in."""
    return RANDOM


def _dims(call: Call, rank: int) -> set[int]:
    dims = call.given.get("dim", call.given.get("dims"))
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return set(range(rank))
    listed = dims if isinstance(dims, (list, tuple)) else [dims]
    return {dim % max(rank, 1) for dim in listed}


def reduction(call: Call) -> Answer:
    """Dimensions are summed away, or become 1: the examples must not be among them."""
    source = call.given["self"]
    own = call.of(source)
    dims = _dims(call, source.dim())
    if not isinstance(own, Along) or own.dim in dims:
        return call.mixed("reduces over the examples")
    kept = call.out.dim() == source.dim()
    dim = own.dim if kept else own.dim - sum(other < own.dim for other in dims)
    return Along(dim, own.inner, own.offset)


def within(call: Call) -> Answer:
    """Elements move or meet along some dimensions, which must not be that of the examples."""
    source = call.given["self"]
    own = call.of(source)
    if not isinstance(own, Along) or own.dim in _dims(call, source.dim()):
        return call.mixed("works across the examples")
    return own


def _only(call: Call, name: str, others: Sequence[str]) -> Along | Mixed:
    """The dependence of one argument, if the others are free."""
    own = call.of(call.given[name])
    if any(not isinstance(call.of(call.given.get(other)), Free) for other in others):
        return call.mixed(f"{' or '.join(others)} depends on examples")
    return own if isinstance(own, Along) else call.mixed(f"{name} does not hold the examples")


def product(call: Call) -> Answer:
    """Matrix products: of batches, of rows with a free matrix, or of a free matrix with columns."""
    left, right = (call.given[name] for name in _FACTORS[call.name])
    a, b = call.of(left), call.of(right)
    rank = call.out.dim()
    answer: Dependence = FREE
    for own, tensor, contracted in ((a, left, left.dim() - 1), (b, right, max(right.dim() - 2, 0))):
        if isinstance(own, Free):
            continue
        if not isinstance(own, Along) or own.dim == contracted:
            return call.mixed("sums over the examples")
        dim = own.dim
        if tensor is right and right.dim() == 1:
            return call.mixed("sums over the examples")
        if tensor is left and right.dim() == 1:
            placed = own
        else:
            placed = Along(dim + rank - tensor.dim(), own.inner, own.offset)
        if isinstance(answer, Along) and (answer != placed or dim >= tensor.dim() - 2):
            return call.mixed("multiplies examples with each other")
        answer = placed
    if isinstance(a, Along) and isinstance(b, Along) and a.dim >= left.dim() - 2:
        return call.mixed("multiplies examples with each other")
    if isinstance(answer, Along):
        for own, tensor in ((a, left), (b, right)):
            batched = tensor.dim() == 3 and answer.dim == 0
            if isinstance(own, Free) and batched and not alike(call, tensor, answer, rank):
                return call.mixed("a constant differs from position to position in the batch")
    added = call.given.get("self") if "self" not in _FACTORS[call.name] else call.given.get("bias")
    if not isinstance(added, Tensor):
        return answer
    return _joined(call, answer, aligned(call, [added], tuple(call.out.shape)), added)


def _joined(call: Call, answer: Dependence, added: Dependence, tensor: Tensor) -> Dependence:
    """The dependence of a product plus a broadcast term."""
    if isinstance(added, Free):
        if isinstance(answer, Along) and not alike(call, tensor, answer, call.out.dim()):
            return call.mixed("a constant differs from position to position in the batch")
        return answer
    return added if isinstance(answer, Free) or answer == added else call.mixed("examples meet others")


_FACTORS = {
    "aten.mm": ("self", "mat2"),
    "aten.bmm": ("self", "mat2"),
    "aten.mv": ("self", "vec"),
    "aten.addmm": ("mat1", "mat2"),
    "aten.addmv": ("mat", "vec"),
    "aten.baddbmm": ("batch1", "batch2"),
}


def linear(call: Call) -> Answer:
    """x Wᵀ + b along the last dimension of x."""
    own = _only(call, "input", ("weight", "bias"))
    return call.mixed("the features are the examples") if _dim(own) == call.given["input"].dim() - 1 else own


def _dim(own: Dependence) -> int | None:
    return own.dim if isinstance(own, Along) else None


def first_dimension(source: str, *parameters: str) -> Rule:
    """Every row of the first dimension by itself, with parameters that are free."""

    def rule(call: Call) -> Answer:
        own = _only(call, source, [name for name in parameters if isinstance(call.given.get(name), Tensor)])
        return own if _dim(own) == 0 or isinstance(own, Mixed) else call.mixed("the examples must come first")

    return rule


def leading(trailing: int) -> Rule:
    """Works on the last dimensions only: pooling, interpolation, padding of images."""

    def rule(call: Call) -> Answer:
        source = call.given["self"]
        own = call.of(source)
        if not isinstance(own, Along) or own.dim >= source.dim() - trailing:
            return call.mixed("works across the examples")
        return own

    return rule


def padded(call: Call) -> Answer:
    """Constant padding; dimensions come in pairs from the last one on."""
    source, pad = call.given["self"], call.given["pad"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    pair = source.dim() - 1 - own.dim
    return call.mixed("pads the batch") if any(pad[2 * pair : 2 * pair + 2]) else own


def layer_norm(call: Call) -> Answer:
    """Normalizes over the last dimensions; mean and reciprocal deviation keep the others."""
    own = _only(call, "input", ("weight", "bias"))
    if isinstance(own, Along) and own.dim >= call.given["input"].dim() - len(call.given["normalized_shape"]):
        return call.mixed("normalizes over the examples")
    return own


def rms_norm(call: Call) -> Answer:
    """Scales by the root mean square over the last dimensions."""
    own = _only(call, "input", ("weight",))
    if isinstance(own, Along) and own.dim >= call.given["input"].dim() - len(call.given["normalized_shape"]):
        return call.mixed("normalizes over the examples")
    return own


def batch_norm(call: Call) -> Answer:
    """With running statistics: element by element. With the batch's own: each channel (dimension 1) by itself."""
    names = ("weight", "bias", "running_mean", "running_var")
    training = call.given.get("training", call.given.get("train", False))
    source = call.given["input"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    if not training:
        kept = _only(call, "input", names)
        return [kept, *(FREE for _ in call.results[1:])]
    if own.dim != 1:
        return call.mixed("normalizes over the batch")
    # Instance normalization runs so: examples and channels are one dimension, and so are repeated scales and statistics.
    channels = Along(0, own.inner, own.offset)
    if any(not isinstance(call.of(call.given.get(name)), Free) for name in names):
        return call.mixed("statistics depend on examples")
    return [own, *(channels for _ in call.results[1:])]


def group_norm(call: Call) -> Answer:
    """Normalizes channels of each row of the first dimension; the statistics are one row each."""
    return first_dimension("input", "weight", "bias")(call)


def embedding(call: Call) -> Answer:
    """Rows of a free table, one for each index."""
    return _only(call, "indices", ("weight",))


def embedding_bag(call: Call) -> Answer:
    """Bags of equal length, one after the other: bag b starts at b·length."""
    own = _only(call, "indices", ("weight", "offsets", "per_sample_weights"))
    if not isinstance(own, Along):
        return own
    offsets = call.value(call.given["offsets"])
    length = own.inner
    if offsets is None or call.given["indices"].dim() != 1 or own.offset:
        return call.mixed("bags whose borders are not known")
    expected = torch.arange(offsets.numel(), device=offsets.device, dtype=offsets.dtype) * length
    if not torch.equal(offsets, expected):
        return call.mixed("bags that are not one for each example")
    bags = Along(0)
    return [bags, *(call.mixed("which bag an index is in") for _ in call.results[1:])]


def attention(call: Call) -> Answer:
    """Scaled dot products: the first two dimensions (examples, heads) of all inputs go together."""
    names = ("query", "key", "value")
    owns = [call.of(call.given[name]) for name in names]
    alongs = {own for own in owns if not isinstance(own, Free)}
    own = next(iter(alongs))
    if len(alongs) > 1 or not isinstance(own, Along) or own.dim > 1:
        return call.mixed("attends from one example to another")
    if not all(isinstance(o, Along) or alike(call, call.given[n], own, 4) for n, o in zip(names, owns, strict=True)):
        return call.mixed("a constant differs from position to position in the batch")
    masks = [m for m in (call.given.get("attn_mask"), call.given.get("attn_bias")) if isinstance(m, Tensor)]
    for mask in masks:
        seen = aligned(call, [mask], (*call.out.shape[:2], *mask.shape[-2:]))
        if seen != own and not (isinstance(seen, Free) and alike(call, mask, own, 4)):
            return call.mixed("a mask that belongs to other examples")
    return [own if out.dim() > own.dim and out.shape[own.dim] == call.out.shape[own.dim] else FREE for out in call.results]


def unreduced(call: Call) -> Answer:
    """A loss element by element; reduced over everything it is one number for all examples."""
    return call.mixed("averages over the batch") if call.given["reduction"] else pointwise(call)


def nll(call: Call) -> Answer:
    """The score of the target class, [N, C] or [N, C, …] and [N, …]."""
    own, target = call.of(call.given["self"]), call.of(call.given["target"])
    if call.given["reduction"] or not isinstance(call.of(call.given.get("weight")), Free):
        return call.mixed("averages over the batch")
    if isinstance(own, Free):
        return target
    if not isinstance(own, Along) or own.dim == 1 or call.given["self"].dim() < 2:
        return call.mixed("classes along the examples")
    placed = Along(own.dim - (own.dim > 1), own.inner, own.offset)
    fits = target == placed or (isinstance(target, Free) and alike(call, call.given["target"], placed, call.out.dim()))
    return [placed if fits else call.mixed("targets of other examples"), *(FREE for _ in call.results[1:])]


def concatenated(call: Call) -> Answer:
    """Side by side along another dimension; or along the examples' own, if whole turns or single examples follow."""
    tensors = [t for t in call.given["tensors"] if t.numel()]
    dim = call.given.get("dim", 0) % call.out.dim()
    owns = [call.of(t) for t in tensors]
    if all(isinstance(own, Single) for own in owns):
        return _in_turn(call, tensors, owns, dim)
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


def _in_turn(call: Call, tensors: Sequence[Tensor], owns: Sequence[Dependence], dim: int) -> Dependence:
    """Results of single examples, put together in the order of the examples."""
    lengths = {t.shape[dim] for t in tensors}
    order = [own.example for own in owns if isinstance(own, Single)]
    if len(lengths) == 1 and order == [i % call.examples for i in range(len(order))]:
        return Along(dim, lengths.pop())
    return call.mixed("puts examples in another order")


def stacked(call: Call) -> Answer:
    """Side by side along a new dimension."""
    tensors = call.given["tensors"]
    dim = call.given.get("dim", 0) % call.out.dim()
    owns = [call.of(t) for t in tensors]
    if all(isinstance(own, Single) for own in owns):
        order = [own.example for own in owns if isinstance(own, Single)]
        right = order == [i % call.examples for i in range(len(order))]
        return Along(dim) if right else call.mixed("puts examples in another order")
    own = aligned(call, tensors, tuple(tensors[0].shape))
    return Along(own.dim + (own.dim >= dim), own.inner, own.offset) if isinstance(own, Along) else own


def recurrent_layer(call: Call) -> Answer:
    """A whole recurrent layer, [time, examples, features]; its states are [examples, features]."""
    own = call.of(call.given["input"])
    states = [call.given["hx_"], call.given["cx_"]]
    weights = [call.given[f"weight{i}"] for i in range(4)]
    if not isinstance(own, Along) or own.dim != 1:
        return call.mixed("steps over the examples")
    if any(not isinstance(call.of(weight), Free) for weight in weights):
        return call.mixed("weights depend on examples")
    for state in states:
        dim = state.dim() - 2
        seen = call.of(state)
        if seen != Along(dim) and not (isinstance(seen, Free) and alike(call, state, Along(dim), state.dim())):
            return call.mixed("states of other examples")
    last = [Along(out.dim() - 2, own.inner, own.offset) for out in call.results[1:3]]
    return [own, *last, *(call.mixed("scratch space") for _ in call.results[3:])]


def repeated(call: Call) -> Answer:
    """Whole copies, one after the other."""
    source, repeats = call.given["self"], call.given["repeats"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    dim = own.dim + len(repeats) - source.dim()
    whole = source.shape[own.dim] % (own.inner * call.examples) == 0
    return Along(dim, own.inner, own.offset) if whole or repeats[dim] == 1 else call.mixed("repeats part of a batch")


def gathered(call: Call) -> Answer:
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


def scattered(call: Call) -> Answer:
    """Puts values along one dimension, at indices that have the other dimensions' places."""
    source, index, dim = call.given["self"], call.given["index"], call.given["dim"] % max(call.given["self"].dim(), 1)
    values = [call.given[name] for name in ("src",) if isinstance(call.given.get(name), Tensor)]
    owns = [call.of(t) for t in (source, index, *values)]
    alongs = [own for own in owns if not isinstance(own, Free)]
    own = alongs[0]
    if not isinstance(own, Along) or own.dim == dim or any(other != own for other in alongs):
        return call.mixed("puts values into other examples")
    free = [t for t, o in zip((source, index, *values), owns, strict=True) if isinstance(o, Free)]
    same = all(alike(call, t, own, t.dim()) for t in free)
    return own if same else call.mixed("a constant differs from position to position in the batch")


def index_select(call: Call) -> Answer:
    """Picks whole slices along one dimension."""
    source, index = call.given["self"], call.given["index"]
    dim = call.given["dim"] % max(source.dim(), 1)
    own, picked = call.of(source), call.of(index)
    if isinstance(own, Free):
        return Along(dim, picked.inner, picked.offset) if isinstance(picked, Along) else call.mixed("no rule")
    if isinstance(own, Along) and own.dim != dim and isinstance(picked, Free):
        return own
    return call.mixed("picks from other examples")


def indexed(call: Call) -> Answer:
    """`x[i, :, j]` with tensors of indices: where they pick examples, each must pick its own (`arange(B)`)."""
    source, indices = call.given["self"], call.given["indices"]
    layout = _Indexing.of(source, indices)
    if layout is None:
        return call.mixed("a shape that depends on values")
    own = call.of(source)
    # The index that picks the examples differs from position to position, as it must; `_own_examples` looks at it.
    picks = [index for dim, index in enumerate(indices) if index is not None and dim != _dim(own)]
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
        answer = placed
    return answer


@dataclass(frozen=True)
class _Indexing:
    """Where the dimensions of `x[indices]` come from."""

    indices: tuple[Tensor | None, ...]
    broadcast: tuple[int, ...]
    #: Where the broadcast dimensions of the indices begin in the result.
    start: int

    @classmethod
    def of(cls, source: Tensor, indices: Sequence[Tensor | None]) -> _Indexing | None:
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
            return None
        padded = (*indices, *(None for _ in range(source.dim() - len(indices))))
        used = [place for place, index in enumerate(padded) if index is not None]
        adjacent = used == list(range(used[0], used[-1] + 1))
        shape = torch.broadcast_shapes(*(index.shape for index in padded if index is not None))
        return cls(padded, tuple(shape), used[0] if adjacent else 0)


def _own_examples(call: Call, layout: _Indexing, own: Along) -> Dependence | None:
    """Where the examples of the source lie in the result, if the indices leave each example its own."""
    index = layout.indices[own.dim]
    if index is None:
        before = sum(other is None for other in layout.indices[: own.dim])
        dim = before if before < layout.start else before + len(layout.broadcast)
        return Along(dim, own.inner, own.offset)
    value = call.value(index) if isinstance(call.of(index), Free) else None
    if value is None:
        return None
    example = ((value + own.offset) // own.inner) % call.examples
    example = example.expand(layout.broadcast) if example.dim() else example
    for dim, length in enumerate(layout.broadcast):
        inner = length // call.examples
        if inner * call.examples != length or not inner:
            continue
        turn = torch.arange(length, device=value.device) // inner
        shape = [1] * len(layout.broadcast)
        shape[dim] = length
        if torch.equal(example, turn.reshape(shape).expand(layout.broadcast)):
            return Along(dim + layout.start, inner)
    return None


def put(call: Call) -> Answer:
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
                return own if isinstance(own, Along) and alike(call, mask.reshape(shape), own, source.dim()) else _no(call)
            return spread if isinstance(own, Free) or own == spread else _no(call)
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
                    if layout.indices[dim] is None and _own_examples(call, layout, Along(dim)) == Along(seen.dim):
                        return Along(dim, seen.inner, seen.offset)
                    if layout.indices[dim] is not None:
                        candidate = Along(dim, seen.inner, seen.offset)
                        if _own_examples(call, layout, candidate) == seen:
                            return candidate
        return _no(call)
    placed = _own_examples(call, layout, along)
    if placed is None:
        return _no(call)
    seen = aligned(call, [values], _put_shape(source, layout))
    from_indices = aligned(call, picks, layout.broadcast)
    if isinstance(from_indices, Along):
        from_indices = Along(from_indices.dim + layout.start, from_indices.inner, from_indices.offset)
    fits = all(isinstance(part, Free) or part == placed for part in (seen, from_indices))
    return along if fits else _no(call)


def _put_shape(source: Tensor, layout: _Indexing) -> tuple[int, ...]:
    kept = [length for length, index in zip(source.shape, layout.indices, strict=True) if index is None]
    return (*kept[: layout.start], *layout.broadcast, *kept[layout.start :])


def _no(call: Call) -> Mixed:
    return call.mixed("puts values into other examples")


def rows(call: Call) -> Answer:
    """Every matrix row by row: one step of a recurrent cell. Vectors (biases) are free."""
    tensors = [t for t in call.tensors() if t.dim() == 2]
    owns = {call.of(t) for t in tensors if not isinstance(call.of(t), Free)}
    others = [t for t in call.tensors() if all(t is not one for one in tensors)]
    own = next(iter(owns))
    if len(owns) == 1 and _dim(own) == 0 and all(isinstance(call.of(t), Free) for t in others):
        same = all(isinstance(call.of(t), Along) or alike(call, t, own, 2) for t in tensors)  # type: ignore[arg-type]
        return own if same else call.mixed("a constant differs from position to position in the batch")
    return call.mixed("rows of other examples")
