"""The samplers' probabilities are the ones in their docstrings.

Two kinds of test: deterministic ones, which feed every prefix or a scripted one and compare with exact arithmetic, and
chi-square tests on 4·10⁵ draws, each with a false-alarm rate below 1e-6 and a power above 99.9% against a scale that is
2% too small (checked in `test_the_fit_would_notice_two_percent_less_noise`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.bounded import Scores
from discreet.errors import InvalidArgument
from discreet.mechanisms import NoisyMax
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.blocks import BlockSampler, Shape, Support
from discreet.mechanisms.sampling.entropy import SYSTEM, SeededBits
from discreet.mechanisms.sampling.fixed_point import bernoulli, coins, exp_neg, exp_neg_multiples, uniform_below
from discreet.mechanisms.selection import rate
from discreet.neighbors import ADD_REMOVE
from tests import exact
from tests.exact import ScriptedBits

DRAWS = 400_000

CASES = {
    "discrete laplace": (lambda s, n: samplers.discrete_laplace(Fraction(s), n), exact.discrete_laplace_pmf, 30),
    "discrete gaussian": (
        lambda s, n: samplers.discrete_gaussian(Fraction(s) ** 2, n),
        exact.discrete_gaussian_pmf,
        9,
    ),
    "rounded laplace": (lambda s, n: samplers.rounded_laplace(Fraction(s), n), exact.rounded_laplace_pmf, 30),
    "rounded gaussian": (lambda s, n: samplers.rounded_gaussian(Fraction(s) ** 2, n), exact.rounded_gaussian_pmf, 9),
}
# Scales on both sides of a change of block width: M = 1 up to 63, 2 from 64 on, and M < 1 for rounded noise below 32.
SCALES = [0.5, 1.0, 7.25, 31.9, 32.0, 63.0, 64.0, 65.5, 1000.1]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_stated_probabilities(name, scale):
    draw, pmf, reach = CASES[name]
    exact.assert_fits(draw(scale, DRAWS), pmf(scale), int(reach * scale + reach))


@pytest.mark.parametrize("name", CASES)
def test_the_fit_would_notice_two_percent_less_noise(name):
    _, pmf, reach = CASES[name]
    for scale in SCALES[1:]:
        assert exact.power(pmf(0.98 * scale), pmf(scale), int(reach * scale + reach), DRAWS) > 0.999


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [1e6, 1e9, 1e12])
def test_large_scales_have_the_continuous_shape(name, scale):
    """Scaled draws against the continuous distribution; at these scales the grid is 1e-6 of a bin or finer."""
    draw, _, _ = CASES[name]
    x = draw(scale, DRAWS) / scale
    laplace, one_sided = "laplace" in name or name == "geometric", name == "geometric"
    cuts = np.linspace(0.01, 0.99, 50)
    if one_sided:
        edges = -np.log1p(-cuts)
    elif laplace:
        edges = np.where(cuts < 0.5, np.log(2 * cuts), -np.log(2 * (1 - cuts)))
    else:
        edges = np.array([float(mpmath.sqrt(2) * mpmath.erfinv(2 * c - 1)) for c in cuts])
    observed = np.bincount(np.searchsorted(edges, x), minlength=51)
    expected = np.diff(np.concatenate(([0.0], cuts, [1.0]))) * DRAWS
    statistic = np.sum((observed - expected) ** 2 / expected)
    assert statistic < 120  # chi2.isf(1e-6, 50) = 117.2; 50 bins' edges move by less than 1e-6 of a bin


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0, 100.0, 5000.0])
@pytest.mark.parametrize("shape", Shape)
def test_every_threshold_of_the_table_is_the_cumulative_probability(shape, scale):
    """P(block ≤ k) to 31 bits against 60-digit arithmetic, for the whole table."""
    parameter = Fraction(scale) if shape is Shape.LAPLACE else Fraction(scale) ** 2
    sampler = BlockSampler(shape, Support.DISCRETE, parameter)
    low, high = sampler._cumulative(31)
    with mpmath.workdps(60):
        c = mpmath.mpf(sampler._ratio.numerator) / sampler._ratio.denominator
        weight = (lambda k: mpmath.exp(-c * k)) if shape is Shape.LAPLACE else (lambda k: mpmath.exp(-c * k * k / 2))
        masses = [weight(k) for k in range(6 * len(low) + 60)]
        total = mpmath.fsum(masses)
        running = mpmath.mpf(0)
        for k in range(len(low)):
            running += masses[k]
            assert low[k] <= running / total * 2**31 <= high[k]
            assert high[k] - low[k] <= 1


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
def test_feeding_every_prefix_once_gives_every_value_its_share(scale):
    """2^20 evenly spaced prefixes: each value must occur within one of 2^20 times its probability."""
    sampler = BlockSampler(Shape.LAPLACE, Support.DISCRETE, Fraction(scale))
    every = np.arange(1 << 20, dtype=np.uint32) << np.uint32(12)
    observed = np.bincount(sampler._choose(every >> np.uint32(1), SeededBits(0)))
    expected = exact.geometric_pmf(scale)(np.arange(len(observed))) * (1 << 20)
    assert np.all(np.abs(observed - expected) <= 1.0001)


@pytest.mark.parametrize("support", Support)
@pytest.mark.parametrize("shape", Shape)
def test_the_short_bounds_on_the_coin_hold_the_true_probability(shape, support):
    """The 40-bit integers that decide nearly all coins enclose exp(−γ) for every place with these first 44 bits."""
    sampler = BlockSampler(shape, support, Fraction(10**5) if shape is Shape.LAPLACE else Fraction(10**10))
    blocks = np.repeat(np.arange(len(sampler._thresholds), dtype=np.int64), 6)
    corner = [0, 1, (1 << 44) - 1, (1 << 43), (1 << 14) - 1, 123456789]
    places = np.tile(np.array(corner, dtype=np.uint64), len(sampler._thresholds))
    floor, ceiling = sampler._bound_survival(blocks, places)
    step = max(1, len(blocks) // 600)
    for k, f, lo, hi in list(zip(blocks.tolist(), places.tolist(), floor.tolist(), ceiling.tolist(), strict=True))[
        ::step
    ]:
        assert lo <= exp_neg(sampler._exponent(k, Fraction(f + 1, 1 << 44)), 40)[1]
        assert hi >= exp_neg(sampler._exponent(k, Fraction(f, 1 << 44)), 40)[0]


@pytest.mark.parametrize("support", Support)
@pytest.mark.parametrize("shape", Shape)
def test_a_coin_that_is_surely_kept_is_kept_at_every_place_of_its_block(shape, support):
    sampler = BlockSampler(shape, support, Fraction(10**5) if shape is Shape.LAPLACE else Fraction(10**10))
    for block, sure in enumerate(sampler._sure[:-1].tolist()):
        assert sure <= exp_neg(sampler._exponent(block, Fraction(1)), 20)[0]
    assert sampler._sure[-1] == 0


@pytest.mark.parametrize("scale", [5, 20, 63, 1000])
@pytest.mark.parametrize("shape", Shape)
def test_the_last_prefix_always_asks_for_more_bits(shape, scale):
    """Beyond the last block of the table the prefix alone does not decide."""
    sampler = BlockSampler(shape, Support.DISCRETE, Fraction(scale) if shape is Shape.LAPLACE else Fraction(scale) ** 2)
    bits = ScriptedBits()
    for prefix in range((1 << 31) - 12, 1 << 31):
        bits.asked.clear()
        sampler._choose(np.array([prefix], dtype=np.uint32), bits)
        assert bits.asked or prefix < sampler._thresholds[-1]


def test_a_prefix_on_a_threshold_is_decided_with_more_bits():
    sampler = BlockSampler(Shape.LAPLACE, Support.DISCRETE, Fraction(3))
    threshold = int(sampler._thresholds[2])
    low, high = sampler._cumulative(31 + 96)
    cut = low[2] - (threshold << 96)  # the position of the real threshold inside the doubtful prefix
    assert 0 < cut < 1 << 96
    just_below, just_above = ScriptedBits(integers=[cut - 1]), ScriptedBits(integers=[high[2] - (threshold << 96)])
    assert sampler._choose(np.array([threshold], dtype=np.uint32), just_below)[0] == 2
    assert sampler._choose(np.array([threshold], dtype=np.uint32), just_above)[0] == 3
    assert just_below.asked[0] == just_above.asked[0] == 96


def test_the_far_tail_is_reached_through_more_bits():
    """A prefix of all ones lies beyond the table; its further bits decide how far."""
    sampler = BlockSampler(Shape.LAPLACE, Support.DISCRETE, Fraction(1, 1000))
    zero = ScriptedBits(halves=[(1 << 32) - 2] * 9, integers=[0] * 50)
    assert sampler.draw(1, zero)[0] == 0  # P(0) = 1 − 2e^{−1000}: still zero
    far = BlockSampler(Shape.LAPLACE, Support.DISCRETE, Fraction(1))
    ones = ScriptedBits(halves=[(1 << 32) - 2] * 9, integers=[(1 << 96) - (1 << 40)] * 50)
    assert far.draw(1, ones)[0] == math.floor(math.log(2.0) * (31 + 56))


@pytest.mark.parametrize("support", Support)
def test_an_undecided_coin_is_decided_with_more_bits(support):
    """A coin equal to the first bits of exp(−γ) is undecided until later bits differ."""
    sampler = BlockSampler(Shape.GAUSSIAN, support, Fraction(10**12))
    block, place = 40, ((1 << 43) + 12345) >> 30 << 30
    low, _ = exp_neg(sampler._exponent(block, Fraction(place, 1 << 44)), 52)
    for coin, expected in ((low - (1 << 30), True), (low + (1 << 30), False)):
        assert sampler._keep_exactly(block, place, coin, ScriptedBits()) is expected
    open_coin = ScriptedBits()
    sampler._keep_exactly(block, place, low, open_coin)
    assert open_coin.asked, "a coin on the edge must ask for more bits"


@settings(deadline=None)
@given(
    st.fractions(min_value=0, max_value=3000, max_denominator=10**9),
    st.integers(min_value=1, max_value=300),
)
def test_exp_neg_encloses_the_exponential(gamma, precision):
    low, high = exp_neg(gamma, precision)
    with mpmath.workdps(1500):
        truth = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator) * mpmath.mpf(2) ** precision
        assert low <= truth <= high
    assert high - low <= 2


@given(st.integers(min_value=0, max_value=1), st.integers(min_value=0, max_value=2**62 - 1))
@settings(max_examples=50, deadline=None)
def test_a_uniform_is_compared_with_the_number_and_not_with_its_first_bits(side, number):
    target = lambda p: ((number << 128) + (1 << 64) >> (190 - p), ((number << 128) + (1 << 64) >> (190 - p)) + 1)  # noqa: E731
    bits = ScriptedBits(integers=[0, 0, 0] if side else [2**64 - 1] * 3)
    assert uniform_below(target, number, 62, bits) is bool(side)


def test_bernoulli_exp_has_its_probability():
    """Binomial with n = 4·10⁵: the bound is 5.4 standard deviations, a false alarm of 1e-7 each."""
    for gamma in (Fraction(1, 1000), Fraction(1, 2), Fraction(1), Fraction(3)):
        p = math.exp(-gamma)
        heads = samplers.bernoulli_exp(gamma, DRAWS).sum()
        assert abs(heads - p * DRAWS) < 5.4 * math.sqrt(p * (1 - p) * DRAWS)
    assert samplers.bernoulli_exp(Fraction(0), 100).all()
    assert not samplers.bernoulli_exp(Fraction(10**6), 100).any()


def test_bernoulli_refines_a_coin_on_the_edge():
    third = lambda p: ((1 << p) // 3, (1 << p) // 3 + 1)  # noqa: E731
    edge = ((1 << 62) // 3) << 2
    below, above = ScriptedBits(words=[edge], integers=[0]), ScriptedBits(words=[edge], integers=[(1 << 64) - 1])
    assert bernoulli(third, 1, below)[0]
    assert not bernoulli(third, 1, above)[0]


def test_coins_from_bytes_have_their_probability_to_the_last_bit():
    """Every first byte once: 85 of 256 are below 1/3, one is undecided, and more bits decide it, on both sides."""
    third = lambda p: ((1 << p) // 3, (1 << p) // 3 + 1)  # noqa: E731
    every, edge = bytes(range(256)), ((1 << 62) // 3 & (1 << 54) - 1) << 10
    cases = [([0], [], 86), ([2**64 - 1], [], 85), ([edge], [0], 86), ([edge], [2**64 - 1], 85)]
    for words, integers, heads in cases:
        bits = ScriptedBits(words=words, integers=integers)
        reads = [every]
        bits.read = lambda count, reads=reads: reads.pop() if reads else bytes(count)
        drawn = coins(third, 256, bits)
        assert drawn[:85].all()
        assert not drawn[86:].any()
        assert drawn.sum() == heads


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 15, 16, 100, 129, 255, 256, 257, 1000, 40_000, 65_535, 65_536])
def test_small_uniform_integers_take_each_value_from_as_many_words(bound):
    """Exhaustively: every word once. Words that would favor small values are drawn again, here as zeros."""
    kind = np.uint8 if bound <= 256 else np.uint16
    every = np.arange(np.iinfo(kind).max + 1).astype(kind)
    reads = [every.tobytes()]
    bits = ScriptedBits()
    bits.read = lambda count: reads.pop() if reads else bytes(count)
    counts = np.bincount(samplers.uniform(bound, every.size, bits), minlength=bound)
    counts[0] -= every.size % bound
    assert counts.tolist() == [every.size // bound] * bound


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, (1 << 33) + 5])
def test_uniform_integers_are_uniform(bound):
    draws = samplers.uniform(bound, DRAWS)
    assert draws.min() >= 0
    assert draws.max() < bound
    bins = min(bound, 50)
    observed = np.bincount((draws * bins // bound).astype(int), minlength=bins)
    shares = np.diff([-(-i * bound // bins) for i in range(bins + 1)]) / bound
    statistic = np.sum((observed - shares * DRAWS) ** 2 / (shares * DRAWS))
    assert statistic < 120  # chi2.isf(1e-6, 49) = 115.6


def test_permutations_are_uniform():
    """All 24 orders of 4 items, 24,000 times; chi2.isf(1e-6, 23) = 70.5."""
    orders = [tuple(samplers.permutation(4)) for _ in range(24_000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 24
    assert np.sum((counts - 1000) ** 2 / 1000) < 73


def test_softmax_has_the_stated_probabilities():
    """30,000 draws of 5; chi2.isf(1e-6, 4) = 33.4."""
    penalties, rate = [0, 1, 2, 0, 7], Fraction(1, 3)
    weights = np.exp(-np.array(penalties) / 3)
    observed = np.bincount([samplers.softmax(penalties, rate) for _ in range(30_000)], minlength=5)
    expected = weights / weights.sum() * 30_000
    assert np.sum((observed - expected) ** 2 / expected) < 34


def test_softmax_decides_the_edge_between_two_items_with_more_bits():
    """Two equal items: the edge is exactly one half, so a prefix just below or at it falls on its own side."""
    assert samplers.softmax([0, 0], Fraction(1), ScriptedBits(integers=[(1 << 95) - 1])) == 0
    assert samplers.softmax([0, 0], Fraction(1), ScriptedBits(integers=[1 << 95])) == 1


def test_the_order_of_the_sampled_vector_carries_no_pattern():
    """Correlation of neighbors, and of sign with magnitude, in 10⁶ draws: below 5.4/√n; false alarm 1e-7 each."""
    x = samplers.discrete_gaussian(Fraction(10**8), 10**6).astype(float)
    x /= x.std()
    bound = 5.4 / math.sqrt(x.size)
    assert abs(np.mean(x[1:] * x[:-1])) < bound
    assert abs(np.mean(np.sign(x) * (np.abs(x) - np.abs(x).mean()))) < bound
    assert abs(np.mean(np.sign(x))) < bound


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), math.nan, math.inf, Fraction(1 << 49), "1", True, None])
def test_scales_outside_the_range_are_refused(scale):
    for draw in (samplers.discrete_laplace, samplers.rounded_laplace):
        with pytest.raises(InvalidArgument, match="scale must"):
            draw(scale, 1)


def test_sizes_are_checked_and_zero_is_allowed():
    assert samplers.discrete_laplace(Fraction(3), 0).shape == (0,)
    for size in (-1, 1.5, math.nan, "3"):
        with pytest.raises(InvalidArgument, match="size must"):
            samplers.discrete_gaussian(Fraction(3), size)


def test_the_same_seed_gives_the_same_draws_and_the_system_does_not():
    seeded = [samplers.discrete_laplace(Fraction(50), 100, SeededBits(3)) for _ in range(2)]
    assert np.array_equal(*seeded)
    fresh = [samplers.discrete_laplace(Fraction(50), 100, SYSTEM) for _ in range(2)]
    assert not np.array_equal(*fresh)


@settings(deadline=None)
@given(st.fractions(min_value=0, max_value=50, max_denominator=10**6), st.lists(st.integers(0, 10**6), min_size=1))
def test_exponentials_of_many_multiples_are_enclosed(gamma, counts):
    low, high = exp_neg_multiples(gamma, np.array(counts))
    for count, lo, hi in zip(counts, low.tolist(), high.tolist(), strict=True):
        least, most = exp_neg(gamma * count, 200)
        assert lo << 138 <= most
        assert least <= hi << 138
        assert hi - lo <= 128


def test_coins_of_many_candidates_fall_as_if_each_was_flipped_alone():
    """With the same bits, permute-and-flip chooses what a loop over exact coins chooses."""
    generator = np.random.default_rng(0)
    for seed in range(200):
        values = generator.integers(0, 10 ** int(generator.integers(1, 6)), 50)
        scores = Scores(values, tuple(range(50)), {ADD_REMOVE: 1}, "test")
        mechanism, relation = NoisyMax(Fraction(1, 10 ** int(generator.integers(0, 4)))), ADD_REMOVE
        per_score, below = rate(scores, mechanism.epsilon, relation), (values.max() - values).tolist()
        bits = entropy.bits(seed)
        words = bits.words(50).tolist()
        heads = [i for i in range(50) if uniform_below(partial(exp_neg, per_score * below[i]), words[i], 64, bits)]
        expected = heads[int(samplers.uniform(len(heads), 1, bits)[0])]
        assert mechanism._choose(scores, relation, entropy.bits(seed)) == expected
