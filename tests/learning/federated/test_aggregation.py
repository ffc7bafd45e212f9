"""Whatever clients send, one of them moves the sum by at most the clip norm, and the noise is that of the price."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from discreet.errors import InvalidArgument
from discreet.learning import Plan
from discreet.learning.clipping import Adaptive
from discreet.learning.federated import Round, applied, draw_clients
from discreet.learning.noise import Secret
from discreet.mechanisms.sampling import entropy

CURRENT = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float64), "steps": np.array(7)}
EVERYONE = frozenset(range(10))


def plan_of(noise_multiplier=1e-12, clip_norm=1.0, clipping=None, rate=1.0, number=10):
    """With next to no noise, so that a release shows the sum."""
    given = {"clip_norm": clip_norm} if clipping is None else {"clipping": clipping}
    return Plan.federated(number, rate=rate, rounds=5, noise_multiplier=noise_multiplier, delta=1e-5, **given)


def round_of(plan=None, current=CURRENT, norm=1.0, drawn=EVERYONE):
    return Round(plan or plan_of(), 1, current, norm, drawn)


def moved(by, current=CURRENT):
    return {name: array + array.dtype.type(by) if array.dtype.kind == "f" else array for name, array in current.items()}


def total(one, plan=None):
    """The sum, without the divisor."""
    plan = plan or plan_of()
    released = one.release(Secret())
    return {name: update * plan.expected_clients for name, update in released.update.items()}


def norm_of(arrays):
    return math.sqrt(math.fsum(float(x) ** 2 for array in arrays.values() for x in np.ravel(array)))


def test_an_update_is_the_difference_from_what_was_sent():
    one = round_of()
    one.take(0, moved(0.125))
    result = total(one)
    assert set(result) == {"weight", "bias"}
    assert result["weight"] == pytest.approx(np.full((2, 3), 0.125), abs=1e-9)
    assert result["bias"] == pytest.approx(np.full(2, 0.125), abs=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-20, 0.5, 3.0, 1e20, 1e160, 1e300])
def test_the_whole_update_is_clipped_and_not_each_array(size):
    current = {"a": np.zeros(4), "b": np.zeros((3, 2))}
    one = round_of(current=current)
    one.take(0, {"a": np.full(4, size), "b": np.full((3, 2), -size)})
    norm = norm_of(total(one))
    assert norm == pytest.approx(min(1.0, size * math.sqrt(10)), rel=1e-9, abs=1e-9)


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=60, deadline=None)
@given(reply=hnp.arrays(np.float32, st.integers(1, 40), elements=finite), norm=st.floats(1e-3, 1e3))
def test_the_norm_after_clipping_is_at_most_the_clip_norm_exactly(reply, norm):
    """Not within a tolerance: the norm is rounded up and the weight down."""
    one = round_of(current={"a": np.zeros(reply.size, np.float32)}, norm=norm)
    one.take(0, {"a": reply})
    exact = sum(Fraction(float(x)) ** 2 for x in one._sum["a"])
    assert exact <= Fraction(norm) ** 2


BAD = {
    "nan": moved(math.nan),
    "infinity": moved(math.inf),
    "minus infinity in one place": {**moved(0), "bias": np.array([0.0, -math.inf])},
    "a missing array": {"weight": CURRENT["weight"]},
    "no arrays": {},
    "another shape": {**moved(0), "bias": np.zeros(3)},
    "a shape that would broadcast": {**moved(0), "bias": np.zeros(1)},
    "transposed": {**moved(0), "weight": np.ones((3, 2))},
    "integers": {**moved(0), "bias": np.zeros(2, np.int64)},
    "complex": {**moved(0), "bias": np.zeros(2, complex)},
    "objects": {**moved(0), "bias": np.array([None, 1.0], dtype=object)},
    "text": {**moved(0), "bias": np.array(["a", "b"])},
    "a list": {**moved(0), "bias": [0.0, 0.0]},
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
def test_what_cannot_be_summed_counts_as_zero_and_is_never_fatal(reply):
    one = round_of()
    one.take(0, reply)
    assert (one.counts.refused, one.counts.summed, one.counts.absent) == (1, 0, 9)
    assert norm_of(total(one)) < 1e-9


def test_a_difference_that_overflows_counts_as_zero():
    one = round_of(current={"a": np.full(2, -1.7e308)})
    one.take(0, {"a": np.full(2, 1.7e308)})
    assert one.counts.refused == 1
    assert norm_of(total(one)) < 1e-9


def test_other_float_types_and_further_arrays_are_accepted():
    one = round_of()
    one.take(0, {"weight": np.ones((2, 3), np.float16), "bias": np.full(2, 0.25, np.float32), "extra": np.zeros(9)})
    assert one.counts.summed == 1
    assert total(one)["bias"] == pytest.approx([0.25, 0.25], abs=1e-9)


def test_a_zero_update_is_summed_and_divides_by_nothing():
    one = round_of()
    one.take(0, moved(0))
    assert (one.counts.summed, one.counts.clipped) == (1, 0)
    assert norm_of(total(one)) < 1e-9


def test_only_the_first_reply_of_a_drawn_client_to_this_round_counts():
    one = round_of(drawn=frozenset({1, 2}))
    one.take(1, moved(0.125))
    one.take(1, moved(0.125))  # repeated
    one.take(3, moved(0.125))  # not drawn
    one.take(2, moved(0.125), number=0)  # late
    assert (one.counts.summed, one.counts.ignored, one.counts.absent) == (1, 3, 1)
    assert total(one)["bias"] == pytest.approx([0.125, 0.125], abs=1e-9)


def test_a_failed_reply_cannot_be_corrected_by_a_second_one():
    one = round_of()
    one.take(1, None)
    one.take(1, moved(0.125))
    assert (one.counts.failed, one.counts.ignored, one.counts.summed) == (1, 1, 0)


def test_absent_clients_do_not_shrink_the_divisor():
    """A mutant that divides by the number of replies lets one client move the mean by C instead of C/10."""
    plan = plan_of()
    alone = round_of(plan)
    alone.take(0, moved(0.125))
    assert alone.release(Secret()).update["bias"] == pytest.approx([0.0125, 0.0125], abs=1e-9)


def test_an_empty_round_releases_noise():
    """False alarm: the norm of 8 normals is below 1e-3 with a probability below 1e-25."""
    released = round_of(plan_of(1.0), drawn=frozenset()).release(Secret())
    assert norm_of(released.update) * 10 > 1e-3


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_noise_has_the_scale_of_the_norm_that_the_round_was_clipped_with(adaptive):
    """The estimate of a standard deviation from 20,000 normals is off by 5%, ten sigmas, with probability < 1e-20.

    A mutant that scales by the norm of after the update is off by exp(0.2/2), 10%.
    """
    clipping = Adaptive(3.0, quantile=0.5, count_noise=1.0) if adaptive else None
    plan = plan_of(1.0, clip_norm=3.0, clipping=clipping)
    current = {"a": np.zeros(20_000)}
    one = round_of(plan, current=current, norm=3.0)
    for client in range(10):
        one.take(client, {"a": np.zeros(20_000)})
    released = one.release(Secret())
    spread = float(np.std(released.update["a"])) * plan.expected_clients
    assert released.clip_norm == 3.0
    assert spread == pytest.approx(plan.sum_multiplier * 3.0, rel=0.05)


def test_noise_is_fresh_in_every_round_and_drawn_once():
    secret, plan = Secret(), plan_of(1.0)
    first, second = round_of(plan), Round(plan, 2, CURRENT, 1.0, EVERYONE)
    ours = first.release(secret)
    assert not np.array_equal(ours.update["bias"], second.release(secret).update["bias"])
    with pytest.raises(InvalidArgument, match="once"):
        first.release(secret)


def test_seeds_of_numpy_and_torch_repeat_neither_noise_nor_draws():
    """Equal by chance with a probability below 2^−100."""
    releases, draws = [], []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        releases.append(round_of(plan_of(1.0)).release(Secret()).update["bias"].tolist())
        draws.append(draw_clients(plan_of(rate=0.5, number=200), tuple(range(200)), entropy.SYSTEM))
    assert releases[0] != releases[1]
    assert draws[0] != draws[1]


@pytest.mark.parametrize("start", [0.1, 1.1, 30.0])
def test_adaptive_clipping_moves_toward_the_quantile(start):
    """Updates have norms 0.5, 1.0, 1.5, …, 5.0, so the median norm is between 2.5 and 3.

    The noise on the share is 1e-3, so after 200 rounds the norm is within [2, 4] unless a normal exceeds 100 sigmas.
    With the wrong sign it is below 1e-3 or above 1e3.
    """
    clipping = Adaptive(start, quantile=0.5, learning_rate=0.2, count_noise=0.01)
    plan = plan_of(1e-3, clipping=clipping)
    current, norm = {"a": np.zeros(1)}, start
    for number in range(1, 201):
        one = Round(plan, number, current, norm, EVERYONE)
        for client in range(10):
            one.take(client, {"a": np.array([0.5 * (client + 1)])})
        norm = one.release(Secret()).next_clip_norm
    assert 2.0 <= norm <= 4.0


def test_absent_clients_leave_the_clip_norm_where_it_is():
    """Without replies the share is 1/2 plus noise of 1e-3; 0.05 would be 50 sigmas."""
    plan = plan_of(1e-3, clipping=Adaptive(1.0, quantile=0.5, count_noise=0.01))
    assert round_of(plan, drawn=frozenset()).release(Secret()).next_clip_norm == pytest.approx(1.0, abs=0.01)


def test_clients_are_drawn_independently_at_the_rate():
    """100,000 clients at rate 0.1: the count is off by 8 sigmas (760) with a probability below 1e-14."""
    ids = tuple(range(2**63, 2**63 + 100_000))
    plan = plan_of(rate=0.1, number=100_000)
    first, second = (draw_clients(plan, ids, entropy.SYSTEM) for _ in range(2))
    assert first <= set(ids)
    assert abs(len(first) - 10_000) < 760
    assert first != second
    assert abs(len(first & second) - 1_000) < 8 * 32
    assert draw_clients(plan_of(rate=1.0), (4, 5), entropy.SYSTEM) == {4, 5}


def test_arrays_keep_their_types_and_integers_their_values():
    after = applied(CURRENT, {"weight": np.full((2, 3), 0.5), "bias": np.ones(2)})
    assert after["weight"].dtype == np.float32
    assert after["weight"][0, 0] == 1.5
    assert after["steps"] == 7
    assert after["steps"].dtype == CURRENT["steps"].dtype


@pytest.mark.parametrize("current", [{}, {"a": np.array(3)}, {"a": np.array(["x"])}, {"a": np.zeros(1, complex)}])
def test_a_model_without_floats_or_with_other_types_is_refused(current):
    with pytest.raises(InvalidArgument):
        round_of(current=current)


def test_arrays_of_many_blocks_are_summed_as_by_numpy():
    size = 50_000
    values = np.sin(np.arange(size))
    current = {"a": np.cos(np.arange(size)).astype(np.float32)}
    one = round_of(current=current)
    one.take(0, {"a": values})
    difference = values - current["a"].astype(np.float64)
    assert total(one)["a"] == pytest.approx(difference / np.linalg.norm(difference), abs=1e-9)
