"""The one table of all calls: which scope, and so which roles, each of them needs. A test compares it with the app.

A call that is not listed here does not exist: the application is made of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discreet.apps.server.calls import AllowedRequest, Page, Route
from discreet.apps.server.handlers import asking, auditing, managing, training
from discreet.apps.server.openapi import described, page

_TEXT, _NUMBER, _WHOLE, _FLAG = ({"type": kind} for kind in ("string", "number", "integer", "boolean"))
_LIST, _OBJECT = {"type": "array"}, {"type": "object"}


def _body(*required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


_QUESTION = _body(
    sql={**_TEXT, "description": "a SELECT of aggregates, under the dataset's name"},
    keys={"description": "with sql: the public keys of GROUP BY, by column"},
    calls={**_LIST, "description": 'instead of sql: [["where", […]], ["group_by", […], {…}], ["count"]]'},
    epsilon={**_NUMBER, "description": "what the answer may cost"},
    delta=_NUMBER,
    rho={**_NUMBER, "description": "instead of epsilon: ρ of zCDP"},
    noise={**_TEXT, "enum": ["auto", "laplace", "gaussian"]},
    nonnegative=_FLAG,
    integer=_FLAG,
    total={"description": "true, or the share of ε for the total over all groups"},
    purpose={**_TEXT, "description": "what the ledger records; by default the question"},
    error_target={"description": "with preview, instead of epsilon: the errors to accept"},
    rows={**_WHOLE, "description": "with preview: a guess of the rows in a group"},
)
_BUDGET = {"epsilon": _NUMBER, "delta": _NUMBER, "rho": _NUMBER, "mu": _NUMBER, "aside": _NUMBER}


def health(call: AllowedRequest) -> Any:
    """Whether the server runs. It says nothing else."""
    return {"ok": True}


def openapi(call: AllowedRequest) -> Any:
    """The description of all calls for programs."""
    return described(ROUTES)


def reference(call: AllowedRequest) -> Page:
    """The description of all calls for people."""
    return Page(page(ROUTES).encode(), "text/html; charset=utf-8")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/health", None, health, "Whether the server runs"),
    Route("GET", "/openapi.json", None, openapi, "This description, for programs"),
    Route("GET", "/reference", None, reference, "This description, for people"),
    # everybody with a token
    Route("GET", "/v1/me", "datasets", asking.me, "Whose token this is, what it may do, and what remains"),
    Route("GET", "/v1/datasets", "datasets", asking.datasets, "All datasets: columns, types, bounds, budget"),
    Route("GET", "/v1/datasets/{name}", "datasets", asking.dataset, "One dataset"),
    # analysts (and previews for stewards)
    Route(
        "POST", "/v1/datasets/{name}/preview", "preview", asking.preview, "What a question costs, and its error",
        slow=True, body=_QUESTION,
    ),
    Route(
        "POST", "/v1/datasets/{name}/try", "preview", asking.trial, "The question on public dummy data, for free",
        slow=True, body=_QUESTION,
    ),
    Route(
        "POST", "/v1/datasets/{name}/ask", "ask", asking.ask, "The question on the data, charged before it runs",
        slow=True, body=_QUESTION,
    ),
    Route("GET", "/v1/my/approvals", "ask", managing.approvals, "My questions that needed an approval"),
    Route("GET", "/v1/models", "train", training.models, "The models that may be trained"),
    Route(
        "POST", "/v1/models/{name}/preview", "train", training.preview, "What a training costs",
        slow=True, body=_body(plan=_OBJECT),
    ),
    Route(
        "POST", "/v1/jobs", "train", training.queue, "Queue a training, charged as a whole before its first step",
        slow=True, body=_body("model", model=_TEXT, plan=_OBJECT), status=202,
    ),
    Route("GET", "/v1/jobs", "train", training.listed, "My trainings"),
    Route("GET", "/v1/jobs/{id}", "train", training.job, "One training"),
    Route("GET", "/v1/jobs/{id}/progress", "train", training.progress, "Its progress, as JSON lines until it ends"),
    Route("GET", "/v1/jobs/{id}/model", "train", training.model, "The trained model"),
    # auditors and stewards
    Route("GET", "/v1/accounts", "audit", auditing.accounts, "All accounts and how they stand"),
    Route(
        "GET", "/v1/accounts/{account:path}/statement", "audit", auditing.statement, "Who spent what from an account",
        slow=True,
    ),
    Route("GET", "/v1/accounts/{account:path}/policy", "audit", managing.policy, "The rules of an account"),
    Route(
        "POST", "/v1/ledger/verify", "audit", auditing.verify, "Recompute the whole ledger and compare",
        slow=True, body=_body(receipts=_LIST),
    ),
    Route("GET", "/v1/ledger/export", "audit", auditing.export, "All entries, as JSON lines"),
    Route("GET", "/v1/refusals", "audit", auditing.refusals, "The newest refused attempts"),
    Route("GET", "/v1/changes", "audit", auditing.changes, "Changes to users, tokens, policies and approvals"),
    # stewards
    Route(
        "POST", "/v1/datasets", "manage", managing.register, "Register a dataset, or a new version of one",
        slow=True,
        body=_body(
            "name", "source", "account", name=_TEXT, source=_TEXT, account=_TEXT, bounds=_OBJECT, values=_OBJECT,
            person=_TEXT, description=_TEXT, version=_TEXT,
        ),
    ),
    Route(
        "POST", "/v1/accounts", "manage", managing.open_account, "Open an account",
        body=_body(
            "name", name=_TEXT, **_BUDGET, unit=_TEXT, max_rows=_WHOLE, max_groups=_WHOLE, relation=_TEXT
        ),
    ),
    Route(
        "POST", "/v1/shares", "manage", managing.allot, "Give a user a share of an account",
        body=_body("account", "user", account=_TEXT, user=_TEXT, **_BUDGET),
    ),
    Route(
        "POST", "/v1/accounts/{account:path}/policy", "manage", managing.set_policy, "Change rules of an account",
        body=_body(
            max_epsilon_per_question=_NUMBER, min_group_size=_WHOLE, approval_above=_NUMBER, expires=_TEXT,
            frozen=_FLAG, period_days=_NUMBER, alerts=_LIST,
        ),
    ),
    Route("POST", "/v1/accounts/{account:path}/freeze", "manage", managing.freeze, "Take no more charges"),
    Route("POST", "/v1/accounts/{account:path}/unfreeze", "manage", managing.unfreeze, "Take charges again"),
    Route("POST", "/v1/accounts/{account:path}/renew", "manage", managing.renew, "Open the next period's budget"),
    Route("GET", "/v1/users", "manage", managing.users, "All users"),
    Route(
        "POST", "/v1/users", "manage", managing.add_user, "Add a user",
        body=_body("name", "role", name=_TEXT, role=_TEXT),
    ),
    Route("POST", "/v1/users/{name}/disable", "manage", managing.disable_user, "Refuse a user from now on"),
    Route("GET", "/v1/tokens", "manage", managing.tokens, "All tokens, without their secrets"),
    Route(
        "POST", "/v1/tokens", "manage", managing.issue, "Issue a token, whose text is shown once",
        body=_body("user", "days", user=_TEXT, days=_NUMBER, scopes=_LIST, share=_TEXT),
    ),
    Route("DELETE", "/v1/tokens/{id}", "manage", managing.revoke, "Refuse a token from now on"),
    Route("GET", "/v1/approvals", "approve", managing.approvals, "Questions that needed an approval"),
    Route("POST", "/v1/approvals/{id}/approve", "approve", managing.approve, "Allow one charge for a question"),
    Route("POST", "/v1/approvals/{id}/reject", "approve", managing.reject, "Refuse a question"),
)  # fmt: skip
