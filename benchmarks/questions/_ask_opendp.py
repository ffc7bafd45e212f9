"""OpenDP's answers to the benchmark's questions, in an environment of its own: it needs another Polars than ours.

python _ask_opendp.py QUESTIONS.json prints one line of JSON for each question: its name, and one table for each repeat
or the words of the error.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from itertools import product
from typing import Any

odp: Any = importlib.import_module("opendp.prelude")
pl: Any = importlib.import_module("polars")
odp.enable_features("contrib")

#: A public bound on the rows of a table, which sums of floats need.
_MOST_ROWS = 10_000_000


def answers(asked: dict[str, Any], epsilon: float, repeats: int) -> list[list[list[Any]]]:
    """The rows of some releases of ε each: the group's columns, then the aggregates."""
    groups = [f"g{i}" for i in range(len(asked["keys"]))]
    unit = (
        odp.unit_of(contributions=1, identifier=pl.col("person")) if asked["person"] else odp.unit_of(contributions=1)
    )
    context = odp.Context.compositor(
        data=pl.scan_parquet(asked["file"]),
        privacy_unit=unit,
        privacy_loss=odp.loss_of(epsilon=epsilon * repeats),
        split_evenly_over=repeats,
        margins=[odp.polars.Margin(by=groups, max_length=_MOST_ROWS)],
    )
    query = context.query()
    if asked["person"]:
        query = query.truncate_per_group(asked["max_rows"])
    wanted = [_aggregate(aggregate).alias(f"a{i}") for i, aggregate in enumerate(asked["aggregates"])]
    if groups:
        keys = pl.DataFrame(list(product(*asked["keys"])), schema=dict.fromkeys(groups, pl.String), orient="row")
        query = query.group_by(groups).agg(wanted).with_keys(keys)
    else:
        query = query.select(wanted)
    calibrated = query.resolve()  # once: it searches for the scale of the noise
    names = [*groups, *(f"a{i}" for i in range(len(wanted)))]
    released = [context(calibrated).collect().select(names) for _ in range(repeats)]
    return [[list(row) for row in table.rows()] for table in released]


def _aggregate(aggregate: dict[str, Any]) -> Any:
    if aggregate["kind"] == "count":
        return odp.len(signed=True)
    column = pl.col(aggregate["column"])
    if aggregate["kind"] == "distinct":
        return column.dp.n_unique(signed=True)
    low, high = aggregate["bounds"]
    number = column.fill_nan(low).fill_null(low)
    if aggregate["kind"] == "quantile":
        # The whole numbers between the bounds.
        return number.dp.quantile(aggregate["level"], [float(level) for level in range(int(low), int(high) + 1)])
    return number.dp.sum((low, high)) if aggregate["kind"] == "sum" else number.dp.mean((low, high))


def main(path: str) -> None:
    """Ask all questions of a file."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    for asked in content["questions"]:
        try:
            told: dict[str, Any] = {"tables": answers(asked, content["epsilon"], content["repeats"])}
        except Exception as error:  # whatever the library raises is its refusal
            told = {"refusal": f"{type(error).__name__}: {error}"}
        print(json.dumps({"name": asked["name"], "form": "rewritten", **told}), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
