"""Common sayings about the choice of noise, each with the number that an accountant computes for it.

The sayings circulate in surveys of Laplace, L2-Laplace and Gaussian noise in deep learning. Some hold, some hold only
under a condition that is left out, and some do not hold. Every number is computed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy import special

from discreet import events as ev
from discreet.accounting import composition, tight
from discreet.accounting._calibrate import calibrate
from discreet.accounting.closed_forms import (
    gaussian_delta,
    gaussian_noise_multiplier,
    l2_laplace_epsilon,
    l2_laplace_noise_multiplier,
)
from discreet.accounting.forms.conversions import rdp_epsilon
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.noises import Noises
from discreet.guarantees import ApproxDP
from discreet.numeric.search import bisect_ratio

Verdict = Literal["holds", "holds in part", "does not follow", "does not hold"]

# Noise here is shown with three digits.
_TOLERANCE = 1e-4
# The ε between which a formula's first failure is looked for, and the ratio to which it is found; three digits again.
_SMALLEST_EPSILON, _LARGEST_EPSILON, _RATIO = 1e-3, 100.0, 1.0005
# A δ below this is as good as none.
_NO_DELTA = 1e-300


@dataclass(frozen=True)
class Saying:
    """One saying, whether it holds, and the number that decides it."""

    says: str
    verdict: Verdict
    because: str


def sayings(compared: Noises) -> tuple[Saying, ...]:
    """Check the sayings, at the ε and δ of the task where a saying depends on them.

    >>> from discreet.accounting.noises import Task, noises
    >>> checked = sayings(noises(Task.of(ApproxDP(1.0, 1e-5), l1=1.0)))
    >>> checked[0].verdict, "1.012" in checked[0].because
    ('does not follow', True)
    """
    epsilon, delta = compared.task.budget.epsilon, compared.task.budget.delta
    return (
        _practical(epsilon, delta),
        _classical(epsilon, delta),
        _comparable(epsilon, delta),
        _small_delta(compared),
        _dimension(compared),
        _linear(delta),
        _amplification(),
        _renyi(),
        _advanced(),
        _same_epsilon(),
        _tails(),
    )


def _practical(epsilon: float, delta: float) -> Saying:
    multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    theorem = l2_laplace_epsilon(delta, multiplier)
    price = tight.epsilon(ev.L2Laplace(multiplier), delta)
    why = f"Theorem 3 gives ε = {theorem:.4g} for it"
    verdict: Verdict
    if theorem <= epsilon:
        verdict = "holds"
    elif price.upper <= epsilon:
        verdict = "does not follow"
        why += f"; a sharper accountant gives {price.upper:.4g}, so here it is enough for another reason"
    elif price.lower > epsilon:
        verdict, why = "does not hold", why + f"; the true ε is at least {price.lower:.4g}"
    else:
        verdict, why = "does not follow", why + f"; the true ε is at most {price.upper:.4g}"
    return Saying(f"L2-Laplace noise with λ = Δ₂√(2 ln(1.25/δ))/ε is ({epsilon:g}, {delta:g})-DP", verdict, why)


def _classical(epsilon: float, delta: float) -> Saying:
    growth = math.sqrt(2 * math.log(1.25 / delta))
    true = tight.epsilon(ev.Gaussian(growth / epsilon), delta).upper
    breaks = _first_failure(growth, delta)
    says = f"Gaussian noise with σ = Δ₂√(2 ln(1.25/δ))/ε is ({epsilon:g}, {delta:g})-DP"
    limit = "" if breaks is None else f"; at this δ the formula fails from ε = {breaks:.3g} on"
    if true > epsilon:
        return Saying(says, "does not hold", f"it is stated for ε < 1; here the true ε is {true:.4g}{limit}")
    least = gaussian_noise_multiplier(epsilon, delta)
    wasted = f"the true ε is {true:.4g}; σ = {least:.4g}·Δ₂ is enough, and the formula asks {growth / epsilon:.4g}·Δ₂"
    return Saying(says, "holds" if epsilon < 1 else "holds in part", wasted + limit)


def _comparable(epsilon: float, delta: float) -> Saying:
    gaussian = gaussian_noise_multiplier(epsilon, delta) ** 2
    theorem = 2 * l2_laplace_noise_multiplier(epsilon, delta) ** 2 / gaussian
    best = 2 * calibrate(ev.L2Laplace, ApproxDP(epsilon, delta), tolerance=_TOLERANCE) ** 2 / gaussian
    return Saying(
        "Laplace noise of comparable variance can always replace Gaussian noise",
        "holds in part",
        f"under an L2 bound alone it takes {best:.3g} times the variance (by Theorem 3 {theorem:.3g} times)",
    )


def _small_delta(compared: Noises) -> Saying:
    epsilon, spread = compared.task.budget.epsilon, compared.task.l1 / compared.task.l2
    one_number = gaussian_delta(epsilon, epsilon / math.sqrt(2))
    here = gaussian_delta(epsilon, epsilon / (math.sqrt(2) * spread))
    also = "" if spread <= 1 else f"; with Δ₁ = {spread:.3g}·Δ₂ only below {_power(here)}"
    return Saying(
        "Small values of δ favor Laplace noise",
        "holds in part",
        f"for one release of one number at ε = {epsilon:g} it has less variance below δ = {_power(one_number)}{also}",
    )


def _dimension(compared: Noises) -> Saying:
    by_name = {option.name: option for option in compared.same_guarantee}
    task, lap, gauss = compared.task, by_name["Laplace"].scale, by_name["Gaussian, analytic"].scale
    assert lap is not None
    assert gauss is not None
    return Saying(
        "In d dimensions Laplace noise needs √d times the noise, 316 times for 100,000 parameters",
        "holds" if task.l1 / task.l2 > 2 else "holds in part",
        f"where a unit moves all coordinates alike; here Δ₁ = {task.l1 / task.l2:.4g}·Δ₂ and the accountant finds "
        f"{lap / gauss:.4g} times the scale",
    )


def _linear(delta: float) -> Saying:
    step, count = 0.003, 1000
    best = calibrate(lambda b: ev.Repeated(ev.Laplace(b), count), ApproxDP(step * count, delta), tolerance=_TOLERANCE)
    return Saying(
        "1,000 steps at ε = 3 leave 0.003 for each, a Laplace noise scale of 1000",
        "does not hold",
        f"1/0.003 is {1 / step:.0f}·Δ₁; and with δ = {delta:g} the accountant needs {best:.3g}·Δ₁ only",
    )


def _amplification() -> Saying:
    rate, steps, delta = 0.01, 400, 1e-5
    sampled = tight.epsilon(ev.Repeated(ev.PoissonSampled(rate, ev.Laplace(1.0)), steps), delta).upper
    return Saying(
        "Sampling does not amplify Laplace noise; scale 1 over 400 steps means ε = 400",
        "does not hold",
        f"on Poisson batches of {rate:g} of the data these 400 steps cost ε = {sampled:.3g} at δ = {delta:g}",
    )


def _renyi() -> Saying:
    event, delta = ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 10_000), 1e-5
    by_rdp, exact = rdp_epsilon(rdp(event), delta), tight.epsilon(event, delta).upper
    return Saying(
        "Rényi DP gives the tightest known bounds for Gaussian noise",
        "does not hold",
        f"10,000 steps at rate 0.01 and σ = 1: ε = {by_rdp:.4g} by Rényi DP, {exact:.4g} exactly (δ = {delta:g})",
    )


def _advanced() -> Saying:
    advanced = composition.advanced(ApproxDP(0.1, 1e-6), 100, 1e-5).epsilon
    best = tight.epsilon(ev.Repeated(ev.Laplace(10.0), 100), 1.1e-4).upper
    return Saying(
        "100 queries at ε = 0.1 compose to ε = 5.84 by advanced composition",
        "holds in part",
        f"the theorem gives {advanced:.4f}; if they are Laplace releases the truth is {best:.4g}, both at δ = 1.1e-4",
    )


def _same_epsilon() -> Saying:
    event = ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 1000)
    price = tight.epsilon(event, 1e-5).upper
    return Saying(
        "Gaussian noise of multiplier 1.0 means ε ≈ 1.8",
        "holds in part",
        f"neither rate nor steps are said; 1,000 steps at rate 0.01 give {price:.4g} at δ = 1e-5",
    )


def _tails() -> Saying:
    laplace, gaussian = math.exp(-5 * math.sqrt(2)), 2 * float(special.ndtr(-5.0))
    return Saying(
        "Laplace noise has heavier tails than Gaussian noise",
        "holds",
        f"beyond 5 standard deviations lies {laplace:.2g} of it, {laplace / gaussian:.0f} times as much",
    )


def _first_failure(growth: float, delta: float) -> float | None:
    """The smallest ε up to 100 from which on σ = growth·Δ₂/ε has a larger δ; None if there is none."""

    def fails(epsilon: float) -> bool:
        return gaussian_delta(epsilon, epsilon / growth) > delta

    if not fails(_LARGEST_EPSILON):
        return None
    return bisect_ratio(fails, _SMALLEST_EPSILON, _LARGEST_EPSILON, ratio=_RATIO).high


def _power(value: float) -> str:
    return f"{value:.2g}" if value > _NO_DELTA else "any number that a float holds"
