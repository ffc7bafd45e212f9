"""Gradient checkpointing, switched off: a forward pass that is traced runs once, and so does each part of it.

`torch.utils.checkpoint` forgets what a part of the model computed and runs its code again in the backward pass. That
second run is Python code that no proof has seen, so here the part just runs. The results are the same. The memory that
checkpointing would save is not saved: `physical_batch_size` bounds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint

from discreet.learning.engine.replacement import Replacement


class _Direct:
    """In place of the function that reentrant checkpointing uses."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_random_state: bool, *args: Any) -> Any:
        return function(*args)


_names: Any = checkpoint  # `checkpoint()` looks both names up when it is called
_original = _names.CheckpointFunction, _names._checkpoint_hook


def _restore() -> None:
    _names.CheckpointFunction, _names._checkpoint_hook = _original


def _leave_out() -> Callable[[], None]:
    _names.CheckpointFunction, _names._checkpoint_hook = _Direct, lambda frame: contextlib.nullcontext()
    return _restore


#: `torch.utils.checkpoint.checkpoint` calls its function directly within, in both of its variants.
without_checkpointing = Replacement(_leave_out)
