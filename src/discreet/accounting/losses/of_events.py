"""Which privacy loss an event has: for each direction, one that is never better than the truth and one never worse.

The two differ only where an event says less than a whole distribution (an L2 bound on Laplace noise, a bounded range).
What has no theorem is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from discreet.accounting.losses import atoms
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.closed import ClosedAtoms, ClosedLaplace, ClosedLoss
from discreet.accounting.losses.collapse import ACCOUNTANT, Way
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift, LaplaceShift
from discreet.accounting.losses.symmetric import MirroredLoss, mirrored
from discreet.accounting.methods.grid.discretize import Loss
from discreet.accounting.refusal import unknown
from discreet.events import (
    Claimed,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    L2Laplace,
    Laplace,
    NoisyMax,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SparseVector,
)
from discreet.neighbors import REPLACE_ONE, Relation

# More atoms than this are not summed one by one: the noise is compared with its continuous limit.
_MOST_ATOMS = 200_000


@dataclass(frozen=True, eq=False)
class Losses:
    """A composition's losses in one direction, from one side.

    `mu_squared` is that of all Gaussians together; `concentrated` is a ρ of which only zCDP is known (upper side only);
    `shift` and `inflation` say how far the losses were moved and the masses scaled in replacing an event by a near one;
    `exact` says that the view from the other side is the same.
    """

    mu_squared: float = 0.0
    sampled: tuple[tuple[float, float, int], ...] = ()
    others: tuple[tuple[Loss, int], ...] = ()
    concentrated: float = 0.0
    shift: float = 0.0
    inflation: float = 0.0
    exact: bool = True

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.mu_squared + other.mu_squared,
            self.sampled + other.sampled,
            self.others + other.others,
            self.concentrated + other.concentrated,
            self.shift + other.shift,
            self.inflation + other.inflation,
            self.exact and other.exact,
        )

    def times(self, count: int) -> Losses:
        return Losses(
            self.mu_squared * count,
            tuple((rate, mu, times * count) for rate, mu, times in self.sampled),
            tuple((loss, times * count) for loss, times in self.others),
            self.concentrated * count,
            self.shift * count,
            self.inflation * count,
            self.exact,
        )


@dataclass(frozen=True)
class View:
    """From where a loss is looked at. `variant` chooses among several bounds for events that have several."""

    relation: Relation
    adding: bool
    upper: bool
    variant: int = 0


def closed_form(loss: Loss) -> ClosedLoss | None:
    """The same loss for a Fourier inversion, where its moments have a formula."""
    if isinstance(loss, AtomLoss) and 0 < len(loss.losses) <= 4096:
        return ClosedAtoms(loss.losses, loss.p)
    if isinstance(loss, ContinuousLoss) and isinstance(loss.shift, LaplaceShift) and loss.rate >= 1:
        return ClosedLaplace(loss.shift.epsilon)
    return None


def losses(way: Way, view: View) -> Losses:
    """The losses of a collapsed event."""
    total = [_whole(leaf, view).times(count) for leaf, count in way]
    return Losses(
        math.fsum(part.mu_squared for part in total),
        tuple(term for part in total for term in part.sampled),
        tuple(term for part in total for term in part.others),
        math.fsum(part.concentrated for part in total),
        math.fsum(part.shift for part in total),
        math.fsum(part.inflation for part in total),
        all(part.exact for part in total) and all(_is_exact(leaf) for leaf, _ in way),
    )


def _is_exact(leaf: Event) -> bool:
    """Whether a leaf's loss is known as a whole distribution, the same from above and from below."""
    match leaf:
        case L2Laplace(shift=None) | Exponential() | NoisyMax() | SparseVector():
            return False
        case SampledWithoutReplacement() | Composed() | Repeated():
            return False
        case DiscreteGaussian(sensitivity_squared, _, coordinates):
            return coordinates == 1 or sensitivity_squared == 1
        case PoissonSampled(_, inner):
            return _is_exact(inner) and not (isinstance(inner, L2Laplace) and len(inner.shift or ()) != 1)
        case _:
            return True


def variants(way: Way, *, upper: bool) -> int:
    """How many bounds there are to choose from: the least of the upper ones holds, and the greatest of the lower."""
    inside = [part for leaf, _ in way for part in leaf.walk()]
    if any(isinstance(part, Exponential) for part in inside):
        return 2 if upper else 4
    if any(isinstance(part, L2Laplace) and part.shift is None for part in inside):
        return 2 if upper else 3
    return 1


def _one(loss: Loss) -> Losses:
    return Losses(others=((loss, 1),))


def _whole(leaf: Event, view: View) -> Losses:
    """The losses of one leaf on the whole data."""
    match leaf:
        case Gaussian(multiplier):
            return Losses(mu_squared=multiplier**-2)
        case Laplace(multiplier):
            return _one(ContinuousLoss(LaplaceShift(1 / multiplier)))
        case L2Laplace():
            return _l2_laplace(leaf, view)
        case DiscreteGaussian(sensitivity_squared, variance, coordinates):
            if coordinates > 1 and sensitivity_squared > 1 and view.upper:
                # Canonne, Kamath & Steinke 2020: ρ = Δ₂²/2σ² in any number of coordinates (ρ adds up over them).
                return Losses(concentrated=float(Fraction(sensitivity_squared) / variance) / 2)
            near = _near_gaussian(leaf, view)
            return near if near is not None else _one(_atoms_of(leaf, view))
        case DiscreteLaplace(sensitivity, _) if sensitivity > _MOST_ATOMS:
            return _near_laplace(leaf, view)
        case Exponential(epsilon) if view.upper and view.variant == 1:
            # ε-bounded range is ε²/8-zCDP (Cesar & Rogers 2021, Lemma 3.4; Dong, Durfee & Rogers 2020).
            return Losses(concentrated=float(epsilon) ** 2 / 8)
        case PoissonSampled():
            return _poisson(leaf, view)
        case SampledWithoutReplacement():
            return _without_replacement(leaf, view)
        case _:
            return _one(_atoms_of(leaf, view))


def _atoms_of(leaf: Event, view: View) -> AtomLoss:
    """A leaf whose loss has finitely many values."""
    match leaf:
        case DiscreteGaussian(sensitivity_squared, variance, _):
            return atoms.discrete_gaussian(math.isqrt(sensitivity_squared), variance)
        case DiscreteLaplace(sensitivity, scale):
            return atoms.discrete_laplace(sensitivity, scale)
        case RandomizedResponse(epsilon, categories):
            return atoms.randomized_response(float(epsilon), categories)
        case NoisyMax(epsilon):
            # From below: two candidates, of which one is ahead by Δ, and then the other one. The one behind wins with
            # probability e^{−ε/2}/2, which is a binary report.
            behind = 0.5 * math.exp(-float(epsilon) / 2)
            return atoms.randomized_response(float(epsilon) if view.upper else math.log1p(-behind) - math.log(behind))
        case SparseVector(epsilon, _):
            return atoms.randomized_response(float(epsilon) if view.upper else 0.0)
        case Exponential(epsilon):
            if view.upper:
                return atoms.randomized_response(float(epsilon))
            # Two candidates whose scores move against each other: any split of the range ε can happen.
            top = float(epsilon) * (0.5, 0.25, 0.75, 0.95)[view.variant % 4]
            return atoms.two_points(top - float(epsilon), top)
        case Claimed(epsilon, delta):
            return atoms.claimed(float(epsilon), float(delta))
        case NonPrivate():
            return atoms.nothing_hidden()
        case _:
            raise unknown(leaf, ACCOUNTANT)


def _l2_laplace(leaf: L2Laplace, view: View) -> Losses:
    """Laplace noise under an L2 bound (arXiv 2408.07021).

    A known shift is a product of Laplaces. Else each coordinate is aᵢ-DP, so aᵢ²/2-zCDP (Bun & Steinke 2016,
    Proposition 1.4), which adds up to ρ = Δ₂²/2λ²; or the pure Δ₁/λ; and from below, n equal coordinates of Δ₂/√n.
    """
    if leaf.shift is not None:
        total = Losses()
        for part in leaf.shift:
            total += _one(ContinuousLoss(LaplaceShift(float(part))))
        return total
    if view.upper:
        if view.variant == 1 and leaf.l1_noise_multiplier is not None:
            return _one(atoms.randomized_response(1 / leaf.l1_noise_multiplier))
        return Losses(concentrated=leaf.noise_multiplier**-2 / 2)
    coordinates = (1, 9, 64)[view.variant % 3]
    if leaf.l1_noise_multiplier is not None:
        most = (leaf.noise_multiplier / leaf.l1_noise_multiplier) ** 2 * (1 - 1e-12)
        coordinates = max(1, min(coordinates, math.floor(most)))
    epsilon = 1 / (leaf.noise_multiplier * math.sqrt(coordinates))
    return _one(ContinuousLoss(LaplaceShift(epsilon))).times(coordinates)


def _near_gaussian(leaf: DiscreteGaussian, view: View) -> Losses | None:
    """A discrete Gaussian too wide to sum, as a Gaussian rounded to integers (docs/proofs/pld-discretization.md)."""
    variance, shift = float(leaf.variance), math.isqrt(leaf.sensitivity_squared)
    if math.sqrt(variance * 1400) + shift < _MOST_ATOMS / 2:
        return None
    mu = shift / math.sqrt(variance)
    ratio = 1.05 * ((37.5 + mu) ** 2 + 1) / 24 / variance  # bounds |discrete/rounded − 1| where P exceeds 1e-300
    if ratio > 0.3:
        raise unknown(leaf, ACCOUNTANT, "its noise is far smaller than its sensitivity: choose more noise")
    moved = 2.1 * ratio + (0.0 if view.upper else shift / variance)
    return Losses(mu_squared=mu * mu, shift=moved, inflation=ratio + 1e-300, exact=False)


def _near_laplace(leaf: DiscreteLaplace, view: View) -> Losses:
    """A discrete Laplace too wide to sum, as a Laplace rounded to integers."""
    scale = float(leaf.scale)
    ratio = 0.3 / scale + 0.3 / scale**2
    if ratio > 0.05:
        raise unknown(leaf, ACCOUNTANT, "its ε is above 30000: choose a larger scale")
    moved = 2.1 * ratio + (0.0 if view.upper else 2 / scale)
    epsilon = float(leaf.sensitivity / leaf.scale)
    return replace(_one(ContinuousLoss(LaplaceShift(epsilon))), shift=moved, inflation=ratio, exact=False)


def _poisson(event: PoissonSampled, view: View) -> Losses:
    """A leaf on a Poisson sample (Zhu, Dong & Wang 2022, Theorem 11: the pair for adding and that for removing)."""
    if view.relation is REPLACE_ONE:
        why = "a Poisson sample has no known dominating pair under replace-one; use ADD_REMOVE or a fixed-size sample"
        raise unknown(event, ACCOUNTANT, why)
    return _mixed(event, event.event, float(event.rate), view)


def _mixed(event: Event, leaf: Event, rate: float, view: View) -> Losses:
    """`leaf` within a mixture of rate `rate`, in the view's direction."""
    match leaf:
        case Gaussian(multiplier):
            return Losses(sampled=((rate, 1 / multiplier, 1),))
        case Laplace(multiplier):
            return _one(ContinuousLoss(LaplaceShift(1 / multiplier), rate, view.adding))
        case DiscreteGaussian(sensitivity_squared, _, coordinates) if coordinates == 1 or sensitivity_squared == 1:
            near = _near_gaussian(leaf, view)
            if near is not None:
                return replace(near, mu_squared=0.0, sampled=((rate, math.sqrt(near.mu_squared), 1),))
            return _one(_direction(_atoms_of(leaf, view).sampled(rate), view))
        case DiscreteLaplace(sensitivity, _) if sensitivity > _MOST_ATOMS:
            near = _near_laplace(leaf, view)
            shift = LaplaceShift(float(leaf.sensitivity / leaf.scale))
            return replace(near, others=((ContinuousLoss(shift, rate, view.adding), 1),))
        case L2Laplace(shift=(only,)):
            return _one(ContinuousLoss(LaplaceShift(float(only)), rate, view.adding))
        case L2Laplace() | Composed() | Repeated() | DiscreteGaussian():
            return _composite(event, leaf, rate, view)
        case PoissonSampled() | SampledWithoutReplacement():
            raise unknown(event, ACCOUNTANT, "no theorem here covers a sample of several samples")
        case _:
            return _one(_direction(_atoms_of(leaf, view).sampled(rate), view))


def _direction(loss: AtomLoss, view: View) -> AtomLoss:
    return loss.reversed() if view.adding else loss


def _composite(event: Event, leaf: Event, rate: float, view: View) -> Losses:
    """Several releases on one sample: as the pure DP of them all from above, as one of them alone from below."""
    epsilon = _pure(leaf)
    if epsilon is None:
        raise unknown(event, ACCOUNTANT, "the releases on one sample have no dominating pair that is known here")
    if view.upper:
        return _one(_direction(atoms.randomized_response(epsilon).sampled(rate), view))
    if isinstance(leaf, Composed | Repeated):
        return _mixed(event, _simplest(leaf), rate, view)
    if isinstance(leaf, L2Laplace):
        largest = max(leaf.shift) if leaf.shift else 1 / leaf.noise_multiplier
        return _one(ContinuousLoss(LaplaceShift(float(largest)), rate, view.adding))
    raise unknown(event, ACCOUNTANT)


def _simplest(leaf: Event) -> Event:
    while isinstance(leaf, Composed | Repeated):
        leaf = leaf.event if isinstance(leaf, Repeated) else max(leaf.events, key=lambda part: _pure(part) or 0.0)
    return leaf


def _pure(leaf: Event) -> float | None:
    """The pure ε of a leaf or a composition of leaves; None where it has none."""
    match leaf:
        case Laplace(multiplier):
            return 1 / multiplier
        case DiscreteLaplace(sensitivity, scale):
            return float(sensitivity / scale)
        case Exponential(epsilon) | NoisyMax(epsilon) | RandomizedResponse(epsilon, _) | SparseVector(epsilon, _):
            return float(epsilon)
        case Claimed(epsilon, 0.0):
            return float(epsilon)
        case L2Laplace():
            if leaf.shift is not None:
                return math.fsum(leaf.shift)
            return None if leaf.l1_noise_multiplier is None else 1 / leaf.l1_noise_multiplier
        case Repeated(inner, count):
            own = _pure(inner)
            return None if own is None else own * count
        case Composed(parts):
            each = [_pure(part) for part in parts]
            return None if None in each else math.fsum(epsilon for epsilon in each if epsilon is not None)
        case _:
            return None


def _without_replacement(event: SampledWithoutReplacement, view: View) -> Losses:
    """A subset of fixed size (Zhu, Dong & Wang 2022, Theorem 11; Balle, Barthe & Gaboardi 2018, Theorem 11).

    From below: all units alike but for the one that is replaced, which moves the release when it is in the subset. Then
    the outputs are ((1−γ)Q + γP, Q), or the same in the other order.
    """
    if view.relation is not REPLACE_ONE:
        raise unknown(event, ACCOUNTANT, "a subset of fixed size is priced under REPLACE_ONE only")
    rate = event.size / event.population
    within = replace(view, adding=view.adding if not view.upper else False)
    found = _mixed(event, event.event, rate, within)
    if not view.upper:
        return found
    joined: list[tuple[Loss, int]] = []
    for sampled_rate, mu, count in found.sampled:
        joined.append((MirroredLoss(ContinuousLoss(GaussianShift(mu), sampled_rate)), count))
    for loss, count in found.others:
        if isinstance(loss, AtomLoss):
            joined.append((mirrored(loss), count))
        elif isinstance(loss, ContinuousLoss):
            joined.append((MirroredLoss(loss), count))
        else:
            raise unknown(event, ACCOUNTANT)
    return replace(found, sampled=(), others=tuple(joined))


def as_grid_losses(found: Losses, *, adding: bool) -> list[tuple[Loss, int]]:
    """Every part as a loss that can be put on a grid."""
    parts: list[tuple[Loss, int]] = list(found.others)
    if found.mu_squared > 0:
        parts.append((ContinuousLoss(GaussianShift(math.sqrt(found.mu_squared))), 1))
    parts += [(ContinuousLoss(GaussianShift(mu), rate, adding), count) for rate, mu, count in found.sampled]
    return parts


def nothing_lost(found: Losses) -> bool:
    """Whether the composition tells nothing at all."""
    return not found.sampled and not found.others and found.mu_squared == 0 and found.concentrated == 0


def infinite_mass(found: Losses) -> tuple[float, float]:
    """P that some loss is infinite, from below and from above."""
    if any(loss.infinite >= 1.0 for loss, _ in found.others):
        return 1.0, 1.0
    # All terms have one sign, so that the sum, and its expm1, are good to a few units in the last place.
    mass = -math.expm1(math.fsum(count * math.log1p(-loss.infinite) for loss, count in found.others))
    return mass * (1 - 2.0**-48), min(1.0, mass * (1 + 2.0**-48))


def largest_loss(found: Losses, *, adding: bool) -> float:
    """A bound on every finite loss of the composition; inf where there is none."""
    if found.mu_squared > 0 or found.concentrated > 0 or (found.sampled and not adding):
        return math.inf
    total = [-count * math.log1p(-rate) for rate, _, count in found.sampled]
    for loss, count in found.others:
        if loss.unbounded:
            return math.inf
        total.append(count * loss.support(1e-300)[1])
    return math.fsum(total) * (1 + 1e-12)
