"""What this process has read of an account's history, so that a statement costs what is new.

History is kept by the hash at which it ends. Every entry holds the hash of the one before, so an account that has the
same hash, or entries that lead from it to the account's own, has the same history. It is kept in memory alone: a fresh
process reads everything, and trusts nothing but the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.chain import NOTHING, Entry, digest
from discreet.ledger.statement import StatementLine, Tight, events_of, tight
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction
from discreet.ledger.stores.records import AccountRow
from discreet.ledger.terms import Terms

# Lines of all accounts of a ledger that are kept, about half a kilobyte each.
_MOST_LINES = 500_000
# Tight figures that are kept for one history, one for each δ that was asked for.
_MOST_FIGURES = 16


@dataclass(frozen=True, eq=False)
class AccountHistory:
    """An account up to one entry.

    Attributes:
        sequence: the number of its last entry; -1 if none was read.
        head: the hash of that entry; "" if the entries read do not form a chain up to it.
        lines: the charges.
        events: what has run or may still run, by the entry that charged it.
    """

    sequence: int = -1
    head: str = NOTHING
    lines: tuple[StatementLine, ...] = ()
    events: dict[int, Event] = field(default_factory=dict)
    _tight: dict[float, Tight] = field(default_factory=dict)

    def tight(self, delta: float, terms: Terms) -> Tight:
        """The ε at `delta` of the events so far, computed once."""
        if delta not in self._tight:
            if len(self._tight) >= _MOST_FIGURES:
                self._tight.clear()
            self._tight[delta] = tight(self.events.values(), delta, terms)
        return self._tight[delta]


def read(transaction: Transaction, row: AccountRow, terms: Terms, kept: AccountHistory | None) -> AccountHistory:
    """The history of an account; `kept` is what was read before."""
    if kept is not None and kept.head:
        if (kept.sequence, kept.head) == (row.sequence, row.head):
            return kept
        if kept.sequence < row.sequence:
            extended = _extended(transaction, row, terms, kept)
            if extended.head:
                return extended
    return _extended(transaction, row, terms, AccountHistory())


def _extended(transaction: Transaction, row: AccountRow, terms: Terms, earlier: AccountHistory) -> AccountHistory:
    """`earlier` and the rows after it; without a hash where they are not a chain up to the account's own."""
    head, sequence = earlier.head, earlier.sequence
    entries: list[Entry] = []
    first = () if earlier.sequence < 0 else (earlier.sequence,)
    for number, _, _, body, stored in records.pages(transaction, row.name, *first):
        entry = Entry.of_body(body)
        entries.append(entry)
        chained = entry.previous == head and number == entry.sequence == sequence + 1 and digest(body) == stored
        head, sequence = stored if chained else "", number
    if (head, sequence) != (row.head, row.sequence):
        head = ""  # an edited ledger: what is stored is shown, and nothing is kept
    return AccountHistory(sequence, head, (*earlier.lines, *_lines(terms, entries)), events_of(entries, earlier.events))


def _lines(terms: Terms, entries: Iterable[Entry]) -> list[StatementLine]:
    """The lines of entries. Equal charges are one object (see `chain`), so their words are made once."""
    words: dict[tuple[int, bool], tuple[Guarantee, float]] = {}
    lines = []
    for entry in entries:
        if entry.event is None:
            continue
        refund = entry.kind == "close"
        shown = words.get((id(entry.change), refund))
        if shown is None:
            cost = tuple(None if amount is None else max(amount, Fraction(0)) for amount in entry.change)
            share = terms.form.share(entry.change, terms.limits, refund=refund)
            shown = words[id(entry.change), refund] = terms.shown(cost), share
        charged, share = shown
        part = "" if entry.part is None else str(entry.part)
        facts = (entry.sequence, entry.time, entry.by, entry.kind, entry.purpose)
        lines.append(StatementLine(*facts, entry.event, charged, share, part, entry.user or ""))
    return lines


class HistoryCache:
    """The histories of one ledger that are kept, the least recently used one dropped first."""

    def __init__(self) -> None:
        self._histories: dict[str, AccountHistory] = {}

    def get(self, account: str) -> AccountHistory | None:
        """The history of an account as far as it was read."""
        return self._histories.get(account)

    def put(self, account: str, history: AccountHistory) -> None:
        """Keep a history that ends with a hash, instead of an earlier one."""
        if not history.head:
            return
        # A new dictionary each time: another thread may be reading the old one.
        kept = {name: cached for name, cached in self._histories.items() if name != account}
        kept[account] = history
        while len(kept) > 1 and sum(len(cached.lines) for cached in kept.values()) > _MOST_LINES:
            kept.pop(next(iter(kept)))
        self._histories = kept
