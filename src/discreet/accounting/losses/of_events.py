"""Which privacy loss an event has, in each direction: one that is no better than the truth, and one that is no worse.

The two differ only where an event does not fix a whole distribution (an L2 bound on Laplace noise, a bounded range).
An event without a theorem is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from discreet.accounting.forms.gdp import gaussian_multiplier
from discreet.accounting.losses import atoms, mixtures, ranges, shuffles, subsets, wide
from discreet.accounting.losses.atoms import AtomLoss, DiscreteGaussianLoss, DiscreteLaplaceLoss
from discreet.accounting.losses.collapse import ACCOUNTANT, Way
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift, LaplaceShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.symmetric import MirroredLoss, mirrored, triangle
from discreet.accounting.prices.price import is_priced, price_of
from discreet.accounting.refusal import unknown
from discreet.accounting.shuffle import clones
from discreet.events import (
    Claimed,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    Group,
    L2Laplace,
    Laplace,
    NoisyMax,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    Shuffled,
    SparseVector,
)
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.numeric.rounding import exact, float_down, float_up

# Lower bounds try a few members of a family and keep the best. Any member is valid; these cover the usual shapes.
_COORDINATES = (1, 9, 64)

# Relative round-off of the probability that one report falls into the set that an attack counts.
_REPORT_ERROR = 1e-11
# The largest group on a Poisson sample: each way to split it into added and removed units is priced by itself.
_MOST_PEOPLE = 32

# Round-off of a squared ratio of two multipliers, before its integer part is taken.
_RATIO_ERROR = 1e-12


@dataclass(frozen=True)
class View:
    """Which bound on a loss is wanted.

    Attributes:
        relation: which datasets count as neighbors.
        adding: the direction: a unit is added, instead of removed.
        upper: from above (no better than the truth), instead of from below.
        opposite: how many units of a group change in the other direction than the rest. `splits` gives the numbers that
            must all be priced; it has no default, so that no route prices one of them alone.
        variant: which bound, for events that have several.
    """

    relation: Relation
    adding: bool
    upper: bool
    opposite: int
    variant: int = 0


def losses(way: Way, view: View) -> Losses:
    """The losses of a collapsed event."""
    steered = subsets.steered_leaf(way) if view.upper and view.variant == 1 and view.relation is REPLACE_ONE else None
    others = [
        (leaf, count) for leaf, count in way if not isinstance(leaf, ranges.BoundedRangeEvent) and leaf != steered
    ]
    summands = [
        ranges.selections(way, upper=view.upper, variant=view.variant),
        *(_unsampled(leaf, view).times(count) for leaf, count in others),
    ]
    if steered is not None:
        summands.append(subsets.steered(*subsets.rate_and_mu(steered), dict(way)[steered]))
    return Losses(
        math.fsum(summand.mu_squared for summand in summands),
        tuple(term for summand in summands for term in summand.sampled),
        tuple(term for summand in summands for term in summand.others),
        math.fsum(summand.concentrated for summand in summands),
        math.fsum(summand.shift for summand in summands),
        math.fsum(summand.inflation for summand in summands),
        all(summand.exact for summand in summands) and all(_is_exact(leaf) for leaf, _ in way),
    )


def _is_exact(leaf: Event) -> bool:
    """Whether a leaf's loss is known as a whole distribution, the same from above and from below."""
    match leaf:
        case L2Laplace(shift=None) | Exponential() | NoisyMax() | SparseVector():
            return False
        case SampledWithoutReplacement() | Shuffled() | Composed() | Repeated():
            return False
        case DiscreteGaussian(sensitivity_squared, _, coordinates):
            return coordinates == 1 or sensitivity_squared == 1
        case Claimed(_, delta):
            return float_down(exact(delta)) >= delta  # otherwise its δ is rounded to either side
        case _ if is_priced(leaf):
            return price_of(leaf, ACCOUNTANT).exact(leaf)
        case PoissonSampled(_, inner):
            return _is_exact(inner) and not (isinstance(inner, L2Laplace) and len(inner.shift or ()) != 1)
        case _:
            return True


def variants(way: Way, *, upper: bool) -> int:
    """How many bounds there are to choose from: the least of the upper ones holds, and the greatest of the lower."""
    number = ranges.variants(way, upper=upper)
    if any(isinstance(nested, L2Laplace) and nested.shift is None for leaf, _ in way for nested in leaf.walk()):
        number = max(number, 2 if upper else len(_COORDINATES))
    if upper:
        return number if subsets.steered_leaf(way) is None else max(number, 2)
    return max(number, 2) if any(subsets.triangle_gains(leaf, count) for leaf, count in way) else number


def directions(way: Way) -> tuple[bool, ...]:
    """The values of `adding` that must be priced: both, only where sampling makes removing and adding a unit differ."""
    differ = any(len(leaf.parts()) > 0 and not isinstance(leaf, Shuffled) for leaf, _ in way)
    return (False, True) if differ else (False,)


def splits(way: Way) -> range:
    """How many units of a group may change in the other direction: some may be added while others are removed.

    The same units change in every part of a composition, so each number is priced by itself, and the worst one counts.
    """
    people = {leaf.people for leaf, _ in way if isinstance(leaf, Group)}
    if len(people) > 1:
        sizes = max((leaf for leaf, _ in way if isinstance(leaf, Group)), key=lambda leaf: leaf.people)
        raise unknown(sizes, ACCOUNTANT, "groups of different sizes on Poisson samples are not composed")
    return range(max(people, default=1) // 2 + 1)


def _unsampled(leaf: Event, view: View) -> Losses:
    """The losses of one leaf that is not inside of a sample."""
    match leaf:
        case Gaussian(multiplier):
            return Losses(mu_squared=float(multiplier) ** -2)
        case Laplace(multiplier):
            return Losses.of(ContinuousLoss(LaplaceShift(1 / float(multiplier))))
        case L2Laplace():
            return _l2_laplace(leaf, view)
        case DiscreteGaussian(sensitivity_squared, variance, coordinates):
            near = wide.gaussian(leaf, upper=view.upper)
            if near is not None:
                return near
            if coordinates > 1 and sensitivity_squared > 1 and view.upper:
                # Canonne, Kamath & Steinke 2020: ρ = Δ₂²/2σ² in any number of coordinates (ρ adds up over them).
                return Losses(concentrated=float(Fraction(sensitivity_squared) / variance) / 2)
            return Losses.of(DiscreteGaussianLoss(math.isqrt(sensitivity_squared), float(variance)))
        case DiscreteLaplace(sensitivity, scale):
            if sensitivity > wide.MOST_ATOMS:
                return wide.laplace(leaf, upper=view.upper)
            return Losses.of(DiscreteLaplaceLoss(sensitivity, float(scale)))
        case PoissonSampled():
            return _poisson(leaf, view)
        case Group():
            return _group(leaf, view)
        case SampledWithoutReplacement():
            return _without_replacement(leaf, view)
        case Shuffled():
            return shuffled(leaf, view)
        case _ if is_priced(leaf):
            return price_of(leaf, ACCOUNTANT).losses(leaf, view)
        case _:
            return Losses.of(_atoms_of(leaf, view))


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
            # From below: two candidates. One leads by Δ on one dataset, the other on its neighbor. The one
            # behind wins with probability e^{−ε/2}/2, so the outcome is a binary report.
            log_behind = -float(epsilon) / 2 - math.log(2)
            attained = math.log1p(-math.exp(log_behind)) - log_behind
            return atoms.randomized_response(float(epsilon) if view.upper else attained)
        case SparseVector(epsilon, _):
            return atoms.randomized_response(float(epsilon) if view.upper else 0.0)
        case Exponential(epsilon):
            # Two candidates whose scores move against each other: any split of the range ε can happen.
            return ranges.single(float(epsilon)) if view.upper else ranges.fixed(float(epsilon), view.variant)
        case Claimed(epsilon, delta):
            held = exact(delta)
            return atoms.claimed(float(epsilon), min(1.0, float_up(held)) if view.upper else float_down(held))
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
        for distance in leaf.shift:
            total += Losses.of(ContinuousLoss(LaplaceShift(float(distance))))
        return total
    if view.upper:
        if view.variant == 1 and leaf.l1_noise_multiplier is not None:
            return Losses.of(atoms.randomized_response(1 / float(leaf.l1_noise_multiplier)))
        return Losses(concentrated=float(leaf.noise_multiplier) ** -2 / 2)
    coordinates = _COORDINATES[view.variant % len(_COORDINATES)]
    if leaf.l1_noise_multiplier is not None:
        most = (leaf.noise_multiplier / leaf.l1_noise_multiplier) ** 2 * (1 - _RATIO_ERROR)
        coordinates = max(1, min(coordinates, math.floor(most)))
    epsilon = 1 / (float(leaf.noise_multiplier) * math.sqrt(coordinates))
    return Losses.of(ContinuousLoss(LaplaceShift(epsilon))).times(coordinates)


def _poisson(event: PoissonSampled, view: View) -> Losses:
    """A leaf on a Poisson sample (Zhu, Dong & Wang 2022, Theorem 11: the pair for adding and that for removing)."""
    if view.relation is REPLACE_ONE:
        return _replaced(event, view)
    return _mixed(event, event.event, float(event.rate), view)


def _replaced(event: PoissonSampled, view: View) -> Losses:
    """A replaced unit is in both samples or in neither. To reveal which reveals no less: a loss with probability q.

    The event says how far a replacement moves a sample's value, but not how far a unit that is missing does, so samples
    that show whether the unit is in them are possible, and attain this loss.
    """
    inner = _unsampled(event.event, view)
    inner_losses: list[tuple[PrivacyLoss, int]] = list(inner.others)
    if inner.mu_squared > 0:
        inner_losses.append((ContinuousLoss(GaussianShift(math.sqrt(inner.mu_squared))), 1))
    if len(inner_losses) != 1 or inner_losses[0][1] != 1 or inner.sampled or inner.concentrated > 0 or inner.shift > 0:
        raise unknown(event, ACCOUNTANT, "no dominating pair is known for these releases on one sample")
    return Losses.of(mixtures.RareLoss(inner_losses[0][0], float(event.rate)))


def _group(event: Group, view: View) -> Losses:
    """A group on a Poisson sample, with Gaussian noise (docs/proofs/gaussian-mixtures.md)."""
    inner, people = event.event, event.people
    multiplier = gaussian_multiplier(inner.event, view.relation) if isinstance(inner, PoissonSampled) else None
    if not isinstance(inner, PoissonSampled) or multiplier is None or view.relation is REPLACE_ONE:
        raise unknown(event, ACCOUNTANT)
    if people > _MOST_PEOPLE:
        raise unknown(event, ACCOUNTANT, f"groups on Poisson samples are priced for at most {_MOST_PEOPLE} people")
    first, second = people - view.opposite, view.opposite
    removed, added = (second, first) if view.adding else (first, second)
    return Losses.of(mixtures.group_loss(float(inner.rate), 1 / multiplier, removed, added))


def _mixed(event: Event, leaf: Event, rate: float, view: View) -> Losses:
    """`leaf` within a mixture of rate `rate`, in the view's direction."""
    match leaf:
        case Gaussian(multiplier):
            return Losses(sampled=((rate, 1 / float(multiplier), 1),))
        case Laplace(multiplier):
            return Losses.of(ContinuousLoss(LaplaceShift(1 / float(multiplier)), rate, view.adding))
        case DiscreteGaussian(sensitivity_squared, _, coordinates):
            near = wide.gaussian(leaf, upper=view.upper)
            if near is not None:
                return replace(near, mu_squared=0.0, sampled=((rate, math.sqrt(near.mu_squared), 1),))
            if coordinates > 1 and sensitivity_squared > 1 and view.upper:
                raise unknown(
                    event, ACCOUNTANT, "no dominating pair is known for several coordinates with this little noise"
                )
            return Losses.of(_direction(_atoms_of(leaf, view).sampled(rate), view))
        case DiscreteLaplace(sensitivity, _) if sensitivity > wide.MOST_ATOMS:
            near = wide.laplace(leaf, upper=view.upper)
            shift = LaplaceShift(float(leaf.sensitivity / leaf.scale))
            return replace(near, others=((ContinuousLoss(shift, rate, view.adding), 1),))
        case L2Laplace(shift=(only,)):
            return Losses.of(ContinuousLoss(LaplaceShift(float(only)), rate, view.adding))
        case L2Laplace() | Composed() | Repeated():
            return _composite(event, leaf, rate, view)
        case PoissonSampled() | SampledWithoutReplacement():
            raise unknown(event, ACCOUNTANT, "no theorem here covers a sample of several samples")
        case _:
            return Losses.of(_direction(_atoms_of(leaf, view).sampled(rate), view))


def _direction(loss: AtomLoss, view: View) -> AtomLoss:
    return loss.reversed() if view.adding else loss


def _composite(event: Event, leaf: Event, rate: float, view: View) -> Losses:
    """Several releases on one sample: bounded by their total pure ε from above, by one of them alone from below."""
    epsilon = _pure(leaf)
    if epsilon is None:
        raise unknown(event, ACCOUNTANT, "no dominating pair is known for these releases on one sample")
    if view.upper:
        return Losses.of(_direction(atoms.randomized_response(epsilon).sampled(rate), view))
    if isinstance(leaf, Composed | Repeated):
        return _mixed(event, _simplest(leaf), rate, view)
    if isinstance(leaf, L2Laplace):
        largest = max(leaf.shift) if leaf.shift else 1 / float(leaf.noise_multiplier)
        return Losses.of(ContinuousLoss(LaplaceShift(float(largest)), rate, view.adding))
    raise unknown(event, ACCOUNTANT)


def _simplest(leaf: Event) -> Event:
    while isinstance(leaf, Composed | Repeated):
        leaf = leaf.event if isinstance(leaf, Repeated) else max(leaf.events, key=lambda event: _pure(event) or 0.0)
    return leaf


def _pure(leaf: Event) -> float | None:
    """The pure ε of a leaf or a composition of leaves; None where it has none."""
    match leaf:
        case Laplace(multiplier):
            return 1 / float(multiplier)
        case DiscreteLaplace(sensitivity, scale):
            return float(sensitivity / scale)
        case Exponential(epsilon) | NoisyMax(epsilon) | RandomizedResponse(epsilon, _) | SparseVector(epsilon, _):
            return float(epsilon)
        case Claimed(epsilon, 0.0):
            return float(epsilon)
        case L2Laplace():
            if leaf.shift is not None:
                return math.fsum(leaf.shift)
            return None if leaf.l1_noise_multiplier is None else 1 / float(leaf.l1_noise_multiplier)
        case Repeated(inner, count):
            each = _pure(inner)
            return None if each is None else each * count
        case Composed(parts):
            losses = [_pure(part) for part in parts]
            return None if None in losses else math.fsum(epsilon for epsilon in losses if epsilon is not None)
        case _:
            return None


def shuffled(event: Shuffled, view: View) -> Losses:
    """Shuffled reports: their clones from above, and the best known attack on the report's own mechanism from below."""
    hidden = clones(event, view.relation)
    if hidden.loss <= 0:
        return Losses()
    if view.upper:
        return Losses.of(shuffles.above(hidden))
    match event.event:
        case RandomizedResponse(epsilon, categories) if categories > 2:
            return Losses.of(shuffles.histogram(event.reports, float_down(epsilon), categories))
        case Claimed(epsilon, _):  # nothing is known about the reports, so they may be randomized response
            return Losses.of(shuffles.histogram(event.reports, float_down(exact(epsilon)), 3))
        case Laplace() | DiscreteLaplace() | RandomizedResponse() | NoisyMax() | Exponential():
            ((report, _),) = _unsampled(event.event, view).others
        case _:
            return Losses()
    if isinstance(report, ContinuousLoss):
        seen, otherwise = report.shift.above()
    else:
        losses, p, q = report.atoms()
        seen, otherwise = float(np.sum(p[losses > 0])), float(np.sum(q[losses > 0]))
    seen, otherwise = seen * (1 - _REPORT_ERROR), otherwise * (1 + _REPORT_ERROR)
    return Losses.of(shuffles.counting(event.reports, seen, otherwise)) if seen > otherwise else Losses()


def _without_replacement(event: SampledWithoutReplacement, view: View) -> Losses:
    """A subset of fixed size (Zhu, Dong & Wang 2022, Theorem 11; Balle, Barthe & Gaboardi 2018, Theorem 11).

    From below: all units are alike except the one that is replaced, which moves the release when it is in the subset.
    Then the outputs are ((1−γ)Q + γP, Q), or the same in the other order; or, with Gaussian noise, also its replacement
    moves the release.
    """
    if view.relation is not REPLACE_ONE:
        raise unknown(event, ACCOUNTANT, "a subset of fixed size is priced under REPLACE_ONE only")
    rate = event.size / event.population
    if not view.upper and view.variant % 2 == 1 and isinstance(event.event, Gaussian):
        return Losses.of(triangle(rate, 1 / float(event.event.noise_multiplier)))
    within = replace(view, adding=view.adding if not view.upper else False)
    mixed = _mixed(event, event.event, rate, within)
    if not view.upper:
        return mixed
    joined: list[tuple[PrivacyLoss, int]] = []
    for sampled_rate, mu, count in mixed.sampled:
        joined.append((MirroredLoss(ContinuousLoss(GaussianShift(mu), sampled_rate)), count))
    for loss, count in mixed.others:
        if isinstance(loss, AtomLoss):
            joined.append((mirrored(loss), count))
        elif isinstance(loss, ContinuousLoss):
            joined.append((MirroredLoss(loss), count))
        else:
            raise unknown(event, ACCOUNTANT)
    return replace(mixed, sampled=(), others=tuple(joined))
