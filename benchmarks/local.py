"""Error and speed of local reports, against pure-ldp and numpy's inexact generator: `python -m benchmarks.local`.

Reports per second are those of devices; numpy does the same draws with its own generator, without packing bytes.
Seconds are those of one processor, and both sides run in turn, so that other work on the machine matters little. The
peer has one call for each report, as its users write it, on Python's integers, which are its fastest input. Errors are
standard errors of a rare category's share. The peer's follow exactly from the probabilities that its client uses, and
collections of its reports check them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from benchmarks._table import Row, arguments, in_turn, median_seconds, report
from discreet.mechanisms import local
from discreet.mechanisms.local import FrequencyProtocol
from discreet.mechanisms.local.hashing import hashes

PEER, NUMPY = "pure-ldp 1.2", "numpy, inexact"
EPSILON = Fraction(1)
RARE = "error of a rare share"
DIMENSION = 16


@dataclass(frozen=True)
class Peer:
    """The peer's client and server of the same protocol.

    Attributes:
        client: one value, from 0, to one report.
        server: what aggregates and estimates.
        chances: the probabilities that a report supports its own category, and that it supports another one.
    """

    client: Callable[[int], Any]
    server: Any
    chances: tuple[float, float]

    def error(self, people: int) -> float:
        """The standard error of the share of a category that nobody holds."""
        own, other = self.chances
        return math.sqrt(other * (1 - other) / people) / (own - other)


def peer_protocol(kind: type[FrequencyProtocol], categories: int) -> Peer | str:
    """The peer's side, or the reason why it cannot run."""
    try:
        from pure_ldp import frequency_oracles as peer
        from pure_ldp.frequency_oracles import hadamard_response as hadamard
    except ImportError as error:
        return f"pure-ldp cannot be imported ({error.name})"
    epsilon = float(EPSILON)
    client: Any
    if kind is local.GeneralizedResponse:
        client, server = peer.DEClient(epsilon, categories), peer.DEServer(epsilon, categories)
        chances = client.p, client.q
    elif kind is local.UnaryEncoding:
        client = peer.UEClient(epsilon, categories, use_oue=True)
        server = peer.UEServer(epsilon, categories, use_oue=True)
        chances = client.p, client.q
    elif kind is local.LocalHashing:
        client = peer.LHClient(epsilon, categories, use_olh=True)
        server = peer.LHServer(epsilon, categories, use_olh=True)
        chances = client.p, 1 / client.g
    elif kind is local.HadamardResponse:
        server = hadamard.HadamardResponseServer(epsilon, categories)
        client = hadamard.HadamardResponseClient(epsilon, categories, server.get_hash_funcs())
        chances = 1 - client.hr.pri_para, 0.5
    else:
        return "no such protocol there"
    try:
        client.privatise(1)
    except TypeError:
        return "pure-ldp needs xxhash < 4 for this protocol"
    return Peer(lambda value: client.privatise(value + 1), server, chances)  # its values are counted from 1


def numpy_draws(kind: type[FrequencyProtocol], categories: int, values: np.ndarray[Any, Any]) -> Callable[[], object]:
    """The same draws with numpy's generator."""
    generator, people = np.random.default_rng(), values.size
    protocol = kind(EPSILON, tuple(range(categories)))

    def one_category() -> object:
        keep = generator.random(people) < protocol.truth
        lies = (values + 1 + generator.integers(0, categories - 1, people)) % categories
        return np.where(keep, values, lies)

    def bits() -> object:
        ones = generator.random((people, categories)) < protocol.noise
        ones[np.arange(people), values] = generator.random(people) < 0.5
        return ones

    def column() -> object:
        positive = generator.random(people) < protocol.truth
        order = 1 << categories.bit_length()
        drawn = generator.integers(0, order, people)
        row = values + 1
        shared = row & drawn
        for shift in (16, 8, 4, 2, 1):
            shared = shared ^ (shared >> shift)
        return np.where((shared & 1 == 0) != positive, drawn ^ (row & -row), drawn)

    def hashed() -> object:
        seeds = generator.integers(0, 1 << 48, people, dtype=np.uint64)
        values_there = 1 + round(math.exp(EPSILON))
        hashed_values = hashes(seeds, values.astype(np.uint64), values_there)
        keep = generator.random(people) < protocol.truth
        return seeds, np.where(
            keep, hashed_values, (hashed_values + 1 + generator.integers(0, values_there - 1, people)) % values_there
        )

    draws = {local.UnaryEncoding: bits, local.HadamardResponse: column, local.LocalHashing: hashed}
    return draws.get(kind, one_category)


def spread(collect: Callable[[], float], rounds: int) -> float:
    """The root mean squared error of an estimate of 0."""
    return math.sqrt(sum(collect() ** 2 for _ in range(rounds)) / rounds)


def peer_share(kind: type[FrequencyProtocol], categories: int, values: list[int]) -> float:
    """The peer's estimate of the share of the last category, which nobody holds."""
    made = peer_protocol(kind, categories)
    assert not isinstance(made, str)
    for value in values:
        made.server.aggregate(made.client(value))
    return float(made.server.estimate(categories, suppress_warnings=True)) / len(values)


def all_simulations(values: np.ndarray[Any, Any], categories: int) -> dict[str, Callable[[], object]]:
    """One report of each person, in every protocol for one value of each person."""
    words = [f"word{value}" for value in values.tolist()]
    numbers = values / categories
    frequency = (local.GeneralizedResponse, local.SubsetSelection, local.UnaryEncoding, local.LocalHashing)
    made: dict[str, Callable[[], object]] = {}
    for kind in (*frequency, local.HadamardResponse):
        made[kind.__name__] = partial(kind(EPSILON, tuple(range(categories))).simulate, values)
    for mean in (local.OneBit, local.Piecewise, local.Hybrid):
        made[mean.__name__] = partial(mean(EPSILON, (Fraction(0), Fraction(1))).simulate, numbers)
    vectors = np.random.default_rng(1).normal(size=(values.size, DIMENSION))
    made[f"UnitVectors, {DIMENSION} dimensions"] = partial(local.UnitVectors(EPSILON, DIMENSION).simulate, vectors)
    made["CountMeanSketch"] = partial(local.CountMeanSketch(EPSILON).simulate, words)
    made["PrefixTree"] = partial(local.PrefixTree(EPSILON, "0123456789dorw", (4, 5, 6)).simulate, words)
    made["Rappor"] = partial(local.Rappor().simulate, words)
    return made


def privunit_variance(epsilon: float, dimension: int) -> float:
    """The variance of PrivUnit with real numbers and its best cap (Asi, Feldman & Talwar 2022), for one person."""
    half = (dimension - 1) / 2
    thresholds = np.linspace(0, 1, 20_001)[:-1]
    masses = special.betainc(half, half, (1 - thresholds) / 2)
    # The density of an inner product with a uniform direction, times the product, integrated from the threshold on.
    density = math.exp(special.gammaln(dimension / 2) - special.gammaln(half)) / math.sqrt(math.pi)
    means = density * (1 - thresholds**2) ** half / (dimension - 1)
    gains = means * math.expm1(epsilon) / (1 + masses * math.expm1(epsilon))
    return float(gains.max() ** -2 - 1)


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    people, turns = (100_000, 3) if args.quick else (1_000_000, 9)
    few, rounds = (500, 20) if args.quick else (1000, 100)
    categories = 16
    values = np.random.default_rng(0).integers(0, categories - 1, people)
    rows, peers = [], []
    for kind in (local.GeneralizedResponse, local.UnaryEncoding, local.LocalHashing, local.HadamardResponse):
        protocol, name = kind(EPSILON, tuple(range(categories))), kind.__name__
        case = f"{name}, {categories} categories, ε = {float(EPSILON):g}"
        simulate = partial(protocol.simulate, values)
        ours, theirs = in_turn(simulate, numpy_draws(kind, categories, values), turns, time.process_time)
        case_n = f"{case}, n={people:.0e}"
        rows.append(Row(case_n, "reports per second", people / ours, NUMPY, people / theirs, "higher"))
        made = peer_protocol(kind, categories)
        if isinstance(made, str):
            rows.append(Row(case, "reports per second", people / ours, PEER, None, "higher", made))
            continue
        asked = values[: people // 50].tolist()
        ours, theirs = in_turn(simulate, partial(_each, made.client, asked), turns, time.process_time)
        note = f"theirs: {len(asked)} calls in a loop"
        rows.append(Row(case, "reports per second", people / ours, PEER, len(asked) / theirs, "higher", note))
        measured = spread(partial(peer_share, kind, categories, values[:few].tolist()), rounds)
        stated = made.error(few)
        peers.append(stated)
        within = f"{measured:.4g} ± {stated / (2 * rounds) ** 0.5:.2g}"
        note = f"both exact; {rounds} collections of {few} reports there: {within}"
        rows.append(Row(case, RARE, math.sqrt(float(protocol.variance(0.0, few))), PEER, stated, "lower", note))
    best = local.best_for(categories, float(EPSILON), few).protocol
    stated = math.sqrt(float(best.variance(0.0, few)))
    case = f"best_for: {type(best).__name__}, {categories} categories"
    note = "exact, the best of those above" if peers else "pure-ldp cannot run"
    rows.append(Row(case, RARE, stated, PEER, min(peers, default=None), "lower", note))
    for epsilon in (1.0, 4.0, 8.0):
        case = f"UnitVectors, {DIMENSION} dimensions, ε = {epsilon:g}, n = 1"
        ours, note = local.UnitVectors(Fraction(epsilon), DIMENSION).variance(1), "both exact; theirs: real numbers"
        best_known = privunit_variance(epsilon, DIMENSION)
        rows.append(Row(case, "variance of the mean", ours, "PrivUnit, formula", best_known, "lower", note))
    for name, everybody in all_simulations(values, categories).items():
        seconds = median_seconds(everybody, 3, time.process_time) * 1_000_000 / people
        rows.append(Row(f"{name}, n={people:.0e}", "seconds for a million", seconds, "the target", 1.0, "lower"))
    report(args, "local", rows, ["numpy", "pure-ldp"])


def _each(client: Callable[[int], Any], values: list[int]) -> None:
    for value in values:
        client(value)


if __name__ == "__main__":
    main()
