"""The secret file of a training with correlated noise: noise that later steps take back, and who is in which group.

It lies beside the checkpoint, under its name with `.noise` at the end, and only its owner can read it (mode 0600).
Whoever has it can remove noise from released gradients, so it is as secret as the data: it is no part of `run.save`,
belongs in no backup that others read, and is erased when the training ends. It holds no key of noise: that of later
steps cannot be computed from it.

It may be older or newer than the checkpoint. Steps that counted as taken and are not in it are skipped, and the proof
covers that (docs/proofs/correlated-noise.md, section 5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from discreet._files import replace_file
from discreet.errors import NotACheckpoint
from discreet.learning.checkpoint import fingerprint
from discreet.learning.noise import Pending
from discreet.learning.noise.correlation import Kept
from discreet.learning.plan import Plan

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class PendingFile:
    """The content of the secret file.

    Attributes:
        plan: the fingerprint of the plan.
        run: the name of the training, which its checkpoint holds too.
        at: the number of steps that the noise is about.
        kept: the noise, by what `Correlation` calls it.
        sampling: the key of the sampler, if batches depend on who is in which group; else None.
    """

    plan: str
    run: str
    at: int
    kept: Kept
    sampling: bytes | None

    @classmethod
    def of(cls, plan: Plan, run: str, pending: Pending, sampling: bytes | None) -> PendingFile:
        """What is to be written now."""
        return cls(fingerprint(plan), run, pending.at, pending.state(), sampling)

    def write(self, path: Path) -> None:
        """Replace the file atomically and durably; only its owner can read it."""
        content = {"discreet pending noise": _FORMAT, **vars(self)}
        replace_file(path, lambda file: torch.save(content, file))

    @classmethod
    def read(cls, path: Path, plan: Plan, run: str | None) -> PendingFile:
        """Read the file of a training. No code in it is executed."""
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if content.pop("discreet pending noise") != _FORMAT:
                raise ValueError
            stored = cls(**content)
        except FileNotFoundError:
            raise NotACheckpoint(
                f"{path} must lie beside the checkpoint: it holds the noise that later steps take back; without it, "
                "begin a new training"
            ) from None
        except Exception as error:  # a foreign or damaged file can make the reader raise anything
            raise NotACheckpoint(f"{path} is not a file of pending noise, or is damaged") from error
        if stored.plan != fingerprint(plan) or stored.run != run:
            raise NotACheckpoint(
                f"{path} belongs to another training: noise may be taken back only where it was added; use the file "
                "that was written beside the checkpoint"
            )
        return stored

    def __repr__(self) -> str:
        return f"<pending noise after step {self.at}: content hidden>"


def beside(path: Path) -> Path:
    """The path of the secret file for a checkpoint or a record."""
    return path.with_name(f"{path.name}.noise")


def erase(path: Path) -> None:
    """Overwrite the secret file and delete it, if it exists. (A disk may keep a copy of what was overwritten.)"""
    try:
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
