"""The exercises: every answer is computed and accepted, wrong answers get hints, progress survives a kill."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from discreet.apps.learn import EXERCISES, Exercise, Progress, charts, default_path, play
from discreet.apps.learn.exercise import parsed
from discreet.errors import InvalidArgument
from tests.apps.conftest import Run
from tools import make_textbook

COMMAND = (sys.executable, "-c", "import sys; from discreet.apps.cli import main; sys.exit(main())")
every = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.slug)


def test_there_is_one_exercise_for_each_problem():
    slugs = [exercise.slug for exercise in EXERCISES]
    assert slugs == [
        "odds", "homogeneity", "salary", "dilemma", "poll", "parallel", "bug", "models", "microbatch", "batchnorm",
    ]  # fmt: skip
    assert all(len(exercise.questions) >= 4 for exercise in EXERCISES)


@every
def test_the_shown_answer_is_right_and_every_mistake_gets_its_own_hint(exercise: Exercise):
    for question in exercise.questions:
        assert question.check(question.shown).right, question.asks
        for mistake in question.mistakes:
            reply = question.check(f"{mistake.value:.6g}")
            assert not reply.right, (question.asks, mistake.value)
            assert reply.says == mistake.hint
        for index, choice in enumerate(question.choices):
            reply = question.check("abc"[index])
            assert reply.right == (index == int(question.answer))
            assert reply.right or reply.says == (choice.hint or question.hint)


@every
def test_a_wrong_answer_gets_a_hint_and_no_solution(exercise: Exercise):
    for question in exercise.questions:
        wrong = question.check("123456789")
        assert not wrong.right
        assert len(wrong.says) > 10
        assert "{" not in question.explanation


@pytest.mark.parametrize("typed", ["nan", "inf", "-inf", "1e999", "", "abc", "%", "0x10", "½", "١", "1 2"])
def test_what_is_no_finite_number_is_asked_again(typed):
    reply = EXERCISES[0].questions[0].check(typed)
    assert not reply.right
    assert "number" in reply.says or parsed(typed) is not None


def test_numbers_are_read_as_people_type_them():
    assert [parsed(text) for text in ("12%", " 1,000 ", "1e-6", "-0.5", "1_000")] == [12, 1000, 1e-6, -0.5, 1000]


@every
def test_a_learner_types_the_answers(exercise: Exercise, run: Run, monkeypatch):
    lines = []
    for question in exercise.questions:
        lines += ["123456789", "hint", question.shown]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    done = run(f"discreet learn {exercise.slug} --progress mine.json")
    assert done.code == 0, done.err
    assert done.out.count("Not yet. ") == len(exercise.questions)
    assert done.out.count("Hint: ") == len(exercise.questions)
    assert done.out.count("Right. ") == len(exercise.questions)
    assert f"Solved: {exercise.title}." in done.out
    assert "█" in done.out
    assert Progress.load(Path("mine.json")).of(exercise.slug) == len(exercise.questions)


def test_an_exercise_stops_and_continues_where_it_stopped(run: Run, monkeypatch, folder):
    first, second, third, fourth = EXERCISES[0].questions
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{first.shown}\nquit\n"))
    assert "Stopped at question 2 of 4" in run("discreet learn odds").out
    assert default_path() == folder / "state" / "discreet" / "learn.json"
    assert json.loads(default_path().read_text())["solved"] == {"odds": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{second.shown}\nsolution\n{fourth.shown}\n"))
    rest = run("discreet learn odds").out
    assert first.asks not in rest
    assert f"The answer is {third.shown}." in rest
    assert "Solved: " in rest
    assert "solved already" in run("discreet learn odds").out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "Stopped at question 1 of 4" in run("discreet learn odds --restart").out


def test_without_a_standard_input_it_asks_and_stops(run: Run, folder):
    done = run("discreet learn odds")  # pytest's standard input refuses to be read
    assert done.code == 0
    assert "Stopped at question 1 of 4" in done.out
    assert not default_path().exists()


def test_the_list_shows_what_is_solved_and_what_comes_next(run: Run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1.01\n"))
    run("discreet learn odds")
    assert "1 of 4" in run("discreet learn").out
    assert "Next: discreet learn odds" in run("discreet learn").out
    listed = json.loads(run("discreet learn --json").out)
    assert [one["solved"] for one in listed["exercises"]] == [1] + [0] * 9
    one = json.loads(run("discreet learn bug --json").out)
    assert (one["exercise"], one["questions"], len(one["asks"])) == ("bug", 4, 4)


def test_a_killed_process_keeps_every_right_answer(tmp_path):
    path = tmp_path / "learn.json"
    process = subprocess.Popen(
        [*COMMAND, "learn", "odds", "--progress", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("1.01\n")
    process.stdin.flush()
    while "2/4" not in process.stdout.readline():
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert Progress.load(path).of("odds") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["learn.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": 2, "solved": {}}', '{"version": 1, "solved": {"odds": "x"}}']
)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "learn.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="--progress must be"):
        Progress.load(path)
    assert path.read_text() == text


def test_a_negative_or_too_large_count_does_no_harm(tmp_path):
    path = tmp_path / "learn.json"
    path.write_text('{"version": 1, "solved": {"odds": -3, "bug": 99, "gone": 1}}')
    progress = Progress.load(path)
    said: list[str] = []
    assert not play(EXERCISES[0], progress, iter(()), said.append)
    assert play(EXERCISES[6], progress, iter(()), said.append)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_clear_error(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(InvalidArgument, match="--progress must be"):
        Progress(tmp_path / "learn.json").record("odds", 1)


def test_a_relative_state_home_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_path() == Path.home() / ".local" / "state" / "discreet" / "learn.json"


@every
def test_the_chart_is_drawn_from_finite_numbers(exercise: Exercise, tmp_path):
    across, series = exercise.chart.data
    assert all(len(values) == len(across) for values in series.values())
    assert exercise.chart.title in charts.as_text(exercise.chart)
    assert (make_textbook.DOCS / "img" / f"exercise-{exercise.slug}.png").stat().st_size > 10_000
    if exercise.chart.marks:
        charts.draw(exercise.chart, tmp_path / "chart.png")
        assert (tmp_path / "chart.png").stat().st_size > 10_000


def test_the_pages_of_the_exercises_are_not_stale():
    texts = make_textbook.exercise_texts()
    for path, text in texts.items():
        assert path.read_text(encoding="utf-8") == text, path
    assert set((make_textbook.DOCS / "exercises").glob("*.md")) == set(texts)


def test_code_of_answers_fits_the_page():
    codes = [question.code for exercise in EXERCISES for question in exercise.questions]
    assert max(len(line) for code in codes for line in code.splitlines()) <= 88
