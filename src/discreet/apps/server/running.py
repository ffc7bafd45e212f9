"""Runs the application with uvicorn."""

from __future__ import annotations

import uvicorn

from discreet.apps.server.app import build
from discreet.apps.server.curator import Curator

#: Connections that are open at once. More are answered with 503 before they cost anything.
_MOST_CONNECTIONS = 1000
#: Seconds that an idle connection stays open, and that questions have to end when the server stops.
_KEPT_ALIVE, _ENDING = 15, 30


def serve(curator: Curator, host: str, port: int, *, agents: bool = False) -> None:
    """Serve until interrupted; with `agents`, language models are served at /mcp as well."""
    server(curator, host, port, agents=agents).run()


def server(curator: Curator, host: str, port: int, *, agents: bool = False) -> uvicorn.Server:
    """The server, not started yet. Its log has no addresses or tokens: requests are not logged."""
    config = uvicorn.Config(
        build(curator, agents=agents),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEPT_ALIVE,
        timeout_graceful_shutdown=_ENDING,
        h11_max_incomplete_event_size=64 * 1024,
        lifespan="on",
        ws="none",
    )
    return uvicorn.Server(config)
