"""`Ensemble`: asks the teachers, charges before each answer, and returns labels that may be published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, accounting, events
from discreet._files import locked, replace_file
from discreet.accounting.interval import Interval
from discreet.learning._one_draw import charge_key, fresh_token, require_unused
from discreet.learning.pate.teachers import Teachers
from discreet.learning.pate.voting import Voting
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt

#: What may be charged for one key.
_STAGES = ("labels", "check", "votes")
_LOST = "its answers are lost or kept in another folder; its noise can't be drawn again"


@dataclass(frozen=True)
class Answers:
    """Released labels: anything may be done with them, and a student that learns from them costs nothing more.

    Attributes:
        labels: one label for each question; None where the teachers did not agree enough.
        event: what all answers together cost, known before the first vote: as if every question were answered, or as
            many as were declared. The ledger may have charged less, see `Ensemble.ask`.
        receipts: what the ledger was charged; empty without an account, and for answers that were read back.
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
        """ε of all answers together at `delta`, whatever the votes were and however many were answered."""
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
        teachers.check_account(account)
        self.teachers, self.voting, self.account = teachers, voting, account

    def event(self, questions: int, answered: int | None = None) -> events.Event:
        """What it costs to ask `questions` questions, of which at most `answered` are answered (by default all)."""
        return voting_event(self.voting, questions, answered)

    def ask(
        self,
        inputs: ArrayLike,
        *,
        answers: int | None = None,
        purpose: str = "labels by PATE",
        key: str | None = None,
        folder: Any = None,
    ) -> Answers:
        """Label public inputs, one vote each.

        Args:
            inputs: the questions. They must be public: teachers see them, and answers are about them.
            answers: how many questions are answered at most, the first ones that pass the check. All is then charged at
                once, as one event with a tight price, whether that many pass or not. Without it, a `ConfidentVoting`
                charges the checks first, and then the votes of those that passed.
            purpose: what the labels are for; the ledger records it.
            key: a name for these answers. After a crash, the same call returns what was answered; if nothing was
                released yet, a charge with `answers` still counts, and others are lost. Needs `folder`.
            folder: where answers are kept for `key`; a key that was charged is refused in another folder. Don't restore
                it from a copy: one charge pays for one draw.

        Raises:
            BudgetExceeded: the questions do not fit. If the check of a `ConfidentVoting` fits and its votes do not, the
                check stays charged.
        """
        questions = np.asarray(inputs)
        most = len(questions)
        if answers is not None:
            most = min(most, _check.integer("answers", answers, "it is the most questions that are answered"))
        with _Kept.opened(key, folder) as kept:
            event = self.event(len(questions), most)
            facts = {"questions": _digest(questions), "voting": repr(self.voting), "answers": most}
            kept.check(facts)
            if kept.winners is not None:
                return Answers(tuple(self._named(winner) for winner in kept.winners), event)
            if key is not None and kept.token is None:
                require_unused(self.account, key, _STAGES, _LOST)
            receipts = []
            token = kept.token or fresh_token()
            charges = {"labels": event} if answers is not None or self.voting.check_event() is None else {}
            if charges:
                kept.save({"facts": facts, "token": token})  # on disk before the charge: a retry continues with it
            elif len(questions):
                charges = {"check": self.event(len(questions), 0)}
            for stage, charged in charges.items() if len(questions) else ():
                receipts += self._charge(charged, purpose, key, stage, token)
            counts = self.teachers.counts(questions)
            answered = self.voting.check(counts)
            answered[np.flatnonzero(answered)[most:]] = False
            if "check" in charges and answered.any():
                votes = events.Repeated(self.voting.vote_event(), int(answered.sum()))
                receipts += self._charge(votes, purpose, key, "votes", token)
            winners: list[int | None] = [None] * len(questions)
            for index, winner in zip(np.flatnonzero(answered), self.voting.vote(counts[answered]), strict=True):
                winners[index] = int(winner)
            kept.save({"facts": facts, "token": token, "winners": winners})
            return Answers(tuple(self._named(winner) for winner in winners), event, tuple(receipts), counts)

    def _named(self, winner: int | None) -> Any:
        return None if winner is None else self.teachers.classes[winner]

    def _charge(self, event: events.Event, purpose: str, key: str | None, stage: str, token: str) -> list[Receipt]:
        """Charge one stage. A charge that is found again was made by this folder, and no draw of it left."""
        if self.account is None:
            return []
        named = None if key is None else charge_key(key, stage, token)
        return [self.account.spend(event, f"{purpose} ({stage})", named)]


def voting_event(voting: Voting, questions: int, answered: int | None = None) -> events.Event:
    """What it costs to ask `questions` questions, of which at most `answered` are answered (by default all).

    A batch is checked first and then voted on, so its mechanisms come in a fixed order; votes that are not cast are
    votes whose result is thrown away. Hence the price holds however many pass (docs/proofs/votes.md).
    """
    asked = _check.integer("questions", questions, "it is how many are asked", at_least=0)
    given = asked if answered is None else _check.integer("answered", answered, "of those asked", at_least=0)
    check = voting.check_event()
    votes = events.Repeated(voting.vote_event(), given)
    if check is None:
        return votes
    checks = events.Repeated(check, asked)
    return events.Composed((checks, votes)) if given else checks


def _digest(questions: NDArray[Any]) -> str:
    """A fingerprint of public questions."""
    shape = repr((questions.dtype.str, questions.shape)).encode()
    return hashlib.sha256(shape + np.ascontiguousarray(questions).tobytes()).hexdigest()


class _Kept:
    """Answers in a file, under their key: what was released may be read again at no cost."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._content: dict[str, Any] | None = None
        if file is not None and file.exists():
            self._content = json.loads(file.read_text())

    @classmethod
    @contextmanager
    def opened(cls, key: str | None, folder: Any) -> Iterator[_Kept]:
        """The answers of a key, for one process at a time; nothing is kept without a key."""
        if (key is None) != (folder is None):
            raise _check.fail("folder", "be given together with key", folder, "answers are kept there for the key")
        if key is None:
            yield cls(None)
            return
        directory = Path(folder)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = key.encode().hex()
        with locked(directory / f"{name}.lock", f"key must not be in use, and another process asks under {key!r}"):
            yield cls(directory / f"{name}.answers.json")

    @property
    def token(self) -> str | None:
        """The token under which these answers were charged; None if they were not asked for before."""
        return None if self._content is None else self._content.get("token")

    @property
    def winners(self) -> list[int | None] | None:
        """The class of each answer; None if nothing was released."""
        return None if self._content is None else self._content.get("winners")

    def check(self, facts: dict[str, Any]) -> None:
        """Refuse a key that belongs to other questions."""
        if self._content is not None and self._content["facts"] != facts:
            differ = next(name for name, value in facts.items() if self._content["facts"].get(name) != value)
            remedy = "a key belongs to the questions that were asked under it; use another key"
            raise _check.fail("key", f"belong to the same {differ}", "answers to others", remedy)

    def save(self, content: dict[str, Any]) -> None:
        """Replace the file; a crash leaves the old one or the new one."""
        if self._file is not None:
            data = json.dumps(content).encode()
            replace_file(self._file, lambda file: file.write(data))
