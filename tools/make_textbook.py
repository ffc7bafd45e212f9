"""Write docs/textbook.md, docs/exercises/ and docs/topics/deployments.md: `python -m tools.make_textbook`.

A test fails if a page is stale. `python docs/plots/exercises.py` draws the pictures of the exercises.
"""

from __future__ import annotations

from pathlib import Path

from discreet.apps import deployments, textbook
from discreet.apps.learn import EXERCISES, pages

DOCS = Path(__file__).parent.parent / "docs"


def exercise_texts() -> dict[Path, str]:
    """The pages of the exercises, with their text."""
    index = {DOCS / "exercises" / "index.md": pages.index_text(EXERCISES)}
    return index | {DOCS / "exercises" / f"{exercise.slug}.md": pages.text(exercise) for exercise in EXERCISES}


if __name__ == "__main__":
    others = {DOCS / "textbook.md": textbook.text(), DOCS / "topics" / "deployments.md": deployments.text()}
    for path, text in (others | exercise_texts()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
