"""Speed and accuracy of private federated rounds, against Flower's: `python -m benchmarks.federated --data FOLDER`.

- Aggregation: what the server does with the replies of a round, against FedAvg's weighted mean, which protects nobody.
- Rounds: Flower's simulation on Ray from the first to the last round, in turn with plain FedAvg.
- Accuracy: 1000 clients with 60 digits each, grouped by the thickness of their strokes as writers would be, and a
  linear model. The same plan runs in one process without Flower; Flower's own wrapper gets the noise that the same ε
  needs by its accounting, which knows no amplification. Without MNIST's files, the rows say so.
- Real runs: 100 clients with 600 digits each on Ray, and two hospitals with 30,000 digits each on two SuperNodes in
  processes of their own, which train with local noise. Both stand beside the same plan in one process.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _hospitals
from benchmarks._federation import Federation, LocalGrid, reply, simulate
from benchmarks._table import Row, arguments, in_turn, report
from discreet import accounting, events
from discreet.guarantees import ApproxDP
from discreet.learning import Plan
from discreet.learning.federated import PrivateFedAvg, clients
from discreet.learning.federated._flower import flower

FLOWER = "Flower 1.41"
MISSING = "flwr is not installed"


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
    for index, message in enumerate(first):
        arrays = app.ArrayRecord({"weights": shared[index % len(shared)]})
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

    seconds, their_seconds = in_turn(ours, lambda: theirs.aggregate_train(1, replies), repeats)
    note = "ours clips each update and adds noise, and includes drawing the round; theirs is FedAvg without privacy"
    return Row(case, metric, seconds, FLOWER, their_seconds, "lower", note)


# --- rounds on Ray


def rounds_on_ray(number: int, rounds: int, repeats: int) -> Row:
    """Seconds per round with and without privacy, in turn in one simulation."""
    app = flower("flwr.app")
    taken: list[float] = []
    client_app, server_app = flower("flwr.clientapp").ClientApp(), flower("flwr.serverapp").ServerApp()

    def train(message: Any, context: Any) -> Any:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        return reply(message, {name: array + np.float32(0.01) for name, array in arrays.items()})

    client_app.train()(train)

    def main(grid: Any, context: Any) -> None:
        start = app.ArrayRecord({"weights": app.Array(np.zeros(7850, np.float32))})
        plan = Plan.federated(clients(number), rate=0.5, rounds=rounds, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)

        def plain() -> object:
            strategy = flower("flwr.serverapp.strategy").FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
            return strategy.start(grid, start, num_rounds=rounds)

        while len(list(grid.get_node_ids())) < number:
            time.sleep(0.1)
        # The first calls, which are not measured, start the workers of Ray.
        taken.extend(in_turn(lambda: PrivateFedAvg(plan).start(grid, start), plain, repeats))

    server_app.main()(main)
    simulate(server_app, client_app, number)
    case = f"a round of {number} clients on Ray, half of them drawn, 7850 parameters"
    note = "theirs is FedAvg without privacy; ours includes the price of the plan after each round"
    return Row(case, "seconds per round", taken[0] / rounds, FLOWER, taken[1] / rounds, "lower", note)


# --- accuracy


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
    their_note = f"means of {repeats}; its accounting has no amplification: noise multiplier {unamplified:.3g}"
    return [
        Row(case, metric, ours, "the same plan in one process", alone, "higher", note),
        Row(case, metric, ours, f"{FLOWER}, its DP wrapper", wrapped, "higher", their_note),
    ]


# --- real runs


def real_runs(folder: Path, rounds: int, repeats: int) -> list[Row]:
    """Accuracy on Ray and over the network, beside the same plans in one process."""
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        return []
    number, epsilon, delta = 100, 8.0, 1e-3
    plan = Plan.federated(clients(number), rate=0.5, rounds=rounds, clip_norm=1.0, epsilon=epsilon, delta=delta)
    federation = Federation(folder, number, 600)
    ours = float(np.mean([federation.on_ray(plan, folder.resolve()) for _ in range(repeats)]))
    alone = float(np.mean([federation.in_one_process(plan) for _ in range(repeats)]))
    case = f"MNIST on Ray, {number} clients × 600 digits, {rounds} rounds of 50, ε = {epsilon:g} for a client, δ = 1e-3"
    metric, same = "test accuracy, %", "the same plan in one process"
    note = f"means of {repeats}; noise multiplier {plan.noise_multiplier:.3g}"
    first = Row(case, metric, ours, same, alone, "higher", note)
    networked, spent = _hospitals.over_the_network(folder)
    case = "MNIST, a SuperLink and 2 SuperNodes over the network, local DP-SGD, ε = 2 for a digit, δ = 1e-5"
    note = f"one run each; ε of what was charged at the sites: {', '.join(f'{each:.4g}' for each in spent)}"
    return [first, Row(case, metric, networked, same, _hospitals.in_one_process(folder), "higher", note)]


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
    rows += real_runs(args.data, 2 if args.quick else 20, 1 if args.quick else 2)
    rows.append(rounds_on_ray(10, 2, 1) if args.quick else rounds_on_ray(100, 5, 5))
    report(args, "federated", rows, ["flwr", "ray", "numpy"])


if __name__ == "__main__":
    main()
