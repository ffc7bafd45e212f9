"""Runs a script in two processes of `torch.distributed`, as `torchrun` starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchrun(script: str, folder: Path, kind: str, *, succeeds: bool = True) -> int:
    """Run `script` with the arguments `folder` and `kind` in each process; returns the exit code.

    Args:
        script: Python code.
        folder: for the script and what it writes.
        kind: what the script should do.
        succeeds: whether another exit code than 0 is a failure of the test.
    """
    file = folder / "script.py"
    file.write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(file), str(folder), kind],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,  # only against a hang: on a busy machine it takes minutes to start three Pythons with torch
        check=False,
    )
    assert done.returncode == 0 or not succeeds, done.stderr[-3000:]
    return done.returncode
