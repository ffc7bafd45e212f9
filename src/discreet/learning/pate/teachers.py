"""Teachers: one estimator for each shard of the private data. They are secret; only noisy votes leave."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet._files import replace_file
from discreet.errors import InvalidArgument, MissingExtra
from discreet.learning.pate.classifier import Classifier
from discreet.learning.pate.shards import identified, listed, shards_of
from discreet.ledger.account import Account
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Client, Person

#: Generated rows per class on which an estimator is tried before it sees private rows.
_TRIAL_ROWS = 4
_CLASSES_REMEDY = "list the public labels; labels that are read from the data would reveal rare ones"


@dataclass(frozen=True)
class Teachers:
    """Trained teachers: **not private**. Keep them, and ask them through an `Ensemble`.

    Attributes:
        classes: the public labels, in the order of the counts.
        members: one estimator for each shard; None for a shard that could not be learned.
        by_person: whether all rows of a person are in one shard; otherwise each row has a shard of its own.
    """

    classes: tuple[Any, ...]
    members: tuple[Any, ...]
    by_person: bool = False

    def __repr__(self) -> str:
        return f"Teachers({len(self.members)} of them, secret; classes {self.classes})"

    def check_account(self, account: Account | None) -> None:
        """Refuse an account whose unit these shards do not keep together."""
        unit = None if account is None else account.neighbors.unit
        if isinstance(unit, Client) or (isinstance(unit, Person) and not self.by_person):
            remedy = "give train_teachers(persons=…), or open the account with unit=dp.rows()"
            raise _check.fail("account", "protect what one shard holds", str(unit), remedy)

    def counts(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """How many teachers vote for each class, one row for each public input: **not private**.

        A teacher that fails, or predicts what is no class, abstains. It must not stop the others: a failure is a fact
        about the people in its shard.
        """
        questions = np.asarray(inputs)
        counts = np.zeros((len(questions), len(self.classes)), dtype=np.int64)
        for number, member in enumerate(self.members):
            copied = questions.copy()  # predict may write into what it gets
            counts += _votes(member, copied, number, self.classes)
        return counts


def train_teachers(
    estimator: Any,
    inputs: ArrayLike,
    labels: ArrayLike,
    *,
    teachers: int,
    classes: Sequence[Any],
    persons: ArrayLike | None = None,
    folder: Path | str | None = None,
    workers: int = 1,
    progress: bool = True,
) -> Teachers:
    """Train one copy of `estimator` on each of `teachers` disjoint shards of the data.

    Args:
        estimator: anything with `fit(inputs, labels)` and `predict(inputs)`, as in scikit-learn; a torch module, which
            becomes a `Classifier`; or a function of the teacher's number that makes one.
        inputs: the private inputs, one row each.
        labels: the private labels.
        teachers: how many; more teachers allow more noise per vote, and see fewer rows each.
        classes: the public labels that teachers vote for.
        persons: each row's person, whose rows all go to one teacher; by default every row is a person. Rows without a
            person (None, NaN, empty text) are left out.
        folder: where teachers are saved as they finish, so that a run that was killed continues with the same data.
            Secret, like them.
        workers: processes that train side by side.
        progress: whether to draw a progress bar, for the owner of the data.

    Guarantee:
        Which teacher sees a row depends on its person and a secret key alone, so one person (without `persons`, one
        row) changes one teacher. Nothing is released, and nothing is charged. What fails on a shard makes its teacher
        abstain, and is not reported; what fails on generated rows of the same shape is an error, before any training.
        Not protected: the number of rows, their shape and type, how long training takes, and files in `folder`.
    """
    count = _check.integer("teachers", teachers, "each is trained on its own shard", at_least=2)
    names = _classes(classes)
    rows, targets = np.asarray(inputs), np.asarray(labels)
    if len(rows) != len(targets):
        raise _check.fail("labels", "have one entry for each input", len(targets), f"there are {len(rows)} inputs")
    make = _maker(estimator, names)
    _try(make(0), rows, names)
    stored = None if folder is None else _Folder(Path(folder), count, names)
    key = entropy.fresh_key() if stored is None else stored.key()
    shard = _shards(persons, len(rows), count, key)
    if stored is not None:
        stored.check_data(key, rows, targets, shard)
    members: dict[int, Any] = {} if stored is None else stored.finished()
    jobs = (
        (i, make(i), rows[shard == i], targets[shard == i], entropy.derived(key, "teacher", i, size=8))
        for i in range(count)
        if i not in members
    )
    with _bar(progress, count, len(members)) as advance:
        for number, member in _trained(jobs, workers):
            members[number] = member
            if stored is not None:
                stored.save(number, member)
            advance()
    return Teachers(names, tuple(members[i] for i in range(count)), persons is not None)


def _maker(estimator: Any, classes: tuple[Any, ...]) -> Callable[[int], Any]:
    """A function that makes the estimator of a teacher, given its number."""
    if isinstance(estimator, torch.nn.Module):
        wrapped = Classifier(estimator, classes)
        return lambda _: copy.deepcopy(wrapped)
    if callable(estimator) and not hasattr(estimator, "fit"):
        return cast(Callable[[int], Any], estimator)
    return lambda _: copy.deepcopy(estimator)


def _shards(persons: ArrayLike | None, rows: int, count: int, key: bytes) -> NDArray[np.int64]:
    """The shard of each row; -1 for a row without a person, which no teacher sees."""
    if persons is None:
        return shards_of(np.arange(rows), count, key)
    has_person = identified(persons)
    if len(has_person) != rows:
        raise _check.fail("persons", "have one entry for each input", len(has_person), f"there are {rows} inputs")
    shard = np.full(rows, -1, dtype=np.int64)
    shard[has_person] = shards_of(
        [person for person, kept in zip(listed(persons), has_person, strict=True) if kept], count, key
    )
    return shard


def _classes(classes: Sequence[Any]) -> tuple[Any, ...]:
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in classes)
    if len(names) < 2 or len(set(names)) != len(names) or None in names:
        raise _check.fail("classes", "be at least two different labels", names, _CLASSES_REMEDY)
    return names


def _try(estimator: Any, rows: NDArray[Any], classes: tuple[Any, ...]) -> None:
    """Fit and predict generated rows of the same shape and type: errors that have nothing to do with the data."""
    size = _TRIAL_ROWS * len(classes)
    made = np.resize(np.linspace(0, 1, 7), (size, *rows.shape[1:])).astype(rows.dtype)
    try:
        estimator.fit(made, np.resize(np.array(classes), size))
        guesses = np.asarray(estimator.predict(made))
    except Exception as error:
        raise InvalidArgument(
            f"estimator must fit and predict rows like those of inputs, got {type(error).__name__} on generated ones: "
            f"{error}"
        ) from error
    if guesses.shape != (size,):
        remedy = "predict must return one label for each input"
        raise _check.fail("estimator", "predict labels", f"an array of shape {guesses.shape}", remedy)


def _trained(jobs: Iterator[tuple[Any, ...]], workers: int) -> Iterator[tuple[int, Any]]:
    if _check.integer("workers", workers, "it is the number of processes", at_least=1) == 1:
        for number, *job in jobs:
            yield number, _fit(*job)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        numbers = {pool.submit(_fit, *job): number for number, *job in jobs}
        for done in as_completed(numbers):
            yield numbers[done], done.result()


def _fit(estimator: Any, rows: NDArray[Any], targets: NDArray[Any], seed: bytes) -> Any:
    try:
        with apart(int.from_bytes(seed, "little")):
            estimator.fit(rows, targets)
    except Exception:
        return None  # this teacher abstains: what went wrong is a fact about its rows
    return estimator


def _votes(member: Any, questions: NDArray[Any], number: int, classes: tuple[Any, ...]) -> NDArray[np.int64]:
    """One teacher's votes: for each question one class at most, whatever it predicts."""
    none = np.zeros((len(questions), len(classes)), dtype=np.int64)
    if member is None:
        return none
    try:
        with apart(number):
            predicted = np.asarray(member.predict(questions))
            if predicted.shape != (len(questions),):
                return none
            matches = np.stack([np.asarray(predicted == label, dtype=np.bool_) for label in classes], axis=1)
    except Exception:
        return none
    return np.asarray(matches & (np.cumsum(matches, axis=1) == 1), dtype=np.int64)


@contextmanager
def apart(seed: int) -> Iterator[None]:
    """Run one teacher's code: it shares no random numbers with others, and its warnings are facts about its rows."""
    with entropy.own_global_generators(seed), torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield


class _Folder:
    """Finished teachers on disk, and the key of the shards. Only its owner can read it."""

    def __init__(self, path: Path, teachers: int, classes: tuple[Any, ...]) -> None:
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._facts = {"teachers": teachers, "classes": [repr(name) for name in classes]}

    def key(self) -> bytes:
        """The key of this folder's shards: a run that continues must divide the rows as before."""
        file = self._path / "shards.json"
        if not file.exists():
            content = {**self._facts, "key": entropy.fresh_key().hex()}
            replace_file(file, lambda out: out.write(json.dumps(content).encode()))
        content = json.loads(file.read_text())
        key = bytes.fromhex(content.pop("key"))
        if content != self._facts:
            remedy = "a folder belongs to one set of teachers; use another one"
            raise _check.fail("folder", f"hold teachers of {self._facts}", content, remedy)
        return key

    def check_data(self, key: bytes, rows: NDArray[Any], targets: NDArray[Any], shard: NDArray[np.int64]) -> None:
        """Refuse other data than before: a row that moved to another shard would reach two teachers."""
        digest = hashlib.sha256()
        for array in (rows, targets, shard):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(pickle.dumps(array.tolist()) if array.dtype == object else array.tobytes())
        mark = entropy.derived(key, "data", digest.hexdigest()).hex()
        file = self._path / "data.mark"
        if not file.exists():
            replace_file(file, lambda out: out.write(mark.encode()))
        if file.read_text() != mark:
            remedy = "teachers continue with the same rows in the same order; use another folder"
            raise _check.fail("folder", "hold teachers of these data", "teachers of others", remedy)

    def finished(self) -> dict[int, Any]:
        """The teachers that were saved."""
        return {int(file.stem): pickle.loads(file.read_bytes()) for file in self._path.glob("*.teacher")}

    def save(self, number: int, member: Any) -> None:
        """Save one teacher; a crash leaves no half of one."""
        content = pickle.dumps(member)
        replace_file(self._path / f"{number:05}.teacher", lambda out: out.write(content))


@contextmanager
def _bar(shown: bool, total: int, done: int) -> Iterator[Callable[[], None]]:
    if not shown:
        yield lambda: None
        return
    try:
        from rich.progress import Progress
    except ModuleNotFoundError as error:
        raise MissingExtra("a progress bar needs rich: pip install 'discreet[learning]', or progress=False") from error
    with Progress() as bar:
        task = bar.add_task("training teachers", total=total, completed=done)
        yield lambda: bar.advance(task)
