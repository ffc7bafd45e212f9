"""The tensors of a model by name, asked for at each step while a device may be waiting for the answer.

Walking through a model for its names takes longer than launching the step itself. Whether it still holds the same
modules, parameters and buffers is seen far sooner: the names are put together anew only if it does not.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import Tensor, nn


class Held:
    """What a model holds."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._read()

    def _read(self) -> None:
        self._modules = list(self._model.modules())
        self._objects = self._now()
        self._parameters = list(self._model.parameters())
        self._flags = [parameter.requires_grad for parameter in self._parameters]
        self._trainable: dict[str, Tensor] = {}
        self._rest: dict[str, Tensor] = {}
        for name, parameter in self._model.named_parameters():
            (self._trainable if parameter.requires_grad else self._rest)[name] = parameter
        self._rest |= dict(self._model.named_buffers())

    def _now(self) -> list[Any]:
        """All that hangs on the modules that were there before; a new module hangs on one of them."""
        found: list[Any] = []
        for module in self._modules:
            found += module._parameters.values()
            found += module._buffers.values()
            found += module._modules.values()
        return found

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trainable parameters, and all else (frozen parameters, buffers), by their names in the model."""
        now = self._now()
        flags = [parameter.requires_grad for parameter in self._parameters]
        if flags != self._flags or len(now) != len(self._objects) or not all(map(is_, now, self._objects)):
            self._read()
        return self._trainable, self._rest

    def modes(self) -> tuple[bool, ...]:
        """Which modules are in training mode. To be asked after `tensors`."""
        return tuple(module.training for module in self._modules)
