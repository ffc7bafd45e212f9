"""Parameters that meet the data element by element: scales and shifts of normalizations, and plain parameters that are
added, multiplied or expanded.

The gradient of one example is the output's gradient, times the other factor where there is one, summed over what the
parameter was broadcast to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.layout import Layout
from discreet.learning.engine.normalization import standardized
from discreet.learning.engine.rules.base import Rule, precise


@dataclass(frozen=True)
class Broadcast(Rule):
    """A parameter of shape `shape`; `padded` is that shape with the 1s that make it broadcast to the output."""

    shape: tuple[int, ...]
    padded: tuple[int, ...]
    sign: float = 1.0

    small = True

    def placed(self, layout: Layout) -> Rule:
        return replace(self, padded=layout.without(self.padded))

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

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return grad[0].numel()


@dataclass(frozen=True)
class Normalized(Broadcast):
    """The scale of a normalization: it multiplies the normalized input, which is computed again here."""

    operation: str = "layer_norm"
    options: tuple[Any, ...] = ()
    rank: int = 0

    def factor(self, inputs: tuple[Tensor, ...]) -> Tensor | None:
        x = precise(inputs[0])
        if len(inputs) == 3:  # with the statistics that were found before
            return standardized(*inputs)
        option, eps = self.options
        default = {} if eps is None else {"eps": eps}
        if self.operation == "layer_norm":
            return F.layer_norm(x, option, **default)
        if self.operation == "rms_norm":
            return F.rms_norm(x, option, None, eps)
        frames = x.flatten(0, 1) if x.dim() > self.rank else x  # [B, frames, channels, …] from a split dimension
        if self.operation == "group_norm":
            return F.group_norm(frames, option, **default).reshape(x.shape)
        return F.instance_norm(frames, **default).reshape(x.shape)
