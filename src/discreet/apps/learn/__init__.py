"""Exercises: a story, questions with computed answers, hints and a chart each; `discreet learn` asks them."""

from discreet.apps.learn.basics import DILEMMA, HOMOGENEITY, ODDS, POLL, SALARY
from discreet.apps.learn.budgets import BUG, MODELS, PARALLEL
from discreet.apps.learn.exercise import Chart, Exercise, ExerciseQuestion, Mistake, OfferedAnswer, Reply
from discreet.apps.learn.networks import BATCHNORM, MICROBATCH
from discreet.apps.learn.progress import Progress, default_path
from discreet.apps.learn.session import play

#: All exercises, in the order in which to take them.
EXERCISES: tuple[Exercise, ...] = (
    ODDS,
    HOMOGENEITY,
    SALARY,
    DILEMMA,
    POLL,
    PARALLEL,
    BUG,
    MODELS,
    MICROBATCH,
    BATCHNORM,
)

__all__ = [
    "BATCHNORM",
    "BUG",
    "DILEMMA",
    "EXERCISES",
    "HOMOGENEITY",
    "MICROBATCH",
    "MODELS",
    "ODDS",
    "PARALLEL",
    "POLL",
    "SALARY",
    "Chart",
    "Exercise",
    "ExerciseQuestion",
    "Mistake",
    "OfferedAnswer",
    "Progress",
    "Reply",
    "default_path",
    "play",
]
