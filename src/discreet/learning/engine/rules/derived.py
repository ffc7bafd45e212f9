"""A parameter that is changed before it meets the data: `self.position[:, :length]`, `self.scale.exp()`.

The changed value is shared by all examples; the recorder spreads it, so that each example has a gradient of its own
with respect to it, and this rule carries that gradient back through the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.rules.base import Rule, precise, scaled


@dataclass(frozen=True, eq=False)
class Derived(Rule):
    """The parameter behind `function(parameter)`."""

    function: Callable[[Tensor], Tensor]
    parameter: Tensor

    @cached_property
    def pulled(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The changed value, and how a gradient of it becomes a gradient of the parameter.

        Made once: a function that draws must not draw other numbers for the norm than for the sum.
        """
        found: Any = torch.func.vjp(self.function, precise(self.parameter.detach()))
        return found[0], lambda gradient: found[1](gradient)[0]

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        value, pull = self.pulled
        gradients = precise(grad).reshape(grad.shape[0], *value.shape)
        found: Tensor = torch.func.vmap(pull)(gradients)
        return found

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return self.parameter.numel() + grad[0].numel()

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        value, pull = self.pulled
        return pull(scaled(precise(grad), weights).sum(0).reshape(value.shape))
