"""Many selections of different ranges, in groups: no order of them attains more, and much is gained for many."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet.accounting.losses import grouped_ranges, ranges
from discreet.accounting.methods.answer import of_losses
from discreet.accounting.methods.target import Target
from discreet.accounting.tight import epsilon
from discreet.events import Composed, Exponential, Gaussian, Repeated

CHOSEN = [
    ((0.3, 2), (0.5, 2)),
    ((0.45, 2), (0.5, 1), (0.52, 1)),
    ((0.2, 3), (0.9, 1)),
    tuple((0.2 + 0.01 * k, 1) for k in range(6)),
]


def bound(chosen: ranges.Ranges, at: float) -> float:
    losses = grouped_ranges.above(chosen)
    assert losses is not None
    return of_losses(losses, Target(epsilon=at), False)[1]


@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
def test_no_order_of_the_selections_attains_more(chosen):
    attack, joint = ranges.mixed_below(chosen), ranges.mixed_above(chosen)
    for at in (0.0, 0.2, 0.6, 1.0):
        found = bound(chosen, at)
        assert attack.profile(at)[0] <= found
        # The recursion over every order is tighter still: groups only multiply.
        assert joint.profile(at)[1] <= found * 1.01 + 1e-9


def test_a_group_priced_at_its_smallest_range_would_be_caught(monkeypatch):
    true = grouped_ranges._pair
    monkeypatch.setattr(grouped_ranges, "_pair", lambda first, size: true(0.8 * first, size))
    chosen = ((0.45, 2), (0.5, 1), (0.52, 1))
    assert any(ranges.mixed_below(chosen).profile(at)[0] > bound(chosen, at) for at in (0.2, 0.6, 1.0))


def test_groups_hold_every_range_and_round_up_only():
    listed = sorted(np.geomspace(0.01, 1.0, 200).tolist(), reverse=True)
    found, start = grouped_ranges.groups(listed), 0
    for first, size in found:
        assert first == listed[start]
        assert first <= 1.5 * listed[start + size - 1]
        start += size
    assert start == len(listed)
    assert 1 < len(found) < len(listed)
    assert grouped_ranges.groups([0.1] * 96) == [(0.1, 48), (0.1, 48)]


def test_thousands_of_selections_of_some_kinds_are_narrow():
    kinds = Composed(tuple(Repeated(Exponential(Fraction(1, 2000 + 10 * k)), 333) for k in range(12)))
    found = epsilon(kinds, 1e-6)
    assert found.width < 0.02 * found.upper  # 6% by moments
    with_noise = epsilon(Composed((kinds, Gaussian(20.0))), 1e-6)
    assert with_noise.width < 0.01 * with_noise.upper


def test_ranges_that_cannot_be_grouped_keep_their_other_prices():
    assert grouped_ranges.above(((0.1, 1), (400.0, 1))) is None
    assert grouped_ranges.above(tuple((1e-3 + 1e-7 * k, 1) for k in range(5000))) is None
    found = epsilon(Composed((Exponential(Fraction(400)), *(Exponential(Fraction(1, k)) for k in range(10, 22)))), 1e-6)
    assert 0 < found.lower <= found.upper <= 402
