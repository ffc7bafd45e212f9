"""The analyst's page: what remains, a box for a question, its preview, and the answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from discreet.apps.server.curator import Curator
from discreet.apps.server.pages import facts
from discreet.apps.server.pages.forms import number
from discreet.apps.server.pages.rendering import render
from discreet.apps.server.pages.session import Session
from discreet.apps.server.problems import Problem, problem_of
from discreet.apps.server.tables import Work

_EMPTY = {"dataset": "", "sql": "", "epsilon": "0.1", "delta": "", "purpose": "", "key": ""}
_TITLES = {
    "budget_exceeded": "This does not fit",
    "approval_needed": "This needs approval",
    "policy_refused": "The rules do not allow this",
}


def home(curator: Curator, session: Session, asked: Mapping[str, str] | None = None, **more: Any) -> str:
    """The page, with what was asked before in its box."""
    identity = session.identity
    given = {**_EMPTY, **(asked or {})}
    shown = {"problem": None, "preview": None, "result": None, "table": None, "chart": "", **more}
    jobs = curator.jobs.listed(identity) if identity.may("train") and curator.state.items("job") else []
    return render(
        "analyst",
        session,
        asked=given,
        datasets=[curator.described(dataset) for dataset in curator.datasets().values()],
        shares=facts.shares(curator, identity),
        approvals=[approval for approval in curator.access.approvals() if approval.user == identity.user][
            -facts.MOST_LISTED :
        ],
        jobs=jobs,
        lines=facts.own(curator, identity),
        **shown,
    )


def ask(
    curator: Curator, session: Session, form: Mapping[str, str], work: Work, on_refusal: Callable[..., None]
) -> str:
    """Preview, try or ask what a form says; what goes wrong is shown above the box, which keeps its text."""
    asked = {name: form.get(name, "") for name in _EMPTY}
    identity, step = session.identity, form.get("step", "preview")
    try:
        body: dict[str, Any] = {"sql": asked["sql"], "epsilon": number(asked, "epsilon")}
        if (delta := number(asked, "delta")) is not None:
            body["delta"] = delta
        if asked["purpose"].strip():
            body["purpose"] = asked["purpose"].strip()
        if keys := facts.grouped_keys(asked["sql"], curator.dataset(asked["dataset"])):
            body["keys"] = keys
        if step == "ask":
            identity.require("ask")
            result = curator.ask(identity, asked["dataset"], body, asked["key"] or None, work)
        elif step == "try":
            result = curator.trial(identity, asked["dataset"], body, work)
        else:
            preview = curator.preview(identity, asked["dataset"], body, work)
            # A key of its own for each preview: pressing the button twice asks once.
            return home(curator, session, {**asked, "key": secrets.token_hex(16)}, preview=preview)
    except Exception as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        if problem.status >= 500:
            raise
        on_refusal(identity, "", "page /ask", problem, error)
        title = _TITLES.get(problem.code, "This question cannot be asked")
        return home(curator, session, asked, problem={"title": title, "text": problem.message})
    shown = {"replayed": False, "dummy": False, **result}
    return home(curator, session, asked, result=shown, table=facts.table(result), chart=facts.chart(result))
