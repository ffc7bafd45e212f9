"""Norms of parameters that are used more than once: the norm of the sum of all uses, with every cross term.

‖g₁ + g₂‖² = ‖g₁‖² + 2⟨g₁, g₂⟩ + ‖g₂‖²: the norms of the uses do not tell it. Uses of the same kind of product are put
one after the other in time; an embedding that also is the output layer (GPT-2) has a closed form for its cross term;
for all else the per-example gradients are laid out, a few examples at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discreet.learning.engine.rules.base import Rule, in_pieces, part, power_sums, precise, product
from discreet.learning.engine.rules.embedding import EmbeddingWeight
from discreet.learning.engine.rules.linear import LinearWeight, as_sequence, rounded_up


@dataclass(frozen=True)
class Part:
    """One use of a parameter, examples first."""

    rule: Rule
    inputs: tuple[Tensor, ...]
    grad: Tensor


def joined(parts: Sequence[Part]) -> list[Part]:
    """Uses of the same matrix product as one use over a longer sequence."""
    products = [p for p in parts if type(p.rule) is LinearWeight]
    others = [p for p in parts if type(p.rule) is not LinearWeight]
    by_rule: dict[Rule, list[Part]] = {}
    for use in products:
        by_rule.setdefault(use.rule, []).append(use)
    for rule, same in by_rule.items():
        if len(same) == 1:
            others.append(same[0])
            continue
        inputs = torch.cat([as_sequence(p.inputs[0]) for p in same], 1)
        others.append(Part(rule, (inputs,), torch.cat([as_sequence(p.grad) for p in same], 1)))
    return others


def _cross(table: Part, head: Part) -> Tensor:
    """⟨e, h⟩ of each example for a table e looked up by number and the same table h as a linear layer's weight.

    Row v of e is Σ_{t: id_t = v} e_t and row v of h is Σ_s g[s, v]·a_s, so ⟨e, h⟩ = Σ_{t,s} ⟨e_t, a_s⟩·g[s, id_t].
    """
    assert isinstance(table.rule, EmbeddingWeight)
    ids, e = table.rule.places(table.inputs, table.grad)
    a, g = as_sequence(head.inputs[0]), as_sequence(head.grad)

    def of(piece: slice) -> Tensor:
        at = part(ids, piece).unsqueeze(1).expand(-1, g.shape[1], -1)
        chosen = precise(part(g, piece).gather(2, at))  # [b, s, t]
        near = product(part(a, piece), part(e, piece).to(a.dtype).mT)  # [b, s, t]
        return (chosen * near).sum((1, 2))

    return in_pieces(ids.shape[0], 2 * ids.shape[1] * g.shape[1], of)


def norm_power(parts: Sequence[Part], order: int) -> Tensor:
    """Σ|g|^order of each example's gradient, summed over all uses before the norm."""
    parts = joined(parts)
    if len(parts) == 1:
        return parts[0].rule.norm_power(parts[0].inputs, parts[0].grad, order)
    tables = [p for p in parts if isinstance(p.rule, EmbeddingWeight)]
    heads = [p for p in parts if p.rule == LinearWeight(False)]
    if order == 2 and len(parts) == 2 and len(tables) == 1 and len(heads) == 1:
        own = torch.stack([p.rule.norm_power(p.inputs, p.grad, 2) for p in parts], 1)
        return rounded_up(own.sum(1) + 2 * _cross(tables[0], heads[0]), own.sqrt())

    def of(piece: slice) -> Tensor:
        whole = [p.rule.per_example(tuple(part(x, piece) for x in p.inputs), part(p.grad, piece)) for p in parts]
        return power_sums(torch.stack(whole).sum(0), order)

    elements = max(p.rule.elements(p.inputs, p.grad) for p in parts)
    return in_pieces(parts[0].grad.shape[0], len(parts) * elements, of)
