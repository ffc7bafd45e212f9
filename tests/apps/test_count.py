"""`discreet count` counts lines as they arrive, is charged once, and continues where it stopped."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import discreet as dp
from discreet.apps.cli import count as count_file
from tests.apps.conftest import Run

COUNT = "discreet count visits.log --ledger census.ledger --epsilon 100 --steps 9 --separator END"
COMMAND = (sys.executable, "-c", "import sys; from discreet.apps.cli import main; sys.exit(main())")


@pytest.fixture
def ledger(run: Run, folder):
    assert run("discreet ledger init census.ledger --account census --epsilon 300 --delta 1e-6").code == 0
    return dp.Ledger(folder / "census.ledger")


def test_steps_end_at_separators_and_continue_after_a_stop(run: Run, folder, ledger):
    """ε = 100 is so large that counts are exact with overwhelming probability (e^−50 of a miss)."""
    first = run(f"{COUNT} --json")
    assert first.code == 0, first.err
    assert [row["count"] for row in json.loads(first.out)] == [2, 3]
    with (folder / "visits.log").open("a") as file:
        file.write("GET /a\nEND\nGET /b\n")
    again = run(f"{COUNT} --json")
    # The last step is shown again: whoever was stopped may not have seen it.
    assert [(row["step"], row["count"]) for row in json.loads(again.out)] == [(2, 3), (3, 5)]
    assert ledger.account("census").summary().charges == 1
    assert stat.S_IMODE(os.stat("discreet-count.state").st_mode) == 0o600
    nothing = run(COUNT)
    assert (nothing.code, "no step" in nothing.out) == (0, True)
    assert [row["step"] for row in json.loads(run(f"{COUNT} --json").out)] == [3]


def test_a_release_that_could_not_be_printed_is_shown_when_the_stream_continues(run: Run, ledger, monkeypatch):
    def broken(self, release):
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(count_file._Shown, "__call__", broken)
        assert run(f"{COUNT} --json").code != 0
    assert [row["count"] for row in json.loads(run(f"{COUNT} --json").out)] == [2, 3]
    assert ledger.account("census").summary().charges == 1


def test_a_stream_whose_steps_are_all_taken_says_so_and_waits_for_nothing(run: Run, ledger):
    line = COUNT.replace("--steps 9", "--steps 2")
    assert "all 2 steps are taken" in run(line).out
    again = run(f"{line} --follow")
    assert (again.code, again.out.splitlines()[0].split()[0]) == (0, "2")
    assert "all 2 steps are taken" in again.out


def test_lines_are_drawn_with_their_band(run: Run, ledger):
    done = run(f"{COUNT} --match /a")
    assert done.code == 0, done.err
    rows = done.out.splitlines()
    assert [row.split()[1] for row in rows] == ["1", "2"]
    assert all("●" in row for row in rows)


def test_a_preview_spends_and_keeps_nothing(run: Run, folder, ledger):
    for extra in ("", " --json", " --delta 1e-7"):
        done = run(f"{COUNT} --preview{extra}")
        assert done.code == 0, done.err
        assert "squared error" in done.out
    assert "first 64 steps" in run(COUNT.replace("--steps 9 ", "") + " --preview").out
    assert ledger.account("census").summary().charges == 0
    assert not (folder / "discreet-count.state").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{COUNT} --every 5", "--every must not be used with --separator"),
        (COUNT.replace("--separator END", "--every 0"), "--every must be > 0"),
        (COUNT.replace("visits.log", "absent.log"), "DATA must be a file"),
        (COUNT.replace("--epsilon 100", "--epsilon -1"), "epsilon must be > 0"),
    ],
)
def test_bad_arguments_are_refused_before_the_charge(run: Run, ledger, line, message):
    done = run(line)
    assert done.code == 2
    assert message in done.err
    assert ledger.account("census").summary().charges == 0


def test_a_key_leads_to_no_other_folder(run: Run, folder, ledger):
    assert run(f"{COUNT} --key ../up").code == 0
    assert (folder / "discreet-..-up.state").exists()


def test_intervals_of_time_count_what_arrived_until_the_input_ends(run: Run, ledger, monkeypatch, request):
    def fed(content):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        file = os.fdopen(reading, "rb")
        request.addfinalizer(file.close)
        monkeypatch.setattr(count_file.sys, "stdin", SimpleNamespace(buffer=file))

    line = "discreet count --ledger census.ledger --epsilon 100 --every 0.5 --json"
    fed(b"a\nb\r\nunfinished")
    done = run(line)
    assert done.code == 0, done.err
    assert [row["count"] for row in json.loads(done.out)] == [2]
    fed(b"a\nb\r\n")  # nobody knows whether these are the same lines again
    assert "--new-lines" in run(line).err
    fed(b"c\n")
    assert [row["count"] for row in json.loads(run(f"{line} --new-lines").out)] == [2, 3]


def test_no_line_is_counted_twice(run: Run, folder, ledger):
    """By standard input, in another way, or in two halves."""
    (folder / "log").write_bytes(b"alice\nbob\nEND\nunfin")
    line = "discreet count log --ledger census.ledger --epsilon 100 --steps 9 --json"

    def counted(extra):
        done = run(f"{line} {extra}")
        return [row["count"] for row in json.loads(done.out)] if done.code == 0 else done.err

    assert counted("--every 0.5") == [3]
    assert counted("--every 0.5") == [3, 3]
    assert "one way" in counted("--separator END")
    assert "one way" in counted("--every 0.5 --match a")
    with (folder / "log").open("ab") as file:
        file.write(b"ished\n")
    assert counted("--every 0.5") == [3, 4]
    os.replace(folder / "log", folder / "old")
    (folder / "log").write_bytes(b"alice\nbob\nEND\n")
    assert "--new-lines" in counted("--every 0.5")
    assert ledger.account("census").summary().charges == 1


@pytest.mark.slow
def test_a_killed_count_of_a_growing_file_continues(run: Run, folder, ledger):
    words = [*COUNT.split()[1:], "--follow"]
    with subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert [running.stdout.readline().split()[1] for _ in range(2)] == ["2", "3"]
        with (folder / "visits.log").open("a") as file:
            file.write("GET /a\nEND\n")
        assert running.stdout.readline().split()[1] == "5"
        running.kill()
    time.sleep(0.1)
    with (folder / "visits.log").open("a") as file:
        file.write("GET /a\nEND\n")
    assert [row["step"] for row in json.loads(run(f"{COUNT} --json").out)] == [3, 4]
    assert ledger.account("census").summary().charges == 1
