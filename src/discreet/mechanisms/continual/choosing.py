"""Which counter to use: the one with the smallest exact error, among all that keep a small state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from discreet import _check
from discreet.accounting.correlation import square_root_coefficients
from discreet.mechanisms.continual.banded import Banded, SquareRoot
from discreet.mechanisms.continual.counter import Counter
from discreet.mechanisms.continual.recursions import BandedInverse, Buffered
from discreet.mechanisms.continual.stream import Stream
from discreet.mechanisms.continual.trees import SubtractionTree, Tree
from discreet.mechanisms.continual.workloads import TOTAL, Decayed, Total, Window, Workload

Measure = Literal["mean", "max"]

# Children of a node that are tried: beyond these, trees of any length that is planned have two levels.
_BRANCHINGS = (2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 31, 33, 37, 41, 45, 51)
_BANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_BUFFERS = (2, 3, 4, 5, 6, 7, 8, 10)
# The mean error is least near the second, and the largest error near the first.
_FORGETTING = (0.0, 0.75)
# The largest state of a counter that is chosen, in numbers for each coordinate of a query.
_LARGEST_STATE = 1 << 10
# Of counters within this much of the least error, the one with the smallest state is taken.
_TIE = 0.005


@dataclass(frozen=True)
class CounterRow:
    """How one kind of counter does, at its best parameters.

    Attributes:
        name: the kind, its parameters and its noise.
        mean_error: the mean squared error over all steps.
        max_error: the largest squared error of a step.
        state_size: the numbers in its state, for each coordinate.
    """

    name: str
    mean_error: float
    max_error: float
    state_size: int


@dataclass(frozen=True, eq=False)
class CounterChoice:
    """A counter, and how it compares with the others.

    Attributes:
        counter: the counter with the smallest error among those with a small state.
        measure: "mean" or "max": which squared error was compared.
        table: the best counter of each kind, smallest error first.
    """

    counter: Counter
    measure: Measure
    table: tuple[CounterRow, ...]

    def __str__(self) -> str:
        chosen = _name(self.counter)
        lines = [f"{chosen}: {self._reason(chosen)}", ""]
        lines += [
            f"{row.name:<44} mean squared error {row.mean_error:<10.5g} largest {row.max_error:<10.5g} "
            f"state {row.state_size}"
            for row in self.table
        ]
        return "\n".join(lines)

    def _reason(self, chosen: str) -> str:
        own = next(row for row in self.table if row.name == chosen)
        others = [row for row in self.table if row.name != chosen and row.state_size <= _LARGEST_STATE]
        if not others:
            return f"the only kind for this stream, with a {self.measure} squared error of {self._error(own):.5g}"
        runner_up = min(others, key=self._error)
        apart = self._error(runner_up) / self._error(own) - 1
        more = f"{apart:.1%} more" if apart >= 0 else f"{-apart:.1%} less at a larger state"
        words = f"{self.measure} squared error {self._error(own):.5g}; the next, {runner_up.name}, has {more}"
        least = min(self.table, key=self._error)
        if least.state_size > _LARGEST_STATE and self._error(least) < self._error(own):
            words += f"; {least.name}, has {1 - self._error(least) / self._error(own):.1%} less at a larger state"
        return words

    def _error(self, row: CounterRow) -> float:
        return row.mean_error if self.measure == "mean" else row.max_error


def best_for(
    stream: Stream | int,
    epsilon: float,
    delta: float | None = None,
    *,
    measure: Measure = "mean",
    workload: Workload = TOTAL,
) -> CounterChoice:
    """The counter with the smallest exact squared error for (ε, δ)-DP, or for ε-DP without δ.

    Laplace trees are tried at every δ: they are ε-DP, and beat Gaussian noise where δ is tiny. Sliding windows and
    decayed sums have Toeplitz encoders only, so they need a δ.

    Args:
        stream: what arrives, or the number of steps of a stream of counts.
        epsilon: the ε of the whole stream.
        delta: its δ; None for ε-DP.
        measure: compare the mean over all steps, or the largest.
        workload: what is answered at each step.

    >>> print(best_for(1024, 1.0).counter.branching)
    13
    """
    planned = Stream(stream) if isinstance(stream, int) else stream
    return choose(planned, epsilon, delta, measure=measure, workload=workload)


def choose(
    stream: Stream,
    epsilon: float,
    delta: float | None,
    *,
    measure: Measure = "mean",
    workload: Workload = TOTAL,
    laplace: bool = True,
) -> CounterChoice:
    """As `best_for`; without `laplace`, among counters with Gaussian noise alone."""
    _check.one_of("measure", measure, ("mean", "max"), "it says which squared error is compared")
    if delta is None and not isinstance(workload, Total):
        raise _check.fail("delta", "be given", delta, "sliding windows and decayed sums have Gaussian noise")
    compare: Callable[[Counter], float] = Counter.mean_error if measure == "mean" else Counter.max_error
    kinds = [kind for kind in _candidates(stream, epsilon, delta, workload, laplace) if kind]
    small = [c for kind in kinds for c in kind if c.state_size <= _LARGEST_STATE + workload.memory]
    bound = min(compare(counter) for counter in small) * (1 + _TIE)
    chosen = min((c for c in small if compare(c) <= bound), key=lambda c: (c.state_size, compare(c)))
    shown = [chosen if chosen in kind else min(kind, key=compare) for kind in kinds]
    rows = [CounterRow(_name(c), c.mean_error(), c.max_error(), c.state_size) for c in sorted(shown, key=compare)]
    return CounterChoice(chosen, measure, tuple(rows))


def _candidates(
    stream: Stream, epsilon: float, delta: float | None, workload: Workload, laplace: bool
) -> Iterator[list[Counter]]:
    """The counters of each kind."""
    steps = stream.steps
    if isinstance(workload, Total):
        for slack in {None, delta} if laplace else {delta}:
            odd = [k for k in _BRANCHINGS if k % 2 and (k <= 2 * steps + 1 or k == 3)]
            yield [SubtractionTree.for_epsilon(stream, epsilon, slack, branching=k) for k in odd]
            yield [Tree.for_epsilon(stream, epsilon, slack, branching=k) for k in _BRANCHINGS if k <= 9]
            yield [Tree.for_epsilon(stream, epsilon, slack, refined=False)]
    if delta is None:
        return
    bands = sorted({min(count, steps) for count in _BANDS})
    if isinstance(workload, Decayed):
        decayed = square_root_coefficients(bands[-1]) * workload.rate ** np.arange(bands[-1], dtype=np.float64)
        yield [
            Banded.for_epsilon(stream, epsilon, delta, coefficients=tuple(decayed[:count].tolist()), workload=workload)
            for count in bands
        ]
    else:
        yield [SquareRoot.for_epsilon(stream, epsilon, delta, bands=count, workload=workload) for count in bands]
    if isinstance(workload, Total) and steps > bands[-1]:
        yield [SquareRoot.for_epsilon(stream, epsilon, delta)]
    horizon = min(steps, workload.width) if isinstance(workload, Window) else steps
    if horizon > 1:
        yield [
            Buffered.for_epsilon(stream, epsilon, delta, buffers=count, forgetting=share, workload=workload)
            for count in _BUFFERS
            for share in _FORGETTING
        ]
    yield [BandedInverse.for_epsilon(stream, epsilon, delta, bands=count, workload=workload) for count in bands]


def _name(counter: Counter) -> str:
    noise = type(counter.noise).__name__
    match counter:
        case Tree(branching=k, refined=refined):
            return f"{'refined ' if refined else ''}tree, k = {k}, {noise}"
        case SubtractionTree(branching=k):
            return f"tree with subtraction, k = {k}, {noise}"
        case SquareRoot(bands=bands):
            whole = "all" if bands == counter.stream.steps else str(bands)
            return f"square root, {whole} diagonals, {noise}"
        case Banded(coefficients=coefficients):
            return f"banded, {len(coefficients)} diagonals, {noise}"
        case Buffered(scales=scales):
            return f"buffered, {len(scales)} buffers, {noise}"
        case BandedInverse(bands=bands):
            return f"banded inverse, {bands} diagonals, {noise}"
    return type(counter).__name__
