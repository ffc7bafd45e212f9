"""Private selection: the number of trials has its law, one charge pays for everything, and losers stay secret."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning.selection import PrivateScores, RandomStopping, select, trials
from discreet.mechanisms.sampling import entropy

FALSE_ALARM = 1e-7
RUN = ev.Gaussian(10.0)
GEOMETRIC = ev.NegativeBinomialTrials(1, Fraction(1, 4))


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "x.ledger").account("census", budget=dp.ApproxDP(2.0, 1e-5))


def search(train=lambda rate: rate, score=lambda model: -abs(model - 3), method=None, **options):
    method = RandomStopping(GEOMETRIC) if method is None else method
    return select(range(6), train, score, run_event=RUN, method=method, **options)


# --- the number of trials -----------------------------------------------------------------------------------------


def logarithmic(k, stop):
    return (1 - stop) ** k / (k * math.log(1 / stop))


def negative_binomial(k, shape, stop):
    """Papernot & Steinke 2022, Definition 1."""
    product = math.prod((i + shape) / (i + 1) for i in range(k))
    return (1 - stop) ** k / (stop**-shape - 1) * product


LAWS = {
    "geometric": (GEOMETRIC, lambda k: 0.75 ** (k - 1) / 4),
    "logarithmic": (ev.NegativeBinomialTrials(0, 0.1), lambda k: logarithmic(k, 0.1)),
    "half": (ev.NegativeBinomialTrials(0.5, 0.2), lambda k: negative_binomial(k, 0.5, 0.2)),
    "negative": (ev.NegativeBinomialTrials(-0.5, 0.2), lambda k: negative_binomial(k, -0.5, 0.2)),
    "poisson": (ev.PoissonTrials(2.5), lambda k: stats.poisson.pmf(k, 2.5)),
    "binomial": (ev.BinomialTrials(7, 0.3), lambda k: stats.binom.pmf(k, 7, 0.3)),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_number_of_trials_has_its_law(name):
    """2,000 draws, Pearson's test; false alarm 1e-7. A mean that is 30% off is seen with probability above 0.99."""
    law, mass = LAWS[name]
    drawn = np.array([trials.draw(law) for _ in range(2000)])
    least = 0 if name in ("poisson", "binomial") else 1
    chances = np.array([mass(k) for k in range(least, 200)])
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    cells = int(np.argmax(2000 * chances[::-1].cumsum()[::-1] < 10)) - 1  # the last cell holds all beyond
    wanted = 2000 * np.array([*chances[:cells], chances[cells:].sum()])
    observed = np.bincount(np.minimum(drawn - least, cells), minlength=cells + 1)
    assert np.sum((observed - wanted) ** 2 / wanted) < stats.chi2.isf(FALSE_ALARM, cells)


def test_a_shape_that_can_t_be_drawn_is_refused():
    with pytest.raises(InvalidArgument, match="shape must be ≤ 1"):
        RandomStopping(ev.NegativeBinomialTrials(2, 0.5))
    with pytest.raises(InvalidArgument, match="law of the number"):
        RandomStopping(5)


# --- random stopping ----------------------------------------------------------------------------------------------


def test_the_best_of_the_runs_wins_and_costs_the_event(account, monkeypatch):
    """With 200 runs over six candidates, the best of them is among the runs but for (5/6)²⁰⁰ = 1.5e-16."""
    monkeypatch.setattr(trials, "draw", lambda law, *bits: 200)
    chosen = search(method=RandomStopping(ev.NegativeBinomialTrials(1, 0.001)), account=account)
    assert chosen.winner == chosen.model == 3
    assert chosen.event == ev.SelectedFromRepeats(RUN, ev.NegativeBinomialTrials(1, 0.001))
    assert [line.event for line in account.statement().lines] == [chosen.event]
    assert chosen.naive == ev.Repeated(RUN, 6)
    assert chosen.epsilon(1e-6).upper < dp.accounting.epsilon(ev.Repeated(RUN, 100), 1e-6).upper


def test_nothing_runs_without_a_charge(account):
    with pytest.raises(BudgetExceeded):
        select(
            range(3),
            lambda _: pytest.fail("it ran"),
            float,
            run_event=ev.Gaussian(0.1),
            method=RandomStopping(GEOMETRIC),
            account=account,
        )


def test_losers_stay_secret(capsys, recwarn, caplog):
    """One of two candidates among six is drawn in about 60 runs but for e⁻²⁰ = 2e-9."""

    def train(rate):
        if rate % 2:
            raise RuntimeError("no convergence")
        return rate

    chosen = search(train, method=RandomStopping(ev.PoissonTrials(60)))
    assert chosen.winner in (2, 4)
    assert "trials=" not in repr(chosen).replace(repr(chosen.event), "")
    assert capsys.readouterr() == ("", "")
    assert not recwarn.list
    assert not caplog.records


def test_no_trial_and_no_success_have_no_winner():
    assert search(method=RandomStopping(ev.PoissonTrials(1e-9))).winner is None
    assert search(train=lambda _: 1 / 0).winner is None
    assert search(score=lambda _: math.nan).winner is None


def test_a_search_that_was_killed_continues_with_its_trials_and_its_charge(account, tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "draw", lambda law: 5)
    runs = []

    def train(rate):
        runs.append(rate)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return rate

    options = {"account": account, "key": "rates", "folder": tmp_path / "search"}
    with pytest.raises(KeyboardInterrupt):
        search(train, **options)
    chosen = search(train, **options)
    assert len(runs) == 6
    assert runs[2] == runs[3]
    assert len(account.statement().lines) == 1
    again = search(lambda _: pytest.fail("it ran again"), **options)
    assert again.winner == chosen.winner
    for _ in range(2):  # a refusal must not make the next call succeed
        with pytest.raises(InvalidArgument, match="is lost or kept in another folder"):
            search(train, account=account, key="rates", folder=tmp_path / "other")
    assert len(account.statement().lines) == 1


@pytest.mark.parametrize("method", [RandomStopping(GEOMETRIC), PrivateScores(0.1)], ids=["stopping", "scores"])
def test_a_search_that_was_killed_in_its_first_run_is_not_charged_again(method, account, tmp_path):
    options = {"method": method, "account": account, "key": "rates", "folder": tmp_path / "search"}

    def killed(rate):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(killed, **options)
    assert search(**options).winner in range(6)
    assert len(account.statement().lines) == 1


def test_a_folder_belongs_to_one_search(account, tmp_path):
    options = {"run_event": RUN, "account": account, "key": "rates", "folder": tmp_path / "search"}
    method = RandomStopping(GEOMETRIC)
    select([1, 2], lambda x: x, float, method=method, **options)
    for other in ({"candidates": [3, 4]}, {"method": RandomStopping(ev.PoissonTrials(3))}):
        arguments = {"candidates": [1, 2], "method": method, **other}
        with pytest.raises(InvalidArgument, match="hold a search with the same"):
            select(train=lambda x: x, score=float, **arguments, **options)
    assert len(account.statement().lines) == 1


def test_two_searches_at_once_do_not_share_a_charge(account, tmp_path):
    options = {"account": account, "key": "rates", "folder": tmp_path / "search"}

    def train(rate):
        with pytest.raises(InvalidArgument, match="another process searches"):
            search(**options)
        return rate

    search(train, **options)
    assert len(account.statement().lines) == 1


# --- private scores -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["noisy max", "exponential", "laplace"])
def test_every_candidate_is_paid_for_and_the_choice_too(by, account):
    method = PrivateScores(Fraction(1, 2), by=by)
    chosen = search(score=lambda model: -1000 * abs(model - 3), method=method, account=account)
    assert chosen.winner == 3
    choice = {
        "noisy max": ev.NoisyMax(Fraction(1, 2)),
        "exponential": ev.Exponential(Fraction(1, 2)),
        "laplace": ev.Repeated(ev.DiscreteLaplace(1, Fraction(12)), 6),
    }[by]
    assert chosen.event == ev.Composed((ev.Repeated(RUN, 6), choice))
    assert (chosen.scores is not None) is (by == "laplace")
    log = ev.Repeated(ev.DiscreteLaplace(1, Fraction(2)), 6)  # every score for ε = 1/2
    assert chosen.naive == ev.Composed((ev.Repeated(RUN, 6), log))
    assert chosen.epsilon(1e-6).upper < chosen.naive_epsilon(1e-6).upper
    separate = PrivateScores(Fraction(1, 2), by=by, separate=True)
    assert separate.event(RUN, 6) == ev.Parallel((ev.Repeated(RUN, 6), choice))
    assert separate.naive(RUN, 6) == ev.Parallel((ev.Repeated(RUN, 6), log))


@pytest.mark.parametrize("by", ["noisy max", "exponential", "laplace"])
def test_one_charge_pays_for_one_draw_of_the_choice(by, account, tmp_path):
    options = {"account": account, "key": "k", "folder": tmp_path / "s", "score": lambda _: 7}
    method = PrivateScores(Fraction(1, 10), by=by)
    first = search(method=method, **options)
    for _ in range(10):  # ten fresh draws among six equal candidates would agree with probability 6⁻¹⁰
        again = search(method=method, **options)
        assert (again.winner, again.scores) == (first.winner, first.scores)
    assert len(account.statement().lines) == 1


def test_noisy_scores_have_the_stated_noise():
    """Six scores of 0 with scale 6·2/ε, 150 times: false alarm 1e-7; 25% less noise is seen with probability 0.99."""
    method = PrivateScores(Fraction(1), sensitivity=2, by="laplace")
    noise = [value for _ in range(150) for value in search(lambda _: 0, score=float, method=method).scores]
    spread, mean = np.abs(noise), 12.0  # E|X| ≈ b for the discrete Laplace
    assert abs(spread.mean() - mean) < 5.4 * mean / math.sqrt(len(noise)) + 0.01


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"candidates": []}, "candidates"),
        ({"method": 3}, "method"),
        ({"key": "k"}, "folder"),
        ({"run_event": ev.NonPrivate()}, "finite price|NonPrivate"),
    ],
)
def test_bad_arguments_are_refused(bad, words):
    arguments = {"candidates": [1], "run_event": RUN, "method": RandomStopping(GEOMETRIC), **bad}
    with pytest.raises((InvalidArgument, dp.errors.UnknownEvent), match=words):
        select(train=lambda x: x, score=float, **arguments)


def test_a_fractional_score_is_refused():
    for value in (0.5, math.nan, math.inf):
        with pytest.raises(InvalidArgument, match="whole number"):
            search(score=lambda _, value=value: value, method=PrivateScores(1.0))


def test_seeded_bits_are_only_for_tests():
    assert trials.draw(GEOMETRIC, entropy.bits(3)) == trials.draw(GEOMETRIC, entropy.bits(3))
