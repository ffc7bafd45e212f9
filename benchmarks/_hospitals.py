"""Two hospitals with half of MNIST each, which train with noise of their own: on SuperNodes, or in one process.

A digit is protected, not a hospital: with two clients, noise that hides one of them leaves nothing. Each hospital takes
the steps of one plan in all rounds, charged to a ledger at its site, and the server averages.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import discreet as dp
from benchmarks._deployment import deployment
from benchmarks._federation import Federation
from discreet.learning import Plan
from discreet.learning.federated._flower import flower

HOSPITALS, ROUNDS, STEPS = 2, 10, 10
_APP = "from benchmarks._hospitals import {} as made\n\napp = made()\n"
State = dict[str, torch.Tensor]


def plan_of() -> Plan:
    """All rounds of one hospital: ε = 2 for a digit."""
    return Plan.for_epsilon(
        2.0, delta=1e-5, examples=60_000 // HOSPITALS, batch_size=1500, steps=ROUNDS * STEPS, clip_norm=1.0
    )


@cache
def hospitals(folder: Path) -> Federation:
    """Two clients: one with the digits of thin strokes, one with thick strokes."""
    return Federation(folder, HOSPITALS, 60_000 // HOSPITALS)


def network() -> torch.nn.Linear:
    """A linear model that starts at zero. Its inputs hold the constant."""
    model = torch.nn.Linear(785, 10, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model


def trained(state: State, data: tuple[Any, Any], plan: Plan, account: Any) -> State:
    """The steps of one round at one hospital, recorded before they are taken."""
    account.reserve(plan.event, "digits", "a model of digits", plan.neighbors).start_block(STEPS)
    model = network()
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    step = plan.step(model, torch.nn.CrossEntropyLoss(), optimizer, compile=False)
    inputs, labels = torch.from_numpy(data[0].astype(np.float32)), torch.from_numpy(data[1])
    for batch in islice(plan.batches((inputs, labels)), STEPS):
        step(batch)
    return {name: value.detach() for name, value in model.state_dict().items()}


def account_at(folder: Path, site: int) -> Any:
    """The account of the digits at one hospital."""
    return dp.Ledger(folder / f"site{site}.ledger").account("digits", budget=dp.ApproxDP(4.0, 1e-4))


def accuracy(data: Path, state: State) -> float:
    """In percent of the test digits."""
    return hospitals(data).accuracy(state["weight"].numpy().T.astype(np.float64))


def in_one_process(data: Path) -> float:
    """The accuracy after the same rounds without Flower."""
    plan, state = plan_of(), dict(network().state_dict())
    with tempfile.TemporaryDirectory() as folder:
        accounts = [account_at(Path(folder), site) for site in range(HOSPITALS)]
        for _ in range(ROUNDS):
            given = zip(hospitals(data).parts, accounts, strict=True)
            states = [trained(state, digits, plan, account) for digits, account in given]
            state = {name: torch.stack([each[name] for each in states]).mean(0) for name in state}
    return accuracy(data, state)


def over_the_network(data: Path) -> tuple[float, list[float]]:
    """The accuracy on a SuperLink and two SuperNodes, and the ε of what each site's ledger was charged."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server, client = _APP.format("server_app"), _APP.format("client_app")
        with deployment(folder, server, client, HOSPITALS) as run:
            run("accuracy.json", seconds=400, data=str(data.resolve()))
        measured = float(json.loads((folder / "accuracy.json").read_text()))
        return measured, [account_at(folder, site).statement(1e-5).tight.upper for site in range(HOSPITALS)]


def client_app() -> Any:
    """The app of a hospital."""
    app, made = flower("flwr.app"), flower("flwr.clientapp").ClientApp()

    def train(message: Any, context: Any) -> Any:
        site, folder = int(context.node_config["partition-id"]), Path(context.run_config["folder"])
        digits = hospitals(Path(context.run_config["data"])).parts[site]
        state = trained(message.content["arrays"].to_torch_state_dict(), digits, plan_of(), account_at(folder, site))
        metrics = app.MetricRecord({"num-examples": 1})  # the number of digits is private
        return app.Message(app.RecordDict({"arrays": app.ArrayRecord(state), "metrics": metrics}), reply_to=message)

    made.train()(train)
    return made


def server_app() -> Any:
    """The app of the server: plain FedAvg, because what arrives is private already."""
    app, made = flower("flwr.app"), flower("flwr.serverapp").ServerApp()

    def main(grid: Any, context: Any) -> None:
        folder, data = Path(context.run_config["folder"]), Path(context.run_config["data"])
        strategy = flower("flwr.serverapp.strategy").FedAvg(fraction_evaluate=0.0)
        result = strategy.start(grid, app.ArrayRecord(network().state_dict()), num_rounds=ROUNDS)
        measured = accuracy(data, result.arrays.to_torch_state_dict())
        (folder / "part.json").write_text(json.dumps(measured))
        (folder / "part.json").rename(folder / "accuracy.json")

    made.main()(main)
    return made
