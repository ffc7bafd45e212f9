"""The tensors of a model by name, read at each step while a device may be waiting.

Walking through a model to collect its names takes longer than launching a step. Checking whether the model still holds
the same modules, parameters and buffers is much faster, so the names are collected again only when it does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

from torch import Tensor, nn

from discreet.learning.sharded import any_sharded, whole


class ModelTensors:
    """The parameters and buffers of a model, cached until the model holds others."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._gathered: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None
        self._read()

    def _read(self) -> None:
        self._modules = list(self._model.modules())
        self._members = self._current_members()
        self._parameters = list(self._model.parameters())
        self._flags = [parameter.requires_grad for parameter in self._parameters]
        self._trainable: dict[str, Tensor] = {}
        self._rest: dict[str, Tensor] = {}
        for name, parameter in self._model.named_parameters():
            (self._trainable if parameter.requires_grad else self._rest)[name] = parameter
        self._rest |= dict(self._model.named_buffers())
        self.sharded = any_sharded([*self._trainable.values(), *self._rest.values()])

    def _current_members(self) -> list[Any]:
        """Everything that the known modules hold now; a new module is a member of one of them."""
        members: list[Any] = []
        for module in self._modules:
            members += module._parameters.values()
            members += module._buffers.values()
            members += module._modules.values()
        return members

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trainable parameters, and everything else (frozen parameters, buffers), by their names in the model.

        Those of a model that is spread over processes are gathered at each call, unless `gathered` holds them.
        """
        members = self._current_members()
        flags = [parameter.requires_grad for parameter in self._parameters]
        if flags != self._flags or len(members) != len(self._members) or not all(map(is_, members, self._members)):
            self._read()
        if not self.sharded:
            return self._trainable, self._rest
        return self._gathered or (whole(self._trainable), whole(self._rest))

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather a model that is spread over processes once, for all calls within. All processes enter it together."""
        gathered = self.tensors()
        if self.sharded:
            self._gathered = gathered
        try:
            yield
        finally:
            self._gathered = None

    def modes(self) -> tuple[bool, ...]:
        """Which modules are in training mode. Call `tensors` first: it notices new modules."""
        return tuple(module.training for module in self._modules)


def everywhere(root: nn.Module, model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that replace a model's own, by every path in `root` that holds them.

    A parameter that several modules share has several paths. A module that has several names (`self.b = self.a`) has
    one: `functional_call` would replace its tensors once for each name, and then restore the replacement.
    """
    names = {id(held): name for name, held in (*model.named_parameters(), *model.named_buffers())}
    by_path = {}
    for prefix, module in root.named_modules():
        for attribute, held in (*module._parameters.items(), *module._buffers.items()):
            name = names.get(id(held)) if held is not None else None
            if name is not None and name in tensors:
                by_path[f"{prefix}.{attribute}" if prefix else attribute] = tensors[name]
    return by_path
