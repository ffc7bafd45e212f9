"""Small models that train well with clipped, noisy gradients, and the training helpers of the command line.

Bounded activations keep gradients close to the clip norm (Papernot et al. 2021, "Tempered sigmoid activations"), so
these models use tanh. None of them normalizes over a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from discreet import _check
from discreet.learning.clipping import Flat
from discreet.learning.engine import Engine

MODELS = ("logistic", "mlp", "cnn")
OPTIMIZERS = ("adam", "sgd")


def build(kind: str, shape: Sequence[int], classes: int, hidden: Sequence[int] = (32,)) -> nn.Module:
    """A model for examples of this shape: "logistic", "mlp" or, for (channels, height, width), "cnn".

    >>> build("mlp", (10,), 2, hidden=(4,))[1]
    Linear(in_features=10, out_features=4, bias=True)
    """
    _check.one_of("kind", kind, MODELS, "these are the available models")
    _check.integer("classes", classes, "a label is one of several", at_least=2)
    for size in (*shape, *hidden):
        _check.integer("size", size, "it is the number of features or hidden units")
    if kind == "cnn":
        return _cnn(tuple(shape), classes)
    sizes = [math.prod(shape), *(hidden if kind == "mlp" else ())]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


def _cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions and a hidden layer: the small model of Tramèr & Boneh 2021 (arXiv 2011.11660), Table 8."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        remedy = "a cnn takes images of at least 16 × 16; use mlp or logistic for tables"
        raise _check.fail("shape", "be (channels, height, width)", shape, remedy)
    body = nn.Sequential(
        nn.Conv2d(shape[0], 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, classes))


def optimizer(kind: str, model: nn.Module, learning_rate: float) -> Optimizer:
    """An ordinary optimizer over a model's parameters: "adam", or "sgd" with momentum 0.9."""
    _check.one_of("optimizer", kind, OPTIMIZERS, "these are the available optimizers")
    rate = float(_check.positive("learning_rate", learning_rate, "it is the size of a step"))
    return Adam(model.parameters(), lr=rate) if kind == "adam" else SGD(model.parameters(), lr=rate, momentum=0.9)


#: The loss of all these classifiers. Training uses it per example.
loss = functional.cross_entropy


def predict(model: nn.Module, inputs: NDArray[Any], batch_size: int = 4096) -> NDArray[np.int64]:
    """The most likely class of each row of `inputs`.

    Guarantee: none. Predictions about people are facts about them: release them through a query and a mechanism.
    """
    was_training = model.training
    model.eval()
    with torch.no_grad():
        batches = [
            model(torch.as_tensor(inputs[start : start + batch_size])).argmax(1).numpy()
            for start in range(0, len(inputs), batch_size)
        ]
    model.train(was_training)
    return np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run small models on one thread: their operations are so short that synchronizing threads costs more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def after_steps(optimizer: Optimizer, steps: Collection[int], act: Callable[[int], None]) -> None:
    """Call `act` with the step's number after each of these steps of an optimizer; the first step is 1.

    Guarantee: the model is then the output of that many private steps. What `act` reveals about other people is a
    separate release.
    """
    done = 0

    def count(*_: Any) -> None:
        nonlocal done
        done += 1
        if done in steps:
            act(done)

    optimizer.register_step_post_hook(count)


def rehearse(model: nn.Module, shape: Sequence[int], classes: int) -> str:
    """How each parameter is handled in a private step, from a run on random examples. Raises if none is possible."""
    for size in shape:
        _check.integer("shape", size, "it is the size of one example, such as 1,28,28")
    _check.integer("classes", classes, "a label is one of several", at_least=2)
    rows = 4
    batch = (torch.randn(rows, *shape), torch.randint(classes, (rows,)))
    engine = Engine(model, loss, Flat(1.0), compile=False)
    engine(batch, torch.ones(rows, dtype=torch.bool), 1.0)
    return str(engine.report)
