"""A training on disk: what is needed to go on, and nothing that would undo its privacy.

The file holds parameters, optimizer, scheduler, the sampler's position, the number of steps that count as taken and the
ledger's receipt. It does **not** hold the key of the noise, nor that of secret batches: whoever reads the file could
otherwise take the noise away again. A resumed run draws from a fresh key, so noise is never used twice, whatever
happens to the file. All in it but the optimizer's own settings is an output of private steps.

Why a resumed run has the guarantee of its plan: a step counts as taken from the moment it is allowed, which is written
down (in the ledger, or in the file where there is no ledger) before it runs. A run that comes back goes on after the
last step that was allowed, with the parameters of the last checkpoint. So among all its processes, dead or alive, each
of the plan's steps ran at most once, with noise of its own, and what was released is a function of the outputs of at
most `plan.steps` steps of `plan.event`. Steps that were allowed and lost are not run again: rerun with the same noise
they would be a second release wherever a device does not repeat its sums bit by bit, and with other noise they would
always be one. A crash costs training time, never privacy.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from discreet.errors import NotACheckpoint
from discreet.learning.plan import Plan

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a training needs to go on.

    Attributes:
        plan: the fingerprint of the plan.
        key: the name of the ledger's reservation; None where there is no account.
        receipt: the ledger's receipt as text; None where there is no account.
        allowed: how many of the plan's steps count as taken, whether they ran or not.
        step: the position, the number of updates and the clip norm.
        sampler: the sampler's position, and its secret where that is not sensitive.
        model: the model's state.
        optimizer: the optimizer's state.
        scheduler: the scheduler's state; None where there is none.
        random: the state of torch's own generators (dropout); no noise comes from them.
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

    def write(self, path: Path) -> None:
        """Replace the file as a whole, durably: a crash leaves the old one or the new one."""
        content = {"discreet checkpoint": _FORMAT, **vars(self)}
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:  # mkstemp makes it readable by its owner alone
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    @classmethod
    def read(cls, path: Path, plan: Plan) -> Checkpoint:
        """The checkpoint in `path`, which must be one of `plan`. No code in the file is run."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            if content.pop("discreet checkpoint") != _FORMAT:
                raise NotACheckpoint(f"{path} was written by another version")
            found = cls(**content)
        except (NotACheckpoint, FileNotFoundError):
            raise
        except Exception as error:  # whatever a foreign or damaged file makes the reader raise
            raise NotACheckpoint(f"{path} is not a checkpoint, or is damaged: {type(error).__name__}") from error
        if found.plan != fingerprint(plan):
            raise NotACheckpoint(
                f"{path} belongs to another plan: a training goes on under the plan it began with; "
                "give the same arguments, or another path for a new training"
            )
        return found


def fingerprint(plan: Plan) -> str:
    """What two plans share only if they are the same in all that decides the price or the updates."""
    facts = (plan.event, plan.neighbors, plan.sampler, plan.clipping, plan.clip_schedule, plan.steps)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def random_state() -> dict[str, Any]:
    """torch's own generators, which dropout uses."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def restore_random(state: dict[str, Any]) -> None:
    """Go on with the same dropout; on another number of devices, with a fresh one."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # the new name must be on disk as well
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
