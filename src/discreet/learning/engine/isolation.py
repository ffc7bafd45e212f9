"""Watches passes that are not proved: what an example leaves behind must not reach another one.

An example that runs alone cannot meet the others of its batch. It could still meet them through what the model keeps
from one pass to the next: a tensor in an attribute, a write into a buffer, a Python number. So nothing that was
computed from an example may be alive after its pass except the results, nothing may be written into what was there
before, and the attributes of the model are put back.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.origin import storage_of, where


class Isolation(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Follows which tensors of a pass were computed from its batch, and refuses a model that keeps one of them.

    Args:
        batch: what the pass reads.
        writes: whether the pass may write values that depend on no example into what outlives it, such as a count of
            calls. Where every example is a pass, it may not: the count would be the number of examples.

    Guarantee:
        After `finish`, no tensor that torch's operations computed from the batch exists, except the results. Not seen
        are values that Python code takes out of tensors (`item`, numpy) and keeps in a global variable.
    """

    def __init__(self, batch: Any, *, writes: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._writes = writes
        self._rows = {storage_of(leaf) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)}
        #: Storages that hold something of the batch, and storages that were made in this pass.
        self._bound = set(self._rows)
        self._own: set[StorageWeakRef] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors((args, kwargs))
        keys = [storage_of(tensor) for tensor in inputs if tensor.layout == torch.strided]
        # A sparse tensor has no storage to follow, so it counts as part of the batch.
        bound = len(keys) < len(inputs) or any(key in self._bound for key in keys)
        for tensor in _written(func, args, kwargs) if bound or not self._writes else ():
            key = storage_of(tensor)
            if key not in self._own and key not in self._rows:
                raise InvalidArgument(
                    "the forward pass must not write what it sees into the model, but "
                    f"{func._schema.name} writes into a tensor that outlives it {where()}: it would hold the data, or "
                    "the number of examples, without noise; compute it from public data beforehand"
                )
            if bound:
                self._bound.add(key)
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            if tensor.layout != torch.strided or (key := storage_of(tensor)) in keys:
                continue
            self._own.add(key)
            if bound:
                self._bound.add(key)
        return result

    def finish(self, results: Sequence[Tensor] = ()) -> None:
        """Refuse a model that kept something of the batch; call it when only the results may be left."""
        kept = {storage_of(tensor) for tensor in results}
        candidates = (self._bound & self._own) - kept
        if not _alive(candidates):
            return
        gc.collect()  # what is only held by a cycle of references is not kept
        if _alive(candidates):
            raise InvalidArgument(
                "a model whose examples run alone must not keep tensors from one pass to the next, but one that was "
                "computed from examples is alive after its pass: the next example could see it; keep nothing in "
                "attributes, lists or caches"
            )


def _alive(keys: set[StorageWeakRef]) -> bool:
    return any(not key.expired() for key in keys)  # type: ignore[no-untyped-call]  # torch's own


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments that an operation writes to."""
    if not func._schema.is_mutable:
        return []
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    names = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [t for t in _tensors([given.get(name) for name in names]) if t.layout == torch.strided]


@contextlib.contextmanager
def attributes_restored(model: nn.Module) -> Iterator[None]:
    """Give every module the attributes that it had before, and those of its lists, dicts and sets their contents."""
    modules = list(model.modules())
    saved = [dict(vars(module)) for module in modules]
    contents = [
        (value, type(value)(value)) for held in saved for value in held.values() if type(value) in (list, dict, set)
    ]
    try:
        yield
    finally:
        for module, held in zip(modules, saved, strict=True):
            vars(module).clear()
            vars(module).update(held)
        for value, content in contents:
            if type(value) is list:
                value[:] = content
            else:
                value.clear()
                value.update(content)
