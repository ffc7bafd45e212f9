"""PATE: one person reaches one teacher, votes get the stated noise, and every answer is charged before it is drawn."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import pate
from discreet.learning.pate.price import spent_by_order, to_epsilon
from discreet.mechanisms.sampling import entropy

FALSE_ALARM = 1e-7
KEY = bytes(range(32))


class Centroids:
    """The nearest class mean; fails if a shard lacks rows, as real estimators do."""

    def fit(self, inputs, labels):
        if len(inputs) < 2:
            raise ValueError("too few rows")
        self.labels = np.unique(labels)
        self.means = np.stack([inputs[labels == label].mean(0) for label in self.labels])

    def predict(self, inputs):
        return self.labels[((inputs[:, None] - self.means) ** 2).sum(2).argmin(1)]

    def predict_proba(self, inputs):
        near = np.exp(-((inputs[:, None] - self.means) ** 2).sum(2))
        return near / near.sum(1, keepdims=True)


def blobs(size, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, size)
    return generator.normal(size=(size, 2)) * 0.5 + np.array([[0, 0], [4, 0], [0, 4]])[labels], labels


@pytest.fixture(scope="module")
def teachers():
    inputs, labels = blobs(600)
    return pate.train_teachers(Centroids(), inputs, labels, teachers=30, classes=range(3), progress=False)


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "x.ledger").account("digits", budget=dp.ApproxDP(40.0, 1e-5))


# --- shards -------------------------------------------------------------------------------------------------------


def test_a_person_s_shard_depends_on_the_person_alone():
    people = [*(f"p{i}" for i in range(200)), 7, b"x"]
    shards = dict(zip(people, pate.shards_of(people, 50, KEY), strict=True))
    for one in (people[3], 7, b"x"):
        assert pate.shards_of([one, "other", one], 50, KEY)[[0, 2]].tolist() == [shards[one]] * 2
    assert (
        pate.shards_of([7.0, np.int64(7), "7"], 10**9, KEY).tolist()[:2]
        == [int(pate.shards_of([7], 10**9, KEY)[0])] * 2
    )
    assert len(set(pate.shards_of([7, "7", b"7"], 10**9, KEY).tolist())) == 3


def test_shards_have_the_same_expected_size():
    """False alarm 1e-7; a shard that gets 1.3 times its share is seen with probability above 0.999."""
    sizes = np.bincount(pate.shards_of(np.arange(20_000), 10, entropy.fresh_key()), minlength=10)
    assert stats.chisquare(sizes).pvalue > FALSE_ALARM


@pytest.mark.parametrize("person", [None, math.nan, 1.5, "", True])
def test_a_row_without_a_person_is_refused(person):
    with pytest.raises(InvalidArgument, match="persons must identify"):
        pate.shards_of([person], 3, KEY)


def test_rows_without_a_person_reach_no_teacher_and_raise_nothing():
    inputs, labels = blobs(60)
    persons = [f"p{i}" if i % 3 else None for i in range(60)]
    seen = []

    class Counting(Centroids):
        def fit(self, rows, targets):
            seen.append(len(rows))
            super().fit(rows, targets)

    options = {"teachers": 2, "classes": range(3), "progress": False}
    pate.train_teachers(lambda _: Counting(), inputs, labels, persons=persons, **options)
    assert sum(seen[1:]) == 40  # the first fit is the trial on generated rows
    with pytest.raises(InvalidArgument, match="one entry for each"):
        pate.train_teachers(Centroids(), inputs, labels, persons=persons[:7], **options)


def test_one_person_changes_one_teacher_s_votes(monkeypatch):
    monkeypatch.setattr(entropy, "fresh_key", lambda: KEY)
    inputs, labels = blobs(300)
    persons = np.arange(300) // 3
    asked, _ = blobs(40, seed=1)

    def votes(keep, flipped=False):
        targets = np.where(keep | (not flipped), labels, (labels + 1) % 3)
        chosen = np.ones(300, dtype=bool) if flipped else keep
        trained = pate.train_teachers(
            Centroids(),
            inputs[chosen],
            targets[chosen],
            teachers=20,
            classes=range(3),
            persons=persons[chosen],
            progress=False,
        )
        return trained.counts(asked)

    everybody = votes(np.ones(300, dtype=bool))
    for person in (0, 17, 99):
        for other in (votes(persons != person), votes(persons != person, flipped=True)):
            assert (np.abs(everybody - other).sum(1) <= 2).all()


# --- teachers -----------------------------------------------------------------------------------------------------


def test_a_teacher_that_fails_abstains_and_says_nothing(recwarn, capsys):
    inputs, labels = blobs(12)
    trained = pate.train_teachers(Centroids(), inputs, labels, teachers=40, classes=range(3), progress=False)
    counts = trained.counts(inputs[:4])
    assert (counts.sum(1) < 40).all()
    assert not recwarn.list
    assert capsys.readouterr() == ("", "")


class Scaling(Centroids):
    """Predicts in place, as a scaler without a copy does, and draws as many random numbers as it sees rows."""

    def fit(self, inputs, labels):
        super().fit(inputs, labels)
        self.shift = inputs.mean(0) + np.random.normal(size=len(inputs)).sum() * 0.01  # noqa: NPY002

    def predict(self, inputs):
        inputs -= self.shift
        return super().predict(inputs)


def test_no_teacher_reaches_another_through_arrays_or_random_numbers(monkeypatch):
    monkeypatch.setattr(entropy, "fresh_key", lambda: KEY)
    inputs, labels = blobs(200)
    asked, _ = blobs(30, seed=1)
    before, votes = asked.copy(), []
    for kept in (slice(None), slice(1, None)):
        np.random.seed(0)  # noqa: NPY002
        persons = np.arange(200)[kept]
        options = {"teachers": 10, "classes": range(3), "persons": persons, "progress": False}
        votes.append(pate.train_teachers(Scaling(), inputs[kept], labels[kept], **options).counts(asked))
    assert (asked == before).all()
    assert (np.abs(votes[0] - votes[1]).sum(1) <= 2).all()


def test_an_estimator_that_can_t_work_is_refused_before_it_sees_data():
    class Broken(Centroids):
        def predict(self, inputs):
            raise RuntimeError("no")

    inputs, labels = blobs(50)
    with pytest.raises(InvalidArgument, match="on generated ones: no"):
        pate.train_teachers(Broken(), inputs, labels, teachers=5, classes=range(3), progress=False)


@pytest.mark.parametrize("bad", [{"teachers": 1}, {"classes": [0]}, {"classes": [0, 0]}, {"workers": 0}])
def test_bad_arguments_are_refused(bad):
    inputs, labels = blobs(50)
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        pate.train_teachers(
            Centroids(), inputs, labels, **{"teachers": 5, "classes": range(3), "progress": False, **bad}
        )


def test_a_run_that_was_killed_continues_with_the_same_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(entropy, "fresh_key", lambda: KEY)  # with this key every shard has more than 12 rows
    inputs, labels = blobs(200)
    fitted = []

    class Counting(Centroids):
        def fit(self, rows, targets):
            super().fit(rows, targets)
            if len(rows) > 12:  # not the generated rows
                fitted.append(len(rows))
                if len(fitted) == 5:
                    raise KeyboardInterrupt

    def start():
        return pate.train_teachers(
            lambda _: Counting(), inputs, labels, teachers=8, classes=range(3), folder=tmp_path / "t", progress=False
        )

    # Local classes can't be pickled, so the ones that are saved are those of the module.
    Counting.__reduce__ = lambda self: (_restored, (self.labels, self.means))
    with pytest.raises(KeyboardInterrupt):
        start()
    trained = start()
    assert len(fitted) == 9  # the one that was killed is trained again
    assert sum(fitted) - fitted[4] == 200
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "t").iterdir())
    assert trained.counts(inputs).sum(1).tolist() == [8] * 200
    with pytest.raises(InvalidArgument, match="one set of teachers"):
        pate.train_teachers(Centroids(), inputs, labels, teachers=9, classes=range(3), folder=tmp_path / "t")
    with pytest.raises(InvalidArgument, match="teachers of these data"):  # a row would reach a second teacher
        pate.train_teachers(Centroids(), inputs[1:], labels[1:], teachers=8, classes=range(3), folder=tmp_path / "t")


def _restored(labels, means):
    made = Centroids()
    made.labels, made.means = labels, means
    return made


@pytest.mark.slow
def test_teachers_train_side_by_side():
    inputs, labels = blobs(90)
    trained = pate.train_teachers(Centroids(), inputs, labels, teachers=3, classes=range(3), workers=2, progress=False)
    assert trained.counts(inputs[:2]).sum(1).tolist() == [3, 3]


def test_a_torch_module_is_a_teacher(monkeypatch):
    monkeypatch.setattr(entropy, "fresh_key", lambda: KEY)  # so the teachers are always the same
    torch.manual_seed(0)
    inputs, labels = blobs(200)
    named = np.array(["a", "b", "c"])[labels]
    module = torch.nn.Linear(2, 3)
    before = module.weight.detach().clone()
    options = {"teachers": 2, "classes": ["a", "b", "c"], "progress": False}
    assert (pate.train_teachers(module, inputs, named, **options).counts(inputs).sum(1) == 2).all()
    assert torch.equal(module.weight, before)
    quick = pate.Classifier(module, ["a", "b", "c"], learning_rate=0.1)
    counts = pate.train_teachers(quick, inputs, named, **options).counts(inputs)
    assert (np.array(["a", "b", "c"])[counts.argmax(1)] == named).mean() > 0.9
    student = pate.Classifier(module, ["a", "b", "c"]).fit(inputs, named)
    assert student.predict_proba(inputs).sum(1) == pytest.approx(np.ones(200))
    assert student.predict(inputs[:0]).shape == (0,)
    with pytest.raises(InvalidArgument, match="module must be"):
        pate.Classifier(Centroids(), range(3))


# --- votes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voting", "spread"),
    [(pate.GaussianVoting(2.0), stats.norm(scale=2 * math.sqrt(2))), (pate.LaplaceVoting(2.0), None)],
    ids=["gaussian", "laplace"],
)
def test_votes_have_the_stated_noise(voting, spread):
    """Two classes, a lead of 3 votes: the loser wins with P(noise difference > 3). Power: 10% less noise is seen."""
    wins = int((voting.vote(np.tile([[3, 0]], (200_000, 1))) == 1).sum())

    def chance(factor):
        if spread is not None:
            return stats.norm.sf(3 / (2 * factor * math.sqrt(2)))
        b = 2 * factor  # difference of two Laplace noises: density (1 + |x|/b)e^{−|x|/b}/4b
        return (2 + 3 / b) * math.exp(-3 / b) / 4

    assert stats.binomtest(wins, 200_000, chance(1.0)).pvalue > FALSE_ALARM
    assert stats.binomtest(wins, 200_000, chance(0.9)).pvalue < FALSE_ALARM


def test_the_check_has_the_stated_noise():
    voting = pate.ConfidentVoting(1.0, threshold=10, check_noise=3.0)
    passed = int(voting.check(np.tile([[8, 1]], (100_000, 1))).sum())
    assert stats.binomtest(passed, 100_000, stats.norm.sf(2 / 3)).pvalue > FALSE_ALARM
    assert stats.binomtest(passed, 100_000, stats.norm.sf(2 / 2.7)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("noise", [0, -1.0, math.nan, math.inf, "2"])
def test_bad_noise_is_refused(noise):
    for make in (pate.GaussianVoting, pate.LaplaceVoting, lambda n: pate.ConfidentVoting(1.0, 3, n)):
        with pytest.raises(InvalidArgument):
            make(noise)


# --- charges ------------------------------------------------------------------------------------------------------


def test_answers_are_charged_by_what_was_asked_and_answered(teachers, account):
    inputs, labels = blobs(50, seed=2)
    ensemble = pate.Ensemble(teachers, pate.ConfidentVoting(5.0, threshold=20, check_noise=20.0), account=account)
    answers = ensemble.ask(inputs)
    given = int(answers.answered.sum())
    charged = [line.event for line in account.statement().lines]
    assert charged == [ev.Repeated(ev.GaussianVoteCheck(20.0), 50), ev.Repeated(ev.GaussianVotes(5.0), given)]
    assert answers.event == ensemble.event(50)  # what was known in advance, not what happened
    right = [one == two for one, two in zip(answers.labels, labels.tolist(), strict=True) if one is not None]
    assert np.mean(right) > 0.9
    assert answers.epsilon(1e-5).upper == pytest.approx(dp.accounting.epsilon(answers.event, 1e-5).upper)


def test_what_does_not_fit_is_refused_before_anybody_votes(teachers, account, monkeypatch):
    monkeypatch.setattr(pate.Teachers, "counts", lambda *_: pytest.fail("the teachers were asked"))
    with pytest.raises(BudgetExceeded):
        pate.Ensemble(teachers, pate.ConfidentVoting(1.0, 2, 0.1), account=account).ask(np.zeros((1000, 2)))
    assert not account.statement().lines


def test_a_teacher_has_one_vote_whatever_it_predicts():
    class Everything:
        """Equal to each class, or to none with an error: what a teacher may have learned from one strange label."""

        def __init__(self, fails):
            self.fails = fails

        def __eq__(self, other):
            if self.fails:
                raise ValueError("a fact about somebody's label")
            return True

        __hash__ = None

    class Strange:
        def __init__(self, fails):
            self.fails = fails

        def predict(self, inputs):
            return np.array([Everything(self.fails)] * len(inputs), dtype=object)

    greedy, failing = (pate.Teachers((0, 1, 2), (Strange(fails),)) for fails in (False, True))
    assert greedy.counts(np.zeros((4, 1))).sum(axis=1).tolist() == [1] * 4
    assert failing.counts(np.zeros((4, 1))).sum() == 0


def test_a_key_is_charged_and_answered_once(teachers, account, tmp_path):
    inputs, _ = blobs(5, seed=3)
    ensemble = pate.Ensemble(teachers, pate.GaussianVoting(20.0), account=account)
    first = ensemble.ask(inputs, key="a", folder=tmp_path / "answers")
    again = ensemble.ask(inputs, key="a", folder=tmp_path / "answers")
    assert again.labels == first.labels
    assert len(account.statement().lines) == 1
    for file in (tmp_path / "answers").glob("*.json"):
        file.unlink()  # as if the process had been killed between the charge and the file
    for folder in ("answers", "answers", "other", "other"):  # a refusal must not make the next call succeed
        with pytest.raises(InvalidArgument, match="lost or kept in another folder"):
            ensemble.ask(inputs, key="a", folder=tmp_path / folder)
    assert len(account.statement().lines) == 1
    with pytest.raises(InvalidArgument, match="together with key"):
        ensemble.ask(inputs, key="b")


def test_a_declared_number_of_answers_is_one_charge_whatever_passes(teachers, account):
    inputs, _ = blobs(60, seed=5)
    voting = pate.ConfidentVoting(5.0, threshold=15, check_noise=20.0)
    ensemble = pate.Ensemble(teachers, voting, account=account)
    answers = ensemble.ask(inputs, answers=10)
    declared = ev.Composed((ev.Repeated(ev.GaussianVoteCheck(20.0), 60), ev.Repeated(ev.GaussianVotes(5.0), 10)))
    assert [line.event for line in account.statement().lines] == [declared] == [answers.event]
    assert answers.answered.sum() == 10  # fails only if fewer than 10 of 60 pass, each with P > 1/2: below 1e-7
    assert pate.Ensemble(teachers, pate.GaussianVoting(5.0)).ask(inputs, answers=7).answered.sum() == 7


def test_declared_answers_survive_a_crash_before_they_were_released(teachers, account, tmp_path, monkeypatch):
    inputs, _ = blobs(20, seed=6)
    ensemble = pate.Ensemble(teachers, pate.ConfidentVoting(10.0, threshold=15, check_noise=20.0), account=account)
    options = {"answers": 5, "key": "a", "folder": tmp_path / "answers"}
    with monkeypatch.context() as broken:
        broken.setattr(pate.Teachers, "counts", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ensemble.ask(inputs, **options)
    first = ensemble.ask(inputs, **options)
    assert ensemble.ask(inputs, **options).labels == first.labels
    assert len(account.statement().lines) == 1
    with pytest.raises(InvalidArgument, match="same questions"):
        ensemble.ask(inputs + 1, **options)
    with pytest.raises(InvalidArgument, match="same answers"):
        ensemble.ask(inputs, **{**options, "answers": 6})


def test_two_processes_do_not_draw_for_one_key(teachers, account, tmp_path, monkeypatch):
    inputs, _ = blobs(5, seed=3)
    ensemble = pate.Ensemble(teachers, pate.GaussianVoting(20.0), account=account)
    options = {"key": "a", "folder": tmp_path / "answers"}
    counts = pate.Teachers.counts

    def interrupted(self, questions):
        with pytest.raises(InvalidArgument, match="another process asks"):
            ensemble.ask(inputs, **options)
        return counts(self, questions)

    monkeypatch.setattr(pate.Teachers, "counts", interrupted)
    ensemble.ask(inputs, **options)
    assert len(account.statement().lines) == 1


# --- prices and the student ---------------------------------------------------------------------------------------


def test_the_price_of_agreeing_votes_is_lower_and_labelled():
    counts = np.tile([[250, 0, 0]], (100, 1))
    answers = pate.Answers((0,) * 100, ev.Repeated(ev.GaussianVotes(40.0), 100), (), counts)
    price = pate.data_dependent(answers, pate.GaussianVoting(40.0), 1e-5)
    assert price.epsilon < 0.5 * price.data_independent
    assert "secret" in str(price)
    split = pate.Answers((0,) * 100, answers.event, (), np.tile([[84, 83, 83]], (100, 1)))
    dear = pate.data_dependent(split, pate.GaussianVoting(40.0), 1e-5)
    assert dear.epsilon == dear.data_independent  # which holds for these votes too
    alone, _ = to_epsilon(spent_by_order(split, pate.GaussianVoting(40.0)).sum(axis=0), 1e-5)
    assert dear.data_independent <= alone <= 1.15 * dear.data_independent  # α/σ² at every order, by Rényi DP
    with pytest.raises(InvalidArgument, match="hold their votes"):
        pate.data_dependent(pate.Answers((0,), answers.event), pate.GaussianVoting(40.0), 1e-5)


def test_charts_say_what_may_be_published():
    counts = np.array([[250, 0, 0], [200, 50, 0], [90, 80, 80]])
    voting = pate.ConfidentVoting(40.0, 150, 100.0)
    answers = pate.Answers((0, 0, None), ev.Gaussian(40.0), (), counts)
    open_to_all = pate.plot_answers(pate.Answers(answers.labels, answers.event), voting, 1e-5)  # needs no votes
    assert "data-independent" in open_to_all.axes[1].get_title()
    secret = pate.plot_votes(answers, voting, 1e-5)
    assert "SECRET" in secret.get_suptitle()
    independent, dependent = (line.get_ydata() for line in secret.axes[1].lines)
    assert dependent[-1] < independent[-1]
    with pytest.raises(InvalidArgument, match="hold their votes"):
        pate.plot_votes(pate.Answers(answers.labels, answers.event), voting, 1e-5)


@pytest.mark.parametrize("most", [1, 3, None])
def test_a_chart_for_all_ends_at_the_price_of_the_event(most):
    """One of three questions passed. What that one cost is known afterwards only, so the chart must not show it."""
    voting = pate.ConfidentVoting(40.0, 150, 100.0)
    answers = pate.Answers((0, None, None), pate.voting_event(voting, 3, most))
    drawn = pate.plot_answers(answers, voting, 1e-5).axes[1].lines[0].get_ydata()
    assert drawn[-1] == answers.epsilon(1e-5).upper


def test_a_student_learns_from_what_was_released():
    inputs, labels = blobs(300, seed=4)
    known = tuple(int(label) if i < 30 else None for i, label in enumerate(labels))
    answers = pate.Answers(known, ev.Repeated(ev.GaussianVotes(40.0), 30))
    for rounds in (0, 3):
        student = pate.train_student(Centroids(), inputs, answers, rounds=rounds, confidence=0.9)
        assert np.mean(student.predict(inputs) == labels) > 0.95
    with pytest.raises(InvalidArgument, match="hold a label"):
        pate.train_student(Centroids(), inputs, pate.Answers((None,) * 300, answers.event))


def test_the_grid_is_a_multiple_of_a_vote():
    assert pate.ConfidentVoting(1.0, threshold=Fraction(1, 3), check_noise=1e-3).check(np.array([[1, 0]])).all()


def test_an_account_must_protect_what_one_shard_holds(teachers, tmp_path):
    ledger = dp.Ledger(tmp_path / "units.ledger")
    persons = ledger.account("persons", budget=dp.ApproxDP(1.0, 1e-5), unit=dp.person("id", max_rows=3))
    phones = ledger.account("phones", budget=dp.ApproxDP(1.0, 1e-5), unit=dp.client())
    voting = pate.ConfidentVoting(5.0, threshold=20, check_noise=20.0)
    for account in (persons, phones):
        with pytest.raises(InvalidArgument, match=r"protect what one shard holds.*train_teachers\(persons="):
            pate.Ensemble(dataclasses.replace(teachers, by_person=False), voting, account=account)
    pate.Ensemble(dataclasses.replace(teachers, by_person=True), voting, account=persons)
