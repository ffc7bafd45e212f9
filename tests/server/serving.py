"""A real server for tests: behind a socket in this process, or as a process of its own that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from discreet.apps.server.running import server
from tests.server.conftest import World


@contextmanager
def served(world: World) -> Iterator[str]:
    """The world behind a real socket; gives its address."""
    running = server(world.curator, "127.0.0.1", 0)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        thread.join(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(10)


def start_process(config: Path, port: int) -> tuple[subprocess.Popen[str], dict[str, str], str]:
    """`discreet serve` as a process: it, the tokens that it printed, and its address."""
    program = "from discreet.apps.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", str(config), "--port", str(port), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while True:
        text += process.stdout.readline()
        with suppress(ValueError):
            facts = json.loads(text)
            break
        assert process.poll() is None, text
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), urlopen(f"{facts['address']}/v1/health", timeout=5):
            break
        time.sleep(0.05)
    return process, {user: one["token"] for user, one in facts["tokens"].items()}, facts["address"]
