"""A real deployment on this machine: a SuperLink and two SuperNodes in processes of their own, over the network."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the federated extra"),
]

ROOT = Path(__file__).parents[3]
PROJECT = """
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
"""
CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    place = context.node_config["partition-id"]
    weight = message.content["arrays"]["weight"].numpy() + np.float32(0.125 * (place + 1))
    metrics = MetricRecord({"num-examples": 1000**place})
    record = ArrayRecord({"weight": Array(weight)})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)
"""
SERVER = """
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

import discreet as dp
from discreet.learning import Plan
from discreet.learning.federated import PrivateFedAvg, clients

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    plan = Plan.federated(clients(2), rate=1.0, rounds=2, clip_norm=1.0, noise_multiplier=1e-9, delta=1e-5)
    start = ArrayRecord({"weight": Array(np.zeros(4, np.float32))})
    result = PrivateFedAvg(plan).start(grid, start, num_rounds=plan.rounds)
    np.save(folder / "part.npy", result.arrays["weight"].numpy())
    (folder / "part.npy").rename(folder / "result.npy")
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(happened, seconds=150):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.5)


def test_two_nodes_over_the_network_sum_as_one_process_does(tmp_path):
    """Updates of 0.125 and 0.25 in two rounds, with next to no noise: examples do not weigh in the mean."""
    package = tmp_path / "app" / "deployed"
    package.mkdir(parents=True)
    (tmp_path / "app" / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", ""), ("client", CLIENT), ("server", SERVER)):
        (package / f"{name}.py").write_text(text)
    link, first, second = free_ports(3)
    home = tmp_path / "home"
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
        "PYTHONPATH": str(ROOT / "src"),
    }
    started = []

    def start(name, *arguments):
        command = [str(tools / name), "--insecure", *arguments]
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            # A group of its own: the processes that it starts end with it.
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path, start_new_session=True
            )
        started.append(process)

    def says(place, words):
        return lambda: words in (tmp_path / f"{place}.log").read_text()

    try:
        start("flower-superlink", "--disable-runtime-dependency-installation", "--port", str(link))
        wait_for(lambda: answers(link))
        for place, port in enumerate((first, second)):
            given = ["--superlink", f"127.0.0.1:{link}", "--port", str(port)]
            start("flower-supernode", *given, "--node-config", f"partition-id={place}")
        wait_for(lambda: says(1, "SuperNode ID")() and says(2, "SuperNode ID")())
        command = [str(tools / "flwr"), "run", str(tmp_path / "app"), "here", "--run-config", f'folder="{tmp_path}"']
        subprocess.run(command, env=environment, capture_output=True, timeout=90, check=True)
        wait_for((tmp_path / "result.npy").exists)
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
        time.sleep(1)
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait(10)
    assert np.load(tmp_path / "result.npy") == pytest.approx(np.full(4, 2 * (0.125 + 0.25) / 2), abs=1e-6)
