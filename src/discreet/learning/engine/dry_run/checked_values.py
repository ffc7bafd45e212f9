"""Indices and probabilities that are out of range raise an error that holds no value, before an operation reads them.

A GPU checks them inside a kernel, and where that fails, the process can never use the device again. On a CPU the
operation's own error would name the value, which may be a label of the dataset. The dry run makes up examples, so it
meets such values also in models that are fine: a column of numbers that the model reads as categories is changed like
any other number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

_Args = tuple[Any, ...]
#: Values, and the range that they must be in, with both ends.
_Check = tuple[Tensor, float, float]


def _rows(args: _Args) -> Iterator[_Check]:
    """`embedding` and its like: the first argument is the table, the second the indices."""
    yield args[1], 0, args[0].shape[0] - 1


def _along(args: _Args) -> Iterator[_Check]:
    """`gather`, `scatter` and their like: a tensor, a dimension of it, and indices into that dimension."""
    value, dim, index = args[:3]
    yield index, 0, (value.shape[dim] if value.dim() else 1) - 1


def _along_from_both_ends(args: _Args) -> Iterator[_Check]:
    for index, _, last in _along(args):
        yield index, -last - 1, last


def _anywhere(args: _Args) -> Iterator[_Check]:
    """`take` and `put`: indices into all elements, also from the end."""
    yield args[1], -args[0].numel(), args[0].numel() - 1


def _advanced(args: _Args) -> Iterator[_Check]:
    """`x[i, j]`: one index or none for each dimension, also from the end. A mask takes the dimensions that it has."""
    value, dim = args[0], 0
    for index in args[1]:
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        if index is not None and not is_mask:
            yield index, -value.shape[dim], value.shape[dim] - 1
        dim += index.dim() if is_mask else 1


def _classes(args: _Args) -> Iterator[_Check]:
    """Losses over classes: scores with the classes in dimension 1, targets, weights, reduction, the ignored target."""
    scores, targets, _, _, ignored = args
    targets = targets.long()  # bytes are compared modulo 256
    yield torch.where(targets == ignored, 0, targets), 0, scores.shape[min(1, scores.dim() - 1)] - 1


def _last_classes(args: _Args) -> Iterator[_Check]:
    """`multi_margin_loss`: scores with the classes last, and targets."""
    yield args[1], 0, (args[0].shape[-1] if args[0].dim() else 1) - 1


def _sets_of_classes(args: _Args) -> Iterator[_Check]:
    """`multilabel_margin_loss`: scores with the classes last, and sets of targets, which end with -1."""
    yield args[1], -1, (args[0].shape[-1] if args[0].dim() else 1) - 1


def _selected(args: _Args) -> Iterator[_Check]:
    """`masked_scatter`: a tensor, a mask, and one number for each element that the mask selects."""
    value, mask, source = args
    _, mask = torch.broadcast_tensors(value, mask)  # type: ignore[no-untyped-call]  # torch's own
    yield mask.count_nonzero(), 0, source.numel()


def _probabilities(args: _Args) -> Iterator[_Check]:
    yield args[0], 0, 1


def _both_probabilities(args: _Args) -> Iterator[_Check]:
    yield args[0], 0, 1
    yield args[1], 0, 1


def _second_probabilities(args: _Args) -> Iterator[_Check]:
    yield args[1], 0, 1


def _weights(args: _Args) -> Iterator[_Check]:
    """`multinomial`: the weights of each row must have a positive and finite sum."""
    sums = args[0].sum(-1, dtype=torch.promote_types(args[0].dtype, torch.float32))
    yield args[0], 0, math.inf
    yield sums.isfinite() & (sums > 0), 1, 1


_ALONG = """gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_select index_add
    index_add_ index_copy index_copy_ index_reduce index_reduce_"""
#: By the name of an operation of aten, or of one of its overloads.
_CHECKS: dict[str, Callable[[_Args], Iterator[_Check]]] = {
    **dict.fromkeys(["embedding", "embedding_renorm_", "_embedding_bag", "_embedding_bag_forward_only"], _rows),
    **dict.fromkeys(_ALONG.split(), _along),
    **dict.fromkeys(["index_fill", "index_fill_"], _along_from_both_ends),
    **dict.fromkeys(["take", "put", "put_"], _anywhere),
    **dict.fromkeys(["index", "index_put", "index_put_", "_index_put_impl_"], _advanced),
    **dict.fromkeys(["nll_loss_forward", "nll_loss2d_forward"], _classes),
    "multi_margin_loss": _last_classes,
    "multilabel_margin_loss_forward": _sets_of_classes,
    **dict.fromkeys(["masked_scatter", "masked_scatter_"], _selected),
    "bernoulli.default": _probabilities,
    **dict.fromkeys(["bernoulli.Tensor", "bernoulli_.Tensor"], _second_probabilities),
    "binary_cross_entropy": _both_probabilities,
    "multinomial": _weights,
}


class CheckedValues(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Raises IndexError where an operation gets an index or a probability that is out of range."""

    def __torch_dispatch__(self, func: Any, types: Any, args: _Args = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func.overloadpacket.__name__ if func.namespace == "aten" else ""
        find = _CHECKS.get(name) or _CHECKS.get(f"{name}.{func._overloadname}")
        for values, least, most in find(args) if find else ():
            if not _is_in_range(values, least, most):
                raise IndexError(f"a value is out of range in {func}")
        return func(*args, **(kwargs or {}))


def _is_in_range(values: Tensor, least: float, most: float) -> bool:
    if values.is_meta or isinstance(values, FakeTensor):  # no data, as where a model traces a part of itself
        return True
    return bool(((values >= least) & (values <= most)).all())
