"""Rules of operations that work element by element, or along dimensions that they name."""

from __future__ import annotations

from torch import Tensor

from discreet.learning.engine.independence.dependence import (
    FREE,
    RANDOM,
    Along,
    Free,
)
from discreet.learning.engine.independence.rules.base import Call, Dependences, Rule, aligned, alike


def pointwise(call: Call) -> Dependences:
    """Each element of the result comes from the elements of the inputs at its place."""
    return [aligned(call, list(call.tensors()), tuple(out.shape)) for out in call.results]


def overwritten(call: Call) -> Dependences:
    """Values of the source, in place of what was there; free ones must be the same for each example there."""
    source, target = call.given["src"], call.of(call.given["self"])
    own = aligned(call, [source], tuple(call.out.shape))
    if isinstance(own, Free) and isinstance(target, Along) and not alike(call, source, target, call.out.dim()):
        return call.mixed("a constant differs from position to position in the batch")
    return own


def bucketized(call: Call) -> Dependences:
    """The index of each element among borders. It is compared with all of them."""
    if not isinstance(call.of(call.given["boundaries"]), Free):
        return call.mixed("borders that depend on examples")
    return aligned(call, [call.given["self"]], tuple(call.out.shape))


def softmax_backward(call: Call) -> Dependences:
    """The gradient of a logarithmic softmax, which sums along its dimension."""
    names = ("grad_output", "output")
    own = aligned(call, [call.given[name] for name in names], tuple(call.out.shape))
    across = isinstance(own, Along) and own.dim == call.given["dim"] % max(call.out.dim(), 1)
    return call.mixed("sums over the examples") if across else own


def constant(call: Call) -> Dependences:
    """Only shapes and types of the inputs are read."""
    return FREE


def drawn(call: Call) -> Dependences:
    """Random numbers that no value of the inputs has part in, but for the bounds of their range."""
    bounds = [value for name, value in call.given.items() if name != "self" and isinstance(value, Tensor)]
    if any(not isinstance(call.of(value), Free) for value in bounds):
        return call.mixed("draws from a range that depends on examples")
    return RANDOM


def _dims(call: Call, rank: int) -> set[int]:
    dims = call.given.get("dim", call.given.get("dims"))
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return set(range(rank))
    listed = dims if isinstance(dims, (list, tuple)) else [dims]
    return {dim % max(rank, 1) for dim in listed}


def reduction(call: Call) -> Dependences:
    """Dimensions are summed away, or become 1: the examples must not be among them."""
    source = call.given["self"]
    own = call.of(source)
    dims = _dims(call, source.dim())
    if not isinstance(own, Along) or own.dim in dims:
        return call.mixed("reduces over the examples")
    kept = call.out.dim() == source.dim()
    dim = own.dim if kept else own.dim - sum(reduced < own.dim for reduced in dims)
    return Along(dim, own.inner, own.offset)


def within(call: Call) -> Dependences:
    """Elements move or meet along some dimensions. The dimension of the examples must not be among them."""
    source = call.given["self"]
    own = call.of(source)
    if not isinstance(own, Along) or own.dim in _dims(call, source.dim()):
        return call.mixed("works across the examples")
    return own


def leading(trailing: int) -> Rule:
    """Works on the last dimensions only: pooling, interpolation, padding of images."""

    def rule(call: Call) -> Dependences:
        source = call.given["self"]
        own = call.of(source)
        if not isinstance(own, Along) or own.dim >= source.dim() - trailing:
            return call.mixed("works across the examples")
        return own

    return rule


def padded(call: Call) -> Dependences:
    """Constant padding; dimensions come in pairs from the last one on."""
    source, pad = call.given["self"], call.given["pad"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    pair = source.dim() - 1 - own.dim
    return call.mixed("pads the batch") if any(pad[2 * pair : 2 * pair + 2]) else own


def unreduced(call: Call) -> Dependences:
    """A loss element by element; reduced over everything it is one number for all examples."""
    return call.mixed("averages over the batch") if call.given["reduction"] else pointwise(call)
