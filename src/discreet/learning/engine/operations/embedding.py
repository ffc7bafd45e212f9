"""Tables that are looked up by id: `embedding`, `embedding_bag` and `table[ids]`.

The gradient of one example has one row for each id in it; it is never materialized as one table per example. Positions
with the same id add up before the norm is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations.arithmetic import (
    enlarged,
    float32_digits,
    gram,
    in_chunks,
    on_grid,
    precise,
    product,
    rounding,
    scaled,
    summed,
    take,
    weighting_error,
    widened,
)
from discreet.learning.engine.operations.base import (
    Args,
    Function,
    GradientRule,
    Handlers,
    Kwargs,
    ParameterUse,
    Recorder,
    arguments,
)
from discreet.learning.engine.operations.sequence_norms import rounded_up, underflow, vector_lengths

#: Rows of a table are added up in float32, whatever products keep.
_SUM_DIGITS = 24


@dataclass(frozen=True)
class EmbeddingWeight(GradientRule):
    """The table [rows, width] of an embedding; positions that hold `padding` have no gradient."""

    rows: int
    padding: int | None = None

    shared = True

    def positions(self, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, Tensor]:
        """The ids as [B, T] and their gradients as [B, T, width], zero where the id is padding.

        Norms are computed with products, so norms and sums are of the digits that products keep.
        """
        ids = inputs[0].reshape(grad.shape[0], -1)
        g = grad.reshape(grad.shape[0], ids.shape[1], grad.shape[-1])
        g = on_grid(g, float32_digits(g.device))
        if self.padding is not None:
            g = torch.where((ids == self.padding).unsqueeze(2), 0.0, g)
        return ids, g

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        ids, g = self.positions(inputs, grad)
        table = precise(g).new_zeros(g.shape[0], self.rows, g.shape[2])
        return table.scatter_add(1, ids.unsqueeze(2).expand_as(g), precise(g))

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return self.rows * grad.shape[-1]

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """Each position holds the sum over all positions with its id, divided by their number: no table is needed."""
        ids, g = self.positions(inputs, grad)
        length, width = g.shape[1], g.shape[2]

        def powers_of(chunk: slice) -> Tensor:
            same = take(ids, chunk).unsqueeze(2) == take(ids, chunk).unsqueeze(1)
            # Up to this length the T×T Gram matrix is at most four times as large as the T×width sums of rows.
            if order == 2 and length <= 4 * width:
                products = gram(take(g, chunk))
                return rounded_up(summed(torch.where(same, products, 0.0)), vector_lengths(products))
            sums = product(same.to(g.dtype), take(g, chunk))
            power = sums.square().sum(2) if order == 2 else sums.abs().sum(2)
            return (power / same.sum(2)).sum(1)

        powers = in_chunks(g.shape[0], length * length + length * width, powers_of)
        return enlarged(powers, self.margin(inputs, grad, order), order)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """The sum has each position's gradient times the weight in float32, so only float32 rounds.

        Positions with the same id are added up in a row, so each of these additions counts.
        """
        ids, g = self.positions(inputs, grad)
        g = precise(g)
        lengths = g.abs().sum(2) if order == 1 else (g.square().sum(2) + underflow(g)).sqrt()
        error = weighting_error(g, _SUM_DIGITS, 1) + 2 * rounding(g.dtype) * occurrences(ids)
        return (error * lengths).sum(1)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        ids, g = self.positions(inputs, grad)
        values = scaled(widened(g), weights).flatten(0, 1)
        if values.device.type == "cpu":
            table: Tensor = _added_to_rows(values, ids.flatten(), self.rows)
            return table
        return values.new_zeros(self.rows, g.shape[2]).index_add(0, ids.flatten(), values)


#: Up to this length all pairs of positions are compared, which a compiler does in one pass. For longer sequences, that
#: would take much memory where it is not compiled.
_COMPARED = 256


def occurrences(ids: Tensor) -> Tensor:
    """How often the id at each position of [B, T] occurs in its row."""
    if ids.shape[1] <= _COMPARED:
        return (ids.unsqueeze(2) == ids.unsqueeze(1)).sum(2)
    ordered = ids.sort(1).values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


@torch.library.custom_op("discreet::added_to_rows", mutates_args=())
def _added_to_rows(values: Tensor, ids: Tensor, rows: int) -> Tensor:
    """A table whose row i is the sum of all values with id i. A compiler's code would add each number atomically."""
    none = -1  # no row is padding
    table: Tensor = torch.ops.aten.embedding_dense_backward(values, ids, rows, none, False)
    return table


@_added_to_rows.register_fake
def _(values: Tensor, ids: Tensor, rows: int) -> Tensor:
    return values.new_empty(rows, values.shape[1])


def embedding(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    ids, weight, padding, max_norm, _, by_frequency, _ = arguments(
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", args, kwargs
    )
    if max_norm is not None or by_frequency or id(weight) not in recorder.names:
        return NotImplemented
    output = F.embedding(ids, weight, padding)
    if padding is not None and padding < 0:
        padding += weight.shape[0]
    return recorder.record(
        "embedding", output, [ParameterUse(weight, EmbeddingWeight(weight.shape[0], padding), (ids,))]
    )


def lookup(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """`table[ids]` is an embedding."""
    table, ids = args
    if isinstance(ids, Tensor) and ids.dtype == torch.int64 and table.dim() == 2 and id(table) in recorder.names:
        return recorder.apply(F.embedding, (ids % table.shape[0], table), {})
    return NotImplemented


def embedding_bag(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A bag of fixed length is an embedding and a sum; bags given by offsets go through the fallback."""
    ids, weight, offsets, max_norm, _, by_frequency, mode, _, samples, _, padding = arguments(
        "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights "
        "include_last_offset padding_idx",
        args,
        kwargs,
        mode="mean",
    )
    if ids.dim() != 2 or offsets is not None or max_norm is not None or by_frequency or mode == "max":
        return NotImplemented
    rows = recorder.apply(F.embedding, (ids, weight, padding), {})
    if samples is not None:
        rows = rows * samples.unsqueeze(-1)
    counted = torch.ones_like(ids, dtype=rows.dtype)
    if padding is not None:
        counted = (ids != padding % weight.shape[0]).to(rows.dtype)
        rows = rows * counted.unsqueeze(-1)
    total = rows.sum(1)
    return total if mode == "sum" else total / counted.sum(1, keepdim=True).clamp_min(1)


HANDLERS: Handlers = {F.embedding: embedding, F.embedding_bag: embedding_bag, Tensor.__getitem__: lookup}
