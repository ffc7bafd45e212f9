"""Per-example losses: turns any supported loss into a function with one value per example.

A loss is `loss(model, batch)`, which returns a tensor with one value per example, or one of the usual torch losses. For
these a batch is (inputs, targets), and the loss of one example is the mean over its tokens, pixels or outputs, whatever
reduction the loss was built with. A mean over the batch has no per-example gradients to clip.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet import _check
from discreet.errors import InvalidArgument

LossFunction = Callable[[Any, Any], Tensor]

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


def _mean_over_used(values: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """The mean over the positions of an example that are not ignored; zero if all are ignored."""
    if values.dim() < 2:
        return values
    used = (targets != ignored).flatten(1).to(values.dtype)
    return (values.flatten(1) * used).sum(1) / used.sum(1).clamp_min(1.0)


def _of_classes(function: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor) -> Tensor:
    """The losses of scores [B, classes, …] and their classes [B, …].

    Scores that lie in memory with the classes last, as a language model computes them, are passed as [B·T, classes],
    for which torch has faster kernels.
    """
    rows = scores.movedim(1, -1) if scores.dim() > 2 else scores
    if scores.dim() > 2 and rows.is_contiguous() and rows.shape[:-1] == targets.shape:
        return function(rows.flatten(0, -2), targets.flatten()).view(targets.shape)
    return function(scores, targets)


def per_example(loss: Any) -> LossFunction:
    """A loss as a function of (model, batch) that gives one value per example.

    Args:
        loss: such a function, a torch loss function such as `torch.nn.functional.cross_entropy`, or a torch loss module
            such as `torch.nn.CrossEntropyLoss()`. A module's reduction over the batch is not used.

    Guarantee:
        Each value depends only on its own example if the model's outputs do; the engine's dry run tests that. Class
        weights are constants. `ignore_index` skips positions of an example; if all are skipped, its loss is zero.
    """
    if loss in FUNCTIONS:
        ignored = -100 if loss in (F.cross_entropy, F.nll_loss) else None
        return _Unreduced(partial(loss, reduction="none"), ignored)
    if isinstance(loss, nn.modules.loss._Loss):
        if not hasattr(loss, "reduction"):
            raise _check.fail("loss", "have a reduction", loss, "write loss(model, batch) with one value per example")
        unreduced = copy.deepcopy(loss)
        unreduced.reduction = "none"
        return _Unreduced(unreduced, loss.ignore_index if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) else None)
    if isinstance(loss, nn.Module) or not callable(loss):
        raise _check.fail(
            "loss", "be a function loss(model, batch) or a torch loss", loss, "return one value per example"
        )
    given: LossFunction = loss
    return given


@dataclass(frozen=True)
class _Unreduced:
    """A torch loss without its reduction, averaged over each example's outputs.

    An object and not a function with a closure, so that the engine can put back what the loss holds.

    Attributes:
        function: from outputs and targets to values.
        ignored: the target that marks positions to skip; None if there is none.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    ignored: int | None = None

    def __call__(self, model: Any, batch: Any) -> Tensor:
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise InvalidArgument(
                "batch must be (inputs, targets) for a torch loss, got another structure: write a function "
                "loss(model, batch) that returns one value per example"
            )
        inputs, targets = batch
        return self.of(model(inputs), targets)

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of a model's outputs."""
        if self.ignored is None or targets.is_floating_point():  # then targets are numbers, or probabilities of classes
            values = self.function(outputs, targets)
        else:
            values = _mean_over_used(_of_classes(self.function, outputs, targets), targets, self.ignored)
        return values.flatten(1).mean(1) if values.dim() > 1 else values


class Unreduced(TorchFunctionMode):
    """Within it, a torch loss that would be the mean over a batch has one value per example instead.

    So a framework's `training_step`, which returns such a mean, gives the losses of the examples. A loss that is summed
    over the batch is refused.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        reduction = kwargs.get("reduction", "mean")
        if func not in FUNCTIONS or reduction == "none":
            return func(*args, **kwargs)
        if reduction != "mean":
            raise InvalidArgument(
                f"the loss must be a mean over the batch, got reduction={reduction!r} in {func.__name__}: a sum has "
                "another scale, which clipping would undo; leave the reduction out"
            )
        outputs, targets, *rest = args
        names = list(inspect.signature(func).parameters)[2:]
        given = dict(zip(names, rest, strict=False)) | kwargs | {"reduction": "none"}
        ignored = given.get("ignore_index", -100) if func in (F.cross_entropy, F.nll_loss) else None
        return _Unreduced(partial(func, **given), ignored).of(outputs, targets)


@dataclass(frozen=True)
class _OfPersons:
    """What `of_persons` returns: an object, so that the engine can put back what the inner loss holds."""

    each: LossFunction

    def __call__(self, model: Any, batch: Any) -> Tensor:
        rows, members = batch
        values = self.each(model, pytree.tree_map_only(Tensor, lambda x: x.flatten(0, 1), rows))
        return torch.where(members, checked(values, members.numel()).view(members.shape), 0.0).sum(1)


def of_persons(loss: Any) -> LossFunction:
    """The loss of a person: the sum over the person's examples.

    Its batch is (rows, members): each tensor of `rows` is [persons, places, …], and `members` says which places hold an
    example. The gradient of this sum is the sum of the gradients of the person's examples.
    """
    return _OfPersons(per_example(loss))


def checked(losses: Any, examples: int) -> Tensor:
    """`losses`, if there is one value per example; anything else is refused, with the fix."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        fix = (
            'use reduction="none", and average over all dimensions but the first'
            if shape != ()
            else 'a mean over the batch hides the examples: use reduction="none"'
        )
        raise InvalidArgument(f"loss must return one value per example, shape ({examples},), got {shape}: {fix}")
    return losses if losses.dtype == torch.float64 else losses.float()
