"""Speed of exact noise, against OpenDP's exact and numpy's inexact samplers: `python -m benchmarks.sampling`.

All run on one core, on vectors of the same length, in one run. Memory is the peak allocation of one call.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks._table import Row, arguments, median_seconds, report
from discreet.mechanisms.sampling import samplers
from discreet.mechanisms.sampling.blocks import block_sampler

OPENDP = "opendp 0.16"
NUMPY = "numpy, inexact"


def opendp_noise(make: str, scale: float, size: int) -> Callable[[], object] | str:
    """OpenDP's exact integer noise on a vector of zeros, or the reason why it cannot run."""
    try:
        import opendp.prelude as peer
    except ImportError:
        return "opendp is not installed (the bench extra has it)"
    peer.enable_features("contrib")
    metric: Any = peer.l1_distance(T=int) if make == "laplace" else peer.l2_distance(T=float)
    space = peer.vector_domain(peer.atom_domain(T=int)), metric
    measurement = (peer.m.make_laplace if make == "laplace" else peer.m.make_gaussian)(*space, scale=scale)
    zeros = [0] * size
    return lambda: measurement(zeros)


def throughput(function: Callable[[], object], size: int, repeats: int) -> float:
    return size / median_seconds(function, repeats)


def peak_bytes(function: Callable[[], object]) -> float:
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    ours_size = 200_000 if args.quick else 1_000_000
    theirs_size = 20_000 if args.quick else 1_000_000
    repeats = 3 if args.quick else 5
    generator = np.random.default_rng()
    rows = []
    for scale in (0.5, 10.0, 1e6, 1e12):
        variance = Fraction(scale) ** 2
        numpy_laplace = partial(generator.laplace, scale=scale, size=ours_size)
        numpy_normal = partial(generator.normal, scale=scale, size=ours_size)
        cases: list[tuple[str, Callable[[], object], str, Callable[[], object]]] = [
            (
                "discrete laplace",
                partial(samplers.discrete_laplace, Fraction(scale), ours_size),
                "laplace",
                numpy_laplace,
            ),
            ("discrete gaussian", partial(samplers.discrete_gaussian, variance, ours_size), "gaussian", numpy_normal),
            ("rounded gaussian", partial(samplers.rounded_gaussian, variance, ours_size), "gaussian", numpy_normal),
        ]
        for name, ours, peer_name, inexact in cases:
            case = f"{name}, scale {scale:g}, n={ours_size:.0e}"
            speed = throughput(ours, ours_size, repeats)
            peer = opendp_noise(peer_name, scale, theirs_size)
            if isinstance(peer, str):
                rows.append(Row(case, "samples per second", speed, OPENDP, None, "higher", peer))
            else:
                theirs = throughput(peer, theirs_size, 1)
                note = "" if theirs_size == ours_size else f"theirs at n={theirs_size:.0e}"
                rows.append(Row(case, "samples per second", speed, OPENDP, theirs, "higher", note))
            plain = throughput(inexact, ours_size, repeats)
            rows.append(Row(case, "samples per second", speed, NUMPY, plain, "higher"))
            rows.append(Row(case, "peak bytes", peak_bytes(ours), NUMPY, peak_bytes(inexact), "lower"))
    new_scale = median_seconds(_one_with_a_new_table, repeats)
    seen_scale = median_seconds(lambda: samplers.discrete_laplace(Fraction(10), 1), 50)
    single = opendp_noise("laplace", 10.0, 1)
    theirs_single = None if isinstance(single, str) else median_seconds(single, 50)
    rows.append(Row("one sample, scale seen before", "seconds", seen_scale, OPENDP, theirs_single, "lower"))
    rows.append(Row("one sample, new scale (builds the table)", "seconds", new_scale, OPENDP, theirs_single, "lower"))
    report(args, "sampling", rows, ["opendp", "numpy"])


def _one_with_a_new_table() -> None:
    block_sampler.cache_clear()
    samplers.discrete_laplace(Fraction(10), 1)


if __name__ == "__main__":
    main()
