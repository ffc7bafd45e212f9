"""Rules of matrix products, convolutions, normalizations, embeddings, attention, recurrent cells and class losses."""

from __future__ import annotations

import torch
from torch import Tensor

from discreet.learning.engine.independence.dependence import (
    FREE,
    Along,
    Dependence,
    Free,
    Mixed,
)
from discreet.learning.engine.independence.rules.base import Call, Dependences, Rule, aligned, alike, dim_of, only


def product(call: Call) -> Dependences:
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
        added = 0 if right.dim() == 1 else rank - tensor.dim()
        placed = Along(dim + added, own.inner, own.offset)
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
    term = aligned(call, [added], tuple(call.out.shape))
    # A product of free matrices must be the same for every example that it is added to.
    from_end = term.dim - rank if isinstance(term, Along) and isinstance(answer, Free) else 0
    if from_end and right.dim() == 1:
        from_end -= 1  # the last dimension of the result is the rows of `left`
    factors = {-1: (right,), -2: (left,), -3: (left, right)}.get(from_end, ())
    for factor in factors:
        dim = from_end + factor.dim()
        if dim >= 0 and not alike(call, factor, Along(dim, term.inner, term.offset), factor.dim()):  # type: ignore[union-attr]  # by `from_end`
            return call.mixed("a constant differs from position to position in the batch")
    return _joined(call, answer, term, added)


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


def trilinear(call: Call) -> Dependences:
    """A product of three tensors with dimensions of length 1 inserted, summed over some dimensions."""
    summed = sorted(call.given["sumdim"])
    alongs, free = set(), []
    for name, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        own = call.of(call.given[name])
        if isinstance(own, Free):
            free.append((call.given[name], sorted(call.given[expanded])))
            continue
        if not isinstance(own, Along):
            return call.mixed("not along a dimension")
        dim = own.dim
        for inserted in sorted(call.given[expanded]):
            dim += inserted <= dim
        if dim in summed:
            return call.mixed("sums over the examples")
        alongs.add(Along(dim, own.inner, own.offset))
    if len(alongs) != 1:
        return call.mixed("multiplies examples with each other")
    (own,) = alongs
    for tensor, inserted in free:
        dim = own.dim - sum(axis < own.dim for axis in inserted)
        if own.dim not in inserted and not alike(call, tensor, Along(dim, own.inner, own.offset), tensor.dim()):
            return call.mixed("a constant differs from position to position in the batch")
    return Along(own.dim - sum(axis < own.dim for axis in summed), own.inner, own.offset)


def linear(call: Call) -> Dependences:
    """x Wᵀ + b along the last dimension of x."""
    own = only(call, "input", ("weight", "bias"))
    return call.mixed("the features are the examples") if dim_of(own) == call.given["input"].dim() - 1 else own


def first_dimension(source: str, *parameters: str) -> Rule:
    """Every row of the first dimension by itself, with parameters that are free."""

    def rule(call: Call) -> Dependences:
        own = only(call, source, [name for name in parameters if isinstance(call.given.get(name), Tensor)])
        return own if dim_of(own) == 0 or isinstance(own, Mixed) else call.mixed("the examples must come first")

    return rule


def layer_norm(call: Call) -> Dependences:
    """Normalizes over the last dimensions; mean and reciprocal deviation keep the others."""
    own = only(call, "input", ("weight", "bias"))
    if isinstance(own, Along) and own.dim >= call.given["input"].dim() - len(call.given["normalized_shape"]):
        return call.mixed("normalizes over the examples")
    return own


def rms_norm(call: Call) -> Dependences:
    """Scales by the root mean square over the last dimensions."""
    own = only(call, "input", ("weight",))
    if isinstance(own, Along) and own.dim >= call.given["input"].dim() - len(call.given["normalized_shape"]):
        return call.mixed("normalizes over the examples")
    return own


def batch_norm(call: Call) -> Dependences:
    """With running statistics: element by element. With the batch's own: each channel (dimension 1) by itself."""
    names = ("weight", "bias", "running_mean", "running_var")
    training = call.given.get("training", call.given.get("train", call.name == "aten._batch_norm_with_update"))
    source = call.given["input"]
    own = call.of(source)
    if not isinstance(own, Along):
        return call.mixed("not along a dimension")
    channels = Along(0, own.inner, own.offset)
    constants = [call.given[name] for name in names if isinstance(call.given.get(name), Tensor)]
    if own.dim == 1 and not all(alike(call, constant, channels, 1) for constant in constants):
        return call.mixed("a constant differs from position to position in the batch")
    if not training:
        kept = only(call, "input", names)
        return [kept, *(FREE for _ in call.results[1:])]
    if own.dim != 1:
        return call.mixed("normalizes over the batch")
    # Instance normalization puts examples and channels into one dimension; scales and statistics are repeated.
    if any(not isinstance(call.of(call.given.get(name)), Free) for name in names):
        return call.mixed("statistics depend on examples")
    return [own, *(channels for _ in call.results[1:])]


def group_norm(call: Call) -> Dependences:
    """Normalizes channels of each row of the first dimension; the statistics are one row each."""
    source = call.given["input"]
    if (call.given["N"], call.given["C"]) != (source.shape[0], source.shape[1]):
        return call.mixed("takes other rows than those of the first dimension")
    return first_dimension("input", "weight", "bias")(call)


def embedding(call: Call) -> Dependences:
    """Rows of a free table, one for each index."""
    if call.given["scale_grad_by_freq"]:
        return call.mixed("gradients are scaled by counts over the batch")
    return only(call, "indices", ("weight",))


def embedding_bag(call: Call) -> Dependences:
    """Bags of equal length, one after the other: bag b starts at b·length."""
    own = only(call, "indices", ("weight", "offsets", "per_sample_weights"))
    if call.given["scale_grad_by_freq"]:
        return call.mixed("gradients are scaled by counts over the batch")
    if not isinstance(own, Along):
        return own
    offsets = call.value(call.given["offsets"])
    length = own.inner
    if offsets is None or call.given["indices"].dim() != 1 or own.offset:
        return call.mixed("bags whose borders are not known")
    count = call.given["indices"].shape[0] // length
    expected = torch.arange(offsets.numel(), device=offsets.device, dtype=offsets.dtype) * length
    last = bool(call.given["include_last_offset"])
    if offsets.numel() != count + last or call.out.shape[0] != count or not torch.equal(offsets, expected):
        return call.mixed("bags that are not one for each example")
    weights = call.given.get("per_sample_weights")
    if isinstance(weights, Tensor) and not alike(call, weights, own, 1):
        return call.mixed("a constant differs from position to position in the batch")
    bags = Along(0)
    return [bags, *(call.mixed("which bag an index is in") for _ in call.results[1:])]


def attention(call: Call) -> Dependences:
    """Scaled dot products: the first two dimensions (examples, heads) of all inputs go together."""
    names = ("query", "key", "value")
    owns = [call.of(call.given[name]) for name in names]
    alongs = {own for own in owns if not isinstance(own, Free)}
    own = next(iter(alongs))
    lengths = {call.given[name].shape[own.dim] for name in names} if isinstance(own, Along) else set()
    if len(alongs) > 1 or not isinstance(own, Along) or own.dim > 1 or len(lengths) > 1:
        return call.mixed("attends from one example to another")
    if not all(isinstance(o, Along) or alike(call, call.given[n], own, 4) for n, o in zip(names, owns, strict=True)):
        return call.mixed("a constant differs from position to position in the batch")
    masks = [m for m in (call.given.get("attn_mask"), call.given.get("attn_bias")) if isinstance(m, Tensor)]
    for mask in masks:
        seen = aligned(call, [mask], (*call.out.shape[:2], *mask.shape[-2:]))
        if seen != own and not (isinstance(seen, Free) and alike(call, mask, own, 4)):
            return call.mixed("a mask that belongs to other examples")
    return [own, *(call.mixed("statistics of the kernel") for _ in call.results[1:])]


def nll(call: Call) -> Dependences:
    """The score of the target class, [N, C] or [N, C, …] and [N, …]."""
    own, target = call.of(call.given["self"]), call.of(call.given["target"])
    if call.given["reduction"] or not isinstance(call.of(call.given.get("weight")), Free):
        return call.mixed("averages over the batch")
    if isinstance(own, Free):
        return call.mixed("scores that do not depend on the examples")
    if not isinstance(own, Along) or own.dim == 1 or call.given["self"].dim() < 2:
        return call.mixed("classes along the examples")
    placed = Along(own.dim - (own.dim > 1), own.inner, own.offset)
    fits = target == placed or (isinstance(target, Free) and alike(call, call.given["target"], placed, call.out.dim()))
    return [placed if fits else call.mixed("targets of other examples"), *(FREE for _ in call.results[1:])]


def recurrent_layer(call: Call) -> Dependences:
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
        rows_of = Along(dim, own.inner, own.offset)
        if seen != rows_of and not (isinstance(seen, Free) and alike(call, state, rows_of, state.dim())):
            return call.mixed("states of other examples")
    last = [Along(out.dim() - 2, own.inner, own.offset) for out in call.results[1:3]]
    return [own, *last, *(call.mixed("scratch space") for _ in call.results[3:])]


def recurrence(call: Call) -> Dependences:
    """Our own recurrences: gates [time, examples, …], states [examples, …]; examples stay last but one."""
    own = only(call, "gates", [name for name in ("u", "c") if isinstance(call.given.get(name), Tensor)])
    if not isinstance(own, Along) or own.dim != 1:
        return own if isinstance(own, Mixed) else call.mixed("steps over the examples")
    for name in ("hidden", "cell"):
        state = call.given.get(name)
        if not isinstance(state, Tensor):
            continue
        seen, rows_of = call.of(state), Along(0, own.inner, own.offset)
        if seen != rows_of and not (isinstance(seen, Free) and alike(call, state, rows_of, state.dim())):
            return call.mixed("states of other examples")
    return [Along(out.dim() - 2, own.inner, own.offset) for out in call.results]


def rows(call: Call) -> Dependences:
    """Every matrix row by row: one step of a recurrent cell. Vectors (biases) are free."""
    tensors = [t for t in call.tensors() if t.dim() == 2]
    owns = {call.of(t) for t in tensors if not isinstance(call.of(t), Free)}
    vectors = [t for t in call.tensors() if all(t is not matrix for matrix in tensors)]
    own = next(iter(owns))
    if len(owns) == 1 and dim_of(own) == 0 and all(isinstance(call.of(t), Free) for t in vectors):
        same = all(isinstance(call.of(t), Along) or alike(call, t, own, 2) for t in tensors)  # type: ignore[arg-type]
        return own if same else call.mixed("a constant differs from position to position in the batch")
    return call.mixed("rows of other examples")
