"""Whether a model can be trained privately: finds layers that mix or store examples, and replaces them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

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


def check(model: nn.Module) -> None:
    """Raise if a model cannot be trained privately as it is, with all reasons and remedies.

    Guarantee:
        Looks only at the model. What shows only when it runs (a mean over the batch in a forward pass or a loss) is
        found by the engine's dry run, which replaces one example and compares the gradients of the others.
    """
    reasons = findings(model)
    if reasons:
        raise InvalidArgument("model must treat each example separately, but " + "\n".join(map(str, reasons)))


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
