"""A real deployment of Flower on this machine: a SuperLink and SuperNodes, each a process, over the network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "deployed"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "discreet"

[tool.flwr.app.components]
serverapp = "deployed.server:app"
clientapp = "deployed.client:app"

[tool.flwr.app.config]
folder = "."
data = "."
"""
#: Seconds that processes get to end by themselves.
_GRACE = 1.0


@contextmanager
def deployment(folder: Path, server: str, client: str, nodes: int = 2) -> Iterator[Callable[..., None]]:
    """Start a SuperLink and SuperNodes; give a function that runs the app until `folder` / file exists; end them all.

    The SuperLink logs from whom replies come, unless its level is above INFO: who was drawn is to stay secret.

    Args:
        folder: where logs, the app and its results lie. The log of the SuperLink is 0.log.
        server: the code of the module of the `ServerApp`, which names it `app`.
        client: that of the `ClientApp`. Nodes know their place by the node configuration's `partition-id`.
        nodes: how many SuperNodes.
    """
    package = folder / "app" / "deployed"
    package.mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(_PROJECT)
    for name, text in (("__init__", ""), ("client", client), ("server", server)):
        (package / f"{name}.py").write_text(text)
    link, *ports = _free_ports(nodes + 1)
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str, **more: str) -> None:
        with (folder / f"{len(started)}.log").open("w") as log:
            # A group of its own: the processes that it starts end with it.
            process = subprocess.Popen(
                [str(tools / name), "--insecure", *arguments],
                env={**environment, **more},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        started.append(process)

    def run(file: str, seconds: float = 150, **config: str) -> None:
        given = " ".join(f'{name}="{value}"' for name, value in {"folder": str(folder), **config}.items())
        command = [str(tools / "flwr"), "run", str(folder / "app"), "here", "--run-config", given]
        subprocess.run(command, env=environment, capture_output=True, timeout=90, check=True)
        _wait((folder / file).exists, seconds)

    try:
        quiet = {"FLWR_LOG_LEVEL": "WARNING"}
        start("flower-superlink", "--disable-runtime-dependency-installation", "--port", str(link), **quiet)
        _wait(lambda: _answers(link))
        for node, port in enumerate(ports):
            given = ["--superlink", f"127.0.0.1:{link}", "--port", str(port)]
            start("flower-supernode", *given, "--node-config", f"partition-id={node}")
        logs = [folder / f"{node + 1}.log" for node in range(nodes)]
        _wait(lambda: all("SuperNode ID" in log.read_text() for log in logs))
        yield run
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
        time.sleep(_GRACE)
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait(10)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(happened: Callable[[], bool], seconds: float = 150) -> None:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("the deployment took too long")
        time.sleep(0.5)
