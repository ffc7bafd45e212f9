"""Error and speed of running counts, against jax-privacy's factorizations: `python -m benchmarks.continual`.

Errors are exact, for ε = 1 and δ = 1e-6, in one run. The peer's factorizations are optimized by its own functions and
get the same σ over their sensitivity. Speed is that of the counters' `run` with queries that were made before; the
peer's is that of its streaming matrix, compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks._table import Row, arguments, in_turn, median_seconds, report
from discreet.accounting.closed_forms import gaussian_noise_multiplier
from discreet.bounded import Bounded, Sensitivity
from discreet.mechanisms import continual
from discreet.mechanisms.continual import Banded, Buffered, Counter, Stream, SubtractionTree, Tree
from discreet.neighbors import ADD_REMOVE

PEER = "jax-privacy 2.0"
EPSILON, DELTA = 1.0, 1e-6


def peer() -> Any | str:
    """The peer's modules, or the reason why it cannot run."""
    try:
        import jax
        from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
    except ImportError as error:
        return f"jax-privacy is not installed ({error.name})"
    jax.config.update("jax_enable_x64", True)
    return jax, toeplitz, buffered_toeplitz


def peer_errors(modules: Any, steps: int, bands: int) -> tuple[float, float]:
    """The mean and the largest squared error of the peer's optimized banded factorization."""
    _, toeplitz, _ = modules
    column = toeplitz.optimize_banded_toeplitz(n=steps, bands=bands, max_optimizer_steps=100)
    errors = np.asarray(toeplitz.per_query_error(strategy_coef=column, n=steps))
    scale = gaussian_noise_multiplier(EPSILON, DELTA) ** 2 * float(np.sum(np.asarray(column) ** 2))
    return scale * float(errors.mean()), scale * float(errors.max())


def all_steps(counter: Counter, count: int) -> None:
    """The first steps of `run`."""
    for _ in counter.run(counter.start(), [_one()] * count):
        pass


def peer_steps(modules: Any, steps: int, count: int) -> Callable[[], None]:
    """As many steps of the peer's buffered noise, one compiled step at a time."""
    jax, _, buffered = modules
    counter = Buffered.for_epsilon(Stream(steps), EPSILON, DELTA, buffers=6)
    matrix = buffered.BufferedToeplitz.build(
        buf_decay=np.array(counter.decays), output_scale=np.array(counter.scales)
    ).inverse_as_streaming_matrix()
    generator = np.random.default_rng()
    step: Callable[..., Any] = jax.jit(matrix.multiply_next)

    def run() -> None:
        noise, state = None, matrix.init_multiply(np.zeros(1))
        for _ in range(count):
            noise, state = step(generator.normal(size=1), state)
        jax.block_until_ready(noise)

    return run


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    steps = 256 if args.quick else 1024
    many, timed = 1 << 20, 1_000 if args.quick else 20_000
    modules = peer()
    rows = []
    for measure in ("mean", "max"):
        least: Callable[[Counter], float] = Counter.mean_error if measure == "mean" else Counter.max_error
        chosen = continual.best_for(steps, EPSILON, DELTA, measure=measure).counter
        for bands in (64, steps):
            theirs = None if isinstance(modules, str) else peer_errors(modules, steps, bands)[measure == "max"]
            same = Banded.optimized(Stream(steps), EPSILON, DELTA, bands=bands, measure=measure)
            named = {
                f"{bands} optimized diagonals, {steps} steps": same,
                f"best small counter ({chosen.state_size} numbers), {steps} steps, against {bands} diagonals": chosen,
            }
            note = modules if isinstance(modules, str) else f"theirs keeps {bands} numbers"
            rows += [
                Row(case, f"{measure} squared error", least(counter), PEER, theirs, "lower", note)
                for case, counter in named.items()
            ]
    binary = Tree.for_epsilon(Stream(steps), EPSILON, refined=False).mean_error()
    best = continual.best_for(steps, EPSILON).counter.mean_error()
    rows.append(Row(f"{steps} steps, pure ε-DP", "mean squared error", best, "binary tree", binary, "lower"))
    fast = {
        "buffered, 6 buffers": Buffered.for_epsilon(Stream(many), EPSILON, DELTA, buffers=6),
        "tree with subtraction, k = 19": SubtractionTree.for_epsilon(Stream(many), EPSILON, branching=19),
        "refined binary tree": Tree.for_epsilon(Stream(many), EPSILON),
    }
    for name, counter in fast.items():
        take = partial(all_steps, counter, timed)
        theirs, note = None, modules if isinstance(modules, str) else "no such counter"
        if "buffered" in name and not isinstance(modules, str):
            seconds, their_seconds = in_turn(take, peer_steps(modules, many, timed), 5)
            theirs, note = timed / their_seconds, "theirs: noise alone, with numpy's generator"
        else:
            seconds = median_seconds(take, 5)
        speed = timed / seconds
        rows.append(Row(f"{name}, T = 2^20", "steps per second", speed, PEER, theirs, "higher", note))
        state = next(iter(counter.run(counter.start(), [_one()])))[0]
        for after, _ in counter.run(counter.start(), [_one()] * 500):
            state = after
        raw = len(state.to_bytes())
        rows.append(Row(f"{name}, T = 2^20", "bytes of the state", raw, "8 bytes a step", 8.0 * many, "lower"))
    report(args, "continual", rows, ["numpy", "scipy", "jax-privacy", "jax"])


def _one() -> Bounded:
    return Bounded(np.asarray(1), Fraction(1), {ADD_REMOVE: Sensitivity(1, 1, 1, 1)}, "count")


if __name__ == "__main__":
    main()
