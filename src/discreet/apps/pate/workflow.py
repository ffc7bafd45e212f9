"""A labeling from its configuration to a folder: train teachers, charge, vote, train the student, write the files.

Two folders are written. What is in `folder` is private output and public facts, and may be published. What is in
`secrets` belongs to the data's owner: the teachers, the exact votes, and prices that depend on them.
"""

from __future__ import annotations

import csv
import json
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import _check, accounting, codec
from discreet._files import replace_file
from discreet.apps import report as pages
from discreet.apps.pate.config import Learner, PateConfig
from discreet.apps.training.config import Images
from discreet.apps.training.data import load, load_questions, load_with_persons
from discreet.apps.training.workflow import evaluate, make_folder
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import pate, zoo
from discreet.learning.pate import voting_event
from discreet.learning.pate.classifier import repeatable
from discreet.ledger import Account, Ledger
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Person

_INDEPENDENT = "data-independent: holds for all votes; this is what was charged and what may be published"
_DEPENDENT = "data-dependent: computed from the exact votes; secret, not charged, and no promise for a neighbor"
_STUDENT = "The student was trained on public inputs and released labels alone: post-processing, at no further cost."


@dataclass(frozen=True)
class Labeled:
    """What a run may show, and where its secrets are.

    Attributes:
        asked: the number of questions.
        answered: how many of them have a label.
        epsilon: the data-independent ε of all labels.
        delta: the δ at which it is stated.
        evaluations: charged scores of the student.
        files: what may be published.
        secret: ε given the votes: **not private**.
        secret_files: what must not be published.
    """

    asked: int
    answered: int
    epsilon: float
    delta: float
    evaluations: tuple[pages.Evaluation, ...]
    files: tuple[Path, ...]
    secret: pate.DataDependentPrice
    secret_files: tuple[Path, ...]


def label(config: PateConfig, *, progress: bool = False, source: str = "pate.toml") -> Labeled:
    """Label public inputs according to a configuration, and train a student on them.

    Guarantee: that of the questions' event, charged before the first vote, for the account's unit and relation. A run
    that was killed continues with its teachers and is charged once. `config.folder` holds private outputs and public
    facts only. Not protected: `config.secrets`, and how long the run takes.
    """
    if not Path(config.ledger).exists() and "://" not in config.ledger:
        raise InvalidArgument(
            f"file in [ledger] must exist, got {config.ledger!r}: create it with discreet ledger init"
        )
    with Ledger(config.ledger, create=False) as ledger:
        account = _account(ledger, config)
        persons: Any = None
        if isinstance(account.neighbors.unit, Person):
            inputs, labels, persons = _of_persons(config, account.neighbors.unit)
        else:
            inputs, labels = load(config.data)
        questions = _questions(config, inputs.shape[1:])
        classes = config.data.classes if isinstance(config.data, Images) else len(config.data.classes)
        held_out = None if config.evaluation is None else load(config.evaluation.data)
        folder, secrets = make_folder(config.folder), _secret_folder(config.secrets)
        key = _run_key(secrets)
        seed = int(key.rpartition("-")[2], 16)  # a run that is repeated has the same student
        teacher, student = (
            _built(model, inputs.shape[1:], classes, seed) for model in (config.teacher, config.student)
        )
        if not (secrets / "answers").exists():  # else it was charged already, or will be refused where it is charged
            _require_room(account, config, len(questions))
        with zoo.one_thread():
            teachers = pate.train_teachers(
                teacher,
                inputs,
                labels,
                teachers=config.teachers,
                classes=range(classes),
                persons=persons,
                folder=secrets / "teachers",
                workers=config.workers,
                progress=progress,
            )
            ensemble = pate.Ensemble(teachers, config.voting, account=account)
            answers = ensemble.ask(
                questions,
                answers=config.questions.answers,
                purpose=config.purpose,
                key=key,
                folder=secrets / "answers",
            )
            # Read back, and asked again: the votes are secret, so they are not stored with the answers.
            answers = replace(answers, counts=teachers.counts(questions))
            _write_labels(folder / "labels.csv", answers, config)
            with repeatable(seed):
                pate.train_student(student, questions, answers, rounds=config.rounds, confidence=config.confidence)
        secret = pate.data_dependent(answers, config.voting, config.delta)
        guarantee = f"({secret.data_independent:.4g}, {config.delta:g})-DP, {account.neighbors}, for all votes"
        student.save(folder / "model.pt", guarantee)
        scores = _scores(account, config, student, held_out, secrets)
        statement = _statement(config, answers, secret, account)
        (folder / "labels.json").write_text(json.dumps(statement, indent=1, ensure_ascii=False), encoding="utf-8")
        pate.plot_answers(answers, config.voting, config.delta).savefig(folder / "answers.png", dpi=120)
        page = _page(account, config, guarantee, scores, source)
    (folder / "report.html").write_text(pages.render(page), encoding="utf-8")
    (folder / "statement.json").write_text(page.to_json(), encoding="utf-8")
    hidden = _write_secrets(secrets, answers, config, secret)
    names = ("model.pt", "labels.csv", "labels.json", "answers.png", "report.html", "statement.json")
    answered = int(answers.answered.sum())
    return Labeled(
        len(questions),
        answered,
        secret.data_independent,
        config.delta,
        tuple(scores),
        tuple(folder / name for name in names),
        secret,
        hidden,
    )


def _account(ledger: Ledger, config: PateConfig) -> Account:
    names = [account.name for account in ledger.accounts()]
    if config.account not in names:
        remedy = f"it has {', '.join(names)}" if names else "open it with discreet ledger init"
        raise _check.fail("account in [ledger]", "be an account of the ledger", config.account, remedy)
    account = ledger.account(config.account)
    if isinstance(account.neighbors.unit, Person) and config.evaluation is not None:
        remedy = "omit [evaluate], or evaluate from Python with persons=…"
        raise _check.fail("account", "protect rows to be charged for [evaluate]", str(account.neighbors), remedy)
    return account


def _of_persons(config: PateConfig, unit: Person) -> tuple[Any, Any, list[Any]]:
    """The data with the persons that the account protects: all rows of one person go to one teacher."""
    if isinstance(config.data, Images) or unit.column is None:
        remedy = "open an account that protects rows, or give a table with the column of the persons"
        raise _check.fail("account", "protect what the data can tell apart", str(unit), remedy)
    return load_with_persons(config.data, unit.column)


def _questions(config: PateConfig, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    questions = load_questions(config.data, config.questions.file)
    if questions.shape[1:] != shape:
        raise InvalidArgument(
            f"file in [questions] must hold inputs of shape {shape} like [data], got {questions.shape[1:]}"
        )
    if len(questions) < config.questions.rows:
        remedy = "the questions are public: give the number that there is"
        raise _check.fail("rows in [questions]", f"be at most {len(questions)}", config.questions.rows, remedy)
    return questions[: config.questions.rows]


def _built(learner: Learner, shape: tuple[int, ...], classes: int, seed: int) -> pate.Classifier:
    with repeatable(seed):
        module = zoo.build(learner.kind, shape, classes, learner.hidden)
    return pate.Classifier(module, range(classes), epochs=learner.epochs, learning_rate=learner.learning_rate)


def _secret_folder(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        reason = error.strerror or "it cannot be made"
        raise InvalidArgument(f"folder in [teachers] must be writable, got {str(path)!r}: {reason}") from None
    return path


def _run_key(secrets: Path) -> str:
    """The name of this run in the ledger: one for each folder of secrets."""
    file = secrets / "run.json"
    if not file.exists():
        content = json.dumps({"key": f"pate-{entropy.fresh_key()[:8].hex()}"}).encode()
        replace_file(file, lambda out: out.write(content))
    return str(json.loads(file.read_text())["key"])


def _require_room(account: Account, config: PateConfig, asked: int) -> None:
    """Refuse what does not fit before teachers are trained for it. The charge itself comes later."""
    event = voting_event(config.voting, asked, min(asked, config.questions.answers))
    if not account.would_afford(event):
        price = accounting.epsilon(event, config.delta).upper
        raise BudgetExceeded(
            f"{asked} questions with at most {config.questions.answers} answers cost ε = {price:.4g} at "
            f"δ = {config.delta:g}, and {account.name} has {account.remaining()} left: ask fewer, or add more noise"
        )


def _write_labels(path: Path, answers: pate.Answers, config: PateConfig) -> None:
    names = range(config.data.classes) if isinstance(config.data, Images) else config.data.classes
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "label"))
        for number, winner in enumerate(answers.labels):
            writer.writerow((number, "" if winner is None else names[winner]))


def _scores(
    account: Account, config: PateConfig, student: pate.Classifier, held_out: Any, secrets: Path
) -> list[pages.Evaluation]:
    """The accuracy on other people: charged and drawn once, however often the run is repeated."""
    if held_out is None or config.evaluation is None:
        return []
    facts = repr(config.evaluation)
    file = secrets / "evaluation.json"
    if file.exists() and (kept := json.loads(file.read_text()))["of"] == facts:
        return [pages.Evaluation(**kept["score"])]
    try:
        score = evaluate(account, held_out[1], student.predict(held_out[0]), config.evaluation.epsilon)
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"the labels are charged and the student is saved in {config.folder}, its evaluation is refused: {error}"
        ) from error
    content = json.dumps({"of": facts, "score": asdict(score)}).encode()
    replace_file(file, lambda out: out.write(content))
    return [score]


def _statement(
    config: PateConfig, answers: pate.Answers, price: pate.DataDependentPrice, account: Account
) -> dict[str, Any]:
    """What the labels promise. Everything in it may be published."""
    return {
        "purpose": config.purpose,
        "protected": str(account.neighbors),
        "teachers": config.teachers,
        "voting": repr(config.voting),
        "questions": len(answers.labels),
        "answered": int(answers.answered.sum()),
        "event": codec.encode(answers.event),
        "epsilon": price.data_independent,
        "delta": price.delta,
        "price": _INDEPENDENT,
        "student": _STUDENT,
    }


def _page(
    account: Account, config: PateConfig, guarantee: str, scores: list[pages.Evaluation], source: str
) -> pages.Report:
    words = f"{config.teachers} teachers, {config.questions.rows} questions, {config.voting!r}. {_STUDENT}"
    training = pages.Training("Student of PATE", words, (), (), guarantee, tuple(scores))
    return pages.collect(
        account,
        title=f"Privacy report: {config.purpose}",
        trainings=[training],
        commands=[f"discreet pate {shlex.quote(source)}"],
    )


def _write_secrets(
    secrets: Path, answers: pate.Answers, config: PateConfig, price: pate.DataDependentPrice
) -> tuple[Path, ...]:
    content = {
        "secret": "for the data's owner only",
        "epsilon_for_these_votes": price.epsilon,
        "its_meaning": _DEPENDENT,
        "epsilon_for_all_votes": price.data_independent,
        "meaning_of_that": _INDEPENDENT,
        "delta": price.delta,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False).encode()
    replace_file(secrets / "prices.json", lambda file: file.write(text))
    figure = pate.plot_votes(answers, config.voting, config.delta)
    replace_file(secrets / "votes.png", lambda file: figure.savefig(file, dpi=120, format="png"))
    return secrets / "prices.json", secrets / "votes.png"
