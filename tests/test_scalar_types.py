"""A number means the same in every type: the same event, the same text and the same price, or a clear refusal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import accounting, codec
from discreet import events as ev
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE

# Each holds some of the numbers below exactly, and rounds or refuses the others.
TYPES: list[Callable[[Any], Any]] = [
    float,
    int,
    Fraction,
    Decimal,
    bool,
    complex,
    str,
    np.float16,
    np.float32,
    np.float64,
    np.longdouble,
    np.complex64,
    np.bool_,
    *(np.dtype(code).type for code in "bBhHiIlLqQ"),
    np.array,
    lambda value: np.array([value]),
    lambda value: np.timedelta64(int(value), "s"),
    lambda value: Fraction(np.int64(Fraction(value).numerator), np.int64(Fraction(value).denominator)),  # type: ignore[arg-type]
]
# Halves are exact in all types but integers, 0.7 and 2^30 + 1 are rounded by float32, 2^63 + 1 fits no float and only
# one integer of numpy, and no float holds 1/3.
NUMBERS = [0.5, 0.7, 1, 2, 3.25, 2**30 + 1, 2**63 + 1, Fraction(1, 3), 1e-3]

EVENTS: list[Callable[[Any], ev.Event]] = [
    ev.Gaussian,
    ev.Laplace,
    lambda x: ev.L2Laplace(2.0, x),
    ev.L2Laplace,
    lambda x: ev.L2Laplace(1.0, None, (x, 0.25)),
    lambda x: ev.DiscreteGaussian(x, Fraction(4)),
    lambda x: ev.DiscreteGaussian(4, x),
    lambda x: ev.DiscreteGaussian(4, Fraction(4), x),
    lambda x: ev.DiscreteLaplace(x, Fraction(3)),
    lambda x: ev.DiscreteLaplace(2, x),
    ev.Exponential,
    lambda x: ev.DeclaredExponentials(x, 3),
    lambda x: ev.DeclaredExponentials(Fraction(1, 2), x),
    ev.NoisyMax,
    ev.SparseVector,
    lambda x: ev.SparseVector(Fraction(1, 2), x),
    ev.RandomizedResponse,
    lambda x: ev.RandomizedResponse(Fraction(1, 2), x),
    ev.Claimed,
    lambda x: ev.Claimed(1.0, x),
    lambda x: ev.MayFail(x, ev.Gaussian(1.0)),
    lambda x: ev.PoissonSampled(x, ev.Gaussian(1.0)),
    lambda x: ev.PoissonSampled(0.01, ev.Gaussian(x)),
    lambda x: ev.SampledWithoutReplacement(x, 7, ev.Gaussian(2.0)),
    lambda x: ev.SampledWithoutReplacement(1, x, ev.Gaussian(2.0)),
    lambda x: ev.Shuffled(x, ev.Laplace(2.0)),
    lambda x: ev.ShuffledEpoch(x, 7, ev.Gaussian(2.0)),
    lambda x: ev.ShuffledEpoch(1, x, ev.Gaussian(2.0)),
    lambda x: ev.PerturbedObjective(x, 0.5),
    lambda x: ev.PerturbedObjective(2.0, x),
    ev.GaussianVotes,
    ev.GaussianVoteCheck,
    ev.LaplaceVotes,
    ev.LocalReport,
    lambda x: ev.LocalReport(Fraction(1), x),
    lambda x: ev.DistributedDiscreteGaussian(x, Fraction(4), 10),
    lambda x: ev.DistributedDiscreteGaussian(4, x, 10),
    lambda x: ev.DistributedDiscreteGaussian(4, Fraction(4), x),
    lambda x: ev.DistributedDiscreteGaussian(4, Fraction(4), 10, x),
    lambda x: ev.DistributedDiscreteGaussian(4, Fraction(4), 10, 0, x),
    lambda x: ev.Skellam(4, x, 10),
    lambda x: ev.Skellam(4, Fraction(4), x),
    lambda x: ev.SelectedFromRepeats(ev.Gaussian(5.0), ev.NegativeBinomialTrials(x, 0.5)),
    lambda x: ev.SelectedFromRepeats(ev.Gaussian(5.0), ev.NegativeBinomialTrials(1, x)),
    lambda x: ev.SelectedFromRepeats(ev.Gaussian(5.0), ev.PoissonTrials(x)),
    lambda x: ev.SelectedFromRepeats(ev.Gaussian(5.0), ev.BinomialTrials(x, 0.5)),
    lambda x: ev.SelectedFromRepeats(ev.Gaussian(5.0), ev.BinomialTrials(4, x)),
    lambda x: ev.RandomlyAllocated(x, 1, ev.Gaussian(2.0)),
    lambda x: ev.RandomlyAllocated(7, x, ev.Gaussian(2.0)),
    lambda x: ev.TruncatedPoissonSampled(x, 5, 10, ev.Gaussian(2.0)),
    lambda x: ev.TruncatedPoissonSampled(0.1, x, 10, ev.Gaussian(2.0)),
    lambda x: ev.TruncatedPoissonSampled(0.1, 5, x, ev.Gaussian(2.0)),
    lambda x: ev.ToeplitzNoise(x, (1.0, 0.5), 10, 2, 5),
    lambda x: ev.ToeplitzNoise(1.0, (1.0, x), 10, 2, 5),
    lambda x: ev.ToeplitzNoise(1.0, (1.0,), x, 2, 5),
    lambda x: ev.SquareRootNoise(1.0, x, 10, 2, 5),
    lambda x: ev.BufferedNoise(1.0, (x,), (0.5,), 10, 2, 5),
    lambda x: ev.BufferedNoise(x, (0.5,), (0.5,), 10, 2, 5),
    lambda x: ev.BufferedNoise(1.0, (0.5,), (x,), 10, 2, 5),
    lambda x: ev.BufferedNoise(1.0, (0.5,), (0.5,), x, 1, 1),
    lambda x: ev.BufferedNoise(1.0, (0.5,), (0.5,), 10, x, 3),
    lambda x: ev.BufferedNoise(1.0, (0.5,), (0.5,), 10, 2, x),
    lambda x: ev.ToeplitzNoise(1.0, (1.0, 0.5), 10, x, 3),
    lambda x: ev.ToeplitzNoise(1.0, (1.0, 0.5), 10, 2, x),
    lambda x: ev.SquareRootNoise(x, 2, 10, 2, 5),
    lambda x: ev.SquareRootNoise(1.0, 2, x, 1, 1),
    lambda x: ev.SquareRootNoise(1.0, 2, 10, x, 3),
    lambda x: ev.SquareRootNoise(1.0, 2, 10, 2, x),
    lambda x: ev.TreeNoise(1.0, x, 10, 2, 5),
    lambda x: ev.TreeNoise(1.0, 2, x, 1, 1),
    lambda x: ev.TreeNoise(1.0, 2, 10, x, 3),
    lambda x: ev.TreeNoise(1.0, 2, 10, 2, x),
    lambda x: ev.CyclicSampled(0.1, x, ev.ToeplitzNoise(1.0, (1.0, 0.5), 6, 3 if x == 2 else 2, x)),
    lambda x: ev.Skellam(x, Fraction(4), 10),
    lambda x: ev.Skellam(4, Fraction(4), 10, x),
    lambda x: ev.Skellam(4, Fraction(4), 10, 0, x),
    lambda x: ev.TreeNoise(x, 2, 10, 2, 5),
    lambda x: ev.CyclicSampled(x, 5, ev.ToeplitzNoise(1.0, (1.0, 0.5), 10, 2, 5)),
    lambda x: ev.Repeated(ev.Gaussian(5.0), x),
    lambda x: ev.Group(ev.Gaussian(5.0), x),
    lambda x: ev.Insecure(ev.Gaussian(x)),
    lambda x: ev.Composed((ev.Gaussian(x), ev.Gaussian(3.0))),
    lambda x: ev.Parallel((ev.Laplace(x), ev.Laplace(3.0))),
]
FIXED_SIZE = ev.SampledWithoutReplacement | ev.Shuffled | ev.ShuffledEpoch
GUARANTEES: list[Callable[[Any], Guarantee]] = [
    PureDP,
    ZCDP,
    GDP,
    lambda x: ApproxDP(x, 1e-6),
    lambda x: ApproxDP(1.0, x),
    lambda x: RDP((x,), (1.0,)),
    lambda x: RDP((2.0,), (x,)),
]


def _number(value: object) -> Fraction | None:
    """The value of a scalar that is a number, exactly; None for everything that is not one."""
    if isinstance(value, bool | np.bool_ | np.timedelta64 | np.ndarray | str | complex | np.complexfloating | Decimal):
        return None
    if isinstance(value, np.longdouble):
        high = float(value)
        return Fraction(high) + Fraction(float(value - np.longdouble(high)))
    if isinstance(value, np.generic):
        value = value.item()
    return Fraction(value)  # type: ignore[arg-type]


def _converted(convert: Callable[[Any], Any], number: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return convert(number)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return None


def _plain(value: object, number: Fraction) -> float | int | Fraction:
    """A number as a person writes it in Python, in the kind of type that `value` has."""
    if isinstance(value, Fraction):
        return number
    return int(number) if isinstance(value, int | np.integer) else float(number)


def _numbers_in(value: object) -> list[object]:
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers_in(item)]
    if dataclasses.is_dataclass(value):
        return [n for field in dataclasses.fields(value) for n in _numbers_in(getattr(value, field.name))]
    return [] if value is None else [value]


def _made(make: Callable[[Any], Any], value: object) -> Any:
    try:
        return make(value)
    except InvalidArgument:
        return None


@pytest.mark.parametrize("convert", TYPES, ids=lambda c: getattr(c, "__name__", "other"))
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_an_event_or_guarantee_is_the_same_in_every_type_or_refused(convert: Callable[[Any], Any], number: Any) -> None:
    value = _converted(convert, number)
    if value is None or (isinstance(value, np.floating) and np.isinf(value)):
        return  # this type holds nothing like the number
    exact = _number(value)
    for make in [*EVENTS, *GUARANTEES]:
        made = _made(make, value)
        if made is None:
            continue
        assert exact is not None, f"{value!r} is not a number, but {made!r} was made"
        same = make(_plain(value, exact))
        assert made == same
        assert hash(made) == hash(same)
        assert repr(made) == repr(same)  # so every price is the same
        assert all(type(held) in (int, float, Fraction) for held in _numbers_in(made))
        for held in _numbers_in(made):
            if isinstance(held, Fraction):
                assert type(held.numerator) is int
        if isinstance(made, ev.Event):
            assert codec.encode_tree(made) == codec.encode_tree(same)


def _fields_that_differ(first: object, second: object) -> set[tuple[str, str]]:
    """Class and field of every number in which two events of the same shape differ."""
    found = set()
    for field in dataclasses.fields(first):  # type: ignore[arg-type]
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, ev.Event):
            found |= _fields_that_differ(a, b)
        elif isinstance(a, tuple) and a and isinstance(a[0], ev.Event):
            for part, other in zip(a, b, strict=True):
                found |= _fields_that_differ(part, other)
        elif a != b:
            found.add((type(first).__name__, field.name))
    return found


def _two_of(make: Callable[[Any], ev.Event]) -> tuple[ev.Event, ev.Event]:
    """Two events that differ in the number that `make` takes."""
    candidates = (0.5, 0.25, Fraction(1, 2), Fraction(1, 4), 2, 3)
    made = [event for event in (_made(make, value) for value in candidates) if event is not None]
    return made[0], next(event for event in made if event != made[0])


def test_every_number_of_every_event_is_tried_in_every_type() -> None:
    tried = {found for make in EVENTS for found in _fields_that_differ(*_two_of(make))}
    expected = {
        (kind.__name__, field.name)
        for kind in vars(ev).values()
        if isinstance(kind, type) and issubclass(kind, ev.Event) and dataclasses.is_dataclass(kind)
        for field in dataclasses.fields(kind)
        if field.name not in ("event", "events")
    }
    assert tried == expected


@pytest.mark.parametrize("index", range(len(EVENTS)))
def test_an_event_has_the_same_interval_in_every_type(index: int) -> None:
    """Priced anew for each type, not only compared: a number must not be computed in a type of its own."""
    make = EVENTS[index]
    for number in (2, Fraction(1, 2)):
        answers = set()
        for convert in TYPES:
            value = _converted(convert, number)
            if value is None or (event := _made(make, value)) is None or _number(value) != number:
                continue
            relation = REPLACE_ONE if any(isinstance(part, FIXED_SIZE) for part in event.walk()) else ADD_REMOVE
            answers.add(repr(_answer(lambda e, r=relation: accounting.delta(e, 0.25, r), event)))  # type: ignore[misc]
        assert len(answers) <= 1


REAL_FIELDS: list[Callable[[Any], ev.Event]] = [
    ev.Gaussian,
    ev.Laplace,
    lambda x: ev.L2Laplace(1.0, None, (x, 0.25)),
    ev.Claimed,
    lambda x: ev.Claimed(1.0, x),
    lambda x: ev.PoissonSampled(x, ev.Laplace(1.0)),
    lambda x: ev.PoissonSampled(0.01, ev.Gaussian(x)),
    lambda x: ev.Composed((ev.Gaussian(x), ev.Laplace(3.0))),
]


@pytest.mark.parametrize("make", REAL_FIELDS)
def test_a_price_does_not_depend_on_the_type_of_a_number(make: Callable[[Any], ev.Event]) -> None:
    asks: list[Callable[[ev.Event], Any]] = [
        lambda event: accounting.epsilon(event, 1e-5),
        lambda event: accounting.delta(event, 0.5),
        accounting.pure,
        accounting.zcdp,
        lambda event: accounting.rdp(event, (1.5, 8.0)),
        accounting.gdp,
    ]
    for same in ([1, 1.0, Fraction(1), np.int8(1), np.float32(1)], [0.5, Fraction(1, 2), np.float16(0.5)]):
        for ask in asks:
            answers = [_answer(ask, make(value)) for value in same]
            assert answers == [answers[0]] * len(same)


def _answer(ask: Callable[[ev.Event], Any], event: ev.Event) -> Any:
    try:
        return ask(event)
    except UnknownEvent:
        return "refused"


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: accounting.epsilon(ev.Gaussian(2.0), x),
        lambda x: accounting.delta(ev.Gaussian(2.0), x),
        lambda x: accounting.epsilon(ev.Shuffled(100, ev.Laplace(2.0)), x, REPLACE_ONE),
        lambda x: accounting.shuffled_delta(ev.Shuffled(100, ev.Laplace(2.0)), x),
        lambda x: accounting.shuffled_epsilon(ev.Shuffled(100, ev.Laplace(2.0)), x),
        lambda x: accounting.profile(ev.Gaussian(2.0)).delta([x]).upper.tolist(),
        lambda x: accounting.profile(ev.Gaussian(2.0)).delta(x).upper.tolist(),
        lambda x: accounting.profile(ev.Gaussian(2.0)).epsilon([x]).lower.tolist(),
        lambda x: accounting.profile(ev.Gaussian(2.0)).trade_off([x]).lower.tolist(),
        lambda x: accounting.rdp(ev.Gaussian(2.0), (x,)),
        lambda x: str(accounting.compare(ev.Gaussian(2.0), x)),
        lambda x: accounting.advanced(PureDP(0.1), 10, x),
        lambda x: accounting.optimal_pure(x, 10, 1e-6),
        lambda x: accounting.optimal_pure(0.1, 10, x),
        lambda x: accounting.Odometer.start(x).spend(ev.Gaussian(2.0)).reading(),
        lambda x: accounting.Odometer.start(1e-6, orders=(x, 9.0)).spend(ev.Gaussian(2.0)).reading(),
        lambda x: accounting.AdaptiveFilter.start(ApproxDP(1.0, 0.9), aside=x).remaining(),
        lambda x: accounting.AdaptiveFilter.start(ApproxDP(1.0, 1e-6), orders=(x, 9.0)).remaining(),
        lambda x: accounting.AdaptiveFilter.start(PureDP(x)).remaining(),
        lambda x: accounting.calibrate(ev.Gaussian, ApproxDP(x, 1e-6)),
        lambda x: accounting.calibrate(ev.Gaussian, ApproxDP(1.0, x)),
        lambda x: accounting.most_steps(
            lambda count: ev.Repeated(ev.Gaussian(9.0), count), ApproxDP(1.0, 1e-6), at_most=x
        ),
    ],
)
def test_an_argument_means_the_same_in_every_type(ask: Callable[[Any], Any]) -> None:
    for convert in TYPES:
        for number in (0.5, 0.7, 2):
            value = _converted(convert, number)
            if isinstance(value, np.ndarray):
                continue  # a profile takes arrays
            try:
                answer = ask(value)
            except InvalidArgument:
                continue
            exact = _number(value)
            assert exact is not None, repr(value)
            assert answer == ask(_plain(value, exact))


def test_float32_parameters_are_not_computed_in_float32() -> None:
    # Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) at μ = 1/float32(0.7) and ε = 1/2, by 30 digits of mpmath.
    interval = accounting.delta(ev.Gaussian(np.float32(0.7)), 0.5)
    assert interval.contains(0.405421888695_74)
    assert interval.width < 1e-11


def test_a_fraction_between_two_floats_has_a_valid_interval() -> None:
    for delta in (Fraction(1, 3), Fraction(1, 10**6), 1 - Fraction(1, 2**53) + Fraction(1, 2**55)):
        answer = accounting.epsilon(ev.Gaussian(0.5), delta)
        near = float(delta)
        around = [accounting.epsilon(ev.Gaussian(0.5), d) for d in (math.nextafter(near, 0), near) if 0 < d < 1]
        assert answer.upper >= around[-1].lower
        assert answer.lower <= around[0].upper
    third = accounting.delta(ev.Gaussian(0.5), Fraction(1, 3))
    assert third.contains(accounting.delta(ev.Gaussian(0.5), 1 / 3).lower)


@settings(max_examples=60, deadline=None)
@given(st.floats(min_value=2.0**-10, max_value=2.0**10, width=16))
def test_half_precision_keeps_its_exact_value(value: float) -> None:
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        assert ev.Gaussian(kind(value)) == ev.Gaussian(value)
        assert type(ev.Gaussian(kind(value)).noise_multiplier) is float


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="a long double is a double here")
@pytest.mark.parametrize("text", ["0.1", "1e4000", "1e-4000"])
def test_a_long_double_that_no_float_holds_is_refused_clearly(text: str) -> None:
    with pytest.raises(InvalidArgument, match="64-bit float"):
        ev.Gaussian(np.longdouble(text))
