"""Power series: the columns of Toeplitz matrices, their inverses and products, and buffered approximations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import fft

from discreet.accounting import correlation
from discreet.mechanisms.continual.stream import Vector

# Points at which buffers are fitted to a series, evenly spaced in the logarithm of the index.
_FIT_POINTS = 160
# The fastest buffer forgets within this many steps; the slowest one remembers this many times the whole stream.
_FASTEST, _SLOWEST = 0.35, 1.5
# Steps of the search for the best diagonals: a few hundred suffice for thousands of diagonals.
_MOST_STEPS = 500
#: Coefficients are multiples of 2^−30, so that integers times coefficients lie on a grid.
FINE_BITS = 30
#: Decays and scales of buffers are multiples of 2^−52, which floats hold exactly.
DECAY_BITS = 52


def inverse(column: Vector, count: int) -> Vector:
    """The first `count` coefficients of 1/c(x), by Newton's iteration with fast convolutions.

    Short series are divided out term by term. The error is a few roundings of the largest term.
    """
    if len(column) <= 64:
        return divided_out(column, count)
    inverse_column = np.array([1 / column[0]])
    while len(inverse_column) < count:
        size = min(2 * len(inverse_column), count)
        short = column[:size]
        error = -_convolved(short, inverse_column)[:size]
        error[0] += 2.0
        inverse_column = _convolved(inverse_column, error)[:size]
    return inverse_column


def divided_out(column: Vector | tuple[float, ...], count: int) -> Vector:
    """The first `count` coefficients of 1/c(x), term by term."""
    from scipy import signal  # on demand: it takes longer to import than the rest of this library

    impulse = np.zeros(count)
    impulse[0] = 1.0
    return np.asarray(signal.lfilter([1.0], column, impulse))


def _convolved(first: Vector, second: Vector) -> Vector:
    """The product of two series, by fast Fourier transforms."""
    length = len(first) + len(second) - 1
    size = fft.next_fast_len(length, real=True)
    return np.asarray(fft.irfft(fft.rfft(first, size) * fft.rfft(second, size), size))[:length]


def product(first: Vector, second: Vector, count: int) -> Vector:
    """The first `count` coefficients of a product."""
    shorter, longer = sorted((first, second), key=len)
    whole = np.convolve(shorter, longer) if len(shorter) <= 64 else _convolved(shorter, longer)
    padded = np.zeros(count)
    padded[: min(count, len(whole))] = whole[:count]
    return padded


def inverse_square_root(count: int) -> Vector:
    """The coefficients of √(1 − x): 1, −1/2, −1/8, −1/16, −5/128, …, the inverse of the square root of the prefix sums.

    >>> inverse_square_root(5).tolist()
    [1.0, -0.5, -0.125, -0.0625, -0.0390625]
    """
    j = np.arange(1, count, dtype=np.float64)
    return np.concatenate((np.ones(1), np.cumprod((j - 1.5) / j)))


def on_grid(values: Vector, bits: int = FINE_BITS) -> tuple[float, ...]:
    """Values rounded to multiples of 2^−bits, which floats hold exactly."""
    return tuple(float(value) for value in np.rint(values * 2.0**bits) * 2.0**-bits)


@lru_cache(maxsize=256)
def fitted_buffers(buffers: int, steps: int, decay: float = 1.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scales and decays of buffers that imitate the square root (1 − γx)^{−1/2} over the given number of steps.

    The coefficients of the square root are a mixture of powers: C(2j, j)/4ʲ = (1/π)∫ λʲ (λ(1 − λ))^{−1/2} dλ. The
    memories −1/ln λ are spread evenly on a logarithmic scale, and the scales fitted with nonnegative least squares of
    the relative error.
    """
    memories = np.geomspace(_FASTEST, max(_SLOWEST * steps, 2.0), buffers)
    decays = np.array(on_grid(np.exp(-1 / memories) * decay, DECAY_BITS))
    decays = np.clip(decays, 0.0, 1 - 2.0**-DECAY_BITS)
    if steps == 1:
        return (2.0**-DECAY_BITS,) * buffers, tuple(float(value) for value in decays)
    lags = np.unique(np.geomspace(1, steps - 1, _FIT_POINTS).astype(np.int64)) if steps > 1 else np.array([1])
    target = correlation.square_root_coefficients(int(lags[-1]) + 1)[lags]
    powers = decays[None, :] ** (lags[:, None] - 1.0)
    wanted = target * decay ** lags.astype(np.float64)
    from scipy import optimize  # on demand, as it takes long to import

    scales, _ = optimize.nnls(powers / wanted[:, None], np.ones(len(lags)))
    scales = np.maximum(np.array(on_grid(scales, DECAY_BITS)), 2.0**-DECAY_BITS)
    return tuple(float(value) for value in scales), tuple(float(value) for value in decays)


def optimized_column(workload: Vector, bands: int, weights: Vector) -> Vector:
    """The column of a Toeplitz encoder with few diagonals for which ‖c‖²·Σ weight·bₛ² is least, b = workload/c.

    That is the squared error of a stream in which a unit takes part once: ‖c‖ is its sensitivity, and bₛ² the share of
    the noise of s steps ago in an answer, which counts as often as its weight says. The gradient of Σ weight·bₛ² in c_k
    is −2 Σ weight·bₛ·q_{s−k}, with q = b/c. Quasi-Newton steps start from the square root.
    """
    from scipy import optimize  # on demand, as it takes long to import

    steps = len(workload)

    def logarithm(rest: Vector) -> tuple[float, Vector]:
        column = np.concatenate((np.ones(1), rest))
        inverse_column = inverse(column, steps)
        decoder = product(workload, inverse_column, steps)
        weighted = weights * decoder
        norm, error = float(column @ column), float(weighted @ decoder)
        by_error = _convolved(weighted[::-1], product(decoder, inverse_column, steps))[:steps][::-1]
        gradient = 2 * column / norm - 2 * by_error[: len(column)] / error
        return float(np.log(norm) + np.log(error)), gradient[1:]

    start = correlation.square_root_coefficients(bands)[1:]
    if not len(start):
        return np.ones(1)
    minimum = optimize.minimize(
        logarithm, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS, "ftol": 1e-13}
    )
    return np.concatenate((np.ones(1), minimum.x))
