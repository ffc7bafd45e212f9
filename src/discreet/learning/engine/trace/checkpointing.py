"""Gradient checkpointing, switched off: a forward pass that is traced runs once, and so does each part of it.

`torch.utils.checkpoint` forgets what a part of the model computed and runs its code again in the backward pass. That
second run is Python code that no proof has seen, so here the part just runs. The results are the same. The memory that
checkpointing would save is not saved: `physical_batch_size` bounds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils import checkpoint


class _Direct:
    """In place of the function that reentrant checkpointing uses."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_random_state: bool, *args: Any) -> Any:
        return function(*args)


@contextlib.contextmanager
def without_checkpointing() -> Iterator[None]:
    """Let `torch.utils.checkpoint.checkpoint` call its function directly, in both of its variants."""
    names: Any = checkpoint  # `checkpoint()` looks both names up when it is called
    before = names.CheckpointFunction, names._checkpoint_hook
    names.CheckpointFunction, names._checkpoint_hook = _Direct, lambda frame: contextlib.nullcontext()
    try:
        yield
    finally:
        names.CheckpointFunction, names._checkpoint_hook = before
