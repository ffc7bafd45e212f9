"""Intervals: their order, their width, and the digits they show."""

import math

import pytest

from discreet.accounting.interval import Interval, largest
from discreet.errors import InvalidArgument


def test_it_reads_as_in_the_design():
    assert repr(Interval(lower=1.99994, upper=2.0)) == "Interval(lower=1.99994, upper=2.00000)"


def test_close_ends_are_shown_apart():
    lower, upper = repr(Interval(6.18771238504, 6.18771239055))[9:-1].split(", ")
    assert lower.split("=")[1] != upper.split("=")[1]


@pytest.mark.parametrize("ends", [(2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)])
def test_ends_in_the_wrong_order_are_refused(ends):
    with pytest.raises(InvalidArgument, match="lower"):
        Interval(*ends)


def test_an_infinite_price_has_no_width():
    assert Interval(math.inf, math.inf).width == 0.0
    assert Interval(math.inf, math.inf).contains(math.inf)


def test_the_maximum_of_truths_lies_between_the_maxima_of_the_ends():
    assert largest([Interval(1.0, 4.0), Interval(2.0, 3.0)]) == Interval(2.0, 4.0)
    assert largest([]) == Interval(0.0, 0.0)
