"""Private evaluation: one charge for all rates, one row in one cell, and intervals that hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import evaluate_privately, private_evaluation, rates
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import REPLACE_ONE
from discreet.release import NoiseLaw

TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0, 1, 0] * 60)
SAID = np.array([0, 0, 1, 1, 1, 0, 1, 0, 1, 1] * 60)
GROUP = np.array(["a", "b", "a", "b", "a", "a", "b", "b", "b", "a"] * 60)
SCORES = np.where(SAID == 1, 0.55, 0.05) + 0.4 * np.tile(np.linspace(0, 1, 60), 10)
KEYS = {"groups": GROUP, "group_keys": ["a", "b"]}


def true_area():
    """How often a positive row is in a higher bin of scores than a negative one."""
    positive, negative = (np.floor(SCORES * 10)[label == TRUTH] for label in (1, 0))
    return np.mean((positive[:, None] > negative) + 0.5 * (positive[:, None] == negative))


def exact(monkeypatch):
    """No noise, so that the arithmetic shows."""
    monkeypatch.setattr(
        private_evaluation.Laplace, "draw", lambda self, granularity, size, bits: np.zeros(size, dtype=np.int64)
    )


def test_all_rates_come_from_one_charge(tmp_path):
    account = dp.Ledger(tmp_path / "x.ledger").account("test", budget=dp.PureDP(1.0))
    found = evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.5, scores=SCORES, account=account, **KEYS)
    half = ev.DiscreteLaplace(1, Fraction(4))
    assert [line.event for line in account.statement().lines] == [ev.Composed((half, half))] == [found.event]
    assert dp.accounting.pure(found.event).epsilon == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.6, account=account)
    assert len(account.statement().lines) == 1


def test_nothing_is_drawn_before_the_charge(monkeypatch, tmp_path):
    account = dp.Ledger(tmp_path / "x.ledger").account("test", budget=dp.PureDP(0.1))
    monkeypatch.setattr(private_evaluation.Laplace, "draw", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExceeded):
        evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.5, account=account)


def test_without_noise_the_rates_are_those_of_the_rows(monkeypatch):
    exact(monkeypatch)
    found = evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=1.0, scores=SCORES, **KEYS)
    assert found.confusion.tolist() == [[180, 120], [60, 240]]
    assert found.accuracy.value == pytest.approx(0.7)
    for name in "ab":
        mine = name == GROUP
        rate = found.by_group[name]
        assert rate["accuracy"].value == pytest.approx((TRUTH == SAID)[mine].mean())
        assert rate["positive rate"].value == pytest.approx(SAID[mine].mean())
        assert rate["false positive rate"].value == pytest.approx(SAID[mine & (TRUTH == 0)].mean())
        assert rate["false negative rate"].value == pytest.approx(1 - SAID[mine & (TRUTH == 1)].mean())
    shares = [SAID[name == GROUP].mean() for name in "ab"]
    assert found.gaps["positive rate"].value == pytest.approx(abs(shares[0] - shares[1]))
    assert found.disparate_impact.value == pytest.approx(min(shares) / max(shares))
    binned = np.floor(SCORES * 10)
    wins = (binned[TRUTH == 1][:, None] > binned[TRUTH == 0]) + 0.5 * (
        binned[TRUTH == 1][:, None] == binned[TRUTH == 0]
    )
    assert found.area.value == pytest.approx(wins.mean())
    for place, one in enumerate(found.calibration):
        inside = binned == place
        assert one.rows == inside.sum()
        assert math.isnan(one.positive.value) or one.positive.value == pytest.approx(TRUTH[inside].mean())


@pytest.mark.parametrize("scores", [None, SCORES])
def test_a_row_changes_one_count_of_each_table(scores, monkeypatch):
    """A mutant that counts a row by class and again by group fails here."""
    seen = []
    release = private_evaluation.Laplace.release

    def watched(self, bounded, **options):
        seen.append(bounded)
        return release(self, bounded, **options)

    monkeypatch.setattr(private_evaluation.Laplace, "release", watched)
    for rows in (slice(None), slice(1, None)):
        given = None if scores is None else scores[rows]
        groups = {"groups": GROUP[rows], "group_keys": ["a", "b"]}
        evaluate_privately(TRUTH[rows], SAID[rows], classes=[0, 1], epsilon=1.0, scores=given, **groups)
    half = len(seen) // 2
    for one, other in zip(seen[:half], seen[half:], strict=True):
        assert np.abs(one.values - other.values).sum() == 1 == one.sensitivity().l1


def test_a_person_s_rows_are_limited(tmp_path):
    unit = dp.neighbors.Person("who", 3)
    ledger = dp.Ledger(tmp_path / "x.ledger")
    account = ledger.account("test", budget=dp.PureDP(1.0), unit=unit)
    with pytest.raises(InvalidArgument, match="persons must be given"):
        evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.5, account=account)
    found = evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.5, persons=np.arange(600) // 6, account=account)
    assert found.event == ev.DiscreteLaplace(3, Fraction(6))
    replaced = evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.5, relation=REPLACE_ONE)
    assert replaced.event == ev.DiscreteLaplace(2, Fraction(4))


def test_persons_and_the_unit_of_the_account_go_together(tmp_path, monkeypatch):
    """With one row of a person used, a table without that row has the person's next row: the counts differ by 2."""
    ledger = dp.Ledger(tmp_path / "x.ledger")
    rows, clients = (
        ledger.account(name, budget=dp.PureDP(1.0), unit=unit)
        for name, unit in (("rows", dp.rows()), ("clients", dp.client()))
    )
    given = {"classes": [0, 1], "epsilon": 0.5}
    with pytest.raises(InvalidArgument, match="persons must be left out"):
        evaluate_privately([0, 1], [0, 1], **given, persons=["a", "a"], max_rows=1, account=rows)
    with pytest.raises(InvalidArgument, match="protect rows or persons"):
        evaluate_privately([0, 1], [0, 1], **given, account=clients)
    assert not rows.statement().lines
    seen, counted = [], private_evaluation._counted
    monkeypatch.setattr(private_evaluation, "_counted", lambda *args: seen.append(counted(*args)) or seen[-1])
    for start in (0, 1):
        evaluate_privately([0, 1][start:], [0, 1][start:], **given, persons=["a", "a"][start:], max_rows=1)
    assert np.abs(seen[0].values - seen[1].values).sum() == 2 > seen[0].sensitivity().l1


def test_strange_rows_are_not_counted_and_raise_nothing(monkeypatch):
    exact(monkeypatch)
    strange = [None, math.nan, "x", 2, -1, [1], 1.5, 0]
    found = evaluate_privately(
        strange, [0] * 8, classes=[0, 1], epsilon=1.0, scores=[math.nan, None, "y", math.inf, -1e308, 0, 1, 0.5]
    )
    assert found.confusion.tolist() == [[1, 0], [0, 0]]
    assert sum(one.rows for one in found.calibration) == 1
    empty = evaluate_privately([], [], classes=[0, 1], epsilon=1.0, scores=[])
    assert math.isnan(empty.accuracy.value)


def test_confidence_stands_for_the_score_if_there_are_more_classes(monkeypatch):
    exact(monkeypatch)
    found = evaluate_privately([0, 1, 2, 2], [0, 1, 2, 0], classes=[0, 1, 2], epsilon=1.0, scores=[0.9, 0.9, 0.9, 0.4])
    assert found.area.value == 1.0
    assert list(found.by_group) == []
    assert found.disparate_impact is None


def test_intervals_hold_as_often_as_they_say():
    """60 evaluations at 80%: if an interval holds exactly that often, fewer than 29 hold with probability 9e-8.

    Accuracy intervals of 1/4 of the width hold 25% of the time: seen with probability above 0.999.
    """
    right = {"accuracy": 0, "gap": 0, "impact": 0, "area": 0}
    widths = []
    shares = [SAID[name == GROUP].mean() for name in "ab"]
    binned = np.floor(SCORES * 10)
    wins = (binned[TRUTH == 1][:, None] > binned[TRUTH == 0]) + 0.5 * (
        binned[TRUTH == 1][:, None] == binned[TRUTH == 0]
    )
    truths = {
        "accuracy": 0.7,
        "gap": abs(shares[0] - shares[1]),
        "impact": min(shares) / max(shares),
        "area": wins.mean(),
    }
    for _ in range(60):
        found = evaluate_privately(TRUTH, SAID, classes=[0, 1], epsilon=0.2, scores=SCORES, level=0.8, **KEYS)
        got = {
            "accuracy": found.accuracy,
            "gap": found.gaps["positive rate"],
            "impact": found.disparate_impact,
            "area": found.area,
        }
        widths.append(found.accuracy.high - found.accuracy.low)
        for name, one in got.items():
            right[name] += one.low <= truths[name] <= one.high
    assert min(right.values()) >= 29, right
    assert np.median(widths) < 0.25  # typically 0.11: they say something


@pytest.mark.parametrize("terms", [(2, 2), (4, 4), (10, 90)])
def test_the_noise_of_a_sum_stays_within_its_width(terms):
    """20,000 sums at a tail of 5%: more than 6.1% outside has probability below 1e-9 if exactly 5% are.

    Half the width lets about 12% or more outside; less than 9% of 20,000 has probability below 1e-20.
    """
    scale, share = 3.0, 0.3
    noise = NoiseLaw(gaussian=False, rounded=False, scale=scale)
    drawn = samplers.discrete_laplace(Fraction(3), 20_000 * sum(terms), entropy.SYSTEM).reshape(20_000, -1)
    sums = np.abs(drawn @ np.repeat([1 - share, share], terms))
    width = float(rates._width(noise, terms, np.array([share]), 0.05)[0])
    assert np.mean(sums > width) < 0.061
    assert np.mean(sums > width / 2) > 0.09


@pytest.mark.parametrize("seed", range(5))
def test_the_ends_of_an_area_are_reached_and_not_exceeded(seed):
    generator = np.random.default_rng(seed)
    negatives, positives = generator.integers(0, 40, 6).astype(float), generator.integers(0, 40, 6).astype(float)
    noise = NoiseLaw(gaussian=False, rounded=False, scale=2.0)
    found = rates.area(negatives, positives, noise, 0.05)
    width = noise.half_width(0.05 / 12)
    for _ in range(2000):
        ends = generator.integers(-1, 2, (2, 6)) * width
        inside = [np.maximum(side + move, 0) for side, move in zip((negatives, positives), ends, strict=True)]
        value = rates._area(*inside, math.nan)
        assert math.isnan(value) or found.low - 1e-12 <= value <= found.high + 1e-12


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"classes": [0]}, "classes must be"),
        ({"epsilon": 0}, "epsilon"),
        ({"level": 1}, "level"),
        ({"groups": GROUP}, "group_keys must be"),
        ({"groups": GROUP[:3], "group_keys": ["a", "b"]}, "groups must have"),
        ({"predicted": SAID[:3]}, "predicted must have"),
        ({"scores": SCORES[:3]}, "scores must have"),
        ({"scores": SCORES, "bins": 1}, "bins"),
    ],
)
def test_bad_arguments_are_refused(bad, words):
    with pytest.raises(InvalidArgument, match=words):
        evaluate_privately(**{"truth": TRUTH, "predicted": SAID, "classes": [0, 1], "epsilon": 1.0, **bad})
