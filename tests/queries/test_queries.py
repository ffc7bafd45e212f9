"""Each query computes what it says, from every kind of column, and refuses bad public arguments clearly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet import queries
from discreet.errors import InvalidArgument, InvalidSensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Person, Rows


def exactly(bounded):
    """The statistic without noise: what the finish makes of the exact integers."""
    return bounded.finish.value(bounded.values)


AMOUNTS = [3.0, 7.0, 2.0, 100.0, None, math.nan, -5.0]


def test_count_leaves_missing_values_out():
    assert exactly(queries.count(AMOUNTS)) == 5
    assert exactly(queries.count(["a", "", None])) == 2
    assert exactly(queries.count(np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"))) == 1
    assert exactly(queries.count(np.array([1, 2], dtype=np.uint8))) == 2
    assert exactly(queries.count([])) == 0


def test_count_takes_a_mask_whose_missing_answers_are_no():
    assert exactly(queries.count([1, 2, 3, 4], where=[True, None, False, True])) == 2
    assert exactly(queries.count(np.arange(5), where=np.arange(5) > 2)) == 2
    for bad in ([True], np.array([1, 2])):
        with pytest.raises(InvalidArgument, match="where must"):
            queries.count([1, 2], where=bad)


def test_sum_clamps_and_counts_what_is_missing_as_nearest_to_zero():
    assert exactly(queries.sum(AMOUNTS, bounds=(0, 10))) == pytest.approx(3 + 7 + 2 + 10)
    assert exactly(queries.sum([None, 15], bounds=(10, 20))) == pytest.approx(25)
    assert exactly(queries.sum([None, -15], bounds=(-20, -10))) == pytest.approx(-25)
    assert exactly(queries.sum([math.inf, -math.inf], bounds=(-1, 3))) == pytest.approx(2)


def test_integers_are_summed_exactly():
    values = np.arange(100_000) % 997
    assert exactly(queries.sum(values, bounds=(0, 1000))) == values.sum()


def test_mean_under_both_relations():
    values = [10, 20, 60, None]
    assert exactly(queries.mean(values, bounds=(0, 100))) == pytest.approx(30)
    assert exactly(queries.mean(values, bounds=(0, 100), relation="replace-one")) == pytest.approx((90 + 50) / 4)
    assert queries.mean([1], bounds=(0, 100), relation=REPLACE_ONE).sensitivities.keys() == {REPLACE_ONE}


def test_mean_and_accuracy_protect_the_relation_that_was_asked_for():
    for asked in (ADD_REMOVE, ZERO_OUT, REPLACE_ONE):
        assert queries.mean([1], bounds=(0, 2), relation=asked).relation is asked
        assert queries.accuracy([1], [1], relation=asked).relation is asked


def test_mean_splits_the_budget_as_it_was_told():
    """Under Laplace noise of one ε, the count's part is count_share of the L1 sensitivity."""
    for share in (0.1, 0.25, 0.5, 0.9):
        made = queries.mean([1], bounds=(-4, 4), count_share=share)
        weight = made.finish.weight
        assert weight / made.sensitivity().l1 == pytest.approx(share, rel=1e-3)


def test_mean_of_nobody_is_answered_within_the_bounds():
    for _ in range(20):
        assert 5 <= dp.laplace(queries.mean([], bounds=(5, 9)), epsilon=1.0).value <= 9


def test_variance_matches_numpy():
    values = np.random.default_rng(5).normal(3, 2, 5000)
    assert exactly(queries.variance(values, bounds=(-20, 20))) == pytest.approx(values.var(), rel=1e-5)
    assert exactly(queries.variance([4.0], bounds=(0, 10))) == pytest.approx(0.0, abs=1e-5)


def test_histograms_count_by_category_and_by_interval():
    assert exactly(queries.histogram(["b", "a", "b", "?"], categories=["a", "b", "c"])).tolist() == [1, 2, 0]
    made = queries.histogram([0, 4.9, 5, 10, 10.1, -1, None], edges=[0, 5, 10])
    assert exactly(made).tolist() == [2, 2]
    assert made.labels == ((0.0, 5.0), (5.0, 10.0))


def test_text_is_compared_as_it_is():
    """One letter é and an e with an accent are two categories; a NUL does not end a text."""
    made = queries.histogram(["\u00e9", "e\u0301", "a\0b", "a"], categories=["\u00e9", "a\0b"])
    assert exactly(made).tolist() == [1, 1]


def test_accuracy_is_the_share_of_hits():
    made = queries.accuracy([1, 0, 1, 1], np.array([1, 1, 1, 0]))
    assert exactly(made) == pytest.approx(0.5)
    assert made.sensitivity(REPLACE_ONE).l1 * made.granularity == Fraction(1, 4)
    assert exactly(queries.accuracy([1, 0], [1, 1], relation=ADD_REMOVE)) == pytest.approx(0.5)


def test_quantile_scores_are_best_at_the_quantile():
    data = list(range(100))
    for q, best in ((0.5, 50), (0.9, 90), (Fraction(1, 4), 25)):
        scores = queries.quantile_scores(data, quantile=q, candidates=range(100))
        assert scores.candidates[int(np.argmax(scores.values))] == best
        assert scores.values.max() == 0


def test_a_persons_rows_are_limited_to_the_first_ones():
    ids = ["a", "a", "a", "b", None, math.nan]
    made = queries.sum([1, 2, 4, 8, 16, 32], bounds=(0, 100), persons=ids, max_rows=2)
    assert exactly(made) == 1 + 2 + 8
    assert made.unit == Person(None, 2)
    assert queries.sum([1], bounds=(0, 1)).unit == Rows()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint64, object])
def test_every_numeric_type_is_taken(dtype):
    assert exactly(queries.sum(np.array([1, 2, 3], dtype=dtype), bounds=(0, 10))) == 6


def test_columns_with_to_numpy_and_masked_arrays_are_taken():
    class Column:
        def to_numpy(self):
            return np.array([1.0, 2.0])

    assert exactly(queries.sum(Column(), bounds=(0, 10))) == 3
    masked = np.ma.masked_array([1.0, 5.0], mask=[False, True])
    assert exactly(queries.sum(masked, bounds=(0, 10))) == 1
    assert exactly(queries.count(masked)) == 1


@pytest.mark.parametrize(
    "values", [5, "abc", {1: 2}, {1, 2}, np.zeros((2, 2)), np.zeros(()), np.array(["1"]), np.array([1j]), None]
)
def test_what_is_no_numeric_column_is_refused(values):
    with pytest.raises(InvalidArgument, match=r"values must .*, got .*: .+"):
        queries.sum(values, bounds=(0, 1))


BAD_BOUNDS = [
    (1, 1),
    (2, 1),
    (0, math.nan),
    (math.nan, 1),
    (0, math.inf),
    (-math.inf, 0),
    (0,),
    (0, 1, 2),
    5,
    None,
    "01",
]
BAD_BOUNDS += [("0", "1"), (True, 5), (0, 5e-324), (0, 10**400), (1e9, 1e9 + 1e-9), (0j, 1)]


@pytest.mark.parametrize("bounds", BAD_BOUNDS, ids=repr)
def test_bad_bounds_are_refused_everywhere(bounds):
    for query in (queries.sum, queries.mean, queries.variance, queries.clamp):
        if query is queries.clamp and bounds == (1e9, 1e9 + 1e-9):
            continue
        with pytest.raises(InvalidArgument, match=r"bounds.* must .*, got .*: .+"):
            query([1.0], bounds=bounds)


@pytest.mark.parametrize("bounds", [(0, 1e-100), (-1e100, 1e100), (0, 2**63), (-(2**64), 2**64), (0, Fraction(1, 3))])
def test_extreme_bounds_keep_their_promise(bounds):
    low, high = (float(b) for b in bounds)
    values = [low, high, (low + high) / 2, math.inf, -math.inf, 2**62, -(2**63), 10**400, 1e-300]
    clamped = np.clip([float("inf") if isinstance(v, int) and v > 1e300 else float(v) for v in values], low, high)
    assert exactly(queries.sum(values, bounds=bounds)) == pytest.approx(clamped.sum(), abs=1e-6 * (high - low))


def test_the_grid_is_the_same_whatever_the_data():
    """A null turns an integer column into floats; the grid must not show it."""
    made = [queries.sum(v, bounds=(0, 10)) for v in ([1, 2], [1.0, None], np.array([1]), [])]
    assert len({m.granularity for m in made}) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: queries.histogram(["a"], categories=[]),
        lambda: queries.histogram(["a"], categories=["a", "a"]),
        lambda: queries.histogram(["a"], categories=["a", None]),
        lambda: queries.histogram([1], edges=[0]),
        lambda: queries.histogram([1], edges=[0, 0]),
        lambda: queries.histogram([1], edges=[0, math.nan]),
        lambda: queries.histogram([1], edges=[1, 0]),
        lambda: queries.quantile_scores([1], candidates=[]),
        lambda: queries.quantile_scores([1], candidates=[2, 1]),
        lambda: queries.quantile_scores([1], candidates=[1, math.inf]),
        lambda: queries.quantile_scores([1], quantile=0, candidates=[1]),
        lambda: queries.quantile_scores([1], quantile=math.nan, candidates=[1]),
        lambda: queries.mean([1], bounds=(0, 1), count_share=0.95),
        lambda: queries.mean([1], bounds=(0, 1), count_share=math.nan),
        lambda: queries.mean([1], bounds=(0, 1), relation="zero"),
        lambda: queries.mean([], bounds=(0, 1), relation=REPLACE_ONE),
        lambda: queries.mean([1], bounds=(0, 1), relation=REPLACE_ONE, persons=[1], max_rows=1),
        lambda: queries.sum([1], bounds=(0, 1), persons=[1]),
        lambda: queries.sum([1], bounds=(0, 1), max_rows=2),
        lambda: queries.sum([1], bounds=(0, 1), persons=[1, 2], max_rows=2),
        lambda: queries.sum([1], bounds=(0, 1), persons=[1], max_rows=0),
        lambda: queries.sum([1], bounds=(0, 1), persons=[1], max_rows=1.5),
        lambda: queries.accuracy([1, 2], [1]),
        lambda: queries.accuracy([], []),
    ],
)
def test_bad_public_arguments_are_refused_with_rule_name_value_and_remedy(call):
    with pytest.raises(InvalidArgument, match=r"\w+ must .*, got .*: .+"):
        call()


@pytest.mark.parametrize(
    ("given", "got"), [({}, "none"), ({"categories": [1], "edges": [0, 1]}, "categories and edges")]
)
def test_a_histogram_takes_either_categories_or_edges(given, got):
    with pytest.raises(InvalidArgument, match=f"^Give exactly one of categories and edges; got {got}.$"):
        queries.histogram([1], **given)


def test_a_query_for_other_neighbors_can_not_be_released():
    with pytest.raises(InvalidSensitivity, match=r"mean is bounded for \(dp.REPLACE_ONE\)"):
        dp.laplace(queries.mean([1], bounds=(0, 1), relation=REPLACE_ONE), epsilon=1.0, relation=ADD_REMOVE)


@pytest.mark.parametrize(
    ("query", "truth"),
    [
        (lambda x: queries.mean(x, bounds=(0, 100)), np.mean),
        (lambda x: queries.mean(x, bounds=(0, 100), relation=REPLACE_ONE), np.mean),
        (lambda x: queries.variance(x, bounds=(0, 100)), np.var),
        (lambda x: queries.sum(x, bounds=(0, 100)), np.sum),
        (queries.count, len),
    ],
    ids=["mean", "mean of known size", "variance", "sum", "count"],
)
@pytest.mark.parametrize("release", [
    pytest.param(lambda b: dp.laplace(b, epsilon=0.5), marks=pytest.mark.slow),
    lambda b: dp.gaussian(b, epsilon=0.5, delta=1e-6),
    pytest.param(lambda b: dp.l2_laplace(b, epsilon=0.5, delta=1e-6), marks=pytest.mark.slow),
], ids=["laplace", "gaussian", "l2 laplace"])  # fmt: skip
def test_confidence_intervals_cover_and_standard_errors_are_right(query, truth, release):
    """1500 releases. Coverage below 95% − 5.5 standard errors, or a spread 20% off, has probability below 1e-6."""
    values = np.random.default_rng(1).gamma(4.0, 8.0, 3000).clip(0, 100)
    made, exact = query(values), truth(values)
    released = [release(made) for _ in range(1500)]
    covered = np.mean([low - 1e-4 <= exact <= high + 1e-4 for low, high in (r.confidence_interval() for r in released)])
    assert covered >= 0.95 - 5.5 * math.sqrt(0.95 * 0.05 / 1500)
    spread = np.std([r.value for r in released])
    assert np.median([r.standard_error for r in released]) == pytest.approx(spread, rel=0.2)
