"""The examples of the frameworks run, with and without privacy, and differ in as many lines as the guide says."""

from __future__ import annotations

import difflib
import re
import runpy
from pathlib import Path

import pytest

import discreet as dp
from tests.learning import small

ROOT = Path(__file__).parent.parent.parent.parent
FOLDER = ROOT / "examples" / "frameworks"
FRAMEWORKS = ("huggingface", "lightning", "accelerate")


def code(path: Path) -> list[str]:
    """A file's lines of code, without its docstring."""
    return [line for line in path.read_text().split('"""', 2)[2].splitlines() if line.strip()]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_guide_counts_the_lines_that_differ(framework):
    plain, private = (code(FOLDER / f"{framework}_{kind}.py") for kind in ("plain", "private"))
    changed = sum(line.startswith("+ ") for line in difflib.ndiff(plain, private))
    guide = (ROOT / "docs" / "how-to" / "private-training.md").read_text()
    (counted,) = re.findall(rf"Lines that differ in `examples/frameworks/{framework}_private.py`: (\d+)\.", guide)
    assert changed == int(counted)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["plain", "private"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_example_runs(framework, kind, capsys, monkeypatch, tmp_path):
    pytest.importorskip({"huggingface": "accelerate"}.get(framework, framework))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{framework}_{kind}.py"), run_name="__main__")
    written = capsys.readouterr()
    assert re.search(r"correct|after \d+ steps", written.out)
    if kind == "private":
        (ledger,) = tmp_path.glob("*.ledger")
        account = dp.Ledger(ledger).account(ledger.stem)
        assert len(small.charges(account)) == 1
        assert "train_loss" not in written.out
