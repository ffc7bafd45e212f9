"""Opening the next period of a budget: a fresh account with the same terms, the same parts, and their policies."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from discreet.errors import PolicyRefused
from discreet.ledger.access import book, guard
from discreet.ledger.account import Account
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction

if TYPE_CHECKING:
    from discreet.ledger.access.access import Access


def renew(access: Access, name: str, who: str) -> Account:
    """What `Access.renew` does.

    A part that is frozen, or has a limit of its own, stays so in the next period. Of two stewards who renew at
    once, the second is refused: otherwise one period would have two budgets.
    """
    number, old_name = access.periods(name) + 1, access.current(name)
    ledger, policy = access.ledger, access.policy(old_name)
    old = ledger.account(old_name)
    ends = None if policy.period is None else datetime.fromisoformat(old.history()[0].time) + policy.period
    if ends is None or access.now() < ends:
        why = "its policy names no period" if ends is None else f"its period ends {ends}"
        raise PolicyRefused(f"account {old_name!r} must not be renewed now: {why}")
    terms = old.path[-1]
    renewed = ledger.acting_for(who).account(f"{name} period {number}", terms.promise, aside=float(terms.aside))
    next_of = {old_name: renewed}
    all_terms = (account.path[-1] for account in ledger.accounts())
    for inner in sorted(all_terms, key=lambda each: each.name.count("/")):
        if inner.parent in next_of:
            leaf = inner.name.rpartition("/")[2]
            next_of[inner.name] = next_of[inner.parent].allot(leaf, inner.promise, aside=float(inner.aside))

    def work(transaction: Transaction, time: str) -> None:
        records.held(transaction, old_name)
        stored = book.get(transaction, "renewal", name)
        if (1 if stored is None else int(stored["number"])) != number - 1:
            raise PolicyRefused(f"account {name!r} must not be renewed now: somebody else has just done so")
        for before, after in next_of.items():
            rules = book.get(transaction, "policy", before)  # as they are now: somebody may have changed them meanwhile
            if rules is not None:
                book.put(transaction, time, who, "policy", after.name, rules)
        closed = replace(guard.policy_of(transaction, old_name), frozen=True)
        book.put(transaction, time, who, "policy", old_name, closed.tree())
        book.put(transaction, time, who, "renewal", name, {"current": renewed.name, "number": number})

    ledger.backend.write(work, keyed=True)
    return renewed
