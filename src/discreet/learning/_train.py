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
from discreet.learning.allowance import checked_account, checked_plan
from discreet.learning.distributed import inner_model
from discreet.learning.evaluation import PeriodicEvaluation
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
    collate: Callable[[list[Any]], Any] | None = None,
    evaluate: Callable[[nn.Module], Any] | None = None,
    evaluate_every: int | None = None,
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
        optimizer: any torch optimizer over the model's trainable parameters whose step needs no closure.
        scheduler: a learning-rate scheduler, called after each step; it must not look at the exact loss.
        account: the account to charge; None charges nobody.
        key: a name for this training in the ledger, so that it can be resumed after a crash.
        purpose: what the training is for; the ledger records it.
        persons: with `unit=dp.person(...)`, one id per example.
        collate: makes tensors of an example: called with a list of one example at a time (see `Plan.batches`).
        evaluate: `evaluate(model)` returns a number, or numbers by name. It is called before the charge, so that it can
            fail for free, and then every `evaluate_every` steps and at the end, in evaluation mode and without
            gradients. The results are in `run.history.evaluations`. They are private if the function uses public data
            only.
        evaluate_every: by default a tenth of the plan's steps.
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
        one. Buffers of the model keep the values that they had before the training: what a forward pass writes there,
        such as a count of passes, is put back after each step, because it would tell the sizes of secret batches.
        `run.history` and the progress bar are exact and not private, and so is what `evaluate` measures on private
        data. Not protected: how long steps take, and a decision to stop that was based on any of these.
    """
    checked_plan(plan)
    checked_account(account)
    if optimizer is None:
        raise _check.fail(
            "optimizer", "be one of torch's optimizers", None, "for example SGD(model.parameters(), lr=0.1)"
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        remedy = "it would follow the exact loss, which is not charged; use one that counts steps"
        raise _check.fail("scheduler", "not look at the loss", type(scheduler).__name__, remedy)
    step = plan.step(model, loss, optimizer, compile=compile, autocast=autocast)  # checks its arguments
    evaluation = (
        None if evaluate is None else PeriodicEvaluation(evaluate, inner_model(model), plan.steps, evaluate_every)
    )
    if evaluate is None and evaluate_every is not None:
        raise _check.fail("evaluate_every", "be used with evaluate", evaluate_every, "give evaluate=, a function")
    mechanism = Mechanism(plan, inner_model(model), loss, optimizer, collate)
    loop = TrainingLoop(plan, model, step, optimizer, scheduler, account, purpose, progress, evaluation)
    loop.prepare(data, persons, key, None if checkpoint is None else Path(checkpoint), every, resume, collate)
    loop.run()
    return Run(loop, mechanism)
