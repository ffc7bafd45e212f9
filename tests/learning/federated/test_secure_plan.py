"""Updates as integers have an exact norm, noise is that of the price, and masks cancel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import accounting, events
from discreet.errors import InvalidArgument
from discreet.learning.federated import IntegerUpdates, SecurePlan, clients
from discreet.learning.federated.integers import hadamard, signs
from discreet.learning.federated.masks import from_bytes, mask, to_bytes
from discreet.neighbors import ZERO_OUT

ROTATION = bytes(range(32))
GIVEN = {"rounds": 10, "delta": 1e-5, "parties": 20, "dropouts": 5, "dimension": 100, "clip_norm": 1.0}


@pytest.mark.parametrize("per_person", [1, 5, 15])
@pytest.mark.parametrize("more", [{"noise_multiplier": 3.0}, {"epsilon": 2.0}], ids=str)
def test_the_noise_of_a_person_with_many_clients_does_not_wrap_around(per_person, more):
    """It is per_person times as large, and the scale leaves room for that."""
    plan = SecurePlan.make(clients(40, per_person=per_person), **{**GIVEN, **more})
    deviation = math.sqrt(plan.parties * float(plan.variance))
    assert 4 * deviation < 2 ** (plan.updates.bits - 1)


def test_bits_that_are_too_few_for_the_dimension_are_refused():
    given = {**GIVEN, "noise_multiplier": 1.0, "dimension": 1 << 20}
    assert SecurePlan.make(clients(40), **given, bits=16).updates.bits == 16
    with pytest.raises(InvalidArgument, match="bits must be more"):
        SecurePlan.make(clients(40), **given, bits=8)


def test_the_transform_keeps_norms_and_is_its_own_inverse():
    values = np.sin(np.arange(64.0))
    assert np.linalg.norm(hadamard(values)) == pytest.approx(np.linalg.norm(values))
    assert hadamard(hadamard(values)) == pytest.approx(values)
    assert set(signs(ROTATION, 64).tolist()) == {-1.0, 1.0}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1e-300, 1e-5, 0.3, 1.0, 7.0, 1e200, 1e308, math.inf, math.nan]),
    scale=st.sampled_from([1.0, 3.7, 1000.0, 2.0**29]),
    dimension=st.integers(1, 70),
)
def test_the_integers_of_any_update_have_at_most_the_stated_norm(seed, size, scale, dimension):
    updates = IntegerUpdates(1.0, dimension, scale)
    update = np.random.default_rng(seed).normal(size=dimension)
    with np.errstate(over="ignore", invalid="ignore"):
        integers = updates.encoded(update / np.linalg.norm(update) * size, ROTATION)
    assert integers.shape == (updates.size,)
    assert sum(int(x) ** 2 for x in integers) <= updates.norm_squared


def test_a_rounding_that_is_too_long_is_tried_again():
    """All 64 rotated coordinates are ±1/2, so a rounding has the squared norm of 64 coins; the bound is 40.

    A rounding is too long with a probability of 1.6%; a mutant that keeps it passes with 0.984^2000 < 1e-13.
    """
    updates, update = IntegerUpdates(1.0, 64, 4.0), np.eye(64)[0]
    assert updates.norm_squared == 40
    norms = [int(np.sum(updates.encoded(update, ROTATION) ** 2)) for _ in range(2000)]
    assert max(norms) <= 40
    assert np.mean(norms) == pytest.approx(32, abs=2)  # 4/√2000 is the spread of the mean: this is above 20 sigmas


def test_the_bound_is_that_of_the_paper():
    """Proposition 22 of arXiv 2102.06387 in integers: c = sC = 10, d = 16, β = e^{−1/2}."""
    updates = IntegerUpdates(1.0, 16, 10.0)
    assert updates.norm_squared == math.floor(min((10 + 4) ** 2, 100 + 4 + (10 + 2)))


def test_the_sum_of_integers_decodes_to_the_sum_of_updates():
    """Rounding: each of 5 clients is off by less than 1 integer in each coordinate, 1e-5 in all of them together."""
    updates = IntegerUpdates(1.0, 50, 1e6)
    given_updates = [np.cos(np.arange(50.0) + client) / 10 for client in range(5)]
    total = sum(updates.encoded(one, ROTATION) for one in given_updates) & (2**32 - 1)
    assert updates.decoded(total, ROTATION) == pytest.approx(sum(given_updates), abs=5 * 8 / 1e6)


def test_long_updates_are_clipped_before_they_become_integers():
    updates = IntegerUpdates(1.0, 50, 1e6)
    decoded = updates.decoded(updates.encoded(np.full(50, 1e9), ROTATION), ROTATION)
    assert np.linalg.norm(decoded) == pytest.approx(1.0, abs=1e-4)


def test_what_is_not_finite_or_of_another_size_is_zero():
    updates = IntegerUpdates(1.0, 3, 100.0)
    for bad in (np.full(3, math.nan), np.array([0, math.inf, 0.0]), np.zeros(4), np.full(3, 1.7e308)):
        assert not updates.encoded(bad, ROTATION).any()


def test_the_event_is_unamplified_and_counts_dropouts():
    plan = SecurePlan.make(100, **GIVEN, noise_multiplier=2.0)
    (step, rounds) = (plan.event.event, plan.event.count)
    assert isinstance(step, events.DistributedDiscreteGaussian)
    assert (step.parties, step.dropouts, step.coordinates, rounds) == (20, 5, 128, 10)
    assert step.total_variance / step.sensitivity_squared == pytest.approx(4.0, rel=1e-9)
    unamplified = accounting.epsilon(events.Repeated(events.Gaussian(2.0), 10), 1e-5).upper
    assert unamplified <= plan.guarantee.epsilon <= 1.1 * unamplified
    assert str(plan.guarantee).endswith("zero out one client")
    assert plan.relation is ZERO_OUT


def test_the_noise_grows_with_the_clip_norm():
    """In units of the update, noise is in proportion to the norm: σ/s, with s integers in a unit."""
    small, large = (SecurePlan.make(100, **{**GIVEN, "clip_norm": c}, noise_multiplier=2.0) for c in (1.0, 10.0))
    spread = [math.sqrt(plan.variance) / plan.updates.scale for plan in (small, large)]
    assert spread[1] == pytest.approx(10 * spread[0], rel=1e-6)


def test_noise_is_calibrated_to_epsilon_with_all_dropouts():
    plan = SecurePlan.make(100, **GIVEN, epsilon=8.0)
    assert plan.guarantee.epsilon == 8.0
    assert 7.99 <= accounting.epsilon(plan.event, 1e-5, ZERO_OUT).upper <= 8.0


def test_a_person_with_several_clients_moves_the_sum_several_times_as_far():
    one = SecurePlan.make(100, **GIVEN, noise_multiplier=2.0)
    three = SecurePlan.make(clients(100, per_person=3), **GIVEN, noise_multiplier=2.0)
    assert three.norm_squared == 9 * three.updates.norm_squared
    over_norm = [float(plan.variance / plan.updates.norm_squared) for plan in (one, three)]
    assert over_norm[1] == pytest.approx(9 * over_norm[0], rel=1e-9)
    assert three.guarantee.epsilon == pytest.approx(one.guarantee.epsilon)


def test_the_noise_of_a_client_has_the_planned_variance():
    """From 65,536 draws the variance is off by 5%, nine sigmas, with a probability below 1e-18."""
    plan = SecurePlan.make(100, **{**GIVEN, "dimension": 65_536}, noise_multiplier=2.0)
    noisy = plan.updates.noisy(np.zeros(plan.updates.size, np.int64), plan.variance)
    centered = noisy - 2**32 * (noisy >= 2**31)
    assert float(np.var(centered)) == pytest.approx(float(plan.variance), rel=0.05)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"parties": 1}, "parties"),
        ({"parties": 101}, "parties"),
        ({"dropouts": 10}, "dropouts"),
        ({"dropouts": -1}, "dropouts"),
        ({"dimension": 0}, "dimension"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"bits": 33}, "bits"),
        ({"bits": 1}, "bits"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"rounds": 0}, "rounds"),
    ],
    ids=str,
)
def test_a_plan_without_a_price_is_refused(change, name):
    with pytest.raises(InvalidArgument, match=name):
        SecurePlan.make(100, **{**GIVEN, "noise_multiplier": 2.0, **change})


def test_masks_depend_on_all_bits_of_the_secret_and_survive_bytes():
    """Flower folds a secret to 32 bits by XOR: the two here would have one mask."""
    first = mask(b"\x01\x00\x00\x00" + bytes(28), 1000, 32)
    second = mask(bytes(4) + b"\x01\x00\x00\x00" + bytes(24), 1000, 32)
    assert not np.array_equal(first, second)
    assert first.min() >= 0
    assert first.max() < 2**32
    assert np.array_equal(from_bytes(to_bytes(first), 1000), first)
    assert from_bytes(to_bytes(first), 999) is None
    assert mask(bytes(32), 1000, 5).max() < 32
