"""What can go wrong, so that a caller can catch exactly as much as it means to.

    DiscreetError
    ├── InvalidArgument (ValueError)      an argument breaks a rule: says rule, name, value and remedy
    │   └── InvalidSensitivity            a mechanism was given a bound that it cannot use
    ├── UnknownEvent (LookupError)        an accountant does not know an event: it names the sub-event
    ├── Exhausted                         a mechanism has given all the answers it was paid for
    ├── EngineFailed                      an engine broke down after the charge; its message may quote rows
    ├── BudgetExceeded                    a spend does not fit: says what was asked, what remains and what would fit
    ├── LedgerError                       a ledger could not do as it was told; nothing was charged unless it says so
    │   ├── TermsDiffer                   an account exists under another budget, unit or relation, or not at all
    │   ├── KeyReused                     a key already stands for another spend
    │   ├── LedgerBusy                    others held the ledger for longer than the timeout
    │   ├── LedgerUnavailable             the ledger cannot be read or written: disk full, read-only, server gone
    │   └── NotALedger                    a foreign, newer, truncated or edited file or database; it is left untouched
    ├── NotACheckpoint                    a file is no checkpoint of this training: foreign, damaged, or of another plan
    └── MissingExtra (ImportError)        a part of Discreet needs a package that is not installed

No message holds a value taken from data: an error is an output too, and a neighbor must not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.events import Event
    from discreet.guarantees import Guarantee


class DiscreetError(Exception):
    """Base of every exception that Discreet raises on purpose."""


class InvalidArgument(DiscreetError, ValueError):
    """An argument breaks a rule.

    The message states the rule, the name, the value and the remedy. It is raised for public facts alone
    (parameters, shapes that are public, declared types), never for what the data holds.
    """


class InvalidSensitivity(InvalidArgument):
    """A mechanism was given a bound it cannot use: another kind, another relation, or none at all."""


class UnknownEvent(DiscreetError, LookupError):
    """An accountant was asked for the price of an event that it has no theorem for; it fails closed."""


class Exhausted(DiscreetError):
    """A mechanism has given all the answers that its event paid for."""


class EngineFailed(DiscreetError):
    """The engine broke down after the charge. The charge stays: a failure that may depend on data is an output.

    Attributes:
        engine_error: the engine's own exception, for the data's owner. It may quote rows: show it to nobody else.
    """

    def __init__(self, engine_error: Exception) -> None:
        super().__init__(
            "the engine failed after the charge, which stays: the data's owner finds its message in .engine_error"
        )
        self.engine_error = engine_error


class BudgetExceeded(DiscreetError):
    """A spend does not fit its budget. Nothing was charged and nothing may be released.

    Attributes:
        account: the name of the account that has no room: the one that was asked, or one above it.
        asked: the event that was asked for.
        price: what it costs in that account's terms.
        remaining: what that account has left.
        fits: the largest amount of the same event that would fit now, or None where no amount does.
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


class LedgerError(DiscreetError):
    """A ledger could not do as it was told. Nothing was charged, unless the message says that this is not known."""


class TermsDiffer(LedgerError):
    """An account exists under another budget, unit of privacy or relation, or does not exist at all."""


class KeyReused(LedgerError):
    """A key already stands for another spend: a retry must ask for the same event."""


class LedgerBusy(LedgerError):
    """Others held the ledger for longer than its timeout. Nothing was charged; try again."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be read or written now: the disk is full, the file is read-only, or the server is gone."""


class NotALedger(LedgerError):
    """This is not a ledger that can be trusted: foreign, from a newer version, truncated or edited. It is untouched."""


class NotACheckpoint(DiscreetError):
    """A file is no checkpoint of this training: foreign, newer, damaged, or of another plan. It is untouched."""


class MissingExtra(DiscreetError, ImportError):
    """A part of Discreet needs a package that is not installed; the message is the command to run."""
