"""Trainings: registered models, what one costs, and jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from discreet.apps.server.calls import AllowedRequest, Lines, Page

#: Seconds between two lines of progress.
_EVERY = 0.5
_OPEN = ("queued", "running")


def models(call: AllowedRequest) -> Any:
    """The models that may be trained."""
    return {"models": call.curator.jobs.models()}


def preview(call: AllowedRequest) -> Any:
    """What a training would cost."""
    return call.curator.jobs.preview(call.identity, call.names["name"], call.fields(plan=dict)["plan"])


def queue(call: AllowedRequest) -> Any:
    """Queue a training; it is charged as a whole before its first step."""
    return call.curator.jobs.queue(call.identity, call.body, call.key)


def listed(call: AllowedRequest) -> Any:
    """One's own jobs."""
    return {"jobs": call.curator.jobs.listed(call.identity)}


def job(call: AllowedRequest) -> Any:
    """One job."""
    return call.curator.jobs.job(call.identity, call.names["id"])


def progress(call: AllowedRequest) -> Lines:
    """A line for each change of a job, until it ends. Only the number of steps is told."""
    first = call.curator.jobs.job(call.identity, call.names["id"])

    async def lines() -> AsyncIterator[str]:
        shown, facts = None, first
        while True:
            if facts != shown:
                yield json.dumps(facts, ensure_ascii=False) + "\n"
                shown = facts
            if facts["state"] not in _OPEN:
                return
            await asyncio.sleep(_EVERY)
            facts = await asyncio.to_thread(call.curator.jobs.job, call.identity, call.names["id"])

    return Lines(lines())


def model(call: AllowedRequest) -> Page:
    """The trained model, as torch saves it."""
    content = call.curator.jobs.model(call.identity, call.names["id"])
    return Page(content, "application/octet-stream", {"Content-Disposition": 'attachment; filename="model.pt"'})
