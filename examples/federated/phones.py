"""A hundred phones train one model with PrivateFedAvg, in Flower's simulation: `python examples/federated/phones.py`.

Each phone holds 300 rows of the Adult data. The guarantee protects a phone with all of its rows. The data are split at
random here, so that the example is short; nothing depends on it. The report at the end needs the extra `report`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# Set before Flower and Ray are imported: no reports over the network, and quiet logs.
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

import discreet as dp
from discreet.apps.report import collect, federated_training, render
from discreet.learning import Plan
from discreet.learning.federated import PrivateFedAvg, clients

PHONES, ROWS = 100, 300
FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())


def rows():
    """Adult's numbers and the label, standardized with public ranges."""
    people = dp.datasets.adult()
    columns = [people["age"] / 45 - 1, people["hours_per_week"] / 40 - 1, people["education_num"] / 8 - 1.25]
    married = people["marital_status"] == "Married-civ-spouse"
    inputs = np.stack([*columns, 2.0 * married - 1, np.ones(len(married))], axis=1)
    return inputs, (people["income"] == ">50K").astype(float)


client_app = ClientApp()


@client_app.train()
def train(message: Message, context) -> Message:
    """One pass of logistic regression over the phone's rows."""
    phone = context.node_config["partition-id"]
    inputs, labels = (each[phone * ROWS : (phone + 1) * ROWS] for each in rows())
    weights = message.content["arrays"]["weights"].numpy()
    for start in range(0, ROWS, 30):
        part = slice(start, start + 30)
        chance = 1 / (1 + np.exp(-inputs[part] @ weights))
        weights = weights + 0.3 * inputs[part].T @ (labels[part] - chance) / 30
    record = ArrayRecord({"weights": Array(weights)})
    return Message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": ROWS})}), reply_to=message)


server_app = ServerApp()


@server_app.main()
def main(grid, context) -> None:
    """Plan, charge, train. The last 2,000 rows are nobody's: they measure the model."""
    plan = Plan.federated(clients(PHONES), rate=0.5, rounds=10, clip_norm=0.5, epsilon=4.0, delta=1e-4)
    account = dp.Ledger(FOLDER / "phones.ledger").account("phones", budget=dp.ApproxDP(6.0, 1e-4), unit=dp.client())
    inputs, labels = (each[-2000:] for each in rows())

    def evaluate(number, arrays):
        right = (inputs @ arrays["weights"].numpy() > 0) == (labels > 0.5)
        return MetricRecord({"accuracy": float(right.mean())})

    strategy = PrivateFedAvg(plan, account=account, checkpoint=FOLDER / "rounds.npz")
    start = ArrayRecord({"weights": Array(np.zeros(5))})
    result = strategy.start(grid, start, num_rounds=plan.rounds, evaluate_fn=evaluate)
    for number, measured in result.evaluate_metrics_serverapp.items():
        print(f"round {number:2d}: accuracy {measured['accuracy']:.3f}")
    section = federated_training(plan, result, "A model of income, over a hundred phones")
    (FOLDER / "report.html").write_text(render(collect(account, trainings=[section])), encoding="utf-8")
    charged = [entry for entry in account.history() if entry.kind == "reserve"]
    print(f"each phone: {plan.guarantee}; charges in the ledger: {len(charged)}")
    print(f"the curves of accuracy and budget: {FOLDER / 'report.html'}")


if __name__ == "__main__":
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    init = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=PHONES,
        backend_config={"client_resources": resources, "init_args": init},
    )
