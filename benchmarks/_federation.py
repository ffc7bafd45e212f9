"""A federation on MNIST: clients whose digits have similar strokes, in one process and on Flower.

- In one process: the rounds of a plan without Flower.
- On a grid in this process, and in Flower's simulation on Ray: `PrivateFedAvg` with the same clients.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.learning.federated import FederatedPlan, PrivateFedAvg, Round, applied, draw_clients
from discreet.learning.federated._flower import flower
from discreet.learning.noise import Secret
from discreet.mechanisms.sampling import entropy

Floats = NDArray[np.float64]
#: The pass of a client over its digits.
RATE, BATCH = 0.1, 10


class LocalGrid:
    """Flower's grid in this process: each message is answered by a function."""

    def __init__(self, ids: Iterable[int], client: Callable[[Any], Any]) -> None:
        identity = flower("flwr.supercore.task_identity").TaskIdentity
        identity.run_id = identity.task_id = identity.node_id = 1
        self._ids, self._client = list(ids), client

    def get_node_ids(self) -> list[int]:
        """All nodes."""
        return self._ids

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The replies to all messages."""
        return [self._client(message) for message in messages]


def reply(message: Any, arrays: dict[str, NDArray[Any]], examples: int = 1) -> Any:
    """A client's reply."""
    app = flower("flwr.app")
    record = app.ArrayRecord({name: app.Array(array) for name, array in arrays.items()})
    content = app.RecordDict({"arrays": record, "metrics": app.MetricRecord({"num-examples": examples})})
    return app.Message(content, reply_to=message)


def digits(folder: Path, name: str) -> tuple[Floats, NDArray[np.int64]]:
    """Images with a constant, and labels, of MNIST's idx files."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784) / 255.0
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    return np.hstack([images, np.ones((len(images), 1))]), labels


def trained(weights: Floats, images: Floats, labels: NDArray[np.int64]) -> Floats:
    """One pass of softmax regression over a client's digits."""
    weights, truth = weights.copy(), np.eye(10)[labels]
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH]
        scores = batch @ weights
        odds = np.exp(scores - scores.max(1, keepdims=True))
        chance = odds / odds.sum(1, keepdims=True)
        weights += RATE * batch.T @ (truth[start : start + BATCH] - chance) / BATCH
    return weights


class Federation:
    """Clients with digits of similar strokes, and a test set that nobody holds."""

    def __init__(self, folder: Path, number: int, each: int) -> None:
        images, labels = digits(folder, "train")
        # The thickness of strokes differs between writers more than within one.
        order = np.argsort(images.sum(1), kind="stable")[: number * each].reshape(number, each)
        order = np.random.default_rng(0).permutation(order)
        self.parts = [(images[rows], labels[rows]) for rows in order]
        self.test = digits(folder, "t10k")
        self.number = number

    def accuracy(self, weights: Floats) -> float:
        """The share of test digits that are recognized, in percent."""
        images, labels = self.test
        return 100 * float((np.argmax(images @ weights, 1) == labels).mean())

    def client(self, message: Any) -> Any:
        """A client's answer to a message."""
        weights = message.content["arrays"]["weights"].numpy()
        return reply(message, {"weights": trained(weights, *self.parts[message.metadata.dst_node_id - 1])})

    def on_flower(self, strategy: Any, rounds: int) -> float:
        """The accuracy after a training by a strategy of Flower, on a grid in this process."""
        app = flower("flwr.app")
        start = app.ArrayRecord({"weights": app.Array(np.zeros((785, 10)))})
        grid = LocalGrid(range(1, self.number + 1), self.client)
        return self.accuracy(strategy.start(grid, start, num_rounds=rounds).arrays["weights"].numpy())

    def in_one_process(self, plan: FederatedPlan) -> float:
        """The accuracy after the same plan without Flower."""
        model: dict[str, NDArray[Any]] = {"weights": np.zeros((785, 10))}
        secret, ids = Secret(), tuple(range(self.number))
        for number in range(1, plan.rounds + 1):
            drawn = draw_clients(plan, ids, entropy.SYSTEM)
            this_round = Round(plan, number, model, plan.clipping.norm, drawn)
            for client in drawn:
                this_round.take(client, {"weights": trained(model["weights"], *self.parts[client])})
            model = applied(model, this_round.release(secret).update)
        return self.accuracy(model["weights"])

    def on_ray(self, plan: FederatedPlan, folder: Path) -> float:
        """The accuracy after the same plan in Flower's simulation; each worker of Ray reads its clients' digits."""
        app, accuracies = flower("flwr.app"), []
        client_app, server_app = flower("flwr.clientapp").ClientApp(), flower("flwr.serverapp").ServerApp()
        number, each = self.number, len(self.parts[0][1])

        def train(message: Any, context: Any) -> Any:
            digits = federation(folder, number, each).parts[context.node_config["partition-id"]]
            return reply(message, {"weights": trained(message.content["arrays"]["weights"].numpy(), *digits)})

        def main(grid: Any, context: Any) -> None:
            start = app.ArrayRecord({"weights": app.Array(np.zeros((785, 10)))})
            result = PrivateFedAvg(plan).start(grid, start, num_rounds=plan.rounds)
            accuracies.append(self.accuracy(result.arrays["weights"].numpy()))

        client_app.train()(train)
        server_app.main()(main)
        simulate(server_app, client_app, number)
        return float(accuracies[0])


@cache
def federation(folder: Path, number: int, each: int) -> Federation:
    """The federation of a folder, read once in each process."""
    return Federation(folder, number, each)


def simulate(server_app: Any, client_app: Any, number: int) -> None:
    """Run two apps in Flower's simulation, on two workers of Ray."""
    init = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    flower("flwr.simulation").run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=number,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init},
    )
