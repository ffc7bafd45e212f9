"""A plan that is charged as a whole: its steps are counted as they start, and those that never did are handed back."""

from __future__ import annotations

from discreet import _check
from discreet.events import Event, Repeated
from discreet.ledger import charging
from discreet.ledger.backend import Backend
from discreet.ledger.names import checked_text
from discreet.ledger.receipt import Receipt
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction
from discreet.ledger.terms import Terms
from discreet.mechanisms import observation


class Reservation:
    """A declared plan, paid for in advance. Made by `Account.reserve`."""

    def __init__(
        self,
        backend: Backend,
        path: tuple[Terms, ...],
        sequence: int,
        steps: int,
        receipt: Receipt,
        user: str | None = None,
    ) -> None:
        self._backend = backend
        self._user = user
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
        """How many steps were started so far, by any process that uses this reservation."""
        return self.latest()[0]

    def latest(self) -> tuple[int, str]:
        """How many steps were started so far, and the mark of the last block ("" if it has none)."""

        def work(transaction: Transaction) -> tuple[int, str]:
            records.existing(transaction, self._path[-1].name)  # refuses a ledger that was rolled back
            latest = records.latest_of(transaction, self._path[-1].name, self._sequence)
            return (0, "") if latest is None else (latest[0].steps or 0, latest[0].purpose)

        return self._backend.read(work)

    def start_block(self, steps: int = 1, mark: str = "") -> int:
        """Record, durably, that `steps` more steps are about to run; call it before they do. Returns the total.

        Args:
            steps: how many steps the block has.
            mark: a text that is kept with the block, as its purpose. `latest` gives it back. It is as public as the
                ledger, so it must not depend on data.

        Raises:
            Exhausted: fewer steps are left, or the reservation is closed.

        Guarantee:
            A step counts as run from here on, whether it runs or not: a crash after this call wastes the block and
            leaks nothing. A step that runs without this call is not covered.
        """
        wanted = _check.integer("steps", steps, "it is how many steps run before the next block is started")
        checked_text("mark", mark)
        backend, terms = self._backend, self._path[-1]
        observation.admit(backend.location, self._path[0].name)
        # Not keyed: after a lost answer, a second run would count the same steps twice.
        return backend.write(
            lambda transaction, time: charging.start(
                transaction, terms, self._sequence, wanted, time, backend.on_step, self._user, mark
            )
        )

    def close(self) -> Receipt:
        """End the plan and hand back the steps that were never started; calling it again changes nothing.

        Guarantee:
            An entry of its own replaces the price of the reservation by the price of the steps that were started. When
            to stop may depend on what was already released; docs/decisions/0003-ledger-storage.md proves that the
            totals stay valid bounds. If a form of budget does not price steps one by one, nothing is handed back, and
            nothing of an event that has one price for many steps.
        """
        if self._steps > 1 and not isinstance(self._receipt.event, Repeated):
            return self._receipt
        backend, path = self._backend, self._path
        # Keyed: a second run finds the reservation closed and returns the same receipt.
        return backend.write(
            lambda transaction, time: charging.close(
                transaction, path, self._sequence, self.step, time, backend.on_step, self._user
            ),
            keyed=True,
        )

    def __repr__(self) -> str:
        return f"Reservation({self._path[-1].name!r} #{self._sequence}, {self._steps} steps of {self.step!r})"
