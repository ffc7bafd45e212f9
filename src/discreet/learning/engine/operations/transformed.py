"""A parameter that is transformed before it meets the data: `self.position[:, :length]`, `self.scale.exp()`.

All examples share the transformed value. The recorder repeats it once per example, so that each example has a gradient
of its own with respect to it, and this rule carries that gradient back through the transformation. It has no handler:
the recorder claims it for any function that has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.operations.arithmetic import precise
from discreet.learning.engine.operations.base import GradientRule


@dataclass(frozen=True, eq=False)
class TransformedParameter(GradientRule):
    """The parameter behind `function(parameter)`."""

    function: Callable[[Tensor], Tensor]
    parameter: Tensor

    @cached_property
    def value_and_pullback(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The transformed value, and the map from its gradient to the parameter's gradient.

        Computed once: a function that draws random numbers must not draw different ones for the norm and for the sum.
        """
        value_and_vjp: Any = torch.func.vjp(self.function, precise(self.parameter.detach()))
        return value_and_vjp[0], lambda gradient: value_and_vjp[1](gradient)[0]

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        value, pullback = self.value_and_pullback
        gradients = precise(grad).reshape(grad.shape[0], *value.shape)
        result: Tensor = torch.func.vmap(pullback)(gradients)
        return result

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return self.parameter.numel() + grad[0].numel()
