"""Parameters that are added to the data, multiplied with it or expanded over it, element by element.

The gradient of one example is the output's gradient, times the other factor if there is one, summed over the dimensions
that the parameter was broadcast to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

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


def expanded(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """Any other function of elements: its parameters are expanded to the shape of the result first."""
    if kwargs or not all(isinstance(arg, (Tensor, int, float)) for arg in args):
        return NotImplemented
    shapes = [arg.shape for arg in args if isinstance(arg, Tensor)]
    shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]  # torch's own
    found = [isinstance(arg, Tensor) and id(arg) in recorder.names and arg.shape != shape for arg in args]
    if not any(found):
        return NotImplemented
    replaced = [
        recorder.apply(Tensor.expand, (arg, shape), {}) if is_smaller else arg
        for arg, is_smaller in zip(args, found, strict=True)
    ]
    return func(*replaced)


_ELEMENTWISE = """where maximum minimum fmax fmin pow __pow__ __rpow__ __rtruediv__ atan2 fmod remainder hypot logaddexp
    copysign"""
_EXPANDED = [
    getattr(holder, name) for name in _ELEMENTWISE.split() for holder in (torch, Tensor) if hasattr(holder, name)
]


@dataclass(frozen=True)
class Tiled(Broadcast):
    """A parameter that is repeated along its dimensions, like tiles."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        padded = (1,) * (grad.dim() - 1 - len(self.padded)) + self.padded
        tiled = [size for whole, own in zip(grad.shape[1:], padded, strict=True) for size in (whole // own, own)]
        tiles = precise(grad).reshape(grad.shape[0], *tiled)
        return tiles.sum(list(range(1, tiles.dim(), 2))).reshape(grad.shape[0], *self.shape)


def repeat(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or id(args[0]) not in recorder.names:
        return NotImplemented
    parameter = args[0]
    output = func(*args)
    padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
    return recorder.record("repeat", output, [ParameterUse(parameter, Tiled(tuple(parameter.shape), padded))])


class Slope(Broadcast):
    """The slope of an input below zero."""

    def factor(self, inputs: tuple[Tensor, ...]) -> Tensor | None:
        return precise(inputs[0]).clamp(max=0)


def prelu(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs or id(args[1]) not in recorder.names or id(args[0]) in recorder.names:
        return NotImplemented
    x, weight = args
    shape = tuple(weight.shape)
    padded = (1, *shape, *(1,) * (x.dim() - 2)) if x.dim() > 1 and weight.dim() == 1 else (1,) * x.dim()
    return recorder.record("prelu", func(x, weight), [ParameterUse(weight, Slope(shape, padded), (x,))])


HANDLERS: Handlers = {
    **dict.fromkeys((F.prelu, torch.prelu), prelu),
    **dict.fromkeys(_EXPANDED, expanded),
    Tensor.repeat: repeat,
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), _elementwise("add")),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.__sub__), _elementwise("sub")),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), _elementwise("mul")),
    **dict.fromkeys((Tensor.expand, Tensor.expand_as), expand),
}
