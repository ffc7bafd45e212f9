"""Deep nesting: every accountant prices what can be built, and what is too deep is refused when it is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from discreet import events as ev
from discreet.accounting import compare, delta, gdp, pure, rdp, zcdp
from discreet.accounting.losses.claims import without_delta
from discreet.errors import InvalidArgument

WRAPS: list[Callable[[ev.Event], ev.Event]] = [
    lambda inner: ev.Repeated(inner, 1),
    lambda inner: ev.Composed((inner,)),
    lambda inner: ev.Parallel((inner,)),
    lambda inner: ev.Group(inner, 1),
    lambda inner: ev.MayFail(0.0, inner),
    lambda inner: ev.PoissonSampled(1, inner),
]


def _nested(wrap: Callable[[ev.Event], ev.Event], levels: int) -> ev.Event:
    event: ev.Event = ev.Laplace(2.0)
    for _ in range(levels):
        event = wrap(event)
    return event


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_deepest_event_has_a_price_and_a_deeper_one_is_refused(wrap: Callable[[ev.Event], ev.Event]) -> None:
    deepest = _nested(wrap, 150)
    assert pure(deepest).epsilon == 0.5
    assert zcdp(deepest) == zcdp(ev.Laplace(2.0))
    assert rdp(deepest, (2.0,)) == rdp(ev.Laplace(2.0), (2.0,))
    assert gdp(deepest) == gdp(ev.Laplace(2.0))
    assert delta(deepest, 0.25) == delta(ev.Laplace(2.0), 0.25)
    assert len(list(deepest.walk())) == 151
    assert without_delta(deepest)[1] == 0
    assert repr(deepest)
    with pytest.raises(InvalidArgument, match="nested at most 150 deep, got '151 levels': put the events"):
        wrap(deepest)


def test_a_group_of_a_deep_composition_has_a_price() -> None:
    grouped = ev.Group(_nested(lambda inner: ev.Composed((inner,)), 149), 2)
    assert pure(grouped).epsilon == 1.0
    assert rdp(grouped, (2.0,)) == rdp(ev.Laplace(1.0), (2.0,))
    assert compare(grouped, 1e-6).epsilon("basic") == 1.0


def test_depth_is_no_part_of_an_event_s_value() -> None:
    once = ev.Repeated(ev.Gaussian(1.0), 2)
    assert once == ev.Repeated(ev.Gaussian(1.0), 2)
    assert repr(once) == "Repeated(event=Gaussian(noise_multiplier=1.0), count=2)"
