"""The replay finds a known fault of another library from outside, and nothing once the fault is mended."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from discreet.auditing import replay

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


def example():
    path = Path(__file__).parents[2] / "examples" / "audit_opacus.py"
    spec = importlib.util.spec_from_file_location("audit_opacus", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_normalizer_of_opacus_tells_neighbors_apart():
    opacus = example()
    seen = replay(opacus.one_step, [opacus.neighbors()])
    assert [violation.where for violation in seen.violations] == ["result"], str(seen)
    assert seen.tightest == pytest.approx(1.0, abs=1e-5)  # the sum itself is clipped as declared
    mended = replay(lambda rows: opacus.one_step(rows, normalizer=40), [opacus.neighbors()])
    assert (mended.passed, mended.arrivals) == (True, 1), str(mended)
