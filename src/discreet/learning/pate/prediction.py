"""Private prediction: the noisy mean of the teachers' clipped logits, charged by answer.

A vote releases one label. Scores say more: how sure the teachers are, and what else it could be. Each teacher's logits
for a question are a vector of bounded length, so one person, who reached one teacher, moves the sum by at most twice
that length. What is done with released scores (temperature, quantization, calibration) is post-processing, and free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, accounting, events
from discreet.accounting.interval import Interval
from discreet.bounded import Bounded, Sensitivity
from discreet.learning.pate.classifier import softmax
from discreet.learning.pate.teachers import Teachers, apart
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms import Gaussian
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT

#: Steps of the grid in one clip norm: logits are sums of integers.
_STEPS = 1 << 20
#: Larger logits mean the same to a softmax, and squares of these do not overflow.
_LARGEST_LOGIT = 1e6
#: Temperatures that are tried for calibration: from nearly a vote to nearly uniform.
_TEMPERATURES = np.geomspace(0.02, 50, 241)


@dataclass(frozen=True)
class Predictions:
    """Released scores: anything may be done with them at no further cost.

    Attributes:
        classes: the public labels, in the order of the columns of `scores`.
        scores: the noisy mean of clipped logits, one row for each question.
        standard_error: the standard deviation of the noise on each score.
        clip_norm: the largest length of one teacher's logits.
        event: what was run.
        receipt: the ledger's; None without an account.
    """

    classes: tuple[Any, ...]
    scores: NDArray[np.float64] = field(repr=False)
    standard_error: float
    clip_norm: float
    event: events.Event
    receipt: Receipt | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """The class with the highest score, for each question."""
        return tuple(self.classes[index] for index in self.scores.argmax(axis=1))

    def epsilon(self, delta: float) -> Interval:
        """ε of all answers together at `delta`."""
        return accounting.epsilon(self.event, delta)

    def probabilities(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """The softmax of scores over a temperature; higher ones are less sure.

        Guarantee: post-processing of released scores (Dwork & Roth 2014, Proposition 2.1): `event`, and no more.
        """
        return softmax(
            self.scores, float(_check.positive("temperature", temperature, "1 leaves the scores as they are"))
        )

    def quantized(self, bits: int) -> NDArray[np.float64]:
        """Scores rounded to 2^bits − 1 values, symmetric about 0 and up to the clip norm: shorter to send.

        Guarantee: post-processing, as `probabilities`. Rounding takes nothing away from the price either.
        """
        half = (1 << _check.integer("bits", bits, "it is the size of one score", at_most=32)) // 2 - 1
        step = self.clip_norm / max(1, half)
        return np.asarray(np.clip(np.rint(self.scores / step), -half, half) * step)

    def calibrated_temperature(self, labels: ArrayLike) -> float:
        """The temperature at which `probabilities` fit known labels best (least log loss; Guo et al. 2017).

        Args:
            labels: the public labels of all questions that were asked. Labels of private rows are not public.

        Guarantee: post-processing, as `probabilities`, if the labels are public.
        """
        class_index = {name: index for index, name in enumerate(self.classes)}
        truths = np.asarray(labels).tolist()
        if len(truths) != len(self.scores) or any(name not in class_index for name in truths):
            remedy = "one of the classes for each question that was asked"
            raise _check.fail("labels", "be known for all questions", f"{len(truths)} labels", remedy)
        rows = np.arange(len(truths))
        wanted = np.array([class_index[name] for name in truths], dtype=np.intp)
        losses = [-np.log(self.probabilities(t)[rows, wanted] + 1e-300).sum() for t in _TEMPERATURES.tolist()]
        return float(_TEMPERATURES[int(np.argmin(losses))])


class PrivatePredictor:
    """Teachers behind a noisy mean of their logits. Every answer is charged before its noise is drawn.

    Args:
        teachers: from `train_teachers`. Each needs `logits`, `decision_function`, `predict_log_proba` or
            `predict_proba`, as in scikit-learn; one without abstains.
        clip_norm: the largest length of one teacher's logits, after their mean is subtracted; longer ones are scaled.
        noise: the standard deviation of the noise on the sum, in clip norms.
        account: the account to charge; None charges nobody.

    Guarantee:
        Neighbors: those of `train_teachers`. One answer is `events.Gaussian(noise/2)`, because one person replaces one
        vector of length at most `clip_norm` by another. A question is public and may depend on earlier answers. Not
        protected: the teachers, and how long answers take.
    """

    def __init__(self, teachers: Teachers, *, clip_norm: float, noise: float, account: Account | None = None) -> None:
        if not isinstance(teachers, Teachers):
            raise _check.fail("teachers", "be Teachers", type(teachers).__name__, "see discreet.learning.pate")
        teachers.check_account(account)
        self.teachers, self.account = teachers, account
        self._clip = _check.positive("clip_norm", clip_norm, "it is the largest length of one teacher's logits")
        self._mechanism = Gaussian(_check.positive("noise", noise, "it is in clip norms") * self._clip)

    def event(self, questions: int) -> events.Event:
        """What this many answers cost."""
        count = _check.integer("questions", questions, "it is how many are asked", at_least=0)
        return events.Repeated(self._mechanism.event(self._bounded(np.zeros(len(self.teachers.classes)))), count)

    def predict(self, inputs: ArrayLike, *, purpose: str = "scores by PATE") -> Predictions:
        """Scores for public inputs.

        Args:
            inputs: the questions. They must be public.
            purpose: what the scores are for; the ledger records it.

        Guarantee: `event(len(inputs))`, charged first.
        """
        questions = np.asarray(inputs)
        event, count = self.event(len(questions)), len(self.teachers.members)
        receipt = None if self.account is None or not len(questions) else self.account.spend(event, purpose)
        sums = self._sums(questions)
        noisy = [self._mechanism.release(self._bounded(row), relation=ADD_REMOVE).value for row in sums]
        scores = np.array(noisy, dtype=np.float64).reshape(sums.shape) / count
        error = self._mechanism.standard_error(self._bounded(np.zeros(len(self.teachers.classes)))) / count
        return Predictions(self.teachers.classes, scores, error, float(self._clip), event, receipt)

    def _sums(self, questions: NDArray[Any]) -> NDArray[np.int64]:
        """The sum over teachers of clipped logits, on the grid: **not private**."""
        total = np.zeros((len(questions), len(self.teachers.classes)), dtype=np.int64)
        for number, member in enumerate(self.teachers.members):
            logits = _logits(member, questions.copy(), number, self.teachers.classes)
            if logits is not None:
                total += clipped(logits, float(self._clip))
        return total

    def _bounded(self, sums: NDArray[Any]) -> Bounded:
        """One question's sum, with what one person can change: a vector in the ball by another one."""
        size, squared = len(sums), 4 * _STEPS**2
        most = math.isqrt(squared)
        change = Sensitivity(size, min(size * most, math.isqrt(size * squared) + 1), squared, most)
        limits = dict.fromkeys((ADD_REMOVE, REPLACE_ONE, ZERO_OUT), change)
        return Bounded(sums.astype(np.int64), Fraction(self._clip) / _STEPS, limits, "logits of teachers")


def clipped(logits: NDArray[np.float64], clip_norm: float) -> NDArray[np.int64]:
    """Logits without their mean, scaled to length ≤ `clip_norm`, on a grid of `clip_norm`/2^20, one row at a time.

    Coordinates are rounded toward 0, which never lengthens a vector; what floating-point numbers still left too long
    is shortened once more, so the squared length on the grid is ≤ 2^40 exactly. Rows that are no numbers become 0.

    Guarantee: each row of the result has a length of at most 2^20, whatever the logits are.
    """
    complete = np.isfinite(logits).all(axis=1, keepdims=True)
    finite = np.clip(np.where(complete, logits, 0.0), -_LARGEST_LOGIT, _LARGEST_LOGIT)
    centered = finite - finite.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centered, axis=1, keepdims=True)
    scaled = centered * np.minimum(1.0, clip_norm / np.maximum(lengths, 1e-300)) * (_STEPS / clip_norm)
    grid: NDArray[np.int64] = np.trunc(scaled).astype(np.int64)
    while (long := (grid * grid).sum(axis=1) > _STEPS**2).any():
        grid[long] = np.trunc(grid[long] * (1 - 1e-6)).astype(np.int64)
    return grid


def _logits(member: Any, questions: NDArray[Any], number: int, classes: tuple[Any, ...]) -> NDArray[np.float64] | None:
    """One teacher's logits in the order of `classes`; None if it fails, which is a fact about its rows."""
    if member is None:
        return None
    try:
        with apart(number):
            raw = _raw(member, questions)
        own = list(np.asarray(getattr(member, "classes_", getattr(member, "classes", classes))).tolist())
        logits = np.full((len(questions), len(classes)), np.nan)
        for column, name in enumerate(classes):
            if name in own:
                logits[:, column] = raw[:, own.index(name)]
    except Exception:
        return None
    least = np.nanmin(logits, axis=1, keepdims=True) if np.isfinite(logits).any(axis=1).all() else np.nan
    return np.where(np.isnan(logits), least, logits)  # a class that a teacher never saw is its least likely one


def _raw(member: Any, questions: NDArray[Any]) -> NDArray[np.float64]:
    for name in ("logits", "decision_function", "predict_log_proba", "predict_proba"):
        if hasattr(member, name):
            answer = np.asarray(getattr(member, name)(questions), dtype=np.float64)
            break
    else:
        raise TypeError("no scores")
    if name == "predict_proba":
        answer = np.log(np.maximum(answer, 1e-12))
    if answer.ndim == 1:  # a binary decision function: how far on the side of the second class
        answer = np.stack([-answer / 2, answer / 2], axis=1)
    return np.maximum(answer, -_LARGEST_LOGIT)
