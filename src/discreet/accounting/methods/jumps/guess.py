"""Where a cut belongs and roughly what the answer is: from a few hundred atoms. Nothing here needs to be certified."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.continuous import mixture_loss
from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.jumps.cut import Sampled, least_total
from discreet.accounting.methods.target import Target

Floats = NDArray[np.float64]

# Atoms of each loss, and how far they reach beyond the centers of both normals.
_ATOMS, _REACH = 400, 12.0
# What lies beyond the cut and may be made up for by the other losses, as a share of δ; and mass that never matters.
_REST_SHARE, _TAIL_SHARE = 1e-6, 3e-5
#: The cut lies so far beyond the ε that was guessed, so that a slightly larger ε is still below it.
BEYOND = 1.02
# Orders for Chernoff's bound, as multiples of 1/f; the least cut as a part of f, and bisections for it.
_ORDERS = 10.0 ** np.arange(0.0, 9.1, 0.25)
_LEAST_CUT, _CUT_HALVINGS = 1e-5, 12
# Bisections for ε, in ln ε, between these.
_HALVINGS, _SMALLEST, _LARGEST = 13, 1e-9, 1e7
# Exponents are cut off here: e^709 is the largest float.
_LARGEST_EXPONENT = 700.0
_ROOT, _ROOT_TWO_PI = math.sqrt(2), math.sqrt(2 * math.pi)
# Taken in place of 0, so that a logarithm exists: below it only subnormal floats remain.
_TINY = 1e-300
# A first δ where an ε is given, and rounds to improve it; the largest tilt that is looked at.
_FIRST_DELTA, _DELTA_ROUNDS, _LARGEST_TILT = 1e-9, 3, 1e12


@dataclass(frozen=True)
class Guess:
    """Roughly the ε and δ of the answer, and the saddle of the losses that are not cut off."""

    epsilon: float
    delta: float
    point: saddle.Saddle


@dataclass(frozen=True, eq=False)
class Coarse:
    """A composition of sampled Gaussians as atoms: the losses, their P and the same losses' Q, and their counts."""

    sampled: Sampled
    adding: bool
    floor: float
    atoms: tuple[tuple[Floats, Floats, Floats, int], ...]
    chernoff: tuple[Floats, Floats]

    @classmethod
    def of(cls, sampled: Sampled, adding: bool) -> Coarse:
        """The atoms of a composition."""
        floor = least_total(sampled)
        atoms = []
        moments = np.zeros_like(_ORDERS)
        orders = _ORDERS / floor
        for rate, mu, count in sampled:
            u, width = np.linspace(-_REACH, mu + 3 * _REACH, _ATOMS, retstep=True)
            loss = mixture_loss(mu * (u - mu / 2), rate)
            # The trapezoidal rule: many steps need moments with far more correct digits than cells give.
            base = width / _ROOT_TWO_PI * np.exp(-u * u / 2)
            mixed = (1 - rate) * base + rate * width / _ROOT_TWO_PI * np.exp(-((u - mu) ** 2) / 2)
            with np.errstate(over="ignore"):
                moments += count * np.log1p(np.maximum(np.expm1(-orders[:, None] * loss) @ base, 0.0))
            atoms.append((-loss[::-1], base[::-1], mixed[::-1], count) if adding else (loss, mixed, base, count))
        return cls(sampled, adding, floor, tuple(atoms), (orders, moments))

    def cut(self, epsilon: float, delta: float) -> tuple[float, float]:
        """A cut for an answer near ε and δ, and the order of Chernoff's bound on what the other losses make up for."""
        steps = sum(count for _, _, count in self.sampled)
        tail = max(_TAIL_SHARE * delta / steps, _TINY)
        matters = max(self._quantile(rate, mu, tail) for rate, mu, _ in self.sampled)
        room, order = self._room(epsilon, delta)
        cut = self._at(epsilon, room)
        return (matters, 0.0) if matters < cut else (cut, order)

    def _room(self, epsilon: float, delta: float) -> tuple[float, float]:
        """How far the cut is from ε: so that what the others make up for, by Chernoff's bound, does not matter."""
        orders, moments = self.chernoff
        wanted = math.log(max(_REST_SHARE * delta, _TINY))

        def rest(room: float) -> float:
            cut = self._at(epsilon, room)
            far = math.fsum(n * self._beyond(r, mu, cut) for r, mu, n in self.sampled)
            return math.log(max(far, _TINY)) + float(np.min(moments - orders * room))

        low, high = math.log(self.floor * _LEAST_CUT), math.log(self.floor)
        for _ in range(_CUT_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if rest(math.exp(middle)) > wanted else (low, middle)
        room = math.exp(high)
        return room, float(orders[int(np.argmin(moments - orders * room))])

    def farthest(self, epsilon: float) -> float:
        """A cut beyond which one loss decides whatever the others are."""
        return self._at(epsilon, self.floor)

    def _at(self, epsilon: float, room: float) -> float:
        return max(room - epsilon / BEYOND if self.adding else epsilon * BEYOND + room, self.floor * _LEAST_CUT)

    def _beyond(self, rate: float, mu: float, cut: float) -> float:
        """P of a loss beyond the cut."""
        if cut > _LARGEST_EXPONENT:
            return 0.0
        u = math.log1p(math.expm1(cut) / rate) / mu + mu / 2
        base = math.erfc(u / _ROOT) / 2
        return base if self.adding else (1 - rate) * base + rate * math.erfc((u - mu) / _ROOT) / 2

    def _quantile(self, rate: float, mu: float, tail: float) -> float:
        u = -float(special.ndtri(tail)) + (0.0 if self.adding else mu)
        return float(mixture_loss(np.array([mu * (u - mu / 2)]), rate)[0])

    def kept(self, cut: float) -> list[tuple[Floats, Floats, int]]:
        """The atoms up to the cut: losses, ln P, counts."""
        near_losses = []
        for loss, p, _, count in self.atoms:
            near = loss >= -cut if self.adding else loss <= cut
            near_losses.append((loss[near], np.log(np.maximum(p[near], _TINY)), count))
        return near_losses

    def log_delta(self, epsilon: float, delta: float) -> tuple[float, saddle.Saddle]:
        """About ln δ(ε), and the saddle of what is not cut off, with the cut for `delta`."""
        cut, _ = self.cut(epsilon, delta)
        kept = self.kept(cut)
        far = 0.0
        for loss, p, q, count in () if self.adding else self.atoms:
            beyond = (loss > cut) & (loss > epsilon)
            growth = math.exp(min(epsilon, _LARGEST_EXPONENT))
            far += count * float(np.sum(p[beyond] - growth * q[beyond]))
        spread = math.sqrt(max(cumulants(kept, 0.0)[2], _TINY))
        point = saddle.for_epsilon(lambda tilt: cumulants(kept, tilt), epsilon, 1 / spread, limit=_LARGEST_TILT)
        total = math.exp(min(0.0, point.log_delta)) + min(max(far, 0.0), 1.0)
        return math.log(max(total, _TINY)), point

    def guess(self, target: Target) -> Guess:
        """The answer, roughly."""
        if target.epsilon is not None:
            delta = _FIRST_DELTA
            for _ in range(_DELTA_ROUNDS):  # the cut depends on δ, if only a little
                log_delta, point = self.log_delta(target.epsilon, delta)
                delta = math.exp(log_delta)
            return Guess(target.epsilon, delta, point)
        assert target.delta is not None
        wanted = math.log(target.delta)
        largest = self.floor if self.adding else _LARGEST
        low, high = math.log(min(_SMALLEST, largest / 2)), math.log(largest)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            log_delta_there, point = self.log_delta(math.exp(middle), target.delta)
            low, high = (middle, high) if log_delta_there > wanted else (low, middle)
        return Guess(math.exp(middle), target.delta, point)


def cumulants(atoms: list[tuple[Floats, Floats, int]], tilt: float) -> tuple[float, float, float]:
    """K, K′ and K″ of the atoms at a real point."""
    k = slope = curvature = 0.0
    for losses, log_p, count in atoms:
        exponent = log_p + tilt * losses
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        mean = float(weight @ losses) / total
        k += count * (top + math.log(total))
        slope += count * mean
        curvature += count * float(weight @ (losses - mean) ** 2) / total
    return k, slope, curvature
