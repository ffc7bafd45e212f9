"""The code in the README, the documentation and the examples runs as printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_of_a_page_runs_from_top_to_bottom(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_an_example_runs(example, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
