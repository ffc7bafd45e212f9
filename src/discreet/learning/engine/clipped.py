"""The clipped sum of one batch, as a pure function of parameters, buffers, batch, mask and clip norm.

Forward pass, one backward pass to the outputs of the operations that hold parameters, norms, weights, weighted sums. It
keeps no state, so `make_fx` takes it whole and a compiler sees one graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.clipping import Clipping
from discreet.learning.engine.capture import Recorder, Site, output_gradients, unchanged
from discreet.learning.engine.compiled import mark
from discreet.learning.engine.fallback import Forward, per_example
from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations import HANDLERS
from discreet.learning.engine.rules.base import in_memory_like, power_sums, weighted_total
from discreet.learning.engine.tied import Part, norm_power


@dataclass(frozen=True)
class ClippedSum:
    """What one batch gives: the sums to be noised, and facts about each example that must never leave un-noised.

    Attributes:
        sums: by parameter name, Σ mask_i · weight_i · gradient_i in float32 (float64 for float64 models).
        norms: [groups, examples] the norm of each example's gradient in each group. Sensitive.
        losses: [examples]. Sensitive.
        finite: [examples] whether the loss and the gradient of the example are finite; others weigh nothing. Sensitive.
    """

    sums: dict[str, Tensor]
    norms: Tensor
    losses: Tensor
    finite: Tensor


@dataclass(frozen=True)
class Coverage:
    """What the dry run found: where the examples are at each site, and which parameters need the fallback."""

    signatures: tuple[tuple[str, ...], ...]
    layouts: tuple[Layout | None, ...]
    fallback: tuple[str, ...]
    unused: tuple[str, ...]


def parts_by_name(
    sites: Sequence[Site], gradients: Sequence[Tensor | None], layouts: Sequence[Layout | None], examples: int
) -> dict[str, list[Part]]:
    """All uses of each parameter, with the examples in the first dimension."""
    found: dict[str, list[Part]] = {}
    for site, grad, layout in zip(sites, gradients, layouts, strict=True):
        if grad is None or layout is None:
            continue
        if not layout.fits(grad.shape, examples):
            raise InvalidArgument(
                f"the output of {site.signature[0]} ({site.signature[1]}) must hold the batch's {examples} examples as "
                f"the first batch did, got the shape {tuple(grad.shape)}: keep the shapes of all batches the same"
            )
        placed = layout.examples_first(grad, examples)
        for name, rule, inputs in site.claims:
            moved = tuple(layout.examples_first(x, examples) for x in inputs)
            found.setdefault(name, []).append(Part(rule.placed(layout), moved, placed))
    return found


def clipped_parts(
    parts: Mapping[str, Sequence[Part]],
    whole: Mapping[str, Tensor],
    shapes: Mapping[str, Tensor],
    losses: Tensor,
    mask: Tensor,
    clip_norm: Tensor,
    clipping: Clipping,
) -> ClippedSum:
    """Norms, weights and weighted sums, from the uses of each parameter and whole gradients of the fallback's."""
    order, groups = clipping.order, clipping.groups(tuple(shapes))
    kept: dict[str, Tensor] = dict(whole)
    powers: dict[str, Tensor] = {}
    for name, uses in parts.items():
        if all(use.rule.keeps(use.inputs, use.grad) for use in uses):
            each = [use.rule.kept(use.inputs, use.grad) for use in uses]
            kept[name] = each[0] if len(each) == 1 else torch.stack(each).sum(0)
        else:
            powers[name] = norm_power(uses, order)
    powers |= {name: power_sums(gradients, order) for name, gradients in kept.items()}
    wide = torch.float64 if any(p.dtype == torch.float64 for p in shapes.values()) else torch.float32
    totals = [torch.zeros(losses.shape[0], dtype=wide, device=losses.device) for _ in range(max(groups) + 1)]
    for name, group in zip(shapes, groups, strict=True):
        if name in powers:
            totals[group] = totals[group] + powers[name].to(wide)
    norms = torch.stack(totals)
    norms = norms.sqrt() if order == 2 else norms
    finite = torch.isfinite(losses.detach()) & torch.isfinite(norms).all(0)
    weights = torch.where(finite & mask, clipping.weights(norms, clip_norm.to(wide)), 0.0)
    sums = {}
    for (name, parameter), group in zip(shapes.items(), groups, strict=True):
        if name in kept:
            sums[name] = weighted_total(kept[name], weights[group])
        elif name in parts:
            pieces = [use.rule.weighted(use.inputs, use.grad, weights[group]) for use in parts[name]]
            sums[name] = pieces[0] if len(pieces) == 1 else torch.stack(pieces).sum(0)
        else:
            sums[name] = torch.zeros_like(parameter, dtype=wide)
    # As the parameters lie in memory, so that noise and optimizer can take all sums in one go.
    laid_out = {name: in_memory_like(value.to(wide), shapes[name]) for name, value in sums.items()}
    return ClippedSum(laid_out, norms, losses.detach(), finite)


def _as_it_is(value: Tensor) -> Tensor:
    return value


def clip(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
    mask: Tensor,
    clip_norm: Tensor,
    clipping: Clipping,
    coverage: Coverage,
) -> ClippedSum:
    """The clipped sum of a batch.

    Guarantee:
        Neighbors: add/remove or zero-out one example. If each loss depends on its own example alone (which the dry run
        tests), one example moves `sums` by at most `clipping.sensitivity` in the clipping's norm, up to rounding.
        `norms`, `losses` and `finite` are not protected.
    """
    examples = mask.shape[0]
    with torch.enable_grad():
        live = {name: tensor.detach().requires_grad_() for name, tensor in trainable.items()}
        recorder = Recorder(live, HANDLERS, examples, coverage.layouts, frozenset(coverage.fallback))
        with recorder:
            losses = forward({**frozen, **live}, batch)
        surprising = recorder.unknown.keys() - set(coverage.unused)
        if tuple(site.signature for site in recorder.sites) != coverage.signatures or surprising:
            raise DiscreetError(
                "the model must run the same operations on every batch, got others than on the first one: its forward "
                "pass depends on the data or on a mode that was changed; make a new engine after such a change"
            )
        marked = mark if recorder.traced else _as_it_is
        gradients = output_gradients(marked(losses), recorder.sites)
        gradients = [None if g is None else marked(g) for g in gradients]
        unchanged(recorder.sites)
    with torch.no_grad():
        parts = parts_by_name(recorder.sites, gradients, coverage.layouts, examples)
        whole = per_example(forward, {**frozen, **live}, coverage.fallback, batch) if coverage.fallback else {}
        return clipped_parts(parts, whole, trainable, losses, mask, clip_norm, clipping)
