"""Keeps the memory that a step on a CPU frees, so that the next step need not get it from the system again.

glibc gives freed memory back to the system beyond twice the size of the largest block that was ever freed, up to
64 MiB. A step allocates and frees tens of MiB in smaller blocks, and the system fills each page that it hands out with
zeros, which can take a fifth of the time of a small model's step. Freeing one large block, which nobody wrote to,
raises that limit. Other C libraries are not affected.
"""

from __future__ import annotations

import functools

import torch

#: The largest block that glibc takes into account has 32 MiB, with its header.
_LARGEST_BLOCK = 31 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Raise the limit, once in a process."""
    torch.empty(_LARGEST_BLOCK, dtype=torch.uint8, device="cpu")
