"""The comparison of methods: every valid row is an upper bound, and a method that does not apply says why."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet import events as ev
from discreet.accounting._compare import compare
from discreet.errors import InvalidArgument
from discreet.neighbors import REPLACE_ONE, ZERO_OUT

TRAINING = ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 10_000)
EXACT = 6.1877124


def test_every_valid_method_bounds_the_exact_price_of_training() -> None:
    table = compare(TRAINING, 1e-5)
    valid = {row.method: row.epsilon for row in table.lines if row.standing == "valid" and row.epsilon is not None}
    assert all(epsilon >= EXACT * (1 - 1e-6) for epsilon in valid.values())
    assert valid["RDP, tight"] == pytest.approx(6.7127, rel=1e-3)
    assert valid["RDP, tight"] < valid["RDP, textbook"] < valid["zCDP, tight"] < valid["zCDP, textbook"]


def test_the_limit_is_labeled_because_it_lies_below_the_truth() -> None:
    row = next(row for row in compare(TRAINING, 1e-5).lines if row.method == "GDP limit")
    assert row.standing == "approximation"
    assert row.epsilon is not None
    assert row.epsilon < EXACT


def test_pure_steps_compose_optimally() -> None:
    table = compare(ev.Repeated(ev.Laplace(10.0), 100), 1e-5)
    assert table.epsilon("basic") == pytest.approx(10.0)
    assert table.epsilon("advanced") == pytest.approx(5.8502, rel=1e-4)
    assert table.epsilon("optimal pure") == pytest.approx(4.306791372517)
    mixed = compare(ev.Composed((ev.Repeated(ev.Laplace(10.0), 99), ev.Laplace(20.0))), 1e-5)
    assert mixed.epsilon("optimal pure") == table.epsilon("optimal pure")


def test_gaussian_steps_are_exact_through_gdp() -> None:
    table = compare(ev.Repeated(ev.Gaussian(10.0), 100), 1e-5)
    assert table.epsilon("GDP") == pytest.approx(4.377178095681)
    assert table.epsilon("optimal pure") is None
    basic = table.epsilon("basic")
    assert basic is not None
    assert basic > 40


def test_a_method_that_does_not_apply_says_why() -> None:
    table = compare(ev.SampledWithoutReplacement(1, 10, ev.Gaussian(1.0)), 1e-5)
    for row in table.lines:
        assert row.standing == "not applicable"
        assert row.epsilon is None
        assert row.note


def test_relations_are_passed_on() -> None:
    event = ev.Repeated(ev.SampledWithoutReplacement(1, 100, ev.Gaussian(2.0)), 5)
    replaced, zeroed = compare(event, 1e-5, REPLACE_ONE), compare(event, 1e-5, ZERO_OUT)
    left, right = replaced.epsilon("RDP, tight"), zeroed.epsilon("RDP, tight")
    assert left is not None
    assert right is not None
    assert left < right


def test_shuffled_reports_are_amplified_in_basic_composition() -> None:
    table = compare(ev.Shuffled(10_000, ev.RandomizedResponse(Fraction(1))), 1e-6, REPLACE_ONE)
    assert table.epsilon("basic") == pytest.approx(0.0358, rel=1e-2)


def test_the_table_prints_aligned_and_reads_by_machine() -> None:
    table = compare(TRAINING, 1e-5)
    lines = str(table).splitlines()
    start = lines.index("") + 1
    column = lines[start].index("standing")
    for line, row in zip(lines[start + 1 :], table.rows(), strict=True):
        assert line.startswith(str(row["method"]))
        assert line[column:].startswith(str(row["standing"]))
    with pytest.raises(InvalidArgument, match="method"):
        table.epsilon("guess")


def _random_event(rng: np.random.Generator) -> ev.Event:
    def leaf() -> ev.Event:
        kind, size = int(rng.integers(6)), float(10 ** rng.uniform(-0.2, 1.3))
        whole = Fraction(size).limit_denominator(100)
        return (
            ev.Gaussian(size),
            ev.Laplace(size),
            ev.DiscreteLaplace(2, 2 * whole),
            ev.RandomizedResponse(1 / whole, 2),
            ev.PoissonSampled(float(10 ** rng.uniform(-3, -0.3)), ev.Gaussian(size)),
            ev.PoissonSampled(float(10 ** rng.uniform(-3, -0.3)), ev.Laplace(size)),
        )[kind]

    return ev.Composed(tuple(ev.Repeated(leaf(), int(rng.integers(1, 40))) for _ in range(int(rng.integers(1, 4)))))


@pytest.mark.slow
def test_no_valid_method_falls_below_the_certified_lower_end_on_random_events() -> None:
    tight = pytest.importorskip("discreet.accounting.tight")
    rng = np.random.default_rng(11)
    for _ in range(25):
        event, delta = _random_event(rng), float(10 ** rng.uniform(-10, -3))
        lower = tight.epsilon(event, delta).lower
        for row in compare(event, delta).lines:
            if row.standing == "valid":
                assert row.epsilon is not None
                assert row.epsilon >= lower * (1 - 1e-9), (row.method, event, delta)
