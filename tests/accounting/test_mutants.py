"""Every price of a special event is held by a number that does not come from its code, and a mutant shows that it is.

Each case has a check, which compares prices with enumerations, with sums in 60 digits, or with published numbers, and a
mutant: the price with one mistake. The check holds for the price and fails for the mutant.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from discreet import accounting
from discreet import events as ev
from discreet.accounting import correlation, exceedance, pate, wishes
from discreet.accounting.losses import atoms, mixtures, ranges, subsets
from discreet.accounting.prices import (
    aggregation,
    allocation,
    correlated,
    local,
    objectives,
    selection,
    truncated,
    votes,
)
from discreet.accounting.prices import trials as laws
from discreet.neighbors import REPLACE_ONE
from tests.accounting import truth
from tests.accounting.test_aggregation import skellam_masses, summed_masses, true_delta, true_divergence
from tests.accounting.test_correlated import toeplitz, tree, worst
from tests.accounting.test_local_report import unary
from tests.accounting.test_mixtures import group_delta
from tests.accounting.test_ranges import played, two_adaptive_draws
from tests.accounting.test_subsets import on_a_line
from tests.accounting.test_votes import winners

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], bool]
CASES: list[tuple[str, Check, Patch]] = []


def case(name: str, patch: Patch) -> Callable[[Check], Check]:
    """Register a check together with a mutant that it must catch."""

    def register(check: Check) -> Check:
        CASES.append((name, check, patch))
        return check

    return register


def attribute(owner: object, name: str, value: object) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def changed(owner: object, name: str, mutant: Callable[[Any], object]) -> Patch:
    """Replace a function by a mutant that is made from it."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, mutant(getattr(owner, name)))


def forget() -> None:
    """Clear what accounting remembers: a mutant must not meet, nor leave behind, numbers of another code."""
    for name, module in list(sys.modules.items()):
        if name.startswith("discreet.accounting"):
            for value in vars(module).values():
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()


@pytest.fixture
def forgetful() -> Iterator[None]:
    forget()
    yield
    forget()


def holds(event: ev.Event, at: float, true: mp.mpf, **relation: object) -> bool:
    found = accounting.delta(event, at, **relation)  # type: ignore[arg-type]
    return bool(found.lower <= true * (1 + mp.mpf(10) ** -12) and true <= found.upper * (1 + mp.mpf(10) ** -12))


# --- random allocation: reports on some of the batches, every outcome and every set of batches enumerated


def allocated_reports(steps: int, selected: int, at: float) -> mp.mpf:
    with mp.workdps(60):
        lie, growth = 1 / (1 + mp.e), mp.exp(mp.mpf(at))
        removing = adding = mp.mpf(0)
        for ones in range(steps + 1):
            outcome = [1] * ones + [-1] * (steps - ones)
            chance = mp.binomial(steps, ones) * lie**ones * (1 - lie) ** (steps - ones)
            sets = list(itertools.combinations(outcome, selected))
            ratio = mp.fsum(mp.exp(sum(chosen)) for chosen in sets) / len(sets)
            removing += chance * max(ratio - growth, 0)
            adding += chance * max(1 - growth * ratio, 0)
        return max(removing, adding)


def one_step_more(event: ev.RandomlyAllocated) -> Iterator[tuple[int, int]]:
    yield event.steps // event.selected + 1, event.selected


def one_batch(event: ev.RandomlyAllocated) -> Iterator[tuple[int, int]]:
    yield event.steps // event.selected, 1


@case("one batch: averaged over one step too many", attribute(allocation, "_blocks", one_step_more))
@case("two batches: one forgotten", attribute(allocation, "_blocks", one_batch))
def randomly_allocated() -> bool:
    report = ev.RandomizedResponse(Fraction(1))
    sizes = ((3, 1, 0.3), (4, 2, 0.3), (4, 2, 1.8))
    return all(holds(ev.RandomlyAllocated(t, k, report), at, allocated_reports(t, k, at)) for t, k, at in sizes)


@case("Rényi: averaged over one step too many", attribute(allocation, "_blocks", one_step_more))
def allocation_renyi() -> bool:
    # E[Z²] of an average over t steps is 1 + (e^{μ²} − 1)/t.
    with mp.workdps(60):
        true = mp.log1p(mp.expm1(mp.mpf(1) / 4) / 40)
        return accounting.rdp(ev.RandomlyAllocated(40, 1, ev.Gaussian(2.0)), (2.0,)).epsilons[0] >= true


# --- truncated Poisson batches: a dataset of three units, as a mixture of normals


def truncated_sums(values: list[int], rate: mp.mpf, largest: int) -> dict[int, mp.mpf]:
    weights: dict[int, mp.mpf] = {}
    for joined in itertools.product((False, True), repeat=len(values)):
        batch = [value for value, joins in zip(values, joined, strict=True) if joins]
        chance = rate ** len(batch) * (1 - rate) ** (len(values) - len(batch))
        choices = list(itertools.combinations(batch, min(largest, len(batch))))
        for kept in choices:
            weights[sum(kept)] = weights.get(sum(kept), mp.mpf(0)) + chance / len(choices)
    return weights


@case("truncated batches: nothing fails", attribute(truncated, "_failure", lambda event, relation: 0.0))
@case(
    "truncated batches: the overflow at one more",
    changed(truncated, "overflow_probability", lambda true: lambda n, q, most: true(n, q, most + 1)),
)
def truncated_batches() -> bool:
    rate, step = 0.6, ev.TruncatedPoissonSampled(0.6, 1, 3, ev.Gaussian(1.0))
    with mp.workdps(60):
        with_unit, without = (truncated_sums(values, mp.mpf(rate), 1) for values in ([1, -1, -1], [-1, -1]))
        tail = 3 * mp.mpf(rate) ** 2 * (1 - mp.mpf(rate)) + mp.mpf(rate) ** 3
        covered = truncated.overflow_probability(3, rate, 1) >= tail
        return covered and holds(step, 1.0, truth.normals_delta(with_unit, without, 1))


# --- correlated noise: every pattern of participations and every sign, then the normal law in 60 digits

FEWER = attribute(
    correlation, "most_participations", lambda steps, most, apart: max(1, min(most, -(-steps // apart)) - 1)
)


def gaussian_of(event: ev.Event, encoder: np.ndarray, participations: int, separation: int) -> bool:
    with mp.workdps(60):
        return holds(event, 0.7, truth.gaussian_delta(0.7, mp.mpf(worst(encoder, participations, separation)) / 3))


@case("banded noise: one participation forgotten", FEWER)
@case(
    "banded noise: σ² for σ",
    changed(
        correlated, "sensitivity", lambda true: lambda event: tuple(s / event.noise_multiplier for s in true(event))
    ),
)
def toeplitz_noise() -> bool:
    column = (1.0, 0.5, 0.25)
    return gaussian_of(ev.ToeplitzNoise(3.0, column, 8, 3, 2), toeplitz(column, 8), 3, 2)


@case(
    "square root: the coefficients of 1/(1 − x)^{1/4}",
    attribute(
        correlation, "square_root_coefficients", lambda n: np.cumprod([1.0, *(1 - 0.75 / k for k in range(1, n))])
    ),
)
def square_root_noise() -> bool:
    column = [float(mp.binomial(2 * j, j) / 4**j) for j in range(8)]
    return gaussian_of(ev.SquareRootNoise(3.0, 8, 8, 2, 3), toeplitz(column, 8), 2, 3)


@case(
    "buffers: one decay too early",
    attribute(correlation, "buffered_coefficients", lambda s, d, n: np.array([s[0] * d[0] ** j for j in range(n)])),
)
def buffered_noise() -> bool:
    column = [1.0, *(0.5 * 0.75 ** (j - 1) for j in range(1, 8))]
    return gaussian_of(ev.BufferedNoise(3.0, (0.5,), (0.75,), 8, 2, 3), toeplitz(column, 8), 2, 3)


@case("tree: one participation forgotten", FEWER)
@case("tree: leaves alone", attribute(correlation, "tree", lambda a, n, k, b: (math.sqrt(k), math.sqrt(k))))
def tree_noise() -> bool:
    return gaussian_of(ev.TreeNoise(3.0, 2, 8, 2, 1), tree(2, 8), 2, 1)


@case("groups: columns of norm 1", attribute(correlated, "_column_norm", lambda event, bands: (1.0, 1.0)))
@case(
    "groups: half of the participations",
    changed(correlated.CyclicPrice, "_steps", lambda true: lambda self, e, norm, k: true(self, e, norm, k // 2)),
)
def cyclic_groups() -> bool:
    # Two steps of one unit, which do not overlap: δ of the pair is the mean, over the first outcome, of a step's δ.
    column, rate, at = (1.0, 0.5), 0.3, 0.5
    event = ev.CyclicSampled(rate, 2, ev.ToeplitzNoise(1.0, column, 4, 2, 2))
    return holds(event, at, truth.two_sampled_gaussians(rate, math.sqrt(1.25), at))


# --- selections: bits of which 1 is better, and numbers of which the larger one is better


@case("selection: as many trials as one", attribute(selection, "_largest_line", lambda b, w: (np.zeros(1), np.ones(1))))
def selected_bits() -> bool:
    # The best of K ~ Poisson(2) bits is 0 with probability f(P(0)) − f(0).
    event = ev.SelectedFromRepeats(ev.RandomizedResponse(Fraction(1, 2)), ev.PoissonTrials(2))
    with mp.workdps(60):
        e, growth = mp.exp(mp.mpf(1) / 2), mp.exp(mp.mpf(3) / 10)
        often, seldom = (mp.exp(-2 * (1 - p)) - mp.exp(-2) for p in (e / (1 + e), 1 / (1 + e)))
        return accounting.delta(event, 0.3).upper >= often - growth * seldom


@case("selection of pure runs: no growth", attribute(laws, "pure_growth", lambda trials, epsilon: 0.0))
def selected_pure_runs() -> bool:
    # Geometric trials of reports: the best is 0 only if all are.
    with mp.workdps(60):
        stop, e = mp.mpf(0.1), mp.exp(mp.mpf(1))
        seldom, often = (stop * p / (1 - (1 - stop) * p) for p in (1 / (1 + e), e / (1 + e)))
        event = ev.SelectedFromRepeats(ev.RandomizedResponse(Fraction(1)), ev.NegativeBinomialTrials(1, 0.1))
        return accounting.pure(event).epsilon >= mp.log(often / seldom)


@case(
    "selection by Rényi: half of E[K]", changed(laws, "log_density", lambda true: lambda k, u: true(k, u) - math.log(2))
)
def selected_moments() -> bool:
    # One trial at most: the run with probability 1/4, and nothing otherwise, so E[Z^α] is 3/4 + e^{α(α−1)/2}/4.
    event = ev.SelectedFromRepeats(ev.Gaussian(1.0), ev.BinomialTrials(1, 0.25))
    with mp.workdps(60):
        attained = mp.log(mp.mpf(3) / 4 + mp.exp(mp.mpf(3)) / 4) / 2
        return accounting.rdp(event, (3.0,)).epsilons[0] >= attained


# --- votes of teachers: published divergences, and winners by quadrature


@case("votes: counts of sensitivity 1", attribute(votes, "_noise", lambda event: ev.Gaussian(event.noise)))
def gaussian_votes() -> bool:
    published = 8.0 / 40.0**2  # Papernot et al. 2018, Proposition 8: λ/σ²
    return accounting.rdp(ev.GaussianVotes(40.0), (8.0,)).epsilons[0] >= published * (1 - 1e-12)


@case("votes: half of 2/b", attribute(votes, "_noise", lambda event: ev.Laplace(event.noise)))
def laplace_votes() -> bool:
    return accounting.pure(ev.LaplaceVotes(20.0)).epsilon >= 0.1  # Papernot et al. 2017: 2/b


@case(
    "votes that agree: σ for σ√2",
    attribute(pate, "gaussian_log_q", lambda v, s: math.log(math.erfc((v[0] - v[1]) / s / math.sqrt(2)) / 2)),
)
def agreeing_votes() -> bool:
    here = winners((12, 10), 6.0)
    return float(here[1]) <= math.exp(pate.gaussian_log_q((12, 10), 6.0))


# --- local reports, sums of many parties, mechanisms that may fail


@case(
    "local report: half of ε", attribute(local, "randomized_response", lambda loss: atoms.randomized_response(loss / 2))
)
@case("local report by Rényi: w² for w", attribute(local, "convex", lambda a, w, m: math.log1p(w * w * math.expm1(m))))
def local_reports() -> bool:
    first, second = unary(0, 4, 1.0), unary(1, 4, 1.0)
    true = float(np.sum(np.maximum(first - math.exp(0.3) * second, 0.0)))
    moment = math.log(float(np.sum(first**3 / second**2))) / 2
    report = ev.LocalReport(Fraction(1), 0.5)
    charged = accounting.rdp(report, (3.0,), REPLACE_ONE).epsilons[0]
    return accounting.delta(report, 0.3, REPLACE_ONE).upper >= true * (1 - 1e-9) and charged >= moment * (1 - 1e-9)


@case(
    "sums: parties that left are counted",
    attribute(ev.DistributedDiscreteGaussian, "total_variance", property(lambda self: self.variance * self.parties)),
)
def sums_of_parties() -> bool:
    event = ev.DistributedDiscreteGaussian(1, Fraction(1, 2), 6, 3)
    with mp.workdps(60):
        masses = summed_masses(Fraction(1, 2), 3)
        priced = accounting.rdp(event, (2.0,)).epsilons[0] >= true_divergence(masses, 1, 2.0)
        return bool(priced and holds(event, 1.0, true_delta(masses, 1, 1.0)))


@case("sums: no distortion", attribute(aggregation, "_tau", lambda event: 0.0))
def distortion_of_sums() -> bool:
    with mp.workdps(60):
        masses = summed_masses(Fraction(1, 4), 2)
        gaps = [mp.log(masses[60 + k]) + mp.mpf(k * k) for k in range(-8, 9)]
        return max(gaps) - min(gaps) <= aggregation._tau(ev.DistributedDiscreteGaussian(1, Fraction(1, 4), 2))


@case(
    "Skellam: twice the variance",
    changed(aggregation, "_skellam_atoms", lambda true: lambda shift, variance: true(shift, 2 * variance)),
)
def skellam_noise() -> bool:
    event = ev.Skellam(4, Fraction(3))
    with mp.workdps(60):
        masses = skellam_masses(3)
        priced = accounting.rdp(event, (2.0,)).epsilons[0] >= true_divergence(masses, 2, 2)
        return bool(priced and holds(event, 1.0, true_delta(masses, 2, 1.0)))


@case("Skellam: nine tenths of the curvature", changed(aggregation, "_curvature", lambda true: lambda v: 0.9 * true(v)))
def skellam_curvature() -> bool:
    with mp.workdps(60):
        return accounting.rdp(ev.Skellam(1, Fraction(50)), (2.0,)).epsilons[0] >= true_divergence(
            skellam_masses(50), 1, 2
        )


@case("may fail: p dropped", changed(atoms, "claimed", lambda true: lambda epsilon, delta: true(epsilon, 0.0)))
def may_fail() -> bool:
    with mp.workdps(60):
        p = mp.mpf(0.001)
        return holds(ev.MayFail(0.001, ev.Gaussian(1.0)), 1.0, p + (1 - p) * truth.gaussian_delta(1, 1))


@case("loss exceeds ε: δ instead", attribute(exceedance, "gaussian", lambda epsilon, mu: (1e-6, 1e-6)))
def losses_beyond() -> bool:
    with mp.workdps(60):
        noise = mp.mpf(4.22467888933)
        true = mp.erfc((noise - 1 / (2 * noise)) / mp.sqrt(2)) / 2  # 2.0e-5, while δ(1) is 1e-6
    found = accounting.profile(ev.Gaussian(4.22467888933)).loss_exceeds(1.0)
    return found.lower <= true <= found.upper and abs(true - 2.0e-5) < 1e-6


# --- selections of bounded range, groups, subsets of fixed size


@case(
    "exponential mechanisms: scores declared",
    attribute(ranges, "steered_above", lambda e, k: ranges.declared_pair(e, k, True)),
)
def adaptive_selections() -> bool:
    event = ev.Repeated(ev.Exponential(Fraction(1)), 2)
    return two_adaptive_draws(1.0, 0.2) <= accounting.delta(event, 0.2).upper


@case(
    "declared scores: one split for all targets",
    attribute(ranges, "declared_above", lambda e, k: ranges.unsteered(e, k, 0)),
)
def declared_selections() -> bool:
    with mp.workdps(60):
        attained = max(played(1.0, (share, share), 1.2) for share in (0.5, 0.6, 0.7, 0.75, 0.8))
        return accounting.delta(ev.DeclaredExponentials(Fraction(1), 2), 1.2).upper >= attained


@case(
    "a group on samples: one person forgotten",
    changed(mixtures, "group_loss", lambda true: lambda q, mu, out, into: true(q, mu, max(0, out - 1), into)),
)
def groups_on_samples() -> bool:
    with mp.workdps(60):
        true = max(group_delta(0.3, mp.mpf(1) / 2, a, 3 - a, mp.mpf(1)) for a in range(4))
        return holds(ev.Group(ev.PoissonSampled(0.3, ev.Gaussian(2.0)), 3), 1.0, true)


@case(
    "a replaced unit on samples: q² for q",
    changed(mixtures, "RareLoss", lambda true: lambda loss, rate: true(loss, rate * rate)),
)
def replaced_on_samples() -> bool:
    with mp.workdps(60):
        true = mp.mpf(0.3) * truth.gaussian_delta(1, 1)
        return holds(ev.PoissonSampled(0.3, ev.Gaussian(1.0)), 1.0, true, relation=REPLACE_ONE)


@case("subsets: u = 0 forgotten", changed(subsets, "_choices", lambda true: lambda *arguments: true(*arguments)[:1]))
def subsets_of_fixed_size() -> bool:
    # In the second of two steps the value with the unit or with its replacement is 0, as the first outcome suggests.
    lines, at = (on_a_line(0.9, 0), on_a_line(0, 0.9)), 0.2
    attained = []
    for p, q in lines:
        left = np.exp(at - np.log(p / q))[:, None]
        attained.append(float(p @ np.maximum(*(np.sum(np.maximum(a - left * b, 0.0), axis=1) for a, b in lines))))
    return max(attained) <= subsets.block(0.2, 0.9, 2).profile(at)[1]


# --- objectives and plans


@case("an objective: the volume left out", attribute(objectives, "volume_change", lambda curvature: 0.0))
def perturbed_objectives() -> bool:
    # δ = E[(1 − e^{ε − κ − μ²/2 − μ|Z|})₊] at ε = κ + μ²/2 + ½, by an integral in many digits.
    kappa, mu = 0.1, 1.0
    with mp.workdps(30):
        true = mp.quad(lambda z: 2 * mp.npdf(z) * -mp.expm1(0.5 - mu * z), [0.5, 2, 6, 20])
    event = ev.PerturbedObjective(1 / mu, math.expm1(kappa))
    return accounting.delta(event, kappa + mu**2 / 2 + 0.5).upper >= true * (1 - mp.mpf(10) ** -9)


@case(
    "a plan: one tail of two",
    changed(wishes, "_laplace_tail", lambda true: lambda scale, first: true(scale, first) / 2),
)
@case(
    "a plan: half of the selection's ε",
    changed(wishes.SelectionWish, "at", lambda true: lambda self, error: ev.Exponential(true(self, error).epsilon / 2)),
)
def plans() -> bool:
    scale = mp.mpf(float(wishes.CountWish("rows", 20.0).at(20.0).scale))  # type: ignore[attr-defined]
    outside = 2 * mp.nsum(lambda k: mp.exp(-k / scale), [21, mp.inf]) / (2 / (1 - mp.exp(-1 / scale)) - 1)
    # One candidate is the best and 49 others miss by more than the error.
    epsilon = float(wishes.SelectionWish("color", 10.0, candidates=50).at(10.0).epsilon)  # type: ignore[attr-defined]
    missed = 49 * math.exp(-epsilon * 10 / 2)
    return bool(outside <= 0.05 * (1 + 1e-6)) and missed / (1 + missed) <= 0.05


@pytest.mark.parametrize(("check", "patch"), [pytest.param(*rest, id=name) for name, *rest in CASES])
def test_a_price_holds_and_its_mutant_is_caught(
    check: Check, patch: Patch, monkeypatch: pytest.MonkeyPatch, forgetful: None
) -> None:
    assert check()
    patch(monkeypatch)
    forget()
    assert not check()
