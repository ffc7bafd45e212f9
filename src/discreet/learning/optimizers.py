"""What a private step asks of an optimizer, checked before anything is charged.

A private step sets `.grad` once and calls `optimizer.step()`. An optimizer that evaluates the loss several times in one
step, through a closure, would look at the data as often, and the plan pays for one look.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet import _check
from discreet.errors import InvalidArgument


def check_optimizer(optimizer: object, model: nn.Module, named: Mapping[str, nn.Parameter]) -> list[Tensor]:
    """Check an optimizer for a private step, and return the frozen parameters that it holds.

    It must hold all trainable parameters and no foreign ones, and take a step without a closure.
    """
    if not isinstance(optimizer, Optimizer):
        remedy = "for example torch.optim.SGD(model.parameters(), lr=0.1)"
        raise _check.fail("optimizer", "be one of torch's optimizers", type(optimizer).__name__, remedy)
    held: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    of_model = {id(p) for p in model.parameters()}
    if any(id(p) not in of_model for p in held):
        raise InvalidArgument(
            "optimizer must hold only parameters of the model: others would be trained without clipping or noise"
        )
    optimized = {id(p) for p in held}
    for name, parameter in named.items():
        if id(parameter) not in optimized:
            remedy = "give it to the optimizer, or freeze it with requires_grad_(False)"
            raise _check.fail("optimizer", f"hold the trainable parameter {name!r}", "an optimizer without it", remedy)
    if isinstance(optimizer, torch.optim.SparseAdam):
        remedy = "noise makes every gradient dense; use Adam"
        raise _check.fail("optimizer", "take dense gradients", type(optimizer).__name__, remedy)
    if needs_closure(optimizer):
        remedy = (
            "it evaluates the loss on the batch again, which the plan does not pay for; use an optimizer that only "
            "reads .grad, such as SGD or Adam"
        )
        raise _check.fail("optimizer", "take a step without a closure", type(optimizer).__name__, remedy)
    trained = {id(p) for p in named.values()}
    return [p for p in held if id(p) not in trained]


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether an optimizer's step needs a closure that evaluates the loss, as LBFGS does.

    Its signature may say so. If the closure is optional there, a copy of the optimizer takes a step on parameters of a
    single element: if that fails without a closure, and with one it does not fail in the same way, it needs one. A copy
    that fails in the same way both times shows nothing. The optimizer itself and the model are not touched.
    """
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return True
    if optimizer.state:  # it has taken steps, and a copy would copy all of its state
        return False
    alone = _failure(optimizer, None)
    return alone is not None and alone != _failure(optimizer, lambda: 0.0)


def _failure(optimizer: Optimizer, closure: Callable[[], float] | None) -> tuple[type, str] | None:
    """How a step of a miniature of the optimizer fails; None if it works or if there is no miniature."""
    try:
        miniature = _miniature(optimizer)
    except Exception:  # a foreign class may not be copyable in any of many ways
        return None
    try:
        miniature.step(closure) if closure is not None else miniature.step()
    except Exception as error:  # whatever the foreign step raises is the answer
        return type(error), str(error)
    return None


def _miniature(optimizer: Optimizer) -> Optimizer:
    """A copy of an optimizer over parameters with one element each, of the same types, devices and dimensions."""
    memo: dict[int, Any] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            tiny = torch.zeros((1,) * parameter.dim(), dtype=parameter.dtype, device=parameter.device)
            memo[id(parameter)] = nn.Parameter(tiny, requires_grad=parameter.requires_grad)
            memo[id(parameter)].grad = torch.zeros_like(tiny)
    # A scheduler wraps `step` on the object, and hooks are the caller's: neither is for a rehearsal.
    own = {name: value for name, value in vars(optimizer).items() if name != "step" and not name.endswith("_hooks")}
    miniature = object.__new__(type(optimizer))
    miniature.__setstate__(copy.deepcopy(own, memo))  # adds empty hooks
    return miniature
