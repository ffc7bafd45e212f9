"""Networks whose gradients are bounded by construction: training needs no clipping, and no clip norm to choose.

Each layer's weights lie in a ball, inputs are scaled into one, and activations lengthen nothing. So the slope of every
layer is bounded, and with it the gradient of every example, at all weights (Béthune et al. 2023, arXiv 2305.16202).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from discreet import _check

#: The largest norm of the gradient of cross-entropy in the scores: that of (probabilities − one-hot label).
CROSS_ENTROPY_SLOPE = math.sqrt(2)
#: Room for what float32 rounds in a forward and a backward pass.
_ROUNDING = 1e-3


class LipschitzLayer(nn.Module):
    """A linear layer with a constant input, whose weights are projected into a ball of Frobenius norm `radius`.

    A projection lengthens no difference, so the gradient in the stored weights is at most as long as that in the
    projected ones.
    """

    def __init__(self, inputs: int, outputs: int, radius: float) -> None:
        super().__init__()
        self.radius = radius
        start = torch.randn(outputs, inputs + 1) / math.sqrt(inputs + 1)
        start[:, -1] = 0.0
        self.weight = nn.Parameter(start * min(1.0, radius / float(start.norm())))

    def forward(self, rows: Tensor) -> Tensor:
        """The scores of each row."""
        projected: Tensor = self.weight * (self.radius / self.weight.norm().clamp_min(self.radius))
        return rows @ projected[:, :-1].T + projected[:, -1]


class LipschitzNetwork(nn.Module):
    """A network of linear layers and ReLU whose per-example gradients have a known bound, for cross-entropy.

    Args:
        sizes: the number of features, of units in each hidden layer, and of classes.
        input_norm: the largest norm of a row; longer rows are scaled to it, each by itself.
        radius: the largest Frobenius norm of a layer's weights. More of it fits more, and needs more noise.

    Guarantee:
        The gradient of the cross-entropy of one row in all weights has at most the norm `gradient_bound`, whatever the
        row, the label and the weights are (docs/proofs/lipschitz.md). Train it with a plan whose `clip_norm` is that
        bound: clipping then never changes a gradient, and stays as a second line of defense.
    """

    def __init__(self, sizes: Sequence[int], *, input_norm: float = 1.0, radius: float = 2.0) -> None:
        super().__init__()
        widths = [_check.integer("sizes", size, "each is a number of units") for size in sizes]
        if len(widths) < 2:
            raise _check.fail("sizes", "be at least two", tuple(sizes), "give the features and the classes")
        self.input_norm = float(_check.positive("input_norm", input_norm, "it is the largest norm of a row"))
        self.radius = float(_check.positive("radius", radius, "it is the largest norm of a layer's weights"))
        self.layers = nn.ModuleList(
            LipschitzLayer(inputs, outputs, self.radius) for inputs, outputs in pairwise(widths)
        )

    @property
    def gradient_bound(self) -> float:
        """The largest norm of one example's gradient: L·√Σ_k (r^{K−k}·√(A_k² + 1))², A_1 = `input_norm`."""
        reach, squares = self.input_norm, 0.0
        for after in reversed(range(len(self.layers))):
            longest = math.hypot(reach, 1.0)  # of the layer's input, with the constant
            squares += (self.radius**after * longest) ** 2
            reach = self.radius * longest
        return CROSS_ENTROPY_SLOPE * math.sqrt(squares) * (1 + _ROUNDING)

    def forward(self, rows: Tensor) -> Tensor:
        """The score of each class, for each row."""
        flat = rows.flatten(1)
        lengths = flat.square().sum(dim=1, keepdim=True).clamp_min(self.input_norm**2).sqrt()
        values = flat * (self.input_norm / lengths)
        for layer in self.layers[:-1]:
            values = layer(values).relu()
        scores: Tensor = self.layers[-1](values)
        return scores
