"""The state of torch's random generators around a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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


_BELOW = {torch.lt, Tensor.lt, Tensor.less, Tensor.__lt__}
_UP_TO = {torch.le, Tensor.le, Tensor.less_equal, Tensor.__le__}
_ABOVE = {torch.gt, Tensor.gt, Tensor.greater, Tensor.__gt__}
_FROM = {torch.ge, Tensor.ge, Tensor.greater_equal, Tensor.__ge__}
_BOOL: Callable[[Tensor], bool] = Tensor.__bool__


class DecidedDraws:
    """Decides, while a pass is traced without data, what does not depend on the number drawn: `torch.rand([]) < 0.0`.

    Models ask that to leave a layer out with a probability, which is 0 for most. `torch.rand(1) > 0.0` counts as true,
    though it fails once in 2²⁴ draws.
    """

    def __init__(self) -> None:
        #: Tensors with their versions, by `id`; they are kept alive, so that no other has that `id`.
        self._draws: dict[int, tuple[Tensor, int]] = {}
        self._answers: dict[int, tuple[Tensor, int, bool]] = {}

    def answer(self, func: Any, args: Sequence[Any]) -> bool | None:
        """What `bool(tensor)` is, if that is known."""
        if func is not _BOOL or id(args[0]) not in self._answers:
            return None
        tensor, version, answer = self._answers[id(args[0])]
        return answer if tensor._version == version else None

    def note(self, func: Any, args: Sequence[Any], result: Any) -> None:
        """Note what a function returned."""
        if func is torch.rand:
            self._draws[id(result)] = result, result._version
        elif len(args) == 2 and id(args[0]) in self._draws and isinstance(args[1], (int, float)):
            drawn, version = self._draws[id(args[0])]
            answer = _compared(func, args[1])
            if answer is not None and drawn._version == version and drawn.numel() == 1:
                self._answers[id(result)] = result, result._version, answer


def _compared(func: Any, bound: float) -> bool | None:
    """Whether each number in `[0, 1)` is below (up to, above, from) a bound; None if it depends on the number."""
    if func in _BELOW | _UP_TO and (bound >= 1 or bound < 0 or (bound == 0 and func in _BELOW)):
        return bound >= 1
    if func in _ABOVE | _FROM and (bound >= 1 or bound <= 0):
        return bound <= 0
    return None
