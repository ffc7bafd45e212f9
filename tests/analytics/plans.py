"""Random questions about random small tables, and their exact answers before any noise."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import (
    answer,
    correlation,
    count,
    count_distinct,
    covariance,
    marginal,
    mean,
    median,
    quantile,
    std,
    top_k,
    variance,
)
from discreet.analytics import sum as total

SCHEMA = pa.schema(
    [("id", pa.string()), ("x", pa.float64()), ("n", pa.int64()), ("g", pa.string()), ("k", pa.float64())]
)
numbers = st.one_of(
    st.integers(-15, 15).map(float),
    st.floats(-12, 12),
    st.sampled_from([None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2.0**53 + 1, 1e308, -1e308, 2.5, 0.5]),
)
integers = st.one_of(st.integers(-15, 15), st.sampled_from([None, 2**63 - 1, -(2**63), 2**53 + 1, 0]))
texts = st.sampled_from(["a", "b", "c", "z", "", None, "é", "é", "a'; --"])
codes = st.sampled_from([None, 0.0, -0.0, 1.0, 2.0, math.nan, math.inf, 0.1])
row = st.tuples(numbers, integers, texts, codes)
ids = st.sampled_from(["p", "q", "r", None, "", "p "])

BOUNDS = [(0, 10), (-3, 8), (2.5, 9.75), (-7, -1), (-1e-3, 1e9), (0.1, 0.7)]
FILTERS = [
    lambda p: p,
    lambda p: p.where(p.x >= 2),
    lambda p: p.where((p.x < 3) | p.g.is_null()),
    lambda p: p.where(~(p.n > 0), p.g != "z"),
    lambda p: p.where(p.g.isin(["a", "b", "é"]) & (p.x / p.k > 1)),
    lambda p: p.where(p.n.between(-5, 5)),
]
CHANGES = [
    lambda p: p,
    lambda p: p.mutate(x=p.x * 2 - p.n),
    lambda p: p.mutate(n=p.n.fill_null(3).clip(0, 2)),
    lambda p: p.mutate(x=p.n / p.k, y=abs(p.x)),
    lambda p: p.select("x", "n", "g", "k"),
]
GROUPS = [
    None,
    (("g",), ["a", "b", "absent"]),
    (("g",), ["a"]),
    (("k",), [0, 1, 0.1]),
    (("g", "k"), {"g": ["a", "b", "é"], "k": [0, 2]}),
    (("g", "k"), [("a", 0), ("b", 1), ("a'; --", 2)]),
]


def aggregates(bounds: Any, unit: Any) -> dict[str, Any]:
    """All aggregates at once, so each plan tests every one."""
    found = {
        "rows": count(),
        "present": count("x"),
        "total": total("x", bounds=bounds),
        "whole": total("n", bounds=(-4, 9)),
        "mean": mean("x", bounds=bounds),
        "variance": variance("n", bounds=bounds),
        "std": std("x", bounds=bounds),
        "median": median("x", bounds=bounds),
        "rank": quantile("n", 0.9, bounds=(-20, 5)),
        "covariance": covariance("x", "n", bounds={"x": bounds, "n": (-4, 9)}),
        "correlation": correlation("n", "x", bounds={"x": bounds, "n": (-4, 9)}),
        "cells": marginal("g", "k", categories={"g": ["a", "b", "é"], "k": [0, 1]}),
        "most": top_k("g", k=2, categories=["a", "b", "z"]),
    }
    return found if unit == dp.rows() else {**found, "persons": count_distinct()}


def table(rows: list[Any]) -> pa.Table:
    """A table of (id, x, n, g, k)."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in rows], schema=SCHEMA)


def ask(data: Any, account: Any, plan: tuple[int, int, int, int]) -> Any:
    """The answer to a plan: which filter, which change, which groups and which bounds."""
    keep, change, group, bounds = plan
    private = CHANGES[change](FILTERS[keep](dp.Private(data, account=account)))
    grouped = private if GROUPS[group] is None else private.group_by(*GROUPS[group][0], keys=GROUPS[group][1])
    return grouped.aggregate(**aggregates(BOUNDS[bounds], account.neighbors.unit))


def exact(asked: Any) -> dict[str, list[Any]]:
    """The exact values, before any noise."""
    question = asked._question
    return question.values(answer._run(question.queries()), asked._relation)


plans = st.tuples(*(st.integers(0, len(kind) - 1) for kind in (FILTERS, CHANGES, GROUPS, BOUNDS)))
