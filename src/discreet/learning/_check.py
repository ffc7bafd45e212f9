"""Looks at a model before its first step, for what would mix examples or keep something of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from discreet.errors import InvalidArgument

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


@dataclass(frozen=True)
class Finding:
    """One thing that stands between a model and private training."""

    module: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.module}: {self.problem}; {self.remedy}"


def findings(model: nn.Module) -> tuple[Finding, ...]:
    """All that stands against training this model privately, as far as its modules show it."""
    found = []
    for name, module in model.named_modules():
        place = name or type(module).__name__
        if isinstance(module, nn.modules.instancenorm._InstanceNorm):
            if module.track_running_stats:
                found.append(
                    Finding(
                        place,
                        "InstanceNorm with running statistics keeps means of the data in a buffer, without noise",
                        "set track_running_stats=False, or use fix(model)",
                    )
                )
        elif isinstance(module, _BATCH_NORMS) and (module.training or module.running_mean is None):
            found.append(
                Finding(
                    place,
                    "BatchNorm normalizes each example by the mean and variance of the whole batch, so every example "
                    "changes every other's gradient and clipping bounds nothing; it also keeps running statistics of "
                    "the data without noise",
                    "use GroupNorm or LayerNorm: fix(model) replaces it and keeps the affine weights",
                )
            )
    return tuple(found)


def check(model: nn.Module) -> None:
    """Raise if a model cannot be trained privately as it is, and say all reasons and what to do.

    Guarantee:
        Looks at the model alone. What only shows when it runs (a mean over the batch in a forward pass or a loss) is
        found by the dry run of the engine, which exchanges one example and looks at the gradients of the others.
    """
    found = findings(model)
    if found:
        raise InvalidArgument("model must treat each example on its own, but " + "\n".join(str(f) for f in found))
