"""All exceptions, in one tree, so that a caller can catch exactly what it can handle.

    DiscreetError
    ├── InvalidArgument (ValueError)      an argument breaks a rule; states the rule, the name, the value and a remedy
    │   └── InvalidSensitivity            a mechanism cannot use the bound it was given
    ├── UnknownEvent (LookupError)        an accountant has no theorem for an event; names the sub-event
    ├── Exhausted                         a mechanism has given all the answers that were paid for
    ├── EngineFailed                      an engine failed after the charge; its own message may quote rows
    ├── BudgetExceeded                    a spend does not fit; states what was asked, what remains and what would fit
    ├── AccessDenied                      a token is not valid, or its holder may not do this
    ├── PolicyRefused                     a policy of the account forbids it: frozen, expired, or too large
    │   └── ApprovalNeeded                a steward must approve it first
    ├── LedgerError                       a ledger operation failed; nothing was charged unless the message says so
    │   ├── TermsDiffer                   an account has another budget, unit or relation, or does not exist
    │   ├── KeyReused                     a key already belongs to another spend
    │   ├── LedgerBusy                    others held the ledger for longer than the timeout
    │   ├── LedgerUnavailable             the ledger cannot be read or written: disk full, read-only, server gone
    │   └── NotALedger                    a foreign, newer, truncated or edited file or database; left untouched
    ├── NotACheckpoint                    not a checkpoint of this training: foreign, damaged, or of another plan
    └── MissingExtra (ImportError)        a package that this part of Discreet needs is not installed

No message holds a value taken from data: an error is an output too, and must be the same for neighboring datasets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.events import Event
    from discreet.guarantees import Guarantee


class DiscreetError(Exception):
    """The base of every exception that Discreet raises on purpose."""


class InvalidArgument(DiscreetError, ValueError):
    """An argument breaks a rule.

    The message states the rule, the name, the value and the remedy. It is raised only for public facts (parameters,
    public shapes, declared types), never for what the data holds.
    """


class InvalidSensitivity(InvalidArgument):
    """A mechanism cannot use the bound it was given: another kind, another relation, or no bound at all."""


class UnknownEvent(DiscreetError, LookupError):
    """An accountant has no theorem for this event, so it refuses to price it."""


class Exhausted(DiscreetError):
    """A mechanism has given all the answers that its event paid for."""


class EngineFailed(DiscreetError):
    """The engine failed after the charge. The charge stays: a failure that may depend on data is an output.

    Attributes:
        engine_error: the engine's own exception, for the owner of the data only. It may quote rows.
    """

    def __init__(self, engine_error: Exception) -> None:
        super().__init__(
            "the engine failed after the charge, and the charge stays: the owner of the data finds the cause in "
            ".engine_error"
        )
        self.engine_error = engine_error


class BudgetExceeded(DiscreetError):
    """A spend does not fit its budget. Nothing was charged and nothing may be released.

    Attributes:
        account: the account without room: the one that was charged, or one above it.
        asked: the event to charge.
        price: its cost in that account's terms.
        remaining: what that account has left.
        fits: the largest amount of the same event that would fit now, or None if no amount fits.
    """

    def __init__(
        self,
        message: str,
        *,
        account: str = "",
        asked: Event | None = None,
        price: Guarantee | None = None,
        remaining: Guarantee | None = None,
        fits: Event | None = None,
    ) -> None:
        super().__init__(message)
        self.account = account
        self.asked = asked
        self.price = price
        self.remaining = remaining
        self.fits = fits


class AccessDenied(DiscreetError):
    """A token is not valid, or its holder may not do this.

    The message is the same for every reason, because whoever guesses tokens or names must learn nothing from it.

    Attributes:
        reason: the true reason, for the steward's log only.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__("access denied: the token is not valid for this, or not valid anymore; ask the steward")
        self.reason = reason


class PolicyRefused(DiscreetError):
    """A policy of the account forbids this charge. Nothing was charged."""


class ApprovalNeeded(PolicyRefused):
    """A steward must approve this question first. Nothing was charged."""


class LedgerError(DiscreetError):
    """A ledger operation failed. Nothing was charged, unless the message says that this is not known."""


class TermsDiffer(LedgerError):
    """An account exists with another budget, unit of privacy or relation, or does not exist."""


class KeyReused(LedgerError):
    """A key already belongs to another spend. A retry must ask for the same event."""


class LedgerBusy(LedgerError):
    """Others held the ledger for longer than its timeout. Nothing was charged; try again."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be read or written now: the disk is full, the file is read-only, or the server is gone."""


class NotALedger(LedgerError):
    """Not a trustworthy ledger: foreign, from a newer version, truncated or edited. It is left untouched."""


class NotACheckpoint(DiscreetError):
    """Not a checkpoint of this training: foreign, newer, damaged, or of another plan. It is left untouched."""


class MissingExtra(DiscreetError, ImportError):
    """A package that this part of Discreet needs is not installed. The message gives the command to install it."""
