"""Clipping the sum of a person's gradients: exact, and a person moves the noisy sum by at most the clip norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning.checkpoint import fingerprint
from tests.learning import small

NORM = 0.5
#: Persons 0 … 9 have 1, 2, …, 10 rows; at most four of them count.
WHO = np.repeat(np.arange(10), np.arange(1, 11))
ROWS, MOST = len(WHO), 4


def plan(**changes):
    settings = {"unit": dp.person("who", max_rows=MOST), "examples": 10, "batch_size": 10, "steps": 1}
    settings |= {"clip_norm": NORM, "clip_persons": "sum", "noise_multiplier": 1e-9}
    return small.plan(**(settings | changes))


def released(chosen, data, who=WHO):
    """The sums of the one step of a plan, over its expected batch size."""
    net = small.model()
    step = chosen.step(net, small.loss, torch.optim.SGD(net.parameters(), 0.1), compile=False)
    for batch in chosen.batches(data, persons=who):
        step(batch)
    return small.gradients(net) * 10


def person_sums(rows):
    """The gradient of each person's summed loss, by ordinary differentiation."""
    net, data = small.model(), small.data(ROWS)
    found = []
    for mine in rows:
        net.zero_grad()
        small.loss(net, tuple(part[mine] for part in data)).sum().backward()
        found.append(small.gradients(net))
    return found


@pytest.mark.parametrize("physical", [0, 1, 8, 13])
def test_the_release_is_the_sum_of_the_persons_clipped_sums(physical):
    few = np.flatnonzero(WHO < MOST)  # persons with at most four rows, so that nothing is left out at random
    chosen = plan(physical_batch_size=physical)
    data = tuple(part[few] for part in small.data(ROWS))
    found = released(chosen, data, WHO[few])
    each = person_sums([np.flatnonzero(who == WHO) for who in range(MOST)])
    expected = sum(value * min(1.0, NORM / float(value.norm())) for value in each)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_person_with_many_rows_moves_the_sum_by_at_most_the_norm():
    """A mutant that clips each row to the whole norm moves it by up to four times as much."""
    inputs, targets = small.data(ROWS)
    data = (inputs * 30, targets)
    with_last, without = released(plan(), data), released(plan(), tuple(p[WHO < 9] for p in data), WHO[WHO < 9])
    assert 0.5 * NORM < float((with_last - without).norm()) <= NORM * (1 + 1e-3)


def test_a_person_with_one_row_may_use_the_whole_norm():
    data = tuple(part[:1] for part in small.data(ROWS))
    lengths = [
        float(released(plan(clip_persons=how), (data[0] * 30, data[1]), WHO[:1]).norm()) for how in ("sum", "examples")
    ]
    assert lengths[0] == pytest.approx(NORM, rel=1e-3)
    assert lengths[1] == pytest.approx(NORM / MOST, rel=1e-3)


def test_both_ways_have_the_same_event_and_are_told_apart_in_a_checkpoint():
    one, other = plan(insecure_seed=None), plan(insecure_seed=None, clip_persons="examples")
    assert one.event == other.event
    assert one.noise_scale(NORM, 1) == other.noise_scale(NORM, 1)
    assert fingerprint(one) != fingerprint(other)
    assert "clipped as a sum" in one.explain()


def test_a_plan_without_persons_has_no_sums_of_persons():
    with pytest.raises(InvalidArgument, match="unless the unit is a person"):
        small.plan(clip_persons="sum")
    with pytest.raises(InvalidArgument, match="clip_persons"):
        plan(clip_persons="mean")
