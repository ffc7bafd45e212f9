"""A stream that an account pays for once: its state in a secret file, its steps counted in the ledger.

Before step t is released, the state after it is on disk, and then the ledger records that step t counts as taken. So a
process may be killed at any instant:

- before the state is on disk: nothing happened; the step is taken again, with other noise, which nobody has seen;
- before the ledger records it: the state is one step ahead; the step is recorded when the stream is reopened, and
  `last` is its release;
- after that: `last` is the same release again, with the same noise.

A state that is older than the ledger's count was restored from a copy, or continued elsewhere: it is refused, because
its noise has been used. The ledger knows the number of a state and not its content: a copy that is restored right after
a kill between the file and the ledger has the right number, and the state that was killed would be accepted later too.
"""

from __future__ import annotations

import json
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

_VERSION = 1

# A counter for a stream of unknown length has no last step; the ledger counts up to this one.
UNLIMITED_STEPS = 1 << 40


class LedgerStream:
    """A running answer that is paid for and safe to interrupt. Made by `Account.stream`.

    The file holds raw sums and unused noise. It is created with mode 0600, and whoever reads it can undo the privacy of
    the releases: keep it as secret as the data, leave it out of backups that others read, and `erase` it at the end.
    """

    def __init__(self, counter: Counter | Doubling, path: Path, reservation: Reservation) -> None:
        self._counter, self._path, self._reservation = counter, path, reservation
        # Two processes must not continue one state. Without locks the ledger refuses the second one at its first step.
        refusal = f"{path} must not be in use, and another process has this stream open"
        self._lock: IO[bytes] | None = _files.locked(path.with_name(path.name + ".lock"), refusal)
        self._note: Any = None
        try:
            self._state, self._last = self._opened()
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
        return self._state.step

    @property
    def last(self) -> RunningRelease | None:
        """The last release, which a process that was killed may not have shown; None before the first step."""
        return self._last

    @property
    def note(self) -> Any:
        """What was noted with the last step, such as how much of the input it has used; None before the first one."""
        return self._note

    def step(self, query: Bounded, note: Any = None) -> RunningRelease:
        """Take one more step and release the running answer.

        Args:
            query: what arrived in this step, made by a query such as `queries.count`.
            note: what to remember with the state, as JSON: both are on disk, or neither. It is as secret as the state.

        Guarantee: all releases of the stream together have the event on the receipt. When this returns, the state and
        the step's number are on disk; no noise is used for two releases, whatever happens to this process.
        """
        if self._lock is None:
            raise InvalidArgument("the stream must be open: open it again with Account.stream")
        state, release = self._counter.step(self._state, query)
        self._write(state, release, note)
        self._state, self._last, self._note = state, release, note
        try:
            self._count()
        except BaseException:
            self.close()  # whether the step counts is known when the stream is opened again
            raise
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

    def _opened(self) -> tuple[State, RunningRelease | None]:
        """The state to continue with; a state that is older or newer than the ledger's count is refused."""
        counted = self._reservation.started()
        stored = self._read()
        if stored is None:
            if counted:
                raise InvalidArgument(
                    f"the state of this stream must be in {self._path}, and the ledger counts {counted} steps: without "
                    "the state nothing can continue; a new stream takes another key and pays again"
                )
            return self._counter.start(), None
        state, last = stored
        if state.counter != self._counter.start().counter:
            raise InvalidArgument(
                f"the state in {self._path} must belong to this counter: continue with the one it began with"
            )
        if state.step == counted + 1:  # the process ended between the file and the ledger
            self._state = state
            self._count()
        elif state.step != counted:
            older = "older" if state.step < counted else "newer"
            raise NotALedger(
                f"the state in {self._path} is {older} than the ledger: it is after step {state.step}, and the ledger "
                f"counts {counted}; a copy was restored, and continuing it would use noise twice"
            )
        return state, last

    def _count(self) -> None:
        """Record in the ledger that the step of the state is taken."""
        counted = self._reservation.start_block(1)
        if counted != self._state.step:
            raise NotALedger(
                f"step {self._state.step} of this stream was taken elsewhere (the ledger counts {counted}): nothing is "
                "released here"
            )

    @property
    def _identity(self) -> list[Any]:
        receipt = self.receipt
        return [receipt.account, receipt.sequence, receipt.hash]

    def _read(self) -> tuple[State, RunningRelease] | None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            stored = json.loads(content)
            version, receipt, state, last = (stored[name] for name in ("discreet stream", "receipt", "state", "last"))
            value = np.array(last["value"]) if isinstance(last["value"], list) else last["value"]
            release = RunningRelease(**{**last, "value": value})
            body, self._note = state.encode(), stored.get("note")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"{self._path} is not the state of a stream ({type(error).__name__})") from None
        if version != _VERSION or receipt != self._identity:
            raise InvalidArgument(f"{self._path} belongs to another stream: give each stream a file of its own")
        return State.from_bytes(body), release

    def _write(self, state: State, release: RunningRelease, note: Any) -> None:
        value = release.value.tolist() if isinstance(release.value, np.ndarray) else release.value
        content = {
            "discreet stream": _VERSION,
            "receipt": self._identity,
            "state": state.to_bytes().decode(),
            "last": {**vars(release), "value": value},
            "note": note,
        }
        _files.replace_file(self._path, lambda file: file.write(json.dumps(content).encode()))
