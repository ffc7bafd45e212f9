"""Which steps of a training are paid for: one reservation, whose steps are started in blocks before they run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet import _check
from discreet.errors import Exhausted
from discreet.learning.plan import Plan
from discreet.ledger.account import Account
from discreet.ledger.chain import digest
from discreet.ledger.receipt import Receipt, anchor
from discreet.ledger.reservation import Reservation
from discreet.mechanisms.sampling import entropy

# The ledger records started steps in this many blocks. A crash wastes at most one block.
_BLOCKS = 100


@dataclass(frozen=True)
class TrainingOrigin:
    """Under which account a training began, as its file tells. Files of earlier versions may not tell.

    Attributes:
        key: the key of the ledger's reservation; None without an account, unless the caller named the training.
        account: the name of the account; None without one.
        receipt: the ledger's receipt as text; None without an account and before the charge.
    """

    key: str | None = None
    account: str | None = None
    receipt: str | None = None

    def check(self, account: Account | None, key: str | None) -> None:
        """Refuse another key, and an account that does not know the steps of this training. Charges nothing."""
        if key is not None and self.key is not None and key != self.key:
            remedy = "a training continues under its own key; leave key out, or give a new training another file"
            raise _check.fail("key", f"be {self.key!r}, as when the training began", key, remedy)
        kept = None if self.receipt is None else anchor(self.receipt)
        name = self.account if kept is None else kept.account
        if name is None:
            return
        must = f"be {name!r}, under which the training began"
        remedy = "only its ledger knows which steps were taken, and another one would let them run again"
        if account is None or account.name != name:
            raise _check.fail("account", must, None if account is None else account.name, remedy)
        if kept is None:
            return
        rows = (entry for entry in account.history() if entry.sequence == kept.sequence)
        if not any(digest(entry.body()) == kept.hash for entry in rows):
            raise _check.fail("account", must, "an account of that name in another ledger", remedy)


class Allowance:
    """The steps of one training in the ledger. Only the first process of a team calls its methods.

    Args:
        plan: the plan, which is charged as a whole.
        account: the account to charge; None charges nobody.
        key: the name of the training in the ledger; a random one by default.
        purpose: what the ledger records.
        origin: for a training that is resumed, what its file tells. `TrainingOrigin.check` comes first.
    """

    def __init__(
        self, plan: Plan, account: Account | None, key: str | None, purpose: str, origin: TrainingOrigin | None = None
    ) -> None:
        #: Whether no process can have started steps under this key: there was no training, or it had no key.
        self._new = origin is None or origin.key is None
        if origin is not None:
            key = key if origin.key is None else origin.key
        if account is not None and key is None:
            key = f"training {entropy.fresh_key().hex()[:16]}"
        self.key = key
        self.charged = account is not None
        self._plan, self._account, self._purpose = plan, account, purpose
        #: Correlated noise is one event, whose steps are counted one by one and never handed back.
        self._whole = plan.correlation is not None
        unit = plan.sampler.steps_of_event
        self._block = unit * math.ceil(plan.steps / _BLOCKS / unit)
        self._reservation: Reservation | None = None
        #: The number of steps started in the ledger when this process last looked. Later ones belong to others.
        self._started = 0

    def reserve(self) -> int:
        """Charge the whole plan unless it is charged already; return how many of its steps were started before."""
        if self._account is None:
            return 0
        assert self.key is not None
        self._reservation = self._account.reserve(
            self._plan.event,
            self.key,
            self._purpose,
            self._plan.neighbors,
            steps=self._plan.steps if self._whole else None,
        )
        started = self._reservation.started() * self._plan.sampler.steps_of_event
        if self._new and started > 0:
            raise Exhausted(
                f"key {self.key!r} belongs to a training that has begun: continue from its checkpoint with "
                "resume=True, or give this one another key"
            )
        self._started = started
        return min(started, self._plan.steps)

    def start(self, position: int) -> int:
        """Start blocks of steps in the ledger until step `position` may run; return how many steps may.

        Steps that another process started belong to it, so that each step is paid once and runs once.
        """
        assert self._reservation is not None
        unit = self._plan.sampler.steps_of_event
        while position >= self._started:
            wanted = min(self._block, unit * self._reservation.steps - self._started)
            # Look before starting, so that a second process does not take steps from the first. What decides is the
            # second comparison: the ledger must have added our block to the number we knew.
            alone = self._reservation.started() * unit == self._started
            if not alone or self._reservation.start_block(wanted // unit) * unit != self._started + wanted:
                raise Exhausted(
                    f"key {self.key!r} belongs to a training that another process is running: let one of them run, "
                    "and give the other another key"
                )
            self._started += wanted
        return min(self._started, self._plan.steps)

    def resume(self, before: int, saved: int) -> int:
        """Start all steps that count as taken in the ledger; return how many may run, as `start` does.

        Args:
            before: what `reserve` returned.
            saved: the number of steps that the file counts as taken, perhaps before there was an account.
        """
        return self.start(saved - 1) if self.charged and saved > before else max(before, saved)

    @property
    def origin(self) -> TrainingOrigin:
        """What a file must tell about the account, so that the training is not resumed under another one."""
        receipt = self.receipt
        name = None if self._account is None else self._account.name
        return TrainingOrigin(self.key, name, None if receipt is None else receipt.to_json())

    def close(self) -> None:
        """Return the steps that never started to the account; of an event with correlated noise, nothing."""
        if self._reservation is not None and not self._whole:
            self._reservation.close()

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None if no account is charged."""
        return None if self._reservation is None else self._reservation.receipt


def checked_plan(plan: object) -> Plan:
    """`plan`, if it is one."""
    if not isinstance(plan, Plan):
        remedy = "make one with Plan.for_epsilon(…) or Plan.for_noise(…)"
        raise _check.fail("plan", "be a Plan", type(plan).__name__, remedy)
    return plan


def checked_account(account: object) -> None:
    """Refuse anything but an account or None."""
    if account is not None and not isinstance(account, Account):
        remedy = "open one with dp.Ledger(path).account(name), or give None to charge nobody"
        raise _check.fail("account", "be an account of a ledger", type(account).__name__, remedy)
