"""Where tensors come from: their storage, the line of code, and what a model reads beside parameters and batch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from discreet.errors import InvalidArgument

#: Of larger constants, only the version is compared.
_COPIED_BYTES = 1 << 28


class Unproved(Exception):
    """Why the examples of a batch could not be proved independent, in words."""


class Misplaced(Unproved):
    """The examples do not lie where the dry run found them; `names` are the parameters that this concerns."""

    def __init__(self, why: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.names = names


def storage_of(tensor: Tensor) -> StorageWeakRef:
    """The storage of a tensor, as a key that does not keep it alive."""
    with torch._C.DisableTorchFunction():
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch's own


def where() -> str:
    """The line of the user's code that is running."""
    frame = sys._getframe(1)
    ours, theirs = str(Path(__file__).parents[3]), str(Path(torch.__file__).parent)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((ours, theirs, "<")):
        frame = frame.f_back
    return f"(in {frame.f_code.co_name}, {Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


class Outside:
    """Tensors that a model reads and that are neither parameters, buffers nor the batch: attributes, globals.

    Those of the first pass are constants: no example was seen before it. One that turns up later may hold examples of
    an earlier batch. A trainable parameter that is reached this way would lose that use.
    """

    def __init__(self, trainable: Sequence[Tensor]) -> None:
        self._trainable = {storage_of(tensor) for tensor in trainable}
        self._constants: dict[StorageWeakRef, _Constant] = {}
        self.closed = False

    def meet(self, tensor: Tensor) -> None:
        """Note a tensor of the first pass; refuse one of a later pass that is new."""
        key = storage_of(tensor)
        if key in self._trainable:
            raise InvalidArgument(
                "a trainable parameter must be used as an attribute of its module, but it is also reached in another "
                f"way, such as through a Python list {where()}: its gradient there would be lost; use nn.ParameterList"
            )
        if key not in self._constants:
            if self.closed:
                raise InvalidArgument(
                    "a model must not keep tensors from one batch to the next, but it reads one that was not there "
                    f"before the first batch {where()}: it could hold examples; register constants as buffers"
                )
            self._constants[key] = _Constant(tensor)

    def check_unchanged(self) -> None:
        """Refuse a model that wrote to a constant since the pass that read it first: a graph reads it by reference."""
        if any(constant.changed() for constant in self._constants.values()):
            raise InvalidArgument(
                "a model must not write to tensors that it reads and that are neither parameters nor buffers, but it "
                "does after its first pass: they could hold examples; write only to tensors that the pass itself makes"
            )


class _Constant:
    """The memory behind a tensor, and what it held when the tensor was met.

    All of it: a model may read other views of it later. Its bytes, because a write through `.data` changes no version.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        with _disable_current_modes(), torch.no_grad():
            self._copy = _bytes(tensor).clone() if tensor.untyped_storage().nbytes() <= _COPIED_BYTES else None
            self._version = None if tensor.is_inference() else tensor._version

    def changed(self) -> bool:
        """Whether it was written to."""
        if self._copy is not None:
            return not torch.equal(_bytes(self._tensor), self._copy)
        return self._version is not None and self._tensor._version != self._version


def _bytes(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor as a vector of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
