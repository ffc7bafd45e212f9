"""Prices that have a formula: the guarantees of single mechanisms, and the noise that reaches a guarantee.

Every function that bounds a privacy loss rounds toward more loss, and every function that chooses noise rounds
toward more noise, by a margin above the error of the floating-point functions it calls. Symbols: ε `epsilon`,
δ `delta`, μ = Δ₂/σ `mu`, ε₀ = Δ₁/b.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

from discreet import _check
from discreet.numeric.rounding import SLACK, down, float_down, up
from discreet.numeric.search import least_positive

#: Relative error allowed for ε/μ ± μ/2, which takes three operations: 8 units of round-off.
ARGUMENT_ERROR = 2.0**-50
#: Below this argument δ is within 1e-8 of 1, and erfcx soon overflows, so the complement of δ is computed instead.
ERFCX_LIMIT = -6
# Relative width at which `least` stops: far finer than anyone sets noise, and far coarser than round-off.
_TOLERANCE = 1e-12


def gaussian_delta(epsilon: float, mu: float) -> float:
    """An upper bound on δ(ε) of Gaussian noise with μ = Δ₂/σ (Balle & Wang 2018, Theorem 8), tight to round-off.

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ). With x = ε/μ ∓ μ/2 both terms share the factor exp(−x₁²/2), so the
    difference is taken between scaled tails (erfcx), where it keeps its digits at any δ.

    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    if mu <= 0:
        return 0.0
    wide = epsilon / mu + mu / 2
    # The subtraction may cancel, so it is taken at the end of its error that gives the larger δ.
    near, far = epsilon / mu - mu / 2 - ARGUMENT_ERROR * wide, wide * (1 + ARGUMENT_ERROR)
    if near < ERFCX_LIMIT:
        missing = special.ndtr(near) + math.exp(min(epsilon + float(special.log_ndtr(-far)), 0.0))
        return min(1.0, up(1.0 - down(float(missing))))
    scaled_near = float(special.erfcx(near / math.sqrt(2)))
    scaled_far = float(special.erfcx(far / math.sqrt(2)))
    # Round-off of near and far moves erfcx by at most its relative condition number, which is below 1 + x².
    difference = scaled_near - scaled_far + SLACK * (scaled_near * (2 + max(0.0, -near)) + scaled_far)
    exponent = -near * near / 2
    return min(1.0, up(0.5 * math.exp(exponent + abs(exponent) * SLACK) * max(difference, 0.0)))


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ₂ whose δ(ε) is at most `delta`, by the analytic formula (Balle & Wang 2018, Algorithm 1).

    >>> round(gaussian_noise_multiplier(1.0, 1e-6), 8)
    4.22467889
    """
    epsilon, delta = float_down(_check.epsilon(epsilon)), float_down(_check.delta(delta))
    return least(lambda multiplier: gaussian_delta(epsilon, 1 / multiplier) <= delta)


def classical_noise_multiplier(epsilon: float, delta: float) -> float:
    """The textbook's σ/Δ₂ = √(2 ln(1.25/δ))/ε (Dwork & Roth 2014, Theorem A.1), which is proved for ε < 1 only.

    >>> round(classical_noise_multiplier(0.5, 1e-6), 4)
    10.5976
    """
    epsilon, delta = float_down(_check.epsilon(epsilon)), float_down(_check.delta(delta))
    if epsilon >= 1:
        raise _check.fail(
            "epsilon",
            "be < 1",
            epsilon,
            "the classical formula is not proved from there on; use calibration='analytic'",
        )
    return up(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)


def laplace_delta(epsilon: float, loss: float) -> float:
    """δ(ε) of one-dimensional Laplace noise with ε₀ = Δ₁/b = `loss`: 1 − e^{(ε−ε₀)/2} on [0, ε₀], 0 above.

    >>> round(laplace_delta(0.5, 1.0), 10)
    0.2211992169
    """
    return 0.0 if epsilon >= loss else min(1.0, up(-math.expm1((epsilon - loss) / 2)))


def l2_laplace_epsilon(delta: float, noise_multiplier: float, l1_noise_multiplier: float | None = None) -> float:
    """ε of Laplace noise λ on each coordinate under an L2 bound (arXiv 2408.07021, Theorem 3), rounded up.

    ε = min{Δ₁/λ, (Δ₂/λ)(Δ₂/(2λ) + √(2 ln(1/δ)))}, with `noise_multiplier` = λ/Δ₂ and `l1_noise_multiplier` = λ/Δ₁.

    >>> round(l2_laplace_epsilon(1e-5, math.sqrt(2 * math.log(1.25e5))), 3)
    1.012
    """
    ratio = 1 / noise_multiplier
    by_l2 = up(ratio * (ratio / 2 + math.sqrt(-2 * math.log(delta))))
    return by_l2 if l1_noise_multiplier is None else min(by_l2, up(1 / l1_noise_multiplier))


def l2_laplace_noise_multiplier(epsilon: float, delta: float) -> float:
    """The λ/Δ₂ at which Theorem 3 of arXiv 2408.07021 gives (ε, δ): (s + √(s² + 2ε))/(2ε), s = √(2 ln(1/δ)).

    The "practical" λ/Δ₂ = √(2 ln(1.25/δ))/ε that circulates is not this inverse: at (1, 1e-5) it gives ε = 1.012.

    >>> round(l2_laplace_epsilon(1e-5, l2_laplace_noise_multiplier(1.0, 1e-5)), 9)
    1.0
    """
    epsilon, delta = float_down(_check.epsilon(epsilon)), float_down(_check.delta(delta))
    tail = math.sqrt(-2 * math.log(delta))
    start = (tail + math.sqrt(tail * tail + 2 * epsilon)) / (2 * epsilon)
    return least(lambda multiplier: l2_laplace_epsilon(delta, multiplier) <= epsilon, start=start)


def least(fits: Callable[[float], bool], *, start: float = 1.0) -> float:
    """The smallest x > 0 for which a monotone `fits` is true, to a relative 1e-12, from the side where it is true."""
    answer = least_positive(fits, start=start, relative=_TOLERANCE)
    if math.isinf(answer):
        raise _check.fail("budget", "be reachable", answer, "no finite noise reaches it; allow more ε or δ")
    return answer
