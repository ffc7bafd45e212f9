"""The configuration of `discreet pate`: all public facts of a labeling, checked before any data is opened."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from discreet import _check
from discreet.apps.sections import Section
from discreet.apps.training.config import HeldOut, Images, Table, location, read_data, read_held_out
from discreet.errors import InvalidArgument
from discreet.learning.pate import ConfidentVoting, GaussianVoting, LaplaceVoting, Voting

_VOTINGS = ("confident", "gaussian", "laplace")


@dataclass(frozen=True)
class Learner:
    """A model of the zoo, and how it is fitted."""

    kind: str
    hidden: tuple[int, ...]
    epochs: int
    learning_rate: float


@dataclass(frozen=True)
class Questions:
    """Public inputs, of which the first `rows` are asked and at most `answers` are answered."""

    file: Path
    rows: int
    answers: int


@dataclass(frozen=True)
class PateConfig:
    """A complete configuration."""

    data: Table | Images
    questions: Questions
    teachers: int
    teacher: Learner
    workers: int
    voting: Voting
    delta: float
    student: Learner
    rounds: int
    confidence: float
    ledger: str
    account: str
    purpose: str
    folder: Path
    secrets: Path
    evaluation: HeldOut | None


def read_pate_config(path: str | Path, text: str) -> PateConfig:
    """Parse and check a configuration. Relative paths start at the folder of the file."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"CONFIG must be TOML, got {str(path)!r}: {error}") from None
    here = Path(path).parent
    root = Section("the file", tree)
    data = read_data(root.section("data"), here)
    questions, teachers = root.section("questions"), root.section("teachers")
    voting, student = root.section("voting"), root.section("student", optional=True)
    ledger, output = root.section("ledger"), root.section("output", optional=True)
    evaluation = None
    if "evaluate" in tree:
        section = root.section("evaluate")
        evaluation = HeldOut(read_held_out(section, data, here), section.number("epsilon"))
        section.done()
    rows = questions.whole("rows")
    folder = output.text("folder", "labeled")
    config = PateConfig(
        data=data,
        questions=Questions(here / questions.text("file"), rows, questions.whole("answers", default=rows)),
        teachers=teachers.whole("count", at_least=2),
        teacher=_learner(teachers, "logistic"),
        workers=teachers.whole("workers", default=1),
        voting=_voting(voting),
        delta=float(_check.delta(voting.number("delta"), "delta in [voting]")),
        student=_learner(student, "mlp"),
        rounds=student.whole("rounds", default=0, at_least=0),
        confidence=student.number("confidence", 0.95),
        ledger=location(ledger.text("file"), here),
        account=ledger.text("account"),
        purpose=ledger.text("purpose", "labels by PATE"),
        folder=here / folder,
        secrets=here / teachers.text("folder", f"{folder}-secret"),
        evaluation=evaluation,
    )
    for section in (questions, teachers, voting, student, ledger, output, root):
        section.done()
    if config.secrets.resolve() == config.folder.resolve():
        remedy = "what is in [output] may be published, the teachers may not"
        raise _check.fail("folder in [teachers]", "be another than that of [output]", folder, remedy)
    return config


def _learner(section: Section, kind: str) -> Learner:
    return Learner(
        kind=section.text("kind", kind),
        hidden=tuple(section.whole_numbers("hidden", [32])),
        epochs=section.whole("epochs", default=30),
        learning_rate=section.number("learning_rate", 0.01),
    )


def _voting(section: Section) -> Voting:
    kind = _check.one_of("kind in [voting]", section.text("kind", "confident"), _VOTINGS, "these are the votings")
    noise = section.number("noise")
    if kind == "confident":
        return ConfidentVoting(noise, section.number("threshold"), section.number("check_noise"))
    return GaussianVoting(noise) if kind == "gaussian" else LaplaceVoting(noise)
