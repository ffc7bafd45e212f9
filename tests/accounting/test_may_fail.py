"""A mechanism that reveals everything with probability p: its price, and what an adaptive budget takes for it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from discreet import events as ev
from discreet.accounting import AdaptiveFilter, Refused, compare, delta, epsilon, gdp, pure, rdp, zcdp
from discreet.accounting.losses.claims import without_delta
from discreet.codec import decode, encode
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.guarantees import ApproxDP


def _gaussian_delta(loss: float, mu: float) -> float:
    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return normal(mu / 2 - loss / mu) - math.exp(loss) * normal(-mu / 2 - loss / mu)


@pytest.mark.parametrize("p", [1e-9, 1e-3, 0.25, 1.0])
def test_its_delta_is_that_of_failing_or_else_of_the_event(p: float) -> None:
    answer = delta(ev.MayFail(p, ev.Gaussian(1.0)), 1.0)
    truth = p + (1 - p) * _gaussian_delta(1.0, 1.0)
    assert answer.contains(truth) or answer.upper == pytest.approx(truth, rel=1e-12)
    assert answer.width < 1e-6


def test_failures_of_a_composition_multiply() -> None:
    # No failure in three runs has probability (1 − p)³; then it is √3-GDP.
    p = 0.01
    answer = delta(ev.Repeated(ev.MayFail(p, ev.Gaussian(2.0)), 3), 0.5)
    truth = 1 - (1 - p) ** 3 * (1 - _gaussian_delta(0.5, math.sqrt(3) / 2))
    assert answer.lower <= truth * (1 + 1e-12)
    assert answer.upper >= truth * (1 - 1e-12)
    assert answer.width < 1e-3 * answer.upper


def test_no_epsilon_holds_below_the_probability_of_failing() -> None:
    assert epsilon(ev.MayFail(1e-6, ev.Laplace(1.0)), 1e-7).lower == math.inf
    assert epsilon(ev.MayFail(1e-6, ev.Laplace(1.0)), 1e-6).upper == pytest.approx(1.0)
    assert epsilon(ev.MayFail(1.0, ev.Laplace(1.0)), 0.5).lower == math.inf


def test_forms_without_a_delta_cannot_price_it_unless_it_never_fails() -> None:
    event, never = ev.MayFail(1e-9, ev.Laplace(2.0)), ev.MayFail(0.0, ev.Laplace(2.0))
    assert pure(event).epsilon == math.inf
    assert zcdp(event).rho == math.inf
    assert rdp(event, (2.0,)).epsilons == (math.inf,)
    with pytest.raises(UnknownEvent, match="no μ"):
        gdp(event)
    assert pure(never) == pure(ev.Laplace(2.0))
    assert zcdp(never) == zcdp(ev.Laplace(2.0))
    assert rdp(never) == rdp(ev.Laplace(2.0))
    assert gdp(never) == gdp(ev.Laplace(2.0))
    assert epsilon(never, 1e-6) == epsilon(ev.Laplace(2.0), 1e-6)


def test_samples_and_groups_of_it() -> None:
    # It fails whatever the data are, so a group gains nothing from failing.
    grouped, priced = ev.Group(ev.MayFail(0.01, ev.Gaussian(2.0)), 2), ev.MayFail(0.01, ev.Gaussian(1.0))
    assert delta(grouped, 1.0).upper == pytest.approx(delta(priced, 1.0).upper, rel=1e-9)
    with pytest.raises(UnknownEvent):
        delta(ev.PoissonSampled(0.1, ev.MayFail(0.01, ev.Gaussian(1.0))), 1.0)


def test_an_adaptive_budget_takes_its_probability_from_what_was_set_aside() -> None:
    event = ev.Composed((ev.MayFail(1e-7, ev.Gaussian(9.0)), ev.Repeated(ev.MayFail(2e-7, ev.Claimed(0.01, 0.0)), 2)))
    plain, brought = without_delta(event)
    assert plain == ev.Composed((ev.Gaussian(9.0), ev.Repeated(ev.Claimed(0.01), 2)))
    assert brought == Fraction(1e-7) + 2 * Fraction(2e-7)
    assert without_delta(ev.MayFail(0.5, ev.Claimed(1.0, 0.5)))[1] == Fraction(3, 4)
    budget = ApproxDP(1.0, 1e-6)
    spent = AdaptiveFilter.start(budget, aside=6e-7).spend(event)
    assert isinstance(spent, AdaptiveFilter)
    assert spent.claimed == brought
    assert isinstance(spent.spend(event), Refused)
    assert isinstance(AdaptiveFilter.start(budget).spend(event), Refused)


def test_every_composition_theorem_that_takes_a_delta_prices_it() -> None:
    table = compare(ev.Repeated(ev.MayFail(1e-9, ev.Gaussian(20.0)), 4), 1e-5)
    tight = table.epsilon("tight")
    for method in ("basic", "advanced"):
        charged = table.epsilon(method)
        assert tight is not None
        assert charged is not None
        assert charged >= tight


def test_it_is_stored_and_checked() -> None:
    event = ev.MayFail(0.25, ev.Gaussian(1.0))
    assert decode(encode(event)) == event
    assert encode(event) == (
        '{"event":{"noise_multiplier":"0x1.0000000000000p+0","tag":"gaussian"},'
        '"probability":"0x1.0000000000000p-2","tag":"may-fail"}'
    )
    for bad in (-0.1, 1.5, math.nan, True):
        with pytest.raises(InvalidArgument, match="probability must"):
            ev.MayFail(bad, ev.Gaussian(1.0))
    with pytest.raises(InvalidArgument, match="event must"):
        ev.MayFail(0.5, "Gaussian")  # type: ignore[arg-type]


def test_a_claim_costs_its_epsilon_at_its_own_delta() -> None:
    assert epsilon(ev.Claimed(1.0, 1e-6), 1e-6).upper == pytest.approx(1.0, abs=1e-9)
    assert epsilon(ev.Claimed(1.0, 1e-6), math.nextafter(1e-6, 0.0)).lower == math.inf
    # No float holds a third: what is just below it does not cover the claim.
    below = math.nextafter(1 / 3, 0.0)
    assert epsilon(ev.Claimed(1.0, Fraction(1, 3)), below).upper == math.inf
    assert epsilon(ev.Claimed(1.0, Fraction(1, 3)), math.nextafter(1 / 3, 1.0)).upper == pytest.approx(1.0, abs=1e-9)
