"""A torch module with `fit` and `predict`: a teacher or a student that trains without noise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from discreet import _check
from discreet._files import replace_file

#: Rows that are predicted at once.
_ROWS = 4096


class Classifier:
    """Trains a copy of `module` with Adam on cross-entropy. **Not private**: its noise comes from votes, if at all.

    Args:
        module: maps a batch of inputs to one score (logit) for each class. It is copied, and each fit starts from it.
        classes: the labels, in the order of the scores.
        epochs: passes over the rows.
        batch_size: rows in a step.
        learning_rate: that of Adam.
        weight_decay: that of AdamW; a teacher that sees few rows overfits less with some.

    Guarantee: none. A teacher is released through the votes of an `Ensemble`; a student that was fitted to released
    labels is as private as these.
    """

    def __init__(
        self,
        module: nn.Module,
        classes: Any,
        *,
        epochs: int = 20,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        weight_decay: float = 0.01,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise _check.fail("module", "be a torch module", type(module).__name__, "it maps inputs to logits")
        self._start = copy.deepcopy(module)
        self.module = copy.deepcopy(module)
        self.classes = np.array(list(classes))
        self.epochs = _check.integer("epochs", epochs, "it is the number of passes over the rows")
        self.batch_size = _check.integer("batch_size", batch_size, "it is the number of rows in a step")
        self.learning_rate = float(_check.positive("learning_rate", learning_rate, "it is the size of a step"))
        self.weight_decay = float(_check.nonnegative("weight_decay", weight_decay, "0 is none"))

    def fit(self, inputs: ArrayLike, labels: ArrayLike) -> Self:
        """Train from the start on these rows; rows whose label is no class are left out."""
        rows, targets = np.asarray(inputs), np.asarray(labels)
        matches = targets[:, None] == self.classes[None, :]
        kept = matches.any(axis=1)
        given = torch.as_tensor(rows[kept], dtype=torch.float32)
        wanted = torch.as_tensor(matches[kept].argmax(axis=1))
        self.module = copy.deepcopy(self._start)
        self.module.train()
        optimizer = torch.optim.AdamW(self.module.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        for _ in range(self.epochs):
            for batch in torch.split(torch.randperm(len(given)), self.batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.module(given[batch]), wanted[batch]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return self

    def logits(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """One score for each class, in the order of `classes`."""
        rows = torch.as_tensor(np.asarray(inputs), dtype=torch.float32)
        self.module.eval()
        with torch.no_grad():
            pieces: list[Tensor] = [self.module(piece) for piece in torch.split(rows, _ROWS)]
        whole = torch.cat(pieces) if pieces else torch.empty(0, len(self.classes))
        return np.asarray(whole.numpy(), dtype=np.float64)

    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """The most likely class of each row."""
        return np.asarray(self.classes[self.logits(inputs).argmax(axis=1)])

    def predict_proba(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """The probability of each class: the softmax of `logits`."""
        return softmax(self.logits(inputs))

    def save(self, path: Path | str, guarantee: str) -> None:
        """Save the module's state with the guarantee of its labels. `torch.load(path)["model"]` is the state."""
        content = {"model": self.module.state_dict(), "guarantee": guarantee}
        replace_file(Path(path), lambda file: torch.save(content, file))


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Start torch's generators from a seed and restore them afterwards: a student is the same when trained again."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def softmax(logits: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities from scores; a higher temperature makes them more equal."""
    scaled = logits / temperature
    shifted = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
