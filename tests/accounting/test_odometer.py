"""The odometer: its reading covers every moment at which the analyst may stop."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from discreet import events as ev
from discreet.accounting.adaptive.odometer import ORDERS, Odometer, share
from discreet.accounting.forms.conversions import order_epsilon, rdp_epsilon
from discreet.accounting.forms.rdp import rdp
from discreet.errors import InvalidArgument, UnknownEvent


def test_all_levels_of_all_orders_together_use_delta() -> None:
    whole = sum(Fraction(share(1e-6, level, 3)) for level in range(-4000, 4001)) * 3
    assert Fraction(1e-6) * Fraction(999, 1000) <= whole <= Fraction(1e-6)


def test_a_reading_is_never_below_the_price_of_a_plan_made_in_advance() -> None:
    odometer, spent = Odometer.start(1e-6), []
    previous = 0.0
    for noise in (50.0, 20.0, 9.0, 4.0, 2.0, 1.0):
        event = ev.PoissonSampled(0.3, ev.Gaussian(noise))
        odometer, spent = odometer.spend(event), [*spent, event]
        reading = odometer.reading()
        planned = rdp_epsilon(rdp(ev.Composed(tuple(spent)), ORDERS), 1e-6)
        assert planned <= reading.epsilon <= 3 * planned + 0.5
        assert reading.epsilon >= previous
        assert reading.delta == 1e-6
        previous = reading.epsilon


def test_a_reading_is_that_of_the_filter_at_the_next_level() -> None:
    odometer = Odometer.start(1e-6, orders=(8.0,)).spend(ev.Gaussian(2.0))
    odometer = odometer.spend(ev.Gaussian(1e6))
    # 8/(2·4) = 1 and a drop more: level 1 at τ = √2 is the first that covers it.
    with mpmath.workdps(40):
        a, delta = mpmath.mpf(8), mpmath.mpf(1e-6) / 8
        truth = mpmath.sqrt(2) + mpmath.log((a - 1) / a) - (mpmath.log(delta) + mpmath.log(a)) / (a - 1)
        assert truth <= odometer.reading().epsilon <= truth * (1 + mpmath.mpf(10) ** -12)


def test_levels_are_half_powers_of_two() -> None:
    for noise, level, reached in ((1.0, 4, 4.0), (4.0, -4, 0.25), (math.sqrt(8.0), -2, 0.5)):
        odometer = Odometer.start(1e-6, orders=(8.0,)).spend(ev.Gaussian(noise * (1 + 1e-9)))
        assert odometer.reading().epsilon == pytest.approx(order_epsilon(8.0, reached, share(1e-6, level, 1)), rel=1e-9)


def test_an_odometer_starts_at_zero_and_ends_at_infinity() -> None:
    odometer = Odometer.start(1e-6)
    assert odometer.reading().epsilon == 0.0
    assert odometer.spend(ev.Composed(())).reading().epsilon == 0.0
    assert math.isinf(odometer.spend(ev.NonPrivate()).reading().epsilon)
    with pytest.raises(UnknownEvent, match="Shuffled"):
        odometer.spend(ev.Shuffled(3, ev.Laplace(1.0)))
    with pytest.raises(InvalidArgument):
        Odometer.start(0.0)
    with pytest.raises(InvalidArgument):
        Odometer.start(1e-6, orders=(1.0,))
