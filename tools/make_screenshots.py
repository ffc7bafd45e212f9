"""Take the pictures of the documents: `python -m tools.make_screenshots`. It plays the demo and needs a Chromium."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tools.chromium import Browser

IMAGES = Path(__file__).parent.parent / "docs" / "img"
SHOTS = {
    "report-desktop": (1000, 860, False),
    "report-phone": (390, 844, False),
    "report-dark": (1000, 860, True),
}


def terminal(command: str, shown: str) -> str:
    """What a command printed, as a picture of a terminal that loads no font from elsewhere."""
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(shown.rstrip()))
    svg = console.export_svg(title=command)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Play the demo, and take all pictures of it."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(sys.executable).parent / "discreet"
        environment = {**os.environ, "COLUMNS": "112"}
        played = subprocess.run(
            [program, "demo"], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        (IMAGES / "demo.svg").write_text(terminal("make demo", played.stdout), encoding="utf-8")
        with Browser() as browser:
            for name, (width, height, dark) in SHOTS.items():
                browser.open(Path(folder) / "demo" / "report.html", width=width, height=height, dark=dark)
                browser.screenshot(IMAGES / f"{name}.png")
            browser.open(Path(folder) / "demo" / "report.html", width=1000, height=860)
            browser.evaluate("document.querySelector('#results').scrollIntoView()")
            browser.screenshot(IMAGES / "report-results.png")


if __name__ == "__main__":
    main()
