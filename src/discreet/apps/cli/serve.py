"""`discreet serve`: the curator's server."""

from __future__ import annotations

import importlib.util

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, read_text
from discreet.errors import MissingExtra


@click.command("serve", cls=Command, example="discreet serve curator.toml --check")
@click.argument("config", metavar="CONFIG")
@click.option("--host", help="Where to listen, instead of what CONFIG says.")
@click.option("--port", type=int, help="The port to listen on, instead of what CONFIG says.")
@click.option("--check", is_flag=True, help="Open the ledger, the accounts and the data, and stop before serving.")
@click.option("--mcp", is_flag=True, help="Serve language models as well, at /mcp (Model Context Protocol).")
@with_output
def command(output: Output, config: str, host: str | None, port: int | None, check: bool, mcp: bool) -> None:
    """Let analysts ask the datasets of CONFIG over HTTP, each within a share of the budget.

    The first start creates the ledger, the accounts and the users, and prints each user's token, once.
    docs/how-to/server.md shows a complete CONFIG. Put a proxy with TLS in front before others can reach it.
    """
    try:
        from discreet.apps.server.config import read_config
        from discreet.apps.server.running import serve
        from discreet.apps.server.starting import start
    except ModuleNotFoundError as missing:
        raise MissingExtra("the server needs Starlette and uvicorn: pip install 'discreet[server]'") from missing
    if mcp and importlib.util.find_spec("mcp") is None:
        raise MissingExtra("--mcp needs the SDK of the protocol: pip install 'discreet[server]'")
    parsed = read_config(config, read_text(config))
    started = start(parsed)
    where = host or parsed.host, parsed.port if port is None else port
    names = sorted(started.curator.datasets())
    if output.json:
        tokens = {user: {"role": role.value, "token": text} for user, role, text in started.tokens}
        output.emit({"address": f"http://{where[0]}:{where[1]}", "datasets": names, "tokens": tokens})
    else:
        for user, role, text in started.tokens:
            output.say(f"token of {user} ({role.value}), shown once: {text}")
        output.say(f"datasets: {', '.join(names) or 'none yet'}")
    if check:
        return
    if not output.json:
        output.say(f"serving on http://{where[0]}:{where[1]} (calls: /reference); stop with Ctrl-C")
    serve(started.curator, *where, agents=mcp)
