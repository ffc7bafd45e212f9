"""Three hospitals train one model in Flower's simulation: `python examples/federated/hospitals.py`.

Patients' rows stay at their hospital, which trains with noise before anything leaves it. One ledger has an account for
the patients of each hospital. docs/tutorials/three-hospitals.md explains the steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from itertools import islice
from pathlib import Path

# Set before Flower and Ray are imported: no reports over the network, and quiet logs.
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import discreet as dp
from discreet.learning import Plan

HOSPITALS = ("north", "south", "harbor")
ROUNDS, STEPS = 10, 10
LEDGER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "hospitals.ledger"


@cache
def patients(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A row for each patient: age, sex and visits of 2023, and whether they stayed overnight in 2024."""
    people, visits = dp.datasets.hospital(seed)
    order = {patient: place for place, patient in enumerate(people["patient"].tolist())}
    rows = np.array([order[patient] for patient in visits["patient"].tolist()])
    early = visits["day"] < np.datetime64("2024-01-01")
    number = len(order)
    before = np.bincount(rows[early], minlength=number)
    nights = np.bincount(rows[early], visits["nights"][early], minlength=number)
    stayed = np.bincount(rows[~early], visits["nights"][~early] > 0, minlength=number) > 0
    columns = [(2024 - people["born"]) / 50 - 1, people["sex"] == "Female", np.log1p(before), np.log1p(nights)]
    return torch.tensor(np.stack(columns, 1), dtype=torch.float32), torch.tensor(stayed, dtype=torch.long)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2)


# The whole training of one hospital: all rounds together are one event.
PLAN = Plan.for_epsilon(
    1.0,
    delta=1e-6,
    examples=20_000,
    batch_size=1000,
    steps=ROUNDS * STEPS,
    clip_norm=1.0,
)

client_app = ClientApp()


@client_app.train()
def train(message: Message, context) -> Message:
    """Charge the account of this hospital's patients, train privately, and send the model."""
    place = context.node_config["partition-id"]
    account = dp.Ledger(LEDGER).account(HOSPITALS[place])
    reservation = account.reserve(PLAN.event, "stays", "a model of overnight stays", PLAN.neighbors)
    reservation.start_block(STEPS)
    network = model()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    step = PLAN.step(network, torch.nn.CrossEntropyLoss(), optimizer, compile=False)
    for batch in islice(PLAN.batches(patients(seed=place)), STEPS):
        step(batch)
    record = ArrayRecord(network.state_dict())
    return Message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


server_app = ServerApp()


@server_app.main()
def main(grid, context) -> None:
    """Average the models. They are private already, so plain FedAvg costs nothing more."""
    ledger = dp.Ledger(LEDGER)
    accounts = [ledger.account(name, budget=dp.ApproxDP(2.0, 1e-5)) for name in HOSPITALS]
    inputs, labels = patients(seed=99)  # a fourth hospital, whose data are public here

    def evaluate(number, arrays):
        network = model()
        network.load_state_dict(arrays.to_torch_state_dict())
        right = network(inputs).argmax(1) == labels
        return MetricRecord({"accuracy": float(right.float().mean())})

    strategy = FedAvg(fraction_evaluate=0.0)
    start = ArrayRecord(model().state_dict())
    result = strategy.start(grid, start, num_rounds=ROUNDS, evaluate_fn=evaluate)
    for number, measured in result.evaluate_metrics_serverapp.items():
        print(f"round {number:2d}: accuracy {measured['accuracy']:.3f}")
    print(f"always the more common answer: {float(torch.bincount(labels).max() / len(labels)):.3f}")
    print(f"each patient: {PLAN.guarantee}")
    for account in accounts:
        print(f"{account.name}: {account.statement().used:.0%} of the budget used")


if __name__ == "__main__":
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    init = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=len(HOSPITALS),
        backend_config={"client_resources": resources, "init_args": init},
    )
