"""Speed and accuracy of private federated rounds, against Flower's: `python -m benchmarks.federated --data FOLDER`.

- Aggregation: what the server does with the replies of a round, against FedAvg's weighted mean, which protects nobody.
- Rounds: Flower's simulation on Ray from the first to the last round, without its start-up, against plain FedAvg.
- Accuracy: 1000 clients with 60 digits each, grouped by the thickness of their strokes as writers would be, and a
  linear model. The same plan runs in one process without Flower; Flower's own wrapper gets the noise that the same ε
  needs by its accounting, which knows no amplification. Without MNIST's files, the rows say so.
"""

from __future__ import annotations

import gzip
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._table import Row, arguments, in_turn, report
from discreet import accounting, events
from discreet.guarantees import ApproxDP
from discreet.learning import Plan
from discreet.learning.federated import FederatedPlan, PrivateFedAvg, Round, applied, clients, draw_clients
from discreet.learning.federated._flower import flower
from discreet.learning.noise import Secret
from discreet.mechanisms.sampling import entropy

Floats = NDArray[np.float64]
FLOWER = "Flower 1.41"
MISSING = "flwr is not installed"
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


# --- aggregation


def aggregation(number: int, size: int, repeats: int) -> Row:
    """Seconds of one aggregation of `number` replies with `size` parameters each."""
    case, metric = f"aggregate {number} clients × {size:.0e} parameters", "seconds"
    generator = np.random.default_rng(0)
    model = {"weights": np.zeros(size, np.float32)}
    plan = Plan.federated(clients(number), rate=1.0, rounds=10_000, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)
    app = flower("flwr.app")
    # Few different updates, each sent by many clients: they need not all be in memory.
    updates = [generator.standard_normal(size, np.float32) for _ in range(min(4, number))]
    grid = LocalGrid(range(number), lambda message: None)
    strategy = PrivateFedAvg(plan)
    theirs = flower("flwr.serverapp.strategy").FedAvg()
    record = app.ArrayRecord({name: app.Array(array) for name, array in model.items()})
    round_number = 0
    first = list(strategy.configure_train(1, record, app.ConfigRecord(), grid))
    shared = [app.Array(update) for update in updates]
    replies = []
    for place, message in enumerate(first):
        arrays = app.ArrayRecord({"weights": shared[place % len(shared)]})
        content = app.RecordDict({"arrays": arrays, "metrics": app.MetricRecord({"num-examples": 1})})
        replies.append(app.Message(content, reply_to=message))

    def ours() -> object:
        nonlocal round_number
        round_number += 1
        if round_number > 1:
            strategy.configure_train(round_number, record, app.ConfigRecord(), grid)
            for each in replies:
                each.metadata.group_id = str(round_number)
        return strategy.aggregate_train(round_number, replies)

    seconds, other = in_turn(ours, lambda: theirs.aggregate_train(1, replies), repeats)
    note = "ours clips each update and adds noise, and includes drawing the round; theirs is FedAvg without privacy"
    return Row(case, metric, seconds, FLOWER, other, "lower", note)


# --- rounds on Ray


def simulated_seconds(private: bool, number: int, rounds: int) -> float:
    """Seconds per round of Flower's simulation, from the first message to the last aggregation."""
    app, taken = flower("flwr.app"), []
    client_app, server_app = flower("flwr.clientapp").ClientApp(), flower("flwr.serverapp").ServerApp()

    def train(message: Any, context: Any) -> Any:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        return reply(message, {name: array + np.float32(0.01) for name, array in arrays.items()})

    client_app.train()(train)

    def main(grid: Any, context: Any) -> None:
        start = app.ArrayRecord({"weights": app.Array(np.zeros(7850, np.float32))})
        if private:
            plan = Plan.federated(
                clients(number), rate=0.5, rounds=rounds, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5
            )
            strategy: Any = PrivateFedAvg(plan)
        else:
            strategy = flower("flwr.serverapp.strategy").FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
        while len(list(grid.get_node_ids())) < number:
            time.sleep(0.1)
        # A first run starts the workers of Ray.
        flower("flwr.serverapp.strategy").FedAvg(fraction_train=0.5, fraction_evaluate=0.0).start(grid, start, 1)
        began = time.perf_counter()
        strategy.start(grid, start, num_rounds=rounds)
        taken.append((time.perf_counter() - began) / rounds)

    server_app.main()(main)
    init = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    flower("flwr.simulation").run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=number,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init},
    )
    return float(taken[0])


def rounds_on_ray(number: int, rounds: int) -> Row:
    """Seconds per round with and without privacy."""
    case = f"a round of {number} clients on Ray, half of them drawn, 7850 parameters"
    ours = simulated_seconds(True, number, rounds)
    theirs = simulated_seconds(False, number, rounds)
    note = "theirs is FedAvg without privacy; ours includes the price of the plan after each round"
    return Row(case, "seconds per round", ours, FLOWER, theirs, "lower", note)


# --- accuracy


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
        part = images[start : start + BATCH]
        scores = part @ weights
        odds = np.exp(scores - scores.max(1, keepdims=True))
        chance = odds / odds.sum(1, keepdims=True)
        weights += RATE * part.T @ (truth[start : start + BATCH] - chance) / BATCH
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
            one = Round(plan, number, model, plan.clipping.norm, drawn)
            for client in drawn:
                one.take(client, {"weights": trained(model["weights"], *self.parts[client])})
            model = applied(model, one.release(secret).update)
        return self.accuracy(model["weights"])


def accuracies(folder: Path, rounds: int, repeats: int) -> list[Row]:
    """Accuracy at equal ε: on Flower, in one process, and by Flower's own wrapper."""
    number, per_round, epsilon, delta = 1000, 200, 8.0, 1e-4
    case = (
        f"MNIST, {number} clients × 60 digits, {rounds} rounds of {per_round}, ε = {epsilon:g} for a client, δ = 1e-4"
    )
    metric = "test accuracy, %"
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        note = f"no MNIST files in {folder.name!r}; give --data"
        return [Row(case, metric, 0.0, "the same plan in one process", None, "higher", note)]
    federation = Federation(folder, number, 60)
    plan = Plan.federated(
        clients(number), clients_per_round=per_round, rounds=rounds, clip_norm=1.0, epsilon=epsilon, delta=delta
    )
    unamplified = accounting.calibrate(lambda z: events.Repeated(events.Gaussian(z), rounds), ApproxDP(epsilon, delta))
    strategies = flower("flwr.serverapp.strategy")

    def theirs() -> float:
        inner = strategies.FedAvg(fraction_train=per_round / number, fraction_evaluate=0.0)
        wrapper = strategies.DifferentialPrivacyServerSideFixedClipping(inner, unamplified, 1.0, per_round)
        return federation.on_flower(wrapper, rounds)

    ours = float(np.mean([federation.on_flower(PrivateFedAvg(plan), rounds) for _ in range(repeats)]))
    alone = float(np.mean([federation.in_one_process(plan) for _ in range(repeats)]))
    wrapped = float(np.mean([theirs() for _ in range(repeats)]))
    note = f"means of {repeats}; noise multiplier {plan.noise_multiplier:.3g}"
    other = f"means of {repeats}; its accounting has no amplification: noise multiplier {unamplified:.3g}"
    return [
        Row(case, metric, ours, "the same plan in one process", alone, "higher", note),
        Row(case, metric, ours, f"{FLOWER}, its DP wrapper", wrapped, "higher", other),
    ]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("mnist"), help="folder of MNIST's idx files")
    args = parser.parse_args()
    os.environ.update(FLWR_TELEMETRY_ENABLED="0")
    if importlib.util.find_spec("flwr") is None:
        cases = ("aggregation", "a round on Ray", "accuracy at equal ε")
        rows = [Row(case, "seconds", 0.0, FLOWER, None, "lower", MISSING) for case in cases]
        report(args, "federated", rows, ["flwr"])
        return
    logging.getLogger("flwr").setLevel(logging.ERROR)
    rows = [aggregation(20, 1_000_000, 3) if args.quick else aggregation(100, 10_000_000, 3)]
    rows += accuracies(args.data, 5 if args.quick else 40, 1 if args.quick else 2)
    rows.append(rounds_on_ray(10, 2) if args.quick else rounds_on_ray(100, 5))
    report(args, "federated", rows, ["flwr", "ray", "numpy"])


if __name__ == "__main__":
    main()
