"""One call of the interface as a handler sees it, and one line of the table of all calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from discreet.apps.server.curator import Curator
from discreet.apps.server.problems import Problem
from discreet.apps.server.tables import Work
from discreet.ledger.access import Identity, Role


@dataclass(frozen=True)
class AllowedRequest:
    """A request that was authenticated and allowed.

    Attributes:
        curator: what the server does.
        who: who asks; None for calls that anybody may make.
        names: the parts of the address.
        query: what follows the question mark.
        body: the parsed JSON, or None.
        key: the idempotency key, if there is one.
        work: what can be cancelled.
    """

    curator: Curator
    who: Identity | None
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    key: str | None
    work: Work

    @property
    def identity(self) -> Identity:
        """Who asks, for calls that need a token."""
        assert self.who is not None, "the table of calls says that this one needs a token"
        return self.who

    def fields(self, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
        """The body's fields of these kinds; others are refused, and those that are not given are None.

        A name that ends in an underscore must be given.
        """
        body = {} if self.body is None else self.body
        if not isinstance(body, dict):
            raise Problem(400, "invalid", "the body must be a JSON object: see /openapi.json")
        accepted = {name.rstrip("_"): (kind, name.endswith("_")) for name, kind in kinds.items()}
        for name in body:
            if name not in accepted:
                raise Problem(400, "invalid", f"{name[:50]!r} is unknown here: the body may have {', '.join(accepted)}")
        for name, (kind, required) in accepted.items():
            value = body.get(name)
            if value is None and required:
                raise Problem(400, "invalid", f"{name} must be given: see /openapi.json")
            flagged = isinstance(value, bool) and kind is not bool
            if value is not None and (flagged or not isinstance(value, kind)):
                raise Problem(400, "invalid", f"{name} has the wrong type, {type(value).__name__}: see /openapi.json")
        return {name: body.get(name) for name in accepted}


@dataclass(frozen=True)
class Lines:
    """An answer of many lines that is sent as it is made."""

    lines: Iterator[str] | AsyncIterator[str]
    media_type: str = "application/x-ndjson"


@dataclass(frozen=True)
class Page:
    """An answer that is not JSON."""

    content: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


RequestHandler = Callable[[AllowedRequest], Any]


@dataclass(frozen=True)
class Route:
    """One call: its address, who may make it, and what it does.

    Attributes:
        method: GET, POST or DELETE.
        path: the address, with names in braces.
        scope: what a token must be good for; None for anybody, without a token.
        handler: what it does, in a thread.
        summary: one line about it.
        slow: whether it runs in the threads of questions, with their time limit, and leaves at the next step.
        body: the JSON schema of its body, None if it has none.
        status: the status of a successful answer.
    """

    method: str
    path: str
    scope: str | None
    handler: RequestHandler
    summary: str
    slow: bool = False
    body: Mapping[str, Any] | None = None
    status: int = 200

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that have the scope; none where no token is needed."""
        return frozenset(role for role in Role if self.scope in role.scopes)
