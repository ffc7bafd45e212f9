"""A stream is paid for once, never uses noise twice, and survives a kill at any instant."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import discreet as dp
from discreet import _files, events, queries
from discreet.errors import BudgetExceeded, InvalidArgument, KeyReused, NotALedger
from discreet.mechanisms import continual
from tests.ledger.faults import AFTER, hooked, in_child, killer, opened

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

COUNTER = continual.Tree.for_epsilon(continual.Stream(50), 1.0)
ONE = queries.count(["a visit"])


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("visits", dp.PureDP(1.5))


def test_a_stream_is_charged_once_and_before_its_first_step(account, tmp_path):
    with account.stream(COUNTER, tmp_path / "state", key="visits") as stream:
        assert stream.receipt.event == COUNTER.event
        assert account.summary().charges == 1
        releases = [stream.step(ONE) for _ in range(10)]
    assert [release.step for release in releases] == list(range(1, 11))
    assert account.summary().charges == 1
    with pytest.raises(BudgetExceeded):
        account.stream(COUNTER, tmp_path / "other", key="another")
    assert not (tmp_path / "other").exists()


def test_a_reopened_stream_continues_with_its_last_release(account, tmp_path):
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        release = [stream.step(ONE) for _ in range(3)][-1]
    with account.stream(COUNTER, path, key="visits") as again:
        assert again.receipt.replayed
        assert (again.taken, again.last.value, again.last.step) == (3, release.value, 3)
        assert again.step(ONE).step == 4
    assert account.summary().charges == 1
    assert dp.Ledger(tmp_path / "a.ledger").verify()


def test_the_file_is_its_owners_and_hides_nothing_else(account, tmp_path):
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        stream.step(ONE)
        for name in (path, path.with_name("state.lock")):
            assert stat.S_IMODE(name.stat().st_mode) == 0o600
        assert "hidden" in repr(stream)
        stream.erase()
    assert not path.exists()
    with pytest.raises(InvalidArgument, match="another key"):
        account.stream(COUNTER, path, key="visits")


def test_an_older_state_is_refused(account, tmp_path):
    path, copy = tmp_path / "state", tmp_path / "copy"
    with account.stream(COUNTER, path, key="visits") as stream:
        stream.step(ONE)
        shutil.copy(path, copy)
        stream.step(ONE)
        newest = path.read_bytes()
    shutil.copy(copy, path)
    with pytest.raises(NotALedger, match="older than the ledger"):
        account.stream(COUNTER, path, key="visits")
    path.write_bytes(newest)
    with account.stream(COUNTER, path, key="visits") as stream:
        assert stream.taken == 2


def test_a_newer_state_is_refused(account, tmp_path):
    """The ledger was restored from a copy."""
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        for _ in range(3):
            stream.step(ONE)
    copied = path.read_bytes().replace(b'\\"step\\":3', b'\\"step\\":5')
    assert copied != path.read_bytes()
    path.write_bytes(copied)
    with pytest.raises(NotALedger, match="newer than the ledger"):
        account.stream(COUNTER, path, key="visits")


def test_two_processes_cannot_continue_one_state(account, tmp_path, monkeypatch):
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        stream.step(ONE)
        with pytest.raises(InvalidArgument, match="another process"):
            account.stream(COUNTER, path, key="visits")
        # Where locks do not work, the ledger decides.
        monkeypatch.setattr(_files, "locked", lambda *_: open(os.devnull, "rb"))  # noqa: SIM115
        with account.stream(COUNTER, path, key="visits") as second:
            second.step(ONE)
        with pytest.raises(NotALedger, match="taken elsewhere"):
            stream.step(ONE)
        with pytest.raises(InvalidArgument, match="must be open"):
            stream.step(ONE)


def test_of_two_states_of_one_step_only_the_recorded_one_continues(place, tmp_path, monkeypatch):
    """A process is killed between the file and the ledger, a copy from before is restored, and then the killed state.

    The killed state has the right number. Its release has other noise than the one that was shown for the same data.
    """
    path, killed = tmp_path / "state", tmp_path / "killed"

    def open_stream(ledger):
        return ledger.account("visits", dp.PureDP(1.0)).stream(COUNTER, path, key="visits")

    with opened(place) as ledger, open_stream(ledger) as stream:
        stream.step(ONE)
        before = path.read_bytes()

    def victim():
        with opened(place) as ledger:
            stream, write = open_stream(ledger), _files.replace_file
            _files.replace_file = lambda *given: (write(*given), os.kill(os.getpid(), 9))
            stream.step(ONE)

    assert os.WIFSIGNALED(in_child(victim))
    shutil.copy(path, killed)
    path.write_bytes(before)
    with opened(place) as ledger:
        with open_stream(ledger) as stream:
            shown = stream.step(ONE)
        recorded = path.read_bytes()
        shutil.copy(killed, path)
        with pytest.raises(NotALedger, match="with other noise"):
            open_stream(ledger)
        path.write_bytes(recorded)
        with open_stream(ledger) as stream:
            assert (stream.taken, stream.last.value) == (2, shown.value)
            third = [stream.step(ONE).value, path.read_bytes()]
        # A state that was written ahead of the ledger, after a state that the ledger did not count, is refused as well.
        monkeypatch.setattr("discreet.ledger.reservation.Reservation.latest", lambda _: (2, "another mark"))
        path.write_bytes(third[1])
        with pytest.raises(NotALedger, match="with other noise"):
            open_stream(ledger)


def test_two_files_of_one_stream_release_a_step_once(account, tmp_path, monkeypatch):
    """The lock belongs to a file; the ledger decides between two files."""
    ours, theirs = tmp_path / "a", tmp_path / "b"
    with account.stream(COUNTER, theirs, key="visits") as stream:
        monkeypatch.setattr("discreet.ledger.reservation.Reservation.start_block", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.step(ONE)  # as if killed: the file is there, the record is not
        monkeypatch.undo()
    with account.stream(COUNTER, ours, key="visits") as stream:
        stream.step(ONE)
    with pytest.raises(NotALedger, match="with other noise"):
        account.stream(COUNTER, theirs, key="visits")


def test_a_forked_process_cannot_take_a_step(account, tmp_path):
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        stream.step(ONE)
        before = path.read_bytes()

        def child():
            with pytest.raises(InvalidArgument, match="was forked"):
                stream.step(ONE)
            os._exit(42)

        assert os.waitstatus_to_exitcode(in_child(child)) == 42
        assert path.read_bytes() == before
        assert stream.step(ONE).step == 2


def test_threads_take_turns(account, tmp_path):
    with account.stream(COUNTER, tmp_path / "state", key="visits") as stream, ThreadPoolExecutor(8) as pool:
        taken = sorted(release.step for release in pool.map(stream.step, [ONE] * 24))
    assert taken == list(range(1, 25))
    with account.stream(COUNTER, tmp_path / "state", key="visits") as stream:
        assert stream.taken == 24


def test_a_key_belongs_to_one_counter_and_a_file_to_one_stream(account, tmp_path):
    path = tmp_path / "state"
    with account.stream(COUNTER, path, key="visits") as stream:
        stream.step(ONE)
    with pytest.raises(KeyReused):
        account.stream(continual.Tree.for_epsilon(continual.Stream(50), 0.5), path, key="visits")
    plain = continual.Tree(COUNTER.stream, COUNTER.noise, 2, refined=False)
    assert plain.event == COUNTER.event
    with pytest.raises(InvalidArgument, match="belong to this counter"):
        account.stream(plain, path, key="visits")
    cheap = continual.Tree.for_epsilon(continual.Stream(50), 0.25)
    with pytest.raises(InvalidArgument, match="another stream"):
        account.stream(cheap, path, key="cheap")
    path.write_bytes(b"{}")
    with pytest.raises(InvalidArgument, match="not the state of a stream"):
        account.stream(COUNTER, path, key="visits")


def test_bad_arguments_are_refused_before_the_charge(account, tmp_path):
    with pytest.raises(InvalidArgument, match="counter must be a counter"):
        account.stream(events.Gaussian(1.0), tmp_path / "state", key="visits")
    with pytest.raises(InvalidArgument, match="key"):
        account.stream(COUNTER, tmp_path / "state", key=None)
    replaced = dp.Ledger(tmp_path / "b.ledger").account("b", dp.PureDP(9.0), relation=dp.REPLACE_ONE)
    with pytest.raises(InvalidArgument, match="neighbors"):
        replaced.stream(COUNTER, tmp_path / "state", key="visits")
    with pytest.raises(InvalidArgument, match="path must be a file that can be written"):
        account.stream(COUNTER, tmp_path / "no" / "folder", key="visits")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidArgument, match="path must be a file that can be read"):
        account.stream(COUNTER, tmp_path / "folder", key="visits")
    (tmp_path / "state").write_bytes(b"not a state")
    with pytest.raises(InvalidArgument, match="not the state of a stream"):
        account.stream(COUNTER, tmp_path / "state", key="visits")
    assert account.summary().charges == replaced.summary().charges == 0
    cheap = continual.Tree.for_epsilon(continual.Stream(50), 0.1)
    with account.stream(cheap, tmp_path / "cheap", key="cheap") as stream:
        stream.step(ONE)
    with pytest.raises(InvalidArgument, match="another stream"):
        account.stream(COUNTER, tmp_path / "cheap", key="visits")
    assert account.summary().charges == 1


def test_a_stream_of_unknown_length_and_a_histogram(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("visits", dp.ApproxDP(2.0, 1e-5))
    query = queries.histogram(["a", "b"], categories=("a", "b"))
    counter = continual.Doubling(continual.Stream.of(query, 2), 1.0, 1e-6)
    with account.stream(counter, tmp_path / "state", key="visits") as stream:
        first = stream.step(query)
    with account.stream(counter, tmp_path / "state", key="visits") as stream:
        assert np.array_equal(stream.last.value, first.value)
        assert [stream.step(query).step for _ in range(4)] == [2, 3, 4, 5]


@pytest.mark.parametrize("moment", ["before the file", "after the file", "locked", "recorded", "committing", *AFTER])
def test_a_kill_at_any_instant_repeats_no_noise_and_loses_no_release(place, tmp_path, moment):
    path, seen = tmp_path / "state", tmp_path / "seen"

    def open_stream(ledger):
        return ledger.account("visits", dp.PureDP(1.0)).stream(COUNTER, path, key="visits")

    with opened(place) as ledger, open_stream(ledger) as stream:
        stream.step(ONE)

    def victim():
        with opened(place) as ledger:
            stream = open_stream(ledger)
            write = _files.replace_file
            if moment == "before the file":
                _files.replace_file = lambda *_: os.kill(os.getpid(), 9)
            elif moment == "after the file":
                _files.replace_file = lambda *given: (write(*given), os.kill(os.getpid(), 9))
            else:
                hooked(ledger, killer(moment))
            seen.write_text(str(stream.step(ONE).value))
            os._exit(99)

    assert os.WIFSIGNALED(in_child(victim))
    assert not seen.exists()  # nothing was released that is not on disk
    with opened(place) as ledger, open_stream(ledger) as stream:
        assert stream.taken == (1 if moment == "before the file" else 2)
        assert stream.last.step == stream.taken
        assert stream.step(ONE).step == stream.taken
        assert ledger.account("visits").summary().charges == 1
        assert ledger.verify()


def test_an_event_that_is_one_price_for_many_steps_counts_them_and_hands_nothing_back(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("a", dp.ApproxDP(9.0, 1e-6))
    event = events.SquareRootNoise(4.0, 3, steps=12, participations=2, separation=6)
    reservation = account.reserve(event, "training", steps=12)
    assert (reservation.steps, reservation.start_block(5), reservation.started()) == (12, 5, 5)
    before = account.summary()
    assert reservation.close() == reservation.receipt
    assert account.summary() == before
    assert account.reserve(event, "training", steps=12).started() == 5
    with pytest.raises(InvalidArgument, match="be None for repeated events"):
        account.reserve(events.Repeated(events.Gaussian(9.0), 3), "other", steps=3)
    for steps in (0, -1, 1.5):
        with pytest.raises(InvalidArgument, match="steps"):
            account.reserve(event, "another", steps=steps)
    assert account.summary().charges == 1
