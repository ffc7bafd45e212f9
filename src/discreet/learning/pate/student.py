"""The student: learns from public inputs and released labels, which is post-processing and costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _check
from discreet.learning.pate._answers import Answers


def train_student(
    estimator: Any, inputs: ArrayLike, answers: Answers, *, rounds: int = 0, confidence: float = 0.95
) -> Any:
    """Fit `estimator` on the public inputs that were answered; with `rounds`, also on its own sure guesses.

    Args:
        estimator: anything with `fit` and `predict`, as in scikit-learn; it is fitted in place and returned.
        inputs: the questions, in the order in which they were asked.
        answers: what `Ensemble.ask` released.
        rounds: how often the student labels the unanswered inputs that it is sure of and learns from them as well
            (self-training). Needs `predict_proba`.
        confidence: how sure it must be.

    Guarantee: that of `answers.event` and no more, since only public inputs and released labels are used.
    """
    rows, answered = np.asarray(inputs), answers.answered
    if len(rows) != len(answers.labels):
        raise _check.fail(
            "inputs", "be the questions that were answered", len(rows), f"{len(answers.labels)} were asked"
        )
    again = _check.integer("rounds", rounds, "0 learns from the answers alone", at_least=0)
    if again and not hasattr(estimator, "predict_proba"):
        raise _check.fail(
            "rounds", "be 0 for an estimator without predict_proba", rounds, "it can't say how sure it is"
        )
    if not answered.any():
        raise _check.fail("answers", "hold a label", "none", "ask more questions, or lower the threshold of the voting")
    given = np.array([label for label in answers.labels if label is not None])
    estimator.fit(rows[answered], given)
    rest = rows[~answered]
    for _ in range(again if len(rest) else 0):
        sure = np.asarray(estimator.predict_proba(rest)).max(axis=1) >= float(confidence)
        if not sure.any():
            break
        guesses = np.asarray(estimator.predict(rest[sure]))
        estimator.fit(np.concatenate([rows[answered], rest[sure]]), np.concatenate([given, guesses]))
    return estimator
