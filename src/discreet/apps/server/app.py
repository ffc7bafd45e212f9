"""The ASGI application: limits, authentication, the table of calls, threads with a time limit, and JSON errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from discreet.apps.server.alerts import Alerts
from discreet.apps.server.calls import AllowedRequest, Lines, Page, Route
from discreet.apps.server.curator import Curator
from discreet.apps.server.pages import page_routes
from discreet.apps.server.problems import Problem, problem_of
from discreet.apps.server.rates import Rates
from discreet.apps.server.routes import ROUTES
from discreet.apps.server.tables import Work
from discreet.apps.wire.questions import checked_json
from discreet.errors import AccessDenied, EngineFailed, InvalidArgument
from discreet.ledger.access import Identity

_log = logging.getLogger("discreet.server")

#: Threads for everything that is not a question: they read the ledger and are done in milliseconds.
_LIGHT_THREADS = 4
#: Seconds that a cancelled question has to stop before its client is told; how often it is interrupted meanwhile.
_GRACE, _AGAIN = 5.0, 0.1
#: Refused attempts that are logged in a minute for each client without a token, who could fill the disk otherwise.
_LOGGED_PER_MINUTE = 60
#: Failed sign-ins in a minute for each address.
_FAILURES_PER_MINUTE = 120
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """What all requests share: the curator, threads and rates."""

    def __init__(self, curator: Curator) -> None:
        self.curator = curator
        self.limits = curator.limits
        self._slow = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="question")
        self._light = ThreadPoolExecutor(_LIGHT_THREADS, thread_name_prefix="ledger")
        self._rates = Rates(self.limits.requests_per_minute)
        self._failures = Rates(_FAILURES_PER_MINUTE)
        self._logged = Rates(_LOGGED_PER_MINUTE)
        self._working: set[Work] = set()
        self.alerts = Alerts(curator)
        #: What else runs while the server does, such as the sessions of another protocol.
        self.beside: list[Callable[[], contextlib.AbstractAsyncContextManager[Any]]] = []
        curator.after_charge = self.alerts.charged

    async def answer(self, route: Route, request: Request) -> Response:
        """One request from its first byte to its answer; every failure becomes a JSON error."""
        began = time.monotonic()
        identity: Identity | None = None
        try:
            if route.scope is not None:
                identity = await self.quickly(self._authenticated, route, request)
            body = await self._body(request) if route.method == "POST" else None
            response = await self._handled(route, request, identity, body)
        except (Problem, ClientDisconnect) as error:
            problem = error if isinstance(error, Problem) else Problem(400, "invalid", "the request ended too early")
            await self._refused(identity, route, request, problem)
            response = error_response(problem)
        except Exception as error:
            problem = problem_of(error)
            if problem.status >= 500:
                _log.error("%s %s failed: %s", route.method, route.path, _kinds(error))
            await self._refused(identity, route, request, problem, error)
            response = error_response(problem)
        if route.slow:
            await self.until_the_next_step(began)
        return response

    # --- who asks

    def _authenticated(self, route: Route, request: Request) -> Identity:
        host = "" if request.client is None else request.client.host
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise AccessDenied("no bearer token")
            identity = self.curator.sign_in(token)
        except AccessDenied as error:
            raise self.not_authenticated(host, f"{route.method} {route.path}", error) from None
        self.check_rate(identity)
        assert route.scope is not None
        if not identity.may(route.scope):
            self.log_refusal(identity, host, f"{route.method} {route.path}", f"no scope {route.scope}")
            raise Problem(403, "access_denied", str(AccessDenied()))
        return identity

    def check_rate(self, identity: Identity) -> None:
        """Refuse a token that asks too often."""
        if wait := self._rates.wait(identity.token_id):
            raise _too_many(wait)

    def not_authenticated(self, host: str, action: str, error: AccessDenied) -> Problem:
        """The answer to a token that is not valid. It is logged, and addresses that try too often are slowed down."""
        if wait := self._failures.wait(host):
            return _too_many(wait)
        self.log_refusal(None, host, action, error.reason)
        return Problem(401, "not_authenticated", str(error))

    def log_refusal(self, identity: Identity | None, host: str, action: str, reason: str) -> None:
        """Record a refused attempt, within a rate that cannot fill the disk."""
        if not self._logged.wait(host if identity is None else identity.token_id):
            self.curator.access.refused(identity, action, reason)

    async def _refused(
        self,
        identity: Identity | None,
        route: Route,
        request: Request,
        problem: Problem,
        error: Exception | None = None,
    ) -> None:
        """Log what a known user was refused; a missing scope was logged where it was found."""
        if identity is None or error is None or isinstance(error, Problem):
            return
        host = "" if request.client is None else request.client.host
        with contextlib.suppress(Exception):  # the refusal itself matters more than its record
            await self.quickly(self.refused_by_rule, identity, host, f"{route.method} {route.path}", problem, error)

    def refused_by_rule(
        self, identity: Identity, host: str, action: str, problem: Problem, error: Exception | None = None
    ) -> None:
        """Log what a user was refused for their budget, a policy or a share that is not theirs, at whichever door."""
        if problem.status not in (402, 403) or problem.code == "approval_needed":
            return
        reason = error.reason if isinstance(error, AccessDenied) else problem.code
        self.log_refusal(identity, host, action, reason)

    # --- what they send

    async def _body(self, request: Request) -> Any:
        """The parsed JSON of a request, within the limits of size and time."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        content = await self.content(request)
        if not content:
            return None
        if kind != "application/json":
            raise Problem(415, "invalid", "a request must be JSON: send Content-Type: application/json")
        try:
            return checked_json(content)
        except InvalidArgument as error:
            raise Problem(400, "invalid", str(error)) from None

    async def content(self, request: Request) -> bytes:
        """The bytes of a request, within the limits of size and time."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.read_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self.limits.request_bytes:
                        message = (
                            f"a request must have at most {self.limits.request_bytes} bytes: ask for less at a time"
                        )
                        raise Problem(413, "too_large", message)
                    chunks.append(chunk)
        except TimeoutError:
            message = f"a request must arrive within {self.limits.read_seconds:g} s: send it again"
            raise Problem(408, "too_slow", message) from None
        return b"".join(chunks)

    # --- what they get

    async def _handled(self, route: Route, request: Request, identity: Identity | None, body: Any) -> Response:
        work = Work()
        call = AllowedRequest(
            curator=self.curator,
            who=identity,
            names=request.path_params,
            query=request.query_params,
            body=body,
            key=request.headers.get("idempotency-key"),
            work=work,
        )
        if not route.slow:
            return response_of(route, await self.quickly(route.handler, call))
        return response_of(route, await self.slowly(work, route.handler, call))

    async def slowly(self, work: Work, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a question in the threads for questions, within the limits of time and of how many wait."""
        if len(self._working) >= self.limits.waiting + self.limits.threads:
            raise Problem(503, "busy", "the server has too many questions: try again", retry_after=1)
        self._working.add(work)
        running = self._slow.submit(function, *arguments)
        running.add_done_callback(self._ended(work, asyncio.get_running_loop()))
        return await self._within_time(running, work)

    def _ended(self, work: Work, loop: asyncio.AbstractEventLoop) -> Callable[[Future[Any]], None]:
        def done(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(self._working.discard, work)

        return done

    async def _within_time(self, running: Future[Any], work: Work) -> Any:
        """What a question returns; after the time limit it is cancelled, and what it was charged stays charged."""
        waiting = asyncio.wrap_future(running)
        done, _ = await asyncio.wait({waiting}, timeout=self.limits.query_seconds)
        if not done and running.cancel():
            raise Problem(503, "busy", "no thread was free in time: nothing was charged; try again", retry_after=1)
        deadline = time.monotonic() + _GRACE
        while not done and time.monotonic() < deadline:
            await self.quickly(work.cancel)  # again and again: a query may start after one interruption
            done, _ = await asyncio.wait({waiting}, timeout=_AGAIN)
        late = Problem(
            504,
            "timed_out",
            f"a question must be answered within {self.limits.query_seconds:g} s, and this one was cancelled: if it "
            "was charged, the charge stays; ask for less",
            charged=True,
        )
        if not done:
            waiting.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise late
        try:
            return waiting.result()
        except EngineFailed:
            if work.cancelled:
                raise late from None
            raise

    async def quickly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run what reads the ledger and is done in milliseconds."""
        return await asyncio.get_running_loop().run_in_executor(self._light, functools.partial(function, *arguments))

    async def until_the_next_step(self, began: float) -> None:
        """Wait until a multiple of the step after the request came in, so that times tell less about the data."""
        step = self.limits.answer_step
        if step > 0:
            spent = time.monotonic() - began
            await asyncio.sleep(math.ceil(spent / step) * step - spent)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Look after alerts and jobs while the server runs, and let questions end when it stops."""
        watching = [asyncio.create_task(self.alerts.watch(self.quickly))]
        if self.curator.anchoring is not None:
            watching.append(asyncio.create_task(self.curator.anchoring.watch(self.quickly)))
        trains = bool(await self.quickly(self.curator.state.items, "model"))
        if trains:
            watching.append(asyncio.create_task(self.curator.jobs.watch(self.quickly)))
        try:
            async with contextlib.AsyncExitStack() as stack:
                for begin in self.beside:
                    await stack.enter_async_context(begin())
                yield
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            if trains:
                await self.quickly(self.curator.jobs.stop)
            self._slow.shutdown(wait=False, cancel_futures=True)
            for work in list(self._working):  # uvicorn has waited for them long enough; their charges stay
                await self.quickly(work.cancel)
            self._slow.shutdown()
            self._light.shutdown()


def build(curator: Curator, *, agents: bool = False) -> Starlette:
    """The application: the table of calls, the pages, and with `agents` the door for language models."""
    server = Server(curator)
    routes = [StarletteRoute(route.path, _endpoint(server, route), methods=[route.method]) for route in ROUTES]
    if agents:
        from discreet.apps.server.mcp import door  # the only part that needs the SDK

        routes.append(door(server))
    app = Starlette(
        routes=[*routes, *page_routes(server)],
        lifespan=server.lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _any_error},
    )
    app.state.server = server
    return app


def _endpoint(server: Server, route: Route) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return await server.answer(route, request)

    return endpoint


def response_of(route: Route, answer: Any) -> Response:
    """What a handler returned, as HTTP sends it."""
    if isinstance(answer, Lines):
        return StreamingResponse(answer.lines, media_type=answer.media_type, headers=_HEADERS)
    if isinstance(answer, Page):
        return Response(answer.content, media_type=answer.media_type, headers={**_HEADERS, **answer.headers})
    content = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
    return Response(content, route.status, media_type="application/json", headers=_HEADERS)


def error_response(problem: Problem) -> Response:
    """A problem as a JSON error."""
    headers = dict(_HEADERS)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    content = json.dumps(problem.body(), ensure_ascii=False).encode()
    return Response(content, problem.status, media_type="application/json", headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: "there is no such address", 405: "this address takes another method"}.get(
        status, "the request failed"
    )
    code = {404: "not_found", 405: "wrong_method"}.get(status, "invalid")
    return error_response(Problem(status, code, f"{words}: see /openapi.json"))


async def _any_error(request: Request, error: Exception) -> Response:
    _log.error("a request failed: %s", _kinds(error))
    return error_response(problem_of(Exception()))


def _too_many(wait: float) -> Problem:
    seconds = math.ceil(wait)
    return Problem(429, "too_many", f"too many requests: try again in {seconds} s", retry_after=seconds)


def _kinds(error: BaseException) -> str:
    """The types of an error and of what caused it. Their texts may quote rows, and a log is read by others."""
    inner = error.engine_error if isinstance(error, EngineFailed) else error.__cause__
    return type(error).__name__ if inner is None else f"{type(error).__name__} ({type(inner).__name__})"
