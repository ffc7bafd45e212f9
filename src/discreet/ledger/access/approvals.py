"""Questions that wait for a steward: asked, approved or rejected by someone else, and used once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.errors import AccessDenied, ApprovalNeeded, PolicyRefused
from discreet.ledger.access import book
from discreet.ledger.charging import Request
from discreet.ledger.stores.base import Transaction

PENDING, APPROVED, REJECTED, USED = "pending", "approved", "rejected", "used"


@dataclass(frozen=True)
class Approval:
    """A question that needs a steward's approval.

    Attributes:
        id: its name.
        user: who asked.
        account: the account that it would be charged to.
        what: the question in words, which must be the purpose of the charge, word for word.
        cost: the largest ε that the charge may have.
        state: "pending", "approved", "rejected" or "used".
        asked: when it was asked.
        decided_by: who approved or rejected it, or "".
    """

    id: str
    user: str
    account: str
    what: str
    cost: float
    state: str
    asked: str
    decided_by: str


def body(approval: Approval) -> dict[str, Any]:
    """An approval as it is stored."""
    return {
        "account": approval.account,
        "asked": approval.asked,
        "cost": approval.cost.hex(),
        "decided_by": approval.decided_by,
        "state": approval.state,
        "user": approval.user,
        "what": approval.what,
    }


def of_body(name: str, stored: dict[str, Any]) -> Approval:
    """An approval of what is stored."""
    return Approval(
        id=name,
        user=stored["user"],
        account=stored["account"],
        what=stored["what"],
        cost=float.fromhex(stored["cost"]),
        state=stored["state"],
        asked=stored["asked"],
        decided_by=stored["decided_by"],
    )


def find(transaction: Transaction, name: str) -> Approval:
    """The approval of this name."""
    stored = book.get(transaction, "approval", name)
    if stored is None:
        raise AccessDenied(f"there is no approval {name!r}")
    return of_body(name, stored)


def decide(transaction: Transaction, time: str, by: str, name: str, state: str) -> Approval:
    """Approve or reject a pending question; deciding the same again changes nothing."""
    approval = find(transaction, name)
    if approval.user == by:
        raise PolicyRefused("an approval must come from somebody else than the one who asked")
    if approval.state not in {PENDING, state}:
        raise PolicyRefused(f"this question is {approval.state} already: ask again for another decision")
    if approval.state == state:
        return approval
    decided = Approval(
        approval.id, approval.user, approval.account, approval.what, approval.cost, state, approval.asked, by
    )
    book.put(transaction, time, by, "approval", name, body(decided))
    return decided


def check(transaction: Transaction, name: str, user: str, account: str, request: Request, cost: float) -> Approval:
    """The approval that covers this very charge, or why none does."""
    approval = find(transaction, name)
    if (approval.user, approval.account) != (user, account):
        raise AccessDenied(f"approval {name} belongs to {approval.user} and account {approval.account!r}")
    if approval.state == PENDING:
        raise ApprovalNeeded("a steward has not decided about this question yet")
    if approval.state != APPROVED:
        raise PolicyRefused(f"this approval is {approval.state}: one approval allows one charge; ask for another")
    if approval.what != request.purpose or cost > approval.cost:
        raise PolicyRefused(
            f"the question must be the one that was approved, at a cost of at most ε = {approval.cost:g}: ask for "
            "another approval"
        )
    return approval


def use(transaction: Transaction, time: str, approval: Approval) -> None:
    """Record, together with the charge, that an approval was used."""
    used = {**body(approval), "state": USED}
    book.put(transaction, time, approval.user, "approval", approval.id, used)
