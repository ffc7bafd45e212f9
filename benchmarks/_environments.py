"""Environments of their own for libraries that need other versions of what this one needs, kept in a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

#: What is installed for each library.
PEERS = {"opendp": "opendp[polars]==0.16.0", "smartnoise-sql": "smartnoise-sql==1.0.10"}
#: Where they are installed.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "discreet"
#: What a benchmark says about a library that is not there.
ABSENT = "not installed: run with --peers, which puts it into an environment of its own"


def label(name: str) -> str:
    """A library with its version, as results name it."""
    return PEERS[name].replace("[polars]", "").replace("==", " ")


def python_of(name: str, install: bool) -> Path | None:
    """The interpreter that has a library, installed on the first call with `install`; None if there is none.

    Raises:
        subprocess.CalledProcessError: the installation failed; nothing of it is kept.
    """
    folder = _CACHE / label(name).replace(" ", "-")
    python = folder / "bin" / "python"
    if python.exists() or not install:
        return python if python.exists() else None
    try:
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEERS[name]], check=True, capture_output=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return python
