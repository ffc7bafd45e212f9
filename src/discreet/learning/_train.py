"""One call that trains a model privately: charge, draw, clip, add noise, step, save, and say what it cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from discreet import _check
from discreet.learning.distributed import inner_model
from discreet.learning.loop import TrainingLoop
from discreet.learning.plan import Plan
from discreet.learning.run import Mechanism, Run
from discreet.ledger.account import Account


def train(
    model: nn.Module,
    loss: Callable[..., Any],
    data: Any,
    plan: Plan,
    *,
    optimizer: Optimizer,
    scheduler: Any = None,
    account: Account | None = None,
    key: str | None = None,
    purpose: str = "private training",
    persons: Any = None,
    progress: bool = True,
    checkpoint: Path | str | None = None,
    every: int | None = None,
    resume: bool = False,
    compile: bool = True,
    autocast: torch.dtype | None = None,
) -> Run:
    """Train `model` on `data` as `plan` says, charged to `account` before the first step.

    Args:
        model: a torch module; its trainable parameters are trained in place.
        loss: `loss(model, batch)` with one value for each example, or one of torch's losses for (inputs, targets).
        data: tensors, numpy arrays, tuples or dicts of them, or a torch Dataset with random access.
        plan: `Plan.for_epsilon(…)` or `Plan.for_noise(…)`.
        optimizer: any of torch's, over the model's trainable parameters.
        scheduler: a learning-rate scheduler, stepped once after each step; none that looks at the exact loss.
        account: the ledger's account to charge; None charges nobody.
        key: a name for this training in the ledger, so that it is found again after a crash.
        purpose: what it is for, in the ledger's words.
        persons: with `unit=dp.person(...)`, one id for each example.
        progress: whether to draw a progress bar. It shows exact losses: for those who may see the data.
        checkpoint: a file to save to, so that the training can go on after a crash.
        every: after how many steps to save; a fiftieth of the plan unless given.
        resume: go on from `checkpoint`, where the file exists.
        compile: whether to compile, where a compiler exists.
        autocast: a narrower type for the model's own arithmetic, such as torch.bfloat16.

    Returns:
        A `Run`. Ctrl-C stops after the step that is running: with a checkpoint the run is saved and may go on
        (`run.resume()`, or `resume=True` later); without one its remaining steps are handed back to the account.

    Guarantee:
        Neighbors: those of the plan. The model, the optimizer and the checkpoint are outputs of at most `plan.steps`
        steps of `plan.event`, and `run.guarantee` is what they cost; `account` was charged for all of them before the
        first one. `run.history` and the progress bar are exact and not private. How long steps take is not protected,
        nor is a decision to stop that was made in view of the bar.
    """
    _check_kinds(plan, account)
    if isinstance(scheduler, ReduceLROnPlateau):
        remedy = "it would follow the exact loss, which nobody charged; use one that counts steps"
        raise _check.fail("scheduler", "not look at the loss", type(scheduler).__name__, remedy)
    step = plan.step(model, loss, optimizer, compile=compile, autocast=autocast)  # checks what it is given
    mechanism = Mechanism(plan, inner_model(model), loss, optimizer)
    training = TrainingLoop(plan, model, step, optimizer, scheduler, account, purpose, progress)
    training.prepare(data, persons, key, None if checkpoint is None else Path(checkpoint), every, resume)
    training.go_on()
    return Run(training, mechanism)


def _check_kinds(plan: object, account: object) -> None:
    if not isinstance(plan, Plan):
        remedy = "make one with Plan.for_epsilon(…) or Plan.for_noise(…)"
        raise _check.fail("plan", "be a Plan", type(plan).__name__, remedy)
    if account is not None and not isinstance(account, Account):
        remedy = "open one with dp.Ledger(path).account(name), or give None to charge nobody"
        raise _check.fail("account", "be an account of a ledger", type(account).__name__, remedy)
