"""Private gradients for a loop that Hugging Face's Accelerate has prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from discreet import _check
from discreet.learning.gradients import PrivateGradients
from discreet.learning.plan import Plan

#: What Accelerate calls the types that a private step can compute in. Loss scaling for fp16 is not among them.
_AUTOCAST: dict[str, torch.dtype | None] = {"no": None, "bf16": torch.bfloat16}
#: How Accelerate may spread a model. Sharded and staged models have no gradients of whole parameters to clip.
_SPREAD = {"NO", "MULTI_GPU", "MULTI_CPU"}


def private_gradients(
    accelerator: Any,
    plan: Plan,
    model: nn.Module,
    loss: Callable[..., Any],
    data: Any,
    *,
    optimizer: Any = None,
    **settings: Any,
) -> PrivateGradients:
    """`PrivateGradients` with the settings of an `Accelerator`: iterate over it in place of a data loader.

    Args:
        accelerator: an `accelerate.Accelerator`.
        plan: the plan.
        model: the model, as `accelerator.prepare` returned it or as it was before.
        loss: `loss(model, batch)` with one value per example, or a torch loss.
        data: the training data itself, not a loader: the plan draws its own batches.
        optimizer: the optimizer, prepared or not, to check it before the charge.
        settings: further arguments of `PrivateGradients`, such as `account` and `record`.

    Guarantee: as `PrivateGradients`. `accelerator.backward` on the model is refused.
    """
    precision = str(accelerator.mixed_precision)
    if precision not in _AUTOCAST:
        remedy = "use 'bf16' or 'no': noisy gradients must not be scaled"
        raise _check.fail("mixed_precision", "be 'no' or 'bf16' for private training", precision, remedy)
    spread = accelerator.distributed_type.name
    if spread not in _SPREAD:
        remedy = "use one process, or data parallelism"
        raise _check.fail("distributed_type", f"be one of {', '.join(sorted(_SPREAD))}", spread, remedy)
    if accelerator.gradient_accumulation_steps != 1:
        remedy = "one step of a plan is one update; Plan.for_epsilon(…, physical_batch_size=…) splits its batches"
        got = accelerator.gradient_accumulation_steps
        raise _check.fail("gradient_accumulation_steps", "be 1 for private training", got, remedy)
    return PrivateGradients(
        plan,
        accelerator.unwrap_model(model),
        loss,
        data,
        optimizer=None if optimizer is None else getattr(optimizer, "optimizer", optimizer),
        autocast=_AUTOCAST[precision],
        **settings,
    )
