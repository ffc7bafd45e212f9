"""How good a model is on private rows: counts with noise, and every rate computed from them.

A test row falls into one cell of a table (its group, its class, the prediction), so all rates together cost one noisy
histogram. Scores go into a second one (a bin, and whether the row is positive). Accuracies, error rates, gaps between
groups, calibration and the area under the ROC curve are post-processing of these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, accounting, events, queries
from discreet.accounting.interval import Interval
from discreet.bounded import Bounded
from discreet.learning import rates
from discreet.learning.rates import RateEstimate
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms import Laplace
from discreet.neighbors import ADD_REMOVE, Client, Person, Relation
from discreet.queries.grid import column, numbers
from discreet.queries.statistics.histogram import categorized
from discreet.release import Release

_CLASSES_REMEDY = "list the public labels; rows with another label or prediction are not counted"
_GROUPS_REMEDY = "list the public groups in group_keys; rows of other groups are not counted"
#: Bins of scores: enough to see a bend in a calibration curve, and few enough for counts that outgrow the noise.
_BINS = 10


@dataclass(frozen=True)
class Bin:
    """One bin of scores: its edges, the share of its rows that are positive, and its noisy number of rows."""

    low: float
    high: float
    positive: RateEstimate
    rows: int


@dataclass(frozen=True)
class PrivateEvaluation:
    """Released numbers about a model: all may be published. Intervals hold for the noise, each at `level`.

    Attributes:
        classes: the public labels, in the order of `confusion`.
        confusion: noisy counts, one row for each class and one column for each prediction.
        accuracy: the share of right predictions.
        by_group: for each group the rates "accuracy" and, with two classes, "positive rate", "false positive rate" and
            "false negative rate". The second class is the positive one. All intervals of a rate hold together.
        gaps: for each of these rates, the largest of all groups less the smallest.
        disparate_impact: the smallest positive rate over the largest; None without groups or with more classes.
        calibration: bins of scores; empty without scores.
        area: how often a positive row has a score in a higher bin than a negative one, ties counting half (the area
            under the ROC curve of binned scores); None without scores.
        calibration_error: the mean distance between a bin's middle and its positive share; a point estimate.
        event: what was run.
        level: the probability of each interval.
        receipt: the ledger's; None without an account.
    """

    classes: tuple[Any, ...]
    confusion: NDArray[np.int64] = field(repr=False)
    accuracy: RateEstimate
    by_group: dict[Any, dict[str, RateEstimate]]
    gaps: dict[str, RateEstimate]
    disparate_impact: RateEstimate | None
    calibration: tuple[Bin, ...] = field(repr=False)
    area: RateEstimate | None
    calibration_error: float | None
    event: events.Event
    level: float
    receipt: Receipt | None = None

    def epsilon(self, delta: float) -> Interval:
        """ε of the whole evaluation at `delta`."""
        return accounting.epsilon(self.event, delta)


def evaluate_privately(
    truth: ArrayLike,
    predicted: ArrayLike,
    *,
    classes: Sequence[Any],
    epsilon: float,
    scores: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    group_keys: Sequence[Any] | None = None,
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
    bins: int = _BINS,
    level: float = 0.95,
    account: Account | None = None,
    relation: Relation = ADD_REMOVE,
    purpose: str = "private evaluation",
) -> PrivateEvaluation:
    """Accuracy, confusion matrix, rates by group, calibration and ROC area of a model on private rows, for one charge.

    Args:
        truth: each row's label.
        predicted: the model's prediction for each row.
        classes: the public labels. Of two, the second is the positive one.
        epsilon: the privacy loss of the whole evaluation; with `scores`, half of it is for these.
        scores: a number in [0, 1] for each row: the probability of the positive class, or with more classes the
            confidence in the prediction; a row then counts as positive where the prediction is right.
        groups: each row's group, to compare groups.
        group_keys: the public groups.
        persons: each row's person, if one has many rows; with an account, one that protects persons.
        max_rows: with `persons`, how many rows of one person are used.
        bins: the number of bins of scores.
        level: the probability of each interval.
        account: the account to charge; None charges nobody.
        relation: the neighbors that are protected; those of the account where there is one.
        purpose: what it is for; the ledger records it.

    Guarantee:
        ε-DP for a row, or a person, under `relation`. The charge comes before the noise. A row changes one count of
        each histogram by 1 (replace-one: two of them). The model must not have been trained on these rows, or its
        training is a release of its own. Not protected: the classes, the groups, the number of rows under replace-one,
        and the types of the columns.
    """
    names, keys = _public("classes", classes, _CLASSES_REMEDY), _keys(groups, group_keys)
    _check.epsilon(epsilon)
    share = float(_check.probability("level", level, "it is the probability that an interval is right, such as 0.95"))
    if not 0 < share < 1:
        raise _check.fail("level", "be strictly between 0 and 1", level, "for example 0.95")
    limit = max_rows
    if account is not None:
        relation = account.neighbors.relation
        unit = account.neighbors.unit
        if isinstance(unit, Client):
            raise _check.fail("account", "protect rows or persons", str(unit), "open one with unit=dp.rows()")
        if isinstance(unit, Person) and persons is None:
            raise _check.fail("persons", "be given", None, f"the account protects {unit}")
        limit = unit.max_rows if isinstance(unit, Person) and max_rows is None else max_rows
        if not isinstance(unit, Person) and persons is not None:
            # Without one of its rows, a person's next row would be used: two counts change, and the price is for one.
            remedy = "it protects one row, and limits on a person's rows do not; use an account with unit=dp.person(…)"
            raise _check.fail("persons", "be left out for this account", "a column", remedy)
    right, said = (
        categorized(column(values, name), names)[0] for name, values in (("truth", truth), ("predicted", predicted))
    )
    group = np.zeros(len(right), dtype=np.intp) if groups is None else categorized(column(groups, "groups"), keys)[0]
    for name, codes in (("predicted", said), ("groups", group)):
        if len(codes) != len(right):
            raise _check.fail(name, "have one entry for each row", "another length", "give a column of the same rows")
    cells = np.where((right < 0) | (said < 0) | (group < 0), -1, (group * len(names) + right) * len(names) + said)
    tables = [_counted(cells, len(keys) * len(names) ** 2, persons, limit)]
    if scores is not None:
        positive = right == 1 if len(names) == 2 else right == said
        tables.append(_counted(_binned(scores, positive, cells >= 0, bins), 2 * bins, persons, limit))
    mechanisms = [Laplace.for_epsilon(table, epsilon / len(tables), relation) for table in tables]
    parts = tuple(mechanism.event(table, relation) for mechanism, table in zip(mechanisms, tables, strict=True))
    event = parts[0] if len(parts) == 1 else events.Composed(parts)
    receipt = None if account is None else account.spend(event, purpose)
    released = [
        mechanism.release(table, relation=relation) for mechanism, table in zip(mechanisms, tables, strict=True)
    ]
    return _evaluation(names, keys if groups is not None else (), released, event, share, receipt)


def _evaluation(
    classes: tuple[Any, ...],
    groups: tuple[Any, ...],
    released: list[Release[Any]],
    event: events.Event,
    level: float,
    receipt: Receipt | None,
) -> PrivateEvaluation:
    """Everything that the noisy counts tell."""
    size, tail = len(classes), 1 - level
    table = np.asarray(released[0].value, dtype=np.float64).reshape(-1, size, size)
    noise = _noise(released[0])
    every = np.ones(len(table), dtype=bool)
    by_group: dict[Any, dict[str, RateEstimate]] = {}
    for index, name in enumerate(groups):  # all groups' intervals hold together
        by_group[name] = _rates(table, np.arange(len(table)) == index, noise, tail / len(groups))
    names = list(next(iter(by_group.values()))) if groups else []
    gaps = {name: rates.gap([by_group[group][name] for group in groups]) for name in names}
    impact = None
    if "positive rate" in names:
        impact = rates.ratio([by_group[group]["positive rate"] for group in groups])
    bins, area, error = ((), None, None) if len(released) == 1 else _calibration(released[1], tail)
    return PrivateEvaluation(
        classes=classes,
        confusion=table.sum(axis=0).astype(np.int64),
        accuracy=_rates(table, every, noise, tail)["accuracy"],
        by_group=by_group,
        gaps=gaps,
        disparate_impact=impact,
        calibration=bins,
        area=area,
        calibration_error=error,
        event=event,
        level=level,
        receipt=receipt,
    )


def _rates(table: NDArray[np.float64], where: NDArray[np.bool_], noise: Any, tail: float) -> dict[str, RateEstimate]:
    """The rates of the groups in `where`, which are summed."""
    size = table.shape[1]

    def share(hits: NDArray[np.bool_], rest: NDArray[np.bool_]) -> RateEstimate:
        chosen = [(where[:, None, None] & mask[None]).ravel() for mask in (hits, rest)]
        return rates.rate(table.ravel(), chosen[0], chosen[1], noise, tail)

    right = np.eye(size, dtype=bool)
    by_name = {"accuracy": share(right, ~right)}
    if size == 2:
        truth, said = np.indices((2, 2)) == 1
        by_name["positive rate"] = share(said, ~said)
        by_name["false positive rate"] = share(~truth & said, ~truth & ~said)
        by_name["false negative rate"] = share(truth & ~said, truth & said)
    return by_name


def _calibration(released: Release[Any], tail: float) -> tuple[tuple[Bin, ...], RateEstimate, float]:
    negatives, positives = np.asarray(released.value, dtype=np.float64).reshape(2, -1)
    noise, count = _noise(released), len(negatives)
    edges = np.linspace(0, 1, count + 1)
    bins = []
    for index in range(count):
        only = np.arange(count) == index
        mask = np.concatenate([only, only & False])
        counts = np.concatenate([positives, negatives])
        share = rates.rate(counts, mask, np.roll(mask, count), noise, tail)
        bins.append(Bin(edges[index], edges[index + 1], share, int(positives[index] + negatives[index])))
    weights = np.array([max(0, cell.rows) for cell in bins], dtype=np.float64)
    distances = np.array([abs((cell.low + cell.high) / 2 - cell.positive.value) for cell in bins])
    used = ~np.isnan(distances) & (weights > 0)
    error = float(np.average(distances[used], weights=weights[used])) if used.any() else float("nan")
    return tuple(bins), rates.area(negatives, positives, noise, tail), error


def _noise(released: Release[Any]) -> Any:
    assert released.error is not None
    return released.error.noise


def _counted(cells: NDArray[np.intp], size: int, persons: ArrayLike | None, max_rows: int | None) -> Bounded:
    return queries.histogram(cells, categories=range(size), persons=persons, max_rows=max_rows)


def _binned(scores: ArrayLike, positive: NDArray[np.bool_], kept: NDArray[np.bool_], bins: int) -> NDArray[np.intp]:
    """The cell of each row: negative rows by bin, then positive rows by bin; −1 for a score that is no number."""
    count = _check.integer("bins", bins, "it is the number of bins of scores", at_least=2, at_most=1000)
    given = numbers(scores, "scores")
    if given.shape != positive.shape:
        raise _check.fail("scores", "have one number for each row", "another length", "score the same rows")
    usable = kept & ~np.isnan(given)
    bin_index = np.floor(np.clip(np.where(usable, given, 0.0), 0, 1) * count).astype(np.intp).clip(0, count - 1)
    return np.where(usable, bin_index + count * positive, -1)


def _public(name: str, values: Sequence[Any], remedy: str) -> tuple[Any, ...]:
    listed = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if len(listed) < 2 or len(set(listed)) != len(listed):
        raise _check.fail(name, "be at least two different values", listed, remedy)
    return listed


def _keys(groups: ArrayLike | None, keys: Sequence[Any] | None) -> tuple[Any, ...]:
    if (groups is None) != (keys is None):
        raise _check.fail("group_keys", "be given together with groups", keys, _GROUPS_REMEDY)
    return (None,) if keys is None else _public("group_keys", keys, _GROUPS_REMEDY)
