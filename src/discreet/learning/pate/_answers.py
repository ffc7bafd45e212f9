"""`Ensemble`: asks the teachers, charges before each answer, and returns labels that may be published."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, accounting, codec, events
from discreet._files import replace_file
from discreet.accounting.interval import Interval
from discreet.errors import InvalidArgument
from discreet.learning.pate.teachers import Teachers
from discreet.learning.pate.voting import Voting
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt


@dataclass(frozen=True)
class Answers:
    """Released labels: anything may be done with them, and a student that learns from them costs nothing more.

    Attributes:
        labels: one label for each question; None where the teachers did not agree enough.
        event: what was run, which holds for all votes.
        receipts: what the ledger was charged; empty without an account.
        counts: the votes: **not private**, for the owner of the data and `data_dependent`.
    """

    labels: tuple[Any, ...]
    event: events.Event
    receipts: tuple[Receipt, ...] = ()
    counts: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which questions have a label."""
        return np.array([label is not None for label in self.labels], dtype=np.bool_)

    def epsilon(self, delta: float) -> Interval:
        """ε of all answers together at `delta`, whatever the votes were."""
        return accounting.epsilon(self.event, delta)


class Ensemble:
    """Teachers behind a noisy vote. Every answer is charged before its noise is drawn.

    Args:
        teachers: from `train_teachers`.
        voting: `GaussianVoting`, `ConfidentVoting` or `LaplaceVoting`.
        account: the account to charge; None charges nobody.

    Guarantee:
        Neighbors: those of `train_teachers`, a person or a row, add/remove or replace-one. A question is public, and
        may depend on earlier answers. Questions that are asked cost `voting.check_event`, those that are answered also
        `voting.vote_event`; both prices hold for all votes. Not protected: `counts`, and how long answers take.
    """

    def __init__(self, teachers: Teachers, voting: Voting, *, account: Account | None = None) -> None:
        for name, value, kind in (("teachers", teachers, Teachers), ("voting", voting, Voting)):
            if not isinstance(value, kind):
                raise _check.fail(name, f"be a {kind.__name__}", type(value).__name__, "see discreet.learning.pate")
        self.teachers, self.voting, self.account = teachers, voting, account

    def event(self, questions: int, answered: int | None = None) -> events.Event:
        """What it costs to ask so many questions, of which so many are answered (by default all)."""
        asked = _check.integer("questions", questions, "it is how many are asked", at_least=0)
        given = asked if answered is None else _check.integer("answered", answered, "of those asked", at_least=0)
        check = self.voting.check_event()
        votes = events.Repeated(self.voting.vote_event(), given)
        return votes if check is None else events.Composed((events.Repeated(check, asked), votes))

    def ask(
        self, inputs: ArrayLike, *, purpose: str = "labels by PATE", key: str | None = None, folder: Any = None
    ) -> Answers:
        """Label public inputs, one vote each.

        Args:
            inputs: the questions. They must be public: teachers see them, and answers are about them.
            purpose: what the labels are for; the ledger records it.
            key: a name for these answers. After a crash, the same call returns what was answered, or charges nothing
                twice and says that the answers were lost. Needs `folder`.
            folder: where answers are kept for `key`.

        Raises:
            BudgetExceeded: the questions do not fit. If the check of a `ConfidentVoting` fits and its votes do not, the
                check stays charged.
        """
        kept = _Kept(key, folder)
        before = kept.read()
        if before is not None:
            return before
        questions = np.asarray(inputs)
        checking, receipts = self.voting.check_event(), []
        if checking is not None and len(questions):
            receipts += self._charge(events.Repeated(checking, len(questions)), purpose, key, "check")
        counts = self.teachers.counts(questions)
        answered = self.voting.check(counts)
        if answered.any():
            receipts += self._charge(
                events.Repeated(self.voting.vote_event(), int(answered.sum())), purpose, key, "votes"
            )
        labels: list[Any] = [None] * len(questions)
        for place, winner in zip(np.flatnonzero(answered), self.voting.vote(counts[answered]), strict=True):
            labels[place] = self.teachers.classes[winner]
        event = self.event(len(questions), int(answered.sum()))
        answers = Answers(tuple(labels), event, tuple(receipts), counts)
        kept.write(answers)
        return answers

    def _charge(self, event: events.Event, purpose: str, key: str | None, stage: str) -> list[Receipt]:
        if self.account is None:
            return []
        receipt = self.account.spend(event, f"{purpose} ({stage})", None if key is None else f"{key}/{stage}")
        if receipt.replayed:
            raise InvalidArgument(
                f"key must be new, got {key!r}: its {stage} was charged, and the answers were lost in a crash; its "
                "noise can't be drawn again, so ask under another key"
            )
        return [receipt]


class _Kept:
    """Answers in a file, under their key: what was released may be read again at no cost."""

    def __init__(self, key: str | None, folder: Any) -> None:
        if (key is None) != (folder is None):
            raise _check.fail("folder", "be given together with key", folder, "answers are kept there for the key")
        self._file = None if key is None else Path(folder) / f"{key.encode().hex()}.answers.json"

    def read(self) -> Answers | None:
        if self._file is None or not self._file.exists():
            return None
        content = json.loads(self._file.read_text())
        return Answers(tuple(content["labels"]), codec.decode(content["event"]))

    def write(self, answers: Answers) -> None:
        if self._file is None:
            return
        content = json.dumps({"labels": answers.labels, "event": codec.encode(answers.event)}).encode()
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._file, lambda file: file.write(content))
