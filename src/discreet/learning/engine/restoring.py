"""Keeps what outlives a pass as it was before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.origin import storage_of


def _memory(tensor: Tensor) -> Tensor:
    """All bytes of a tensor's storage, whatever part of them it shows, also if it was made in inference mode."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


@contextmanager
def put_back(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Undo what is written to the memory of these tensors within, also where torch counts no write."""
    with torch.no_grad():
        storages: dict[StorageWeakRef, Tensor] = {storage_of(tensor): _memory(tensor) for tensor in tensors}
        before = [(memory, memory.clone()) for memory in storages.values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for memory, value in before:
                memory.copy_(value)


@contextmanager
def unwritten(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Refuse code that writes to parameters within; they may be too large to keep copies of them."""
    before = [parameter._version for parameter in parameters]
    yield
    if [parameter._version for parameter in parameters] != before:
        raise InvalidArgument(
            "the forward pass must not write to parameters, but it does: later passes would depend on how many came "
            "before; make what it writes to a buffer"
        )


def for_writing(arguments: Sequence[Tensor], written: Sequence[int], fixed: int) -> list[Tensor]:
    """The arguments of a graph that writes to some of them.

    Those of the batch, from `fixed` on, are copies with the same strides. The others keep their memory, but not what an
    operation like `t_` changes of the tensor itself.
    """
    result = list(arguments)
    rows = [storage_of(each) for each in arguments[fixed:]] if written and written[-1] >= fixed else []
    for position in written:
        tensor = arguments[position]
        if position < fixed:
            result[position] = tensor.detach()
            continue
        overlaps = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
        if overlaps or rows.count(storage_of(tensor)) > 1:
            raise InvalidArgument(
                "the tensors of a batch that the model writes to must not share memory, got one that does: copy them, "
                "or write x = x + y instead of x += y"
            )
        result[position] = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        ).copy_(tensor)
    return result
