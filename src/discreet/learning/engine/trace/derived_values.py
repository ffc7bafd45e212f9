"""What is computed from parameters alone, before it meets the data: `self.scale.exp()`, `w + b @ a`, `bias[index]`.

All examples share such a value, so no example has a gradient of its own where it is computed. The recorder remembers
how it was computed and waits for the operation in which it meets the data: there, each example has one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learning.engine.independence import Watch
from discreet.learning.engine.operations.arithmetic import precise
from discreet.learning.engine.trace.writes import Writes, count_writes

_NAMES = """chunk clone contiguous flatten movedim moveaxis narrow permute reshape select split squeeze swapaxes
    swapdims t transpose unbind unflatten unsqueeze view view_as"""
#: Functions whose results have elements of their argument, each once.
_REARRANGING = {
    *(getattr(holder, name) for name in _NAMES.split() for holder in (torch, Tensor) if hasattr(holder, name)),
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")),
}

#: Functions that return their argument itself if it has the type, as it may have in one pass and not in another.
_CONVERTING = {
    Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16,
    Tensor.contiguous,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Derived:
    """A trainable parameter, or what a function made of such values and constants.

    Attributes:
        key: tells it from other values, but for its copies of other types, and is the same whenever the same code runs.
        tensor: its value in this pass.
        writes: how often the tensor had been written to by then.
        leaves: the parameters that it was computed from.
        reads: the tensors that computing it again reads, each with how often it had been written to by then.
        call: the function, its arguments, and which of its results this is; None for a parameter.
    """

    key: str
    tensor: Tensor
    writes: Writes
    leaves: tuple[Tensor, ...]
    reads: tuple[tuple[Tensor, Writes], ...]
    call: tuple[Any, Any, Any, int] | None = None

    @property
    def rearranges(self) -> bool:
        """Whether it has elements of one parameter, each once and as they are."""
        if self.call is None:
            return True
        func, args, kwargs, _ = self.call
        operands = [operand for operand in pytree.tree_leaves((args, kwargs)) if isinstance(operand, (Derived, Tensor))]
        if len(operands) != 1 or not isinstance(operands[0], Derived):
            return False
        sliced = func is Tensor.__getitem__ and all(
            each is None or each is Ellipsis or isinstance(each, (int, slice))
            for each in (args[1] if isinstance(args[1], tuple) else (args[1],))
        )
        return (sliced or func in _REARRANGING) and operands[0].rearranges


class DerivedValues:
    """The derived values of one pass, which may be watched."""

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], watch: Watch | None) -> None:
        self._watch = watch
        #: By the `id` of their tensors, which they keep alive, so that no other tensor gets that `id`.
        self._by_id: dict[int, Derived] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        for name, tensor in parameters:
            writes = count_writes(tensor, watch)
            self._by_id[id(tensor)] = Derived(name, tensor, writes, (tensor,), ((tensor, writes),))

    def get(self, tensor: Tensor) -> Derived | None:
        """What is known of a tensor; None if nothing is, or if it was written to since."""
        derived = self._by_id.get(id(tensor))
        if derived is None or (derived.call is not None and count_writes(tensor, self._watch) != derived.writes):
            return None
        return derived

    def leaves(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """The parameters that a tensor was computed from, also if it was written to since."""
        derived = self._by_id.get(id(tensor))
        return () if derived is None else derived.leaves

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._by_id

    def key(self, func: Any, tensors: Iterable[Tensor]) -> str:
        """The key of a call: its function, its operands, and how many such calls came before."""
        operands = [None if (known := self.get(tensor)) is None else known.key for tensor in tensors]
        call = (getattr(func, "__name__", ""), *operands)
        count = self._counts[call] = self._counts.get(call, 0) + 1
        return hashlib.blake2b(repr((call, count)).encode(), digest_size=12).hexdigest()

    def results(self, key: str, func: Any, args: Any, kwargs: Any, result: Any) -> list[Derived]:
        """The results of a call with this key that have gradients."""
        operands = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        known = [derived for tensor in operands if (derived := self.get(tensor)) is not None]
        leaves = tuple({id(leaf): leaf for derived in known for leaf in derived.leaves}.values())
        read = [(tensor, count_writes(tensor, self._watch)) for tensor in operands]
        reads = tuple({id(each[0]): each for each in (*(r for d in known for r in d.reads), *read)}.values())
        call = func, *pytree.tree_map_only(Tensor, self._operand, (args, kwargs))
        same = known[0].key if known and func in _CONVERTING else None
        return [
            Derived(
                same or f"{key}[{position}]",
                tensor,
                count_writes(tensor, self._watch),
                leaves,
                reads,
                (*call, position),
            )
            for position, tensor in enumerate(pytree.tree_leaves(result))
            if isinstance(tensor, Tensor) and tensor.requires_grad and not any(tensor is each for each in operands)
        ]

    def keep(self, values: Iterable[Derived]) -> None:
        """From now on, these are what their tensors are."""
        self._by_id |= {id(value.tensor): value for value in values}

    def _operand(self, tensor: Tensor) -> Derived | Tensor:
        return self.get(tensor) or tensor.detach()


def value_at(derived: Derived, leaf: Tensor, value: Tensor) -> Tensor:
    """What a derived value would be if one of its parameters had this value. Computed in float32 or wider."""
    computed: dict[int, Tensor] = {}

    def of(operand: Any) -> Any:
        if isinstance(operand, Tensor):
            return precise(operand) if operand.is_floating_point() else operand
        if not isinstance(operand, Derived):
            return operand
        if operand.tensor is leaf:
            return value
        if operand.call is None or not any(each is leaf for each in operand.leaves):
            return precise(operand.tensor.detach())
        if id(operand) not in computed:
            func, args, kwargs, position = operand.call
            result = func(*pytree.tree_map(of, args), **pytree.tree_map(of, kwargs))
            computed[id(operand)] = pytree.tree_leaves(result)[position]
        return computed[id(operand)]

    result: Tensor = of(derived)
    return result
