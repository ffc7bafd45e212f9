"""How long a price takes, how wide its interval is and how much memory it needs, beside the accountants in use.

    python -m benchmarks.accounting [--quick] [--json FILE] [--part grid|cases|ledger] [--seed N] [--peer-cases N]

Everything is measured in this run, one thread, in seconds of CPU time, which other programs on the machine change
little. A peer runs in its own process with a limit on time and memory; where it passes one, its row says so. The random
grid is drawn from a new seed in every run, which is printed; `--seed` repeats it. `--peer-cases` lets the peer price
only the first cases of the grid, because it takes up to a minute for each. `--part` runs the random grid alone, the
chosen cases alone, or alone what a ledger asks for: many different scales, and statements of 1e5 mixed rows, which are
timed by the clock.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import resource
import secrets
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from multiprocessing.connection import Connection

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from benchmarks._accounting_grid import PEER_CASES, random_grid  # noqa: E402  # threads are set before numpy
from benchmarks._table import Row, arguments, report  # noqa: E402  # threads are set before numpy
from benchmarks.ledger import statements  # noqa: E402
from discreet.accounting._calibrate import calibrate  # noqa: E402
from discreet.accounting.interval import Interval  # noqa: E402
from discreet.accounting.tight import epsilon  # noqa: E402
from discreet.events import Composed, DiscreteLaplace, Event, Gaussian, Laplace, PoissonSampled, Repeated  # noqa: E402
from discreet.guarantees import ApproxDP  # noqa: E402

GOOGLE, MICROSOFT = "dp_accounting 0.6", "prv_accountant 0.2"
DELTA = 1e-5
MEMORY = 12 * 2**30


def training(rate: float, sigma: float, steps: int) -> Event:
    """DP-SGD."""
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def thousand(count: int) -> list[tuple[float, float]]:
    """Rates and noise multipliers of `count` different steps."""
    draw = random.Random(7)
    return [(draw.uniform(0.001, 0.05), draw.uniform(0.7, 3.0)) for _ in range(count)]


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """The median CPU time of `repeats` calls, after a warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


# --- peers, each in a process of its own ---


def google(composition: list[tuple[float, float, int]], delta: float) -> float:
    """ε by dp_accounting's PLD accountant at its default discretization."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    for rate, sigma, count in composition:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(step, count)
    return float(accountant.get_epsilon(delta))


def google_laplace(scale: float, count: int, delta: float) -> float:
    """ε of repeated Laplace noise by dp_accounting."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_accounting.LaplaceDpEvent(scale), count)
    return float(accountant.get_epsilon(delta))


def google_calibration(rate: float, steps: int, budget: float, delta: float) -> float:
    """σ by dp_accounting's own search over its PLD accountant."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def make(sigma: float) -> object:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
        return dp_accounting.SelfComposedDpEvent(step, steps)

    bracket = dp_accounting.ExplicitBracketInterval(0.5, 10.0)
    return float(dp_accounting.calibrate_dp_mechanism(PLDAccountant, make, budget, delta, bracket, tol=1e-4))


def microsoft(composition: list[tuple[float, float, int]], delta: float) -> float:
    """The upper end of ε by prv_accountant, at an error of 1e-2."""
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    steps = [PoissonSubsampledGaussianMechanism(rate, sigma) for rate, sigma, _ in composition]
    counts = [count for _, _, count in composition]
    accountant = PRVAccountant(prvs=steps, max_self_compositions=counts, eps_error=1e-2, delta_error=delta / 1000)
    return float(accountant.compute_epsilon(delta=delta, num_self_compositions=counts)[2])


def _child(function: Callable[..., float], arguments_: tuple[object, ...], repeats: int, pipe: Connection) -> None:
    import importlib
    import warnings

    warnings.simplefilter("ignore")
    for peer in ("dp_accounting.pld", "prv_accountant"):
        with contextlib.suppress(ImportError):
            importlib.import_module(peer)  # not part of what is timed
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        times = []
        for _ in range(repeats + (repeats > 1)):
            start = time.process_time()
            value = function(*arguments_)
            times.append(time.process_time() - start)
        pipe.send((sorted(times[-repeats:])[repeats // 2], value, _peak(), ""))
    except MemoryError:
        pipe.send((None, None, None, f"needs more than {MEMORY // 2**30} GB"))
    except Exception as error:
        pipe.send((None, None, None, f"{type(error).__name__}: {error}"[:80]))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


Measured = tuple[float | None, float | None, float | None, str]


def measure(function: Callable[..., float], *arguments_: object, repeats: int, limit: float) -> Measured:
    """Seconds (median), value, peak megabytes and a note, of a function in a fresh process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(function, arguments_, repeats, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            return None, None, None, f"not done in {limit:.0f} s"
        result: Measured = ours.recv()
        return result
    except EOFError:
        return None, None, None, "killed"
    finally:
        process.kill()
        process.join()


# --- ours, in the same kind of process for memory ---


def ours_many(count: int) -> float:
    """ε of `count` different steps, by us; a function of its own so that it can be measured in a fresh process."""
    return epsilon(Composed(tuple(PoissonSampled(q, Gaussian(s)) for q, s in thousand(count))), DELTA).upper


def ours_long(steps: int) -> float:
    """ε of a long training, by us."""
    return epsilon(training(0.01, 1.0, steps), DELTA).upper


# --- the cases ---


def judge(value: float | None, interval: Interval) -> str:
    """Whether a peer's upper bound is one."""
    return "theirs is below the truth" if value is not None and value < interval.lower else ""


def one_epsilon(quick: bool) -> list[Row]:
    """(q = .01, σ = 1, δ = 1e-5) at T = 10³ … 10⁷."""
    rows = []
    for exponent in (3, 4, 6, 7) if quick else (3, 4, 5, 6, 7):
        steps = 10**exponent
        case, event = f"q=.01 σ=1 T=1e{exponent} δ=1e-5", training(0.01, 1.0, steps)
        seconds = median_seconds(partial(epsilon, event, DELTA), 5 if quick else 21)
        interval = epsilon(event, DELTA)
        repeats = 1 if quick or exponent > 5 else 3
        theirs, value, their_memory, note = measure(google, [(0.01, 1.0, steps)], DELTA, repeats=repeats, limit=60)
        rows.append(Row(case, "CPU seconds for ε", seconds, GOOGLE, theirs, "lower", note))
        rows.append(Row(case, "upper end of ε", interval.upper, GOOGLE, value, "lower", note or judge(value, interval)))
        if exponent == 6:
            memory = measure(ours_long, steps, repeats=1, limit=60)[2]
            rows.append(Row(case, "peak memory, MB", memory or float("nan"), GOOGLE, their_memory, "lower", note))
        limit = 5 if quick else 60
        theirs, value, _, note = measure(microsoft, [(0.01, 1.0, steps)], DELTA, repeats=1, limit=limit)
        rows.append(Row(case, "CPU seconds for ε", seconds, MICROSOFT, theirs, "lower", note))
        width = interval.width / interval.upper
        rows.append(Row(case, "relative width", width, MICROSOFT, 0.02 / value if value else None, "lower", note))
    return rows


def other_cases(quick: bool) -> list[Row]:
    """Few steps at a tiny rate, atoms, and a tiny δ."""
    repeats = 3 if quick else 11
    cases: list[tuple[str, Event, float, tuple[object, ...]]] = [
        ("q=.001 σ=.8 T=1000 δ=1e-6", training(0.001, 0.8, 1000), 1e-6, (google, [(0.001, 0.8, 1000)], 1e-6)),
        ("q=.01 σ=1 T=1e4 δ=1e-12", training(0.01, 1.0, 10_000), 1e-12, (google, [(0.01, 1.0, 10_000)], 1e-12)),
        ("Laplace ε₀=.1, 100 times, δ=1e-5", Repeated(Laplace(10.0), 100), 1e-5, (google_laplace, 10.0, 100, 1e-5)),
    ]
    rows = []
    for case, event, delta, (function, *arguments_) in cases:
        assert callable(function)
        seconds = median_seconds(partial(epsilon, event, delta), repeats)
        interval = epsilon(event, delta)
        theirs, value, _, note = measure(function, *arguments_, repeats=1, limit=60)
        rows.append(Row(case, "CPU seconds for ε", seconds, GOOGLE, theirs, "lower", note))
        rows.append(Row(case, "upper end of ε", interval.upper, GOOGLE, value, "lower", note or judge(value, interval)))
        rows.append(
            Row(case, "relative width", interval.width / interval.upper, GOOGLE, None, "lower", "gives no interval")
        )
    return rows


def calibration(quick: bool) -> list[Row]:
    """σ for (2, 1e-5) at q = .01, T = 10⁴."""
    case = "σ for ε=2 δ=1e-5, q=.01 T=1e4"

    def run() -> float:
        return calibrate(lambda sigma: training(0.01, sigma, 10_000), ApproxDP(2.0, DELTA))

    seconds = median_seconds(run, 3 if quick else 11)
    theirs, value, _, note = measure(google_calibration, 0.01, 10_000, 2.0, DELTA, repeats=1, limit=120)
    return [
        Row(case, "CPU seconds to calibrate", seconds, GOOGLE, theirs, "lower", note),
        Row(case, "σ", run(), GOOGLE, value, "lower", note),
    ]


def heterogeneous(quick: bool) -> list[Row]:
    """A thousand steps, all different."""
    count = 1000
    case = f"{count} different steps δ=1e-5"
    seconds = median_seconds(lambda: ours_many(count), 2 if quick else 5)
    _, _, memory, _ = measure(ours_many, count, repeats=1, limit=60)
    limit = 6 if quick else 240
    composition = [(q, s, 1) for q, s in thousand(count)]
    theirs, _, their_memory, note = measure(google, composition, DELTA, repeats=1, limit=limit)
    return [
        Row(case, "CPU seconds for ε", seconds, GOOGLE, theirs, "lower", note),
        Row(case, "peak memory, MB", memory or float("nan"), GOOGLE, their_memory, "lower", note),
    ]


def many_scales(quick: bool) -> list[Row]:
    """Thousands of queries with a scale of their own each, as a ledger holds them."""
    generator = random.Random(1)
    rows = []
    for count in (100, 2000):
        scales = [generator.uniform(30.0, 3000.0) for _ in range(count)]
        half = count // 2
        discrete = [DiscreteLaplace(1 + k % 5, Fraction(round(scale))) for k, scale in enumerate(scales[half:])]
        for case, event in (
            (f"{count} different Laplace scales δ=1e-6", Composed(tuple(map(Laplace, scales)))),
            (
                f"{half} Laplace, {half} discrete Laplace, 1 Gaussian δ=1e-6",
                Composed((*map(Laplace, scales[:half]), *discrete, Gaussian(20.0))),
            ),
        ):
            interval = epsilon(event, 1e-6)
            seconds = median_seconds(partial(epsilon, event, 1e-6), 1 if quick else 5)
            rows.append(Row(case, "CPU seconds for ε", seconds, GOOGLE, None, "lower", "not measured"))
            rows.append(
                Row(case, "relative width", interval.width / interval.upper, GOOGLE, None, "lower", "no interval")
            )
    return rows


def main() -> None:
    """Run every case, print the table, write it where asked."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=None, help="of the random grid; drawn anew if not given")
    parser.add_argument("--peer-cases", type=int, default=PEER_CASES, help="of the random grid, that the peer prices")
    parser.add_argument("--part", choices=("grid", "cases", "ledger"), help="run one part alone")
    args = parser.parse_args()
    rows: list[Row] = []
    if args.part in {None, "grid"}:
        seed = secrets.randbits(32) if args.seed is None else args.seed
        print(f"random grid: seed {seed}", flush=True)
        rows += random_grid(seed, quick=args.quick, peer_cases=args.peer_cases)
    if args.part in {None, "cases"}:
        for case in (one_epsilon, other_cases, calibration, heterogeneous):
            rows += case(args.quick)
    if args.part in {None, "ledger"}:
        rows += many_scales(args.quick)
        rows += statements(2_000 if args.quick else 100_000)
    report(args, "accounting", rows, ("dp-accounting", "prv-accountant", "numpy", "scipy"))


if __name__ == "__main__":
    main()
