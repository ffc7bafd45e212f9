"""Which rounds were taken: in the ledger, and in a file from which a server that was killed continues.

A round counts as taken before its first message is sent: in the ledger, or in the file if no account is charged. A
server that resumes continues after the last round that counts as taken, with the arrays of the last release. So among
all processes, dead or alive, each round of the plan ran at most once, with its own sample and its own noise, and the
ledger shows one event. A round that was lost is not taken again: that would be a second release.

The file holds released arrays, the state of the server's optimizer, the clip norm and the number of rounds: outputs of
private rounds. It holds neither a key of the noise nor who was drawn; those end with the process. Only correlated noise
needs more: the noise of the last rounds, and who took part when. Only its owner can read the file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet._files import replace_file
from discreet.errors import Exhausted, NotACheckpoint
from discreet.events import Repeated
from discreet.learning.allowance import TrainingOrigin
from discreet.learning.federated.plan import RoundsPlan
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.ledger.reservation import Reservation
from discreet.mechanisms.sampling import entropy

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Saved:
    """The contents of a checkpoint.

    Attributes:
        taken: how many rounds count as taken.
        arrays: the released arrays; empty before the first release.
        clip_norm: the norm of the next round.
        server: arrays of the server's optimizer, by the names of its attributes.
        secret: what only correlated noise needs to go on: recent noise, and who took part when.
    """

    taken: int = 0
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    clip_norm: float | None = None
    server: dict[str, Any] = field(default_factory=dict)
    secret: dict[str, Any] = field(default_factory=dict)


class RoundsTaken:
    """The rounds of one training in the ledger and in its file.

    Args:
        plan: the plan, which is charged as a whole.
        account: the account to charge; None charges nobody.
        key: the name of the training in the ledger; a random one by default.
        purpose: what the ledger records.
        path: the checkpoint; None keeps none.
        resume: whether to continue if the file exists.
    """

    def __init__(
        self,
        plan: RoundsPlan,
        account: Account | None,
        key: str | None,
        purpose: str,
        path: Path | None,
        resume: bool,
    ) -> None:
        self._plan, self._account, self._purpose, self._path = plan, account, purpose, path
        #: Whether all rounds are one event that is not repeated, as with correlated noise.
        self._whole = not isinstance(plan.event, Repeated)
        self._reservation: Reservation | None = None
        self.saved = Saved()
        origin, self._new = TrainingOrigin(), True
        if path is None and resume:
            raise _check.fail("checkpoint", "be given", None, "resume=True continues from that file")
        if path is not None and path.exists():
            if not resume:
                remedy = "continue with resume=True, or give a new training another path"
                raise _check.fail("checkpoint", "not exist yet", str(path), remedy)
            self.saved, origin = _read(path, plan)
            self._new = origin.key is None
            origin.check(account, key)
        self._key = origin.key or key
        if account is not None and self._key is None:
            self._key = f"federated {entropy.fresh_key().hex()[:16]}"
        self._taken = self.saved.taken

    @property
    def taken(self) -> int:
        """How many rounds count as taken. The next one is one more."""
        return self._taken

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None if nothing was charged."""
        return None if self._reservation is None else self._reservation.receipt

    def charge(self) -> None:
        """Charge the whole plan, once. A training that is found in the ledger is continued, not charged again."""
        if self._reservation is not None or (self._account is None and not self._new):
            return
        if self._new:
            self._write(self.saved)  # stores the key, so that a server that is killed after the charge finds it
        if self._account is None:
            self._new = False
            return
        assert self._key is not None
        plan = self._plan
        steps = plan.rounds if self._whole else None
        reservation = self._account.reserve(plan.event, self._key, self._purpose, plan.neighbors, steps=steps)
        started = reservation.started()
        if self._new and started > 0:
            raise Exhausted(
                f"key {self._key!r} belongs to a training that has begun: continue from its checkpoint with "
                "resume=True, or give this one another key"
            )
        if self._whole and self._taken < started:
            raise NotACheckpoint(
                f"{self._path} is older than the ledger, which counts {started} rounds, and so does not know who took "
                "part in the last ones: continue from the file that the training wrote, or begin a new one"
            )
        # The file may know of more rounds: they ran before there was an account, or were about to start.
        if self._taken > started and reservation.start_block(self._taken - started) != self._taken:
            raise self._shared()
        self._reservation, self._new = reservation, False
        self._taken = max(self._taken, started)
        self._write(self.saved)  # stores the receipt, before a round runs under it

    def start(self, number: int, secret: dict[str, Any] | None = None) -> None:
        """Record, durably, that round `number` is taken; call it before the round's first message.

        Args:
            number: the round.
            secret: what must be on disk before the round, where rounds depend on each other.
        """
        if number != self._taken + 1 or number > self._plan.rounds:
            raise Exhausted(
                f"round {number} must not run: {self._taken} of {self._plan.rounds} rounds are taken, each runs once"
            )
        reservation = self._reservation
        assert self._account is None or reservation is not None, "a round starts after the charge"
        if reservation is not None and reservation.started() != self._taken:
            raise self._shared()
        if reservation is None or self._whole:
            if reservation is None and self._path is not None and _read(self._path, self._plan)[0].taken != self._taken:
                raise Exhausted(
                    f"{self._path} belongs to a training that another process is running: let one of them run"
                )
            # Before the ledger, so that a file that is older than the ledger is known to be a copy.
            self.saved = replace(self.saved, taken=number, secret=self.saved.secret if secret is None else secret)
            self._write(self.saved)
        if reservation is not None and reservation.start_block() != number:
            raise self._shared()
        self._taken = number

    def _shared(self) -> Exhausted:
        return Exhausted(
            f"key {self._key!r} belongs to a training that another process is running: let one of them run, and give "
            "the other another key"
        )

    def save(
        self,
        arrays: dict[str, NDArray[Any]],
        clip_norm: float,
        server: dict[str, Any],
        secret: dict[str, Any] | None = None,
    ) -> None:
        """Keep what the last round released."""
        self.saved = Saved(self._taken, arrays, clip_norm, server, {} if secret is None else secret)
        self._write(self.saved)

    def close(self) -> None:
        """End the training in the ledger: rounds that never started are handed back."""
        if self._reservation is not None:
            self._reservation.close()

    def _write(self, saved: Saved) -> None:
        if self._path is None:
            return
        receipt = self.receipt
        name = None if self._account is None else self._account.name
        pack = _Pack()
        content = {
            "discreet federated checkpoint": _FORMAT,
            "plan": self._plan.fingerprint,
            "origin": [self._key, name, None if receipt is None else receipt.to_json()],
            "taken": saved.taken,
            "clip_norm": saved.clip_norm,
            "arrays": pack.encoded(saved.arrays),
            "server": pack.encoded(saved.server),
            "secret": pack.encoded(saved.secret),
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, content=np.array(json.dumps(content)), **pack.arrays)
        replace_file(self._path, lambda file: file.write(buffer.getbuffer()))


def _read(path: Path, plan: RoundsPlan) -> tuple[Saved, TrainingOrigin]:
    """Read a checkpoint of `plan`. No code in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            content = json.loads(str(file["content"]))
            if content["discreet federated checkpoint"] != _FORMAT:
                raise NotACheckpoint(f"{path} was written by another version")
            find: Callable[[str], NDArray[Any]] = file.__getitem__
            arrays, server = _decoded(content["arrays"], find), _decoded(content["server"], find)
            secret = _decoded(content["secret"], find)
            saved = Saved(content["taken"], arrays, content["clip_norm"], server, secret)
            fingerprint, origin = content["plan"], TrainingOrigin(*content["origin"])
    except NotACheckpoint:
        raise
    except Exception as error:  # a foreign or damaged file can make the reader raise anything
        raise NotACheckpoint(f"{path} is not a checkpoint, or is damaged: {type(error).__name__}") from error
    if fingerprint != plan.fingerprint:
        raise NotACheckpoint(
            f"{path} belongs to another plan: a training continues with the plan it started with; give the same "
            "arguments, or another path for a new training"
        )
    return saved, origin


class _Pack:
    """Nested dicts and lists of arrays as JSON, with the arrays beside it."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    def encoded(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            name = f"a{len(self.arrays)}"
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, dict):
            return {"dict": [[key, self.encoded(each)] for key, each in value.items()]}
        return {"list": [self.encoded(each) for each in value]}


def _decoded(value: Any, find: Callable[[str], NDArray[Any]]) -> Any:
    match value:
        case {"array": str(name)}:
            return find(name)
        case {"dict": list(pairs)}:
            return {str(key): _decoded(each, find) for key, each in pairs}
        case {"list": list(items)}:
            return [_decoded(each, find) for each in items]
    raise ValueError("an unknown kind of value")
