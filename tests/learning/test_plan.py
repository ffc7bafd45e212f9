"""A plan is one event, its noise is the least that fits, and it explains itself in words."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

import discreet as dp
from discreet import accounting, events
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.learning import Adaptive, Automatic, Flat, PerLayer, Plan, pricing
from tests.learning import small

COMMON = {"examples": 30_000, "batch_size": 1024, "epochs": 15, "clip_norm": 1.0}


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"relation": "zero-out"},
        {"noise": "laplace"},
        {"noise": "l2-laplace"},
        pytest.param({"sampling": "without replacement"}, marks=pytest.mark.slow),
        {"sampling": "shuffle"},
        {"sampling": "shuffle", "relation": "zero-out"},
        {"clipping": Adaptive(1.0), "clip_norm": None},
    ],
    ids=str,
)
def test_the_noise_is_the_least_whose_certified_price_fits(choice):
    plan = Plan.for_epsilon(2.0, delta=1e-6, **{**COMMON, **choice})
    price = pricing.price(plan.event, 1e-6, plan.relation).epsilon
    assert 2.0 * (1 - 1e-4) < price <= 2.0
    assert plan.guarantee.epsilon == 2.0
    assert plan.guarantee.delta == 1e-6
    assert plan.guarantee.protects == plan.neighbors


def test_pure_dp_needs_laplace_noise_and_no_delta():
    plan = Plan.for_epsilon(5.0, delta=0.0, noise="laplace", **COMMON)
    assert plan.guarantee == dp.PureDP(5.0).protecting(plan.neighbors)
    assert 5.0 * (1 - 1e-4) < accounting.pure(plan.event).epsilon <= 5.0
    assert str(plan.guarantee) == "5-DP, add or remove one row"
    with pytest.raises(InvalidArgument, match="laplace"):
        Plan.for_epsilon(5.0, delta=0.0, **COMMON)


def test_a_plan_is_one_event():
    plan = small.plan(insecure_seed=None, steps=7)
    assert plan.event == events.Repeated(events.PoissonSampled(0.2, events.Gaussian(1.0)), 7)
    assert plan.guarantee.epsilon == accounting.epsilon(plan.event, 1e-5).upper
    assert plan.guarantee_after(3).epsilon < plan.guarantee.epsilon
    assert plan.guarantee_after(0).epsilon == 0


def test_repeatable_noise_is_worth_nothing():
    plan = small.plan(insecure_seed=3)
    assert not events.is_secure(plan.event)
    assert math.isinf(plan.guarantee.epsilon)
    assert "nothing at all" in plan.explain()
    assert math.isinf(Plan.for_epsilon(1.0, delta=1e-5, insecure_seed=3, **COMMON).guarantee.epsilon)


def test_replacing_an_example_moves_a_sum_twice_as_far_as_removing_it():
    added = small.plan()
    replaced = small.plan(sampling="without replacement")
    assert replaced.relation is dp.REPLACE_ONE
    assert replaced.noise_scale(0.5, 1) == 2 * added.noise_scale(0.5, 1) == 1.0
    assert small.plan(relation=dp.ZERO_OUT).noise_scale(0.5, 1) == 0.5


def test_fixed_sizes_have_no_price_where_the_size_is_private():
    for name in ("without replacement", "shuffle"):
        with pytest.raises(UnknownEvent):
            Plan.for_epsilon(1.0, delta=1e-5, sampling=name, relation="add/remove", **COMMON)


def test_shuffled_batches_cost_far_more_than_poisson_batches():
    poisson = Plan.for_epsilon(2.0, delta=1e-6, **COMMON).noise.noise_multiplier
    shuffled = Plan.for_epsilon(2.0, delta=1e-6, sampling="shuffle", **COMMON).noise.noise_multiplier
    assert shuffled > 4 * poisson


def test_the_cost_of_adaptive_clipping_is_in_the_event():
    """Sum and count as one Gaussian: squared shifts over noise add up to 1/z² (Andrew et al. 2021, Theorem 1)."""
    for relation, reach in (("add/remove", 1), ("replace-one", 2)):
        plan = small.plan(clipping=Adaptive(0.5, count_noise=2.0), noise_multiplier=1.5, relation=relation)
        moved = (reach * 0.5 / plan.noise_scale(0.5, 1)) ** 2 + (reach * 0.5 / plan.count_scale) ** 2
        assert moved == pytest.approx(1.5**-2)
        assert plan.noise_scale(0.5, 1) > 1.5 * 0.5 * reach
    with pytest.raises(InvalidArgument, match="count_noise"):
        small.plan(clipping=Adaptive(0.5, count_noise=0.5))
    with pytest.raises(InvalidArgument, match="gaussian"):
        small.plan(clipping=Adaptive(0.5, order=1), noise="laplace")
    with pytest.raises(InvalidArgument, match="clip_schedule"):
        small.plan(clipping=Adaptive(0.5), clip_schedule=((0, 1.0),))


def test_noise_and_clipping_must_speak_of_the_same_norm():
    assert small.plan(noise="laplace").clipping == Flat(0.5, order=1)
    assert small.plan(noise="l2-laplace").clipping == Flat(0.5, order=2)
    for noise, order in (("gaussian", 1), ("laplace", 2), ("l2-laplace", 1)):
        with pytest.raises(InvalidArgument, match="norm"):
            small.plan(clipping=Flat(1.0, order=order), noise=noise)


def test_a_schedule_moves_the_norm_along_straight_lines_and_the_noise_with_it():
    plan = small.plan(clip_schedule=((10, 2.0), (20, 1.0), (30, 1.0)), steps=40)
    assert [plan.clip_norm(step) for step in (0, 10, 15, 20, 25, 39)] == [2.0, 2.0, 1.5, 1.0, 1.0, 1.0]
    assert plan.noise_scale(plan.clip_norm(15), 1) == 1.5
    assert plan.event == small.plan(steps=40).event
    for bad in ((), ((0, 0.0),), ((5, 1.0), (5, 2.0)), ((0, 1.0, 2.0),), 3, ((-1, 1.0),), ((0, math.nan),)):
        with pytest.raises(InvalidArgument, match="clip_schedule"):
            small.plan(clip_schedule=bad)


def test_a_persons_examples_together_stay_within_the_norm():
    plan = small.plan(unit=dp.person("who", max_rows=4))
    assert plan.example_norm(1.0) == 0.25
    assert plan.noise_scale(1.0, 1) == 1.0
    assert str(plan.neighbors) == "add or remove one person (at most 4 rows)"
    assert "1/4" in plan.explain()


CLIPPING_IN_WORDS = [
    (Flat(0.7), "scaled down to an L2 norm of at most 0.7."),
    (Automatic(0.7), "normalized to an L2 norm below 0.7, with a stabilizer of 0.01."),
    (PerLayer(0.7), "scaled down layer by layer, to an L2 norm of at most 0.7 in total."),
    (Adaptive(0.7), "scaled down to an L2 norm that starts at 0.7 and follows a private estimate of the 0.5 quantile"),
]


@pytest.mark.parametrize(("clipping", "words"), CLIPPING_IN_WORDS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        ("poisson", "each example joins each batch independently with probability 0.2, 12 on average."),
        ("without replacement", "each batch is a random subset of exactly 12 of 60 examples."),
        ("shuffle", "each pass goes through all 60 examples in random order, 12 in a batch"),
    ],
)
def test_every_plan_explains_itself_in_words(clipping, words, sampling, drawn):
    text = small.plan(clipping=clipping, sampling=sampling, insecure_seed=None).explain()
    assert f"4 steps; {drawn}" in text
    assert f"Each example's gradient is {words}" in text
    assert "Gaussian noise with a standard deviation of 1 times the sensitivity" in text
    assert "DP" in text


def test_an_explained_schedule_names_its_norms():
    text = small.plan(clip_schedule=((0, 1.0), (3, 0.1))).explain()
    assert "at most the scheduled norm (1 at step 0, 0.1 at step 3, linear in between)." in text


def test_an_explained_laplace_noise_names_its_norm():
    text = small.plan(noise="laplace").explain()
    assert "at most 0.5" in text
    assert "Laplace noise with a scale of 1 times the L1 sensitivity" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip_norm": 0}, "clip_norm must be > 0, got 0: "),
        (
            {"clip_norm": 1.0, "clipping": Flat(1.0)},
            "Give exactly one of clip_norm and clipping; got clip_norm and",
        ),
        ({"clip_norm": None}, "Give exactly one of clip_norm and clipping; got none"),
        ({"steps": None}, "Give exactly one of steps and epochs; got none"),
        ({"epochs": 2}, "Give exactly one of steps and epochs; got steps and epochs"),
    ],
)
def test_an_error_names_the_argument_that_was_given(changes, message):
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        small.plan(**changes)


def test_a_draw_seldom_needs_a_second_physical_batch():
    plan = Plan.for_noise(1.0, delta=1e-5, **COMMON)
    assert 1024 + 2 * 32 < plan.physical_batch_size < 1024 + 3 * 32
    assert small.plan(sampling="shuffle").physical_batch_size == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("delta", 1.0),
        ("delta", -1e-9),
        ("delta", math.nan),
        ("examples", 0),
        ("examples", 1.5),
        ("batch_size", 30_001),
        ("epochs", 0),
        ("epochs", None),
        ("steps", 5),
        ("clip_norm", 0.0),
        ("clip_norm", math.inf),
        ("clip_norm", None),
        ("clipping", Flat(1.0)),
        ("noise", "uniform"),
        ("sampling", "sorted"),
        ("relation", "friends"),
        ("physical_batch_size", -3),
        ("insecure_seed", -1),
    ],
)
def test_a_bad_argument_is_refused(name, value):
    settings = {"epsilon": 1.0, "delta": 1e-5, **COMMON, name: value}
    with pytest.raises(InvalidArgument):
        Plan.for_epsilon(settings.pop("epsilon"), **settings)


def test_a_plan_is_a_value():
    assert small.plan() == small.plan()
    assert hash(small.plan()) == hash(small.plan())
    assert small.plan() != small.plan(steps=5)
    assert "insecure" not in repr(small.plan(insecure_seed=4))


def test_a_changed_copy_of_a_plan_shows_its_own_guarantee():
    plan = Plan.for_epsilon(1.0, delta=1e-5, examples=1000, batch_size=100, steps=10, clip_norm=1.0)
    assert plan.guarantee.epsilon == pytest.approx(1.0)
    longer = dataclasses.replace(plan, steps=1000)
    assert longer.guarantee.epsilon == pytest.approx(longer.guarantee_after(1000).epsilon)
    assert longer.guarantee.epsilon > 5


@pytest.mark.parametrize("changes", [{"clipping": "flat"}, {"unit": "rows"}])
def test_a_plan_names_what_is_of_the_wrong_kind(changes):
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        small.plan(**changes)
