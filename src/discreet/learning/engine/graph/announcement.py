"""Tells the host in the middle of a call whether all examples are finite, while the device still computes the sums.

A step waits for this answer before it adds noise. If it waited for the end of the call, the device would idle while the
host launches noise and the optimizer.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

_NOTHING = -1
#: For this many seconds the host only yields to other threads between two looks; after that it sleeps.
_SPIN_SECONDS = 1e-3
_SLEEP_SECONDS = 5e-5
#: After this many seconds the host waits for the device itself, which raises if something failed there.
_PATIENCE_SECONDS = 1.0


class Announcement:
    """A truth value that a CUDA device writes into the host's memory; one writer, one reader, one call at a time.

    `expect` before a call, `send` within it (also while a CUDA graph is captured), `wait` after it was launched. An
    answer that nobody waited for can't be taken for that of a later call: `expect` waits for the device first.
    """

    def __init__(self) -> None:
        self._box = torch.full((), _NOTHING, dtype=torch.int32, pin_memory=True)
        self._seen = self._box.numpy()
        self._open = False
        self._device: torch.device | None = None

    def expect(self) -> None:
        """Forget the last answer; the next one comes from the call that follows."""
        if self._open:
            torch.cuda.synchronize(self._device)
        self._open = True
        self._seen[()] = _NOTHING

    def send(self, value: Tensor) -> None:
        """Write a boolean tensor of no dimensions; the device does so when it gets here."""
        self._open, self._device = True, value.device
        self._box.copy_(value.to(torch.int32), non_blocking=True)

    def wait(self) -> bool:
        """The answer of the call that was launched last; false if none came, so that the caller looks for itself."""
        if not self._open:
            return False
        began = time.perf_counter()
        while self._seen[()] == _NOTHING:
            waited = time.perf_counter() - began
            if waited > _PATIENCE_SECONDS:
                torch.cuda.synchronize(self._device)
                break
            time.sleep(0.0 if waited < _SPIN_SECONDS else _SLEEP_SECONDS)
        self._open = False
        return bool(self._seen[()] == 1)
