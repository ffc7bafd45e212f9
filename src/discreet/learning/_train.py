"""`train`: one call that charges the account, runs all private steps, saves checkpoints and returns a `Run`."""

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
    compile: bool | None = None,
    autocast: torch.dtype | None = None,
) -> Run:
    """Train `model` on `data` according to `plan`, and charge `account` before the first step.

    Args:
        model: a torch module; its trainable parameters are trained in place.
        loss: `loss(model, batch)` with one value per example, or a torch loss for batches of (inputs, targets).
        data: tensors, numpy arrays, tuples or dicts of them, or a torch Dataset with random access.
        plan: `Plan.for_epsilon(…)` or `Plan.for_noise(…)`.
        optimizer: any torch optimizer over the model's trainable parameters.
        scheduler: a learning-rate scheduler, called after each step; it must not look at the exact loss.
        account: the account to charge; None charges nobody.
        key: a name for this training in the ledger, so that it can be resumed after a crash.
        purpose: what the training is for; the ledger records it.
        persons: with `unit=dp.person(...)`, one id per example.
        progress: whether to draw a progress bar. It shows exact losses, for people who may see the data.
        checkpoint: a file to save to, so that the training can be resumed after a crash.
        every: save after this many steps; by default a fiftieth of the plan.
        resume: continue from `checkpoint` if the file exists.
        compile: None compiles in the background if the steps to come pay for it; True compiles before the first step;
            False never does.
        autocast: a narrower type for the model's own arithmetic, such as torch.bfloat16.

    Returns:
        A `Run`. Ctrl-C stops after the current step. With a checkpoint the run is saved and can be resumed
        (`run.resume()`, or `resume=True` later); without one, the remaining steps are returned to the account.

    Guarantee:
        Neighbors: those of the plan. The model, the optimizer and the checkpoint are outputs of at most `plan.steps`
        steps of `plan.event`, and `run.guarantee` is their cost; `account` is charged for all of them before the first
        one. `run.history` and the progress bar are exact and not private. Not protected: how long steps take, and a
        decision to stop that was based on the progress bar.
    """
    _check_kinds(plan, account)
    if isinstance(scheduler, ReduceLROnPlateau):
        remedy = "it would follow the exact loss, which is not charged; use one that counts steps"
        raise _check.fail("scheduler", "not look at the loss", type(scheduler).__name__, remedy)
    step = plan.step(model, loss, optimizer, compile=compile, autocast=autocast)  # checks its arguments
    mechanism = Mechanism(plan, inner_model(model), loss, optimizer)
    loop = TrainingLoop(plan, model, step, optimizer, scheduler, account, purpose, progress)
    loop.prepare(data, persons, key, None if checkpoint is None else Path(checkpoint), every, resume)
    loop.run()
    return Run(loop, mechanism)


def _check_kinds(plan: object, account: object) -> None:
    if not isinstance(plan, Plan):
        remedy = "make one with Plan.for_epsilon(…) or Plan.for_noise(…)"
        raise _check.fail("plan", "be a Plan", type(plan).__name__, remedy)
    if account is not None and not isinstance(account, Account):
        remedy = "open one with dp.Ledger(path).account(name), or give None to charge nobody"
        raise _check.fail("account", "be an account of a ledger", type(account).__name__, remedy)
