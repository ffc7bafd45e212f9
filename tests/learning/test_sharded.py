"""FSDP2 and DDP in two processes give the sums of one process, in less memory, and survive a kill."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet as dp
from tests.learning import small
from tests.learning.two_processes import torchrun

SCRIPT = """
import os, sys, torch
from pathlib import Path
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import discreet as dp
from discreet.learning import sharded
from discreet.learning._train import train
from tests.learning import small
from tests.learning.two_processes import torchrun
from tests.learning.test_sharded import wide
torch.set_num_threads(1)
folder, kind = Path(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
rank = dist.get_rank()

def wrapped(net):
    if "ddp" in kind:
        return nn.parallel.DistributedDataParallel(net)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(net)

net = wrapped(wide())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
if "same" in kind:
    whole = sum(p.numel() * p.element_size() for p in wide().parameters())
    for changes in ({"batch_size": 1, "steps": 6}, {"physical_batch_size": 2, "steps": 3}):
        plan = small.plan(**changes)
        step = plan.step(net, small.loss, optimizer, compile=False)
        for batch in plan.batches(small.data()):
            step(batch)
        assert step.updates == plan.steps
    state = [value for held in optimizer.state_dict()["state"].values() for value in held.values()]
    held = sum(sharded.own_part(t).numel() * t.element_size() for t in [*net.parameters(), *state])
    result = [sharded.whole(p.detach()).double().reshape(-1) for p in net.parameters()]
    torch.save((torch.cat(result), held / (3 * whole)), folder / f"{rank}.pt")
else:
    account = dp.Ledger(folder / "x.ledger").account("x", budget=dp.ApproxDP(8.0, 1e-4))
    plan = small.plan(steps=30, insecure_seed=None, noise_multiplier=2.0)
    class Kills(torch.optim.lr_scheduler.LambdaLR):
        def step(self, *arguments):
            super().step(*arguments)
            if kind == "kill" and self.last_epoch == 12 and rank == 1:
                os.kill(os.getpid(), 9)
    run = train(net, small.loss, small.data(), plan, optimizer=optimizer, account=account, progress=False, every=5,
                scheduler=Kills(optimizer, lambda number: 1.0), checkpoint=folder / "c.pt", resume=True, compile=False)
    if run.finished:
        run.save(folder / f"model-{rank}.pt")
        (folder / f"steps {rank}").write_text(str(run.steps))
dist.destroy_process_group()
"""


def wide() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))


def one_process() -> torch.Tensor:
    net = wide()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    for changes in ({"batch_size": 1, "steps": 6}, {"physical_batch_size": 2, "steps": 3}):
        plan = small.plan(**changes)
        step = plan.step(net, small.loss, optimizer, compile=False)
        for batch in plan.batches(small.data()):
            step(batch)
    return small.flat(net)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same", "same ddp"])
def test_two_processes_give_the_sums_of_one_and_fsdp_halves_the_memory(tmp_path, kind):
    torchrun(SCRIPT, tmp_path, kind)
    (first, share), (second, other) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first, second)
    assert torch.allclose(first, one_process(), atol=1e-5)
    if "ddp" not in kind:
        assert max(share, other) <= 0.6


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_one_event_and_the_training_resumes(tmp_path):
    assert torchrun(SCRIPT, tmp_path, "kill", succeeds=False) != 0
    account = dp.Ledger(tmp_path / "x.ledger").account("x")
    assert [entry.kind for entry in account.history()].count("reserve") == 1
    torchrun(SCRIPT, tmp_path, "resume")
    assert [entry.kind for entry in account.history()].count("reserve") == 1
    steps = [int((tmp_path / f"steps {rank}").read_text()) for rank in (0, 1)]
    assert steps[0] == steps[1]
    assert 0 < steps[0] <= 30
    state = torch.load(tmp_path / "model-0.pt")["model"]
    assert {name: value.shape for name, value in state.items()} == {
        name: value.shape for name, value in wide().state_dict().items()
    }
