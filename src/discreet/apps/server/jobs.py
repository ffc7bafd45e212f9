"""Trainings as jobs: queued in the ledger's database, run one after another in a process of their own.

A client names a model that the steward registered, and numbers for its plan; it never sends code, a path or a pickle.
The training is charged as a whole, by its own process, before its first step. Whoever dies in between, server or
training, the job is found again: its checkpoint and the ledger say which steps were taken, and none is taken twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import _check
from discreet.apps.server.config import ModelConfig
from discreet.apps.server.curator import LONGEST_KEY, Curator
from discreet.apps.server.problems import Problem, not_found
from discreet.apps.training.config import Config, config_of
from discreet.errors import InvalidArgument
from discreet.ledger import Account
from discreet.ledger.access import Identity

if TYPE_CHECKING:
    from discreet.learning import Plan

_log = logging.getLogger("discreet.server")

#: What a client may say about a training: numbers of the plan, and of the model and its optimizer.
PLAN = {"epsilon": float, "delta": float, "batch_size": int, "epochs": float, "clip_norm": float}
MODEL = {"learning_rate": float}
#: Seconds between two looks at the queue, and the most times that a training is started again after it died.
_EVERY, _MOST_ATTEMPTS = 0.5, 3
#: Seconds between two notes of a training that it lives, and after how many without one it counts as dead.
BEAT, _SILENCE = 20.0, 120.0
#: The most trainings of one user that are queued or running, so that nobody fills the queue.
MOST_OPEN = 20
#: The ε that a client may ask for: to find the noise for others takes long, and they are of no use.
_LEAST_EPSILON, _MOST_EPSILON = 1e-3, 1e3
#: Seconds that a preview waits for the one before it: each computes for a while, and cannot be interrupted.
_PATIENCE = 10.0
#: The most steps of one training, so that one job does not keep the others waiting for days.
MOST_STEPS = 200_000


class Jobs:
    """The queue of trainings of one server."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pricing = threading.Lock()

    # --- what may be trained

    def register(self, model: ModelConfig) -> None:
        """Let analysts train a model; its file must be a configuration of `discreet train` without evaluation."""
        tree = {"name": model.name, "config": str(model.config), "account": model.account}
        self._curator.state.put("model", model.name, {**tree, "description": model.description})
        config = self.config(model.name, {}, self._curator.ledger.account(model.account))
        if config.evaluation is not None:
            raise InvalidArgument(f"model {model.name!r} must not have [evaluate]: ask for accuracies as questions")

    def models(self) -> list[dict[str, Any]]:
        """The registered models, without the paths of their data."""
        listed = []
        for name, tree in self._curator.state.items("model"):
            config = self.config(name, {}, self._curator.ledger.account(tree["account"]))
            plan = {key: getattr(config.budget, key) for key in PLAN}
            facts = {"name": name, "account": tree["account"], "description": tree["description"]}
            listed.append({**facts, "kind": config.model.kind, "plan": plan, "examples": config.budget.examples})
        return listed

    def config(self, name: str, given: Mapping[str, Any], account: Account, purpose: str = "") -> Config:
        """The steward's configuration of a model, with a client's numbers, the account to charge and what for."""
        tree = self._curator.state.item("model", name)
        if tree is None:
            raise not_found("model", name)
        path = Path(tree["config"])
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise Problem(
                500, "internal", f"the configuration of model {name!r} must be readable: tell the steward"
            ) from None
        for section, allowed in (("plan", PLAN), ("model", MODEL)):
            numbers = {key: value for key, value in given.items() if key in allowed}
            content[section] = {**content.get(section, {}), **numbers}
        content["ledger"] = {
            "file": "the server's",
            "account": account.name,
            "purpose": purpose or f"training of {name}",
        }
        content["output"] = {"folder": "jobs"}
        return config_of(content, path.parent)

    # --- the queue

    def preview(self, identity: Identity, name: str, given: Any) -> dict[str, Any]:
        """What a training would cost. Spends nothing, reads no data."""
        account = self._account(identity, name)
        return self._facts(name, account, self._plan(name, _checked_plan(given), account))

    def _plan(self, name: str, given: Mapping[str, Any], account: Account) -> Plan:
        """The plan of a training. One at a time is computed, so that nobody keeps all threads busy with it."""
        from discreet.apps.training.workflow import plan_of

        if not self._pricing.acquire(timeout=_PATIENCE):
            raise Problem(503, "busy", "the plan of another training is being computed: try again", retry_after=1)
        try:
            plan = plan_of(self.config(name, given, account).budget, account)
        finally:
            self._pricing.release()
        if plan.steps > MOST_STEPS:
            raise _check.fail("epochs", f"make at most {MOST_STEPS} steps", plan.steps, "use larger batches")
        return plan

    def _facts(self, name: str, account: Account, plan: Plan) -> dict[str, Any]:
        return {
            "model": name,
            "steps": plan.steps,
            "guarantee": str(plan.guarantee),
            "plan": plan.explain(),
            "account": account.name,
            "affordable": account.would_afford(plan.event),
        }

    def queue(self, identity: Identity, body: Any, key: str | None) -> dict[str, Any]:
        """Queue a training. The same key and body give the same job."""
        if not isinstance(body, dict) or body.keys() - {"model", "plan"} or not isinstance(body.get("model"), str):
            raise Problem(400, "invalid", 'a job must be {"model": NAME, "plan": {…}}: see /openapi.json')
        if key is not None and (not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable()):
            raise Problem(400, "invalid", f"an idempotency key must have 1 to {LONGEST_KEY} printable ASCII characters")
        given = _checked_plan(body.get("plan"))
        account = self._account(identity, body["model"])
        mine = [tree for _, tree in self._curator.state.items("job") if tree["user"] == identity.user]
        for tree in mine:
            if key is not None and tree["key"] == key:
                return self._same(tree, body["model"], given)
        plan = self._plan(body["model"], given, account)
        facts = self._facts(body["model"], account, plan)
        if not facts["affordable"]:
            raise Problem(402, "budget_exceeded", "the share has no room for this training: nothing was charged")
        if sum(tree["state"] in ("queued", "running") for tree in mine) >= MOST_OPEN:
            raise Problem(429, "too_many", f"one user may have {MOST_OPEN} trainings in the queue: wait for one to end")
        purpose = f"training of {body['model']}: {json.dumps(given, sort_keys=True)}"
        job = {
            "approval": self._curator.approval_for(identity, account, purpose, plan.event),
            "purpose": purpose,
            "id": uuid.uuid4().hex[:16] if key is None else _id_of(identity.user, key),
            "user": identity.user,
            "role": identity.role.value,
            "scopes": sorted(identity.scopes),
            "token": identity.token_id,
            "share": identity.share,
            "key": key,
            "model": body["model"],
            "plan": _texts(given),
            "account": facts["account"],
            "state": "queued",
            "step": 0,
            "steps": facts["steps"],
            "guarantee": facts["guarantee"],
            "queued": self._curator.access.now().isoformat(),
            "attempts": 0,
            "host": "",
            "pid": 0,
            "problem": "",
            "beat": 0,
        }
        if self._curator.state.change("job", job["id"], lambda tree: job if tree is None else None) is None:
            tree = self._curator.state.item("job", job["id"])  # a request with this key came in at the same time
            assert tree is not None, "jobs are never deleted"
            return self._same(tree, body["model"], given)
        return self._shown(job)

    def _same(self, tree: Mapping[str, Any], model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The job that a key names already, if it is the one that is asked for."""
        if (tree["model"], tree["plan"]) != (model, _texts(given)):
            raise Problem(409, "key_reused", "an idempotency key must name one training: take a new key")
        return self._shown(tree)

    def listed(self, identity: Identity) -> list[dict[str, Any]]:
        """One's own jobs, oldest first."""
        mine = [tree for _, tree in self._curator.state.items("job") if tree["user"] == identity.user]
        return [self._shown(tree) for tree in sorted(mine, key=lambda tree: tree["queued"])]

    def job(self, identity: Identity, name: str) -> dict[str, Any]:
        """One of one's own jobs; those of others do not exist."""
        return self._shown(self._mine(identity, name))

    def model(self, identity: Identity, name: str) -> bytes:
        """The trained model: outputs of private steps and public facts."""
        tree = self._mine(identity, name)
        if tree["state"] != "done":
            raise Problem(409, "not_done", f"this job is {tree['state']}: its model is there when it is done")
        return (self.folder(tree["id"]) / "model.pt").read_bytes()

    def folder(self, name: str) -> Path:
        """Where a job keeps its checkpoint and its model; only the server's own user may look into it."""
        return self._curator.folder / "jobs" / name

    # --- running

    async def watch(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        """Start queued jobs, one at a time, until the server stops."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await in_thread(self.look)
            except Exception as error:  # the queue must not stop because of one look
                _log.error("the queue of jobs failed: %s", type(error).__name__)

    def look(self) -> None:
        """Take back jobs whose process died, and start the next one if none runs here."""
        if not self._curator.state.items("model"):
            return
        for name, process in list(self._running.items()):
            tree = self._curator.state.item("job", name)
            assert tree is not None, "jobs are never deleted"
            self._curator.after_charge(tree["account"])  # its own process charges, and alerts nobody
            if process.poll() is not None:
                del self._running[name]
        for name, tree in self._curator.state.items("job"):
            if tree["state"] == "running" and name not in self._running and not _lives(tree):
                self._curator.state.change("job", name, _taken_back)
        if self._running:
            return
        queued = [tree for _, tree in self._curator.state.items("job") if tree["state"] == "queued"]
        for tree in sorted(queued, key=lambda tree: tree["queued"])[:1]:
            self._start(tree["id"])

    def stop(self) -> None:
        """Interrupt the running trainings: each saves a checkpoint, and the next start continues it."""
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)

    def _start(self, name: str) -> None:
        claimed = self._curator.state.change("job", name, _claimed)
        if claimed is None:
            return  # another server took it
        folder = self.folder(name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = {"ledger": self._curator.ledger.backend.location, "job": name, "folder": str(self._curator.folder)}
        process = subprocess.Popen(
            [sys.executable, "-m", "discreet.apps.server.trainer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # an error's text may quote rows
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(json.dumps(facts).encode())  # not as arguments, which every user of the machine can read
        self._running[name] = process
        self._curator.state.change("job", name, lambda tree: None if tree is None else {**tree, "pid": process.pid})

    def _account(self, identity: Identity, name: str) -> Account:
        tree = self._curator.state.item("model", name)
        if tree is None:
            raise not_found("model", name)
        return self._curator.access.account(identity, tree["account"], scope="train")

    def _mine(self, identity: Identity, name: str) -> dict[str, Any]:
        tree: dict[str, Any] | None = self._curator.state.item("job", name)
        if tree is None or tree["user"] != identity.user:
            raise not_found("job", name)
        return tree

    def _shown(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        names = ("id", "model", "account", "state", "step", "steps", "guarantee", "queued", "problem")
        return {name: tree[name] for name in names}


def numbers_of(plan: Mapping[str, str]) -> dict[str, Any]:
    """The numbers of a job's plan as they were given."""
    kinds = {**PLAN, **MODEL}
    return {name: kinds[name](float.fromhex(text)) for name, text in plan.items()}


def _id_of(user: str, key: str) -> str:
    """The name of a user's job with a key: the same one for requests that come in at the same time."""
    return sha256(json.dumps([user, key]).encode()).hexdigest()[:16]


def _texts(plan: Mapping[str, Any]) -> dict[str, str]:
    return {name: float(value).hex() for name, value in plan.items()}


def _checked_plan(given: Any) -> dict[str, Any]:
    """The numbers that a client may choose; everything else belongs to the steward."""
    kinds = {**PLAN, **MODEL}
    plan = {} if given is None else given
    if not isinstance(plan, dict) or plan.keys() - kinds.keys():
        raise Problem(400, "invalid", f"plan must be an object with numbers of {', '.join(kinds)}: leave others out")
    for name, value in plan.items():
        wanted = int if kinds[name] is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise Problem(400, "invalid", f"{name} in plan must be a number: see /openapi.json")
        _check.positive(name, value, "it is a number of the plan")
    if "epsilon" in plan and not _LEAST_EPSILON <= plan["epsilon"] <= _MOST_EPSILON:
        rule = f"be between {_LEAST_EPSILON:g} and {_MOST_EPSILON:g}"
        raise _check.fail("epsilon", rule, plan["epsilon"], "others are of no use")
    return {name: kinds[name](value) for name, value in plan.items()}


def _lives(tree: Mapping[str, Any]) -> bool:
    """Whether a training's process runs on: it notes the time now and then, and on this machine it can be seen."""
    if time.time() - tree["beat"] > _SILENCE:
        return False
    if tree["host"] != socket.gethostname():
        return True
    try:
        os.kill(tree["pid"], 0)
    except OSError:
        return False
    return True


def _claimed(tree: Any) -> Any:
    """A queued job that this server runs from now on; None if it is not queued any more."""
    if tree is None or tree["state"] != "queued":
        return None
    here = {"host": socket.gethostname(), "pid": os.getpid(), "beat": int(time.time())}
    return {**tree, **here, "state": "running", "attempts": tree["attempts"] + 1}


def _taken_back(tree: Any) -> Any:
    """A job whose process died: queued again, or failed if that happened too often."""
    if tree is None or tree["state"] != "running":
        return None
    if tree["attempts"] >= _MOST_ATTEMPTS:
        return {**tree, "state": "failed", "problem": "its process died repeatedly; what was charged stays charged"}
    return {**tree, "state": "queued"}
