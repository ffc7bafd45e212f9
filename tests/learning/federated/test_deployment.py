"""Real runs of Flower on this machine release what the same plan releases in one process.

Both plans have a seed, so that their noise is known and sums can be compared with a reference. A deployment is a
SuperLink and two SuperNodes in processes of their own; the simulation has 100 clients on Ray, of which half are drawn.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks._deployment import deployment
from discreet.learning import Plan
from discreet.learning.federated import Round, applied, clients
from discreet.learning.noise import Secret

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the federated extra"),
]

ROOT = Path(__file__).parents[3]
SEED = 5
CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    place = int(context.node_config["partition-id"])
    number = message.content["config"]["server-round"]
    with open(f"{message.content['config']['folder']}/asked-{number}-{place}", "w"):
        pass  # so that the test knows who was drawn
    arrays = message.content["arrays"]["weight"].numpy()
    update = np.random.default_rng([place, number]).normal(size=arrays.shape) * (0.05 + place % 7)
    metrics = MetricRecord({"num-examples": 1000**(place % 3)})
    record = ArrayRecord({"weight": Array(arrays + update)})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)
"""
SERVER = """
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp

from discreet.learning import Plan
from discreet.learning.federated import PrivateFedAvg, clients

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config.get("folder", FOLDER))
    plan = Plan.federated(clients(NUMBER), **GIVEN)
    start = ArrayRecord({"weight": Array(np.zeros(40))})
    result = PrivateFedAvg(plan).start(
        grid, start, num_rounds=plan.rounds, train_config=ConfigRecord({"folder": str(folder)})
    )
    np.save(folder / "part.npy", result.arrays["weight"].numpy())
    (folder / "part.npy").rename(folder / "result.npy")
"""


def given(rate):
    return {
        "rate": rate,
        "rounds": 3,
        "clip_norm": 1.0,
        "noise_multiplier": 0.5,
        "delta": 1e-5,
        "insecure_seed": SEED,
    }


def server(number, rate, folder=""):
    return f"FOLDER, NUMBER, GIVEN = {str(folder)!r}, {number}, {given(rate)!r}\n{SERVER}"


def drawn_in(folder, number):
    return frozenset(int(path.name.split("-")[2]) for path in folder.glob(f"asked-{number}-*"))


def reference(folder, number, rate):
    """The arrays after the same rounds in one process, with those clients that were drawn."""
    plan, secret, model = Plan.federated(clients(number), **given(rate)), Secret(SEED), {"weight": np.zeros(40)}
    for each in range(1, plan.rounds + 1):
        drawn = drawn_in(folder, each)
        one = Round(plan, each, model, 1.0, drawn)
        for place in drawn:
            update = np.random.default_rng([place, each]).normal(size=40) * (0.05 + place % 7)
            one.take(place, {"weight": model["weight"] + update})
        model = applied(model, one.release(secret).update)
    return model["weight"]


def test_two_nodes_over_the_network_sum_as_one_process_does_and_the_log_names_nobody(tmp_path):
    with deployment(tmp_path, server(2, 1.0), CLIENT) as run:
        run("result.npy")
    assert drawn_in(tmp_path, 3) == {0, 1}
    assert np.load(tmp_path / "result.npy") == pytest.approx(reference(tmp_path, 2, 1.0), abs=1e-9)
    nodes = [re.search(r"SuperNode ID: (\d+)", (tmp_path / f"{place}.log").read_text()) for place in (1, 2)]
    log = (tmp_path / "0.log").read_text()
    assert all(node and node[1] not in log for node in nodes)


def test_a_hundred_clients_on_ray_sum_as_one_process_does(tmp_path):
    """Who is drawn has 100 coins in each round: fewer than 10 or more than 90 have a probability below 1e-15."""
    start = """
    from flwr.simulation import run_simulation

    init = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(app, client, 100, backend_config={"client_resources": resources, "init_args": init})
    """
    program = tmp_path / "program.py"
    program.write_text(f"{CLIENT}\nclient = app\n{server(100, 0.5, tmp_path)}\n{textwrap.dedent(start)}")
    environment = {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(10 <= len(drawn_in(tmp_path, number)) <= 90 for number in (1, 2, 3))
    assert np.load(tmp_path / "result.npy") == pytest.approx(reference(tmp_path, 100, 0.5), abs=1e-9)
