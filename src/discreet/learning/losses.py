"""One loss value per example, from whatever the user gives as a loss.

`loss(model, batch)` returns a tensor with one value per example. The usual torch losses are taken as they are: then a
batch is (inputs, targets), and the loss of one example is the mean over what it holds (tokens, pixels, outputs),
whatever reduction over the batch the loss was built with. A mean over the batch has no per-example gradients to clip.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from discreet import _check
from discreet.errors import InvalidArgument

Loss = Callable[[Any, Any], Tensor]

FUNCTIONS: tuple[Callable[..., Tensor], ...] = (
    F.cross_entropy,
    F.nll_loss,
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.kl_div,
    F.poisson_nll_loss,
    F.soft_margin_loss,
)


def _apply(function: Callable[..., Tensor], model: Any, batch: Any) -> Tensor:
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise InvalidArgument(
            "batch must be (inputs, targets) for a torch loss, got another structure: write a function "
            "loss(model, batch) that returns one value per example"
        )
    inputs, targets = batch
    output = model(inputs)
    values = function(output, targets)
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def _mean_over_used(values: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """The mean over the places of one example that are not ignored; an example with none has the loss zero."""
    if values.dim() < 2:
        return values
    used = (targets != ignored).flatten(1).to(values.dtype)
    return (values.flatten(1) * used).sum(1) / used.sum(1).clamp_min(1.0)


def per_example(loss: Any) -> Loss:
    """A loss as a function of (model, batch) that gives one value per example.

    Args:
        loss: such a function already, a torch loss function as `torch.nn.functional.cross_entropy`, or a torch loss
            module as `torch.nn.CrossEntropyLoss()`. The reduction of a module over the batch is not used.

    Guarantee:
        Each value depends on its own example if the model's outputs do; the engine's dry run tests that. Weights of
        classes are constants. `ignore_index` leaves out places of an example; an example without any has the loss zero.
    """
    if loss in FUNCTIONS:
        if loss in (F.cross_entropy, F.nll_loss):
            return _classified(lambda output, targets: loss(output, targets, reduction="none"), -100)
        return lambda model, batch: _apply(
            lambda output, targets: loss(output, targets, reduction="none"), model, batch
        )
    if isinstance(loss, nn.modules.loss._Loss):
        if not hasattr(loss, "reduction"):
            raise _check.fail("loss", "have a reduction", loss, "write loss(model, batch) with one value per example")
        alone = copy.deepcopy(loss)
        alone.reduction = "none"
        if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
            return _classified(alone, loss.ignore_index)
        return lambda model, batch: _apply(alone, model, batch)
    if isinstance(loss, nn.Module) or not callable(loss):
        raise _check.fail(
            "loss", "be a function loss(model, batch) or a loss of torch", loss, "return one value per example"
        )
    given: Loss = loss
    return given


def _classified(function: Callable[[Tensor, Tensor], Tensor], ignored: int) -> Loss:
    """Losses over classes skip the places that are marked as ignored."""

    def values(model: Any, batch: Any) -> Tensor:
        def reduced(output: Tensor, targets: Tensor) -> Tensor:
            found = function(output, targets)
            if targets.is_floating_point():
                return found
            return _mean_over_used(found, targets, ignored)

        return _apply(reduced, model, batch)

    return values


def checked(losses: Any, examples: int) -> Tensor:
    """Refuse what is not one value per example, with the fix."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        fix = (
            'use reduction="none", and average over all dimensions but the first'
            if shape != ()
            else 'a mean over the batch hides the examples: use reduction="none"'
        )
        raise InvalidArgument(f"loss must return one value per example, shape ({examples},), got {shape}: {fix}")
    return losses if losses.dtype == torch.float64 else losses.float()
