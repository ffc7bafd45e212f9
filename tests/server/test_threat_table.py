"""The page of threats: every test that it names exists, and every attempt of `test_attacks` is on it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "topics" / "threats.md"


def _tests(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_cell_names_a_test_that_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    folders = (HERE, HERE.parent / "ledger", HERE.parent / "analytics")
    files = [path for folder in folders for path in folder.glob("test_*.py")]
    existing = set().union(*map(_tests, files))
    assert len(named) > 20
    assert named <= existing, named - existing


def test_every_attempt_is_in_the_table():
    attempts = _tests(HERE / "test_attacks.py")
    missing = attempts - set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert not missing


def test_every_row_has_a_test():
    rows = re.findall(r"^\| .* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert all("`test_" in row for row in rows if not row.startswith(("| can |", "|---")))
