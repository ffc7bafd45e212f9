"""A folder with the files that the examples name, and a fixture that runs commands in it as typed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet.apps.cli import main


@dataclass(frozen=True)
class Outcome:
    """The exit code of a command, and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[[str], Outcome]

EVENT = '{"tag": "repeated", "count": 10, "event": {"tag": "gaussian", "noise_multiplier": 2.0}}'


MODEL = """
from torch import nn


def build():
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))


def mixes():
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4))


def breaks():
    raise RuntimeError("on purpose")


def nothing():
    return None
"""

PIPELINE = """
import discreet as dp


def release(ages):
    return dp.laplace(dp.queries.sum(ages, bounds=(0, 100)), epsilon=1.0)


def exact(ages):
    return float(ages.sum())


def pairs():
    return [([], [1.0]), ([5.0], [5.0, 100.0])]


def total(ages):
    return dp.laplace(dp.queries.sum(ages, bounds=(0, 100)), epsilon=1.0)
"""

CONFIG = """
[data]
file = "people.parquet"
label = "sex"
classes = ["Female", "Male"]

[data.columns]
age = [0, 120]
hours = [0, 100]

[model]
kind = "logistic"

[plan]
epsilon = 1.0
delta = 1e-6
examples = 400
batch_size = 40
epochs = 1

[ledger]
file = "census.ledger"
account = "census"
purpose = "a small model"

[evaluate]
file = "people.parquet"
epsilon = 0.5

[output]
folder = "model"
"""


PATE = """
[data]
file = "people.parquet"
label = "sex"
classes = ["Female", "Male"]

[data.columns]
age = [0, 120]
hours = [0, 100]

[questions]
file = "people.parquet"
rows = 40
answers = 20

[teachers]
count = 10
epochs = 3

[voting]
kind = "confident"
noise = 100
threshold = 5
check_noise = 100
delta = 1e-6

[student]
kind = "logistic"
epochs = 3

[ledger]
file = "census.ledger"
account = "census"
purpose = "labels for a student"

[evaluate]
file = "people.parquet"
epsilon = 0.1

[output]
folder = "labeled"
"""

CURATOR = """
[accounts.census]
epsilon = 3.0
[accounts.census.shares]
ann = { epsilon = 1.0 }
[datasets.people]
source = "people.parquet"
[users.ann]
role = "analyst"
"""


def fill(folder: Path) -> None:
    """Write the files that the examples name."""
    rows = 400
    table = pa.table(
        {
            "person_id": np.arange(rows) // 2,
            "age": np.arange(rows) % 80 + 18,
            "sex": ["Female", "Male"] * (rows // 2),
            "hours": np.arange(rows) % 60,
        }
    )
    pq.write_table(table, folder / "people.parquet")
    (folder / "event.json").write_text(EVENT)
    (folder / "model.py").write_text(MODEL)
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "pate.toml").write_text(PATE)
    (folder / "curator.toml").write_text(CURATOR)
    (folder / "visits.log").write_text("GET /a\nGET /b\nEND\nGET /a\nEND\nGET /c\n")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where `discreet learn` keeps its progress
    return tmp_path


@pytest.fixture
def run(folder, capsys) -> Run:
    """Run one command line as typed, including `discreet` and quotes."""

    def typed(line: str) -> Outcome:
        words = shlex.split(line)
        assert words[0] == "discreet", line
        capsys.readouterr()
        code = main(words[1:])
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return typed
