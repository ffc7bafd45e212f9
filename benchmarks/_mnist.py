"""MNIST at ε = 3 by a convolution over scattering features, with shifted copies of each image.

Each image counts as one example: the loss is the mean over its copies, so more copies cost no privacy (De et al. 2022,
arXiv 2204.13650, section 3.2). The settings were chosen on the last 10,000 training images, with models that had seen
only the other 50,000 (`python -m benchmarks.accuracy --part validation`); the test set played no part.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._scattering import scattering
from discreet.learning import Plan, Step

_CHANNELS, _SIDE, _WIDTH, _KERNEL = 81, 7, 32, 3
#: Where the copies of an image are shifted to, in pixels.
_SHIFTS = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
#: Scattering channels in three neighboring angles are normalized together.
_GROUPS = 27


@dataclass(frozen=True)
class Settings:
    """What was chosen by validation.

    Attributes:
        batches: the number of examples divided by the expected batch size.
        steps: the number of steps.
        clip_norm: the clip norm.
        learning_rate: of SGD with momentum 0.9.
        averaged: the share of the iterates, at the end, whose average is the model.
    """

    batches: int = 8
    steps: int = 500
    clip_norm: float = 0.1
    learning_rate: float = 7.0
    averaged: float = 0.4


#: What validation compares: the chosen settings, and others around them.
CANDIDATES = tuple(replace(Settings(), learning_rate=rate) for rate in (4.0, 7.0, 12.0))


class Network(nn.Module):
    """A convolution, tanh (Papernot et al. 2021, arXiv 2007.14191) and a linear layer, on [B, 81, 7, 7]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(_CHANNELS, _WIDTH, _KERNEL)
        self.head = nn.Linear(_WIDTH * (_SIDE - _KERNEL + 1) ** 2, 10)
        nn.init.normal_(self.convolution.weight, std=(_CHANNELS * _KERNEL**2) ** -0.5)
        for zero in (self.convolution.bias, self.head.weight, self.head.bias):
            if zero is not None:
                nn.init.zeros_(zero)

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.head(self.convolution(features).tanh().flatten(1))
        return scores


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean loss over the copies of each image; features are [B, copies, 81, 7, 7]."""
    features, labels = batch
    scores = model(features.flatten(0, 1).float()).unflatten(0, features.shape[:2])
    return F.cross_entropy(scores.transpose(1, 2), labels[:, None].expand(features.shape[:2]), reduction="none").mean(1)


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """Images moved by some pixels; what is moved in is black."""
    padded = F.pad(images, (1, 1, 1, 1))
    return padded[:, 1 - down : 29 - down, 1 - right : 29 - right]


def features(images: Tensor, device: str, *, copies: bool) -> Tensor:
    """Normalized scattering features of the images, [N, copies, 81, 7, 7] in float16."""
    shifts = _SHIFTS if copies else _SHIFTS[:1]
    size = 2000 if device == "cuda" else 10  # ten images fit in a CPU's cache
    pieces = []
    for piece in torch.split(images, size):
        pixels = piece.to(device).float() / 255
        each = [F.group_norm(scattering(shifted(pixels, *shift)), _GROUPS).half() for shift in shifts]
        pieces.append(torch.stack(each, 1))
    return torch.cat(pieces)


def fit(plan: Plan, data: tuple[Tensor, Tensor], settings: Settings) -> Network:
    """Train by `plan`."""
    model = Network().to(data[0].device)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    train_and_average(plan.step(model, loss, optimizer), model, data, settings.averaged)
    return model


def train_and_average(step: Step, model: nn.Module, data: tuple[Tensor, Tensor], share: float) -> None:
    """Take all steps of a plan, and leave the model at the average of the last iterates, which costs nothing."""
    parameters = [parameter.detach() for parameter in model.parameters()]
    average = [torch.zeros_like(parameter) for parameter in parameters]
    begin = int((1 - share) * step.plan.steps)
    for batch in step.plan.batches(data):
        step(batch)
        if batch.step >= begin:
            torch._foreach_lerp_(average, parameters, 1 / (batch.step - begin + 1))
    torch._foreach_copy_(parameters, average)


def accuracy(model: Network, images: Tensor, labels: Tensor) -> float:
    """The share of correct answers on unshifted images, in percent."""
    with torch.no_grad():
        right = [
            int((model(piece[:, 0].float()).argmax(1) == truth).sum())
            for piece, truth in zip(torch.split(images, 1000), torch.split(labels, 1000), strict=True)
        ]
    return 100 * sum(right) / len(labels)


def accuracies(
    train: tuple[Tensor, Tensor], tested: tuple[Tensor, Tensor], settings: Settings, runs: int, device: str
) -> list[float]:
    """The accuracies of some runs at (3, 1e-5), each with noise, batches and weights of its own."""
    examples = len(train[0])
    plan_of = {
        "delta": 1e-5,
        "examples": examples,
        "batch_size": examples // settings.batches,
        "steps": settings.steps,
        "clip_norm": settings.clip_norm,
        "physical_batch_size": min(2000 if device == "cuda" else 500, examples // settings.batches),
    }
    results = []
    for run in range(runs):
        began = time.perf_counter()
        plan = Plan.for_epsilon(3.0, **plan_of)  # type: ignore[arg-type]  # the types of a dict's values are mixed
        results.append(accuracy(fit(plan, train, settings), *tested))
        print(f"  run {run}: {results[-1]:.2f}% in {time.perf_counter() - began:.0f} s", flush=True)
    return results


def read(folder: Path, device: str, count: int, tested: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The first images of the training set with their copies, and those of the test set."""
    from benchmarks.accuracy import _FILES, read_idx

    images, labels, test_images, test_labels = (read_idx(folder, name) for name in _FILES)
    train = features(images[:count], device, copies=True), labels[:count].long().to(device)
    return train, (features(test_images[:tested], device, copies=False), test_labels[:tested].long().to(device))


def validate(folder: Path, device: str) -> list[tuple[Settings, float]]:
    """The accuracy of each candidate on the last sixth of the training set, after training on the rest."""
    (images, labels), _ = read(folder, device, 60_000, 10)
    kept = 50_000
    tested = images[kept:], labels[kept:]
    validated = []
    for settings in CANDIDATES:
        (value,) = accuracies((images[:kept], labels[:kept]), tested, settings, 1, device)
        validated.append((settings, value))
    return validated
