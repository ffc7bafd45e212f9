"""One counter of each kind, and tools that look through their noise."""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction

import numpy as np

from discreet.bounded import Bounded, Sensitivity
from discreet.mechanisms import continual as dc
from discreet.mechanisms.continual import counter as counter_file
from discreet.neighbors import ADD_REMOVE

STEPS = 16


def counters(stream=None, epsilon=1.0, delta=1e-6):
    """A counter of each kind for one stream."""
    stream = stream or dc.Stream(STEPS)
    found = []
    for slack in (None, delta):
        found += [dc.Tree.for_epsilon(stream, epsilon, slack, branching=k, refined=r) for k in (2, 3) for r in (0, 1)]
        found += [dc.SubtractionTree.for_epsilon(stream, epsilon, slack, branching=k) for k in (3, 5)]
    for work in (dc.Total(), dc.Window(4), dc.Decayed(0.8)):
        found += [
            dc.SquareRoot.for_epsilon(stream, epsilon, delta, bands=min(8, stream.steps), workload=work),
            dc.Banded.for_epsilon(stream, epsilon, delta, coefficients=(1, 0.5, -0.25), workload=work),
            dc.Buffered.for_epsilon(stream, epsilon, delta, buffers=3, workload=work),
            dc.BandedInverse.for_epsilon(stream, epsilon, delta, bands=4, workload=work),
        ]
    found.append(dc.SquareRoot.for_epsilon(stream, epsilon, delta))
    found.append(dc.Banded.optimized(stream, epsilon, delta, bands=min(6, stream.steps)))
    return found


def named(counter):
    """A name for a test."""
    work = type(getattr(counter, "workload", dc.Total())).__name__
    shape = [getattr(counter, name) for name in ("branching", "refined", "bands") if hasattr(counter, name)]
    return f"{type(counter).__name__}-{type(counter.noise).__name__}-{work}-{shape}"


def query(values, sensitivity=None, granularity=1):
    """A step's query with these integers."""
    values = np.asarray(values, dtype=np.int64)
    bound = sensitivity or Sensitivity(1, 1, 1, 1)
    return Bounded(values, Fraction(granularity), {ADD_REMOVE: bound}, "test")


@contextmanager
def noise_of(monkeypatch, make):
    """Replace the noise: draw number i, from 0, is `make(i)` in the units that the counter draws."""
    count = 0

    def vector(self):
        nonlocal count
        count += 1
        return [int(make(count - 1))] * self._counter.stream.dimension

    with monkeypatch.context() as patch:
        patch.setattr(counter_file.Drawn, "vector", vector)
        yield lambda: count


def answers(counter, integers):
    """The running answers to a stream of integers."""
    return np.array([release.value for _, release in counter.run(counter.start(), [query(v) for v in integers])])


def unit_of(counter):
    """One grid unit, in the units that the counter draws."""
    return 1 << counter.bits if isinstance(counter, dc.Encoded) else 1


def decoder(counter, monkeypatch):
    """B: how much each draw adds to each answer, found by running the counter with one draw at a time."""
    zeros = [0] * counter.stream.steps
    with noise_of(monkeypatch, lambda i: 0) as drawn:
        answers(counter, zeros)
        count = drawn()
    columns = []
    # One huge draw, so that what is rounded to integers does not matter.
    size = unit_of(counter) << 20
    for number in range(count):
        with noise_of(monkeypatch, lambda i, number=number: size * (i == number)):
            columns.append(answers(counter, zeros) / 2.0**20)
    return np.array(columns).T


def workload_matrix(counter):
    """A: the matrix of the workload."""
    steps = counter.stream.steps
    column = getattr(counter, "workload", dc.Total()).column(steps)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
