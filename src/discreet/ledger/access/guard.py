"""What every charge of an authenticated user is checked for, in the same transaction as the charge itself.

A steward who freezes an account, changes a policy or revokes a token waits for the charges in flight. When that
returns, no later charge gets through: the charge reads the same rows, and they stay locked until it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from discreet.errors import AccessDenied
from discreet.ledger.access import approvals, book
from discreet.ledger.access.identity import Identity, Role
from discreet.ledger.access.policy import Policy, cost_of
from discreet.ledger.charging import Request
from discreet.ledger.stores.base import Transaction
from discreet.ledger.terms import Terms


class UserGuard:
    """The conditions of one identity's charges. Made by `Access.account`."""

    def __init__(self, identity: Identity, scope: str, approval: str | None, limited: bool) -> None:
        """`limited`: whether a policy with a limit was seen, so that the cost is worth computing before the lock."""
        self._identity = identity
        self._scope = scope
        self._approval = approval
        self._limited = limited

    def prepare(self, path: Sequence[Terms], request: Request) -> None:
        """Compute what the check needs before anybody waits for the account; it is cached."""
        if self._limited:
            for terms in path:
                cost_of(terms, request.event)

    def __call__(self, transaction: Transaction, path: Sequence[Terms], request: Request, time: str) -> None:
        """Raise unless this identity may make this charge now."""
        moment = datetime.fromisoformat(time)
        check_standing(transaction, self._identity, moment, self._scope, shared=True)
        rules = [(terms.name, policy_of(transaction, terms.name, shared=True)) for terms in path]
        for name, policy in rules:
            policy.check_open(name, moment)
        if not any(policy.limits_cost for _, policy in rules):
            return
        cost = max(cost_of(terms, request.event) for terms in path)
        approval = None
        if self._approval is not None and any(policy.needs_approval(cost) for _, policy in rules):
            mine = path[-1].name
            approval = approvals.check(transaction, self._approval, self._identity.user, mine, request, cost)
        for name, policy in rules:
            policy.check_cost(name, cost, approved=approval is not None)
        if approval is not None:
            approvals.use(transaction, time, approval)


def check_standing(
    transaction: Transaction, identity: Identity, moment: datetime, scope: str, *, shared: bool = False
) -> None:
    """Refuse an identity whose user or token has lost what it had when it was authenticated."""
    identity.require(scope)
    user = book.get(transaction, "user", identity.user, shared=shared)
    if user is None or user["disabled"] or scope not in Role(user["role"]).scopes:
        raise AccessDenied(f"user {identity.user} is disabled, or has another role now")
    if identity.token_id.startswith(OIDC):
        return
    token = book.get(transaction, "token", identity.token_id, shared=shared)
    if token is None or token["revoked"] or moment >= datetime.fromisoformat(token["expires"]):
        raise AccessDenied(f"token {identity.token_id} of {identity.user} is revoked or expired")


#: How the token's id of an identity begins that an identity provider vouched for; the user's name follows.
OIDC = "oidc:"


def policy_of(transaction: Transaction, account: str, *, shared: bool = False) -> Policy:
    """The policy of an account; without one, everything that the budget allows."""
    stored = book.get(transaction, "policy", account, shared=shared)
    return Policy() if stored is None else Policy.of_tree(stored)
