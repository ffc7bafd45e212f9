"""The analyst's calls: which datasets there are, what a question costs, try it, ask it."""

from __future__ import annotations

from typing import Any

from discreet.apps.server.calls import AllowedRequest


def me(call: AllowedRequest) -> Any:
    """Who the token belongs to, what it may do, and what remains."""
    who = call.identity
    return {
        "user": who.user,
        "role": who.role.value,
        "scopes": sorted(who.scopes),
        "token": who.token_id,
        "shares": call.curator.shares(who) if who.may("ask") else [],
    }


def datasets(call: AllowedRequest) -> Any:
    """All datasets with their public facts."""
    return {"datasets": [call.curator.described(each) for each in call.curator.datasets().values()]}


def dataset(call: AllowedRequest) -> Any:
    """One dataset with its public facts."""
    return call.curator.described(call.curator.dataset(call.names["name"]))


def preview(call: AllowedRequest) -> Any:
    """Cost and expected error of a question."""
    return call.curator.preview(call.identity, call.names["name"], call.body, call.work)


def trial(call: AllowedRequest) -> Any:
    """A question about public dummy data."""
    return call.curator.trial(call.identity, call.names["name"], call.body, call.work)


def ask(call: AllowedRequest) -> Any:
    """A question about the data, charged first."""
    return call.curator.ask(call.identity, call.names["name"], call.body, call.key, call.work)
