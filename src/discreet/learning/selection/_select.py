"""`select`: choose among candidates for one price that is charged before the first run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet import _check, accounting, events
from discreet.accounting.interval import Interval
from discreet.bounded import Scores
from discreet.learning._one_draw import charge_key, fresh_token, require_unused
from discreet.learning.selection import trials as laws
from discreet.learning.selection.journal import Journal
from discreet.learning.selection.methods import Method, PrivateScores, RandomStopping
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import ADD_REMOVE, Relation

#: A δ at which every private event has a finite ε.
_ANY_DELTA = 1e-6
_STAGE = "selection"
_LOST = "its search is lost or kept in another folder"
#: Where an object lies in memory: part of a default repr, and another one after a restart.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Selected:
    """The winner of a selection, and what it cost.

    Attributes:
        winner: the candidate; None if a random number of trials was 0, or no run finished.
        model: what its run returned.
        event: what was run, in all.
        naive: what it would have cost to publish every candidate's run and score.
        scores: the noisy scores of all candidates, if the method releases them.
        receipt: the ledger's; None without an account.
    """

    winner: Any
    model: Any
    event: events.Event
    naive: events.Event
    scores: tuple[int, ...] | None = None
    receipt: Receipt | None = None

    def epsilon(self, delta: float) -> Interval:
        """ε of the whole selection at `delta`."""
        return accounting.epsilon(self.event, delta)

    def naive_epsilon(self, delta: float) -> Interval:
        """ε at `delta` of a log with the result of every candidate."""
        return accounting.epsilon(self.naive, delta)


def select(
    candidates: Sequence[Any],
    train: Callable[[Any], Any],
    score: Callable[[Any], float],
    *,
    run_event: events.Event,
    method: Method,
    account: Account | None = None,
    purpose: str = "private selection",
    key: str | None = None,
    folder: Path | str | None = None,
    relation: Relation = ADD_REMOVE,
) -> Selected:
    """Train candidates, and release the best one for a price that is known in advance.

    Args:
        candidates: public settings, such as learning rates.
        train: trains one candidate and returns its model. It charges no account, and draws fresh noise on each call.
        score: how good a model is; higher is better. With `RandomStopping` it looks at the model and public data, or it
            is a private release that `run_event` includes. With `PrivateScores` it is a whole number that one unit of
            the private validation data moves by at most `method.sensitivity`.
        run_event: what one run costs, of the costliest candidate, with its score if that is a release.
        method: `RandomStopping` or `PrivateScores`.
        account: the account to charge; None charges nobody.
        purpose: what the selection is for; the ledger records it.
        key: a name for this selection in the ledger, so that it can continue after a crash. Needs `folder`.
        folder: where the search is kept for `key`; a key that was charged is refused in another folder. Secret. Don't
            restore it from a copy: one charge pays for one search.
        relation: the neighbors that a `PrivateScores` choice protects from; those of the account where there is one.

    Guarantee:
        `Selected.event`, charged before the first run. With `RandomStopping` the number of trials is drawn exactly from
        its law, and stays secret with the losing runs: nothing is printed, logged or returned about them, and a run
        that raises counts as the worst. Not protected: how long the search takes, which tells about how many trials
        there were (fix the time after which you look at the result); whether runs raise, beyond what `run_event`
        covers; the files in `folder`.
    """
    settings = list(candidates)
    if not settings:
        raise _check.fail("candidates", "hold at least one setting", settings, "list the settings to try")
    if not isinstance(method, Method):
        raise _check.fail("method", "be a way to choose", method, "use RandomStopping or PrivateScores")
    if (key is None) != (folder is None):
        raise _check.fail("folder", "be given together with key", folder, "the search is kept there for the key")
    event = method.event(run_event, len(settings))
    if math.isinf(accounting.epsilon(event, _ANY_DELTA).upper):  # refuses what has no price, also without an account
        raise _check.fail("run_event", "have a finite price", run_event, "what is not private can't be selected from")
    with Journal(None if folder is None else Path(folder)) as journal:  # one process at a time
        facts = {
            "candidates": _ADDRESS.sub("", repr(settings)),
            "method": repr(method),
            "run_event": repr(run_event),
        }
        journal.check(facts)
        if key is not None and journal.token is None:
            require_unused(account, key, (_STAGE,), _LOST)
        token = journal.token or fresh_token()
        journal.begin(facts, token)  # on disk before the charge: a retry continues with it
        named = None if key is None else charge_key(key, _STAGE, token)
        receipt = None if account is None else account.spend(event, purpose, named)
        return _run(settings, train, score, run_event, method, event, journal, receipt, account, relation)


def _run(
    settings: list[Any],
    train: Callable[[Any], Any],
    score: Callable[[Any], float],
    run_event: events.Event,
    method: Method,
    event: events.Event,
    journal: Journal,
    receipt: Receipt | None,
    account: Account | None,
    relation: Relation,
) -> Selected:
    """The search that was charged."""
    protects = relation if account is None else account.neighbors.relation
    if isinstance(method, RandomStopping):
        best = _search(settings, train, score, method, journal)
        chosen, model = (None, None) if best is None else (settings[best[1]], best[2])
        shown: tuple[int, ...] | None = None
    else:
        chosen, model, shown = _compare(settings, train, score, _private(method), journal, protects)
    return Selected(chosen, model, event, method.naive(run_event, len(settings)), shown, receipt)


def _private(method: Method) -> PrivateScores:
    if not isinstance(method, PrivateScores):
        raise _check.fail("method", "be RandomStopping or PrivateScores", method, "there is no other one here")
    return method


Best = tuple[float, int, Any]


def _search(
    settings: list[Any],
    train: Callable[[Any], Any],
    score: Callable[[Any], float],
    method: RandomStopping,
    kept: Journal,
) -> Best | None:
    """The best of a random number of runs of random candidates; of equal ones the earliest."""

    def drawn() -> list[int]:
        return [int(i) for i in samplers.uniform(len(settings), laws.draw(method.trials))]

    order = kept.order(drawn)
    done, loaded = kept.load()
    best: Best | None = loaded
    for number in range(done, len(order)):
        try:
            model = train(settings[order[number]])
            value = float(score(model))
        except Exception:
            model, value = None, -math.inf
        if not math.isnan(value) and value > (-math.inf if best is None else best[0]):
            best = (value, order[number], model)
        kept.save(number + 1, best)
    return best


def _compare(
    settings: list[Any],
    train: Callable[[Any], Any],
    score: Callable[[Any], float],
    method: PrivateScores,
    kept: Journal,
    relation: Relation,
) -> tuple[Any, Any, tuple[int, ...] | None]:
    """Every candidate once, then a private choice."""
    done, runs = kept.load()
    runs = [] if runs is None else runs
    for number in range(done, len(settings)):
        model = train(settings[number])
        runs.append((model, _whole(score(model))))
        kept.save(number + 1, runs)
    chosen, shown = kept.choice(lambda: _choose([value for _, value in runs], method, relation))
    return settings[chosen], runs[chosen][0], None if shown is None else tuple(shown)


def _choose(values: list[int], method: PrivateScores, relation: Relation) -> tuple[int, list[int] | None]:
    """The place of the winner, and the noisy scores if they are released."""
    exact, count = np.array(values, dtype=np.int64), len(values)
    mechanism = method.mechanism()
    if mechanism is None:
        noisy = exact + samplers.discrete_laplace(method.scale(count), count, entropy.SYSTEM)
        return int(noisy.argmax()), noisy.tolist()
    scores = Scores(exact, tuple(range(count)), {relation: method.sensitivity}, "validation scores")
    return int(mechanism.release(scores, relation=relation).value), None


def _whole(value: float) -> int:
    if not float(value).is_integer():
        raise _check.fail("score", "be a whole number", "another one", "count the rows that a model gets right")
    return int(value)
