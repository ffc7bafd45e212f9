"""Keeps the fallback, which runs each example alone, from what a pass over the whole batch left behind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.origin import storage_of, where
from discreet.learning.engine.independence.table import name_of
from discreet.learning.engine.independence.watch import LIFTS, Watch


class Apart(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Refuses to read what a watched pass computed from its examples, or what it was given.

    Args:
        watch: the mode that the pass ran under.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._refused, self._outside = watch.holds_examples(), watch.outside

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in pytree.tree_leaves((args, kwargs)):
            if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
                continue
            if storage_of(tensor) in self._refused:
                raise InvalidArgument(
                    "a model must not keep tensors from one pass to the next, but where each example runs alone it "
                    f"reads one of the pass before {where()}: an example could see the others"
                )
            if self._outside is not None and not isinstance(tensor, FakeTensor) and name_of(func) not in LIFTS:
                self._outside.meet(tensor)
        return func(*args, **(kwargs or {}))
