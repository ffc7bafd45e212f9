"""Indices and probabilities that are out of range raise an error on a GPU, as they do on a CPU.

A GPU checks them inside a kernel, and where that fails, the process can never use the device again. The dry run makes
up examples, so it meets such values also in models that are fine: a column of numbers that the model reads as
categories is changed like any other number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
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
    scores, targets = args[:2]
    ignored = args[4] if len(args) > 4 else -100
    yield torch.where(targets == ignored, 0, targets), 0, scores.shape[min(1, scores.dim() - 1)] - 1


def _probabilities(args: _Args) -> Iterator[_Check]:
    yield args[0], 0, 1


def _weights(args: _Args) -> Iterator[_Check]:
    yield args[0], 0, torch.finfo(args[0].dtype).max


_ALONG = """gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_select index_add
    index_add_ index_copy index_copy_ index_fill index_fill_ index_reduce index_reduce_"""
#: By the name of an operation of aten, or of one of its overloads.
_CHECKS: dict[str, Callable[[_Args], Iterator[_Check]]] = {
    **dict.fromkeys(["embedding", "_embedding_bag", "_embedding_bag_forward_only"], _rows),
    **dict.fromkeys(_ALONG.split(), _along),
    **dict.fromkeys(["take", "put", "put_"], _anywhere),
    **dict.fromkeys(["index", "index_put", "index_put_", "_index_put_impl_"], _advanced),
    **dict.fromkeys(["nll_loss_forward", "nll_loss2d_forward"], _classes),
    **dict.fromkeys(["bernoulli.default", "binary_cross_entropy"], _probabilities),
    "multinomial": _weights,
}


class CheckedValues(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Raises IndexError where an operation gets an index or a probability that is out of range."""

    def __torch_dispatch__(self, func: Any, types: Any, args: _Args = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func.overloadpacket.__name__ if func.namespace == "aten" else ""
        find = _CHECKS.get(name) or _CHECKS.get(f"{name}.{func._overloadname}")
        for values, least, most in find(args) if find else ():
            if not bool(((values >= least) & (values <= most)).all()):
                raise IndexError(f"a value is out of range in {func}")
        return func(*args, **(kwargs or {}))
