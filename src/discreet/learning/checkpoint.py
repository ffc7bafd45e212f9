"""Checkpoint files: everything that is needed to resume a training, and nothing that would undo its privacy.

The file holds parameters, optimizer, scheduler, the sampler's position, the number of steps that count as taken and the
ledger's receipt. It does **not** hold the key of the noise or of secret batches: whoever reads the file could use them
to remove the noise. A resumed run draws from a fresh key, so noise is never used twice, whatever happens to the file.
Nor does it hold the state of torch's generators, which counts forward passes: dropout continues under a fresh seed too.
Everything in it, except for the optimizer's settings, is an output of private steps.

A training with correlated noise takes noise back in later steps. That noise lies in another, secret file (`pending`).

Why a resumed run has the guarantee of its plan: a step counts as taken once it is allowed, and that is recorded (in the
ledger, or in the file if there is no ledger) before it runs. A resumed run continues after the last allowed step, with
the parameters of the last checkpoint. So among all its processes, dead or alive, each step of the plan ran at most
once, with its own noise, and everything released is a function of the outputs of at most `plan.steps` steps of
`plan.event`. Allowed steps that were lost are not run again: with the same noise, a rerun would be a second release
whenever a device does not reproduce its sums bit by bit; with other noise it would always be one. A crash costs
training time, never privacy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from discreet._files import replace_file
from discreet.errors import NotACheckpoint
from discreet.learning.plan import Plan

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The contents of a checkpoint file: plain values and tensors.

    Attributes:
        plan: the fingerprint of the plan.
        key: the key of the ledger's reservation; None without an account.
        receipt: the ledger's receipt as text; None without an account.
        allowed: the number of the plan's steps that count as taken, whether they ran or not.
        step: the position, the number of updates and the clip norm.
        sampler: the sampler's position, and its secret if that is not sensitive.
        model: the model's state.
        optimizer: the optimizer's state.
        scheduler: the scheduler's state; None without a scheduler.
        random: empty. Earlier versions kept the state of torch's generators, which is not used any more: it told how
            many forward passes there were, and so the sizes of secret batches.
        account: the name of the account; None without an account, and in files of earlier versions.
        run: the name of a training with correlated noise, whose secret file has it too; else None.
    """

    plan: str
    key: str | None
    receipt: str | None
    allowed: int
    step: dict[str, Any]
    sampler: dict[str, Any]
    model: dict[str, Any]
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    random: dict[str, Any]
    account: str | None = None
    run: str | None = None

    def write(self, path: Path) -> None:
        """Replace the file atomically and durably: after a crash there is the old file or the new one."""
        content = {"discreet checkpoint": _FORMAT, **vars(self)}
        replace_file(path, lambda file: torch.save(content, file))

    @classmethod
    def read(cls, path: Path, plan: Plan) -> Checkpoint:
        """Read a checkpoint of `plan` from `path`. No code in the file is executed."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            if content.pop("discreet checkpoint") != _FORMAT:
                raise NotACheckpoint(f"{path} was written by another version")
            checkpoint = cls(**content)
        except (NotACheckpoint, FileNotFoundError):
            raise
        except Exception as error:  # a foreign or damaged file can make the reader raise anything
            raise NotACheckpoint(f"{path} is not a checkpoint, or is damaged: {type(error).__name__}") from error
        if checkpoint.plan != fingerprint(plan):
            raise NotACheckpoint(
                f"{path} belongs to another plan: a training continues with the plan it started with; "
                "give the same arguments, or another path for a new training"
            )
        return checkpoint


def fingerprint(plan: Plan) -> str:
    """A hash that two plans share only if they agree in everything that decides the price or the updates.

    It covers the `repr` of these parts, so changing one of them makes earlier checkpoints unreadable.
    """
    facts: tuple[object, ...] = (
        plan.event, plan.neighbors, plan.sampler, plan.clipping, plan.clip_schedule, plan.steps
    )  # fmt: skip
    if plan.sums_persons:
        facts += (plan.clip_persons,)
    return hashlib.sha256(repr(facts).encode()).hexdigest()
