"""What can go wrong, so that a caller can catch exactly as much as it means to.

    DiscreetError
    ├── InvalidArgument (ValueError)      an argument breaks a rule: says rule, name, value and remedy
    │   └── InvalidSensitivity            a mechanism was given a bound that it cannot use
    ├── UnknownEvent (LookupError)        an accountant does not know an event: it names the sub-event
    ├── Exhausted                         a mechanism has given all the answers it was paid for
    └── MissingExtra (ImportError)        a part of Discreet needs a package that is not installed

No message holds a value taken from data: an error is an output too, and a neighbour must not change it.
"""

from __future__ import annotations


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


class MissingExtra(DiscreetError, ImportError):
    """A part of Discreet needs a package that is not installed; the message is the command to run."""
