"""A run with several processes: which share of a batch each one takes, and how the sums are combined.

Every process draws the same batches from the same secret and takes every size-th example. One all-reduce adds up their
clipped sums in fp32. The first process adds the noise to its own sum before that, so no process ever holds a sum over
the whole batch without noise. All processes take the same steps, even with an empty share, and apply the same gradient,
so their parameters stay equal. A model that FSDP2 spread over the processes works too (`sharded`).
"""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from discreet.errors import DiscreetError
from discreet.learning.noise import Secret

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """The rank of this process and the number of processes in the run; a single process is a team of one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Team:
        """The team of `torch.distributed`. If `torchrun` started this process, it joins the process group first."""
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
                return cls()
            dist.init_process_group()
        _wait_for_gloo_at_exit()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this process adds the noise, charges the ledger and writes files."""
        return self.rank == 0

    def share_secret(self, secret: Secret) -> Secret:
        """Send the first process's secret to all, over the same network as the gradients."""
        if self.size == 1:
            return secret
        return Secret(None, key=self._sent(secret.reveal())) if secret.secure else secret

    def share_parameters(self, tensors: Iterable[Tensor]) -> None:
        """Start from the first process's parameters, as DistributedDataParallel does."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    def add_up(self, flat: Tensor) -> None:
        """Replace `flat` by the sum over all processes."""
        if self.size > 1:
            dist.all_reduce(flat)

    def run_on_first(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process and return its result in all. A failure there is raised in all of them."""
        if self.size == 1:
            return work()
        result: Any = None
        failure: BaseException | None = None
        if self.leads:
            try:
                result = work()
            except BaseException as error:  # sent to the others, then raised again
                failure = error
        received = self._sent((result, None if failure is None else f"{type(failure).__name__}: {failure}"))
        if failure is not None:
            raise failure
        if received[1] is not None:
            raise DiscreetError(f"the first process stopped with {received[1]}")
        shared: T = received[0]
        return shared

    def _sent(self, value: Any) -> Any:
        box = [value if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def inner_model(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel, whose own reduction is not needed here; others as they are."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return inner_model(model.module)
    return model


def device_of(parameters: Iterable[Tensor]) -> torch.device:
    """The device that all parameters are on."""
    devices = {parameter.device for parameter in parameters}
    if len(devices) != 1:
        raise DiscreetError(f"a private step needs all parameters on one device, got {sorted(map(str, devices))}")
    return devices.pop()


#: What Linux calls the threads in which gloo runs collectives. It keeps 15 letters of a name.
_GLOO_THREADS = "pt_gloo_runloop"
_POLL_SECONDS = 0.01
#: A thread counts as idle if it slept in this many looks, one after the other.
_LOOKS = 3
_LONGEST_WAIT_SECONDS = 30.0


@functools.cache
def _wait_for_gloo_at_exit() -> None:
    """Have the process wait at its end until gloo has dropped the tensors of the last collective. Once in a process.

    A collective returns before gloo's thread drops its references, for which that thread needs Python's lock. If Python
    is ending by then, the thread aborts the process, and `torchrun` stops the other processes too, which may still be
    saving the model (pytorch#190489). `destroy_process_group` does not wait for it.
    """
    atexit.register(_wait_for_gloo)


def _wait_for_gloo() -> None:
    idle_looks, deadline = 0, time.monotonic() + _LONGEST_WAIT_SECONDS
    while idle_looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)  # leaves Python's lock to the threads, so one that waits for it wakes up
        idle_looks = 0 if _gloo_is_running() else idle_looks + 1


def _gloo_is_running() -> bool:
    """Whether one of gloo's threads runs or could run now, as far as Linux tells; other systems do not tell."""
    for thread in Path("/proc/self/task").glob("*/stat"):
        try:
            _, rest = thread.read_text().split("(", 1)
        except OSError:  # it has ended
            continue
        name, fields = rest.rsplit(")", 1)
        if name == _GLOO_THREADS and fields.split()[0] != "S":
            return True
    return False
