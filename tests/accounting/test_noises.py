"""Which noise to add: every kind is priced by the same accountant, and common sayings are checked."""

from __future__ import annotations

import math

import pytest

from discreet import events as ev
from discreet.accounting import epsilon
from discreet.accounting.folklore import sayings
from discreet.accounting.noises import Task, noises
from discreet.errors import InvalidArgument
from discreet.guarantees import ApproxDP

BUDGET = ApproxDP(1.0, 1e-6)


def named(options):
    return {one.name: one for one in options}


@pytest.fixture(scope="module")
def one_number():
    return noises(Task.of(BUDGET, l1=1.0))


@pytest.fixture(scope="module")
def vector():
    return noises(Task.of(BUDGET, l2=1.0, dimension=400, steps=3))


def test_the_scales_are_the_closed_forms_where_there_are_some(one_number):
    found = named(one_number.same_guarantee)
    assert found["Gaussian, analytic"].scale == pytest.approx(4.22467888933, rel=2e-5)
    assert found["Laplace, b = Δ₁/ε"].scale == 1.0
    assert found["Gaussian, classical"].scale is None
    assert found["Laplace"].scale == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("which", ["one_number", "vector"])
def test_every_kind_at_the_same_guarantee_fits_the_budget_and_wastes_little(which, request):
    found = request.getfixturevalue(which)
    for one in found.same_guarantee:
        if one.epsilon is None:
            continue
        assert one.epsilon.upper <= 1.0
        if one.found == "accountant":
            assert one.epsilon.upper > 0.998, one.name


def test_many_gaussian_releases_need_root_of_that_many_times_the_noise(vector, one_number):
    many, one = named(vector.same_guarantee), named(one_number.same_guarantee)
    ratio = many["Gaussian, analytic"].scale / one["Gaussian, analytic"].scale
    assert ratio == pytest.approx(math.sqrt(3), rel=1e-4)


def test_at_the_same_noise_all_kinds_have_the_same_deviation_and_the_accountant_s_price(vector):
    deviations = {one.standard_deviation for one in vector.same_noise}
    assert max(deviations) == pytest.approx(min(deviations))
    laplace = named(vector.same_noise)["Laplace"]
    event = ev.Repeated(ev.Laplace(laplace.scale / 20.0), 3)  # Δ₁ = √400 · 1
    assert laplace.epsilon == epsilon(event, 1e-6)


def test_errors_and_tails_are_those_of_the_distributions(one_number):
    found = named(one_number.same_guarantee)
    laplace, gaussian = found["Laplace"], found["Gaussian, analytic"]
    assert laplace.variance == pytest.approx(2 * laplace.scale**2)
    assert laplace.expected_error == laplace.scale
    assert math.exp(-laplace.tail(0.05) / laplace.scale) == pytest.approx(0.05)
    assert math.erfc(gaussian.tail(0.05) / gaussian.scale / math.sqrt(2)) == pytest.approx(0.05)
    assert gaussian.expected_error == pytest.approx(gaussian.scale * math.sqrt(2 / math.pi))
    assert gaussian.worst(1000) > gaussian.tail()


def test_laplace_is_best_for_one_count_and_gaussian_for_a_long_vector(one_number, vector):
    assert one_number.best.shape == "laplace"
    assert vector.best.name == "Gaussian, analytic"
    assert one_number.advice[0].startswith("Use Laplace noise")
    assert vector.advice[0].startswith("Use Gaussian noise")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"l1": 0.0},
        {"l1": math.nan},
        {"l1": 5.0, "l2": 1.0, "dimension": 4},
        {"l1": 0.5, "l2": 1.0, "dimension": 4},
        {"l1": 1.0, "dimension": 0},
        {"l1": 1.0, "steps": 0},
        {"l1": 1.0, "grid": -1.0},
        {"l1": 1.0, "grid": 1e-20},
    ],
)
def test_an_impossible_task_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        Task.of(BUDGET, **wrong)


def test_the_practical_scale_of_l2_laplace_does_not_follow_from_its_theorem():
    checked = sayings(noises(Task.of(ApproxDP(1.0, 1e-5), l1=1.0)))
    practical = checked[0]
    assert practical.verdict == "does not follow"
    assert "ε = 1.012" in practical.because


def test_at_a_large_epsilon_both_formulas_are_wrong():
    practical, classical = sayings(noises(Task.of(ApproxDP(12.0, 1e-6), l1=1.0)))[:2]
    assert classical.verdict == "does not hold"
    assert practical.verdict in ("does not hold", "does not follow")


def test_at_a_small_epsilon_both_formulas_hold():
    practical, classical = sayings(noises(Task.of(ApproxDP(0.1, 1e-6), l1=1.0)))[:2]
    assert practical.verdict == "holds"
    assert classical.verdict == "holds"
