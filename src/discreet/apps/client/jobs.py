"""A training on a server: queued there, charged before its first step, downloaded when it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discreet.apps.client.http import Http, RequestRefused, segment

#: States from which a job goes on.
_OPEN = ("queued", "running")
#: Seconds between two looks at a job.
_EVERY = 1.0


class Job:
    """One training. `wait()` until it is done, then `save(path)`."""

    def __init__(self, http: Http, facts: Mapping[str, Any]) -> None:
        self._http = http
        self._facts = dict(facts)

    @classmethod
    def queued(cls, http: Http, model: str, plan: Mapping[str, Any], key: str | None) -> Job:
        """Queue a training of a registered model."""
        body = {"model": model, "plan": dict(plan)}
        return cls(http, http.call("POST", "/v1/jobs", body, key=key, repeatable=key is not None))

    @property
    def id(self) -> str:
        """The job's name."""
        return str(self._facts["id"])

    @property
    def state(self) -> str:
        """ "queued", "running", "done", "refused" (nothing was charged) or "failed", when last looked at."""
        return str(self._facts["state"])

    @property
    def step(self) -> int:
        """How many steps were taken, when last looked at."""
        return int(self._facts["step"])

    def refresh(self) -> Job:
        """Look again."""
        self._facts = self._http.call("GET", f"/v1/jobs/{segment(self.id)}", repeatable=True)
        return self

    def wait(self, timeout: float = 3600.0) -> Job:
        """Look again and again until the job is done. Raises `RequestRefused` if it failed, or takes longer."""
        deadline = time.monotonic() + timeout
        while self.refresh().state in _OPEN:
            if time.monotonic() > deadline:
                raise RequestRefused(
                    0, "timed_out", f"job {self.id} must be done within {timeout:g} s: it goes on there"
                )
            time.sleep(_EVERY)
        if self.state != "done":
            raise RequestRefused(0, self.state, f"job {self.id} is {self.state}: {self._facts['problem']}")
        return self

    def save(self, path: Path | str) -> None:
        """Download the model. `torch.load(path, weights_only=True)["model"]` is its state."""
        Path(path).write_bytes(self._http.content(f"/v1/jobs/{segment(self.id)}/model"))

    def __repr__(self) -> str:
        return (
            f"<Job {self.id}: {json.dumps({name: self._facts[name] for name in ('model', 'state', 'step', 'steps')})}>"
        )
