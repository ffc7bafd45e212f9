"""Access to a ledger through a server: users with roles, tokens, policies and approvals.

>>> import tempfile, discreet as dp
>>> from datetime import timedelta
>>> folder = tempfile.TemporaryDirectory()
>>> with dp.Ledger(f"{folder.name}/census.ledger") as ledger:
...     census = ledger.account("census", budget=dp.PureDP(1.0))
...     part = census.allot("ada", dp.PureDP(0.25))
...     access = Access(ledger)
...     ada = access.add_user("ada", Role.ANALYST)
...     token = access.issue("ada", timedelta(days=30))
...     identity = access.authenticate(token)
...     receipt = access.account(identity, "census").spend(dp.events.Laplace(8.0), purpose="ages")
...     print(receipt.account, receipt.entry.user, part.remaining())
census/ada ada 0.125-DP, add or remove one row
>>> folder.cleanup()
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from discreet import _check
from discreet.errors import AccessDenied, TermsDiffer
from discreet.ledger import names
from discreet.ledger.access import approvals, book, guard, periods, tokens
from discreet.ledger.access.approvals import Approval
from discreet.ledger.access.book import Change, Refusal
from discreet.ledger.access.identity import Identity, Role, User, checked_role, checked_scopes
from discreet.ledger.access.policy import Policy
from discreet.ledger.access.renewal import promise_words
from discreet.ledger.access.tokens import Token
from discreet.ledger.account import Account
from discreet.ledger.ledger import Ledger
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction

T = TypeVar("T")

#: Who changes something without a token: whoever can open the ledger itself.
OPERATOR = "operator"

_LONGEST_LIFETIME = timedelta(days=3660)
# A share of the budget from which on it counts as used up: what remains below it pays for no useful answer.
_USED_UP = 0.9999


class Access:
    """Users, tokens, policies and approvals of one ledger, in tables beside its own.

    The tables are created on first use. Every change is recorded with who made it and when, and is never deleted.
    Arguments named `by` say who makes a change: an `Identity`, which must have the scope for it, or the name of an
    operator who has the ledger itself.

    Args:
        ledger: the ledger whose accounts are shared.

    Guarantee:
        An account from `account` charges only what its identity may spend, checked in the transaction of the charge:
        after `revoke`, `disable_user` or a policy that freezes has returned, no charge that they forbid is committed.
        It does not protect against someone who writes to the ledger's database by other means.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._backend = ledger.backend
        if not self._read(book.exists):
            self._backend.write(lambda transaction, _: book.create(transaction), keyed=True)

    @property
    def ledger(self) -> Ledger:
        """The ledger that this gives access to."""
        return self._ledger

    # --- users

    def add_user(self, name: str, role: Role | str, *, by: Identity | str = OPERATOR) -> User:
        """Add a user. A name belongs to one user forever; `disable_user` does not free it.

        Raises:
            InvalidArgument: the name is taken, or looks like one that is.
        """
        who, user = _actor(by, "manage"), User(names.checked_name(name), checked_role(role))

        def work(transaction: Transaction, time: str) -> User:
            existing = dict(book.every(transaction, "user"))
            if user.name in existing:
                if existing[user.name] == user.body():
                    return user
                raise _check.fail("name", "be a new user's", name, "names are never given to somebody else")
            names.check_new(user.name, existing)
            book.put(transaction, time, who, "user", user.name, user.body())
            return user

        return self._backend.write(work, keyed=True)

    def users(self) -> tuple[User, ...]:
        """All users, by name."""
        rows = self._read(lambda transaction: book.every(transaction, "user"))
        return tuple(User.of_body(name, body) for name, body in rows)

    def disable_user(self, name: str, *, by: Identity | str = OPERATOR) -> None:
        """Refuse a user and all of their tokens from now on."""
        who = _actor(by, "manage")

        def work(transaction: Transaction, time: str) -> None:
            body = book.get(transaction, "user", name)
            if body is None:
                raise _check.fail("name", "be a user's", name, "Access.users() lists them")
            book.put(transaction, time, who, "user", name, {**body, "disabled": True})

        self._backend.write(work, keyed=True)

    # --- tokens

    def issue(
        self,
        user: str,
        lifetime: timedelta,
        scopes: Iterable[str] | None = None,
        share: str | None = None,
        *,
        by: Identity | str = OPERATOR,
    ) -> str:
        """Issue a token. Its text is returned here and never again: only its SHA-256 is stored.

        Args:
            user: whose token it is.
            lifetime: how long it is valid.
            scopes: what it may do, at most what the user's role may; None for all of that.
            share: the name of the account that it may spend from, such as "census/ada"; None for the user's own part
                of each account.
            by: who issues it.
        """
        who = _actor(by, "manage")
        if not isinstance(lifetime, timedelta) or not timedelta(0) < lifetime <= _LONGEST_LIFETIME:
            raise _check.fail("lifetime", "be a timedelta above 0 and of at most ten years", lifetime, "tokens expire")
        if share is not None:
            self._ledger.account(share)  # raises if there is no such account
        text, token_id, digest = tokens.fresh()

        def work(transaction: Transaction, time: str) -> None:
            body = book.get(transaction, "user", user)
            if body is None or body["disabled"]:
                raise _check.fail("user", "be a user who is not disabled", user, "Access.add_user adds one")
            issued = datetime.fromisoformat(time)
            granted = checked_scopes(Role(body["role"]), scopes)
            token = Token(token_id, user, granted, share, issued, issued + lifetime)
            book.put(transaction, time, who, "token", token_id, token.body(digest))

        self._backend.write(work, keyed=True)
        return text

    def authenticate(self, token: str) -> Identity:
        """Whose token this is.

        Raises:
            AccessDenied: it is not valid, for whatever reason; the message does not say which. `reason` does, for the
                steward's log.
        """
        split = tokens.parts(token)
        token_id, secret = ("", "") if split is None else split

        def work(transaction: Transaction) -> Identity:
            body = book.get(transaction, "token", token_id)
            if not tokens.matches(secret, None if body is None else body["digest"]) or body is None:
                raise AccessDenied("not a token" if split is None else f"no token {token_id}, or another secret")
            return self._identity(transaction, token_id, body)

        return self._read(work)

    def still_valid(self, token_id: str) -> Identity:
        """The identity of a token that was authenticated before, by its public id, for a session of a server.

        Raises:
            AccessDenied: it is not valid anymore.
        """

        def work(transaction: Transaction) -> Identity:
            body = book.get(transaction, "token", token_id)
            if body is None:
                raise AccessDenied(f"no token {token_id}")
            return self._identity(transaction, token_id, body)

        return self._read(work)

    def _identity(self, transaction: Transaction, token_id: str, body: dict[str, Any]) -> Identity:
        user = book.get(transaction, "user", body["user"])
        if user is None or user["disabled"]:
            raise AccessDenied(f"user {body['user']} is disabled")
        if body["revoked"]:
            raise AccessDenied(f"token {token_id} of {body['user']} is revoked")
        if self.now() >= datetime.fromisoformat(body["expires"]):
            raise AccessDenied(f"token {token_id} of {body['user']} is expired")
        role = Role(user["role"])
        return Identity(body["user"], role, frozenset(body["scopes"]) & role.scopes, token_id, body["share"])

    def identity_of(self, user: str) -> Identity:
        """The identity of a user whom an identity provider vouched for, with all scopes of their role.

        Raises:
            AccessDenied: the steward has added no such user, or has disabled them.
        """
        body = self._state("user", user)
        if body is None or body["disabled"]:
            raise AccessDenied(f"the identity provider names {user!r}, who is no user here or is disabled")
        role = Role(body["role"])
        return Identity(user, role, role.scopes, f"{guard.OIDC}{user}")

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, without their secrets, by the time they were issued."""
        rows = self._read(lambda transaction: book.every(transaction, "token"))
        return tuple(sorted((Token.of_body(name, body) for name, body in rows), key=lambda token: token.issued))

    def revoke(self, token_id: str, *, by: Identity | str = OPERATOR) -> None:
        """Refuse a token from now on. Everyone may revoke their own."""

        def work(transaction: Transaction, time: str) -> None:
            body = book.get(transaction, "token", token_id)
            own = isinstance(by, Identity) and body is not None and body["user"] == by.user
            who = by.user if isinstance(by, Identity) and own else _actor(by, "manage")
            if body is None:
                raise _check.fail("token_id", "be a token's", token_id, "Access.tokens() lists them")
            book.put(transaction, time, who, "token", token_id, {**body, "revoked": True})

        self._backend.write(work, keyed=True)

    # --- spending

    def account(self, identity: Identity, name: str, *, scope: str = "ask", approval: str | None = None) -> Account:
        """The account that an identity spends from when it asks about account `name`: its share, or its own part.

        Args:
            identity: who asks.
            name: the dataset's account; if it was renewed, the account of the current period is used.
            scope: what the charge is for, "ask" or "train".
            approval: the id of an approval for this charge, if it needs one.

        Raises:
            AccessDenied: the identity has no such scope, or no part of this account.

        Guarantee:
            Every charge is checked against the token, the user and the policies of all accounts on the path, in the
            charge's own transaction, and names the user. The caps of parts hold like every budget of the ledger.
        """
        identity.require(scope)
        current = self.current(name)
        spends = f"{current}/{identity.user}" if identity.share is None else identity.share
        if spends != current and not spends.startswith(f"{current}/"):
            raise AccessDenied(f"the share {spends!r} of {identity.user} is not a part of account {current!r}")
        try:
            account = self._ledger.account(spends)
        except TermsDiffer:
            raise AccessDenied(f"{identity.user} has no part of account {current!r}") from None
        levels = spends.split("/")
        above = ["/".join(levels[: depth + 1]) for depth in range(len(levels))]
        limited = any(policy.limits_cost for policy in map(self.policy, above))
        return account.acting_for(identity.user, guard.UserGuard(identity, scope, approval, limited))

    # --- policies

    def policy(self, account: str) -> Policy:
        """The policy of an account. Without one, everything is allowed that the budget allows."""
        return self._read(lambda transaction: guard.policy_of(transaction, account))

    def has_policy(self, account: str) -> bool:
        """Whether somebody has set a policy for an account."""
        return self._state("policy", account) is not None

    def set_policy(self, account: str, policy: Policy, *, by: Identity | str = OPERATOR) -> None:
        """Change the policy of an account, for it and for all of its parts, from the next charge on."""
        given: object = policy
        if not isinstance(given, Policy):
            raise _check.fail("policy", "be a Policy", type(given).__name__, "see discreet.ledger.access.Policy")
        self.change_policy(account, lambda _: policy, by=by)

    def change_policy(
        self, account: str, change: Callable[[Policy], Policy], *, by: Identity | str = OPERATOR
    ) -> Policy:
        """Replace the policy by what `change` makes of it, in one transaction: two changes at once both hold."""
        who = _actor(by, "manage")
        self._ledger.account(account)  # raises if there is no such account

        def work(transaction: Transaction, time: str) -> Policy:
            records.held(transaction, account)  # waits for the charges in flight
            after = change(guard.policy_of(transaction, account))
            book.put(transaction, time, who, "policy", account, after.tree())
            return after

        return self._backend.write(work, keyed=True)

    def due_alerts(self, account: str) -> tuple[float, ...]:
        """The shares of the budget that were crossed since this was last asked, of those that the policy names."""
        used = self._ledger.account(account).summary().used
        crossed = [share for share in self.policy(account).alerts if used >= min(share, _USED_UP)]

        def work(transaction: Transaction, time: str) -> tuple[float, ...]:
            told = book.get(transaction, "alert", account) or {"shares": []}
            due = [share for share in crossed if share.hex() not in told["shares"]]
            if due:
                shares = sorted({*told["shares"], *(share.hex() for share in due)})
                book.put(transaction, time, OPERATOR, "alert", account, {"shares": shares})
            return tuple(due)

        told = self._state("alert", account)
        if all(share.hex() in (told or {"shares": []})["shares"] for share in crossed):
            return ()
        return self._backend.write(work)  # not keyed: an alert that may be lost must not count as told twice

    # --- renewal

    def current(self, name: str) -> str:
        """The account of the current period: `name` itself until it is renewed."""
        renewed = self._state("renewal", name)
        return name if renewed is None else str(renewed["current"])

    def renew(self, name: str, *, by: Identity | str = OPERATOR) -> Account:
        """Open the next period's account with the same budget, parts and policies; the old one takes no more charges.

        Returns the new account. `promise` says in words what people are promised over all periods.

        Raises:
            PolicyRefused: the policy names no period, or the current one is not over.
        """
        return periods.renew(self, name, _actor(by, "manage"))

    def periods(self, name: str) -> int:
        """How many periods an account has had, counting the current one."""
        renewed = self._state("renewal", name)
        return 1 if renewed is None else int(renewed["number"])

    def promise(self, name: str) -> str:
        """What someone is promised whose data was in all periods so far, in words."""
        return promise_words(self._ledger.account(self.current(name)).budget, self.periods(name))

    # --- approvals

    def request_approval(self, identity: Identity, account: str, what: str, cost: float) -> str:
        """Ask a steward to approve one question; return the id of the request.

        Args:
            identity: who asks.
            account: the account that would be charged, such as `access.account(identity, "census").name`.
            what: the question in words that say all of it. The charge must have the same text as its purpose.
            cost: the ε of the question; the charge may cost at most that.
        """
        if not identity.may("ask") and not identity.may("train"):
            raise AccessDenied(f"{identity.user} has neither scope 'ask' nor 'train'")
        what = names.checked_text("what", what)
        epsilon = float(_check.positive("cost", cost, "it is the ε of the question"))
        request = secrets.token_hex(8)

        def work(transaction: Transaction, time: str) -> str:
            asked = Approval(request, identity.user, account, what, epsilon, approvals.PENDING, time, "")
            book.put(transaction, time, identity.user, "approval", request, approvals.body(asked))
            return request

        return self._backend.write(work, keyed=True)

    def approvals(self) -> tuple[Approval, ...]:
        """All questions that needed an approval, in the order in which they were asked."""
        rows = self._read(lambda transaction: book.every(transaction, "approval"))
        asked = [approvals.of_body(name, body) for name, body in rows]
        return tuple(sorted(asked, key=lambda approval: (approval.asked, approval.id)))

    def approve(self, approval: str, by: Identity | str) -> Approval:
        """Allow one charge for this question. Nobody can approve their own."""
        return self._decide(approval, by, approvals.APPROVED)

    def reject(self, approval: str, by: Identity | str) -> Approval:
        """Refuse this question."""
        return self._decide(approval, by, approvals.REJECTED)

    # --- the record

    def record_dataset(self, name: str, facts: Mapping[str, str | None], *, by: Identity | str = OPERATOR) -> None:
        """Record what a server says about a dataset from now on, such as which account pays for its answers."""
        who, body = _actor(by, "manage"), dict(facts)
        self._backend.write(
            lambda transaction, time: book.put(transaction, time, who, "dataset", name, body), keyed=True
        )

    def refused(self, identity: Identity | None, action: str, reason: str) -> None:
        """Log an attempt that was refused, beside the chain."""
        user, token = ("", "") if identity is None else (identity.user, identity.token_id)
        self._backend.write(
            lambda transaction, time: book.refuse(transaction, time, user, token, action, reason), keyed=True
        )

    def refusals(self, most: int = 1000) -> tuple[Refusal, ...]:
        """The newest refused attempts, newest first."""
        return self._read(lambda transaction: tuple(book.refusals(transaction, most)))

    def changes(self) -> tuple[Change, ...]:
        """All changes of users, tokens, policies and approvals, oldest first."""
        return self._read(lambda transaction: tuple(book.changes(transaction)))

    def disagreement(self) -> str:
        """The first place where the record of changes does not lead to what holds now; "" if all agrees."""
        return self._read(book.disagreement)

    def now(self) -> datetime:
        """The time by the ledger's clock."""
        return datetime.fromisoformat(self._backend.timestamp())

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._backend.read(work)

    def _state(self, kind: str, name: str) -> dict[str, Any] | None:
        return self._read(lambda transaction: book.get(transaction, kind, name))

    def _decide(self, approval: str, by: Identity | str, state: str) -> Approval:
        who = _actor(by, "approve")
        return self._backend.write(
            lambda transaction, time: approvals.decide(transaction, time, who, approval, state), keyed=True
        )


def access_disagreement(ledger: Ledger) -> str:
    """The same for a ledger that may have no such tables, which are not created; see `Access.disagreement`."""
    return ledger.backend.read(lambda transaction: book.disagreement(transaction) if book.exists(transaction) else "")


def _actor(by: Identity | str, scope: str) -> str:
    """Who makes a change; an identity must have the scope for it."""
    if isinstance(by, Identity):
        by.require(scope)
        return by.user
    return names.checked_name(by)
