"""A parameter that is transformed before it meets the data: `self.position[:, :length]`, `self.scale.exp()`.

An operation with a rule gives each example's gradient with respect to the transformed value, and this rule carries that
gradient back through the transformation. Where an operation has no rule, the recorder repeats the value once per
example, so that each example has a gradient of its own with respect to it. It has no handler: the recorder claims it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations.arithmetic import precise
from discreet.learning.engine.operations.base import GradientRule


@dataclass(frozen=True, eq=False)
class TransformedParameter(GradientRule):
    """The parameter behind `function(parameter)`.

    Attributes:
        function: the transformation.
        parameter: what is transformed.
        rule: the rule for the transformed value, as if it were a parameter; None for the value itself.
        examples: how many examples the batch has.
        layout: where the value has examples; None if it has none. All of them are the same function of the parameter.
        rearranges: whether the value has the parameter's elements, or some of them, each once and as they are. Then
            both gradients have equal norms.
    """

    function: Callable[[Tensor], Tensor]
    parameter: Tensor
    rule: GradientRule | None = None
    examples: int = 1
    layout: Layout | None = None
    rearranges: bool = False

    @cached_property
    def value_and_pullback(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The transformed value, and the map from its gradient to the parameter's gradient.

        Computed once: a function that draws random numbers must not draw different ones for the norm and for the sum.
        """
        value_and_vjp: Any = torch.func.vjp(self._of_one_example, precise(self.parameter.detach()))
        return value_and_vjp[0], lambda gradient: value_and_vjp[1](gradient)[0]

    def _of_one_example(self, parameter: Tensor) -> Tensor:
        value = self.function(parameter)
        return value if self.layout is None else self.layout.examples_first(value, self.examples)[0]

    def examples_first(self, layout: Layout) -> GradientRule:
        if self.rule is not None:
            return replace(self, rule=self.rule.examples_first(layout))
        return self if layout.kind == "shared" else replace(self, layout=layout)

    def keeps_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        """Where the rule does, and the parameter has no more elements than its transformed value."""
        if self.rule is None or not self.rule.keeps_gradients(inputs, grad):
            return False
        return self.parameter.numel() <= self.value_and_pullback[0].numel()

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        value, pullback = self.value_and_pullback
        gradients = grad if self.rule is None else self.rule.per_example(inputs, grad)
        gradients = precise(gradients).reshape(grad.shape[0], *value.shape).to(value.dtype)
        result: Tensor = torch.func.vmap(pullback)(gradients)
        return precise(result)

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        if self.rule is None or not self.rearranges:
            return super().norm_power(inputs, grad, order)
        return self.rule.norm_power(inputs, grad, order)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        if self.rule is None or not self.rearranges:
            return super().weighted_sum(inputs, grad, weights)
        value, pullback = self.value_and_pullback
        return precise(pullback(self.rule.weighted_sum(inputs, grad, weights).to(value.dtype)))

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor | None:
        return self.rule.margin(inputs, grad, order) if self.rule is not None and self.rearranges else None

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        own = grad[0].numel() if self.rule is None else self.rule.elements_per_example(inputs, grad)
        return self.parameter.numel() + own * (1 if self.layout is None else self.examples)
