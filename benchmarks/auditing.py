"""What audits see: `python -m benchmarks.auditing`.

First, the runs and seconds that an audit needs to see missing noise.

A fault is seen if its audit reports a violation with probability 99.9%, at one false alarm in a million. The audit has
to choose its event by itself. Two references know the best event already:

- the best test of its kind, by the normal approximation: what could be reached;
- two Clopper–Pearson intervals at one point (ε, δ), which is what a plain audit does.

For ours, the margin by which a test rejects is measured in several runs, and the number of runs at which its mean is
3.09 standard deviations above 0 is computed, since margins grow like the square root of the runs.

DP-Auditorium is measured on Laplace noise where an interpreter has it: `--auditorium PYTHON` (_auditing_auditorium.py).

Then, what a claim's own curve sees that one of its points and a Gaussian do not (_auditing_curves.py), and what
canaries show in one run: ideal ones, and those of a small model at ε = 1 to 8. Last, what the final model alone shows
on MNIST at ε = 10, where the images are at hand: `--data DIR`; `--part noise|curves|canaries|mnist` measures one.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from benchmarks._auditing_canaries import ideal_rows, training_rows
from benchmarks._auditing_curves import curve_rows
from benchmarks._auditing_mnist import mnist_rows
from benchmarks._table import Row, arguments, report
from discreet import queries
from discreet.accounting import closed_forms
from discreet.auditing import audit
from discreet.auditing._replay import Pair
from discreet.auditing.claims import claimed
from discreet.auditing.counts import clopper_pearson
from discreet.auditing.normal import Separation
from discreet.auditing.pair_test import PairTest
from discreet.auditing.targets import additive, opened
from discreet.mechanisms import Gaussian, Laplace
from discreet.mechanisms.additive import Additive

ALPHA, POWER = 1e-6, 0.999
Z = float(special.ndtri(POWER))
#: A sum on a fine grid, so that noise is as good as continuous.
SUM = queries.sum([1.0] * 10, bounds=(0, 100))


@dataclass(frozen=True)
class Case:
    """A mechanism, the runs that the best test needs for 20% and for 10% of missing noise, and how to test it."""

    name: str
    mechanism: Additive
    best: tuple[float, float]
    estimator: str = "auto"
    distance: int = 1
    #: Rates of an event at shift `mu` of the noise, for Clopper–Pearson; None where one point is hopeless.
    point: Callable[[float, float], tuple[float, float]] | None = None
    slope: float = 1.0
    intercept: float = 0.0


def weaker(mechanism: Additive, missing: float) -> Additive:
    share = Fraction(round(100 * (1 - missing)), 100)
    if isinstance(mechanism, Laplace):
        return replace(mechanism, scale=mechanism.scale * share)
    assert isinstance(mechanism, Gaussian)
    return replace(mechanism, standard_deviation=mechanism.standard_deviation * share)


def pair_of(case: Case) -> Pair:
    moved = SUM.values + case.distance * SUM.sensitivity().linf
    return Pair(SUM, replace(SUM, values=moved), grows=True)


def margin(case: Case, mechanism: Additive, runs: int) -> tuple[float, float]:
    """By how many standard deviations a test of the whole size rejects, and how many it needs to reject at all."""
    claim = claimed(case.mechanism.event(SUM), grows=True, distance=case.distance)
    pair = pair_of(case)
    level = ALPHA / 2  # the last look's part
    if case.estimator == "mu":
        sides = [additive(mechanism, value, runs)[:, 0].astype(np.float64) for value in (pair.first, pair.second)]
        separation = Separation.of(*sides)
        needed = -float(special.ndtri(level))
        spread = math.sqrt(1 + separation.statistic**2 / (4 * runs))
        return (separation.statistic - claim.forward[0].largest_mu() * separation.factor) / spread - needed, needed
    source = opened(mechanism, "black_box", vectorized=False).on(pair)
    test = PairTest(0, source, claim, case.estimator, case.distance)
    event, counted, witness = test.look(source.rows(0, runs), source.rows(1, runs), level)
    line = event.lines[0]
    rates = witness.false_alarms[0] / counted.below, witness.hits[0] / counted.above
    spread = counted.spread(*rates, line)
    critical = counted.critical(rates[0], line, level)
    return (rates[1] - line.slope * rates[0] - critical) / spread, (critical - line.intercept) / spread


def runs_needed(case: Case, missing: float, repeats: int, start: float) -> float:
    """The runs at which the margin is 3.09 of its standard deviations above 0."""
    mechanism, runs = weaker(case.mechanism, missing), int(start)
    measured = [margin(case, mechanism, runs) for _ in range(repeats)]
    mean = statistics.fmean(value for value, _ in measured)
    needed = statistics.fmean(value for _, value in measured)
    spread = max(1.0, statistics.stdev(value for value, _ in measured))
    signal = mean + needed
    return runs * ((Z * spread + needed) / signal) ** 2


def clopper_pearson_needed(case: Case, missing: float) -> float:
    """The runs that two intervals need at the best event, which is known to them."""
    assert case.point is not None
    point = case.point

    def enough(runs: int) -> bool:
        best = -math.inf
        for threshold in np.linspace(-4.0, 6.0, 201):
            low, high = point(float(threshold), 1 / (1 - missing))
            # At its 99.9% worst, both counts together.
            spread = math.hypot(math.sqrt(high * (1 - high)), case.slope * math.sqrt(low * (1 - low))) / math.sqrt(runs)
            above = clopper_pearson(round(low * runs), runs, ALPHA / 2)[1]
            below = clopper_pearson(round(high * runs), runs, ALPHA / 2)[0]
            best = max(best, below - case.slope * above - case.intercept - Z * spread)
        return best > 0

    low, high = 100, 200
    while not enough(high) and high < 10**11:
        low, high = high, 2 * high
    while high - low > low / 100 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def laplace_point(epsilon: float) -> Callable[[float, float], tuple[float, float]]:
    def rates(threshold: float, stretch: float) -> tuple[float, float]:
        """Of the event that the output is at least `threshold`, with noise smaller by `stretch`."""
        tails = [stretch * epsilon * (threshold - shift) for shift in (0.0, 1.0)]
        low, high = (0.5 * math.exp(-t) if t > 0 else 1 - 0.5 * math.exp(t) for t in tails)
        return low, high

    return rates


def gaussian_point(mu: float) -> Callable[[float, float], tuple[float, float]]:
    def rates(threshold: float, stretch: float) -> tuple[float, float]:
        """Thresholds far in the tail: `threshold` counts standard deviations."""
        at = threshold + 1.0
        return float(special.ndtr(-at)), float(special.ndtr(mu * stretch - at))

    return rates


def cases() -> list[Case]:
    gaussian = Gaussian.for_epsilon(SUM, 1.0, 1e-5)
    mu = 1 / closed_forms.gaussian_noise_multiplier(1.0, 1e-5)
    return [
        Case("Laplace ε=1", Laplace.for_epsilon(SUM, 1.0), (5.5e3, 28e3), point=laplace_point(1.0), slope=math.e),
        Case(
            "Laplace ε=0.1",
            Laplace.for_epsilon(SUM, 0.1),
            (220e3, 1.1e6),
            point=laplace_point(0.1),
            slope=math.exp(0.1),
        ),
        Case(
            "Gaussian (1, 1e-5), whole curve",
            gaussian,
            (28e3, 140e3),
            point=gaussian_point(mu),
            slope=math.e,
            intercept=1e-5,
        ),
        Case("Gaussian (1, 1e-5), test of μ", gaussian, (28e3, 140e3), "mu"),
        Case("Gaussian (1, 1e-5), test of μ at distance 10", gaussian, (0.6e3, 2.8e3), "mu", 10),
    ]


#: By tester and share of missing noise: the runs on each dataset, and the seconds of one test.
Peers = dict[tuple[str, float], tuple[float, float]]


def auditorium(python: Path | None, repeats: int) -> Peers:
    """What DP-Auditorium's testers need; nothing if no interpreter has it."""
    if python is None:
        return {}
    script = Path(__file__).with_name("_auditing_auditorium.py")
    done = subprocess.run([python, script, str(repeats)], capture_output=True, text=True, check=True)
    results = json.loads(done.stdout.splitlines()[-1])
    return {(name, missing): (float(runs), float(seconds)) for name, missing, runs, seconds in results}


def peer_rows(name: str, missing: float, ours: tuple[float, float], peers: Peers) -> list[Row]:
    """Our runs and seconds beside those of DP-Auditorium's testers."""
    absent = "not installed: --auditorium PYTHON names an interpreter that has it"
    rows = []
    for tester in ("histogram", "hockey stick"):
        theirs = peers.get((tester, missing), (None, None))
        for metric, own, their in zip(("runs on each dataset", "seconds of one audit"), ours, theirs, strict=True):
            note = "" if theirs[0] is not None else absent
            rows.append(Row(name, metric, own, f"DP-Auditorium 0.0.1, {tester}", their, "lower", note))
    return rows


def rows_of(case: Case, repeats: int, peers: Peers) -> list[Row]:
    rows = []
    for missing, best in zip((0.2, 0.1), case.best, strict=True):
        name = f"{case.name}, {missing:.0%} of the noise missing"
        ours = runs_needed(case, missing, repeats, 1.4 * best)
        metric = "runs on each dataset"
        rows.append(Row(name, metric, ours, "the best test, event known", best, "lower"))
        if case.point is not None:
            rows.append(
                Row(name, metric, ours, "Clopper–Pearson at one point", clopper_pearson_needed(case, missing), "lower")
            )
        size = int(1.5 * ours)
        start = time.perf_counter()
        estimator: Any = case.estimator
        report = audit(
            weaker(case.mechanism, missing),
            case.mechanism.event(SUM),
            [pair_of(case)],
            max_samples=max(1_000, size),
            estimator=estimator,
            distance=case.distance,
        )
        seconds = time.perf_counter() - start
        note = f"{'a violation' if report.violated else 'no violation'} after {report.samples // 2:,} runs"
        rows.append(Row(name, "seconds of one audit", seconds, "none", None, "lower", note))
        if case.name == "Laplace ε=1":
            rows += peer_rows(name, missing, (ours, seconds), peers)
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist"), help="folder of MNIST's idx files")
    choices = ("all", "noise", "curves", "canaries", "mnist")
    parser.add_argument("--part", choices=choices, default="all", help="which rows to measure")
    parser.add_argument("--auditorium", type=Path, metavar="PYTHON", help="an interpreter that has dp_auditorium")
    args = parser.parse_args()
    rows: list[Row] = []
    if args.part in ("all", "noise"):
        peers = auditorium(args.auditorium, 1 if args.quick else 4)
        rows += [row for case in cases() for row in rows_of(case, 5 if args.quick else 60, peers)]
    if args.part in ("all", "curves"):
        rows += curve_rows(quick=args.quick)
    if args.part in ("all", "canaries"):
        rows += ideal_rows(1 if args.quick else 21)
        rows += training_rows(*((1, 1_000) if args.quick else (5, 2_000)))
    if args.part == "mnist" or (args.part == "all" and not args.quick):  # a thousand trainings take minutes
        rows += mnist_rows(args.data, args.quick)
    report(args, "auditing", rows, ["numpy", "scipy", "torch"])


if __name__ == "__main__":
    main()
