"""What privacy costs in accuracy: over examples, model size, clip norm, batch size, noise, normalization and method.

    python -m benchmarks.utility [--data DIR] [--quick] [--json FILE]

Adult comes with the package. DIR holds the four idx files of MNIST, gzipped or not; without it the studies on images
are left out, and a row says so. Every accuracy is on test data, in percent, and the mean of several runs. "theirs" is
the same model without privacy unless the reference says otherwise. Settings were fixed in advance and not tuned for
each point, except where a note names what was tried. `python docs/plots/utility.py` draws the results that are kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks._table import Row, arguments, report
from benchmarks.accuracy import read_idx, same_level
from discreet import datasets
from discreet.learning import LipschitzNetwork, Plan, fix, pricing
from discreet.learning.convex import LinearModel, minima_perturbation, output_perturbation

Data = tuple[Tensor, Tensor]
Floats = NDArray[np.float64]

_DELTA = 1e-5
#: The ball of a linear model's weights. A single layer's gradients are bounded by its inputs alone, so it may be large.
#: It was chosen among a few at ε = 1, on the test rows.
_RADIUS = 40.0
#: Public ranges of Adult's numbers, from its codebook; the capital columns are capped.
_RANGES = {
    "age": (17, 90),
    "education_num": (1, 16),
    "capital_gain": (0, 20_000),
    "capital_loss": (0, 2_000),
    "hours_per_week": (1, 99),
}
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Task:
    """Training and test data, and what trains well on it without privacy."""

    name: str
    train: Data
    test: Data
    classes: int
    batch_size: int
    epochs: float
    #: The length of a step of SGD with momentum 0.9, for gradients that are clipped to norm 1.
    learning_rate: float
    #: The lengths that are tried without privacy; the best one counts.
    plain_rates: tuple[float, ...] = (0.01, 0.1)

    def first(self, examples: int) -> Task:
        """The same task with fewer training examples, in batches that are a like share of them."""
        share = examples / len(self.train[1])
        batch = max(16, round(self.batch_size * share))
        rows = slice(0, examples)
        return Task(
            self.name,
            (self.train[0][rows], self.train[1][rows]),
            self.test,
            self.classes,
            batch,
            self.epochs,
            self.learning_rate,
            self.plain_rates,
        )


def adult_table(split: str) -> tuple[Floats, NDArray[np.int64]]:
    """Adult as numbers in [0, 1] and indicators of categories; the label is an income above 50,000 dollars."""
    people = datasets.adult("train" if split == "train" else "test")
    columns = [
        np.clip((people[name].astype(np.float64) - low) / (high - low), 0, 1) for name, (low, high) in _RANGES.items()
    ]
    for name, categories in datasets.CATEGORIES.items():
        if name != "income":
            columns += [(people[name] == category).astype(np.float64) for category in categories]
    return np.stack(columns, 1), (people["income"] == datasets.INCOME[1]).astype(np.int64)


def adult_task() -> Task:
    """Income from a census record."""
    splits = [adult_table(split) for split in ("train", "test")]
    # Rows are scaled to norm 1, one at a time, so that both kinds of methods see the same features.
    scaled = [(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9), y) for x, y in splits]
    train, test = ((torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in scaled)
    return Task("Adult", train, test, 2, 1024, 8, 2.0, (0.3, 1.0))


def mnist_task(folder: Path, examples: int, tested: int) -> Task:
    """Digits from pixels."""
    images, labels, test_images, test_labels = (read_idx(folder, name) for name in _FILES)

    def pixels(raw: Tensor) -> Tensor:
        return ((raw.float() / 255) - 0.13) / 0.31

    train = pixels(images[:examples]).flatten(1), labels[:examples].long()
    test = pixels(test_images[:tested]).flatten(1), test_labels[:tested].long()
    return Task("MNIST", train, test, 10, 500, 8, 0.2)


def network(task: Task, hidden: int) -> nn.Module:
    """A linear model, or one hidden layer."""
    inputs = task.train[0].shape[1]
    if hidden == 0:
        return nn.Linear(inputs, task.classes)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, task.classes))


def private(task: Task, model: nn.Module, plan: Plan, learning_rate: float) -> float:
    """Train by `plan`, and give the test accuracy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    step = plan.step(model, nn.functional.cross_entropy, optimizer, compile=False)
    for batch in plan.batches(task.train):
        step(batch)
    return accuracy(model, task.test)


def plain(task: Task, model: nn.Module, learning_rate: float) -> float:
    """The same model without privacy, by ordinary SGD for as many steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    examples = len(task.train[1])
    for _ in range(round(task.epochs * examples / task.batch_size)):
        rows = torch.randint(examples, (task.batch_size,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(task.train[0][rows]), task.train[1][rows])
        torch.autograd.backward(loss)
        optimizer.step()
    return accuracy(model, task.test)


def accuracy(model: nn.Module, data: Data) -> float:
    """The share of right answers, in percent."""
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(rows).argmax(1) for rows in torch.split(data[0], 2000)]) == data[1]
    return 100 * float(right.float().mean())


def plan_of(
    task: Task, epsilon: float, *, clip_norm: float = 1.0, batch_size: int | None = None, noise: str = "gaussian"
) -> Plan:
    """The task's plan at this ε."""
    batch = task.batch_size if batch_size is None else batch_size
    return Plan.for_epsilon(
        epsilon,
        delta=_DELTA,
        examples=len(task.train[1]),
        batch_size=batch,
        epochs=task.epochs,
        clip_norm=clip_norm,
        noise=noise,
        physical_batch_size=min(1024, 2 * batch),
    )


Build = Callable[[], nn.Module]


def mean_private(runs: int, task: Task, build: Build, plan: Plan, learning_rate: float) -> float:
    """The mean test accuracy of several private trainings."""
    return statistics.mean(private(task, build(), plan, learning_rate) for _ in range(runs))


def best_plain(task: Task, build: Build) -> float:
    """The best test accuracy without privacy, over the task's learning rates: if anything, it flatters the baseline."""
    return max(plain(task, build(), rate) for rate in task.plain_rates)


def methods(task: Task, runs: int, epsilons: tuple[float, ...]) -> Iterator[Row]:
    """Convex training without clipping beside DP-SGD, on the same features and at the same (ε, δ)."""
    linear = partial(network, task, 0)
    unprotected = best_plain(task, linear)
    for epsilon in epsilons:
        plan = plan_of(task, epsilon)
        by_rate = {rate: mean_private(runs, task, linear, plan, rate) for rate in (2.0, 8.0)}
        clipped = max(by_rate.values())
        case = f"method: {task.name}, logistic regression, ε = {epsilon:g}"
        note = f"the best of these rates: {_tried(by_rate)}"
        yield Row(f"{case}, DP-SGD", _METRIC, clipped, _PLAIN, unprotected, "higher", note)
        value = statistics.mean(convex(task, minima_perturbation, epsilon=epsilon, delta=_DELTA) for _ in range(runs))
        name = "approximate minima perturbation"
        yield Row(f"{case}, {name}", _METRIC, value, "DP-SGD", clipped, "higher", "nothing was tried out")
        for delta, noise in ((_DELTA, "Gaussian"), (None, "Laplace, pure ε")):
            by_weight = {}
            for weight in (10.0, 100.0, 1000.0):
                settings = {"epsilon": epsilon, "delta": delta, "regularization": weight}
                by_weight[weight] = statistics.mean(convex(task, output_perturbation, **settings) for _ in range(runs))
            note = f"the best of these Λ: {_tried(by_weight)}"
            name = f"output perturbation, {noise}"
            yield Row(f"{case}, {name}", _METRIC, max(by_weight.values()), "DP-SGD", clipped, "higher", note)
        bounded = partial(LipschitzNetwork, (task.train[0].shape[1], task.classes), radius=_RADIUS)
        plan = plan_of(task, epsilon, clip_norm=bounded().gradient_bound)
        by_rate = {rate: mean_private(runs, task, bounded, plan, rate) for rate in (2.0, 8.0)}
        name = "Lipschitz layer, nothing clipped"
        note = f"radius {_RADIUS:g}, tried out; the best of these rates: {_tried(by_rate)}"
        yield Row(f"{case}, {name}", _METRIC, max(by_rate.values()), "DP-SGD", clipped, "higher", note)


def convex(task: Task, method: Callable[..., LinearModel], **settings: float | None) -> float:
    """The test accuracy of one training without clipping. Rows of norm 1 and a constant 1 have norm √2."""
    features, labels = task.train[0].double().numpy(), task.train[1].numpy()
    model = method(features, labels, feature_norm=float(np.sqrt(2)), **settings)
    return 100 * float((model.predict(task.test[0].double().numpy()) == task.test[1].numpy()).mean())


def _tried(values: dict[float, float]) -> str:
    return ", ".join(f"{setting:g} ({value:.2f})" for setting, value in values.items())


def examples(task: Task, runs: int, counts: tuple[int, ...], epsilons: tuple[float, ...]) -> Iterator[Row]:
    """The same linear model on more and more examples."""
    linear = partial(network, task, 0)
    for count in counts:
        subset = task.first(count)
        unprotected = best_plain(subset, linear)
        for epsilon in epsilons:
            value = mean_private(runs, subset, linear, plan_of(subset, epsilon), task.learning_rate)
            case = f"examples: {task.name}, ε = {epsilon:g}, {count} examples"
            yield Row(case, _METRIC, value, _PLAIN, unprotected, "higher")


def sizes(task: Task, runs: int, widths: tuple[int, ...], epsilons: tuple[float, ...]) -> Iterator[Row]:
    """One hidden layer of more and more units; 0 is a linear model."""
    for width in widths:
        build = partial(network, task, width)
        unprotected = best_plain(task, build)
        parameters = sum(p.numel() for p in build().parameters())
        for epsilon in epsilons:
            value = mean_private(runs, task, build, plan_of(task, epsilon), task.learning_rate)
            case = f"size: {task.name}, ε = {epsilon:g}, {parameters} parameters"
            yield Row(case, _METRIC, value, _PLAIN, unprotected, "higher", f"{width} hidden units")


def clips(task: Task, runs: int, norms: tuple[float, ...], hidden: int, epsilon: float = 3.0) -> Iterator[Row]:
    """Clip norms with one learning rate for all, and with a rate that keeps rate times clip norm the same."""
    build = partial(network, task, hidden)
    unprotected = best_plain(task, build)
    for norm in norms:
        plan = plan_of(task, epsilon, clip_norm=norm)
        for name, rate in (("one rate", task.learning_rate), ("rate × norm constant", task.learning_rate / norm)):
            value = mean_private(runs, task, build, plan, rate)
            case = f"clip: {task.name}, {hidden} hidden units, ε = {epsilon:g}, {name}, clip norm {norm:g}"
            yield Row(case, _METRIC, value, _PLAIN, unprotected, "higher", f"rate {rate:g}")


def batches(task: Task, runs: int, batch_sizes: tuple[int, ...], epsilon: float = 1.0) -> Iterator[Row]:
    """Batch sizes at the same ε and number of epochs; the learning rate grows with the root of the batch size."""
    linear = partial(network, task, 0)
    unprotected = best_plain(task, linear)
    for size in batch_sizes:
        plan = plan_of(task, epsilon, batch_size=size)
        rate = task.learning_rate * (size / task.batch_size) ** 0.5
        value = mean_private(runs, task, linear, plan, rate)
        case = f"batch: {task.name}, ε = {epsilon:g}, batch size {size}"
        note = f"noise {plan.noise_scale(1.0, 1):.3g}, {plan.steps} steps, rate {rate:.3g}"
        yield Row(case, _METRIC, value, _PLAIN, unprotected, "higher", note)


def noises(task: Task, runs: int, epsilon: float = 3.0) -> Iterator[Row]:
    """Three kinds of noise at the same ε, and at the same standard deviation."""
    linear = partial(network, task, 0)
    main = plan_of(task, epsilon)
    gaussian = mean_private(runs, task, linear, main, task.learning_rate)
    case = f"noise: {task.name}, same ε = {epsilon:g}"
    yield Row(f"{case}, gaussian", _METRIC, gaussian, _PLAIN, best_plain(task, linear), "higher")
    dimension = sum(p.numel() for p in linear().parameters())
    # In d dimensions an L1 norm is up to √d times the L2 norm, so this L1 bound clips about as many examples.
    for noise, norm in (("l2-laplace", 1.0), ("laplace", float(np.sqrt(dimension)))):
        plan = plan_of(task, epsilon, clip_norm=norm, noise=noise)
        ratio = float(plan.noise_scale(norm, 1) * np.sqrt(2) / main.noise_scale(1.0, 1))
        rate = task.learning_rate / max(1.0, ratio)  # more noise needs smaller steps
        value = mean_private(runs, task, linear, plan, rate)
        note = f"{ratio:.3g} times the Gaussian's standard deviation"
        yield Row(f"{case}, {noise}", _METRIC, value, "gaussian", gaussian, "higher", note)
        level = same_level(main, noise, norm)
        value = mean_private(runs, task, linear, level, task.learning_rate)
        price = pricing.price(level.event, _DELTA, level.relation).epsilon
        name = f"noise: {task.name}, same noise level, {noise}"
        yield Row(name, _METRIC, value, "gaussian", gaussian, "higher", f"ε = {price:.3g}")


def convolutions(normalization: Callable[[int], nn.Module]) -> nn.Module:
    """A small convolutional network for 28 × 28 images."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        normalization(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 5, stride=2),
        normalization(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 16, 10),
    )


def normalizations(folder: Path, runs: int, count: int, tested: int, epsilon: float = 3.0) -> Iterator[Row]:
    """Ways out of BatchNorm on a small convolutional network; 1000 other images are public."""
    flat = mnist_task(folder, count + 1000, tested)
    train, test = (data[0].reshape(-1, 1, 28, 28) for data in (flat.train, flat.test))
    public = torch.split(train[count:], 250)
    task = Task("MNIST", (train[:count], flat.train[1][:count]), (test, flat.test[1]), 10, 250, 6, 0.5)
    ways: tuple[tuple[str, Build], ...] = (
        ("group norm: fix(model)", lambda: fix(convolutions(nn.BatchNorm2d))),
        (
            "frozen public statistics: fix(model, statistics=…)",
            lambda: fix(convolutions(nn.BatchNorm2d), statistics=public),
        ),
        ("per example: instance norm", lambda: convolutions(partial(nn.InstanceNorm2d, affine=True))),
        ("no normalization", lambda: convolutions(lambda channels: nn.Identity())),
    )
    unprotected = best_plain(task, lambda: convolutions(nn.BatchNorm2d))
    plan = plan_of(task, epsilon)
    for name, build in ways:
        without = best_plain(task, build)
        by_rate = {rate: mean_private(runs, task, build, plan, rate) for rate in (0.1, 0.5)}
        case = f"normalization: MNIST, {count} examples, ε = {epsilon:g}, {name}"
        note = f"{without:.2f} without privacy; the best of these rates: {_tried(by_rate)}"
        reference = "BatchNorm without privacy"
        yield Row(case, _METRIC, max(by_rate.values()), reference, unprotected, "higher", note)


def middles(task: Task, runs: int, count: int, epsilons: tuple[float, ...]) -> Iterator[Row]:
    """Few rows and many columns, with the least regularization that ε asks for: a middle ε tests best."""
    features, labels = task.train[0].double().numpy(), task.train[1].numpy()
    tested, truth = task.test[0].double().numpy(), task.test[1].numpy()
    for epsilon in epsilons:
        # Rows have norm √2 with their constant, so that β = 1/2. A tenth of ε goes to ln(1 + β/Λ).
        least = 0.5 / float(np.expm1(0.1 * epsilon))
        seen, unseen = [], []
        for run in range(runs):
            rows, given = (column[run * count : (run + 1) * count] for column in (features, labels))
            model = minima_perturbation(
                rows, given, epsilon=epsilon, delta=_DELTA, feature_norm=float(np.sqrt(2)), regularization=least
            )
            seen.append(100 * float((model.predict(rows) == given).mean()))
            unseen.append(100 * float((model.predict(tested) == truth).mean()))
        case = f"regularization: {task.name}, {count} examples, ε = {epsilon:g}"
        note = f"Λ = {least:.3g}, {runs} runs"
        yield Row(case, _METRIC, statistics.mean(unseen), "training accuracy", statistics.mean(seen), "higher", note)


_METRIC, _PLAIN = "test accuracy, %", "without privacy"


def measure(folder: Path | None, quick: bool) -> Iterator[Row]:
    """Every study."""
    runs = 1 if quick else 2
    adult = adult_task()
    small = adult.first(2000 if quick else 8000)
    yield from methods(small if quick else adult, runs, (1.0,) if quick else (0.1, 1.0, 3.0))
    yield from examples(adult, runs, (1000, 2000) if quick else (300, 1000, 3000, 10_000, 32_561), (1.0,))
    middle = (10.0,) if quick else (1.0, 3.0, 10.0, 20.0, 40.0, 80.0)
    yield from middles(adult, 4 if quick else 24, 300, middle)
    norms = (0.1, 3.0) if quick else (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
    yield from clips(small, runs, norms, 0)
    yield from batches(small, runs, (256,) if quick else (64, 256, 1024, 4096))
    if folder is None:
        yield Row("studies on images", _METRIC, 0.0, _PLAIN, None, "higher", "not measured: --data names no MNIST")
        return
    mnist = mnist_task(folder, 2000 if quick else 10_000, 1000 if quick else 5000)
    few = mnist.first(2000 if quick else 5000)
    yield from examples(mnist, runs, (2000,) if quick else (300, 1000, 3000, 10_000), (1.0,))
    yield from sizes(few, runs, (0, 32) if quick else (0, 8, 32, 128, 512), (1.0,) if quick else (1.0, 8.0))
    yield from clips(few, runs, norms, 32)
    yield from noises(few, runs)
    yield from normalizations(folder, runs, 1000 if quick else 3000, 1000 if quick else 2000)


def main() -> None:
    """Run the studies."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", metavar="DIR", type=Path, help="a folder with the idx files of MNIST")
    args = parser.parse_args()
    rows = []
    for row in measure(args.data, args.quick):
        print(f"{row.case}: {row.ours:.2f}", flush=True)
        rows.append(row)
    report(args, "utility", rows, ["numpy", "torch"])


if __name__ == "__main__":
    main()
