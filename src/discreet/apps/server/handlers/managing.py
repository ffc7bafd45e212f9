"""The steward's calls: users, tokens, accounts, shares, policies, approvals and datasets."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.apps.budgets import budget_of
from discreet.apps.server.calls import AllowedRequest
from discreet.apps.server.config import Dataset, checked_item_name, neighbors_of, period_of
from discreet.apps.server.problems import Problem, not_found
from discreet.ledger.access import Policy, Role

_NUMBER = (int, float)


# --- users and tokens


def users(call: AllowedRequest) -> Any:
    """All users."""
    return {
        "users": [
            {"name": user.name, "role": user.role.value, "disabled": user.disabled}
            for user in call.curator.access.users()
        ]
    }


def add_user(call: AllowedRequest) -> Any:
    """Add a user."""
    given = call.fields(name_=str, role_=str)
    user = call.curator.access.add_user(given["name"], _role(given["role"]), by=call.identity)
    return {"name": user.name, "role": user.role.value}


def disable_user(call: AllowedRequest) -> Any:
    """Refuse a user and all of their tokens from now on."""
    call.curator.access.disable_user(call.names["name"], by=call.identity)
    return {"name": call.names["name"], "disabled": True}


def tokens(call: AllowedRequest) -> Any:
    """All tokens, without their secrets."""
    return {
        "tokens": [
            {
                "id": token.id,
                "user": token.user,
                "scopes": sorted(token.scopes),
                "share": token.share,
                "issued": token.issued.isoformat(),
                "expires": token.expires.isoformat(),
                "revoked": token.revoked,
            }
            for token in call.curator.access.tokens()
        ]
    }


def issue(call: AllowedRequest) -> Any:
    """Issue a token; its text is in this answer and nowhere else."""
    given = call.fields(user_=str, days_=_NUMBER, scopes=list, share=str)
    lifetime = dt.timedelta(days=float(_check.positive("days", given["days"], "it is how long the token is valid")))
    text = call.curator.access.issue(given["user"], lifetime, given["scopes"], given["share"], by=call.identity)
    return {"token": text}


def revoke(call: AllowedRequest) -> Any:
    """Refuse a token from now on."""
    call.curator.access.revoke(call.names["id"], by=call.identity)
    return {"id": call.names["id"], "revoked": True}


# --- accounts and policies


def open_account(call: AllowedRequest) -> Any:
    """Open an account, which never changes its terms."""
    given = call.fields(
        name_=str,
        epsilon=_NUMBER,
        delta=_NUMBER,
        rho=_NUMBER,
        mu=_NUMBER,
        aside=_NUMBER,
        unit=str,
        max_rows=int,
        max_groups=int,
        relation=str,
    )
    budget = budget_of(given["epsilon"], given["delta"], given["rho"], given["mu"])
    neighbors = neighbors_of(given["unit"], given["max_rows"], given["max_groups"], given["relation"] or "add/remove")
    ledger = call.curator.ledger.acting_for(call.identity.user)
    account = ledger.account(given["name"], budget, neighbors.unit, neighbors.relation, aside=given["aside"] or 0.0)
    return call.curator.standing(account)


def allot(call: AllowedRequest) -> Any:
    """Give a user a share of an account: a part with a budget of its own that is charged to the account as well."""
    given = call.fields(account_=str, user_=str, epsilon=_NUMBER, delta=_NUMBER, rho=_NUMBER, mu=_NUMBER, aside=_NUMBER)
    budget = budget_of(given["epsilon"], given["delta"], given["rho"], given["mu"])
    ledger = call.curator.ledger.acting_for(call.identity.user)
    account = ledger.account(_current_of(call, given["account"]))
    return call.curator.standing(account.allot(given["user"], budget, aside=given["aside"] or 0.0))


def policy(call: AllowedRequest) -> Any:
    """The policy of an account."""
    account = _current(call)
    return _policy_json(account, call.curator.access.policy(account))


def set_policy(call: AllowedRequest) -> Any:
    """Change some rules of an account; those that are not named stay as they are, and null removes one."""
    account, body = _current(call), call.body
    call.fields(
        max_epsilon_per_question=_NUMBER,
        min_group_size=int,
        approval_above=_NUMBER,
        expires=str,
        frozen=bool,
        period_days=_NUMBER,
        alerts=list,
    )
    changed: dict[str, Any] = dict(body or {})
    if "expires" in changed and changed["expires"] is not None:
        changed["expires"] = _time(changed["expires"])
    if "period_days" in changed:
        days = changed.pop("period_days")
        changed["period"] = None if days is None else period_of(days)
    if "alerts" in changed:
        changed["alerts"] = tuple(changed["alerts"] or ())
    if "frozen" in changed:
        changed["frozen"] = bool(changed["frozen"])
    after = call.curator.access.change_policy(account, lambda rules: replace(rules, **changed), by=call.identity)
    return _policy_json(account, after)


def freeze(call: AllowedRequest) -> Any:
    """Take no more charges to an account and its shares."""
    return _frozen(call, True)


def unfreeze(call: AllowedRequest) -> Any:
    """Take charges to an account again."""
    return _frozen(call, False)


def renew(call: AllowedRequest) -> Any:
    """Open the next period's budget, and say in words what people are promised over all periods."""
    account = call.curator.access.renew(call.names["account"], by=call.identity)
    return {**call.curator.standing(account), "promise": call.curator.access.promise(call.names["account"])}


# --- approvals


def approvals(call: AllowedRequest) -> Any:
    """Questions that needed an approval, with all that is asked: a steward sees all, an analyst her own."""
    mine = None if call.identity.may("approve") else call.identity.user
    listed = [approval for approval in call.curator.access.approvals() if mine in (None, approval.user)]
    return {"approvals": [{**vars(approval), "question": call.curator.question_of(approval)} for approval in listed]}


def approve(call: AllowedRequest) -> Any:
    """Allow one charge for a question."""
    return vars(call.curator.access.approve(_approval(call), call.identity))


def reject(call: AllowedRequest) -> Any:
    """Refuse a question."""
    return vars(call.curator.access.reject(_approval(call), call.identity))


def _approval(call: AllowedRequest) -> str:
    name = call.names["id"]
    if name not in {approval.id for approval in call.curator.access.approvals()}:
        raise not_found("approval", name)
    return name


# --- datasets


def register(call: AllowedRequest) -> Any:
    """Register a dataset: a file below the server's data folder, or a new version of one."""
    given = call.fields(
        name_=str, source_=str, account_=str, bounds=dict, values=dict, person=str, description=str, version=str
    )
    bounds = {column: _pair(column, pair) for column, pair in (given["bounds"] or {}).items()}
    values = {column: tuple(_listed(column, listed)) for column, listed in (given["values"] or {}).items()}
    dataset = Dataset(
        name=checked_item_name("dataset", given["name"]),
        source=str(_inside(call.curator.folder, given["source"])),
        account=given["account"],
        bounds=bounds,
        values=values,
        person=given["person"],
        description=given["description"] or "",
        version=given["version"] or "1",
    )
    call.curator.register(dataset, call.identity)
    return call.curator.described(dataset)


def _inside(folder: Path, source: str) -> Path:
    """A file below the folder of `curator.toml`, and no other: a token must not open every file of the machine."""
    if "\0" in source or "://" in source or any(letter in source for letter in "*?["):
        raise Problem(
            400, "invalid", "source must be the path of one file: databases and patterns go into curator.toml"
        )
    root = folder.resolve()
    path = (root / source).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise Problem(400, "invalid", "source must be a file below the folder of curator.toml: put it there first")
    return path


def _pair(column: str, pair: Any) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise Problem(400, "invalid", f"the bounds of {column[:50]!r} must be [lower, upper]: such as [0, 120]")
    low, high = _check.bounds(tuple(pair), f"bounds of {column}")
    return float(low), float(high)


def _listed(column: str, listed: Any) -> list[Any]:
    if not isinstance(listed, list) or not all(isinstance(value, str | int | float) for value in listed):
        raise Problem(400, "invalid", f"the values of {column[:50]!r} must be a list of texts and numbers")
    return listed


def _frozen(call: AllowedRequest, frozen: bool) -> Any:
    account = _current(call)
    after = call.curator.access.change_policy(account, lambda rules: replace(rules, frozen=frozen), by=call.identity)
    return _policy_json(account, after)


def _current(call: AllowedRequest) -> str:
    """The account that an address means: of one that was renewed, and of its parts, those of the current period.

    Questions are charged there, so a rule for the old one would hold back nobody.
    """
    return _current_of(call, call.names["account"])


def _current_of(call: AllowedRequest, name: str) -> str:
    top, slash, below = name.partition("/")
    return f"{call.curator.access.current(top)}{slash}{below}"


def _policy_json(account: str, policy: Policy) -> dict[str, Any]:
    return {
        "account": account,
        "max_epsilon_per_question": policy.max_epsilon_per_question,
        "min_group_size": policy.min_group_size,
        "approval_above": policy.approval_above,
        "expires": None if policy.expires is None else policy.expires.isoformat(),
        "frozen": policy.frozen,
        "period_days": None if policy.period is None else policy.period / dt.timedelta(days=1),
        "alerts": list(policy.alerts),
    }


def _role(text: str) -> Role:
    if text not in {role.value for role in Role}:
        raise Problem(400, "invalid", f"role must be one of {', '.join(role.value for role in Role)}")
    return Role(text)


def _time(text: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise Problem(400, "invalid", "expires must be a time: such as 2027-01-31T00:00:00+00:00") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
