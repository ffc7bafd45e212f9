"""Tables that are looked up by number: `embedding` and `embedding_bag`.

The gradient of one example has a row for each number that it holds; it is never laid out as a whole table per example.
Two places with the same number add up before the norm is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discreet.learning.engine.rules.base import Rule, in_pieces, part, precise, product, scaled
from discreet.learning.engine.rules.linear import rounded_up, terms_of


@dataclass(frozen=True)
class EmbeddingWeight(Rule):
    """The table [rows, width] of an embedding; places that hold `padding` have no gradient."""

    rows: int
    padding: int | None = None

    def places(self, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers as [B, T] and their gradients as [B, T, width], zero where the number is padding."""
        ids = inputs[0].reshape(grad.shape[0], -1)
        g = grad.reshape(grad.shape[0], ids.shape[1], grad.shape[-1])
        if self.padding is not None:
            g = torch.where((ids == self.padding).unsqueeze(2), 0.0, g)
        return ids, g

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        ids, g = self.places(inputs, grad)
        table = precise(g).new_zeros(g.shape[0], self.rows, g.shape[2])
        return table.scatter_add(1, ids.unsqueeze(2).expand_as(g), precise(g))

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return self.rows * grad.shape[-1]

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """Rows of equal numbers are summed in place of the first of them, without the table."""
        ids, g = self.places(inputs, grad)
        length, width = g.shape[1], g.shape[2]

        def of(piece: slice) -> Tensor:
            same = part(ids, piece).unsqueeze(2) == part(ids, piece).unsqueeze(1)
            values = precise(part(g, piece))
            if order == 2 and length <= 4 * width:
                gram = product(part(g, piece), part(g, piece).mT)
                return rounded_up(torch.where(same, gram, 0.0).sum((1, 2)), terms_of(gram))
            sums = same.to(values.dtype) @ values
            power = sums.square().sum(2) if order == 2 else sums.abs().sum(2)
            return (power / same.sum(2)).sum(1)

        return in_pieces(g.shape[0], length * length + length * width, of)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        ids, g = self.places(inputs, grad)
        values = precise(scaled(precise(g), weights)).flatten(0, 1)
        return values.new_zeros(self.rows, g.shape[2]).index_add(0, ids.flatten(), values)
