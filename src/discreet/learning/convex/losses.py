"""Convex losses φ(s; y) of a linear score s = θ·x, with the constants that privacy needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check

Floats = NDArray[np.float64]


class Loss(ABC):
    """A convex loss of a linear score, with a bounded slope and curvature. Abstract."""

    @property
    @abstractmethod
    def slope(self) -> Fraction:
        """The largest |φ′|."""

    @property
    @abstractmethod
    def curvature(self) -> Fraction:
        """The largest φ″."""

    @property
    @abstractmethod
    def pull(self) -> Fraction:
        """The largest −φ′(s)·s. It bounds how far the minimizer can lie from 0."""

    @abstractmethod
    def targets(self, labels: ArrayLike) -> Floats:
        """Labels as numbers. A total function: no label raises, whatever it is."""

    @abstractmethod
    def value(self, scores: Floats, targets: Floats) -> Floats:
        """φ(s; y) of each row."""

    @abstractmethod
    def first(self, scores: Floats, targets: Floats) -> Floats:
        """φ′(s; y) of each row, within ±`slope`."""

    @abstractmethod
    def second(self, scores: Floats, targets: Floats) -> Floats:
        """φ″(s; y) of each row, within [0, `curvature`]; either limit where φ′ has a kink."""

    @abstractmethod
    def predictions(self, scores: Floats) -> Any:
        """What the scores predict, in terms of the labels."""


class _TwoClasses(Loss):
    """Labels 0 and 1 become targets −1 and 1. A label that is neither counts as 0."""

    def targets(self, labels: ArrayLike) -> Floats:
        given = np.asarray(labels)
        return np.where(given == 1, 1.0, -1.0).astype(np.float64).reshape(given.shape)

    def predictions(self, scores: Floats) -> NDArray[np.int64]:
        return (scores > 0).astype(np.int64)


@dataclass(frozen=True)
class Logistic(_TwoClasses):
    """Logistic loss ln(1 + e^{−ys}): |φ′| ≤ 1 and φ″ ≤ 1/4."""

    @property
    def slope(self) -> Fraction:
        """1."""
        return Fraction(1)

    @property
    def curvature(self) -> Fraction:
        """1/4."""
        return Fraction(1, 4)

    @property
    def pull(self) -> Fraction:
        """0.28: the largest s/(1 + e^s) is 0.2785."""
        return Fraction(28, 100)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(np.logaddexp(0.0, -targets * scores))

    def first(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-targets * special.expit(-targets * scores))

    def second(self, scores: Floats, targets: Floats) -> Floats:
        share = special.expit(scores)
        return np.asarray(share * (1 - share))


@dataclass(frozen=True)
class SmoothHinge(_TwoClasses):
    """A hinge loss whose corner is a parabola of this width on either side (Chaudhuri, Monteleoni & Sarwate 2011).

    |φ′| ≤ 1 and φ″ ≤ 1/(2·width).
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        exact = _check.positive("width", self.width, "it is half the length of the rounded corner; 0.5 is usual")
        if not Fraction(1, 1000) <= exact <= 1:
            raise _check.fail("width", "lie in [0.001, 1]", self.width, "it is half the length of the rounded corner")

    @property
    def slope(self) -> Fraction:
        """1."""
        return Fraction(1)

    @property
    def curvature(self) -> Fraction:
        """1/(2·width)."""
        return 1 / (2 * Fraction(self.width))

    @property
    def pull(self) -> Fraction:
        """1 + width: the loss is flat from there on."""
        return 1 + Fraction(self.width)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        gap = 1 + self.width - targets * scores
        return np.where(gap <= 0, 0.0, np.where(gap >= 2 * self.width, gap - self.width, gap**2 / (4 * self.width)))

    def first(self, scores: Floats, targets: Floats) -> Floats:
        gap = 1 + self.width - targets * scores
        return np.asarray(-targets * np.clip(gap / (2 * self.width), 0.0, 1.0))

    def second(self, scores: Floats, targets: Floats) -> Floats:
        gap = 1 + self.width - targets * scores
        return np.where((gap > 0) & (gap < 2 * self.width), 1 / (2 * self.width), 0.0)


@dataclass(frozen=True)
class Huber(Loss):
    """Huber's loss of a residual s − y, for regression: a parabola within ±threshold, straight beyond.

    |φ′| ≤ threshold and φ″ ≤ 1. Targets are clamped to `bounds`; a missing one counts as the middle.
    """

    bounds: tuple[float, float]
    threshold: float = 1.0

    def __post_init__(self) -> None:
        _check.bounds(self.bounds)
        _check.positive("threshold", self.threshold, "it is the residual from which on the loss is straight")

    @property
    def slope(self) -> Fraction:
        """The threshold."""
        return Fraction(self.threshold)

    @property
    def curvature(self) -> Fraction:
        """1."""
        return Fraction(1)

    @property
    def pull(self) -> Fraction:
        """threshold·max|y|: the loss pulls a score away from 0 only while it is between 0 and y."""
        return Fraction(self.threshold) * max(abs(Fraction(end)) for end in self.bounds)

    def targets(self, labels: ArrayLike) -> Floats:
        low, high = (float(end) for end in self.bounds)
        given = np.asarray(labels, dtype=np.float64)
        return np.clip(np.where(np.isnan(given), (low + high) / 2, given), low, high)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        size = np.abs(scores - targets)
        return np.where(size <= self.threshold, size**2 / 2, self.threshold * (size - self.threshold / 2))

    def first(self, scores: Floats, targets: Floats) -> Floats:
        return np.clip(scores - targets, -self.threshold, self.threshold)

    def second(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(np.abs(scores - targets) < self.threshold, 1.0, 0.0)

    def predictions(self, scores: Floats) -> Floats:
        low, high = (float(end) for end in self.bounds)
        return np.clip(scores, low, high)
