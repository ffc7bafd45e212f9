"""The hospital tutorial, as typed: its commands and its Python in the order of the page, in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apps.conftest import Run

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorials" / "hospital.md"


@pytest.mark.slow
def test_the_page_runs_from_the_raw_files_to_the_statement(run: Run, folder):
    names: dict[str, object] = {}
    printed = {}
    for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), names)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            done = run(line)
            assert done.code == 0, (line, done.err)
            printed[line.split("--")[0]] = done.out
    assert (folder / "emergencies.png").stat().st_size > 5000
    statement = next(text for line, text in printed.items() if "statement" in line)
    # The chart's parts are those that the command line began: one partition, of which six parts count.
    assert statement.count("[month: 2024-01-01]") == 3
    assert statement.count("[month: 2024-12-01]") == 2
