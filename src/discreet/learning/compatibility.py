"""Whether a model can be trained privately: finds layers that mix or store examples, and replaces them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discreet import _check
from discreet.errors import InvalidArgument

#: The largest number of groups, as in Wu and He 2018 (arXiv 1803.08494).
_MOST_GROUPS = 32
#: A variance needs at least two values.
_LEAST_MEASURED = 2


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
                    "use GroupNorm or LayerNorm: fix(model) replaces it and keeps the affine weights, and "
                    "fix(model, statistics=public_batches) normalizes by statistics of public data",
                )
            )
    reasons += [
        Finding(
            name,
            "its numbers are complex, and norms and noise are for real ones",
            "train its real and imaginary parts as two parameters",
        )
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.is_complex()
    ]
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


class FrozenNorm(nn.Module):
    """A BatchNorm whose mean and variance are constants, measured on public data: a scale and a shift per channel.

    It treats each example by itself, in training as in evaluation. The affine weights are trained.
    """

    running_mean: Tensor
    running_var: Tensor
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, old: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor) -> None:
        super().__init__()
        self.eps = old.eps
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        for name in ("weight", "bias"):
            before = getattr(old, name)
            if before is not None:
                self.register_parameter(name, nn.Parameter(before.detach().clone(), before.requires_grad))
        like = old.weight if old.weight is not None else mean.float()
        self.register_buffer("running_mean", mean.to(like))
        self.register_buffer("running_var", variance.to(like))

    def forward(self, inputs: Tensor) -> Tensor:
        """The normalized inputs."""
        return nn.functional.batch_norm(
            inputs, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


class _Measuring(nn.Module):
    """A BatchNorm in the pass over public data: it normalizes by the batch, and sums up all batches."""

    def __init__(self, old: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.old = old
        self.count = 0
        self.total = torch.zeros(old.num_features, dtype=torch.float64)
        self.squares = torch.zeros(old.num_features, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        values = inputs.detach().double().movedim(1, 0).flatten(1).cpu()
        self.count += values.shape[1]
        self.total += values.sum(1)
        self.squares += values.square().sum(1)
        return nn.functional.batch_norm(
            inputs, None, None, self.old.weight, self.old.bias, training=True, eps=self.old.eps
        )

    def frozen(self, name: str) -> FrozenNorm:
        """The layer with what was measured."""
        if self.count < _LEAST_MEASURED:
            remedy = "the model must use this layer on batches of public examples"
            raise _check.fail("statistics", f"reach {name} with at least {_LEAST_MEASURED} values", self.count, remedy)
        mean = self.total / self.count
        variance = (self.squares / self.count - mean.square()).clamp_min(0.0)
        if not bool(torch.isfinite(mean).all() and torch.isfinite(variance).all()):
            raise _check.fail("statistics", f"be finite at {name}", "a value that is not", "check the public data")
        return FrozenNorm(self.old, mean, variance).train(self.old.training)


def _is_batch_norm(module: nn.Module) -> bool:
    norms = nn.modules.batchnorm._BatchNorm
    return isinstance(module, norms) and not isinstance(module, nn.modules.instancenorm._InstanceNorm)


def _without_running_statistics(module: nn.Module) -> nn.Module:
    """An InstanceNorm that stores nothing; any other module as it is."""
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        return _with_affine(module, type(module)(module.num_features, module.eps, affine=module.affine))
    return module


def _grouped(name: str, module: nn.Module) -> nn.Module:
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and _is_batch_norm(module):
        return _group_norm(name, module)
    return _without_running_statistics(module)


def _measuring(name: str, module: nn.Module) -> nn.Module:
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and _is_batch_norm(module):
        return _Measuring(module)
    return _without_running_statistics(module)


def _frozen(name: str, module: nn.Module) -> nn.Module:
    return module.frozen(name) if isinstance(module, _Measuring) else module


def fix(model: nn.Module, *, statistics: Iterable[Any] | None = None) -> nn.Module:
    """A copy of a model that can be trained privately: without BatchNorm over private batches or running statistics.

    BatchNorm becomes GroupNorm or, with `statistics`, a fixed normalization by the mean and variance of public data.
    The affine weights are kept, and no group holds a single channel. The copy computes another function, so train it
    (again) afterwards, and give the optimizer the parameters of the copy.

    Args:
        model: the model.
        statistics: batches of **public** examples, such as a DataLoader: tensors of inputs, tuples that start with
            one, or dictionaries of arguments.

    Guarantee:
        Looks only at the model and at `statistics`, which are not protected: their means stay in the model. The copy
        leaves out the running statistics that a BatchNorm has stored.
    """
    result = copy.deepcopy(model)
    if statistics is None:
        return _replaced(result, _grouped)
    measuring = _replaced(result, _measuring)
    modes = [(module, module.training) for module in measuring.modules()]
    measuring.eval()
    batches = 0
    with torch.no_grad():
        for batch in statistics:
            _run(measuring, batch)
            batches += 1
    if batches == 0:
        raise _check.fail("statistics", "hold at least one batch", 0, "give batches of public examples")
    for module, training in modes:
        module.training = training
    return _replaced(measuring, _frozen)


def _run(model: nn.Module, batch: Any) -> None:
    if isinstance(batch, dict):
        model(**batch)
        return
    inputs = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(inputs, Tensor):
        remedy = "each batch is a tensor, a tuple that starts with one, or a dictionary of arguments"
        raise _check.fail("statistics", "hold tensors", type(inputs).__name__, remedy)
    model(inputs)


def _replaced(model: nn.Module, replacement: Callable[[str, nn.Module], nn.Module]) -> nn.Module:
    """`model` with its modules replaced in place; a module that is used twice is replaced once."""
    replaced: dict[int, nn.Module] = {}

    def visit(prefix: str, parent: nn.Module) -> None:
        for name, child in list(parent._modules.items()):
            if child is None:
                continue
            path = f"{prefix}.{name}" if prefix else name
            if id(child) not in replaced:
                replaced[id(child)] = replacement(path, child)
                if replaced[id(child)] is child:
                    visit(path, child)
            setattr(parent, name, replaced[id(child)])

    top = replacement(type(model).__name__, model)
    if top is not model:
        return top
    visit("", model)
    return model
