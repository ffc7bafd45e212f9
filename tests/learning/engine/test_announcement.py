"""An announcement is the answer of its own call, however late a device writes it. No GPU is needed for these tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # its usual name
from torch import nn

from discreet.learning.clipping import Flat
from discreet.learning.engine import Engine
from discreet.learning.engine.graph import announcement, compilation


class LateDevice:
    """Its writes to the host's memory arrive one by one while the host sleeps, or all when the host waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.late, self.waits = [], 0
        monkeypatch.setattr(announcement, "time", SimpleNamespace(sleep=self._sleep, perf_counter=self._clock))
        monkeypatch.setattr(torch.cuda, "synchronize", self._synchronize)
        self._monkeypatch, self._now = monkeypatch, 0.0

    def announcement(self) -> announcement.Announcement:
        original = torch.full

        def full(*given: Any, pin_memory: bool, **how: Any) -> torch.Tensor:
            assert pin_memory
            return original(*given, **how)

        with self._monkeypatch.context() as patch:
            patch.setattr(torch, "full", full)
            made = announcement.Announcement()
        box = made._box

        def copy_(value: torch.Tensor, non_blocking: bool) -> None:
            assert non_blocking
            copy = value.clone()
            self.late.append(lambda: box.copy_(copy))

        made._box = SimpleNamespace(copy_=copy_)
        return made

    def _clock(self) -> float:
        return self._now

    def _sleep(self, seconds: float) -> None:
        self._now += 0.3
        if self.late:
            self.late.pop(0)()

    def _synchronize(self, device: object) -> None:
        self.waits += 1
        while self.late:
            self.late.pop(0)()


@pytest.fixture
def device(monkeypatch):
    return LateDevice(monkeypatch)


@pytest.mark.parametrize("answer", [True, False])
def test_the_answer_is_known_without_waiting_for_the_device(device, answer):
    told = device.announcement()
    for _ in range(3):
        told.expect()
        told.send(torch.tensor(answer))
        assert told.wait() is answer
    assert not device.waits


def test_a_late_answer_of_a_trial_run_is_not_that_of_the_next_call(device):
    told = device.announcement()
    told.send(torch.tensor(True))
    told.expect()
    told.send(torch.tensor(False))
    assert told.wait() is False


def test_a_late_answer_that_nobody_waited_for_is_not_that_of_the_next_call(device):
    told = device.announcement()
    told.expect()
    told.send(torch.tensor(True))  # the call failed after this
    told.expect()
    told.send(torch.tensor(False))
    assert told.wait() is False


def test_no_answer_is_no(device):
    told = device.announcement()
    assert told.wait() is False  # nothing was asked
    told.expect()
    told.send(torch.tensor(True))
    assert told.wait() is True
    assert told.wait() is False  # the old answer does not count again
    told.expect()
    assert told.wait() is False  # the device never said anything
    assert device.waits == 1


def test_an_engine_takes_the_answer_of_each_call_from_the_device(device, monkeypatch):
    """The graph is cut and announces as for CUDA. Mutants with a stale or another answer let NaN into the sums."""
    made = []

    def announced():
        made.append(device.announcement())
        return made[-1]

    monkeypatch.setattr("discreet.learning.engine.graph.regions.Announcement", announced)
    monkeypatch.setattr(torch._inductor, "compile", lambda module, inputs, options: module)
    original = compilation._compile
    monkeypatch.setattr(compilation, "_compile", lambda graph, on_gpu: original(graph, True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 3))
    compiled = Engine(model, F.cross_entropy, Flat(0.5), compile=True)
    plain = Engine(model, F.cross_entropy, Flat(0.5), compile=False)
    mask = torch.ones(8, dtype=torch.bool)
    for turn, poisoned in enumerate((False, True, False, True, True, False)):
        inputs, targets = torch.randn(8, 20), torch.arange(8) % 3
        if poisoned:
            inputs[turn] = float("inf")
        ours, theirs = compiled((inputs, targets), mask), plain((inputs, targets), mask)
        assert torch.equal(ours.finite, theirs.finite)
        assert bool(ours.finite.all()) is not poisoned
        for name, value in theirs.sums.items():
            torch.testing.assert_close(ours.sums[name], value)
    assert len(made) == 1
