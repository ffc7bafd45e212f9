"""The pages' addresses: who may see which, what each form does, and how errors look."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from discreet.apps.budgets import budget_of
from discreet.apps.server.pages import charts, facts
from discreet.apps.server.pages.asking import ask, home
from discreet.apps.server.pages.forms import FormFields, number, read_form, same_origin
from discreet.apps.server.pages.rendering import HEADERS, render, style
from discreet.apps.server.pages.session import Session, Sessions, shared_secret
from discreet.apps.server.problems import Problem, problem_of
from discreet.apps.server.tables import Work
from discreet.errors import AccessDenied, TermsDiffer
from discreet.ledger.access import Role
from discreet.ledger.evidence import export

if TYPE_CHECKING:
    from discreet.apps.server.app import Server

_log = logging.getLogger("discreet.server")
_COOKIE = "discreet"


class Pages:
    """The pages of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._curator = server.curator
        self._secret = shared_secret(server.curator.folder)

    def routes(self) -> tuple[Route, ...]:
        """All addresses of the pages."""
        shown: dict[str, tuple[str, Callable[[Session, FormFields], str]]] = {
            "/": ("datasets", self._home),
            "/audit": ("audit", self._audit),
            "/account": ("audit", self._account),
        }
        done: dict[str, tuple[str, Callable[[Session, FormFields], str | None]]] = {
            "/verify": ("audit", self._verify),
            "/decide": ("approve", self._decide),
            "/freeze": ("manage", self._freeze),
            "/revoke": ("manage", self._revoke),
            "/disable": ("manage", self._disable),
            "/users": ("manage", self._add_user),
            "/issue": ("manage", self._issue),
            "/allot": ("manage", self._allot),
        }
        return (
            Route("/style.css", self._style, methods=["GET"]),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/audit.jsonl", self._export, methods=["GET"]),
            Route("/ask", self._ask, methods=["POST"]),
            *(Route(path, self._get(scope, page), methods=["GET"]) for path, (scope, page) in shown.items()),
            *(Route(path, self._post(scope, act), methods=["POST"]) for path, (scope, act) in done.items()),
        )

    # --- the frame around every page

    def _sessions(self) -> Sessions:
        return Sessions(self._secret, self._curator.access, self._curator.sign_in)

    def _session(self, request: Request, scope: str) -> Session:
        """Whose page it is; raises a problem unless they have the scope."""
        session = self._sessions().open(request.cookies.get(_COOKIE))
        self._server.check_rate(session.identity)
        if not session.identity.may(scope):
            host = "" if request.client is None else request.client.host
            self._server.log_refusal(session.identity, host, f"page {request.url.path}", f"no scope {scope}")
            raise Problem(403, "access_denied", str(AccessDenied()))
        return session

    def _get(self, scope: str, page: Callable[[Session, FormFields], str]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await self._guarded(request, scope, lambda session: page(session, dict(request.query_params)))

        return endpoint

    def _post(self, scope: str, act: Callable[[Session, FormFields], str | None]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            try:
                form = await self._form(request)
            except Problem as problem:
                return _problem_page(None, problem)

            def work(session: Session) -> str | None:
                self._check_form(request, session, form)
                return act(session, form)

            return await self._guarded(request, scope, work)

        return endpoint

    async def _guarded(self, request: Request, scope: str, work: Callable[[Session], str | None]) -> Response:
        session: Session | None = None
        try:
            session = await self._server.quickly(self._session, request, scope)
            html = await self._server.quickly(work, session)
        except AccessDenied:
            if session is None:
                return RedirectResponse("/login", 303, HEADERS)
            return _problem_page(session, problem_of(AccessDenied()))
        except Exception as error:
            return _problem_page(session, _problem(request, error))
        return RedirectResponse("/", 303, HEADERS) if html is None else _page(html)

    async def _form(self, request: Request) -> dict[str, str]:
        return read_form(request.headers.get("content-type", ""), await self._server.content(request))

    def _check_form(self, request: Request, session: Session, form: FormFields) -> None:
        """Refuse a form that another site made a browser send."""
        if not same_origin(request) or not self._sessions().form_matches(session, form.get("form", "")):
            raise Problem(403, "access_denied", "this form is not from this session: go back, reload, and try again")

    # --- signing in and out

    async def _style(self, request: Request) -> Response:
        return Response(style(), media_type="text/css", headers={**HEADERS, "Cache-Control": "max-age=3600"})

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return _page(render("login", problem=""))
        host = "" if request.client is None else request.client.host
        try:
            form = await self._form(request)
            if not same_origin(request):
                raise Problem(403, "access_denied", "this form is not from this server: reload and try again")
            cookie, lasts = await self._server.quickly(self._sessions().start, form.get("token", "").strip())
        except AccessDenied as error:
            problem = await self._server.quickly(self._server.not_authenticated, host, "page /login", error)
            return _page(render("login", problem=problem.message), problem.status)
        except Exception as error:
            problem = _problem(request, error)
            return _page(render("login", problem=problem.message), problem.status)
        response = RedirectResponse("/", 303, HEADERS)
        safe = request.url.scheme == "https"
        response.set_cookie(_COOKIE, cookie, max_age=lasts, httponly=True, samesite="strict", secure=safe, path="/")
        return response

    async def _logout(self, request: Request) -> Response:
        response = RedirectResponse("/login", 303, HEADERS)
        response.delete_cookie(_COOKIE, path="/", httponly=True, samesite="strict")
        return response

    # --- pages

    def _home(self, session: Session, query: FormFields) -> str:
        role = session.identity.role
        if role is Role.ANALYST:
            return home(self._curator, session)
        return self._audit(session, query) if role is Role.AUDITOR else self._steward(session)

    def _steward(self, session: Session) -> str:
        access = self._curator.access
        return render(
            "steward",
            session,
            accounts=facts.accounts(self._curator),
            pending=[
                (approval, facts.asked(self._curator, approval))
                for approval in access.approvals()
                if approval.state == "pending"
            ],
            lines=facts.newest(self._curator),
            users=access.users(),
            tokens=access.tokens(),
            refused=access.refusals(facts.MOST_LISTED),
        )

    def _audit(self, session: Session, query: FormFields, verified: dict[str, Any] | None = None) -> str:
        session.identity.require("audit")
        access = self._curator.access
        return render(
            "auditor",
            session,
            accounts=facts.accounts(self._curator),
            lines=facts.newest(self._curator),
            changes=access.changes()[: -facts.MOST_LISTED - 1 : -1],
            refused=access.refusals(facts.MOST_LISTED),
            verified=verified,
        )

    def _account(self, session: Session, query: FormFields) -> str:
        try:
            account = self._curator.ledger.account(query.get("name", ""))
        except TermsDiffer:
            raise Problem(404, "not_found", "there is no account of this name: go back to the list") from None
        statement = account.statement()
        return render(
            "account",
            session,
            statement=statement,
            meter=charts.meter(statement.used),
            rules=facts.rules(self._curator.access.policy(account.name)),
            chart=facts.by_user(statement.lines),
            lines=statement.lines[::-1],
        )

    async def _ask(self, request: Request) -> Response:
        """Preview, try or ask: in the threads for questions, and answered at a step of time, like the other doors."""
        began = time.monotonic()
        session: Session | None = None
        try:
            form = await self._form(request)
            session = await self._server.quickly(self._session, request, "preview")
            self._check_form(request, session, form)
            work = Work()
            html = await self._server.slowly(
                work, ask, self._curator, session, form, work, self._server.refused_by_rule
            )
        except AccessDenied:
            return RedirectResponse("/login", 303, HEADERS)
        except Exception as error:
            return _problem_page(session, _problem(request, error))
        finally:
            await self._server.until_the_next_step(began)
        return _page(html)

    async def _export(self, request: Request) -> Response:
        try:
            await self._server.quickly(self._session, request, "audit")
        except AccessDenied:
            return RedirectResponse("/login", 303, HEADERS)
        except Problem as problem:
            return _problem_page(None, problem)
        lines = (line + "\n" for line in export(self._curator.ledger))
        named = {"Content-Disposition": "attachment; filename=audit.jsonl"}
        return StreamingResponse(lines, media_type="application/x-ndjson", headers={**HEADERS, **named})

    # --- what forms do

    def _verify(self, session: Session, form: FormFields) -> str:
        verification = self._curator.ledger.verify()
        wrong = self._curator.access.disagreement()
        text = str(verification) if not verification or not wrong else f"users and policies: {wrong}"
        return self._audit(session, {}, {"ok": bool(verification) and not wrong, "text": text})

    def _decide(self, session: Session, form: FormFields) -> None:
        decide = self._curator.access.approve if form.get("decision") == "approve" else self._curator.access.reject
        decide(form.get("id", ""), session.identity)

    def _freeze(self, session: Session, form: FormFields) -> None:
        frozen = form.get("frozen") == "yes"
        change = self._curator.access.change_policy
        change(form.get("account", ""), lambda rules: replace(rules, frozen=frozen), by=session.identity)

    def _revoke(self, session: Session, form: FormFields) -> None:
        self._curator.access.revoke(form.get("id", ""), by=session.identity)

    def _disable(self, session: Session, form: FormFields) -> None:
        self._curator.access.disable_user(form.get("user", ""), by=session.identity)

    def _add_user(self, session: Session, form: FormFields) -> None:
        self._curator.access.add_user(form.get("user", "").strip(), form.get("role", ""), by=session.identity)

    def _issue(self, session: Session, form: FormFields) -> str:
        lifetime = dt.timedelta(days=number(form, "days") or 0.0)
        share = form.get("share", "").strip() or None
        token = self._curator.access.issue(form.get("user", ""), lifetime, None, share, by=session.identity)
        text = f"The token of {form.get('user', '')}. It is shown now and never again."
        return render("message", session, title="A new token", text=text, secret=token, bad=False)

    def _allot(self, session: Session, form: FormFields) -> None:
        ledger = self._curator.ledger.acting_for(session.identity.user)
        budget = budget_of(number(form, "epsilon"), number(form, "delta"), None, None)
        ledger.account(form.get("account", "")).allot(form.get("user", ""), budget)


def page_routes(server: Server) -> tuple[Route, ...]:
    """The pages of a server."""
    return Pages(server).routes()


def _page(html: str, status: int = 200) -> Response:
    return Response(html, status, media_type="text/html", headers=HEADERS)


def _problem(request: Request, error: Exception) -> Problem:
    """What a visitor is told of an error; of one that is the server's own fault, the log has the kind."""
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem.status >= 500:
        _log.error("page %s failed: %s", request.url.path, type(error).__name__)
    return problem


def _problem_page(session: Session | None, problem: Problem) -> Response:
    html = render("message", session, title="That did not work", text=problem.message, secret="", bad=True)
    return _page(html, problem.status)
