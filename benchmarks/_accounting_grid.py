"""Random sampled Gaussians over many orders of magnitude: how often a price is narrow, fast and below its peer's."""

from __future__ import annotations

import math
import multiprocessing
import random
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from benchmarks._table import Row
from discreet.accounting.interval import Interval
from discreet.accounting.tight import epsilon
from discreet.events import Gaussian, PoissonSampled, Repeated

PEER = "dp_accounting 0.6"
#: An interval is narrow if it is no wider than this part of its upper end, and this.
RELATIVE_WIDTH, ABSOLUTE_WIDTH = 1e-3, 1e-6
#: The relative margin by which our upper end may exceed the peer's, where the peer's is valid.
ABOVE = 1e-4
# What a peer may use for one case: seconds of CPU time, and that many times as long on the clock of a busy machine.
_SECONDS, _QUICK_SECONDS, _BUSY, _BYTES = 60.0, 1.0, 4.0, 4 * 2**30
_CASES, _QUICK_CASES = 500, 12
#: How many of the cases, the first ones, the peer prices if nothing else is asked for.
PEER_CASES = 500


@dataclass(frozen=True)
class Case:
    """Gaussian noise of multiplier σ on a Poisson sample of rate q, T times, at δ."""

    rate: float
    sigma: float
    steps: int
    delta: float


def cases(seed: int, count: int) -> Iterator[Case]:
    """Log-uniform in q 10⁻⁶…1, σ .3…50, T 1…10⁷ and δ 10⁻¹⁵…10⁻³."""
    draw = random.Random(seed)

    def log_uniform(low: float, high: float) -> float:
        return math.exp(draw.uniform(math.log(low), math.log(high)))

    for _ in range(count):
        rate, sigma = log_uniform(1e-6, 1.0), log_uniform(0.3, 50.0)
        yield Case(rate, sigma, round(log_uniform(1.0, 1e7)), log_uniform(1e-15, 1e-3))


def price(case: Case) -> Interval:
    """ε, by us."""
    return epsilon(Repeated(PoissonSampled(case.rate, Gaussian(case.sigma)), case.steps), case.delta)


def narrow(interval: Interval) -> bool:
    """Whether an interval is as narrow as wanted."""
    return interval.width <= RELATIVE_WIDTH * interval.upper + ABSOLUTE_WIDTH


def _ours(todo: Sequence[Case], pipe: Connection) -> None:
    """Price all cases, and send the intervals, the seconds and the peak megabytes."""
    price(Case(0.01, 1.0, 100, 1e-5))  # imports and tables are not part of what is timed
    intervals, seconds = [], []
    for case in todo:
        start = time.process_time()
        answer = price(case)
        seconds.append(time.process_time() - start)
        intervals.append((answer.lower, answer.upper))
    pipe.send((intervals, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _theirs(pipe: Connection) -> None:
    """Price the cases that come, one by one."""
    import warnings

    warnings.simplefilter("ignore")
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    pipe.send(None)  # ready
    while True:
        case: Case = pipe.recv()
        start = time.process_time()
        try:
            accountant = PLDAccountant()
            step = dp_accounting.PoissonSampledDpEvent(case.rate, dp_accounting.GaussianDpEvent(case.sigma))
            accountant.compose(step, case.steps)
            value: float | None = float(accountant.get_epsilon(case.delta))
        except Exception:  # whatever it is, there is no price; a lack of memory is the usual reason
            value = None
        pipe.send((value, time.process_time() - start))


class _Peer:
    """A process that prices with the peer, started anew after a case that was too long or too large for it."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._process: SpawnProcess | None = None

    def price(self, case: Case) -> tuple[float | None, float]:
        """ε or None, and the seconds."""
        if self._process is None:
            self._start()
        self._pipe.send(case)
        try:
            if self._pipe.poll(_BUSY * self._limit):
                answer: tuple[float | None, float] = self._pipe.recv()
                return answer if answer[1] <= self._limit else (None, self._limit)
        except (EOFError, ConnectionError):
            pass
        self.stop()
        return None, self._limit

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_theirs, args=(theirs,))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def random_grid(seed: int, *, quick: bool, peer_cases: int) -> list[Row]:
    """Rows about random cases: widths, CPU seconds, memory, and upper ends beside the peer's in the first ones."""
    todo = list(cases(seed, _QUICK_CASES if quick else _CASES))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_ours, args=(todo, sender))
    process.start()
    sender.close()
    ends, seconds, memory = receiver.recv()
    process.join()
    intervals = [Interval(*each) for each in ends]
    peer = _Peer(_QUICK_SECONDS if quick else _SECONDS)
    try:
        theirs = [peer.price(case) for case in todo[:peer_cases]]
    finally:
        peer.stop()
    finished = [(ours, value) for ours, (value, _) in zip(intervals, theirs, strict=False) if value is not None]
    # An infinite price is valid, and no bound that says anything.
    valid = [(ours, value) for ours, value in finished if ours.lower <= value]
    above = sum(ours.upper > value * (1 + ABOVE) for ours, value in valid)
    name = f"random grid of {len(todo)}, seed {seed}"
    left = f"{PEER} on the first {len(theirs)}: {len(theirs) - len(finished)} not done, "
    left += f"{len(finished) - len(valid)} below the truth"
    times = [spent for value, spent in theirs if value is not None]
    their_median = statistics.median(times) if times else None
    share = sum(map(narrow, intervals)) / len(intervals)
    return [
        Row(name, "share with width ≤ 1e-3·upper + 1e-6", share, PEER, None, "higher", "gives no interval"),
        Row(name, "median CPU seconds", statistics.median(seconds), PEER, their_median, "lower", left),
        Row(
            name,
            "worst CPU seconds",
            max(seconds),
            PEER,
            max((spent for _, spent in theirs), default=None),
            "lower",
            left,
        ),
        Row(name, "peak memory, MB", memory, PEER, None, "lower", "all cases in one process"),
        Row(name, "upper ends above theirs by 1e-4", above, PEER, None, "lower", f"of {len(valid)} valid ones"),
    ]
