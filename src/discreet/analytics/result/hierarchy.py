"""Counts and sums of nested groups that add up at every level: weighted least squares over a tree, for free.

Counts by country, by state and by county are separate releases, each with its own noise. The best estimates that add
up are their generalized least squares fit. On a tree it takes two passes (Hay et al. 2010, for equal noise; with known
variances it is Gaussian belief propagation): upward, a node's own number is averaged with the sum of its children by
precision; downward, what a family is off its parent is shared among the children in proportion to their variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check
from discreet.analytics.aggregates.measurement import LEVEL
from discreet.analytics.result.consistency import Consistency, rounded_to
from discreet.analytics.result.result import ColumnSource, Result

_ADVICE = "release each level by itself, such as by country, by country and state, and by country, state and county"


@dataclass(frozen=True)
class _Level:
    """The numbers of one level of the tree, as measured, and their variances; `parent` points into the level above."""

    values: NDArray[np.float64]
    variances: NDArray[np.float64]
    parent: NDArray[np.int64]


@dataclass(frozen=True)
class Fit:
    """The fitted numbers of one level and their variances."""

    values: NDArray[np.float64]
    variances: NDArray[np.float64]


def fit_tree(levels: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]]) -> list[Fit]:
    """The least squares fit of (values, variances, parents) for each level, from the root's down.

    A child's parent is its place in the level above; the first level's parents are not used. Each node equals the sum
    of its children, if it has any, and all noises are independent. A variance may be infinite: no measurement.
    """
    nodes = [_Level(*level) for level in levels]
    up: list[Fit] = [Fit(nodes[-1].values, nodes[-1].variances)]
    for own, below in zip(reversed(nodes[:-1]), reversed(nodes[1:]), strict=True):
        inner = up[-1]
        size = own.values.size
        total, spread = _by_parent(inner.values, below.parent, size), _by_parent(inner.variances, below.parent, size)
        has = np.bincount(below.parent, minlength=size) > 0
        weight = np.where(has, _share(own.variances, spread), 0.0)  # of the children's sum
        values = np.where(weight < 1, own.values, 0.0) * (1 - weight) + total * weight
        variances = np.where(has, _harmonic(own.variances, spread), own.variances)
        up.append(Fit(values, variances))
    up.reverse()
    down = [up[0]]
    for below, inner in zip(nodes[1:], up[1:], strict=True):
        above = down[-1]
        size = above.values.size
        total, spread = _by_parent(inner.values, below.parent, size), _by_parent(inner.variances, below.parent, size)
        whole = spread[below.parent]
        siblings = np.bincount(below.parent, minlength=size)[below.parent]
        share = np.where(whole > 0, inner.variances / np.where(whole > 0, whole, 1.0), 1 / siblings)
        values = inner.values + share * (above.values - total)[below.parent]
        variances = inner.variances * (1 - share) + share**2 * above.variances[below.parent]
        down.append(Fit(values, np.maximum(variances, 0.0)))
    return down


def _by_parent(numbers: NDArray[np.float64], parent: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    return np.bincount(parent, weights=numbers, minlength=size).astype(np.float64)


def _share(own: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of a second estimate beside a first one: own/(own + other); two without noise weigh the same."""
    both = own + other
    ratio: NDArray[np.float64] = np.full_like(both, 0.5)
    np.divide(own, both, out=ratio, where=(both > 0) & np.isfinite(both))
    return np.where(np.isinf(own), 1.0, ratio)


def _harmonic(own: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of the average by precision."""
    finite = np.where(np.isinf(own), 1.0, own)
    return np.where(np.isinf(own), other, finite * (1 - _share(finite, other)))


def hierarchy(
    *results: Result, column: str | None = None, nonnegative: bool = False, integer: bool = False
) -> tuple[Result, ...]:
    """Released counts (or sums) of nested groups, adjusted so that every group is the sum of the groups inside it.

    Args:
        results: one release for each level, from the coarsest down: each level's group columns begin with those of the
            level above. The first may have no groups.
        column: the count or sum to adjust; by default the only one.
        nonnegative: move counts, and sums of what cannot be negative, up to 0, and still add up.
        integer: make counts whole numbers that still add up.

    Returns:
        The same results with adjusted numbers and errors. A finer level makes a coarser one better, and the reverse.

    The keys of a level must list all groups inside those of the level above: a row without a listed county would be
    counted for its state and for none of its counties. `x_error` is at least the 95% half width of the noise that is
    left: 1.96 standard deviations where all noise is Gaussian, and 2.12 where some is Laplace, the factor of one
    Laplace noise, which sums of several do not exceed at 95% (checked numerically in the tests, not proved), and a step
    of the grid. What `nonnegative` and `integer` move is added to it.

    Guarantee: post-processing (Dwork & Roth 2014, Proposition 2.1): looks at released numbers and public keys alone.
    """
    for name, value in (("nonnegative", nonnegative), ("integer", integer)):
        if not isinstance(value, bool):
            raise _check.fail(name, "be True or False", value, "it asks for post-processing")
    if len(results) < 2 or not all(isinstance(result, Result) for result in results):
        raise _check.fail("results", "be two released results or more", len(results), _ADVICE)
    name = _column(results, column)
    sources = [_source(result, name) for result in results]
    if any(source.measurement.aggregate != sources[0].measurement.aggregate for source in sources):
        raise _check.fail("results", "hold the same statistic at every level", name, "ask each level the same question")
    parents = [np.zeros(_rows(results[0], name), dtype=np.int64)]
    parents += [_parents(above, below) for above, below in pairwise(results)]
    measured = []
    for result, source, parent in zip(results, sources, parents, strict=True):
        values = np.array(result.columns[name], dtype=np.float64)
        assert source.release.error is not None
        deviation = source.release.error.noise.standard_deviation() * float(source.measurement.summed.granularity)
        measured.append((values, np.full(values.size, deviation**2), parent))
    fits = fit_tree(measured)
    aggregate = sources[0].measurement.aggregate
    floor = nonnegative and (aggregate.counts or sources[0].measurement.lower >= 0)
    final = _settled(fits, parents, floor=floor, integer=integer and aggregate.counts)
    gaussian = all(source.release.error is not None and source.release.error.noise.gaussian for source in sources)
    factor = float(-special.ndtri((1 - LEVEL) / 2)) if gaussian else -math.log(1 - LEVEL) / math.sqrt(2)
    adjusted = []
    for result, source, fit, values in zip(results, sources, fits, final, strict=True):
        step = float(source.measurement.summed.granularity)
        errors = factor * np.sqrt(fit.variances) + step + np.abs(values - fit.values)
        columns = {**result.columns, name: tuple(values.tolist()), f"{name}_error": tuple(errors.tolist())}
        adjusted.append(replace(result, columns=columns, sources={}, totals={}))
    return tuple(adjusted)


def _column(results: Sequence[Result], column: str | None) -> str:
    shared = [name for name in results[0].sources if all(name in result.sources for result in results)]
    if column is None and len(shared) == 1:
        return shared[0]
    return str(_check.one_of("column", column, shared, "it is a count or sum that every level has"))


def _source(result: Result, name: str) -> ColumnSource:
    source = result.sources[name]
    if not source.measurement.aggregate.adds_up:
        remedy = "counts of rows and sums do; means, persons and others do not"
        raise _check.fail("column", "add up over groups", name, remedy)
    if source.wanted != Consistency():
        remedy = "release each level without nonnegative, integer and total; give them to hierarchy() instead"
        raise _check.fail("results", "hold numbers as measured", name, remedy)
    return source


def _rows(result: Result, name: str) -> int:
    return len(result.columns[name])


def _keys(result: Result) -> list[tuple[Any, ...]]:
    columns = list(result.columns.values())[: result.group_columns]
    return list(zip(*columns, strict=True)) if columns else [()]


def _parents(above: Result, below: Result) -> NDArray[np.int64]:
    """The index of each group's parent in the level above."""
    outer, inner = (list(result.columns)[: result.group_columns] for result in (above, below))
    if len(inner) <= len(outer) or inner[: len(outer)] != outer:
        raise _check.fail("results", f"begin with the group columns {outer} at the next level", inner, _ADVICE)
    index_of = {key: index for index, key in enumerate(_keys(above))}
    lacking = [key for key in _keys(below) if key[: len(outer)] not in index_of]
    if lacking:
        raise _check.fail("results", "list the group of each finer group", lacking[0], "give both levels the same keys")
    return np.array([index_of[key[: len(outer)]] for key in _keys(below)], dtype=np.int64)


def _settled(
    fits: Sequence[Fit], parents: Sequence[NDArray[np.int64]], *, floor: bool, integer: bool
) -> list[NDArray[Any]]:
    """The fitted numbers, moved to be nonnegative or whole, and to add up still, from the root down."""
    top = np.maximum(fits[0].values, 0.0) if floor else fits[0].values
    levels: list[NDArray[Any]] = [np.rint(top).astype(np.int64) if integer else top]
    for fit, parent in zip(fits[1:], parents[1:], strict=True):
        values: NDArray[Any] = np.zeros(fit.values.size, dtype=np.int64 if integer else np.float64)
        order = np.argsort(parent, kind="stable")
        families = np.split(order, np.flatnonzero(np.diff(parent[order])) + 1)
        for family in families:
            target = levels[-1][parent[family[0]]]
            own = fit.values[family]
            if floor:
                own = _onto_simplex(own, fit.variances[family], float(target))
            else:
                own = own + (float(target) - own.sum()) / own.size
            values[family] = rounded_to(own, int(target)) if integer else own
        levels.append(values)
    return levels


def _onto_simplex(values: NDArray[np.float64], variances: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest numbers ≥ 0 that add up to `total` ≥ 0, distances weighted by precision: max(0, x − λ·variance)."""
    weights = variances if np.all(variances > 0) else np.ones_like(variances)
    order = np.argsort(-values / weights, kind="stable")
    excess = (np.cumsum(values[order]) - total) / np.cumsum(weights[order])
    kept = np.flatnonzero(values[order] - excess * weights[order] > 0)
    last = int(kept[-1]) if kept.size else 0
    return np.maximum(values - float(excess[last]) * weights, 0.0)
