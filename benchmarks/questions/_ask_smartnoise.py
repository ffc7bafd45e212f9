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


def answers(path: str, metadata: dict[str, Any], sql: str, epsilon: float, repeats: int) -> list[list[Any]]:
    """Some releases of a query. Its price is for each statistic; all of them together may cost ε."""
    with sqlite3.connect(path) as connection:
        whole = snsql.Privacy(epsilon=epsilon, delta=_DELTA)
        cost, _ = snsql.from_connection(connection, privacy=whole, metadata=metadata, engine="sqlite").get_privacy_cost(
            sql
        )
        each = snsql.Privacy(epsilon=epsilon * min(1.0, epsilon / cost), delta=_DELTA)
        reader = snsql.from_connection(connection, privacy=each, metadata=metadata, engine="sqlite")
        return [[list(row) for row in reader.execute(sql)[1:]] for _ in range(repeats)]


def rewritten(asked: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The metadata of a question's flat table, and the plainest SQL that asks the question of it."""
    groups = [f"g{i}" for i in range(len(asked["keys"]))]
    table: dict[str, Any] = {"censor_dims": bool(groups), "clamp_counts": True, "row_privacy": not asked["person"]}
    if asked["person"]:
        table |= {"max_ids": asked["max_rows"], "person": {"type": "int", "private_id": True}}
    table |= {name: {"type": "string"} for name in groups}
    wanted = []
    for i, one in enumerate(asked["aggregates"]):
        low, high = one["bounds"]
        if one["kind"] == "distinct":
            table[one["column"]] = {"type": "string"}
        elif one["column"]:
            table[one["column"]] = {"type": "float", "lower": low, "upper": high}
        function = _FUNCTIONS.get(
            one["kind"], "MEDIAN({})" if one["level"] == 0.5 else f"QUANTILE({{}}, {one['level']})"
        )
        wanted.append(f"{function.format(one['column'])} AS a{i}")
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    return {"": {"": {asked["table"]: table}}}, f"SELECT {', '.join([*groups, *wanted])} FROM {asked['table']}{by}"


def outcome(asked: dict[str, Any], metadata: dict[str, Any], epsilon: float, repeats: int) -> dict[str, Any]:
    """The answers to a question as typed; else to the rewritten one; else both refusals."""
    try:
        typed = answers(asked["database"], metadata, asked["sql"], epsilon, repeats)
        return {"form": "as typed", "tables": typed}
    except Exception as error:  # whatever the library raises is its refusal
        refusal = f"{type(error).__name__}: {error}"
    try:
        tables = answers(asked["database"], *rewritten(asked), epsilon, repeats)
        return {"form": "rewritten", "tables": tables, "typed": refusal}
    except Exception as error:
        return {"refusal": f"{type(error).__name__}: {error}", "typed": refusal}


def main(path: str) -> None:
    """Ask all questions of a file."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    for asked in content["questions"]:
        tables = content["metadata"][asked["database"]]
        described = {
            name: table | ({"max_ids": asked["max_rows"]} if not table["row_privacy"] else {})
            for name, table in tables.items()
        }
        told = outcome(asked, {"": {"": described}}, content["epsilon"], content["repeats"])
        print(json.dumps({"name": asked["name"], **told}, default=str), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
