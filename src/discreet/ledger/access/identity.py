"""Who someone is and what they may do: three roles, and scopes that a token can only narrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from discreet import _check
from discreet.errors import AccessDenied


class Role(Enum):
    """What a user is here for. A role is a fixed set of scopes."""

    STEWARD = "steward"
    ANALYST = "analyst"
    AUDITOR = "auditor"

    @property
    def scopes(self) -> frozenset[str]:
        """What this role may do."""
        return _SCOPES[self]


# A steward does not ask and an analyst does not manage: one person who does both has two users, and the record says in
# which capacity they acted. An auditor sees the ledger and no data, so not even a preview. "datasets" shows names and
# schemas, "audit" reads, verifies and exports the whole ledger, "manage" changes users, tokens, accounts and policies.
_SCOPES = {
    Role.STEWARD: frozenset({"datasets", "preview", "audit", "manage", "approve"}),
    Role.ANALYST: frozenset({"datasets", "preview", "ask", "train"}),
    Role.AUDITOR: frozenset({"datasets", "audit"}),
}


@dataclass(frozen=True)
class User:
    """Someone whom the steward knows."""

    name: str
    role: Role
    disabled: bool = False

    def body(self) -> dict[str, Any]:
        """What is stored of a user, beside the name."""
        return {"disabled": self.disabled, "role": self.role.value}

    @classmethod
    def of_body(cls, name: str, body: dict[str, Any]) -> User:
        """The user of what is stored."""
        return cls(name, Role(body["role"]), body["disabled"])


@dataclass(frozen=True)
class Identity:
    """Who sent a request, as a token or a sign-in proved it.

    Attributes:
        user: the user's name.
        role: the user's role.
        scopes: what this token may do; never more than the role.
        token_id: the public part of the token; "oidc:" and the user's name for a sign-in by an identity provider.
        share: the account that the token may spend from, or None for the user's own part of each account.
    """

    user: str
    role: Role
    scopes: frozenset[str]
    token_id: str
    share: str | None = None

    def may(self, scope: str) -> bool:
        """Whether this identity has a scope."""
        return scope in self.scopes

    def require(self, scope: str) -> None:
        """Raise `AccessDenied` unless this identity has a scope."""
        if scope not in self.scopes:
            raise AccessDenied(f"{self.user} has no scope {scope!r}")


def checked_scopes(role: Role, scopes: Iterable[str] | None) -> frozenset[str]:
    """The scopes of a new token: all of the role's, or those named, which must be among them."""
    if scopes is None:
        return role.scopes
    if isinstance(scopes, str):
        raise _check.fail("scopes", "be a list of names", scopes, f"a {role.value} has {_listed(role.scopes)}")
    wanted = frozenset(scopes)
    if not wanted or not wanted <= role.scopes:
        rule = f"be among those of the role: {_listed(role.scopes)}"
        raise _check.fail("scopes", rule, _listed(wanted), "a token never has more than its user's role")
    return wanted


def checked_role(role: object) -> Role:
    """A role, or its name."""
    try:
        return Role(role)
    except ValueError as error:
        names = ", ".join(each.value for each in Role)
        raise _check.fail("role", f"be one of {names}", role, "it decides what the user may do") from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(str, names)))
