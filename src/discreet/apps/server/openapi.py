"""The table of calls as an OpenAPI document, and as a light page without scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import discreet

if TYPE_CHECKING:
    from discreet.apps.server.calls import Route

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "remedy", "charged"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "remedy": {"type": "string"},
                "charged": {"type": "boolean", "description": "whether the ledger was charged all the same"},
            },
        }
    },
}
_ERRORS = {
    "400": "the request breaks a rule, which the message states",
    "401": "no valid token",
    "402": "the budget has no room; nothing was charged",
    "403": "the token or a policy does not allow it; nothing was charged",
    "404": "there is nothing of this name",
    "408": "the body came too slowly",
    "409": "the idempotency key belongs to another question, or its answer is lost",
    "413": "the body is too large",
    "429": "too many requests: see Retry-After",
    "503": "busy: see Retry-After",
    "504": "it ran too long and was cancelled; a charge stays",
}


def described(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of some calls."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Discreet",
            "version": discreet.__version__,
            "description": "Questions to private data, each charged to one budget before it is answered.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _names(route.path)
    ]
    if route.path.endswith("/ask"):
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "the same key and body give the same answer without a second charge",
            }
        )
    responses: dict[str, Any] = {str(route.status): {"description": "done"}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses |= {status: {"description": words, "content": error} for status, words in _ERRORS.items()}
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', route.path.lower()).strip('_')}",
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [] if route.scope is None else [{"token": []}],
    }
    if route.scope is not None:
        operation["x-scope"] = route.scope
        operation["x-roles"] = sorted(role.value for role in route.roles)
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": dict(route.body)}}}
    return operation


def page(routes: Sequence[Route]) -> str:
    """The same for people: one table, no scripts."""
    rows = "\n".join(
        f"<tr><td><code>{route.method}</code></td><td><code>{escape(_plain(route.path))}</code></td>"
        f"<td>{escape(route.summary)}</td><td>{escape(_who(route))}</td><td>{escape(_fields(route))}</td></tr>"
        for route in routes
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Discreet: calls of the server</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .4rem .6rem;
  text-align: left; vertical-align: top; }}
div {{ overflow-x: auto; }}
</style></head><body>
<h1>Calls of the server</h1>
<p>Send <code>Authorization: Bearer TOKEN</code> and JSON. <a href="/openapi.json">The same for programs</a>.</p>
<div><table><thead><tr><th>method</th><th>address</th><th>what it does</th><th>who may</th><th>body</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
</body></html>
"""


def _who(route: Route) -> str:
    return "anybody" if route.scope is None else ", ".join(sorted(role.value for role in route.roles))


def _fields(route: Route) -> str:
    return "" if route.body is None else ", ".join(route.body["properties"])


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


def _names(path: str) -> list[str]:
    return re.findall(r"{(\w+)(?::path)?}", path)
