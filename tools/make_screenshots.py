"""Make the pictures in the docs: `python -m tools.make_screenshots`. Runs the demo, and needs Chromium."""

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
#: Width, height and dark mode of each picture of the report's top.
SHOTS = {
    "report-desktop": (1280, 900, False),
    "report-phone": (390, 844, False),
    "report-dark": (1280, 900, True),
}


def terminal(command: str, shown: str) -> str:
    """A command's output as an SVG picture of a terminal. It loads no font from the network."""
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(shown.rstrip()))
    svg = console.export_svg(title=command)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Run the demo and take all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(sys.executable).parent / "discreet"
        environment = {**os.environ, "COLUMNS": "112"}
        demo = subprocess.run(
            [program, "demo"], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        (IMAGES / "demo.svg").write_text(terminal("make demo", demo.stdout), encoding="utf-8")
        with Browser() as browser:
            for name, (width, height, dark) in SHOTS.items():
                browser.open(Path(folder) / "demo" / "report.html", width=width, height=height, dark=dark)
                browser.screenshot(IMAGES / f"{name}.png")
            browser.open(Path(folder) / "demo" / "report.html", width=1280, height=900)
            browser.evaluate("document.querySelector('#budget').scrollIntoView()")
            browser.screenshot(IMAGES / "report-budget.png")


if __name__ == "__main__":
    main()
