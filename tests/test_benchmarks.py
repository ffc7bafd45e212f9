"""The benchmark contract: every area runs quickly, prints a table, and writes JSON in one format."""

from __future__ import annotations

import itertools
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks._table import Row, print_table, write_json
from benchmarks.startup import _FEWEST, full_speed

AREAS = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_")]
ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("area", AREAS)
def test_an_area_runs_and_writes_its_rows(area, tmp_path):
    target = tmp_path / "rows.json"
    command = [sys.executable, "-m", f"benchmarks.{area}", "--quick", "--json", str(target)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ratio" in done.stdout
    check(json.loads(target.read_text()), area)


def check(content, area):
    assert content["area"] == area
    assert content["machine"]
    assert content["versions"]["discreet"]
    assert content["rows"]
    for row in content["rows"]:
        assert {"case", "metric", "ours", "reference", "theirs", "ratio", "better"} <= row.keys()
        assert row["better"] in {"higher", "lower"}
        if row["theirs"] is None:
            assert row["note"]
            assert row["ratio"] is None
        elif row["theirs"] == 0:
            assert row["ratio"] is None
        else:
            assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])


def test_rows_are_printed_and_written_in_one_format(tmp_path, capsys):
    rows = [
        Row("a case", "seconds", 1.0, "a peer", 4.0, "lower"),
        Row("another", "seconds", 1.0, "a peer", None, "lower", "not installed"),
    ]
    print_table(rows)
    assert "0.25" in capsys.readouterr().out
    write_json(tmp_path / "x.json", "area", rows, ["numpy"])
    check(json.loads((tmp_path / "x.json").read_text()), "area")


@pytest.mark.parametrize("stored", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda p: p.name)
def test_stored_results_have_that_format(stored):
    content = json.loads(stored.read_text())
    check(content, content["area"])
    assert content["date"]


def test_full_speed_is_reached_where_steps_become_as_short_as_at_the_end():
    """Forty steps of a second, then steps of half a second; a single short or long step tells nothing."""
    taken = [2.0] + [1.0] * 40 + [0.5] * 60
    taken[20], taken[70] = 0.1, 3.0
    ends = list(itertools.accumulate(taken))
    assert full_speed(ends) == pytest.approx(sum(taken[:41]), abs=_FEWEST)
    assert full_speed([5 + 0.1 * step for step in range(50)]) == 5
