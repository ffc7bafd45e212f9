"""The best of a random number of runs: no price below what an attack attains, and none above the published bounds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from discreet import events as ev
from discreet.accounting import AdaptiveFilter, delta, epsilon, gdp, pure, rdp, zcdp
from discreet.accounting.forms.conversions import rdp_epsilon
from discreet.accounting.losses.from_profile import profile_loss
from discreet.accounting.prices import selection
from discreet.accounting.prices import trials as laws
from discreet.accounting.prices.profile_table import ProfileTable, profile_table
from discreet.codec import decode, decode_tree, encode, from_numbers
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.guarantees import ApproxDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE

LAWS = [
    ev.NegativeBinomialTrials(1, 0.1),
    ev.NegativeBinomialTrials(0, 0.01),
    ev.NegativeBinomialTrials(-0.5, 0.05),
    ev.NegativeBinomialTrials(2.5, 0.3),
    ev.PoissonTrials(10),
    ev.PoissonTrials(0.2),
    ev.BinomialTrials(20, 0.5),
    ev.BinomialTrials(1, 0.5),
]


def generating(law, x):
    """E[x^K], written from the definitions of the laws, in many digits."""
    x = mp.mpf(x)
    if isinstance(law, ev.PoissonTrials):
        return mp.exp(law.mean * (x - 1))
    if isinstance(law, ev.BinomialTrials):
        return (1 - law.probability + law.probability * x) ** law.most
    eta, gamma = mp.mpf(law.shape), mp.mpf(law.stop)
    if eta == 0:
        return mp.log(1 - (1 - gamma) * x) / mp.log(gamma)
    return ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_density_of_each_law_is_the_slope_of_its_generating_function(law):
    with mp.workdps(40):
        for worse in (0.0, 1e-6, 0.3, 1.0):
            slope = mp.diff(lambda x: generating(law, x), 1 - mp.mpf(worse))
            ours = float(laws.log_density(law, np.array([worse]))[0])
            assert ours == pytest.approx(float(mp.log(slope)), rel=1e-12, abs=1e-12)
        none = generating(law, 0)
        assert math.exp(laws.log_none(law)) == pytest.approx(float(none), rel=1e-12)


def test_the_laws_have_the_published_means():
    # Papernot & Steinke 2022, Definition 1.
    assert math.exp(laws.log_mean(ev.NegativeBinomialTrials(1, 0.1))) == pytest.approx(10)
    assert math.exp(laws.log_mean(ev.NegativeBinomialTrials(0, 0.1))) == pytest.approx(9 / math.log(10))
    assert math.exp(laws.log_mean(ev.NegativeBinomialTrials(1e-12, 0.1))) == pytest.approx(9 / math.log(10))


def attained_deltas(law, mu, at):
    """δ of the selection if one run is N(0, 1) or N(μ, 1) and the larger (or smaller) number is better."""
    y = np.linspace(-12.0, 12.0 + mu, 40_001)
    step = y[1] - y[0]
    found = []
    for here, there in ((mu, 0.0), (0.0, mu)):
        for sign in (1.0, -1.0):  # the worse share of a run that scores y: those that score more are better
            log_first = laws.log_density(law, special.ndtr(-sign * (y - here))) - (y - here) ** 2 / 2
            log_second = laws.log_density(law, special.ndtr(-sign * (y - there))) - (y - there) ** 2 / 2
            gap = np.exp(log_first) - math.exp(at) * np.exp(log_second)
            found.append(float(np.sum(np.maximum(gap, 0.0)) * step / math.sqrt(2 * math.pi)))
    return found


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_no_attack_on_gaussian_runs_attains_more_than_the_price(law, mu):
    event = ev.SelectedFromRepeats(ev.Gaussian(1 / mu), law)
    assert delta(event, 2 * mu).upper >= max(attained_deltas(law, mu, 2 * mu)) * (1 - 1e-6)
    bound = selection._Selection.of(profile_table(event.event, ADD_REMOVE), law)
    for at in (0.0, 0.5 * mu, 5 * mu, 7 * mu):
        assert float(bound.delta(np.array([at]))[0]) >= max(attained_deltas(law, mu, at)) * (1 - 1e-6)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_binary_runs_cost_no_less_than_sixty_digits_say(law):
    # A run is a bit, and 1 is better: the best of K runs is 0 with probability f(P(0)) − f(0), and 1 with 1 − f(P(0)).
    loss, at = Fraction(1, 2), Fraction(3, 10)
    event = ev.SelectedFromRepeats(ev.RandomizedResponse(loss), law)
    with mp.workdps(60):
        e = mp.exp(mp.mpf(1) / 2)
        first, second = (
            [generating(law, p) - generating(law, 0), 1 - generating(law, p)] for p in (1 / (1 + e), e / (1 + e))
        )
        truth = mp.mpf(0)
        for one, other in ((first, second), (second, first)):
            truth = max(truth, sum(max(a - mp.exp(mp.mpf(3) / 10) * b, 0) for a, b in zip(one, other, strict=True)))
            largest = max(mp.log(a / b) for a, b in zip(one, other, strict=True))
            assert pure(event).epsilon >= largest
    assert delta(event, at).upper >= truth


def test_one_trial_at_most_costs_what_a_sample_of_the_run_costs():
    # K ≤ 1: the selection is the run itself with probability p, and nothing otherwise, so δ is p times that of a run.
    # A price that counts fewer trials than E[K] fails here.
    event = ev.SelectedFromRepeats(ev.Gaussian(1.0), ev.BinomialTrials(1, 0.25))
    for at in (0.5, 2.0):
        true = 0.25 * delta(ev.Gaussian(1.0), at).lower
        assert true <= delta(event, at).upper <= 1.02 * true


@pytest.mark.parametrize(("rho", "stop", "shape"), [(0.01, 0.01, 0), (0.1, 0.1, 0.5), (1.0, 0.1, 1), (0.01, 0.01, 5)])
def test_renyi_prices_do_not_exceed_the_published_corollary(rho, stop, shape):
    # Papernot & Steinke 2022, Corollary 4, for ρ-zCDP runs with ρ ≤ ln(1/γ), at λ ≥ 1 + √(ln(E[K])/ρ).
    law = ev.NegativeBinomialTrials(shape, stop)
    event = ev.SelectedFromRepeats(ev.Gaussian(math.sqrt(0.5 / rho)), law)
    log_mean = laws.log_mean(law)
    for order in (1 + math.sqrt(log_mean / rho), 2 + 2 * math.sqrt(log_mean / rho)):
        published = rho * (order - 1) + log_mean / (order - 1)
        published += 2 * (1 + shape) * math.sqrt(-rho * math.log(stop)) - shape * rho
        # The inner orders are a fixed list here, not all real numbers, which costs up to half a percent.
        assert rdp(event, (order,)).epsilons[0] <= published * 1.005


@pytest.mark.parametrize(("sigma", "mean"), [(1.0, 5.0), (4.0, 20.0)])
def test_poisson_trials_do_not_exceed_the_published_theorem(sigma, mean):
    # Papernot & Steinke 2022, Theorem 6, with the probability of no trial added to the moment.
    event = ev.SelectedFromRepeats(ev.Gaussian(sigma), ev.PoissonTrials(mean))
    for order in (2.0, 8.0, 40.0):
        hat = math.log1p(1 / (order - 1))
        moment = (order - 1) * (order / (2 * sigma**2) + mean * delta(ev.Gaussian(sigma), hat).upper) + math.log(mean)
        published = float(np.logaddexp(-mean, moment)) / (order - 1)
        assert rdp(event, (order,)).epsilons[0] <= published * (1 + 0.02)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_renyi_prices_hold_for_an_attack(law):
    # The moment of the selection among N(0, 1) and N(1, 1) runs, larger numbers being better.
    y = np.linspace(-12.0, 13.0, 40_001)
    first = laws.log_density(law, special.ndtr(1 - y)) - (y - 1) ** 2 / 2
    second = laws.log_density(law, special.ndtr(-y)) - y**2 / 2
    event = ev.SelectedFromRepeats(ev.Gaussian(1.0), law)
    for order in (1.5, 3.0, 10.0):
        for one, other in ((first, second), (second, first)):
            inside = float(np.sum(np.exp(order * one - (order - 1) * other)) * (y[1] - y[0]) / math.sqrt(2 * math.pi))
            attained = math.log(inside + math.exp(laws.log_none(law))) / (order - 1)
            assert rdp(event, (order,)).epsilons[0] >= attained - 1e-6


def test_the_profile_beats_a_single_shift_and_renyi():
    # A single shift, as Koskela, Redberg & Wang 2024 have it: E[K]·δ(ε − (η+1)·ln(e^{ε₁} + δ(ε₁)(1−γ)/γ)), any ε₁.
    law, run = ev.NegativeBinomialTrials(1, 0.1), ev.Gaussian(4.0)
    event = ev.SelectedFromRepeats(run, law)
    shifts = [2 * math.log(math.exp(e) + 9 * delta(run, e).upper) for e in np.linspace(0.05, 2.0, 40)]
    published = epsilon(run, 1e-7).upper + min(shifts)
    ours = epsilon(event, 1e-6).upper
    assert ours < 0.8 * published
    assert ours < 0.97 * rdp_epsilon(rdp(event), 1e-6)
    assert ours > epsilon(run, 1e-6).upper


def test_pure_runs_cost_less_than_two_plus_shape_times_their_epsilon():
    # Papernot & Steinke 2022, Corollary 3; Liu & Talwar 2019 for the geometric law. Near it for many trials.
    for shape in (0, 1, 3):
        price = pure(ev.SelectedFromRepeats(ev.Laplace(10.0), ev.NegativeBinomialTrials(shape, 1e-6))).epsilon
        assert 0.99 * (2 + shape) * 0.1 < price < (2 + shape) * 0.1
    assert math.isinf(pure(ev.SelectedFromRepeats(ev.Gaussian(1.0), LAWS[0])).epsilon)


def test_a_selection_composes_with_other_events():
    event = ev.SelectedFromRepeats(ev.Gaussian(4.0), LAWS[0])
    alone = epsilon(event, 1e-6).upper
    both = epsilon(ev.Composed((event, ev.Gaussian(4.0))), 1e-6).upper
    twice = epsilon(ev.Repeated(event, 2), 1e-6).upper
    assert alone < both < alone + epsilon(ev.Gaussian(4.0), 1e-6).upper
    assert both < twice < 2 * alone
    # The composition is no worse than through Rényi DP, and a filter takes it.
    assert twice <= rdp_epsilon(rdp(ev.Repeated(event, 2)), 1e-6)
    AdaptiveFilter.start(ApproxDP(3.0, 1e-6)).spend(event)


def test_a_composed_selection_costs_no_less_than_a_composed_attack():
    # Two selections among N(0, 1) and N(1/4, 1) runs, both attacked: the loss of the pair, on a grid of 2,000 outputs.
    law, mu = ev.PoissonTrials(3), 0.25
    y = np.linspace(-7.0, 7.0, 2_001)
    cells = (y[1] - y[0]) / math.sqrt(2 * math.pi)
    p = np.exp(laws.log_density(law, special.ndtr(mu - y)) - (y - mu) ** 2 / 2) * cells
    q = np.exp(laws.log_density(law, special.ndtr(-y)) - y**2 / 2) * cells
    p, q = np.append(p, math.exp(-3)), np.append(q, math.exp(-3))
    for at in (0.5, 1.0):
        attained = float(np.sum(np.maximum(np.outer(p, p) - math.exp(at) * np.outer(q, q), 0.0)))
        event = ev.Repeated(ev.SelectedFromRepeats(ev.Gaussian(4.0), law), 2)
        assert delta(event, at).upper >= attained * (1 - 1e-4)


def test_a_selection_costs_at_least_one_run_if_there_always_is_one():
    for run in (ev.Gaussian(4.0), ev.Laplace(3.0), ev.PoissonSampled(0.1, ev.Gaussian(1.0))):
        answer = epsilon(ev.SelectedFromRepeats(run, LAWS[0]), 1e-6)
        assert answer.lower == pytest.approx(epsilon(run, 1e-6).lower, rel=1e-3)
        assert answer.lower <= epsilon(run, 1e-6).upper < answer.upper
    assert epsilon(ev.SelectedFromRepeats(ev.Gaussian(4.0), ev.PoissonTrials(10)), 1e-6).lower == 0


def test_groups_relations_and_other_forms():
    event = ev.SelectedFromRepeats(ev.Gaussian(8.0), LAWS[0])
    grouped = ev.SelectedFromRepeats(ev.Gaussian(4.0), LAWS[0])
    assert epsilon(ev.Group(event, 2), 1e-6) == epsilon(grouped, 1e-6)
    assert epsilon(event, 1e-6, REPLACE_ONE) == epsilon(event, 1e-6, ADD_REMOVE)
    assert math.isinf(zcdp(event).rho)
    with pytest.raises(UnknownEvent, match="no μ"):
        gdp(event)
    laplace = ev.SelectedFromRepeats(ev.Laplace(2.0), LAWS[0])
    assert zcdp(laplace).rho > 0
    assert gdp(laplace).mu > 0
    # A run without a tight price is priced through Rényi DP.
    sampled = ev.SelectedFromRepeats(ev.PoissonSampled(0.1, ev.Gaussian(2.0)), LAWS[0])
    assert math.isfinite(epsilon(sampled, 1e-6, REPLACE_ONE).upper)
    # A run that may fail lets E[K] times as much fail.
    assert delta(ev.SelectedFromRepeats(ev.Claimed(0.1, 1e-9), LAWS[0]), 50.0).upper == pytest.approx(1e-8, rel=1e-3)
    assert delta(ev.SelectedFromRepeats(ev.NonPrivate(), LAWS[0]), 1.0).upper == 1.0


def test_tables_lie_above_the_true_profile():
    table = profile_table(ev.Gaussian(1.0), ADD_REMOVE)
    for at in np.linspace(-3.0, 6.0, 50):
        size = abs(at)
        true = delta(ev.Gaussian(1.0), size).lower
        true = true if at >= 0 else 1 - math.exp(-size) * (1 - true)
        above = float(table.delta(np.array([at]))[0])
        assert true <= above <= true * 1.03
    # The most likely set on the neighbor is a half line: Φ(Φ⁻¹(u) + μ).
    shares = np.array([1e-9, 1e-3, 0.3, 0.5, 0.9, 1.0])
    true = special.ndtr(special.ndtri(shares) + 1.0)
    assert np.all(table.most_likely(shares) >= true)
    assert np.all(table.most_likely(shares) <= true * 1.1)


def test_a_loss_made_from_a_profile_has_that_profile():
    epsilons = np.linspace(0.0, 8.0, 200)
    deltas = np.array([delta(ev.Gaussian(1.0), at).upper for at in epsilons])
    loss = profile_loss(epsilons, deltas)
    assert float(np.sum(loss.p)) + loss.infinite == pytest.approx(1, abs=1e-12)
    assert float(np.sum(loss.q)) + loss.only_q == pytest.approx(1, abs=1e-12)
    for at, true in zip(epsilons[::20], deltas[::20], strict=True):
        ours = float(np.sum(np.maximum(loss.p - math.exp(at) * loss.q, 0.0))) + loss.infinite
        assert ours == pytest.approx(true, rel=1e-9)
        mirrored = float(np.sum(np.maximum(loss.q - math.exp(at) * loss.p, 0.0))) + loss.only_q
        assert mirrored == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_laws_keep_their_text(law):
    event = ev.SelectedFromRepeats(ev.Gaussian(1.0), law)
    assert decode(encode(event)) == event
    assert encode(decode(encode(event))) == encode(event)


def test_people_may_write_plain_numbers():
    written = {
        "tag": "selected-from-repeats",
        "event": {"tag": "gaussian", "noise_multiplier": 2},
        "trials": {"tag": "poisson", "mean": 10},
    }
    assert decode_tree(from_numbers(written)) == ev.SelectedFromRepeats(ev.Gaussian(2.0), ev.PoissonTrials(10))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ev.NegativeBinomialTrials(-1, 0.5),
        lambda: ev.NegativeBinomialTrials(math.nan, 0.5),
        lambda: ev.NegativeBinomialTrials(1, 0.0),
        lambda: ev.NegativeBinomialTrials(1, 1.0),
        lambda: ev.PoissonTrials(0.0),
        lambda: ev.PoissonTrials(math.inf),
        lambda: ev.BinomialTrials(0, 0.5),
        lambda: ev.BinomialTrials(10, 1.0),
        lambda: ev.BinomialTrials(10**101, 0.5),
        lambda: ev.BinomialTrials(10.0, 0.5),
        lambda: ev.SelectedFromRepeats(ev.Gaussian(1.0), 10),
        lambda: ev.SelectedFromRepeats("gaussian", ev.PoissonTrials(1)),
    ],
)
def test_bad_laws_are_refused(make):
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize(
    "law",
    [
        ev.NegativeBinomialTrials(1, 1e-9),
        ev.NegativeBinomialTrials(300, 1e-3),
        ev.NegativeBinomialTrials(-0.999, 0.5),
        ev.PoissonTrials(1e9),
        ev.PoissonTrials(1e-9),
        ev.BinomialTrials(10**100, 1e-9),
        ev.NegativeBinomialTrials(1e150, 1e-150),
        ev.BinomialTrials(2, 1e-12),
    ],
    ids=str,
)
@pytest.mark.slow
@pytest.mark.parametrize("run", [ev.Gaussian(0.05), ev.Gaussian(100.0), ev.Laplace(1e-3), ev.Claimed(0.0)], ids=str)
def test_extreme_laws_and_runs_have_valid_prices(law, run):
    event = ev.SelectedFromRepeats(run, law)
    answer = delta(event, 1.0)
    assert 0 <= answer.lower <= answer.upper <= 1
    at_zero = delta(event, 0.0).upper
    # One trial alone tells the neighbors apart by δ(0) of a run, if there is one.
    at_least = -math.expm1(laws.log_none(law)) * delta(run, 0.0).lower
    assert at_zero >= 0.3 * at_least
    assert all(value >= 0 for value in rdp(event, (1.5, 20.0)).epsilons)


def worst_order(law, first, second, at):
    """The largest δ of the selection over all orders of a few outputs, in both directions, by trying them all."""
    worst = 0.0
    for order in itertools.permutations(range(len(first))):
        masses = []
        for law_of_run in (first, second):
            reached = np.append(0.0, np.cumsum(law_of_run[list(order)]))
            best = np.array([float(generating(law, min(x, 1.0))) for x in reached])
            masses.append(np.diff(best))
        for one, other in (masses, masses[::-1]):
            worst = max(worst, float(np.sum(np.maximum(one - math.exp(at) * other, 0.0))))
    return worst


def exact_table(first, second):
    """The profile of a pair with a few outputs: its kinks are the losses, and it is 0 from the largest on."""
    losses = np.abs(np.log(first / second))
    epsilons = np.unique(np.append(losses, 0.0))
    growth = np.exp(epsilons)[:, None]
    each = [np.sum(np.maximum(a - growth * b, 0.0), axis=1) for a, b in ((first, second), (second, first))]
    return ProfileTable(epsilons, np.maximum(*each) * (1 + 1e-14))


SMALL_RUNS = [
    (np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.25, 0.15, 0.2])),
    (np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.45, 0.35, 0.15, 0.05])),
    (np.array([0.25, 0.25, 0.25, 0.25]), np.array([0.4, 0.3, 0.2, 0.1])),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("run", SMALL_RUNS, ids=["0", "1", "2"])
def test_no_order_of_a_few_outputs_attains_more(law, run):
    bound = selection._Selection.of(exact_table(*run), law)
    for at in (0.0, 0.4, 1.0):
        assert float(bound.delta(np.array([at]))[0]) >= worst_order(law, *run, at) * (1 - 1e-9)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_largest_line_lies_above_that_of_every_pair(law):
    # Any u, with the u′ that the profile allows, gives a line below Σ wⱼ(z − e^{−sⱼ})₊; 500 of them, at 200 points z.
    table = profile_table(ev.Gaussian(1.5), ADD_REMOVE)
    bound = selection._Selection.of(table, law)
    worse = np.concatenate((np.linspace(0.0, 1.0, 397), np.geomspace(1e-9, 0.5, 103)))
    first, second = (np.exp(laws.log_density(law, each)) for each in (worse, table.most_likely(worse)))
    z = np.geomspace(1e-6, 10.0, 200)
    above = np.sum(bound.weights * np.maximum(z[:, None] - np.exp(-bound.shifts), 0.0), axis=1)
    lines = np.max(np.outer(z, first) - second, axis=1)
    assert np.all(above * (1 + 1e-9) >= lines)
    assert np.sum(bound.weights) == pytest.approx(math.exp(laws.log_mean(law)), rel=1e-6)


@pytest.mark.parametrize("mutant", ["F for F′", "too few tests"])
def test_selections_that_bound_the_growth_too_low_would_be_caught(mutant, monkeypatch):
    # F taken for F′, and half of what the profile says about F and F′: an order of a few outputs attains more.
    if mutant == "F for F′":
        same = lambda better, _: (np.zeros(1), np.exp(np.max(better, keepdims=True)))  # noqa: E731
        monkeypatch.setattr(selection, "_largest_line", same)
    else:
        true = ProfileTable.most_likely
        monkeypatch.setattr(ProfileTable, "most_likely", lambda self, share: (true(self, share) + share) / 2)
    caught = 0
    for law in (ev.PoissonTrials(10), ev.BinomialTrials(20, 0.5)):
        for run in SMALL_RUNS:
            bound = selection._Selection.of(exact_table(*run), law)
            caught += any(float(bound.delta(np.array([at]))[0]) < worst_order(law, *run, at) for at in (0.4, 1.0, 2.0))
    assert caught > 0


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("shape", "mean"), [(0, 10.0), (1, 10.0), (3, 4.0), (math.inf, 10.0)])
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_prices_are_below_those_of_the_accountant_in_use(shape, mean, sigma):
    dp_accounting = pytest.importorskip("dp_accounting")
    theirs = dp_accounting.rdp.RdpAccountant()
    run = dp_accounting.GaussianDpEvent(sigma)
    theirs.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(run, mean, shape))
    if math.isinf(shape):
        law = ev.PoissonTrials(mean)
    else:
        stops = np.linspace(1e-3, 0.999, 4000)
        means = [math.exp(laws.log_mean(ev.NegativeBinomialTrials(shape, float(stop)))) for stop in stops]
        law = ev.NegativeBinomialTrials(shape, float(stops[int(np.argmin(np.abs(np.array(means) - mean)))]))
    assert epsilon(ev.SelectedFromRepeats(ev.Gaussian(sigma), law), 1e-6).upper <= theirs.get_epsilon(1e-6) * 1.01
