"""Error and speed of local reports, against pure-ldp and numpy's inexact generator: `python -m benchmarks.local`.

Reports per second are those of devices; numpy does the same draws with its own generator, without packing bytes. Errors
are root mean squared errors of a rare category's share: ours by formula, the peer's over repeated collections.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks._table import Row, arguments, median_seconds, report
from discreet.mechanisms import local
from discreet.mechanisms.local import FrequencyProtocol
from discreet.mechanisms.local.hashing import hashes

PEER, NUMPY = "pure-ldp 1.2", "numpy, inexact"
EPSILON = Fraction(1)


def peer_protocol(kind: type[FrequencyProtocol], categories: int) -> tuple[Callable[[int], Any], Any] | str:
    """The peer's client and server of the same protocol, or the reason why it cannot run."""
    try:
        from pure_ldp import frequency_oracles as peer
    except ImportError as error:
        return f"pure-ldp cannot be imported ({error.name})"
    epsilon = float(EPSILON)
    # Its values are counted from 1.
    if kind is local.GeneralizedResponse:
        client, server = peer.DEClient(epsilon, categories), peer.DEServer(epsilon, categories)
    elif kind is local.UnaryEncoding:
        client, server = (
            peer.UEClient(epsilon, categories, use_oue=True),
            peer.UEServer(epsilon, categories, use_oue=True),
        )
    elif kind is local.LocalHashing:
        client, server = (
            peer.LHClient(epsilon, categories, use_olh=True),
            peer.LHServer(epsilon, categories, use_olh=True),
        )
    else:
        return "no such protocol there"
    try:
        client.privatise(1)
    except TypeError:
        return "pure-ldp needs xxhash < 4 for this protocol"
    return (lambda value: client.privatise(value + 1)), server


def numpy_draws(kind: type[FrequencyProtocol], categories: int, values: np.ndarray[Any, Any]) -> Callable[[], object]:
    """The same draws with numpy's generator."""
    generator, people = np.random.default_rng(), values.size
    protocol = kind(EPSILON, tuple(range(categories)))

    def one_category() -> object:
        keep = generator.random(people) < protocol.truth
        other = (values + 1 + generator.integers(0, categories - 1, people)) % categories
        return np.where(keep, values, other)

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
        places = hashes(seeds, values.astype(np.uint64), values_there)
        keep = generator.random(people) < protocol.truth
        return seeds, np.where(
            keep, places, (places + 1 + generator.integers(0, values_there - 1, people)) % values_there
        )

    draws = {local.UnaryEncoding: bits, local.HadamardResponse: column, local.LocalHashing: hashed}
    return draws.get(kind, one_category)


def spread(collect: Callable[[], float], rounds: int) -> float:
    """The root mean squared error of an estimate of 0."""
    return math.sqrt(sum(collect() ** 2 for _ in range(rounds)) / rounds)


def peer_share(kind: type[FrequencyProtocol], categories: int, values: np.ndarray[Any, Any]) -> float:
    """The peer's estimate of the share of the last category, which nobody holds."""
    made = peer_protocol(kind, categories)
    assert not isinstance(made, str)
    client, server = made
    for value in values.tolist():
        server.aggregate(client(value))
    return float(server.estimate(categories, suppress_warnings=True)) / values.size


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    people = 100_000 if args.quick else 1_000_000
    few, rounds = (500, 20) if args.quick else (1000, 100)
    categories = 16
    values = np.random.default_rng(0).integers(0, categories - 1, people)
    rows = []
    for kind in (local.GeneralizedResponse, local.UnaryEncoding, local.LocalHashing, local.HadamardResponse):
        protocol, name = kind(EPSILON, tuple(range(categories))), kind.__name__
        case = f"{name}, {categories} categories, ε = {float(EPSILON):g}"
        seconds = median_seconds(partial(protocol.simulate, values), 3)
        inexact = people / median_seconds(numpy_draws(kind, categories, values), 3)
        rows.append(Row(f"{case}, n={people:.0e}", "reports per second", people / seconds, NUMPY, inexact, "higher"))
        made = peer_protocol(kind, categories)
        if isinstance(made, str):
            rows.append(Row(case, "reports per second", people / seconds, PEER, None, "higher", made))
            continue
        start = time.perf_counter()
        for value in values[:few].tolist():
            made[0](value)
        theirs = few / (time.perf_counter() - start)
        rows.append(Row(case, "reports per second", people / seconds, PEER, theirs, "higher", f"theirs at n={few}"))
        sample = values[:few]
        ours = math.sqrt(float(protocol.variance(0.0, few)))
        other = spread(partial(peer_share, kind, categories, sample), rounds)
        note = (
            f"ours exact, theirs from {rounds} collections of {few} reports, good to ±{1 / math.sqrt(2 * rounds):.0%}"
        )
        rows.append(Row(case, "error of a rare share", ours, PEER, other, "lower", note))
    best = local.best_for(categories, float(EPSILON), few).protocol
    stated = math.sqrt(float(best.variance(0.0, few)))
    grr = local.GeneralizedResponse(EPSILON, tuple(range(categories)))
    worst = math.sqrt(float(grr.variance(0.0, few)))
    case = f"best_for: {type(best).__name__}, {categories} categories"
    rows.append(Row(case, "error of a rare share", stated, "randomized response", worst, "lower", "exact"))
    report(args, "local", rows, ["numpy", "pure-ldp"])


if __name__ == "__main__":
    main()
