"""`connect`: a server, and what somebody with a token finds there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from discreet import _check
from discreet.apps.client.http import Http, RequestRefused, segment
from discreet.apps.client.jobs import Job
from discreet.apps.client.table import RemoteTable

__all__ = ["Connection", "RequestRefused", "connect"]


class Connection:
    """A curator's server as one user sees it. Made by `discreet.connect`."""

    def __init__(self, http: Http) -> None:
        self._http = http
        try:
            listed = http.call("GET", "/v1/datasets", repeatable=True)["datasets"]
        except BaseException:
            http.close()
            raise
        self._datasets = {dataset["name"]: dataset for dataset in listed}

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of the datasets."""
        return tuple(self._datasets)

    def table(self, name: str) -> RemoteTable:
        """A dataset as a private table: `where`, `group_by`, aggregates and SQL, as `dp.Private` has them.

        Guarantee: nothing but public facts and released answers ever leaves the server.
        """
        if name not in self._datasets:
            raise _check.fail("name", "be one of the datasets", name, ", ".join(self._datasets) or "there are none")
        return RemoteTable(self._http, self._datasets[name])

    def __getitem__(self, name: str) -> RemoteTable:
        return self.table(name)

    def me(self) -> dict[str, Any]:
        """Whose token this is, what it may do, and what remains of each share."""
        answer: dict[str, Any] = self._http.call("GET", "/v1/me", repeatable=True)
        return answer

    # --- trainings

    def models(self) -> list[dict[str, Any]]:
        """The models that a steward registered for training."""
        models: list[dict[str, Any]] = self._http.call("GET", "/v1/models", repeatable=True)["models"]
        return models

    def train(self, model: str, *, key: str | None = None, **plan: Any) -> Job:
        """Queue a training of a registered model: `train("income", epsilon=1.0, delta=1e-6, epochs=5)`.

        Guarantee: the whole training is charged to the caller's share before its first step.
        """
        return Job.queued(self._http, model, plan, key)

    def jobs(self) -> list[Job]:
        """My trainings, oldest first."""
        return [Job(self._http, job) for job in self._http.call("GET", "/v1/jobs", repeatable=True)["jobs"]]

    # --- for auditors and stewards

    def statement(self, account: str) -> dict[str, Any]:
        """Who spent how much on what from an account."""
        path = f"/v1/accounts/{'/'.join(map(segment, account.split('/')))}/statement"
        answer: dict[str, Any] = self._http.call("GET", path, repeatable=True)
        return answer

    def verify(self, receipts: tuple[str, ...] = ()) -> dict[str, Any]:
        """Let the server recompute the whole ledger; `receipts` are those that somebody kept."""
        body = {"receipts": list(receipts)}
        answer: dict[str, Any] = self._http.call("POST", "/v1/ledger/verify", body, repeatable=True)
        return answer

    def export(self) -> Iterator[dict[str, Any]]:
        """All entries of the ledger with their hashes."""
        for line in self._http.lines("/v1/ledger/export"):
            yield json.loads(line)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any other call of the server, as its reference lists them: `call("POST", "/v1/users", {…})`."""
        if not path.startswith("/v1/"):
            raise _check.fail("path", "start with /v1/", path, "the server's /reference lists all calls")
        return self._http.call(method, path, body)

    def close(self) -> None:
        """Close the connection; it is opened again when needed."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {len(self._datasets)} datasets: {', '.join(self._datasets)}>"


def connect(url: str, token: str, *, timeout: float = 90.0) -> Connection:
    """Connect to a curator's server: `dp.connect("https://curator.example.org", token)["people"].count()`.

    Args:
        url: the server's address. It must be `https://`, except for a server on this machine.
        token: what the steward issued. It is sent in a header to this address alone; redirects are not followed.
        timeout: how many seconds to wait for an answer.

    Guarantee: the server charges every answer before it computes it, to the share of the token's user.
    """
    return Connection(Http(url, token, timeout))
