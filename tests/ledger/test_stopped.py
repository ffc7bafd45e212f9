"""A process that is stopped while it holds a ledger does not stop the others for longer than their timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import LedgerBusy
from tests.ledger.faults import STEP, opened, spent

# It stops itself at the named step of a spend, with the lock in its hands.
WRITER = """
import os, signal, sys
import discreet as dp

ledger = dp.Ledger(sys.argv[1], create=False)
account = ledger.account("census")

def stop(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGSTOP)

ledger._backend.on_step = ledger._backend.store._on_step = stop
account.spend(dp.events.Laplace(64.0))
"""


@pytest.mark.parametrize("step", ["locked", "checked", "recorded", "committing"])
def test_a_stopped_writer_makes_others_give_up_after_their_timeout(new_sqlite, step):
    place, timeout = new_sqlite(), 0.2
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, place.location, step])
    try:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with opened(place, timeout=timeout) as ledger:
            account = ledger.account("census")
            for attempt in (
                lambda: account.spend(STEP),
                lambda: account.spend(STEP, key="again"),
                lambda: account.allot("ann", dp.PureDP(1.0)),
                lambda: ledger.account("wages", budget=dp.PureDP(1.0)),
            ):
                start = time.monotonic()
                with pytest.raises(LedgerBusy, match=r"held by others for 0\.2 s"):
                    attempt()
                assert timeout <= time.monotonic() - start < timeout + 10  # seconds, on a busy machine
            assert spent(account) == Fraction(1, 64)  # readers need no lock
            assert ledger.verify()
            os.kill(writer.pid, signal.SIGCONT)
            assert writer.wait(timeout=60) == 0
            account.spend(STEP)
            assert spent(account) == Fraction(3, 64)
            assert ledger.verify()
    finally:
        writer.kill()
        writer.wait()


def test_a_stopped_thread_s_lock_does_not_block_others_of_the_process_for_longer(new_sqlite):
    """Two `Ledger` objects of one process wait for each other like two processes."""
    place = new_sqlite()
    with opened(place) as first, opened(place, timeout=0.2) as second:
        account = first.account("census", budget=dp.PureDP(1.0))
        other = second.account("census")
        outcome = []

        def meanwhile(step):
            if step == "recorded":
                with pytest.raises(LedgerBusy):
                    other.spend(STEP)
                outcome.append(step)

        first._backend.on_step = meanwhile
        account.spend(STEP)
        assert outcome == ["recorded"]
        assert other.spend(STEP).sequence == 2
