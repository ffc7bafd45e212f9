"""A batch with examples whose loss or gradient is not finite: its clipped sum without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learning.engine.clipped import ClippedSum


def _select_rows(batch: Any, rows: Tensor) -> Any:
    return pytree.tree_map_only(Tensor, lambda x: x.index_select(0, rows.to(x.device)), batch)


def without_sums(result: ClippedSum) -> ClippedSum:
    """Copies of what a result says about each example, and sums without data: the engine may want its memory back."""
    sums = {name: torch.empty_like(value, device="meta") for name, value in result.sums.items()}
    return ClippedSum(sums, result.norms.clone(), result.losses.clone(), result.finite.clone())


def without_nonfinite(
    run: Callable[[Any, Tensor], ClippedSum], first: ClippedSum, batch: Any, mask: Tensor
) -> ClippedSum:
    """The result for the same batch with every non-finite example replaced by a finite one, and masked.

    In the first result such an example has weight zero, but zero times infinity is NaN, so its sums are not used.

    Args:
        run: the clipped sum of a batch and its mask.
        first: the result for this batch, without its sums.
        batch: the batch.
        mask: which of its rows are examples.
    """
    finite = first.finite
    positions = torch.arange(finite.shape[0], device=finite.device)
    while bool(finite.any()):
        rows = torch.where(finite, positions, torch.nonzero(finite)[0])
        again = run(_select_rows(batch, rows), mask & finite)
        complete = bool(again.finite.all())
        finite = finite & again.finite  # with dropout, an example may fail the second time
        if complete:
            norms = torch.where(finite, again.norms, first.norms)
            losses = torch.where(finite, again.losses, first.losses)
            return ClippedSum(again.sums, norms, losses, finite, again.lent)
        del again
    zeros = {name: torch.zeros_like(value, device=finite.device) for name, value in first.sums.items()}
    return ClippedSum(zeros, first.norms, first.losses, finite)
