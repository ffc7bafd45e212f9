"""Who spent what: durable budgets that survive restarts, that a team can share, and that are never overspent."""

from discreet.ledger.account import Account
from discreet.ledger.chain import Entry
from discreet.ledger.ledger import Ledger
from discreet.ledger.partitions import Part
from discreet.ledger.receipt import Receipt
from discreet.ledger.reservation import Reservation
from discreet.ledger.statement import Statement, Summary
from discreet.ledger.streaming import LedgerStream
from discreet.ledger.verify import Verification

__all__ = [
    "Account",
    "Entry",
    "Ledger",
    "LedgerStream",
    "Part",
    "Receipt",
    "Reservation",
    "Statement",
    "Summary",
    "Verification",
]
