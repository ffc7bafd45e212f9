"""Every route prices every split of a group into units that are added and units that are removed."""

import math

import numpy as np
import pytest

from discreet.accounting import profile, tight, trade_off
from discreet.accounting.losses import mixtures, of_events
from discreet.accounting.prices import profile_table
from discreet.errors import UnknownEvent
from discreet.events import Gaussian, Group, PoissonSampled, RandomlyAllocated, Repeated
from discreet.neighbors import ADD_REMOVE

TRIO = Group(Repeated(PoissonSampled(0.25, Gaussian(1.5)), 2), 3)
ROUTES = {
    "delta": lambda: tight.delta(TRIO, 1.0),
    "epsilon": lambda: tight.epsilon(TRIO, 1e-3),
    "trade-off": lambda: trade_off(TRIO),
    "exceedance": lambda: profile(TRIO).loss_exceeds(1.0),
    "table": lambda: profile_table.upper_delta(TRIO, ADD_REMOVE)(1.0),
}


@pytest.fixture
def priced(monkeypatch):
    """The (removed, added) of every group loss that is asked for."""
    asked = set()
    original = mixtures.group_loss

    def spy(rate, mu, removed, added):
        asked.add((removed, added))
        return original(rate, mu, removed, added)

    monkeypatch.setattr(mixtures, "group_loss", spy)
    return asked


@pytest.mark.parametrize("route", ROUTES)
def test_every_split_of_a_group_is_priced(route, priced):
    ROUTES[route]()
    assert priced == {(3, 0), (0, 3), (2, 1), (1, 2)}


def test_a_mutant_that_prices_one_split_would_be_caught(priced, monkeypatch):
    monkeypatch.setattr(of_events, "splits", lambda way: range(1))
    for route in ROUTES.values():
        route()
    assert priced == {(3, 0), (0, 3)}


def test_the_curve_of_adding_covers_a_group_of_which_one_is_removed():
    # The test that a unit was added and another one removed: N(0, 1) mixed with N(1, 1) against the same with N(−1, 1).
    rate, threshold = 0.3, np.linspace(-4.0, 4.0, 81)

    def below(mean):
        return np.array([0.5 * math.erfc((mean - t) / math.sqrt(2)) for t in threshold])

    alpha = 1 - ((1 - rate) * below(0.0) + rate * below(-1.0))
    beta = (1 - rate) * below(0.0) + rate * below(1.0)
    curve = trade_off(Group(PoissonSampled(rate, Gaussian(1.0)), 2), direction="adding")
    assert np.all(curve.lower(np.clip(alpha, 0.0, 1.0)) <= beta + 1e-12)


def test_a_group_inside_of_an_allocation_is_refused():
    # Its splits would have to be priced for the allocation as a whole.
    with pytest.raises(UnknownEvent, match="group"):
        tight.delta(RandomlyAllocated(1, 1, Group(PoissonSampled(0.25, Gaussian(1.5)), 2)), 1.0)
