"""Groups, shuffled epochs, shuffled reports and disjoint parts, as the tight accountant prices them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from discreet import accounting
from discreet.errors import UnknownEvent
from discreet.events import (
    Composed,
    DiscreteLaplace,
    Gaussian,
    Group,
    Laplace,
    Parallel,
    PoissonSampled,
    Repeated,
    Shuffled,
    ShuffledEpoch,
)
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT


def same(one, other):
    return one.lower == pytest.approx(other.lower, rel=1e-9) and one.upper == pytest.approx(other.upper, rel=1e-9)


def test_a_group_of_k_meets_k_times_less_noise():
    assert same(accounting.epsilon(Group(Gaussian(3.0), 3), 1e-6), accounting.epsilon(Gaussian(1.0), 1e-6))
    group, single = Group(DiscreteLaplace(1, Fraction(12)), 4), DiscreteLaplace(4, Fraction(12))
    assert same(accounting.epsilon(group, 1e-6), accounting.epsilon(single, 1e-6))
    nested = Group(Repeated(Composed((Gaussian(4.0), Gaussian(8.0))), 5), 2)
    plain = Repeated(Composed((Gaussian(2.0), Gaussian(4.0))), 5)
    assert same(accounting.delta(nested, 1.0), accounting.delta(plain, 1.0))


def test_a_group_of_sampled_people_is_refused_by_name_where_the_noise_is_not_gaussian():
    with pytest.raises(UnknownEvent, match="Group"):
        accounting.epsilon(Group(PoissonSampled(0.1, Laplace(1.0)), 2), 1e-6)


@pytest.mark.parametrize("relation", [REPLACE_ONE, ZERO_OUT])
def test_a_shuffled_epoch_is_charged_one_step_and_no_less(relation):
    """Not a Poisson sample: ten epochs are charged ten unamplified steps (arXiv 2403.17673)."""
    epochs = Repeated(ShuffledEpoch(100, 10_000, Gaussian(2.0)), 10)
    found = accounting.epsilon(epochs, 1e-6, relation)
    assert found.upper == pytest.approx(accounting.epsilon(Repeated(Gaussian(2.0), 10), 1e-6).upper, rel=1e-9)
    assert found.lower == 0  # the unit's batch need not be known, so no lower end is certified
    as_poisson = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 1000)
    assert found.upper > 5 * accounting.epsilon(as_poisson, 1e-6).upper


def test_a_shuffled_epoch_has_a_public_size_and_so_no_price_under_add_remove():
    with pytest.raises(UnknownEvent, match="ShuffledEpoch"):
        accounting.epsilon(ShuffledEpoch(10, 100, Gaussian(1.0)), 1e-6, ADD_REMOVE)


@pytest.mark.parametrize(
    ("reports", "local", "known"),
    [
        (10**4, 1, 0.0535),
        (10**4, 2, 0.159),
        (10**4, 4, 0.891),
        (10**5, 1, 0.0155),
        (10**5, 2, 0.0452),
        (10**5, 4, 0.173),
    ],
)
def test_shuffled_reports_cost_no_more_than_the_published_bounds(reports, local, known):
    found = accounting.epsilon(Shuffled(reports, Laplace(1 / local)), 1e-6, REPLACE_ONE)
    assert 0.5 * known < found.upper <= known
    assert accounting.delta(Shuffled(reports, Laplace(1 / local)), found.upper, REPLACE_ONE).upper <= 1e-6 * (1 + 1e-6)


def test_gaussian_reports_that_are_shuffled_are_refused_by_name_inside_of_a_composition():
    with pytest.raises(UnknownEvent, match="Gaussian"):
        accounting.epsilon(Repeated(Shuffled(100, Gaussian(1.0)), 2), 1e-6, REPLACE_ONE)


def test_one_unit_lies_in_one_part_and_a_replaced_one_in_two():
    parts = Parallel((Gaussian(2.0), Gaussian(3.0), Gaussian(5.0)))
    assert same(accounting.epsilon(parts, 1e-6), accounting.epsilon(Gaussian(2.0), 1e-6))
    both = accounting.epsilon(Composed((Gaussian(2.0), Gaussian(3.0))), 1e-6)
    assert same(accounting.epsilon(parts, 1e-6, REPLACE_ONE), both)
    equal = Parallel((Laplace(2.0),) * 7)
    assert same(accounting.epsilon(equal, 1e-6, REPLACE_ONE), accounting.epsilon(Repeated(Laplace(2.0), 2), 1e-6))
    assert same(
        accounting.epsilon(Parallel((Laplace(2.0),)), 1e-6, REPLACE_ONE), accounting.epsilon(Laplace(2.0), 1e-6)
    )


def test_the_accountants_agree_on_what_a_replaced_unit_touches():
    parts = Parallel((Laplace(2.0), Laplace(4.0), Laplace(8.0)))
    assert accounting.pure(parts, REPLACE_ONE).epsilon == pytest.approx(0.75)
    assert accounting.epsilon(parts, 1e-12, REPLACE_ONE).upper <= 0.75 * (1 + 1e-9)
    assert accounting.pure(parts).epsilon == pytest.approx(0.5)
