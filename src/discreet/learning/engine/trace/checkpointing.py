"""Gradient checkpointing, switched off: a forward pass that is traced runs once, and so does each part of it.

`torch.utils.checkpoint` forgets what a part of the model computed and runs its code again in the backward pass. That
second run is Python code that no proof has seen, so here the part just runs. The results are the same. The memory that
checkpointing would save is not saved: `physical_batch_size` bounds it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils import checkpoint


class _Direct:
    """In place of the function that reentrant checkpointing uses."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_random_state: bool, *args: Any) -> Any:
        return function(*args)


_names: Any = checkpoint  # `checkpoint()` looks both names up when it is called
_ORIGINAL = _names.CheckpointFunction, _names._checkpoint_hook
_REPLACED = _Direct, lambda frame: contextlib.nullcontext()
_lock = threading.Lock()
_passes = 0


@contextlib.contextmanager
def without_checkpointing() -> Iterator[None]:
    """Let `torch.utils.checkpoint.checkpoint` call its function directly, in both of its variants.

    Passes may overlap in several threads; the last one to leave restores torch's own.
    """
    _enter(1)
    try:
        yield
    finally:
        _enter(-1)


def _enter(change: int) -> None:
    global _passes
    with _lock:
        _passes += change
        _names.CheckpointFunction, _names._checkpoint_hook = _REPLACED if _passes else _ORIGINAL
