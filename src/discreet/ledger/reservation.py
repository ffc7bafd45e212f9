"""A plan that was charged as a whole: its steps are counted as they start, and those that never did can be returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet import _check
from discreet.events import Event, Repeated
from discreet.ledger import charging, records
from discreet.ledger.receipt import Receipt
from discreet.ledger.store import Transaction
from discreet.ledger.terms import Terms

if TYPE_CHECKING:
    from discreet.ledger.ledger import Ledger


class Reservation:
    """A declared plan, paid for in advance. Made by `Account.reserve`."""

    def __init__(self, ledger: Ledger, path: tuple[Terms, ...], sequence: int, steps: int, receipt: Receipt) -> None:
        self._ledger = ledger
        self._path = path
        self._sequence = sequence
        self._steps = steps
        self._receipt = receipt

    @property
    def steps(self) -> int:
        """How many steps were reserved."""
        return self._steps

    @property
    def receipt(self) -> Receipt:
        """The receipt of the charge for all steps."""
        return self._receipt

    @property
    def step(self) -> Event:
        """One step of the plan."""
        event = self._receipt.event
        return event.event if isinstance(event, Repeated) else event

    def started(self) -> int:
        """How many steps were started so far, by anyone who holds this reservation."""

        def work(transaction: Transaction) -> int:
            latest = records.latest_of(transaction, self._path[-1].name, self._sequence)
            return 0 if latest is None else latest[0].steps or 0

        return self._ledger._store.read(work)

    def start_block(self, steps: int = 1) -> int:
        """Record, durably, that `steps` more steps are about to run; call it before they do. Returns the total.

        Raises:
            Exhausted: fewer steps are left, or the reservation is closed.

        Guarantee:
            A step counts as run from here on, whether it runs or not: a crash after this call wastes the block and
            leaks nothing. A step that is run without it is not covered.
        """
        wanted = _check.integer("steps", steps, "it is how many steps run before the next block is started")
        ledger, terms = self._ledger, self._path[-1]
        time = ledger._write_time()
        total = ledger._store.write(
            lambda transaction: charging.start(transaction, terms, self._sequence, wanted, time, ledger._on_step)
        )
        ledger._on_step("returning")
        return total

    def close(self) -> Receipt:
        """End the plan and hand back the steps that were never started; calling it again changes nothing.

        Guarantee:
            The price of the reservation is replaced by the price of the steps that were started, by an entry of its
            own. When to stop may depend on what was already released. That the totals stay valid bounds is proved in
            docs/decisions/0003-ledger-storage.md. Where a form of budget does not price steps one by one, nothing is
            handed back.
        """
        ledger, path = self._ledger, self._path
        time = ledger._write_time()
        receipt = ledger._store.write(
            lambda transaction: charging.close(transaction, path, self._sequence, self.step, time, ledger._on_step),
            keyed=True,
        )
        ledger._on_step("returning")
        return receipt

    def __repr__(self) -> str:
        return f"Reservation({self._path[-1].name!r} #{self._sequence}, {self._steps} steps of {self.step!r})"
