"""Accuracy of private training: MNIST with three kinds of noise, and correlated noise against independent noise.

    python -m benchmarks.accuracy --data DIR [--part all|mnist|noise|correlated|validation] [--device cuda] [--quick]
                                  [--json FILE]

DIR holds the four idx files of MNIST, gzipped or not. Features are fixed wavelets of one image at a time, so they cost
no privacy. The first row trains a convolution and a linear layer on them (`_mnist`), which takes a minute on a GPU and
much longer on two cores; the rows on kinds of noise train one linear layer. "theirs" is the accuracy in percent that
Tramèr & Boneh (2021) report for scattering at ε = 3.

Without MNIST these rows can't be measured, and say so. The rows on correlated noise use the Adult data of the package.
"""

from __future__ import annotations

import gzip
import statistics
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import _correlated, _mnist
from benchmarks._scattering import scattering
from benchmarks._table import Row, arguments, report
from discreet.learning import Plan, pricing

_EPSILON, _DELTA, _EXAMPLES = 3.0, 1e-5, 60_000
_PUBLISHED = 98.7
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(folder: Path, name: str) -> Tensor:
    """One idx file, gzipped or not."""
    packed = folder / f"{name}.gz"
    raw = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    dimensions = raw[3]
    shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def features(images: Tensor) -> Tensor:
    """Scattering features, normalized to mean 0 and variance 1 in each group of three channels, one row per image."""

    def normalized(piece: Tensor) -> Tensor:
        return nn.functional.group_norm(scattering(piece.float() / 255), 27).flatten(1)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ten images fit in a cache; threads split the images, not the arithmetic
    try:
        with ThreadPoolExecutor(threads) as pool:
            return torch.cat(list(pool.map(normalized, torch.split(images, 10))))
    finally:
        torch.set_num_threads(threads)


def fit(plan: Plan, data: tuple[Tensor, Tensor], *, learning_rate: float) -> nn.Linear:
    """Train a linear model by `plan`, and return the average of the last 20% of the iterates, which costs nothing."""
    model = nn.Linear(data[0].shape[1], 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    step = plan.step(model, nn.functional.cross_entropy, optimizer, compile=False)
    _mnist.train_and_average(step, model, data, 0.2)
    return model


def accuracy(model: nn.Linear, data: tuple[Tensor, Tensor]) -> float:
    """The share of correct answers, in percent."""
    with torch.no_grad():
        return 100 * float((model(data[0]).argmax(1) == data[1]).float().mean())


def plan_for(noise: str, examples: int, batch_size: int, epochs: float, clip_norm: float) -> Plan:
    """A plan at (ε, δ) under add/remove, with the least noise of its kind."""
    return Plan.for_epsilon(
        _EPSILON,
        delta=_DELTA,
        examples=examples,
        batch_size=batch_size,
        epochs=epochs,
        clip_norm=clip_norm,
        noise=noise,
        physical_batch_size=1024,
    )


def same_level(plan: Plan, noise: str, clip_norm: float) -> Plan:
    """`plan` with another kind of noise of the same standard deviation on each coordinate."""
    deviation = plan.noise_scale(plan.clipping.norm, 1)
    multiplier = (deviation if noise == "gaussian" else deviation / np.sqrt(2)) / clip_norm
    sampler = plan.sampler
    return Plan.for_noise(
        float(multiplier),
        delta=_DELTA,
        examples=sampler.examples,
        batch_size=sampler.batch_size,
        steps=plan.steps,
        clip_norm=clip_norm,
        noise=noise,
        physical_batch_size=1024,
    )


def best_rows(folder: Path, device: str, quick: bool) -> list[Row]:
    """The mean of five runs at ε = 3, with the settings that validation chose."""
    began = time.perf_counter()
    settings = replace(_mnist.Settings(), steps=10) if quick else _mnist.Settings()
    train, tested = _mnist.read(folder, device, *((2000, 500) if quick else (_EXAMPLES, 10_000)))
    ready = time.perf_counter() - began
    values = _mnist.accuracies(train, tested, settings, 1 if quick else 5, device)
    case = f"MNIST, scattering + convolution, ε = 3, δ = 1e-5, {len(train[0])} examples"
    spread = "runs: " + ", ".join(f"{value:.2f}" for value in values)
    published = "Tramèr & Boneh 2021, published"
    return [
        Row(case, "test accuracy, %, mean", statistics.mean(values), published, _PUBLISHED, "higher", spread),
        Row(case, f"seconds in all, {device}", time.perf_counter() - began, "its features alone", ready, "lower"),
    ]


def noise_rows(folder: Path, quick: bool) -> list[Row]:
    """A linear model: the mean of three seeds at ε = 3, and the three kinds of noise."""
    began = time.perf_counter()
    examples, tested = (4000, 1000) if quick else (_EXAMPLES, 10_000)
    images, labels, test_images, test_labels = (read_idx(folder, name) for name in _FILES)
    train = features(images[:examples]), labels[:examples].long()
    test = features(test_images[:tested]), test_labels[:tested].long()
    ready = time.perf_counter() - began
    batch_size, epochs = examples // 15, 8.0 if quick else 20.0
    clip, rate = 0.1, 8.0
    case = f"MNIST, scattering + linear, ε = 3, δ = 1e-5, {examples} examples"
    main = plan_for("gaussian", examples, batch_size, epochs, clip)
    accuracies = [accuracy(fit(main, train, learning_rate=rate), test) for _ in range(1 if quick else 3)]
    spread = f"{len(accuracies)} seeds: " + ", ".join(f"{value:.2f}" for value in accuracies)
    seconds = time.perf_counter() - began
    published = "Tramèr & Boneh 2021, published"
    rows = [
        Row(case, "test accuracy, %, mean", statistics.mean(accuracies), published, _PUBLISHED, "higher", spread),
        Row(case, "seconds in all, features included", seconds, "its features alone", ready, "lower"),
    ]
    # In d dimensions an L1 norm is up to √d times the L2 norm, so this L1 bound clips about as many examples.
    reach = clip * float(np.sqrt(train[0].shape[1] * 10))
    for noise, norm in (("l2-laplace", clip), ("laplace", reach)):
        plan = plan_for(noise, examples, batch_size, epochs, norm)
        ratio = plan.noise_scale(norm, 1) * np.sqrt(2) / main.noise_scale(clip, 1)
        gradual = rate / max(1.0, float(ratio))  # more noise needs smaller steps
        value = accuracy(fit(plan, train, learning_rate=gradual), test)
        note = f"{ratio:.3g} times the Gaussian's standard deviation"
        rows.append(
            Row(f"{noise}, ε = 3", "test accuracy, %", value, "gaussian", statistics.mean(accuracies), "higher", note)
        )
        level = same_level(main, noise, norm)
        epsilon = pricing.price(level.event, _DELTA, level.relation).epsilon
        rows.append(Row(f"{noise}, same noise level", "ε at δ = 1e-5", epsilon, "gaussian", _EPSILON, "lower"))
    return rows


def main() -> None:
    """Measure, print the table, and write it if asked."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist"), help="folder of MNIST's idx files")
    choices = ("all", "mnist", "noise", "correlated", "validation")
    parser.add_argument("--part", choices=choices, default="all", help="which rows to measure")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.part == "validation":
        for settings, value in _mnist.validate(args.data, args.device):
            print(f"{value:.2f}%  {settings}")
        return
    rows: list[Row] = []
    if args.part in ("all", "mnist", "noise"):
        rows += mnist_rows(args.data, args.part, args.device, args.quick)
    if args.part in ("all", "correlated"):
        rows += _correlated.measure(args.quick)
    report(args, "accuracy", rows, ["torch"])


def mnist_rows(folder: Path, part: str, device: str, quick: bool) -> list[Row]:
    """The rows on MNIST, or one that says that the data is missing."""
    if not any((folder / _FILES[0]).with_suffix(end).exists() for end in ("", ".gz")):
        note = f"no MNIST in {folder}: give --data DIR with the four idx files"
        return [Row("MNIST", "test accuracy, %", 0.0, "Tramèr & Boneh 2021, published", None, "higher", note)]
    best = [] if part == "noise" else best_rows(folder, device, quick)
    return best + ([] if part == "mnist" else noise_rows(folder, quick))


if __name__ == "__main__":
    main()
