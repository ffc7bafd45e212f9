"""Insert the tables of benchmarks/results/ into the benchmarks page when the site is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
MARK = "<!-- benchmark tables -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for each page."""
    return markdown.replace(MARK, tables()) if MARK in markdown else markdown


def tables() -> str:
    """All stored results as Markdown, one section per area."""
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {version}" for name, version in content.get("versions", {}).items())
        parts.append(f"## {content['area'].capitalize()}\n")
        parts.append(f"{content.get('machine', '')}; {content.get('date', '')}; {versions}.\n")
        parts.append("| case | what | ours | reference | theirs | ratio | better | note |")
        parts.append("|---|---|---:|---|---:|---:|---|---|")
        for row in content["rows"]:
            cells = [
                row["case"],
                row["metric"],
                _number(row.get("ours")),
                row.get("reference", ""),
                _number(row.get("theirs")),
                _number(row.get("ratio")),
                row.get("better", ""),
                row.get("note", ""),
            ]
            parts.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def _number(value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
