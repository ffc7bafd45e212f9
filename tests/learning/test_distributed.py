"""Two processes take the same steps as one, end with the same parameters, and draw noise once."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import discreet as dp
from tests.learning import small
from tests.learning.test_train import go, secure
from tests.learning.two_processes import torchrun

SCRIPT = """
import sys, torch
import discreet as dp
from pathlib import Path
import torch.distributed as dist
from tests.learning import small
from tests.learning.test_train import go, secure
from tests.learning.two_processes import torchrun
torch.set_num_threads(1)
folder, kind = Path(sys.argv[1]), sys.argv[2]
net = small.model()
rank = int(__import__("os").environ["RANK"])
try:
    if kind == "same":
        results = []
        for changes in ({}, {"batch_size": 1, "steps": 12}, {"sampling": "shuffle"}, {"physical_batch_size": 2}):
            net = small.model()
            if rank == 1:
                for parameter in net.parameters():
                    parameter.data.zero_()  # overwritten with the first process's parameters
            plan = small.plan(**changes)
            step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
            for batch in plan.batches(small.data()):
                step(batch)
            assert step.updates == plan.steps
            results.append(small.flat(net))
        torch.save(results, folder / f"{rank}.pt")
    elif kind == "account":
        account = dp.Ledger(folder / "x.ledger").account("x", budget=dp.ApproxDP(8.0, 1e-4))
        dist.init_process_group("gloo")
        wrapped = torch.nn.parallel.DistributedDataParallel(net)  # as in scripts written for DDP
        run = go(secure(), net=wrapped, account=account, checkpoint=folder / "c.pt", resume=True)
        torch.save([small.flat(net)], folder / f"{rank}.pt")
        assert run.finished and run.steps == 6
    else:
        account = dp.Ledger(folder / "x.ledger").account("x", budget=dp.ApproxDP(0.1, 1e-9))
        try:
            go(secure(noise_multiplier=0.3), net=net, account=account)
        except dp.errors.DiscreetError as error:
            (folder / f"refused {rank}").write_text(str(error))
finally:
    if dist.is_initialized():
        dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_give_the_sums_of_one(tmp_path):
    torchrun(SCRIPT, tmp_path, "same")
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    for i, changes in enumerate(
        ({}, {"batch_size": 1, "steps": 12}, {"sampling": "shuffle"}, {"physical_batch_size": 2})
    ):
        assert torch.equal(first[i], second[i])
        plan, net = small.plan(**changes), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
        for batch in plan.batches(small.data()):
            step(batch)
        assert torch.allclose(first[i], small.flat(net), atol=1e-5)


@pytest.mark.slow
def test_two_processes_are_one_event_and_hold_the_same_secret_free_model(tmp_path):
    torchrun(SCRIPT, tmp_path, "account")
    first, second = (torch.load(tmp_path / f"{rank}.pt")[0] for rank in (0, 1))
    assert torch.equal(first, second)
    account = dp.Ledger(tmp_path / "x.ledger").account("x")
    assert [entry.kind for entry in account.history()].count("reserve") == 1
    run = go(secure(), account=account, checkpoint=tmp_path / "c.pt", resume=True)
    assert run.steps == 6


@pytest.mark.slow
def test_a_refusal_reaches_every_process(tmp_path):
    torchrun(SCRIPT, tmp_path, "refused")
    texts = [(tmp_path / f"refused {rank}").read_text() for rank in (0, 1)]
    assert "no room" in texts[0]
    assert "BudgetExceeded" in texts[1]


LAST_COLLECTIVE = """
import sys, torch
import torch.distributed as dist
from discreet.learning.distributed import Team
sys.setswitchinterval(100)  # Python's lock stays with this thread
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
team = Team.here()
group = dist.group.WORLD
work = dist.all_reduce(torch.zeros(3), async_op=True)
while not work.is_completed():
    pass
del work
"""


@pytest.mark.slow
def test_a_process_ends_well_right_after_a_collective(tmp_path):
    """Without the wait at its end, each of these processes aborts with a probability of about 0.8."""
    for number in range(4):
        command = [sys.executable, "-c", LAST_COLLECTIVE, str(tmp_path / str(number))]
        assert subprocess.run(command, check=False, timeout=600).returncode == 0
