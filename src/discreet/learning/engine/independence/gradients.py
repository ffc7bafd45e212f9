"""That torch itself differentiates what was proved: no Python code may change gradients on the way back.

The proof follows values. The gradient of a loss follows from it only if each operation's own backward formula runs, on
the values that the operation saw.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from discreet.learning.engine.independence.dependence import Free
from discreet.learning.engine.independence.origin import Unproved, where
from discreet.learning.engine.independence.watch import Watch

#: Our own operations have backward passes in Python too; their gradients are tested against torch's.
_OUR_OPERATIONS, _OUR_FUNCTIONS = "GeneratedBackwardFor_discreet_", "discreet.learning.engine."

_data: Any = Tensor.data
_grad_fn: Any = Tensor.grad_fn
_READ_DATA = _data.__get__
#: What lets Python code change a backward pass, or exchange a value and keep its gradient.
_REFUSED = {
    _data.__set__: "replaces the memory of a tensor (.data = …), and its gradient stays that of the old values",
    _grad_fn.__get__: "reads grad_fn, which lets hooks change gradients",
}


#: What gives Python the values of a tensor, and lets it change them, without an operation that a mode sees.
_VALUES = {
    Tensor.numpy: "numpy()", Tensor.tolist: "tolist()", Tensor.__array__: "numpy", Tensor.__dlpack__: "dlpack",
    Tensor.data_ptr: "data_ptr()", Tensor.untyped_storage: "its storage", Tensor.storage: "its storage",
}  # fmt: skip


class _Functions(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        why = _REFUSED.get(func)
        if why is not None:
            raise Unproved(f"the model {why} {where()}")
        if func in _VALUES and not isinstance(self._watch.of(args[0]), Free):
            # Remembered, because a model may catch this and take another way than without data.
            self._watch.failure = Unproved(f"{_VALUES[func]} reads values of examples {where()}")
            raise self._watch.failure
        if func == _READ_DATA:  # the same values, but torch notices writes to them
            return args[0].detach()
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def own_backward(watch: Watch) -> Iterator[None]:
    """End the proof at what would let Python code take part in the backward pass of the code inside."""
    with (
        torch.autograd.graph.disable_saved_tensors_hooks("hooks on saved tensors could change gradients"),
        _Functions(watch),
    ):
        yield


def check_graph(losses: Tensor) -> None:
    """Raise `Unproved` if a backward pass in Python lies between the losses and anything that they depend on."""
    pending: list[Any] = [losses.grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name()
        module = getattr(getattr(node, "_forward_cls", None), "__module__", "")
        ours = name.startswith(_OUR_OPERATIONS) or module.startswith(_OUR_FUNCTIONS)
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not ours:
            raise Unproved(f"{name} is a backward pass in Python, which may do anything")
        pending += [following for following, _ in node.next_functions]
