"""The examples run on Flower's simulation, and the tutorial shows their code."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "federated"


def test_the_tutorial_shows_code_of_the_example():
    page = (ROOT / "docs" / "tutorials" / "three-hospitals.md").read_text()
    program = (EXAMPLES / "hospitals.py").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        assert block in program


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the federated extra")
@pytest.mark.parametrize(("name", "said"), [("hospitals.py", "north: "), ("phones.py", "charges in the ledger: 1")])
def test_an_example_starts_with_one_command(name, said, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), str(tmp_path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout
    assert "round 10: accuracy" in done.stdout
    if name == "phones.py":
        assert "accuracy went from" in (tmp_path / "report.html").read_text()
