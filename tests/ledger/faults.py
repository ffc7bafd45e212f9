"""Helpers for tests that break things while a ledger is in use: hooks, kills, contention, and a server's settings."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from fractions import Fraction

import discreet as dp
from discreet import events as ev
from discreet.ledger.stores import base

#: An event that costs exactly 1/64.
STEP = ev.Laplace(64.0)
#: The steps of a spend before and after the instant at which it is committed.
BEFORE = ["priced", "locked", "checked", "recorded", "recorded above", "committing"]
AFTER = ["committed", "returning"]


def opened(place, **options):
    return dp.Ledger(place.location, **options)


def spent(account):
    return account.budget.epsilon - Fraction(account.remaining().epsilon)


def forget():
    """Forget what this process saw in any ledger, as a process that starts now has seen nothing."""
    for seen in base._seen_at.values():
        seen.clear()


# --- hooks


def hooked(ledger, hook):
    """Call `hook` at each step from now on; `on_step=` would call it while the ledger is opened too."""
    ledger._backend.on_step = hook
    ledger._backend.store._on_step = hook


def at(step, action):
    """A hook that acts once, at the named step."""
    acted = []

    def on_step(name):
        if name == step and not acted:
            acted.append(True)
            action()

    return on_step


def killer(step):
    """A hook that kills the process at the named step."""
    return at(step, lambda: os.kill(os.getpid(), signal.SIGKILL))


def in_child(work) -> int:
    """Run `work` in a forked process and return its wait status. The child skips the test's own clean-up."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


# --- sessions of PostgreSQL


def contend(ledger, contended=True):
    """Make the idle sessions believe that they had to wait for others at their last lock, or that they had not."""
    for session in ledger._backend.store._pool._free:
        session.contended = contended


def at_rest(ledger):
    """The `synchronous_commit` of each idle session, and whether a transaction is open on it."""
    return {
        (session.execute("SHOW synchronous_commit").fetchone()[0], session._connection.info.transaction_status.name)
        for session in ledger._backend.store._pool._free
    }


# --- the server


def restart(place, mode):
    """Stop the server ("immediate" is a crash, "fast" cuts all connections) and start it again."""
    place.server.stop(mode)
    place.server.start()


@contextlib.contextmanager
def configured(place, name, value):
    """Change a setting of the whole server for a while."""
    [(before,)] = place.query(f"SHOW {name}")
    _configure(place, f"SET {name} = '{value}'", name, value)
    try:
        yield
    finally:
        _configure(place, f"RESET {name}", name, before)


def _configure(place, change, name, value):
    import psycopg

    with psycopg.connect(place.location, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM {change}")
        connection.execute("SELECT pg_reload_conf()")
    for _ in range(600):  # half a minute: the reload is asynchronous
        if place.query(f"SHOW {name}") == [(value,)]:
            time.sleep(0.2)  # sessions that were open before hear of it a moment later
            return
        time.sleep(0.05)
    raise AssertionError(f"the server did not set {name}")
