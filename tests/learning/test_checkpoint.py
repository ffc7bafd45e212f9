"""A killed training resumes with the same guarantee: no step runs twice, and no noise is used twice."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.errors import DiscreetError, InvalidArgument, NotACheckpoint
from discreet.learning import Adaptive, Automatic, PerLayer, Plan, Step
from discreet.learning.checkpoint import Checkpoint, fingerprint
from tests.learning import small
from tests.learning.test_train import go, interrupt_after, secure

ROOT = Path(__file__).parents[2]


def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(tmp_path, monkeypatch):
    """With a seed, bit by bit: parameters, momentum, schedule, sampler, clip norm and dropout all continue."""

    def settings():
        net = torch.nn.Sequential(small.model(), torch.nn.Dropout(0.3))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    for changes in (
        {},
        {"sampling": "shuffle", "batch_size": 7},
        {"clipping": Adaptive(0.5, count_noise=3.0)},
        {"clip_schedule": ((0, 1.0), (9, 0.1))},
    ):
        plan = small.plan(steps=10, **changes)
        torch.manual_seed(3)
        net, optimizer, scheduler = settings()
        go(plan, net=net, optimizer=optimizer, scheduler=scheduler)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt"
        torch.manual_seed(3)
        stopped, optimizer, scheduler = settings()
        with monkeypatch.context() as patch:
            interrupt_after(4, patch)
            run = go(plan, net=stopped, optimizer=optimizer, scheduler=scheduler, checkpoint=path, every=4)
        assert run.steps == 4
        torch.manual_seed(99)
        resumed, optimizer, scheduler = settings()
        run = go(plan, net=resumed, optimizer=optimizer, scheduler=scheduler, checkpoint=path, resume=True)
        assert run.steps == 10
        assert torch.equal(small.flat(net), small.flat(resumed))
        assert run.history.step == list(range(10))


def test_an_allocated_epoch_that_was_interrupted_is_left_unfinished(tmp_path, monkeypatch):
    """With a fresh secret, a unit could join the rest of an epoch for a second time."""
    plan, path = small.plan(steps=13, sampling="allocation"), tmp_path / "c.pt"
    assert plan.sampler.steps_of_event == 5
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)
        go(plan, checkpoint=path, every=2)
    with monkeypatch.context() as patch:
        interrupt_after(6, patch)
        go(plan, checkpoint=path, resume=True)
    run = go(plan, checkpoint=path, resume=True)
    assert run.history.step == [0, 1, 2, 5, 10, 11, 12]


def test_noise_after_a_crash_is_fresh(tmp_path, monkeypatch):
    """All noise of all processes of a run, read from the gradients of an empty dataset: no two draws are equal."""
    drawn = []
    real = Step.__call__

    def watched(self, batch):
        if len(drawn) in (5, 9):
            drawn.append(torch.full((37,), float(len(drawn))))
            raise RuntimeError("power cut")
        observed = real(self, batch)
        drawn.append(small.gradients(self._model))
        return observed

    monkeypatch.setattr(Step, "__call__", watched)
    empty = (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    path, plan = tmp_path / "c.pt", secure(steps=12)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            go(plan, data=empty, checkpoint=path, every=3, resume=True)
    go(plan, data=empty, checkpoint=path, every=3, resume=True)
    noise = torch.stack(drawn)
    assert len(noise) <= 12 + 2  # two entries are the interruptions, which drew nothing
    for i in range(len(noise)):
        for j in range(i):
            assert not torch.isclose(noise[i], noise[j], atol=1e-9).any()


def test_a_step_that_may_have_run_is_never_run_again(tmp_path, monkeypatch):
    ran = []
    real = Step.__call__

    def watched(self, batch):
        ran.append(batch.step)
        if len(ran) in (6, 11, 13):
            raise RuntimeError("power cut")
        return real(self, batch)

    monkeypatch.setattr(Step, "__call__", watched)
    path, plan = tmp_path / "c.pt", secure(steps=20)
    run = None
    for _ in range(10):
        try:
            run = go(plan, checkpoint=path, every=3, resume=True)
            break
        except RuntimeError:
            continue
    assert run is not None
    assert run.finished
    assert len(ran) == len(set(ran))
    assert max(ran) == 19
    assert run.guarantee == plan.guarantee


#: A training that resumes, and kills itself a moment after its `target`-th step began. A thread does it, so the kill
#: hits anywhere in a step. On a busy machine it cannot come too late: the training waits for it before it ends.
SCRIPT = """
import os, random, signal, sys, threading, torch
import discreet as dp
from pathlib import Path
from discreet.learning import Step
from tests.learning import small
from tests.learning.test_train import go, secure
torch.set_num_threads(1)
folder, target = Path(sys.argv[1]), int(sys.argv[2])
real = Step.__call__
killer = threading.Timer(random.uniform(0.0, 0.01), os.kill, (os.getpid(), signal.SIGKILL))
begun = 0
def watched(self, batch):
    with open(folder / "ran", "a") as file:
        file.write(f"{batch.step}\\n")
    global begun
    begun += 1
    if begun == target:
        killer.start()
    return real(self, batch)
Step.__call__ = watched
account = dp.Ledger(folder / "x.ledger").account("x", budget=dp.ApproxDP(100.0, 1e-4))
run = go(secure(steps=150), account=account, key="model", checkpoint=folder / "c.pt", every=5, resume=True)
assert run.finished and str(run.guarantee) == str(run.plan.guarantee)
if killer.ident is not None:
    killer.join()
print("finished", run.steps)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_training_killed_at_random_points_is_one_event_with_no_step_twice(tmp_path, seed):
    random = np.random.default_rng(seed)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    never = 10**9
    for attempt, target in enumerate([*random.integers(1, 40, size=4), never]):
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path), str(target)],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=False,
        )
        if attempt == 0:
            assert done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL)  # a later one may have fewer steps left than its target
    assert b"finished" in done.stdout
    ran = [int(line) for line in (tmp_path / "ran").read_text().split()]
    assert len(ran) == len(set(ran))
    assert max(ran) < 150
    account = dp.Ledger(tmp_path / "x.ledger").account("x")
    charged = [entry for entry in account.history() if entry.kind == "reserve"]
    assert len(charged) == 1
    assert charged[0].event == secure(steps=150).event
    last = account.history()[-1]
    assert (last.kind, last.steps) == ("close", 150)


def test_an_old_copy_of_a_checkpoint_gives_no_second_run(tmp_path):
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(8.0, 1e-4))
    path, plan = tmp_path / "c.pt", secure(steps=6)
    kept = {}
    real = Checkpoint.write

    def watched(self, where):
        real(self, where)
        kept[self.step["position"]] = path.read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", watched)
        go(plan, account=account, checkpoint=path, every=2)
    path.write_bytes(kept[2])
    run = go(plan, account=account, checkpoint=path, resume=True)
    assert run.steps == 2  # the ledger knows that all six steps were taken
    assert run.guarantee == plan.guarantee


def test_the_file_holds_no_secret_and_no_exact_figure(tmp_path):
    path = tmp_path / "c.pt"
    run = go(secure(), checkpoint=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = torch.load(path, weights_only=True)
    assert content["sampler"] == {"position": 6, "secret": None}
    raw = path.read_bytes()
    assert run._loop.step._secret.reveal() not in raw
    assert run._loop._stream._secret.reveal() not in raw
    assert "history" not in content
    assert "loss" not in content


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path, history = tmp_path / "c.pt", tmp_path / "c.pt.history.json"
    plan = secure(steps=4)
    run = go(plan, checkpoint=path, every=2)
    before = path.read_bytes(), history.read_bytes()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    checkpoint = Checkpoint.read(path, plan)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write(path)
    with pytest.raises(OSError, match="disk full"):
        run.history.write(history)
    assert (path.read_bytes(), history.read_bytes()) == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_foreign_damaged_and_other_files_are_refused(tmp_path):
    path, plan = tmp_path / "c.pt", secure(steps=4)
    go(plan, checkpoint=path)
    intact = path.read_bytes()
    for bad in (b"", b"text", intact[:-50], intact[: len(intact) // 2], pickle.dumps(print)):
        path.write_bytes(bad)
        with pytest.raises(NotACheckpoint):
            go(plan, checkpoint=path, resume=True)
        assert path.read_bytes() == bad
    torch.save({"model": {}}, path)
    with pytest.raises(NotACheckpoint):
        go(plan, checkpoint=path, resume=True)
    path.write_bytes(intact)
    with pytest.raises(NotACheckpoint, match="another plan"):
        go(secure(steps=5), checkpoint=path, resume=True)
    with pytest.raises(InvalidArgument, match="resume=True"):
        go(plan, checkpoint=path)
    with pytest.raises(InvalidArgument, match="checkpoint"):
        go(plan, resume=True)


def test_a_file_with_code_in_it_runs_none(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'owned'}",))

    path = tmp_path / "c.pt"
    torch.save({"discreet checkpoint": 1, "model": Evil()}, path)
    with pytest.raises(DiscreetError):
        go(secure(), checkpoint=path, resume=True)
    assert not (tmp_path / "owned").exists()


#: Fingerprints that version 0.1.0 wrote. A plan must keep its own, or checkpoints of that version cannot be resumed.
FINGERPRINTS = [
    (
        {"steps": 10, "clip_norm": 0.5, "clip_schedule": ((0, 1.0), (5, 0.1))},
        "987391117fc6cd2cb76d4b89e2cadca6b564e23dd184bbb927435700ea6e68f1",
    ),
    (
        {"steps": 10, "clip_norm": 1.0, "unit": dp.person("who", max_rows=4), "noise": "laplace"},
        "509cbbbb25bd6a98a252bda0288aa4f3182dfc35d64a58e85560abac659e3de4",
    ),
    (
        {"steps": 10, "clipping": PerLayer(1.0, {"0": 1.0, "2": 2.0}), "sampling": "shuffle", "noise_multiplier": 2.0},
        "a1afead68999210b929fd36d7236cd82d4ca9406ba5708a29a661f0ebf9b5877",
    ),
    (
        {"epochs": 2, "clipping": Adaptive(1.0), "sampling": "without replacement"},
        "6ce38dfb0ddd15a0d9d819dc178474e8571643c072190665e521bf84c5005f23",
    ),
    (
        {"epochs": 2, "clipping": Automatic(1.0), "noise": "l2-laplace"},
        "fac249d9bc023fa433a64f652facaa7d3e494c11ff4dce9e147ca6b7915cf466",
    ),
]


@pytest.mark.parametrize(("changes", "written"), FINGERPRINTS)
def test_a_plan_keeps_the_fingerprint_that_the_first_version_wrote(changes, written):
    settings = {"noise_multiplier": 1.0, "delta": 1e-5, "examples": 1000, "batch_size": 100, **changes}
    assert fingerprint(Plan.for_noise(**settings)) == written


def _steps_that_ran(monkeypatch, crash_at):
    """The numbers of the steps that run from now on; the step of this number in the list fails before it runs."""
    ran, real = [], Step.fill

    def watched(self, batch):
        if len(ran) == crash_at and batch.step == crash_at:
            raise RuntimeError("power cut")
        ran.append(batch.step)
        return real(self, batch)

    monkeypatch.setattr(Step, "fill", watched)
    return ran


def test_no_step_runs_twice_if_an_account_comes_later(tmp_path, monkeypatch):
    path, plan = tmp_path / "c.pt", secure(steps=20)
    ran = _steps_that_ran(monkeypatch, crash_at=5)
    with pytest.raises(RuntimeError, match="power cut"):
        go(plan, checkpoint=path, every=4)
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(100.0, 1e-4))
    run = go(plan, checkpoint=path, every=4, account=account, key="k", resume=True)
    assert run.finished
    assert len(ran) == len(set(ran)) <= 20
    last = account.history()[-1]
    assert (last.kind, last.key, last.steps) == ("close", None, 20)  # the account pays for all of them


def test_steps_that_ran_before_the_account_came_are_not_handed_back(tmp_path):
    path, plan = tmp_path / "c.pt", secure(steps=6)
    go(plan, checkpoint=path)
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(100.0, 1e-4))
    go(plan, checkpoint=path, account=account, resume=True)
    last = account.history()[-1]
    assert (last.kind, last.steps) == ("close", 6)


def test_another_account_ledger_or_key_is_refused_before_a_charge(tmp_path, monkeypatch):
    path, plan = tmp_path / "c.pt", secure(steps=20)
    ledger, budget = dp.Ledger(tmp_path / "x.ledger"), dp.ApproxDP(100.0, 1e-4)
    account = ledger.account("x", budget=budget)
    _steps_that_ran(monkeypatch, crash_at=5)
    with pytest.raises(RuntimeError, match="power cut"):
        go(plan, checkpoint=path, every=4, account=account, key="k")
    other = ledger.account("y", budget=budget)
    elsewhere = dp.Ledger(tmp_path / "y.ledger").account("x", budget=budget)
    for wrong in (other, elsewhere, None):
        with pytest.raises(InvalidArgument, match="account must be 'x'"):
            go(plan, checkpoint=path, account=wrong, resume=True)
    with pytest.raises(InvalidArgument, match="key must be 'k'"):
        go(plan, checkpoint=path, account=account, key="other", resume=True)
    assert small.charges(other) == small.charges(elsewhere) == []
    assert small.charges(account) == [plan.event]
    assert go(plan, checkpoint=path, account=account, key="k", resume=True).finished


def test_a_checkpoint_without_the_name_of_an_account_can_be_read(tmp_path):
    """Earlier versions wrote none."""
    path, plan = tmp_path / "c.pt", secure(steps=4)
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(100.0, 1e-4))
    go(plan, checkpoint=path, account=account)
    content = torch.load(path, weights_only=True)
    del content["account"]
    torch.save(content, path)
    assert go(plan, checkpoint=path, account=account, resume=True).finished


def test_no_generator_tells_the_sizes_of_batches(tmp_path):
    """Dropout draws once for each physical batch, so the state of its generator would count them."""
    path, states = tmp_path / "c.pt", set()
    for rows in (60, 40):
        torch.manual_seed(0)
        net = torch.nn.Sequential(small.model(), torch.nn.Dropout(0.3))
        go(secure(physical_batch_size=1), net=net, data=small.data(rows), checkpoint=path, resume=False)
        states.add(torch.get_rng_state().numpy().tobytes())
        assert torch.load(path, weights_only=True)["random"] == {}
        path.unlink()
        Path(f"{path}.history.json").unlink()
    assert len(states) == 1


def test_a_checkpoint_with_the_state_of_generators_can_be_read(tmp_path):
    """Earlier versions wrote it."""
    path, plan = tmp_path / "c.pt", secure(steps=4)
    go(plan, checkpoint=path)
    content = torch.load(path, weights_only=True)
    content["random"] = {"cpu": torch.get_rng_state(), "cuda": []}
    torch.save(content, path)
    assert go(plan, checkpoint=path, resume=True).finished
