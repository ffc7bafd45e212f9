"""Digits for PATE: features, teachers that learn from a few hundred of them, and a student that also sees the rest.

Teachers are linear, in closed form. The student spreads released labels along a graph of near neighbors of the public
images, and fits a linear model to the result: public inputs and released labels alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

#: How far labels spread: the weight of the neighbors against an image's own label, and the number of steps.
_REACH, _STEPS = 0.95, 100


@dataclass(frozen=True)
class Digits:
    """Private images with labels, public ones without, and a test set."""

    name: str
    private: Floats
    labels: Labels
    public: Floats
    public_labels: Labels
    test: Floats
    test_labels: Labels


def mnist(folder: Path, private: int, public: int, tested: int) -> Digits:
    """MNIST in scattering features; public images are the last of the training set."""
    from benchmarks.accuracy import _FILES, features, read_idx

    images, labels, test_images, test_labels = (read_idx(folder, name) for name in _FILES)
    chosen = torch.cat([torch.arange(private), torch.arange(len(images) - public, len(images))])
    rows = features(images[chosen]).numpy()
    truth = labels[chosen].long().numpy()
    tests = features(test_images[:tested]).numpy()
    return Digits(
        f"MNIST, {private} private images",
        rows[:private],
        truth[:private],
        rows[private:],
        truth[private:],
        tests,
        test_labels[:tested].long().numpy(),
    )


def small() -> Digits:
    """The 1,797 digits of scikit-learn, 8 × 8 pixels."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]  # it has no types

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    rows = ((pixels[order] - 8) / 4).astype(np.float32)
    truth = labels[order].astype(np.int64)
    return Digits(
        "scikit-learn's digits, 1000 private images",
        rows[:1000],
        truth[:1000],
        rows[1000:1500],
        truth[1000:1500],
        rows[1500:],
        truth[1500:],
    )


class Linear:
    """Ridge regression on one-hot labels, in closed form."""

    def __init__(self, classes: int = 10, penalty: float = 0.1) -> None:
        self.classes, self.penalty = np.arange(classes), penalty

    def fit(self, inputs: Floats, labels: Labels) -> Self:
        """Solve for the weights through the rows, which are fewer than the features."""
        rows = np.asarray(inputs, dtype=np.float32).reshape(len(inputs), -1)
        return self.fit_targets(rows, np.eye(len(self.classes), dtype=np.float32)[labels])

    def fit_targets(self, rows: Floats, targets: Floats) -> Self:
        """Solve for targets that need not be 0 or 1."""
        self._center, self._share = rows.mean(0), targets.mean(0)
        centered = rows - self._center
        gram = centered @ centered.T if len(rows) <= rows.shape[1] else centered.T @ centered
        gram[np.diag_indices_from(gram)] += self.penalty * float(np.trace(gram)) / len(gram)
        right = targets - self._share
        if len(rows) <= rows.shape[1]:
            self._weights = centered.T @ np.linalg.solve(gram, right)
        else:
            self._weights = np.linalg.solve(gram, centered.T @ right)
        return self

    def logits(self, inputs: Floats) -> Floats:
        """One score for each class."""
        rows = np.asarray(inputs, dtype=np.float32).reshape(len(inputs), -1)
        return np.asarray((rows - self._center) @ self._weights + self._share, dtype=np.float32)

    def predict(self, inputs: Floats) -> Labels:
        """The class with the highest score."""
        return np.asarray(self.classes[self.logits(inputs).argmax(1)], dtype=np.int64)


class Spread:
    """A student of public images. Its questions are their numbers: it knows the images, answered or not."""

    def __init__(self, public: Floats, *, neighbors: int = 10) -> None:
        self._public = public
        graph = _graph(public, neighbors)
        root = sparse.diags(1 / np.sqrt(np.maximum(np.asarray(graph.sum(1)).ravel(), 1e-12)))
        self._walk = root @ graph @ root
        self._model = Linear(penalty=0.02)

    def fit(self, numbers: Labels, labels: Labels) -> Self:
        """Spread labels along the graph (Zhou et al. 2003), then fit a linear model to all images.

        Classes are balanced first. A wrong label is outvoted by its neighborhood, and a wrong neighborhood by the fit.
        """
        given = np.zeros((len(self._public), 10))
        given[numbers, labels] = 1.0
        given /= np.maximum(given.sum(0), 1)
        spread = given
        for _ in range(_STEPS):
            spread = _REACH * (self._walk @ spread) + (1 - _REACH) * given
        self._model.fit(self._public, spread.argmax(1))
        return self

    def predict(self, inputs: Floats) -> Labels:
        """The class of new images."""
        return self._model.predict(inputs)


def _graph(rows: Floats, neighbors: int) -> Any:
    """Each row's nearest ones by the cosine of the features, symmetric."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    nearest, weights = [], []
    for start in range(0, len(unit), 1000):
        near = unit[start : start + 1000] @ unit.T
        near[np.arange(len(near)), np.arange(start, start + len(near))] = -np.inf
        best = np.argpartition(-near, neighbors, axis=1)[:, :neighbors]
        nearest.append(best)
        weights.append(np.take_along_axis(near, best, 1))
    columns, values = np.concatenate(nearest), np.maximum(np.concatenate(weights), 0) ** 8
    index = np.repeat(np.arange(len(rows)), neighbors)
    graph = sparse.csr_matrix((values.ravel(), (index, columns.ravel())), shape=(len(rows), len(rows)))
    return (graph + graph.T) / 2


def spread_out(public: Floats, count: int) -> Labels:
    """All public images in an order in which the first `count` cover the others (greedy k-means++).

    It looks at public images alone, through a random projection to a few dimensions.
    """
    generator = np.random.default_rng(0)
    flat = public @ generator.standard_normal((public.shape[1], 64)).astype(np.float32)
    unit = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    first = int(generator.integers(len(unit)))
    chosen, distance = [first], np.maximum(1 - unit @ unit[first], 0)
    while len(chosen) < min(count, len(unit)):
        trial = generator.choice(len(unit), 8, p=distance / distance.sum())
        left = np.minimum(distance[:, None], np.maximum(1 - unit @ unit[trial].T, 0))
        best = int(left.sum(0).argmin())
        chosen.append(int(trial[best]))
        distance = left[:, best]
        distance[chosen] = 0.0  # rounding must not choose one twice
    rest = np.setdiff1d(generator.permutation(len(unit)), chosen, assume_unique=True)
    return np.concatenate([np.array(chosen, dtype=np.int64), generator.permutation(rest)])
