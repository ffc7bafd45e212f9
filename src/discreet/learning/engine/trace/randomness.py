"""The state of torch's random generators around a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def generator_states(device: torch.device) -> list[Tensor]:
    """The states of torch's generators, which change whenever a random number is drawn."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def nothing_drawn(since: Sequence[Tensor], device: torch.device) -> bool:
    """Whether no random number was drawn since the generators had these states."""
    return all(map(torch.equal, since, generator_states(device)))


@contextmanager
def seeded(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Draw the same random numbers each time, and leave the user's generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed * 2654435761)  # spreads the seeds: small ones give similar first draws
        yield
