"""The site: its tables show the stored benchmark results, and every image exists and is described."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_measured_row_is_in_the_page_on_benchmarks():
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "extensions" / "benchmarks.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = hook.on_page_markdown((ROOT / "docs" / "reference" / "benchmarks.md").read_text())
    assert hook.MARK not in page
    rows = 0
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        content = json.loads(path.read_text())
        for row in content["rows"]:
            assert row["case"].replace("|", "\\|") in page
            rows += 1
    assert rows > 20
    assert page.count("\n| ") >= rows


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_picture_is_there_and_says_what_it_shows(page):
    for words, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)", page.read_text()):
        assert len(words) > 10, f"{target} has no description for readers who cannot see it"
        assert (page.parent / target).exists(), target
