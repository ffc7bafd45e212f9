"""Every additive mechanism meets the contract, and every mutant breaks it."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet import bounded as bounded_module
from discreet.bounded import Bounded, Scaled, Scores, Sensitivity
from discreet.errors import DiscreetError, InvalidArgument, InvalidSensitivity
from discreet.mechanisms import (
    DiscreteGaussian,
    Gaussian,
    L2Laplace,
    Laplace,
    discrete_gaussian,
    gaussian,
    l2_laplace,
    laplace,
)
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT
from tests.contracts import additive as contract
from tests.contracts.additive import SENSITIVITY, STEP, Case, zeros

CASES = [
    Case("laplace", lambda b, r: Laplace.for_epsilon(b, 0.3, r), 0.3, 0.0, "l1"),
    Case("gaussian", lambda b, r: Gaussian.for_epsilon(b, 0.8, 1e-6, relation=r), 0.8, 1e-6, "l2"),
    Case(
        "classical gaussian",
        lambda b, r: Gaussian.for_epsilon(b, 0.8, 1e-6, calibration="classical", relation=r),
        0.8,
        1e-6,
        "l2",
    ),
    Case("l2 laplace", lambda b, r: L2Laplace.for_epsilon(b, 6.0, 1e-6, r), 6.0, 1e-6, "l2"),
    Case("discrete gaussian", lambda b, r: DiscreteGaussian.for_rho(b, 0.05, r), 0.05, 0.0, "l2"),
]
TIGHT = [case for case in CASES if case.name != "classical gaussian"]
CHECKS = [
    contract.check_event_is_what_ran,
    contract.check_noise_is_fresh,
    contract.check_noise_is_integer_on_any_grid,
    contract.check_value_is_kept,
    contract.check_stated_error_is_the_real_one,
    contract.check_seeded_noise_is_marked_and_repeats,
    contract.check_guarantee_names_whom_it_protects,
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def made(case: Case):
    return case.calibrate(zeros(1), ADD_REMOVE)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@by_name
def test_the_contract_holds(case, check):
    check(made(case))


@pytest.mark.parametrize("relation", SENSITIVITY)
@by_name
def test_the_price_is_within_what_was_asked_under_each_relation(case, relation):
    contract.check_price_is_within_what_was_asked(case, case.calibrate(zeros(1), relation), relation)


@pytest.mark.parametrize("case", TIGHT, ids=lambda case: case.name)
def test_the_calibration_wastes_no_noise(case):
    contract.check_noise_is_not_wasted(case, made(case))


# --- mutants: each makes one plausible mistake, and some check must catch it


def with_draw(mechanism, draw):
    """`mechanism` with another sampler, everything else as it was."""
    mutant = dataclasses.replace(mechanism)
    object.__setattr__(mutant, "draw", draw)
    return mutant


@by_name
def test_mutant_with_nine_tenths_of_the_noise_is_caught(case):
    real = made(case)
    field = dataclasses.fields(real)[0].name
    factor = Fraction(81, 100) if field == "variance" else Fraction(9, 10)
    weaker = dataclasses.replace(real, **{field: getattr(real, field) * factor})
    with pytest.raises(AssertionError):
        contract.check_event_is_what_ran(with_draw(real, weaker.draw))
    if case in TIGHT:
        with pytest.raises(AssertionError):
            contract.check_price_is_within_what_was_asked(case, weaker)


@pytest.mark.parametrize("wrong", ["linf", "l2", "l1"])
@pytest.mark.parametrize("case", TIGHT, ids=lambda case: case.name)
def test_mutant_calibrated_to_another_norm_is_caught(case, wrong):
    if wrong == case.norm:
        return
    right = zeros(1).sensitivity()
    size = {"linf": right.linf, "l2": math.isqrt(right.l2_squared), "l1": right.l1}[wrong]
    foreign = Bounded(np.zeros(1), STEP, {ADD_REMOVE: Sensitivity.scalar(size)}, "foreign")
    mutant = case.calibrate(foreign, ADD_REMOVE)

    def both_checks():
        contract.check_price_is_within_what_was_asked(case, mutant)
        contract.check_noise_is_not_wasted(case, mutant)

    with pytest.raises(AssertionError):
        both_checks()


@pytest.mark.parametrize("case", TIGHT, ids=lambda case: case.name)
def test_mutant_that_halves_the_sensitivity_is_caught(case):
    half = {r: Sensitivity(s.l0, s.l1 // 2, s.l2_squared // 4 + 1, s.linf // 2) for r, s in SENSITIVITY.items()}
    halved = Bounded(np.zeros(1), STEP, half, "halved")
    with pytest.raises(AssertionError):
        contract.check_price_is_within_what_was_asked(case, case.calibrate(halved, ADD_REMOVE))


@by_name
def test_mutant_for_the_wrong_neighbors_is_caught(case):
    with pytest.raises(AssertionError):
        contract.check_price_is_within_what_was_asked(case, made(case), REPLACE_ONE)


@by_name
def test_mutant_that_reuses_randomness_is_caught(case):
    real = made(case)
    frozen = real.draw(STEP, contract.DRAWS, _bits())
    with pytest.raises(AssertionError):
        contract.check_noise_is_fresh(with_draw(real, lambda g, n, bits: frozen[:n]))
    with pytest.raises(AssertionError):
        contract.check_noise_is_fresh(
            with_draw(real, lambda g, n, bits: np.repeat(real.draw(g, (n + 1) // 2, bits), 2)[:n])
        )


@by_name
def test_mutant_with_floating_point_noise_is_caught(case):
    real = made(case)
    rng = np.random.default_rng(1)
    float_noise = with_draw(real, lambda g, n, bits: rng.laplace(scale=50.0, size=n))
    with pytest.raises(AssertionError):
        contract.check_noise_is_integer_on_any_grid(float_noise)


def _bits():
    from discreet.mechanisms.sampling.entropy import SYSTEM

    return SYSTEM


# --- refusals

ONE_LINERS = {
    "laplace": lambda b, **k: laplace(b, **{"epsilon": 1.0, **k}),
    "gaussian": lambda b, **k: gaussian(b, **{"epsilon": 1.0, "delta": 1e-6, **k}),
    "l2_laplace": lambda b, **k: l2_laplace(b, **{"epsilon": 1.0, "delta": 1e-6, **k}),
    "discrete_gaussian": lambda b, **k: discrete_gaussian(b, **{"rho": 0.5, **k}),
}
each = pytest.mark.parametrize("call", ONE_LINERS.values(), ids=ONE_LINERS.keys())


class Pretender:
    """Looks like a Bounded and claims its own sensitivity."""

    def __init__(self):
        real = zeros(1)
        self.values, self.granularity, self.relation = real.values, real.granularity, real.relation
        self.unit, self.finish, self.labels, self.dimension = real.unit, real.finish, None, 1

    def sensitivity(self, relation=None):
        return Sensitivity.scalar(1)


class Subclass(Bounded):
    def sensitivity(self, relation=None):
        return Sensitivity.scalar(1)


@pytest.mark.parametrize(
    "foreign",
    [
        3.0,
        np.zeros(3),
        [1, 2],
        None,
        "count",
        Pretender(),
        Scores(np.zeros(2), ("a", "b"), {ADD_REMOVE: 1}, "votes"),
        Subclass(np.zeros(1), STEP, SENSITIVITY, "sub"),
    ],
    ids=lambda f: type(f).__name__,
)
@each
def test_a_foreign_sensitivity_is_refused(call, foreign):
    with pytest.raises(InvalidSensitivity, match="bounded must be a Bounded made by a query"):
        call(foreign)


@each
def test_a_relation_that_the_value_is_not_bounded_for_is_refused(call):
    with pytest.raises(InvalidSensitivity, match="relation must be one that zeros is bounded for"):
        call(zeros(1), relation=ZERO_OUT)
    with pytest.raises(InvalidArgument, match="relation must be one of"):
        call(zeros(1), relation="neighborly")


BAD_POSITIVE = [0, -0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, "1", None, True, 1j, [1.0], 10**400, 1e300]


@pytest.mark.parametrize("value", BAD_POSITIVE, ids=repr)
@each
def test_a_bad_privacy_parameter_is_refused_with_rule_name_value_and_remedy(call, value):
    name = "rho" if call is ONE_LINERS["discrete_gaussian"] else "epsilon"
    with pytest.raises(
        InvalidArgument, match=r"(epsilon|rho|scale|variance|standard_deviation|budget).* must .*, got .*: .+"
    ):
        call(zeros(1), **{name: value})


@pytest.mark.parametrize("value", [*BAD_POSITIVE[:6], 1.0, 1.5, "1e-6", None], ids=repr)
def test_a_bad_delta_is_refused(value):
    for call in (gaussian, l2_laplace):
        with pytest.raises(InvalidArgument, match=r"delta must .*, got .*: .+"):
            call(zeros(1), epsilon=1.0, delta=value)


@pytest.mark.parametrize("epsilon", [1.0, 1.5, 100])
def test_the_classical_calibration_refuses_an_epsilon_of_one_and_more(epsilon):
    with pytest.raises(InvalidArgument, match="epsilon must be < 1"):
        gaussian(zeros(1), epsilon=epsilon, delta=1e-6, calibration="classical")


def test_an_unknown_calibration_is_refused():
    with pytest.raises(InvalidArgument, match="calibration must be one of 'analytic', 'classical'"):
        gaussian(zeros(1), epsilon=0.5, delta=1e-6, calibration="magic")


@pytest.mark.parametrize(
    "epsilon", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), 1, np.int64(1), 1e-5, 1e4, 10**6, 1e100]
)
@each
def test_every_kind_of_real_number_is_accepted(call, epsilon):
    name = "rho" if call is ONE_LINERS["discrete_gaussian"] else "epsilon"
    assert np.isfinite(call(zeros(2), **{name: epsilon}).value).all()


@pytest.mark.parametrize("value", [bounded_module.LARGEST, -bounded_module.LARGEST])
@each
def test_the_largest_values_do_not_wrap_around(call, value):
    edge = Bounded(np.array([value]), Fraction(1), {ADD_REMOVE: Sensitivity.scalar(1)}, "edge")
    released = call(edge).value[0]
    assert abs(int(released) - value) < 10**6


def test_values_that_could_overflow_cannot_be_bounded():
    with pytest.raises(DiscreetError, match="within ±2\\^60"):
        Bounded(np.array([(1 << 60) + 1]), Fraction(1), {ADD_REMOVE: Sensitivity.scalar(1)}, "edge")


def test_noise_that_exceeds_64_bits_saturates_instead_of_wrapping():
    class Huge(Laplace):
        def draw(self, granularity, size, bits):
            return np.full(size, np.iinfo(np.int64).max)

    released = Huge(Fraction(1)).release(Bounded(np.array([7]), Fraction(1), {ADD_REMOVE: Sensitivity.scalar(1)}, "x"))
    assert released.value[0] == (1 << 62) - (1 << 60)


def test_a_bounded_value_cannot_be_changed_or_seen():
    mine = np.array([41, 43])
    hidden = Bounded(mine, Fraction(1), SENSITIVITY, "secret count")
    mine[0] = 0
    assert hidden.values[0] == 41
    with pytest.raises(ValueError, match="read-only"):
        hidden.values[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        hidden.values.flags.writeable = True
    with pytest.raises(dataclasses.FrozenInstanceError):
        hidden.unit = None
    with pytest.raises(TypeError):
        hidden.sensitivities[ADD_REMOVE] = Sensitivity.scalar(1)
    for shown in (repr(hidden), str(hidden), f"{hidden}"):
        assert "41" not in shown
        assert "43" not in shown
        assert "secret count" in shown
    assert isinstance(hidden.finish, Scaled)


@pytest.mark.parametrize(
    "norms", [(0, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 2), (1, 1, 0, 1), (2, 4, 5, 1), (1, 1.5, 1, 1)]
)
def test_norms_that_contradict_each_other_are_refused(norms):
    with pytest.raises(InvalidArgument):
        Sensitivity(*norms)
