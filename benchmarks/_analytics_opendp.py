"""OpenDP's answer to the benchmark's question, in an environment of its own: it needs another Polars than ours.

python analytics_opendp.py FILE.parquet GROUPS REPEATS DRAWS prints as JSON the seconds of count + sum and of a median,
and DRAWS lists of pairs of a group and its median among 101 candidates, at ε = 0.1.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from typing import Any

odp: Any = importlib.import_module("opendp.prelude")
pl: Any = importlib.import_module("polars")
odp.enable_features("contrib")


def seconds(ask: Any, repeats: int) -> float:
    """The median time of building and releasing a query."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        ask().release().collect()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(path: str, groups: int, repeats: int, draws: int) -> None:
    """Ask both questions of the same rows, held in memory."""
    data = pl.read_parquet(path, columns=["segment", "value"]).lazy()
    rows = data.select(pl.len()).collect().item()

    def context(epsilon: float = 1.0) -> Any:
        return odp.Context.compositor(
            data=data,
            privacy_unit=odp.unit_of(contributions=1),
            privacy_loss=odp.loss_of(epsilon=epsilon),
            split_evenly_over=1,
            margins=[odp.polars.Margin(by=["segment"], invariant="keys", max_length=rows, max_groups=groups)],
        )

    value = pl.col("value").fill_nan(0.0).fill_null(0.0)

    def moments() -> Any:
        return context().query().group_by("segment").agg(odp.len(), value.dp.sum((0.0, 100.0)))

    def median(epsilon: float = 1.0) -> Any:
        candidates = [float(level) for level in range(101)]
        return context(epsilon).query().group_by("segment").agg(value.dp.median(candidates))

    medians = [median(0.1).release().collect().rows() for _ in range(draws)]
    print(json.dumps([seconds(moments, repeats), seconds(median, repeats), medians]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
