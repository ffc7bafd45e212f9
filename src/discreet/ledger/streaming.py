"""A stream that an account pays for once: its state in a secret file, its steps counted in the ledger.

Before step t is released, the state after it is on disk, and then the ledger records that step t counts as taken,
together with the mark of that state: 128 random bits, drawn for each state. So a process may be killed at any instant:

- before the state is on disk: nothing happened; the step is taken again, with other noise, which nobody has seen;
- before the ledger records it: the state is one step ahead; the step is recorded when the stream is reopened, and
  `last` is its release;
- after that: `last` is the same release again, with the same noise.

A state that is older than the ledger's count was restored from a copy, or continued elsewhere: it is refused, because
its noise has been used. Of several states of one step (a copy was restored after a kill, two processes ran without
locks, a process forked) the ledger accepts the first, and refuses all others by their marks. A mark is random and says
nothing about the data, so that anybody may read it in the ledger.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from discreet import _files
from discreet.bounded import Bounded
from discreet.errors import InvalidArgument, NotALedger
from discreet.ledger.receipt import Receipt
from discreet.ledger.reservation import Reservation
from discreet.mechanisms.continual import Counter, Doubling, RunningRelease, State
from discreet.mechanisms.sampling import entropy

_VERSION = 1
_MARK_BYTES = 16

# A counter for a stream of unknown length has no last step; the ledger counts up to this one.
UNLIMITED_STEPS = 1 << 40


class LedgerStream:
    """A running answer that is paid for and safe to interrupt. Made by `Account.stream`.

    The file holds raw sums and unused noise. It is created with mode 0600, and whoever reads it can undo the privacy of
    the releases: keep it as secret as the data, leave it out of backups that others read, and `erase` it at the end.
    """

    def __init__(
        self, counter: Counter | Doubling, path: Path, name: list[str], charge: Callable[[], Reservation]
    ) -> None:
        self._counter, self._path, self._name = counter, path, name
        self._process, self._turn = os.getpid(), threading.Lock()
        # Two processes must not continue one state. Without locks the ledger refuses the second one at its first step.
        refusal = f"{path} must not be in use, and another process has this stream open"
        self._lock: IO[bytes] | None = _locked(path, refusal)
        try:
            # What cannot work is refused before anything is charged.
            stored = _read(path)
            if stored is not None and stored.identity[:2] != name:
                raise InvalidArgument(f"{path} belongs to another stream: give each stream a file of its own")
            self._reservation = charge()
            self._current = self._opened(stored)
        except BaseException:
            self.close()
            raise

    @property
    def counter(self) -> Counter | Doubling:
        """The counter that runs."""
        return self._counter

    @property
    def receipt(self) -> Receipt:
        """The receipt of the one charge for all steps."""
        return self._reservation.receipt

    @property
    def taken(self) -> int:
        """How many steps were taken: continue the stream with what arrived after these."""
        return 0 if self._current is None else self._current.state.step

    @property
    def last(self) -> RunningRelease | None:
        """The last release, which a process that was killed may not have shown; None before the first step."""
        return None if self._current is None else self._current.last

    @property
    def note(self) -> Any:
        """What was noted with the last step, such as how much of the input it has used; None before the first one."""
        return None if self._current is None else self._current.note

    def step(self, query: Bounded, note: Any = None) -> RunningRelease:
        """Take one more step and release the running answer.

        Args:
            query: what arrived in this step, made by a query such as `queries.count`.
            note: what to remember with the state, as JSON: both are on disk, or neither. It is as secret as the state.

        Guarantee: all releases of the stream together have the event on the receipt. When this returns, the state and
        the step's number are on disk; no noise is used for two releases, whatever happens to this process.
        """
        with self._turn:
            if self._lock is None:
                raise InvalidArgument("the stream must be open: open it again with Account.stream")
            if self._process != os.getpid():
                raise InvalidArgument("the stream must be used by the process that opened it, and this one was forked")
            before = self._current
            state = self._counter.start() if before is None else before.state
            state, release = self._counter.step(state, query)
            mark, follows = entropy.SYSTEM.read(_MARK_BYTES).hex(), "" if before is None else before.mark
            current = _Stored(self._identity, state, release, note, mark, follows)
            _files.replace_file(self._path, lambda file: file.write(current.to_bytes()))
            try:
                self._count(current)
            except BaseException:
                self.close()  # whether the step counts is known when the stream is opened again
                raise
            self._current = current
            return release

    def erase(self) -> None:
        """End the stream and delete the file with its secrets. Its price stays paid, and it can't continue."""
        self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let other processes open the stream."""
        if self._lock is not None:
            self._lock.close()  # closing the file gives up the lock
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stream of {self.receipt.account!r}: {self.taken} steps taken, state hidden>"

    def _opened(self, stored: _Stored | None) -> _Stored | None:
        """The state to continue with; a state that the ledger did not record, and can't record next, is refused."""
        counted, mark = self._reservation.latest()
        if stored is None:
            if counted:
                raise InvalidArgument(
                    f"the state of this stream must be in {self._path}, and the ledger counts {counted} steps: without "
                    "the state nothing can continue; a new stream takes another key and pays again"
                )
            return None
        if stored.identity != self._identity:
            raise InvalidArgument(f"{self._path} belongs to a stream of another ledger: give each one its own file")
        if stored.state.counter != self._counter.start().counter:
            raise InvalidArgument(
                f"the state in {self._path} must belong to this counter: continue with the one it began with"
            )
        step = stored.state.step
        if step not in (counted, counted + 1):
            older = "older" if step < counted else "newer"
            raise NotALedger(
                f"the state in {self._path} is {older} than the ledger: it is after step {step}, and the ledger counts "
                f"{counted}; a copy was restored, and continuing it would use noise twice"
            )
        if mark != (stored.mark if step == counted else stored.follows):
            raise NotALedger(
                f"the state in {self._path} is not the one that the ledger counts for step {counted}: this step was "
                "taken again from a copy, or elsewhere, with other noise"
            )
        if step == counted + 1:  # the process ended between the file and the ledger
            self._count(stored)
        return stored

    def _count(self, current: _Stored) -> None:
        """Record in the ledger that the step of a state is taken, with this state."""
        counted = self._reservation.start_block(1, current.mark)
        if counted != current.state.step:
            raise NotALedger(
                f"step {current.state.step} of this stream was taken elsewhere (the ledger counts {counted}): nothing "
                "is released here"
            )

    @property
    def _identity(self) -> list[Any]:
        return [*self._name, self.receipt.sequence, self.receipt.hash]


@dataclass(frozen=True)
class _Stored:
    """What the file holds.

    Attributes:
        identity: the account, the key, and the number and hash of the row that charged the stream.
        state: the state after the last step.
        last: the release of that step.
        note: what the caller noted with it.
        mark: what the ledger records for this state: random, and different for any two states.
        follows: the mark of the state before; "" for the first step.
    """

    identity: list[Any]
    state: State
    last: RunningRelease
    note: Any
    mark: str
    follows: str

    def to_bytes(self) -> bytes:
        value = self.last.value
        content = {
            "discreet stream": _VERSION,
            "identity": self.identity,
            "state": self.state.to_bytes().decode(),
            "last": {**vars(self.last), "value": value.tolist() if isinstance(value, np.ndarray) else value},
            "note": self.note,
            "mark": self.mark,
            "follows": self.follows,
        }
        return json.dumps(content).encode()


def _locked(path: Path, refusal: str) -> IO[bytes]:
    try:
        return _files.locked(path.with_name(path.name + ".lock"), refusal)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidArgument(f"path must be a file that can be written, got {str(path)!r}: {reason}") from None


def _read(path: Path) -> _Stored | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidArgument(f"path must be a file that can be read, got {str(path)!r}: {reason}") from None
    try:
        stored = json.loads(content)
        last, version = stored["last"], stored["discreet stream"]
        value = np.array(last["value"]) if isinstance(last["value"], list) else last["value"]
        release = RunningRelease(**{**last, "value": value})
        body, identity = stored["state"].encode(), list(stored["identity"])
        mark, follows = str(stored["mark"]), str(stored["follows"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{path} is not the state of a stream ({type(error).__name__})") from None
    if version != _VERSION:
        raise InvalidArgument(f"{path} was written by version {version} of its format: start the stream again")
    return _Stored(identity, State.from_bytes(body), release, stored.get("note"), mark, follows)
