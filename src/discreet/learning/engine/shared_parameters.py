"""Norms of parameters that are used more than once: the norm of the sum of all uses, with every cross term.

‖g₁ + g₂‖² = ‖g₁‖² + 2⟨g₁, g₂⟩ + ‖g₂‖², so the norms of the uses alone do not determine it. Uses of the same kind of
product are concatenated along the sequence. An embedding that is also the output layer (GPT-2) has a closed form for
its cross term. Everything else materializes the per-example gradients, a few examples at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discreet.learning.engine.operations.arithmetic import (
    accumulation,
    enlarged,
    factors,
    in_chunks,
    power_sums,
    precise,
    product,
    summed,
    take,
    widened,
)
from discreet.learning.engine.operations.base import GradientRule
from discreet.learning.engine.operations.embedding import EmbeddingWeight
from discreet.learning.engine.operations.linear import LinearWeight
from discreet.learning.engine.operations.sequence_norms import as_sequence, reach, rounded_up


@dataclass(frozen=True)
class Use:
    """One use of a parameter, with the examples in the first dimension."""

    rule: GradientRule
    inputs: tuple[Tensor, ...]
    grad: Tensor


def join_products(uses: Sequence[Use]) -> list[Use]:
    """The uses, with those of the same matrix product joined into one use over a longer sequence.

    Of the same types, too: each use is weighted in its own, and the margin for rounding is that of the type.
    """
    joined = [use for use in uses if type(use.rule) is not LinearWeight]
    by_kind: dict[tuple[GradientRule, torch.dtype, torch.dtype], list[Use]] = {}
    for use in uses:
        if type(use.rule) is LinearWeight:
            by_kind.setdefault((use.rule, use.inputs[0].dtype, use.grad.dtype), []).append(use)
    for (rule, _, _), same in by_kind.items():
        if len(same) == 1:
            joined.append(same[0])
            continue
        inputs = torch.cat([as_sequence(use.inputs[0]) for use in same], 1)
        joined.append(Use(rule, (inputs,), torch.cat([as_sequence(use.grad) for use in same], 1)))
    return joined


def _cross_term(table: Use, head: Use) -> Tensor:
    """⟨e, h⟩ of each example, for a table's gradient e as an embedding and its gradient h as a linear layer's weight.

    Row v of e is Σ_{t: id_t = v} e_t and row v of h is Σ_s g[s, v]·a_s, so ⟨e, h⟩ = Σ_{t,s} ⟨e_t, a_s⟩·g[s, id_t].
    """
    assert isinstance(table.rule, EmbeddingWeight)
    ids, e = table.rule.positions(table.inputs, table.grad)
    a, g = factors(as_sequence(head.inputs[0]), as_sequence(head.grad))

    def cross_terms_of(chunk: slice) -> Tensor:
        index = take(ids, chunk).unsqueeze(1).expand(-1, g.shape[1], -1)
        g_at_ids = widened(take(g, chunk).gather(2, index))  # [b, s, t]
        products = product(take(a, chunk), take(e, chunk).mT)  # [b, s, t]
        return summed(g_at_ids * products)

    return in_chunks(ids.shape[0], 2 * ids.shape[1] * g.shape[1], cross_terms_of)


def norm_power(uses: Sequence[Use], order: int) -> Tensor:
    """Σ|g|^order of each example's gradient, where g is summed over all uses before the norm is taken.

    With the margins of all uses: each is weighted and summed on its own, and the sums of all uses are added up.
    """
    uses = join_products(uses)
    if len(uses) == 1:
        return uses[0].rule.norm_power(uses[0].inputs, uses[0].grad, order)
    margins = [use.rule.margin(use.inputs, use.grad, order) for use in uses]
    margin = sum((each for each in margins if each is not None), torch.zeros((), device=uses[0].grad.device))
    tables = [use for use in uses if isinstance(use.rule, EmbeddingWeight)]
    heads = [use for use in uses if isinstance(use.rule, LinearWeight) and not use.rule.transposed]
    if order == 2 and len(uses) == 2 and len(tables) == 1 and len(heads) == 1:
        squares = torch.stack([use.rule.norm_power(use.inputs, use.grad, 2) for use in uses], 1)
        # The cross term rounds in proportion to what its terms are before they cancel.
        lengths = torch.stack([reach_of_table(tables[0]), reach_of_head(heads[0])], 1)
        return enlarged(rounded_up(squares.sum(1) + 2 * _cross_term(tables[0], heads[0]), lengths), margin, 2)

    def powers_of(chunk: slice) -> Tensor:
        gradients = [
            use.rule.per_example(tuple(take(x, chunk) for x in use.inputs), take(use.grad, chunk)) for use in uses
        ]
        powers = power_sums(torch.stack(gradients).sum(0), order)
        sizes = [power_sums(gradient, order) for gradient in gradients]
        lengths = torch.stack([size.sqrt() if order == 2 else size for size in sizes]).sum(0)
        return enlarged(powers, 2 * accumulation(powers.dtype) * lengths, order)

    elements = max(use.rule.elements_per_example(use.inputs, use.grad) for use in uses)
    return enlarged(in_chunks(uses[0].grad.shape[0], len(uses) * elements, powers_of), margin, order)


def reach_of_table(table: Use) -> Tensor:
    """Σ_t ‖e_t‖ over the positions of each example, for an embedding."""
    assert isinstance(table.rule, EmbeddingWeight)
    return precise(table.rule.positions(table.inputs, table.grad)[1]).square().sum(2).sqrt().sum(1)


def reach_of_head(head: Use) -> Tensor:
    """Σ_t ‖a_t‖‖g_t‖ over the positions of each example, for a linear layer."""
    return reach(as_sequence(head.inputs[0]), as_sequence(head.grad), 2)
