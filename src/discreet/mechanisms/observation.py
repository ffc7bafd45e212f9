"""A door for audits: whatever reaches a mechanism, an engine or a ledger can be watched from outside.

Nothing is watched unless code in the same process asks for it with `watched_by`. A watcher sees unprotected values, so
it belongs in tests and audits on public or generated data. It can also answer in place of a mechanism, so that a second
run on neighboring data receives exactly what the first run released (`discreet.auditing.replay`).

An audit is a release without noise, so data behind an account must stay out of it. Within `on_generated_data`, only
accounts that are opened there can be charged: the account of somebody's real data was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.neighbors import Relation

Returned = TypeVar("Returned")


@dataclass(frozen=True, eq=False)
class Arrival:
    """One value on its way into a mechanism.

    Attributes:
        mechanism: the mechanism, with its scale.
        value: what arrived: a `Bounded`, `Scores`, a list of answers, or (`Lazy`) a dictionary from keys to counts.
        relation: the neighbors that the mechanism protects.
        event: the event that it states.
        limit: the bound, for values that do not carry their own.
        joint: a name that several arrivals share if one unit's effects on all of them together are bounded.
    """

    mechanism: Any
    value: Any
    relation: Relation
    event: Event
    limit: Any = None
    joint: str | None = None


@dataclass(frozen=True, eq=False)
class Lazy:
    """A value that is computed only if somebody watches."""

    compute: Callable[[], Any]


class Watcher(Protocol):
    """Somebody who watches a run."""

    def through(self, arrival: Arrival, draw: Callable[[], Any]) -> Any:
        """Return what the mechanism releases: `draw()`, or what another run released."""

    def secret(self, draw: Callable[[], int]) -> int:
        """Return a secret number that is not noise, such as the key of a hash: `draw()`, or that of another run."""

    def statement(self, text: str) -> None:
        """Note a statement that an engine is about to run."""

    def charge(self, event: Event) -> None:
        """Note a charge."""


class _Audit:
    """The accounts that an audit opened, by ledger and name, and the error that it raised where another was used."""

    def __init__(self) -> None:
        self.accounts: set[tuple[str, str]] = set()
        self.refusal: InvalidArgument | None = None


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
_joint: ContextVar[str | None] = ContextVar("joint", default=None)
_audit: ContextVar[_Audit | None] = ContextVar("audit", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Let `watcher` see what reaches mechanisms, engines and ledgers in this context; None stops the watching."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def jointly(name: str) -> Iterator[None]:
    """Mark arrivals that share one bound: the sum of one unit's effects on them is at most the bound of each."""
    token = _joint.set(name)
    try:
        yield
    finally:
        _joint.reset(token)


def through(
    mechanism: Any, value: Any, relation: Relation, event: Event, draw: Callable[[], Returned], limit: Any = None
) -> Returned:
    """What `mechanism` releases of `value`: `draw()`, unless somebody watches and answers in its place."""
    watcher = _watcher.get()
    if watcher is None:
        return draw()
    arrival = Arrival(mechanism, value, relation, event, limit, _joint.get())

    def unwatched() -> Returned:
        with watched_by(None):  # a mechanism that is made of others arrives once
            return draw()

    released: Returned = watcher.through(arrival, unwatched)
    return released


def secret(draw: Callable[[], int]) -> int:
    """A secret number that is not noise."""
    watcher = _watcher.get()
    return draw() if watcher is None else watcher.secret(draw)


def statement(text: str) -> None:
    """Tell a watcher, if there is one, which statement an engine is about to run."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.statement(text)


def charge(event: Event) -> None:
    """Tell a watcher, if there is one, what is about to be charged."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.charge(event)


@contextmanager
def on_generated_data() -> Iterator[None]:
    """Refuse every charge to an account that was there before; raise at the end if the code inside hid a refusal."""
    if _audit.get() is not None:
        yield
        return
    audit = _Audit()
    token = _audit.set(audit)
    try:
        yield
    finally:
        _audit.reset(token)
    if audit.refusal is not None:
        raise audit.refusal


def opened(ledger: str, account: str) -> None:
    """Note that an account was opened for the first time."""
    audit = _audit.get()
    if audit is not None:
        audit.accounts.add((ledger, account))


def admit(ledger: str, account: str) -> None:
    """Raise if an audit is about to use an account that it did not open."""
    audit = _audit.get()
    if audit is not None and (ledger, account) not in audit.accounts:
        audit.refusal = InvalidArgument(
            f"target must not be behind an account, got one that uses {account!r}: an audit is a release without "
            f"noise; run it on generated data, and open a new account in a temporary ledger inside of the function"
        )
        raise audit.refusal
