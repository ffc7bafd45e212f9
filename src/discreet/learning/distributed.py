"""The processes of one run: who takes which share of a batch, and where sums are added up.

Every process draws the same batches from the same secret and takes every size-th example of each. Their clipped sums,
in fp32, are added up by one all-reduce; the first process has added the noise to its own sum before, so that no process
ever holds a sum of the whole batch without noise. All processes take the same steps, also with an empty share, and
apply the same gradient, so their parameters stay equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from discreet.errors import DiscreetError
from discreet.learning.noise import Secret

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """This process's place among those of the run; a process alone is a team of one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Team:
        """The team of `torch.distributed`, which is joined first where `torchrun` started this process."""
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
                return cls()
            dist.init_process_group()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this process adds the noise, charges the ledger and writes files."""
        return self.rank == 0

    def share_secret(self, secret: Secret) -> Secret:
        """The first process's secret, for all of them. It crosses the network that the gradients cross."""
        if self.size == 1:
            return secret
        return Secret(None, key=self._sent(secret.reveal())) if secret.secure else secret

    def share_parameters(self, tensors: Iterable[Tensor]) -> None:
        """Begin with the first process's parameters, as DistributedDataParallel does."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    def add_up(self, flat: Tensor) -> None:
        """Replace `flat` by the sum over all processes."""
        if self.size > 1:
            dist.all_reduce(flat)

    def together(self, work: Callable[[], T]) -> T:
        """What `work` returns in the first process; if it fails there, it fails everywhere, and nobody waits."""
        if self.size == 1:
            return work()
        result: Any = None
        failure: BaseException | None = None
        if self.leads:
            try:
                result = work()
            except BaseException as error:  # told to the others, then raised again
                failure = error
        told = self._sent((result, None if failure is None else f"{type(failure).__name__}: {failure}"))
        if failure is not None:
            raise failure
        if told[1] is not None:
            raise DiscreetError(f"the first process stopped with {told[1]}")
        shared: T = told[0]
        return shared

    def _sent(self, value: Any) -> Any:
        box = [value if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def inner_model(model: nn.Module) -> nn.Module:
    """The model itself where it is wrapped in DistributedDataParallel, whose own reduction is not needed here."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return inner_model(model.module)
    return model


def device_of(parameters: Iterable[Tensor]) -> torch.device:
    """The one device that all parameters are on."""
    found = {parameter.device for parameter in parameters}
    if len(found) != 1:
        raise DiscreetError(f"a private step needs all parameters on one device, got {sorted(map(str, found))}")
    return found.pop()
