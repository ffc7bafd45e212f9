"""smartnoise-sql's answers to the benchmark's questions, in an environment of its own: it needs an older pandas.

python _ask_smartnoise.py QUESTIONS.json prints one line of JSON for each question: its name, whether it was answered as
typed or rewritten, and one table for each repeat, or the words of the errors.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import warnings
from typing import Any

snsql: Any = importlib.import_module("snsql")

#: The library knows no public group keys: it finds them with a threshold, which needs a δ.
_DELTA = 1e-6
_FUNCTIONS = {"count": "COUNT(*)", "sum": "SUM({})", "mean": "AVG({})", "distinct": "COUNT(DISTINCT {})"}


def answers(
    connection: sqlite3.Connection, metadata: dict[str, Any], sql: str, epsilon: float, repeats: int
) -> list[list[list[Any]]]:
    """Some releases of a query. Its price is for each statistic; all of them together may cost ε."""

    def reader(each: float) -> Any:
        privacy = snsql.Privacy(epsilon=each, delta=_DELTA)
        return snsql.from_connection(connection, privacy=privacy, metadata=metadata, engine="sqlite")

    cost, _ = reader(epsilon).get_privacy_cost(sql)
    calibrated = reader(epsilon * min(1.0, epsilon / cost))
    return [[list(row) for row in calibrated.execute(sql)[1:]] for _ in range(repeats)]


def rewritten(connection: sqlite3.Connection, asked: dict[str, Any], epsilon: float, repeats: int) -> list[Any]:
    """Releases of the plainest SQL that asks a question of its flat table.

    The library refuses noise of a scale above 10⁷, so a view measures each value in units of its largest size.
    """
    groups = [f"g{i}" for i in range(len(asked["keys"]))]
    table: dict[str, Any] = {"censor_dims": bool(groups), "clamp_counts": True, "row_privacy": not asked["person"]}
    if asked["person"]:
        table |= {"max_ids": asked["max_rows"], "person": {"type": "int", "private_id": True}}
    table |= {name: {"type": "string"} for name in groups}
    columns = ["person"] if asked["person"] else []
    columns += groups
    wanted, units = [], []
    for i, aggregate in enumerate(asked["aggregates"]):
        name, (low, high) = aggregate["column"], aggregate["bounds"]
        unit = max(abs(low), abs(high)) if aggregate["kind"] in ("sum", "mean") else 1.0
        if aggregate["kind"] == "distinct":
            table[name] = {"type": "string"}
        elif name:
            table[name] = {"type": "float", "lower": low / unit, "upper": high / unit}
        if name:
            columns.append(f"{name} / {unit} AS {name}" if unit != 1.0 else name)
        function = _FUNCTIONS.get(
            aggregate["kind"], "MEDIAN({})" if aggregate["level"] == 0.5 else f"QUANTILE({{}}, {aggregate['level']})"
        )
        wanted.append(f"{function.format(name)} AS a{i}")
        units.append(unit)
    if not table.keys() - {"censor_dims", "clamp_counts", "row_privacy"}:  # rows without any column
        table["one"] = {"type": "int"}
        columns = ["one"]
    view = f"{asked['table']}_units"
    connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {', '.join(dict.fromkeys(columns))} FROM {asked['table']}")
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    sql = f"SELECT {', '.join([*groups, *wanted])} FROM {view}{by}"
    released = answers(connection, {"": {"": {view: table}}}, sql, epsilon, repeats)
    factors = [None] * len(groups) + units
    return [
        [[v if f is None or v is None else v * f for v, f in zip(row, factors, strict=True)] for row in rows]
        for rows in released
    ]


def outcome(asked: dict[str, Any], tables: dict[str, Any], epsilon: float, repeats: int) -> dict[str, Any]:
    """The answers to a question as typed; else to the rewritten one; else both refusals."""
    limited = {
        name: table if table["row_privacy"] else table | {"max_ids": asked["max_rows"]}
        for name, table in tables.items()
    }
    with sqlite3.connect(asked["database"]) as connection:
        try:
            typed = answers(connection, {"": {"": limited}}, asked["sql"], epsilon, repeats)
            return {"form": "as typed", "tables": typed}
        except Exception as error:  # whatever the library raises is its refusal
            refusal = f"{type(error).__name__}: {error}"
        try:
            return {
                "form": "rewritten",
                "tables": rewritten(connection, asked, epsilon, repeats),
                "typed": refusal,
            }
        except Exception as error:
            return {"refusal": f"{type(error).__name__}: {error}", "typed": refusal}


def main(path: str) -> None:
    """Ask all questions of a file."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    for asked in content["questions"]:
        tables = content["metadata"][asked["database"]]
        told = outcome(asked, tables, content["epsilon"], content["repeats"])
        print(json.dumps({"name": asked["name"], **told}, default=str), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
