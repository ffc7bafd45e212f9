"""The shell commands in the documents run as typed, in order, starting from the data that the package writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apps.conftest import Run

ROOT = Path(__file__).parent.parent.parent
DATA = "discreet data adult people.parquet"
#: The hospital tutorial runs in test_hospital.py, where its Python continues what its commands began.
PAGES = ("README.md", "docs/cli.md", "docs/tutorials/team-budget.md")
#: Slow options, cut down here: (as documented, as run). The example of `discreet compare` runs them in full.
SMALLER = ("--dimension 100000 --steps 1000", "--dimension 10 --steps 10")


def shell_lines(page: Path) -> list[str]:
    """The `discreet` commands of a page's shell blocks, with continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [re.sub(r"\s+#.*$", "", line).strip() for line in lines]
    return [line for line in commands if line.startswith("discreet ")]


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_run_as_typed(name, run: Run, folder):
    for path in folder.iterdir():
        path.unlink()
    commands = shell_lines(ROOT / name)
    assert commands
    if DATA not in commands:
        assert run(DATA).code == 0
    blocks = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (config,) = (text for text in blocks if "[plan]" in text)
    (folder / "config.toml").write_text(config.replace("epochs = 10", "epochs = 1"), encoding="utf-8")
    (curator, *_) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs/how-to/server.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (folder / "curator.toml").write_text(curator, encoding="utf-8")
    if "discreet train config.toml" in commands and "others.parquet" not in " ".join(commands):
        assert run("discreet data adult others.parquet --part test").code == 0
    for line in commands:
        command, _, target = line.partition(" > ")
        done = run(command.replace(*SMALLER))
        assert done.code == 0, (line, done.err)
        if target:
            (folder / target.strip()).write_text(done.out, encoding="utf-8")
