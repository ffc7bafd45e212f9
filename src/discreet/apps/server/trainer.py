"""The process of one training job: charges it, trains, saves the model, and tells the ledger's database how far it is.

It is started by `jobs` with facts on its standard input. Progress is the number of steps: no loss leaves this process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from discreet.apps.server.config import ServerLimits
from discreet.apps.server.curator import Curator
from discreet.apps.server.jobs import BEAT, Jobs, numbers_of
from discreet.apps.training.workflow import fit
from discreet.errors import AccessDenied, BudgetExceeded, PolicyRefused
from discreet.ledger import Ledger
from discreet.ledger.access import Identity, Role

#: Seconds between two notes about progress.
_EVERY = 0.5


def main() -> None:
    """Run the job that the standard input names."""
    facts = json.load(sys.stdin)
    with Ledger(facts["ledger"], create=False) as ledger:
        curator = Curator(ledger, ServerLimits(), Path(facts["folder"]))
        try:
            _run(curator, facts["job"])
        finally:
            curator.close()


def _run(curator: Curator, name: str) -> None:
    state, jobs = curator.state, Jobs(curator)
    job = state.item("job", name)
    assert job is not None, "the server wrote it before it started this process"
    identity = Identity(job["user"], Role(job["role"]), frozenset(job["scopes"]), job["token"], job["share"])
    noted, ended = time.monotonic(), threading.Event()
    before = job["step"]

    def note(**changes: Any) -> None:
        now = {"beat": int(time.time())}
        state.change("job", name, lambda tree: None if tree is None else {**tree, **now, **changes})

    def beat() -> None:
        while not ended.wait(BEAT):
            note()

    def on_step(number: int) -> None:
        nonlocal noted
        if time.monotonic() - noted > _EVERY:
            noted = time.monotonic()
            note(step=min(job["steps"], before + number))

    folder = jobs.folder(name)
    threading.Thread(target=beat, daemon=True).start()
    try:
        approval = job.get("approval") or None  # jobs of older versions have none
        paid_by = _account_of(curator, job["model"])
        account = curator.access.account(identity, paid_by, scope="train", approval=approval)
        config = jobs.config(job["model"], numbers_of(job["plan"]), account, job.get("purpose", ""))
        key = f"{job['user']}:job {name}"
        run = fit(config, account, key=key, checkpoint=folder / "checkpoint.pt", on_step=on_step)
        if not run.finished:
            note(state="queued")  # interrupted by a server that stops: the next one continues
            return
        run.save(folder / "model.part")
        (folder / "model.part").replace(folder / "model.pt")
        for left in folder.glob("checkpoint.pt*"):  # beside it lies the history, with exact losses
            left.unlink()
        note(state="done", step=job["steps"], guarantee=str(run.guarantee))
    except (BudgetExceeded, PolicyRefused, AccessDenied) as error:
        note(state="refused", problem=str(error))
    except Exception as error:  # nor is the text of our own errors told: some count the rows, and data was read by now
        note(state="failed", problem=f"it failed ({type(error).__name__}); what was charged stays charged")
    finally:
        ended.set()


def _account_of(curator: Curator, model: str) -> str:
    tree = curator.state.item("model", model)
    assert tree is not None, "the job was queued for a registered model"
    return str(tree["account"])


if __name__ == "__main__":
    main()
