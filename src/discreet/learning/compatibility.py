"""Whether a model can be trained privately: finds layers that mix or store examples, and replaces them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from discreet.errors import InvalidArgument

#: The largest number of groups, as in Wu and He 2018 (arXiv 1803.08494).
_MOST_GROUPS = 32


@dataclass(frozen=True)
class Finding:
    """One reason why a model cannot be trained privately, and the remedy."""

    module: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.module}: {self.problem}; {self.remedy}"


def findings(model: nn.Module) -> tuple[Finding, ...]:
    """All reasons why this model cannot be trained privately, as far as its modules show."""
    reasons = []
    for name, module in model.named_modules():
        location = name or type(module).__name__
        if isinstance(module, nn.modules.instancenorm._InstanceNorm):
            if module.track_running_stats:
                reasons.append(
                    Finding(
                        location,
                        "InstanceNorm with running statistics stores means of the data in a buffer, without noise",
                        "set track_running_stats=False, or use fix(model)",
                    )
                )
        elif isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            reasons.append(
                Finding(
                    location,
                    "BatchNorm normalizes each example by the mean and variance of the whole batch, so every example "
                    "changes every other's gradient and clipping bounds nothing; it also stores running statistics of "
                    "the data without noise",
                    "use GroupNorm or LayerNorm: fix(model) replaces it and keeps the affine weights",
                )
            )
    return tuple(reasons)


@dataclass(frozen=True)
class Checked:
    """What `check` found about a model that can be trained privately. `print` shows it in words.

    Attributes:
        trainable: the number of elements that get gradients.
        frozen: the number of elements that don't.
        unprotected: buffers, by name. Training does not change them, and they are saved as they are.
        coverage: how each parameter's gradients are clipped, if `check` had a batch; else empty.
    """

    trainable: int
    frozen: int
    unprotected: tuple[str, ...]
    coverage: str = ""

    def __str__(self) -> str:
        tried = "" if self.coverage else ", judging by its modules (give a loss and a batch to try it)"
        lines = [
            f"This model can be trained privately{tried}.",
            f"{self.trainable:,} trainable and {self.frozen:,} frozen parameters.",
        ]
        if self.unprotected:
            lines.append(f"Buffers, which are saved as they are: {', '.join(self.unprotected)}.")
        return "\n".join([*lines, *self.coverage.splitlines()])


def check(model: nn.Module, loss: Any = None, batch: Any = None) -> Checked:
    """Raise if a model cannot be trained privately as it is, with all reasons and remedies; else say what was found.

    Args:
        model: the model.
        loss: as for `train`. With a loss and a batch, the model is also tried: it is proved that its examples don't
            mix, and the result says how each parameter is handled.
        batch: some rows in the form that the loss takes; made up, or not to be protected.

    Guarantee:
        Looks at the model and at `batch`, and changes neither. What shows only when the model runs (a mean over the
        batch in a forward pass or a loss) is found only with a batch; `train` always looks before it charges.

    >>> print(check(nn.Linear(3, 2)))
    This model can be trained privately, judging by its modules (give a loss and a batch to try it).
    8 trainable and 0 frozen parameters.
    """
    reasons = findings(model)
    if reasons:
        raise InvalidArgument("model must treat each example separately, but " + "\n".join(map(str, reasons)))
    coverage = ""
    if loss is not None and batch is not None:
        from discreet.learning.clipping import Flat
        from discreet.learning.engine import Engine

        engine = Engine(model, loss, Flat(1.0), compile=False)
        engine.start(batch)
        coverage = engine.report
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return Checked(
        trainable=sum(size for size, trainable in sizes if trainable),
        frozen=sum(size for size, trainable in sizes if not trainable),
        unprotected=tuple(name for name, _ in model.named_buffers()),
        coverage=coverage,
    )


def groups_for(channels: int) -> int:
    """The number of groups for `channels`: at most 32, with at least four channels each if that divides.

    A group of a single value would be normalized to zero whatever the data, so a group has more than one channel
    unless there is only one.
    """
    for smallest in (4, 2):
        fitting = [g for g in range(1, _MOST_GROUPS + 1) if channels % g == 0 and channels // g >= smallest]
        if fitting:
            return fitting[-1]
    return 1


def _group_norm(name: str, old: nn.modules.batchnorm._BatchNorm) -> nn.Module:
    if old.num_features == 1 and isinstance(old, nn.BatchNorm1d):
        raise InvalidArgument(
            f"{name} must have more than one channel, got BatchNorm1d(1): normalized on its own, a single value is "
            "always zero; remove this layer"
        )
    new = nn.GroupNorm(groups_for(old.num_features), old.num_features, old.eps, old.affine)
    return _with_affine(old, new)


def _with_affine(old: nn.Module, new: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name in ("weight", "bias"):
            before, after = getattr(old, name), getattr(new, name)
            if before is not None and after is not None:
                new.register_parameter(name, nn.Parameter(before.detach().clone(), before.requires_grad))
    return new.train(old.training)


def _fixed(name: str, module: nn.Module) -> nn.Module:
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        if not module.track_running_stats:
            return module
        kind = type(module)
        return _with_affine(module, kind(module.num_features, module.eps, affine=module.affine))
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return _group_norm(name, module)
    return module


def fix(model: nn.Module) -> nn.Module:
    """A copy of a model that can be trained privately: BatchNorm becomes GroupNorm, running statistics are dropped.

    The affine weights are kept, and no group holds a single channel. The copy computes another function, so train it
    (again) afterwards, and give the optimizer the parameters of the copy.

    Guarantee:
        Looks only at the model. The copy leaves out the running statistics that a BatchNorm has stored.
    """
    result = copy.deepcopy(model)
    replaced: dict[int, nn.Module] = {}

    def visit(prefix: str, parent: nn.Module) -> None:
        for name, child in list(parent._modules.items()):
            if child is None:
                continue
            path = f"{prefix}.{name}" if prefix else name
            if id(child) not in replaced:
                replaced[id(child)] = _fixed(path, child)
                visit(path, child)
            setattr(parent, name, replaced[id(child)])

    top = _fixed(type(result).__name__, result)
    if top is not result:
        return top
    visit("", result)
    return result
