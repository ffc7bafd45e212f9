"""Parameters that are added to the data, multiplied with it or expanded over it, element by element.

The gradient of one example is the output's gradient, times the other factor if there is one, summed over the dimensions
that the parameter was broadcast to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations.arithmetic import precise
from discreet.learning.engine.operations.base import (
    Args,
    Function,
    GradientRule,
    Handler,
    Handlers,
    Kwargs,
    ParameterUse,
    Recorder,
)


@dataclass(frozen=True)
class Broadcast(GradientRule):
    """A parameter of shape `shape`; `padded` is that shape with the 1s that make it broadcast to the output."""

    shape: tuple[int, ...]
    padded: tuple[int, ...]
    sign: float = 1.0

    shared = True
    small = True

    def examples_first(self, layout: Layout) -> GradientRule:
        return replace(self, padded=layout.without_examples(self.padded))

    def factor(self, inputs: tuple[Tensor, ...]) -> Tensor | None:
        """What the parameter is multiplied by."""
        return precise(inputs[0]) if inputs else None

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        factor = self.factor(inputs)
        value = precise(grad) if factor is None else precise(grad) * factor
        padded = (1,) * (value.dim() - 1 - len(self.padded)) + self.padded
        reduced = [dim + 1 for dim, size in enumerate(padded) if size == 1 and value.shape[dim + 1] != 1]
        value = value.sum(reduced) if reduced else value
        if self.sign < 0:
            value = -value
        return value.reshape(value.shape[0], *self.shape)

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return grad[0].numel()


def _elementwise(operation: str) -> Handler:
    def handle(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2 or kwargs or not all(isinstance(a, Tensor) for a in args):
            return NotImplemented
        first, second = args
        is_parameter = [id(a) in recorder.names for a in args]
        if all(is_parameter) or any(id(a) in recorder.transposed for a in args):
            return NotImplemented
        output = func(first, second)
        parameter, other = (first, second) if is_parameter[0] else (second, first)
        if not parameter.is_floating_point() or output.dim() < parameter.dim():
            return NotImplemented
        padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
        inputs = (other.expand(output.shape),) if operation == "mul" else ()
        sign = -1.0 if operation == "sub" and not is_parameter[0] else 1.0
        return recorder.record(
            operation, output, [ParameterUse(parameter, Broadcast(tuple(parameter.shape), padded, sign), inputs)]
        )

    return handle


def expand(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or id(args[0]) not in recorder.names:
        return NotImplemented
    parameter = args[0]
    output = func(*args)
    padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
    return recorder.record("expand", output, [ParameterUse(parameter, Broadcast(tuple(parameter.shape), padded))])


HANDLERS: Handlers = {
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), _elementwise("add")),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.__sub__), _elementwise("sub")),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), _elementwise("mul")),
    **dict.fromkeys((Tensor.expand, Tensor.expand_as), expand),
}
