"""A vector under an L1 bound is priced as one number that moves by the whole bound: docs/proofs/laplace-vectors.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet import accounting
from discreet.events import Composed, DiscreteLaplace, Laplace


@pytest.mark.parametrize("moves", [(1, 1), (2, 1), (5, 2), (1, 1, 1), (1,) * 6], ids=str)
@pytest.mark.parametrize("scale", [Fraction(3, 10), Fraction(1), Fraction(5), Fraction(20)], ids=str)
@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_no_split_of_an_l1_bound_over_coordinates_costs_more_than_the_whole(moves, scale, discrete):
    def event(move):
        return DiscreteLaplace(move, scale) if discrete else Laplace(float(scale / move))

    split, whole = Composed(tuple(event(move) for move in moves)), event(sum(moves))
    for epsilon in np.linspace(0, float(sum(moves) / scale), 7)[:-1]:
        assert accounting.delta(split, epsilon).lower <= accounting.delta(whole, epsilon).upper


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 0.3), (0.3, 2.0), (1.0, 3.0)])
def test_two_laplace_coordinates_have_the_proved_delta(a, b):
    """The closed form of the proof, against the accountant's interval."""
    split = Composed((Laplace(1 / a), Laplace(1 / b)))
    for epsilon in np.linspace(0, a + b, 9)[1:-1]:
        s = (a + b - epsilon) / 2  # c = e^{−ε}, and δ(ε) of the pair is e^ε (E(R − c)₊ − 1 + c) mirrored
        bracket = 1 + (b - max(s - a, 0) - max(b - s, 0)) / 2
        missing = np.exp(-(a + b) / 2) * np.exp(-epsilon / 2) * bracket
        delta = 1 - missing * np.exp(epsilon)
        found = accounting.delta(split, epsilon)
        assert found.lower - 1e-9 <= delta <= found.upper + 1e-9
