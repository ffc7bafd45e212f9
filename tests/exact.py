"""Shared by the statistical tests: exact probabilities, a goodness-of-fit test of known error rate, scripted bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import special, stats

from discreet.mechanisms.sampling.entropy import Bits

#: The probability that one comparison fails although the code is right: a test makes up to ten, and 1e-6 is for all.
FALSE_ALARM = 1e-7


def discrete_laplace_pmf(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.tanh(1 / (2 * scale)) * np.exp(-np.abs(x) / scale)


def geometric_pmf(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(x >= 0, -np.expm1(-1 / scale) * np.exp(-np.abs(x) / scale), 0.0)


def discrete_gaussian_pmf(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    reach = np.arange(-int(40 * sigma + 40), int(40 * sigma + 41))
    total = np.sum(np.exp(-0.5 * (reach / sigma) ** 2))
    return lambda x: np.exp(-0.5 * (np.asarray(x) / sigma) ** 2) / total


def rounded_gaussian_pmf(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    def pmf(x: np.ndarray) -> np.ndarray:
        far = np.abs(np.asarray(x, dtype=float))  # the difference of two upper tails loses no digits
        return special.ndtr(-(far - 0.5) / sigma) - special.ndtr(-(far + 0.5) / sigma)

    return pmf


def rounded_laplace_pmf(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    def pmf(x: np.ndarray) -> np.ndarray:
        far = np.abs(np.asarray(x, dtype=float))
        tail = np.sinh(1 / (2 * scale)) * np.exp(-far / scale)
        return np.where(far == 0, -np.expm1(-1 / (2 * scale)), tail)

    return pmf


def bins_for(pmf: Callable[[np.ndarray], np.ndarray], reach: int, draws: int, most: int = 60) -> list[tuple[int, int]]:
    """Ranges of integers [low, high) around 0, each expected to hold at least 50 draws and about 1/most of the mass."""
    x = np.arange(-reach, reach + 1)
    mass = pmf(x)
    least = max(50 / draws, 1 / most)
    bins, start, held = [], -reach, 0.0
    for value, p in zip(x.tolist(), mass.tolist(), strict=True):
        held += p
        if held >= least:
            bins.append((start, value + 1))
            start, held = value + 1, 0.0
    bins[0] = (-(1 << 62), bins[0][1])
    bins[-1] = (bins[-1][0], 1 << 62)
    return bins


def fit(samples: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray], reach: int) -> tuple[float, float, list[float]]:
    """Pearson's chi-square statistic of the samples, its critical value, and the expected share of each bin."""
    bins = bins_for(pmf, reach, samples.size)
    shares = []
    for low, high in bins:
        x = np.arange(max(low, -reach), min(high, reach + 1))
        shares.append(float(np.sum(pmf(x))))
    shares = (np.array(shares) / np.sum(shares)).tolist()  # the mass beyond `reach` is below 1e-12
    cuts = np.array([high for _, high in bins[:-1]])
    observed = np.bincount(np.searchsorted(cuts, samples, side="right"), minlength=len(bins))
    expected = np.array(shares) * samples.size
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return statistic, float(stats.chi2.isf(FALSE_ALARM, len(bins) - 1)), shares


def assert_fits(samples: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray], reach: int) -> None:
    """Assert that the samples have this pmf. If they do, it fails with probability FALSE_ALARM."""
    statistic, critical, _ = fit(samples, pmf, reach)
    assert statistic <= critical, f"chi-square {statistic:.1f} exceeds {critical:.1f}"


def power(
    truth: Callable[[np.ndarray], np.ndarray], claimed: Callable[[np.ndarray], np.ndarray], reach: int, draws: int
) -> float:
    """The probability that `assert_fits` catches draws from `truth` that claim to be from `claimed`."""
    bins = bins_for(claimed, reach, draws)

    def shares(pmf: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        held = [np.sum(pmf(np.arange(max(low, -reach), min(high, reach + 1)))) for low, high in bins]
        return np.array(held) / np.sum(held)

    p, q = shares(truth), shares(claimed)
    critical = stats.chi2.isf(FALSE_ALARM, len(bins) - 1)
    return float(stats.ncx2.sf(critical, len(bins) - 1, draws * np.sum((p - q) ** 2 / q)))


class ScriptedBits(Bits):
    """Bits from a script, and from a seed once the script ends."""

    def __init__(self, halves: Sequence[int] = (), words: Sequence[int] = (), integers: Sequence[int] = ()) -> None:
        self.halves, self.whole, self.integers = list(halves), list(words), list(integers)
        self.asked: list[int] = []
        self._random = np.random.default_rng(7)

    def read(self, count: int) -> bytes:
        return self._random.bytes(count)

    def half_words(self, count: int) -> np.ndarray:
        drawn = np.frombuffer(self.read(4 * count), dtype=np.uint32).copy()
        given, self.halves = self.halves[:count], self.halves[count:]
        drawn[: len(given)] = given
        return drawn

    def words(self, count: int) -> np.ndarray:
        drawn = np.frombuffer(self.read(8 * count), dtype=np.uint64).copy()
        given, self.whole = self.whole[:count], self.whole[count:]
        drawn[: len(given)] = given
        return drawn

    def integer(self, width: int) -> int:
        self.asked.append(width)
        return self.integers.pop(0) if self.integers else super().integer(width)
