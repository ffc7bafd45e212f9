"""Many losses of one kind as arrays, so that thousands of different scales cost one pass of numpy each time.

A family is a `ClosedLoss` for the product of all of its members: its logarithms of moments add up, and its ratios
multiply. Under the tilt every member's ratio has a modulus of at most 1, so if each is off by e_j, their product is off
by at most Π(1 + e_j) − 1 ≤ e^{Σe_j} − 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.atoms import AtomLoss, DiscreteGaussianLoss, DiscreteLaplaceLoss, ListedLoss
from discreet.accounting.losses.closed import ClosedAtoms, ClosedLoss, closed_form
from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.one_range import RangeLoss
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

# Losses with at most this many atoms join a family of atoms; longer ones are summed by themselves.
_FEW_ATOMS = 8
# Complex numbers of one chunk of members times nodes: 2 MiB, which stays in the cache.
_CHUNK = 1 << 17
# From this many equally spaced frequencies on, powers of e^{iωl} are multiplied instead of computed one by one.
_EQUALLY_SPACED = 64
# Roundings of one member: its own (see `closed`), one product, and the power, whose phase is at most π.
_MEMBER_ROUNDINGS = 96
# Below this exponent the sums of j q^j lose their digits to cancellation, and their expansion around q = 1 is used.
_FLAT = 1e-2
# Below the first, derivatives of ln(sinh(x)/x) are those of x²/6; from the second on, sinh(x) = eˣ/2 to all digits.
_SMALL_ANGLE, _LARGE_ANGLE = 1e-3, 30.0


class _Family(ABC):
    """The product of many losses of one kind. Abstract."""

    count: Floats

    @property
    def members(self) -> float:
        """How many losses it stands for."""
        return float(np.sum(self.count))

    def ratio(self, tilt: float, omega: Floats) -> tuple[Complexes, Floats]:
        """E[e^{(τ+iω)L}]/E[e^{τL}] of the sum of all losses, and a bound on its error."""
        total = np.ones(len(omega), dtype=np.complex128)
        for rows in _chunks(len(self.count), len(omega)):
            total *= _product(self._ratios(tilt, omega, rows), self.count[rows])
        return total, np.expm1(UNIT * (_MEMBER_ROUNDINGS * self.members + self._roundings(tilt, omega)))

    @abstractmethod
    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        """The ratio of each of some members (rows) at each frequency."""

    @abstractmethod
    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        """How many roundings the exponents and phases of all members err by together."""


@dataclass(frozen=True, eq=False)
class LaplaceFamily(_Family):
    """Laplace noise at many ε₀; see `closed.ClosedLaplace` for the formula."""

    epsilon: Floats
    count: Floats

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        e = self.epsilon
        shrink = np.exp(-(2 * tilt + 1) * e)
        inside = (tilt + 1) + tilt * shrink
        first = (1 + shrink * (1 - 2 * e * tilt)) / inside
        second = shrink * (-4 * e + 4 * e * e * tilt) / inside
        log_moment = tilt * e + np.log(inside) - math.log(2 * tilt + 1)
        bend = np.maximum(second - first * first + 4 / (2 * tilt + 1) ** 2, 0.0)
        return _weighted(self.count, log_moment, e + first - 2 / (2 * tilt + 1), bend)

    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        z = tilt + 1j * omega
        e = self.epsilon[rows, None]
        shrink = np.exp(-(2 * tilt + 1) * e)
        turned = _turned(e, omega)
        # e^{−(2τ+1+iω)ε₀} is the conjugate of e^{iωε₀}, shrunk.
        value = turned * (z + 1)
        value += np.conj(turned) * shrink * z
        value *= (2 * tilt + 1) / (tilt + 1 + tilt * shrink) / (2 * z + 1)
        return value

    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        return 8 * (tilt + omega) * float(self.count @ self.epsilon)


@dataclass(frozen=True, eq=False)
class DiscreteLaplaceFamily(_Family):
    """Discrete Laplace noise at many sensitivities Δ and scales b.

    With ρ = e^{−(1+2z)/b} and r = e^{−1/b}, E[e^{zL}] = e^{zΔ/b}(1 + ρ^Δ + (1 − r)(ρ + … + ρ^{Δ−1}))/(1 + r).
    """

    sensitivity: Floats
    scale: Floats
    count: Floats

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        b, last = self.scale, self.sensitivity - 1
        exponent = (1 + 2 * tilt) / b
        step, end = -np.expm1(-1 / b), np.exp(-exponent * self.sensitivity)
        sums, first, second = _power_sums(exponent, last)
        total = 1 + end + step * sums
        mean = (step * first + self.sensitivity * end) / total
        square = (step * second + self.sensitivity**2 * end) / total
        epsilon = self.sensitivity / b
        log_moment = tilt * epsilon + np.log(total) - np.log1p(np.exp(-1 / b))
        spread = np.maximum(square - mean * mean, 0.0)
        return _weighted(self.count, log_moment, epsilon - 2 / b * mean, 4 / (b * b) * spread)

    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        b, steps = self.scale[rows, None], self.sensitivity[rows, None]
        exponent = (1 + 2 * tilt) / b
        step, end = -np.expm1(-1 / b), np.exp(-exponent * steps)
        turned = _turned(steps / b, omega)
        # ρ^Δ turned back by e^{iωΔ/b} is the conjugate of e^{iωΔ/b}, shrunk.
        value = end * np.conj(turned)
        if steps.max() > 1:
            turn = 2 * omega / b
            below = _one_minus(exponent, turn)
            between = (1 - below) * _one_minus(exponent * (steps - 1), turn * (steps - 1)) / below
            turned *= 1 + step * between
        value += turned
        value /= 1 + end + step * _power_sums(exponent, steps - 1)[0]
        return value

    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        return 8 * (tilt + omega) * float(self.count @ (self.sensitivity / self.scale + 1))


@dataclass(frozen=True, eq=False)
class DiscreteGaussianFamily(_Family):
    """Discrete Gaussian noise at many shifts a and variances σ² ≥ 1, by Poisson's summation of its theta function.

    With μ = a/σ, E[e^{zL}] = e^{z(z+1)μ²/2} Θ(za)/Θ(0) and Θ(y) ∝ Σ_n e^{−2π²σ²n² + 2πi n y}: the largest term and its
    two neighbors suffice, because the others are below e^{−(3πσ)²/2} < 1e-19.
    """

    shift: Floats
    sigma: Floats
    count: Floats

    def _theta(self, tilt: float, rows: slice = slice(None)) -> Floats:
        """Θ at a real point over its mean."""
        return 1 + 2 * np.exp(-2 * (math.pi * self.sigma[rows]) ** 2) * np.cos(
            2 * math.pi * np.mod(tilt * self.shift[rows], 1.0)
        )

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        mu_squared = (self.shift / self.sigma) ** 2
        log_moment = tilt * (tilt + 1) * mu_squared / 2 + np.log(self._theta(tilt)) - np.log(self._theta(0.0))
        return _weighted(self.count, log_moment, (tilt + 0.5) * mu_squared, mu_squared)

    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        a, sigma = self.shift[rows, None], self.sigma[rows, None]
        mu = a / sigma
        nearest = -np.round(omega * mu / (2 * math.pi * sigma))
        fraction = np.mod(tilt * a, 1.0)
        value = np.zeros(nearest.shape, dtype=np.complex128)
        for n in (nearest - 1, nearest, nearest + 1):
            phase = 2 * math.pi * np.mod(n * fraction, 1.0)
            value += np.exp(-((omega * mu + 2 * math.pi * sigma * n) ** 2) / 2 + 1j * phase)
        value *= np.exp(1j * (omega * ((2 * tilt + 1) / 2 * mu * mu))) / self._theta(tilt, rows)[:, None]
        return value

    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        mu = self.shift / self.sigma
        return 16 * (omega * float(self.count @ (mu + (tilt + 1) * mu * mu)) + tilt * float(self.count @ mu))


@dataclass(frozen=True, eq=False)
class AtomFamily(_Family):
    """Losses with a few atoms each; `p` is 0 where a member has fewer than the others."""

    losses: Floats
    p: Floats
    count: Floats

    def _weights(self, tilt: float, rows: slice = slice(None)) -> tuple[Floats, Floats]:
        with np.errstate(divide="ignore"):
            exponent = np.log(self.p[rows]) + tilt * self.losses[rows]
        top = np.max(exponent, axis=1, keepdims=True)
        weights = np.exp(exponent - top)
        total = np.sum(weights, axis=1, keepdims=True)
        return weights / total, (top + np.log(total))[:, 0]

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        weights, log_moment = self._weights(tilt)
        mean = np.sum(weights * self.losses, axis=1)
        spread = np.sum(weights * (self.losses - mean[:, None]) ** 2, axis=1)
        return _weighted(self.count, log_moment, mean, spread)

    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        weights, losses = self._weights(tilt, rows)[0], self.losses[rows]
        value = weights[:, :1] * _turned(losses[:, :1], omega)
        for k in range(1, losses.shape[1]):
            value += weights[:, k, None] * _turned(losses[:, k, None], omega)
        return value

    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        weights, _ = self._weights(tilt)
        return 8 * (tilt + omega) * float(self.count @ np.sum(weights * np.abs(self.losses), axis=1))


@dataclass(frozen=True, eq=False)
class RangeFamily(_Family):
    """Selections of many ranges ε: E[e^{zL}] = sinh((z + ½)ε)/((2z + 1)·sinh(ε/2)).

    With x = (τ + ½)ε and y = ωε the ratio is (x cos y + i·x coth(x)·sin y)/(x + iy). Both terms of the numerator are at
    most 3|x + iy|, and a relative error of y moves the ratio by at most 1 + 2x times that.
    """

    epsilon: Floats
    count: Floats

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        x = (tilt + 0.5) * self.epsilon
        small, safe = x < _SMALL_ANGLE, np.maximum(x, _SMALL_ANGLE)
        slope = np.where(small, x / 3, 1 / np.tanh(safe) - 1 / safe)
        with np.errstate(over="ignore"):
            bend = np.where(small, 1 / 3, 1 / safe**2 - 1 / np.sinh(safe) ** 2)
        log_moment = _log_sinh_over(x) - _log_sinh_over(self.epsilon / 2)
        return _weighted(self.count, log_moment, self.epsilon * slope, self.epsilon**2 * bend)

    def _ratios(self, tilt: float, omega: Floats, rows: slice) -> Complexes:
        x, y = (tilt + 0.5) * self.epsilon[rows, None], self.epsilon[rows, None] * omega
        return np.asarray((x * np.cos(y) + 1j * (x / np.tanh(x)) * np.sin(y)) / (x + 1j * y))

    def _roundings(self, tilt: float, omega: Floats) -> Floats:
        return 8 * (tilt + 1 + omega) * float(self.count @ self.epsilon)


def _log_sinh_over(x: Floats) -> Floats:
    """ln(sinh(x)/x) for x > 0."""
    with np.errstate(over="ignore"):
        return np.where(x < _LARGE_ANGLE, np.log(np.sinh(np.minimum(x, _LARGE_ANGLE)) / x), x - np.log(2 * x))


def has_closed_form(loss: PrivacyLoss) -> bool:
    """Whether the loss joins a family, or has a formula of its own."""
    return isinstance(loss, ListedLoss | RangeLoss) or closed_form(loss) is not None


def in_families(
    losses: Iterable[tuple[PrivacyLoss, int]],
) -> tuple[tuple[tuple[ClosedLoss, int], ...], list[tuple[PrivacyLoss, int]]]:
    """The losses in closed form, like ones together, and those that have none."""
    laplace: list[tuple[float, int]] = []
    discrete: list[tuple[DiscreteLaplaceLoss, int]] = []
    gaussian: list[tuple[float, float, int]] = []
    atoms: list[tuple[AtomLoss, int]] = []
    ranges: list[tuple[float, int]] = []
    closed: list[tuple[ClosedLoss, int]] = []
    without: list[tuple[PrivacyLoss, int]] = []
    for loss, count in losses:
        match loss:
            case ContinuousLoss(LaplaceShift(epsilon), rate) if rate >= 1:
                laplace.append((epsilon, count))
            case RangeLoss(epsilon):
                ranges.append((epsilon, count))
            case DiscreteLaplaceLoss():
                discrete.append((loss, count))
            case DiscreteGaussianLoss(shift, variance) if variance >= 1:
                gaussian.append((float(shift), math.sqrt(variance), count))
            case DiscreteGaussianLoss():
                closed.append((ClosedAtoms(*loss.atoms()[:2]), count))
            case AtomLoss() if 0 < len(loss.losses) <= _FEW_ATOMS:
                atoms.append((loss, count))
            case _:
                form = closed_form(loss)
                closed.append((form, count)) if form is not None else without.append((loss, count))
    if laplace:
        closed.append((LaplaceFamily(*np.array(laplace, dtype=np.float64).T), 1))
    if ranges:
        closed.append((RangeFamily(*np.array(ranges, dtype=np.float64).T), 1))
    if discrete:
        # By sensitivity, because those of sensitivity 1 need no sum over the values in between.
        discrete.sort(key=lambda member: member[0].sensitivity)
        terms = np.array([(loss.sensitivity, loss.scale, count) for loss, count in discrete], dtype=np.float64)
        closed.append((DiscreteLaplaceFamily(*terms.T), 1))
    if gaussian:
        closed.append((DiscreteGaussianFamily(*np.array(gaussian, dtype=np.float64).T), 1))
    if atoms:
        closed.append((_atoms(atoms), 1))
    return tuple(closed), without


def _atoms(members: Sequence[tuple[AtomLoss, int]]) -> AtomFamily:
    width = max(len(loss.losses) for loss, _ in members)
    losses, p = np.zeros((len(members), width)), np.zeros((len(members), width))
    for row, (loss, _) in enumerate(members):
        losses[row, : len(loss.losses)], p[row, : len(loss.p)] = loss.losses, loss.p
    return AtomFamily(losses, p, np.array([count for _, count in members], dtype=np.float64))


def _weighted(count: Floats, k: Floats, slope: Floats, curvature: Floats) -> tuple[float, float, float]:
    return float(count @ k), float(count @ slope), float(count @ curvature)


def _chunks(members: int, nodes: int) -> Iterable[slice]:
    rows = max(1, _CHUNK // max(1, nodes))
    return (slice(begin, begin + rows) for begin in range(0, members, rows))


def _turned(loss: Floats, omega: Floats) -> Complexes:
    """e^{iωl} for each loss (a column) and frequency.

    On equally spaced frequencies e^{i(aB+b)Δl} = e^{iaBΔl}·e^{ibΔl}: a product takes a quarter of the time of a sine
    and a cosine. It adds two roundings of the phase, within those that the families allow.
    """
    count = len(omega)
    if count < _EQUALLY_SPACED or not np.array_equal(omega, omega[1] * np.arange(count)):
        return np.asarray(np.exp(1j * (loss * omega)))
    block = math.isqrt(count)
    inner, outer = np.exp(1j * (loss * omega[:block])), np.exp(1j * (loss * omega[::block]))
    product = outer[:, :, None] * inner[:, None, :]
    return np.asarray(product.reshape(len(loss), -1)[:, :count])


def _product(value: Complexes, count: Floats) -> Complexes:
    """Π value^count over the members (rows)."""
    often = count > 1
    if often.any():
        base = value[often]
        kept = np.where(base == 0, 1.0, base)
        value[often] = np.where(base == 0, 0.0, np.exp(count[often, None] * np.log(kept)))
    return np.asarray(np.multiply.reduce(value, axis=0))


def _one_minus(exponent: Floats, turn: Floats) -> Complexes:
    """1 − e^{−x−iy} without cancellation: both parts of its real part are positive."""
    shrink = np.exp(-exponent)
    return np.asarray(-np.expm1(-exponent) + 2 * shrink * np.sin(turn / 2) ** 2 + 1j * shrink * np.sin(turn))


def _power_sums(exponent: Floats, last: Floats) -> tuple[Floats, Floats, Floats]:
    """Σ q^j, Σ j q^j and Σ j² q^j over j = 1…n for q = e^{−x}; the first exactly, the others to a few digits."""
    q, gap = np.exp(-exponent), -np.expm1(-exponent)
    sums = q * -np.expm1(-exponent * last) / gap
    n, end = last, np.exp(-exponent * last)
    flat = exponent * n < _FLAT
    first = q * (1 - (n + 1) * end + n * end * q) / gap**2
    second = q * (1 + q - (n + 1) ** 2 * end + (2 * n * n + 2 * n - 1) * end * q - (n * q) ** 2 * end) / gap**3
    near_first = n * (n + 1) / 2 * np.exp(-exponent * (2 * n + 1) / 3)
    near_second = n * (n + 1) * (2 * n + 1) / 6 * np.exp(-exponent * 0.75 * n)
    return sums, np.where(flat, near_first, first), np.where(flat, near_second, second)
