"""The same door for agents: a Model Context Protocol server at /mcp, with a bearer token and its own share of a budget.

A language model may list datasets, preview, try and ask. Whatever it tries, it spends from the share of its token
alone: the ledger refuses the rest. What it is told of errors is what every client is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from discreet.apps.server.pages.facts import grouped_keys
from discreet.apps.server.problems import Problem, problem_of
from discreet.apps.server.tables import Work
from discreet.errors import AccessDenied
from discreet.ledger.access import Identity

if TYPE_CHECKING:
    from discreet.apps.server.app import Server

PATH = "/mcp"
_INSTRUCTIONS = (
    "Datasets about people, answered with differential privacy. Every answer to `ask` spends a part of a budget that "
    "is never given back, so call `preview` first: it is free and says the cost and the expected error. Answers carry "
    "noise; state their errors. Grouped columns need public values, which `list_datasets` names, or pass `keys`."
)
_IDENTITY = "discreet.identity"


class Door:
    """The protocol's address: it lets nobody in without a token, and passes the identity on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.protocol = _protocol(server)
        self.protocol.streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,  # each request has its token, and any worker can answer it
            max_request_body_size=server.limits.request_bytes,
            # A page that rebinds its name to this address has no token, and without one nothing is answered.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from discreet.apps.server.app import error_response

        request = Request(scope)
        try:
            scope[_IDENTITY] = await self._server.quickly(self._identity, request)
        except Problem as problem:
            await error_response(problem)(scope, receive, send)
            return
        await self.protocol.session_manager.handle_request(scope, receive, send)

    def _identity(self, request: Request) -> Identity:
        host = "" if request.client is None else request.client.host
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise AccessDenied("no bearer token")
            identity = self._server.curator.sign_in(token)
        except AccessDenied as error:
            raise self._server.not_authenticated(host, PATH, error) from None
        self._server.check_rate(identity)
        return identity


def door(server: Server) -> Route:
    """The route of the protocol, which runs beside the server."""
    made = Door(server)
    server.beside.append(made.protocol.session_manager.run)
    return Route(PATH, endpoint=made)


def _protocol(server: Server) -> MCPServer[Any]:
    """The tools. Each does what the HTTP call of the same name does."""
    curator = server.curator
    protocol: MCPServer[Any] = MCPServer("discreet", instructions=_INSTRUCTIONS, log_level="WARNING")

    async def run(context: Context[Any, Any], scope: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a tool for the request's identity; errors are those of every other door."""
        request = context.request_context.request
        identity = request.scope.get(_IDENTITY) if isinstance(request, Request) else None
        began, work = time.monotonic(), Work()
        try:
            if not isinstance(identity, Identity):
                raise AccessDenied("no identity")
            identity.require(scope)
            return await server.slowly(work, function, identity, *arguments, work)
        except Exception as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if isinstance(identity, Identity):
                await server.quickly(server.refused_by_rule, identity, "", PATH, problem, error)
            raise ToolError(f"{problem.code}: {problem.message}") from None
        finally:
            await server.until_the_next_step(began)

    def question(dataset: str, sql: str, epsilon: float, delta: float | None, keys: Any, purpose: str) -> Any:
        body = {"sql": sql, "epsilon": epsilon, "delta": delta, "purpose": purpose or None}
        body["keys"] = keys or grouped_keys(sql, curator.dataset(dataset)) or None
        return {name: value for name, value in body.items() if value is not None}

    @protocol.tool()
    async def list_datasets(context: Context[Any, Any]) -> dict[str, Any]:
        """The datasets with their columns, public bounds and values, and what remains of your share of the budget."""

        def listed(identity: Identity, work: Work) -> dict[str, Any]:
            described = [curator.described(dataset) for dataset in curator.datasets().values()]
            return {"datasets": described, "shares": curator.shares(identity)}

        answer: dict[str, Any] = await run(context, "datasets", listed)
        return answer

    @protocol.tool()
    async def preview(
        context: Context[Any, Any],
        dataset: str,
        sql: str,
        epsilon: float,
        delta: float | None = None,
        keys: dict[str, list[Any]] | None = None,
    ) -> dict[str, Any]:
        """What a question would cost and how far off its answer would be. Free: it reads no row and charges nothing."""

        def previewed(identity: Identity, work: Work) -> dict[str, Any]:
            body = question(dataset, sql, epsilon, delta, keys, "")
            shown = curator.preview(identity, dataset, body, work)
            kept = ("cost", "epsilon", "columns", "groups", "rows", "room", "affordable", "text")
            return {name: shown[name] for name in kept}

        answer: dict[str, Any] = await run(context, "preview", previewed)
        return answer

    @protocol.tool()
    async def try_on_dummy_data(
        context: Context[Any, Any],
        dataset: str,
        sql: str,
        epsilon: float,
        delta: float | None = None,
        keys: dict[str, list[Any]] | None = None,
    ) -> dict[str, Any]:
        """The answer about made-up rows of the same schema, to see its shape. Free."""

        def tried(identity: Identity, work: Work) -> dict[str, Any]:
            return _answer(curator.trial(identity, dataset, question(dataset, sql, epsilon, delta, keys, ""), work))

        answer: dict[str, Any] = await run(context, "preview", tried)
        return answer

    @protocol.tool()
    async def ask(
        context: Context[Any, Any],
        dataset: str,
        sql: str,
        epsilon: float,
        purpose: str,
        delta: float | None = None,
        keys: dict[str, list[Any]] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Ask, and spend. The charge stays even if you do not like the answer. The same `key` asks only once."""

        def asked(identity: Identity, work: Work) -> dict[str, Any]:
            body = question(dataset, sql, epsilon, delta, keys, purpose)
            return {**_answer(curator.ask(identity, dataset, body, key, work)), "shares": curator.shares(identity)}

        answer: dict[str, Any] = await run(context, "ask", asked)
        return answer

    return protocol


def _answer(result: dict[str, Any]) -> dict[str, Any]:
    """What a model needs of an answer: rows by column name, intervals, and the guarantee."""
    heads = [column["name"] for column in result["columns"]]
    return {
        "rows": [dict(zip(heads, row, strict=True)) for row in result["rows"]],
        "intervals": result["intervals"],
        "level": result["level"],
        "guarantee": result["guarantee"],
        "dummy": result.get("dummy", False),
    }
