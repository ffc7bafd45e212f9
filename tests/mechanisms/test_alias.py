"""The alias table gives every outcome its weight exactly, and draws it with that probability."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from discreet.errors import InvalidArgument
from discreet.mechanisms.local.vectors import normal_weights
from discreet.mechanisms.sampling.alias import UNIT_BITS, AliasTable
from tests.exact import FALSE_ALARM, ScriptedBits

UNIT = 1 << UNIT_BITS


def held(table):
    """The units of each outcome."""
    units = [0] * len(table.cuts)
    for column, (cut, other) in enumerate(zip(table.cuts.tolist(), table.others.tolist(), strict=True)):
        units[column] += cut
        units[other] += UNIT - cut
    return units


@pytest.mark.parametrize(
    "weights",
    [
        [UNIT],
        [UNIT, UNIT],
        [0, 2 * UNIT],
        [1, 2 * UNIT - 1],
        [4 * UNIT, 0, 0, 0],
        [UNIT - 1, UNIT + 1, UNIT, UNIT],
        [3, UNIT - 5, 2 * UNIT + 1, UNIT + 1],
    ],
)
def test_the_columns_hold_the_weights_exactly(weights):
    assert held(AliasTable.of(weights)) == weights


def test_the_table_of_normal_numbers_is_exact_and_symmetric():
    weights = normal_weights(1 << 12)
    assert held(AliasTable.of(weights)) == weights.tolist()
    assert (weights[1:] == weights[:0:-1]).all()
    assert int(weights.sum()) == 1 << 48
    far = np.abs(np.arange(-(1 << 15), 1 << 15)) / (1 << 12)
    real = np.diff(stats.norm.cdf(np.arange(-(1 << 15), (1 << 15) + 1) / (1 << 12) - 0.5 / (1 << 12)))
    # The proof allows 2^−32 in total variation.
    assert np.abs(weights / 2.0**48 - real).sum() / 2 < 2.0**-32
    assert far[np.flatnonzero(weights)].max() > 7


def test_outcomes_are_drawn_with_their_weights():
    weights = np.array([5 * UNIT // 2, UNIT // 4, UNIT // 4, UNIT])
    drawn = AliasTable.of(weights).draw(40_000)
    expected = weights / weights.sum() * drawn.size
    statistic = np.sum((np.bincount(drawn, minlength=4) - expected) ** 2 / expected)
    assert statistic < stats.chi2.isf(FALSE_ALARM, 3)


def test_a_unit_whose_first_bits_are_those_of_the_cut_gets_more_bits():
    class Equal(ScriptedBits):
        def read(self, count):
            return np.array([0, 0, 1, 1], dtype=np.uint16).tobytes() if count == 8 else super().read(count)

    table = AliasTable.of([(1 << 16) + 7, 2 * UNIT - (1 << 16) - 7])
    bits = Equal(integers=[6, 7])
    assert table.draw(2, bits).tolist() == [0, 1]  # the unit 2^16 + 6 lies below the cut, and 2^16 + 7 does not
    assert bits.asked == [16, 16]


@pytest.mark.parametrize("weights", [[UNIT, UNIT, UNIT], [UNIT, UNIT - 1], [-1, 2 * UNIT + 1], []])
def test_other_weights_are_refused(weights):
    with pytest.raises(InvalidArgument, match="weights"):
        AliasTable.of(weights)
