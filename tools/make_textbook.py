"""Write docs/textbook.md from the claims: `python -m tools.make_textbook`. A test fails if it is stale."""

from __future__ import annotations

from pathlib import Path

from discreet.apps import textbook

PAGE = Path(__file__).parent.parent / "docs" / "textbook.md"


if __name__ == "__main__":
    PAGE.write_text(textbook.text(), encoding="utf-8")
    print(f"wrote {PAGE}")
