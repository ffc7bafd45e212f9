"""PATE and private selection: labels within ε, the student's accuracy, and what a search costs.

    python -m benchmarks.pate [--data DIR] [--quick] [--json FILE]

DIR holds the four idx files of MNIST, gzipped or not; without it the digits of scikit-learn take their place. Teachers
are linear models on fixed wavelet features. Every ε here holds for all votes, except where a row says that it depends
on the data. Labels within ε are compared with the noisy plurality of 2017: Laplace noise of the same deviation.
Searches are compared with publishing every run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._digits import Digits, Linear, Spread, mnist, small, spread_out
from benchmarks._table import Row, arguments, report
from discreet import accounting, events
from discreet.learning import pate
from discreet.learning.pate import voting_event
from discreet.numeric.search import least_integer

_DELTA = 1e-5
_GOAL = 3.2
#: Papernot et al. 2018: 250 teachers, ε = 1.97 at δ = 1e-5 given the votes, and their student's accuracy in percent.
_PUBLISHED, _PUBLISHED_EPSILON = 98.5, 1.97
#: The run that searches repeat: DP-SGD at about ε = 1 and δ = 1e-6.
_RUN = events.Repeated(events.PoissonSampled(0.02, events.Gaussian(2.0)), 500)
_SEARCH_DELTA = 1e-6


def most_labels(voting: pate.Voting, epsilon: float, limit: int) -> int:
    """How many questions can be answered within ε, whatever the votes are."""

    def too_many(count: int) -> bool:
        return accounting.epsilon(voting_event(voting, count), _DELTA).upper > epsilon

    return least_integer(too_many, 0, limit + 1) - 1


def student_of(
    student: Spread, digits: Digits, counts: NDArray[np.int64], voting: pate.Voting, labels: int
) -> tuple[float, float]:
    """The accuracy of a student of `labels` released labels, and of the labels, in percent."""
    if labels == 0:
        return 10.0, 0.0
    numbers = np.arange(labels)
    winners = voting.vote(counts[:labels])
    answers = pate.Answers(tuple(winners.tolist()), voting_event(voting, labels))
    pate.train_student(student, numbers, answers)
    right = 100 * float(np.mean(winners == digits.public_labels[:labels]))
    return 100 * float(np.mean(student.predict(digits.test) == digits.test_labels)), right


def pate_rows(digits: Digits, teachers: int, noise: float) -> list[Row]:
    """Labels and accuracy at several ε, and the goal on MNIST."""
    order = spread_out(digits.public, 1000)  # which questions come first is decided on public images
    digits = replace(digits, public=digits.public[order], public_labels=digits.public_labels[order])
    trained = pate.train_teachers(
        Linear(), digits.private, digits.labels, teachers=teachers, classes=range(10), progress=False
    )
    counts = trained.counts(digits.public)
    student = Spread(digits.public)
    gaussian, laplace = pate.GaussianVoting(noise), pate.LaplaceVoting(noise / np.sqrt(2))
    case = f"{digits.name}, {teachers} teachers, noise {noise:g} votes"
    rows = []
    for epsilon in (1.0, 2.0, 8.0):
        ours, fewer = (most_labels(voting, epsilon, len(digits.public)) for voting in (gaussian, laplace))
        (mine, right), (with_laplace, _) = (
            student_of(student, digits, counts, voting, count) for voting, count in ((gaussian, ours), (laplace, fewer))
        )
        at = f"{case}, ε = {epsilon:g}, δ = {_DELTA:g}"
        plain = "noisy max with Laplace noise"
        rows.append(Row(at, "labels answered", ours, plain, fewer, "higher", f"{right:.1f}% of the labels are right"))
        rows.append(Row(at, "student's test accuracy, %", mine, plain, with_laplace, "higher"))
    labels = most_labels(gaussian, _GOAL, len(digits.public))
    accuracy, right = student_of(student, digits, counts, gaussian, labels)
    event = voting_event(gaussian, labels)
    answers = pate.Answers((0,) * labels, event, (), counts[:labels])
    price = pate.data_dependent(answers, gaussian, _DELTA)
    published = "Papernot et al. 2018, published, on MNIST"
    theirs, epsilon_of_theirs = (_PUBLISHED, _PUBLISHED_EPSILON) if "MNIST" in digits.name else (None, None)
    note = f"{labels} labels, {right:.1f}% right; ε = {price.data_independent:.3f} data-independent"
    rows.append(Row(case, "student's test accuracy, %, at ε = 3.2", accuracy, published, theirs, "higher", note))
    secret = "data-dependent, as the published one; computed from exact votes"
    rows.append(Row(case, "ε given the votes", price.epsilon, published, epsilon_of_theirs, "lower", secret))
    return rows


def selection_rows(quick: bool) -> list[Row]:
    """The cheapest law of random stopping with a given mean number of trials, against publishing all runs."""
    rows = []
    for count in (10, 100, 1000):
        laws: dict[str, events.Trials] = {
            "geometric": events.NegativeBinomialTrials(1, 1 / count),
            "Poisson": events.PoissonTrials(count),
        }
        prices = {
            name: accounting.epsilon(events.SelectedFromRepeats(_RUN, law), _SEARCH_DELTA).upper
            for name, law in laws.items()
        }
        name = min(prices, key=lambda law: prices[law])
        naive = accounting.epsilon(events.Repeated(_RUN, count), _SEARCH_DELTA).upper
        single = accounting.epsilon(_RUN, _SEARCH_DELTA).upper
        case = f"best of {count} trials on average, one run ε = {single:.3f}, δ = {_SEARCH_DELTA:g}"
        rows.append(Row(case, "ε", prices[name], "every run published", naive, "lower", f"{name} stopping"))
    return rows


def main() -> None:
    """Measure, print the table, and write it if asked."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, help="folder of MNIST's idx files; without it scikit-learn's digits")
    args = parser.parse_args()
    if args.data is None:
        digits, teachers, noise = small(), 50, 8.0
    elif args.quick:
        digits, teachers, noise = mnist(args.data, 8000, 1000, 1000), 40, 6.4
    else:
        digits, teachers, noise = mnist(args.data, 50_000, 10_000, 10_000), 250, 40.0
    rows = [*pate_rows(digits, teachers, noise), *selection_rows(args.quick)]
    report(args, "pate", rows, ["torch", "scikit-learn"])


if __name__ == "__main__":
    main()
