"""The same questions asked of OpenDP's SQL-like context and of smartnoise-sql, where these are installed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    """What another library answers: relative errors by question; `note` says why there are none."""

    errors: dict[str, float] = field(default_factory=dict)
    note: str = ""


def peers() -> dict[str, Peer]:
    """Each peer with its answers, or with the reason that it has none."""
    return {"smartnoise-sql": _smartnoise(), "OpenDP": _opendp()}


def _smartnoise() -> Peer:
    if importlib.util.find_spec("snsql") is None:
        return Peer(note="smartnoise-sql is not installed")
    return Peer(note="smartnoise-sql is installed, but this benchmark does not ask it yet")


def _opendp() -> Peer:
    return Peer(note="OpenDP reads expressions of Polars, no SQL: no question can be asked as typed")
