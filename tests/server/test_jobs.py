"""Trainings as jobs: a registered model, numbers for its plan, and nothing else from a client."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from discreet.apps.server import jobs
from discreet.apps.server.jobs import Jobs
from tests.server.conftest import CONFIG, make_world

MODEL = """
[data]
file = "people.parquet"
label = "sex"
classes = ["F", "M"]
[data.columns]
age = [0, 120]
hours = [0, 100]
[model]
kind = "logistic"
[plan]
epsilon = 1.0
delta = 1e-6
examples = 200
batch_size = 20
epochs = 2
"""
WITH_MODEL = (
    CONFIG
    + """
[accounts.training]
epsilon = 3.0
delta = 1e-5
[accounts.training.shares]
ann = { epsilon = 3.0, delta = 1e-5 }
[models.sexes]
config = "sexes.toml"
account = "training"
description = "a small model"
"""
)


@pytest.fixture
def trainer(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "sexes.toml").write_text(MODEL)
    yield from make_world(tmp_path, WITH_MODEL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """For calls that start nothing."""
    yield from make_world(tmp_path_factory.mktemp("jobs"))


def _until(world, job, state, seconds=300.0):
    deadline = time.monotonic() + seconds
    while True:
        facts = world.call("ann", "GET", f"/v1/jobs/{job}").json()
        if facts["state"] == state or time.monotonic() > deadline:
            return facts
        time.sleep(0.05)


def _kinds(world):
    return [entry.kind for entry in world.curator.ledger.account("training/ann").history()]


@pytest.mark.slow
def test_a_training_is_charged_once_and_its_model_comes_back(trainer):
    import torch

    [listed] = trainer.call("ann", "GET", "/v1/models").json()["models"]
    assert listed["name"] == "sexes"
    assert "people.parquet" not in json.dumps(listed)
    preview = trainer.call("ann", "POST", "/v1/models/sexes/preview", {"plan": {"epochs": 1}}).json()
    assert (preview["steps"], preview["affordable"]) == (10, True)
    body = {"model": "sexes", "plan": {"epsilon": 0.5}}
    job = trainer.call("ann", "POST", "/v1/jobs", body, Idempotency_Key="once")
    assert job.status_code == 202, job.text
    name = job.json()["id"]
    assert trainer.call("ann", "POST", "/v1/jobs", body, Idempotency_Key="once").json()["id"] == name
    other = {"model": "sexes", "plan": {"epsilon": 0.6}}
    assert trainer.call("ann", "POST", "/v1/jobs", other, Idempotency_Key="once").status_code == 409
    assert trainer.call("bob", "GET", f"/v1/jobs/{name}").status_code == 404
    assert _until(trainer, name, "done")["state"] == "done"
    lines = trainer.call("ann", "GET", f"/v1/jobs/{name}/progress").text.splitlines()
    assert json.loads(lines[-1])["state"] == "done"
    content = trainer.call("ann", "GET", f"/v1/jobs/{name}/model").content
    saved = torch.load(io.BytesIO(content), weights_only=True)
    assert saved["steps"] == 20
    assert "loss" not in str(saved.keys())
    assert trainer.call("bob", "GET", f"/v1/jobs/{name}/model").status_code == 404
    assert _kinds(trainer).count("reserve") == 1
    assert not list(trainer.curator.jobs.folder(name).glob("checkpoint*"))
    [charge] = trainer.curator.ledger.account("training/ann").statement().lines[:1]
    assert charge.user == "ann"
    assert not trainer.curator.ledger.verify().problem


def test_a_large_training_waits_for_a_steward(trainer, monkeypatch):
    monkeypatch.setattr(Jobs, "_start", lambda jobs, name: None)
    trainer.call("sam", "POST", "/v1/accounts/training/policy", {"approval_above": 0.1})
    body = {"model": "sexes", "plan": {"epsilon": 0.5, "epochs": 1}}
    refused = trainer.call("ann", "POST", "/v1/jobs", body)
    assert refused.json()["error"]["code"] == "approval_needed"
    [pending] = trainer.call("sam", "GET", "/v1/approvals").json()["approvals"]
    assert pending["question"] == {"training": 'training of sexes: {"epochs": 1.0, "epsilon": 0.5}'}
    assert trainer.call("sam", "POST", f"/v1/approvals/{pending['id']}/approve").status_code == 200
    larger = {"model": "sexes", "plan": {"epsilon": 0.6, "epochs": 1}}
    assert trainer.call("ann", "POST", "/v1/jobs", larger).status_code == 403
    job = trainer.call("ann", "POST", "/v1/jobs", body)
    assert job.status_code == 202, job.text
    tree = trainer.curator.state.item("job", job.json()["id"])
    identity = trainer.curator.access.authenticate(trainer.tokens["ann"])
    account = trainer.curator.access.account(identity, "training", scope="train", approval=tree["approval"])
    plan = trainer.curator.jobs._plan("sexes", {"epsilon": 0.5, "epochs": 1.0}, account)
    account.reserve(plan.event, "job", tree["purpose"])  # as the job's own process charges it
    assert [one.state for one in trainer.curator.access.approvals()] == ["used", "pending"]


def test_of_eight_at_once_with_one_key_one_job_is_queued(trainer, monkeypatch):
    monkeypatch.setattr(Jobs, "_start", lambda jobs, name: None)
    curator = trainer.curator
    identity, body = curator.access.identity_of("ann"), {"model": "sexes", "plan": {"epsilon": 0.5}}
    with ThreadPoolExecutor(8) as threads:
        queued = list(threads.map(lambda _: curator.jobs.queue(identity, body, "once"), range(8)))
    assert len({job["id"] for job in queued}) == 1
    assert len(curator.jobs.listed(identity)) == 1
    monkeypatch.setattr(jobs, "MOST_OPEN", 2)
    assert trainer.call("ann", "POST", "/v1/jobs", body).status_code == 202
    assert trainer.call("ann", "POST", "/v1/jobs", body).status_code == 429
    assert trainer.call("ann", "POST", "/v1/jobs", body, Idempotency_Key="once").status_code == 202


@pytest.mark.slow
def test_a_training_that_fails_tells_nothing_about_the_data(tmp_path):
    """How many rows have a known label is no public fact, although batches of a fixed size need it."""
    pytest.importorskip("torch")
    fixed = MODEL.replace("examples = 200", 'examples = 100\nsampling = "without replacement"')
    (tmp_path / "sexes.toml").write_text(fixed)
    for trainer in make_world(
        tmp_path, WITH_MODEL.replace("delta = 1e-5\n", 'delta = 1e-5\nrelation = "replace-one"\n')
    ):
        name = trainer.call("ann", "POST", "/v1/jobs", {"model": "sexes"}).json()["id"]
        facts = _until(trainer, name, "failed")
        assert facts["state"] == "failed"
        assert facts["problem"].startswith("it failed (InvalidArgument)")


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_and_is_charged_once(trainer):
    body = {"model": "sexes", "plan": {"epsilon": 1.0, "epochs": 12}}
    name = trainer.call("ann", "POST", "/v1/jobs", body).json()["id"]
    deadline = time.monotonic() + 300
    while _kinds(trainer).count("start") < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    process = trainer.curator.state.item("job", name)["pid"]
    os.kill(process, signal.SIGKILL)
    facts = _until(trainer, name, "done")
    assert facts["state"] == "done", facts
    assert trainer.curator.state.item("job", name)["attempts"] == 2
    assert _kinds(trainer).count("reserve") == 1
    assert not trainer.curator.ledger.verify().problem


@pytest.mark.slow
def test_a_training_that_is_not_allowed_any_more_is_refused_before_its_first_step(trainer):
    assert trainer.call("ann", "POST", "/v1/jobs", {"model": "sexes", "plan": {"epsilon": 50}}).status_code == 402
    assert trainer.call("sam", "POST", "/v1/accounts/training/freeze").status_code == 200
    name = trainer.call("ann", "POST", "/v1/jobs", {"model": "sexes"}).json()["id"]
    facts = _until(trainer, name, "refused")
    assert facts["state"] == "refused"
    assert "frozen" in facts["problem"]
    assert trainer.call("ann", "GET", f"/v1/jobs/{name}/model").status_code == 409
    assert _kinds(trainer).count("reserve") == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": 1},
        {"model": "sexes", "plan": {"examples": 1}},
        {"model": "sexes", "plan": {"epsilon": "1"}},
        {"model": "sexes", "plan": {"epsilon": -1}},
        {"model": "sexes", "plan": {"batch_size": 1.5}},
        {"model": "sexes", "plan": []},
        {"model": "sexes", "config": "[data]"},
        {"model": "sexes", "code": "import os"},
    ],
    ids=str,
)
def test_a_client_sends_numbers_and_nothing_else(shared, body):
    assert shared.call("ann", "POST", "/v1/jobs", body).status_code == 400


def test_an_unknown_model_is_not_found(shared):
    for name in ("none", "..%2F..%2Fetc", "sexes.toml"):
        assert shared.call("ann", "POST", f"/v1/models/{name}/preview", {}).status_code == 404
    assert shared.call("ann", "POST", "/v1/jobs", {"model": "../sexes"}).status_code == 404
