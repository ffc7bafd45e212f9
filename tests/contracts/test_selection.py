"""Every mechanism that chooses among candidates or randomizes answers keeps its promises; mutants break them.

Chi-square tests have a false-alarm rate of 1e-6. The exact privacy of small cases comes from enumerating neighbors.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet import events
from discreet.bounded import Bounded, Scores, Sensitivity
from discreet.errors import Exhausted, InvalidArgument, InvalidSensitivity
from discreet.mechanisms import (
    Exponential,
    NoisyMax,
    RandomizedResponse,
    TopK,
    exponential,
    noisy_max,
    randomized_response,
    sparse_vector,
    top_k,
)
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Person
from discreet.queries import count, histogram, quantile_scores, sum, votes
from tests.exact import FALSE_ALARM

CANDIDATES = ("a", "b", "c", "d")
DRAWS = 20_000


def scores(values, sensitivity=2, monotone=()):
    bound = {ADD_REMOVE: sensitivity, REPLACE_ONE: 2 * sensitivity}
    return Scores(np.array(values), CANDIDATES[: len(values)], bound, "test scores", monotone=frozenset(monotone))


def exponential_law(values, epsilon, sensitivity, monotone=False):
    weights = np.exp(epsilon * np.array(values, dtype=float) / (sensitivity * (1 if monotone else 2)))
    return weights / weights.sum()


def permute_and_flip_law(values, epsilon, sensitivity, monotone=False):
    """By enumerating the orders and the coins (McKenna & Sheldon 2020, Algorithm 1)."""
    keep = np.exp(epsilon * (np.array(values, dtype=float) - max(values)) / (sensitivity * (1 if monotone else 2)))
    law = np.zeros(len(values))
    orders = list(itertools.permutations(range(len(values))))
    for order in orders:
        reached = 1.0
        for i in order:
            law[i] += reached * keep[i] / len(orders)
            reached *= 1 - keep[i]
    return law


def drawn_from(draw):
    return [draw() for _ in range(DRAWS)]


def fits(drawn, law):
    """Pearson's test of DRAWS draws against a distribution on CANDIDATES."""
    observed = np.array([drawn.count(c) for c in CANDIDATES[: len(law)]])
    statistic = np.sum((observed - law * DRAWS) ** 2 / (law * DRAWS))
    return statistic < stats.chi2.isf(FALSE_ALARM, len(law) - 1)


VALUES = [5, 3, 4, -1]


@pytest.mark.parametrize("monotone", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("mechanism", "law"), [(Exponential, exponential_law), (NoisyMax, permute_and_flip_law)], ids=["exp", "noisy max"]
)
def test_choices_have_the_stated_probabilities(mechanism, law, monotone):
    scored = scores(VALUES, 2, [ADD_REMOVE] if monotone else [])
    chosen = mechanism(Fraction(3, 2))
    drawn = drawn_from(lambda: chosen.release(scored).value)
    assert fits(drawn, law(VALUES, 1.5, 2, monotone))
    # power: a rate that is 15% off is rejected
    assert not fits(drawn, law(VALUES, 1.5 * 1.15, 2, monotone))


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("law", [exponential_law, permute_and_flip_law])
def test_no_pair_of_neighboring_scores_exceeds_epsilon(law, monotone):
    """The distribution of the mechanism, over all neighboring integer scores of three candidates."""
    epsilon, sensitivity = 1.3, 1
    worst = 0.0
    for base in itertools.product(range(-2, 3), repeat=3):
        moves = itertools.product((0, 1), repeat=3) if monotone else itertools.product((-1, 0, 1), repeat=3)
        p = law(base, epsilon, sensitivity, monotone)
        for move in moves:
            q = law([b + m for b, m in zip(base, move, strict=True)], epsilon, sensitivity, monotone)
            worst = max(worst, float(np.max(np.abs(np.log(p / q)))))
    assert 0.8 * epsilon < worst <= epsilon * (1 + 1e-12)


def test_mutant_that_uses_the_monotone_rate_for_other_scores_is_not_private():
    """Why `monotone` is a fact about the query: with ε/Δ and opposite moves the loss exceeds ε."""
    p, q = (exponential_law(v, 1.0, 1, monotone=True) for v in ([0, 1, 1], [1, 0, 0]))
    assert np.max(np.abs(np.log(p / q))) > 1.0


def test_permute_and_flip_is_never_worse_than_the_exponential_mechanism():
    for values in itertools.product(range(3), repeat=3):
        score = np.array(values, dtype=float)
        assert permute_and_flip_law(values, 1.0, 1) @ score >= exponential_law(values, 1.0, 1) @ score - 1e-12


@pytest.mark.slow
def test_top_k_peels_the_exponential_mechanism():
    scored = scores(VALUES)
    law = np.zeros((4, 4))
    for i in range(4):
        rest = [j for j in range(4) if j != i]
        follow = exponential_law([VALUES[j] for j in rest], 1.0, 2)
        law[i, rest] = exponential_law(VALUES, 1.0, 2)[i] * follow
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    chosen = TopK(Fraction(2), 2)
    drawn = [chosen.release(scored).value for _ in range(DRAWS)]
    observed = np.array([drawn.count((CANDIDATES[a], CANDIDATES[b])) for a, b in pairs])
    expected = np.array([law[pair] for pair in pairs]) * DRAWS
    assert np.sum((observed - expected) ** 2 / expected) < stats.chi2.isf(FALSE_ALARM, 11)
    assert chosen.event() == events.Repeated(events.Exponential(Fraction(1)), 2)


def test_events_and_guarantees_say_what_was_run():
    scored = scores(VALUES)
    assert exponential(scored, epsilon=0.1).event == events.Exponential(Fraction(1, 10))
    assert noisy_max(scored, epsilon=0.1).event == events.NoisyMax(Fraction(1, 10))
    for released in (exponential(scored, epsilon=0.1), noisy_max(scored, epsilon=0.1), top_k(scored, k=2, epsilon=0.1)):
        assert released.guarantee.epsilon == pytest.approx(0.1)
        assert released.guarantee.epsilon <= 0.1
        assert released.guarantee.protects.relation is ADD_REMOVE
    seeded = exponential(scored, epsilon=0.1, insecure_seed=1)
    assert seeded.event == events.Insecure(events.Exponential(Fraction(1, 10)))
    assert math.isinf(seeded.guarantee.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_a_larger_sensitivity_under_another_relation_means_a_flatter_choice(relation):
    scored = scores(VALUES, 1)
    law = exponential_law(VALUES, 2.0, scored.sensitivity(relation))
    assert fits(drawn_from(lambda: exponential(scored, epsilon=2.0, relation=relation).value), law)


CHOOSERS = {
    "exponential": lambda s, **k: exponential(s, **{"epsilon": 1.0, **k}),
    "noisy_max": lambda s, **k: noisy_max(s, **{"epsilon": 1.0, **k}),
    "top_k": lambda s, **k: top_k(s, **{"epsilon": 1.0, "k": 2, **k}),
}
each = pytest.mark.parametrize("call", CHOOSERS.values(), ids=CHOOSERS.keys())


@pytest.mark.parametrize("foreign", [[1, 2, 3], np.zeros(3), None, {"a": 1}, histogram(["a"], categories=["a"])])
@each
def test_scores_without_a_bound_are_refused(call, foreign):
    with pytest.raises(InvalidSensitivity, match="scores must be a Scores made by a query"):
        call(foreign)


@pytest.mark.parametrize("value", [0, -0.0, -1, math.nan, math.inf, 5e-324, "1", None, True])
@each
def test_a_bad_epsilon_is_refused(call, value):
    with pytest.raises(InvalidArgument, match=r"epsilon must .*, got .*: .+"):
        call(scores(VALUES), epsilon=value)


@pytest.mark.parametrize("k", [0, -1, 1.5, 5, None, True])
def test_a_bad_k_is_refused(k):
    with pytest.raises(InvalidArgument, match=r"k must .*, got .*: .+"):
        top_k(scores(VALUES), k=k, epsilon=1.0)


@each
def test_extreme_scores_and_epsilons_are_handled_exactly(call):
    huge = scores([1 << 60, -(1 << 60), 0], 1)
    first = call(huge, epsilon=10.0).value
    assert first == "a" or first[0] == "a"  # the others have probability e^{−5·2^60}
    assert call(huge, epsilon=1e-30).value is not None


def test_a_single_candidate_is_chosen():
    assert noisy_max(votes([], candidates=["only"]), epsilon=1.0).value == "only"
    assert exponential(votes([], candidates=["only"]), epsilon=1.0).value == "only"


def test_the_private_median_is_near_the_median():
    """The exponential mechanism's tail: P(score off by more than (2/ε)(ln m + t)) ≤ e^{−t}, t = 14 for 1e-6."""
    data = np.arange(10_001)
    value = exponential(quantile_scores(data, candidates=range(0, 10_001, 10)), epsilon=1.0).value
    assert abs(value - 5000) / 1 <= 2 * (math.log(1001) + 14) + 10


# --- sparse vector


def test_a_run_ends_after_its_positive_answers_and_nothing_more_is_drawn():
    run = sparse_vector(threshold=100, epsilon=5.0, max_answers=2, monotone=True)
    high, low = count([0] * 10_000), count([])
    assert [run.above(q).value for q in (low, high, low, high)] == [False, True, False, True]
    assert run.answers_left == 0
    with pytest.raises(Exhausted, match="has given all"):
        run.above(low)


def test_the_whole_run_is_one_event_that_is_known_at_its_start():
    run = sparse_vector(threshold=0, epsilon=0.5, max_answers=3)
    assert run.event == events.SparseVector(Fraction(1, 2), 3)
    assert run.above(count([])).event is run.event
    assert run.guarantee.epsilon == 0.5


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("answers", [1, 3])
def test_the_noise_of_a_run_follows_the_paper(monkeypatch, monotone, answers):
    """Threshold noise Δ/ε₁ and query noise 2cΔ/ε₂ (cΔ/ε₂ if monotone) with ε₁ + ε₂ ≤ ε (Lyu, Su & Li 2017, Alg. 1)."""
    drawn = []
    from discreet.mechanisms.sampling import samplers

    real = samplers.discrete_laplace
    monkeypatch.setattr(samplers, "discrete_laplace", lambda s, n, b: drawn.append(s) or real(s, n, b))
    run = sparse_vector(threshold=10**6, epsilon=1.0, max_answers=answers, sensitivity=3, monotone=monotone)
    run.above(count([]))
    run.above(count([]))
    threshold_scale, query_scale, again = drawn
    assert query_scale == again
    factor = answers * (1 if monotone else 2)
    assert 3 / threshold_scale + 3 * factor / query_scale <= 1
    assert 3 / threshold_scale + 3 * factor / query_scale > 0.999
    assert float(query_scale / factor / threshold_scale) == pytest.approx(factor ** (-2 / 3), rel=0.01)


def above_law(gaps, epsilon, answers, monotone):
    """P(each pattern of answers) of a run on integer queries `gaps` above the threshold, by direct summation."""
    factor = answers * (1 if monotone else 2)
    share = 1 / (1 + factor ** (2 / 3))
    b1, b2 = 1 / (epsilon * share), factor / (epsilon * (1 - share))
    reach = np.arange(-int(40 * b1), int(40 * b1) + 1)
    weight = np.tanh(1 / (2 * b1)) * np.exp(-np.abs(reach) / b1)

    def tail(m):  # P(query noise ≥ m)
        q = math.exp(-1 / b2)
        return np.where(m > 0, q ** np.maximum(m, 0) / (1 + q), 1 - q ** (1 - np.minimum(m, 0)) / (1 + q))

    law = {}
    for pattern in itertools.product((False, True), repeat=len(gaps)):
        if np.sum(pattern[:-1]) >= answers and len(gaps) > 1:
            continue
        p = np.ones_like(weight)
        for gap, answer in zip(gaps, pattern, strict=True):
            up = tail(reach - gap)
            p = p * (up if answer else 1 - up)
        law[pattern] = float(weight @ p)
    return law


@pytest.mark.parametrize("monotone", [False, True])
def test_no_neighbor_changes_a_pattern_of_answers_by_more_than_epsilon(monotone):
    epsilon, worst = 1.0, 0.0
    moves = [(1, 1, 1), (1, 0, 1)] if monotone else [(1, -1, 1), (-1, 1, -1), (1, 1, 1)]
    for base in ((0, 0, 0), (2, -1, 0), (-3, 3, -3)):
        for move in moves:
            p = above_law(base, epsilon, 2, monotone)
            q = above_law([b + m for b, m in zip(base, move, strict=True)], epsilon, 2, monotone)
            worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p if p[k] > 1e-12))
    assert 0.3 < worst <= epsilon


def test_answers_follow_the_distribution_that_was_checked():
    law = above_law((1, -2), 1.0, 2, True)
    runs = 2500
    observed = dict.fromkeys(law, 0)
    for _ in range(runs):
        run = sparse_vector(threshold=10, epsilon=1.0, max_answers=2, monotone=True)
        observed[run.above(count([0] * 11)).value, run.above(count([0] * 8)).value] += 1
    statistic = np.sum([(observed[k] - p * runs) ** 2 / (p * runs) for k, p in law.items()])
    assert statistic < stats.chi2.isf(FALSE_ALARM, 3)


@pytest.mark.parametrize(
    "foreign",
    [
        count([1], persons=["a"], max_rows=5),
        sum([1.0], bounds=(0, 10)),
        histogram(["a"], categories=["a", "b"]),
        Bounded(np.array(5), Fraction(1), {REPLACE_ONE: Sensitivity.scalar(1)}, "other relation"),
        Bounded(np.array(5), Fraction(1), {ADD_REMOVE: Sensitivity.scalar(1)}, "other unit", Person(None, 1)),
        Bounded(np.array(5), Fraction(1, 3), {ADD_REMOVE: Sensitivity.scalar(1)}, "other grid"),
        7,
    ],
    ids=["persons", "sum", "vector", "relation", "unit", "grid", "number"],
)
def test_a_run_refuses_queries_that_it_was_not_created_for(foreign):
    run = sparse_vector(threshold=0, epsilon=100.0)
    with pytest.raises(InvalidSensitivity):
        run.above(foreign)
    assert run.answers_left == 1


def test_a_run_on_a_finer_grid_accepts_sums():
    query = sum([3.0] * 1000, bounds=(0, 10))
    run = sparse_vector(threshold=1000.0, epsilon=1.0, sensitivity=10, granularity=query.granularity)
    assert run.above(query).value


@pytest.mark.parametrize(
    "query",
    [
        sum([1], bounds=(-1, 1)),
        sum([-1], bounds=(-1, 0)),
        Bounded(np.array(5), Fraction(1), {ADD_REMOVE: Sensitivity.scalar(1)}, "unknown"),
    ],
    ids=["both ways", "the other way", "unknown"],
)
def test_a_monotone_run_accepts_only_queries_that_move_one_way(query):
    step = query.granularity
    run = sparse_vector(threshold=10**9, epsilon=1.0, granularity=step, monotone=True)
    run.above(count([1]))
    with pytest.raises(InvalidSensitivity, match="direction of"):
        run.above(query)


def test_a_monotone_run_is_refused_under_replace_one():
    """Counts of two categories move in opposite directions there: the loss of a run at ε = 1 would be 1.5."""
    with pytest.raises(InvalidArgument, match="monotone must be False under replace-one"):
        sparse_vector(threshold=0, epsilon=1.0, monotone=True, relation="replace-one")
    with pytest.raises(InvalidArgument, match="monotone must be one of"):
        sparse_vector(threshold=0, epsilon=1.0, monotone="yes")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_run_does_not_answer():
    run = sparse_vector(threshold=0, epsilon=1.0)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            run.above(count([1]))
            os.write(write, b"answered")
        except Exhausted:
            os.write(write, b"refused")
        finally:
            os._exit(0)
    os.wait()
    assert os.read(read, 100) == b"refused"
    assert run.answers_left == 1


def test_a_run_cannot_be_copied():
    run = sparse_vector(threshold=0, epsilon=1.0)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same noise"):
            duplicate(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", math.nan),
        ("threshold", math.inf),
        ("epsilon", 0),
        ("epsilon", math.nan),
        ("max_answers", 0),
        ("max_answers", 1.0),
        ("sensitivity", 0),
        ("sensitivity", 0.3),
        ("granularity", -1),
        ("relation", "friends"),
    ],
)
def test_bad_parameters_of_a_run_are_refused(name, value):
    with pytest.raises(InvalidArgument, match=rf"{name} must .*, got .*: .+"):
        sparse_vector(**{"threshold": 0, "epsilon": 1.0, name: value})


# --- randomized response


@pytest.mark.parametrize("k", [2, 3, 10])
def test_reports_have_the_stated_probabilities(k):
    truth = [0] * 50_000
    reports = randomized_response(truth, categories=range(k), epsilon=1.0).value
    observed = np.bincount(reports, minlength=k)
    law = np.array([math.e] + [1.0] * (k - 1)) / (math.e + k - 1)
    assert np.sum((observed - law * 50_000) ** 2 / (law * 50_000)) < stats.chi2.isf(FALSE_ALARM, k - 1)


def test_an_answer_outside_the_categories_is_reported_uniformly():
    reports = randomized_response(["?", None, math.nan, [1]] * 10_000, categories="abc", epsilon=3.0).value
    observed = np.array([reports.count(c) for c in "abc"])
    assert np.sum((observed - 40_000 / 3) ** 2 / (40_000 / 3)) < stats.chi2.isf(FALSE_ALARM, 2)


def test_frequencies_are_estimated_without_bias():
    """Within 5 standard errors: a false alarm of 3·6e-7."""
    truth = ["x"] * 60_000 + ["y"] * 30_000 + ["z"] * 10_000
    mechanism = RandomizedResponse(Fraction(1), ("x", "y", "z"))
    shares, errors = mechanism.frequencies(mechanism.release(truth).value)
    assert np.all(np.abs(shares - [0.6, 0.3, 0.1]) < 5 * errors)
    assert mechanism.event() == events.RandomizedResponse(Fraction(1), 3)


def test_randomized_response_protects_one_person_under_replace_one():
    released = randomized_response([True], epsilon=2.0)
    assert released.guarantee.protects.relation is REPLACE_ONE
    assert released.guarantee.epsilon == 2.0


@pytest.mark.parametrize("categories", [(), ("a",), ("a", "a"), (None, "a"), (math.nan, 1.0)])
def test_bad_categories_are_refused(categories):
    with pytest.raises(InvalidArgument, match=r"categories must .*, got .*: .+"):
        randomized_response(["a"], categories=categories, epsilon=1.0)
