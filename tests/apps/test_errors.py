"""Bad input to any command gives exit code 2 and one clear line, never a traceback or a row of data."""

from __future__ import annotations

import io

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.apps.cli import main
from discreet.apps.cli import program as program_module
from tests.apps.conftest import Run
from tests.apps.test_commands import INIT, QUERY, leaves

BAD = {
    "serve": [
        "discreet serve",
        "discreet serve nowhere.toml",
        "discreet serve broken.json",
        "discreet serve config.toml",
        "discreet serve curator.toml --port none",
    ],
    "data adult": [
        "discreet data adult",
        "discreet data adult people.parquet",
        "discreet data adult nowhere/people.parquet",
        "discreet data adult . --overwrite",
        "discreet data adult new.parquet --part both",
    ],
    "data hospital": [
        "discreet data hospital",
        "discreet data hospital people.parquet",
        "discreet data hospital clinic --seed -1",
        "discreet data hospital clinic --seed one",
    ],
    "ledger init": [
        "discreet ledger init",
        "discreet ledger init x.ledger --account a",
        "discreet ledger init x.ledger --account a --epsilon -1",
        "discreet ledger init x.ledger --account a --epsilon nan",
        "discreet ledger init x.ledger --account a --epsilon 1 --delta 2",
        "discreet ledger init x.ledger --account a --epsilon 1e150 --delta 1e-6",
        "discreet ledger init x.ledger --account a --epsilon 1 --rho 1",
        "discreet ledger init x.ledger --account a --rho 1 --delta 1e-6",
        "discreet ledger init x.ledger --account a/b --epsilon 1",
        "discreet ledger init x.ledger --account a --epsilon 1 --unit person_id",
        "discreet ledger init x.ledger --account a --epsilon 1 --max-rows 3",
        "discreet ledger init x.ledger --account a --epsilon 1 --relation neighbors",
        "discreet ledger init census.ledger --account census --epsilon 4 --delta 1e-6",
        "discreet ledger init people.parquet --account a --epsilon 1",
        "discreet ledger init :memory: --account a --epsilon 1",
    ],
    "ledger accounts": ["discreet ledger accounts nowhere.ledger", "discreet ledger accounts people.parquet"],
    "ledger allot": [
        "discreet ledger allot census.ledger nobody ann --epsilon 1 --delta 1e-6",
        "discreet ledger allot census.ledger census ann",
        "discreet ledger allot census.ledger --epsilon 1 --delta 1e-6",
        "discreet ledger allot census.ledger census ann bob --epsilon 1 --delta 1e-6",
        "discreet ledger allot census.ledger census a/b --epsilon 1 --delta 1e-6",
    ],
    "ledger anchor": [
        "discreet ledger anchor census.ledger",
        "discreet ledger anchor census.ledger --key nowhere.key --to heads.jsonl",
        "discreet ledger anchor census.ledger --key people.parquet --to heads.jsonl",
        "discreet ledger anchor nowhere.ledger --key steward.key --to heads.jsonl",
    ],
    "ledger guard": [
        "discreet ledger guard census.ledger",
        "discreet ledger guard census.ledger --role server",
    ],
    "ledger export": ["discreet ledger export", "discreet ledger export nowhere.ledger"],
    "certificate key": [
        "discreet certificate key",
        "discreet certificate key steward.key",
        "discreet certificate key people.parquet --keys new.pub",
        "discreet certificate key nowhere/steward.key --keys new.pub",
        "discreet certificate key new.key --keys people.parquet",
    ],
    "certificate rotate": [
        "discreet certificate rotate old.key",
        "discreet certificate rotate nowhere.key new.key --keys steward.pub",
        "discreet certificate rotate broken.json new.key --keys broken.json",
    ],
    "certificate make": [
        "discreet certificate make census.ledger",
        "discreet certificate make census.ledger --row 1 --key nowhere.key --dataset a --version 1",
        "discreet certificate make census.ledger --row one --key nowhere.key --dataset a --version 1",
    ],
    "certificate verify": [
        "discreet certificate verify broken.json",
        "discreet certificate verify broken.json --keys nowhere.pub",
        "discreet certificate verify broken.json --keys broken.json",
        "discreet certificate verify broken.json --keys people.parquet",
    ],
    "ledger statement": [
        "discreet ledger statement census.ledger nobody",
        "discreet ledger statement census.ledger census --delta 1.5",
        "discreet ledger statement nowhere.ledger",
        "discreet ledger statement census.ledger census --account other",
    ],
    "ledger verify": [
        "discreet ledger verify nowhere.ledger",
        "discreet ledger verify census.ledger --receipt nowhere.json",
        "discreet ledger verify census.ledger --receipt people.parquet",
    ],
    "query": [
        QUERY.replace("--epsilon 0.2", ""),
        QUERY.replace("--epsilon 0.2", "--epsilon 0"),
        QUERY.replace("--epsilon 0.2", "--epsilon inf"),
        QUERY.replace("people.parquet", "nothing.parquet"),
        QUERY.replace("people.parquet", "event.json"),
        QUERY.replace("SELECT sex", "DELETE sex"),
        QUERY.replace("AVG(hours)", "AVG(wages)"),
        QUERY.replace("--keys sex=Female,Male", ""),
        QUERY.replace("--keys sex=Female,Male", "--keys sex"),
        QUERY.replace("--keys sex=Female,Male", "--keys sex=@nowhere.txt"),
        QUERY.replace("--keys sex=Female,Male", "--keys sex=1,2"),
        QUERY.replace("--bounds hours=0,100", ""),
        QUERY.replace("--bounds hours=0,100", "--bounds hours=0"),
        QUERY.replace("--bounds hours=0,100", "--bounds hours=100,0"),
        QUERY.replace("--bounds hours=0,100", "--bounds hours=0,nan"),
        QUERY.replace("--account census", "--account nobody"),
        QUERY.replace("--ledger census.ledger", "--ledger nowhere.ledger"),
        f"{QUERY} --unit person_id --max-rows 2",
        f"{QUERY} --error 3",
        f"{QUERY} --discover",
        f"{QUERY} --rho 0.1",
        f"{QUERY} --noise gaussian",
        f"{QUERY} --noise loud",
        QUERY.replace("--keys sex=Female,Male", "--discover"),
        f"{QUERY} --preview --rows 0",
    ],
    "report": [
        "discreet report nowhere.ledger",
        "discreet report census.ledger nobody",
        "discreet report census.ledger --result event.json",
        "discreet report census.ledger --result nowhere.json",
        "discreet report census.ledger --out nowhere/report.html",
    ],
    "price dpsgd": [
        "discreet price dpsgd",
        "discreet price dpsgd --examples 100 --batch-size 200 --epochs 1 --noise 1 --delta 1e-5",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --delta 1e-5",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --steps 5 --noise 1 --delta 1e-5",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 0 --noise 1 --delta 1e-5",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --noise -1 --delta 1e-5",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --noise 1 --delta 0",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --delta 1e-5 --calibrate delta=3",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --delta 1e-5 --calibrate epsilon=x",
        "discreet price dpsgd --examples 100 --batch-size 10 --epochs 1 --noise 1 --delta 1e-5 --calibrate epsilon=3",
        "discreet price dpsgd --examples many --batch-size 10 --epochs 1 --noise 1 --delta 1e-5",
    ],
    "price gaussian": [
        "discreet price gaussian --delta 1e-5",
        "discreet price gaussian --noise 0 --delta 1e-5",
        "discreet price gaussian --noise 1 --times 0 --delta 1e-5",
    ],
    "price laplace": [
        "discreet price laplace --noise nan --delta 1e-5",
        "discreet price laplace --noise 0.001 --delta 1e-5 --calibrate epsilon=0.1",
    ],
    "price json": [
        "discreet price json nowhere.json --delta 1e-5",
        "discreet price json people.parquet --delta 1e-5",
        "discreet price json broken.json --delta 1e-5",
        "discreet price json unknown.json --delta 1e-5",
        "discreet price json event.json --delta 7",
    ],
    "candidates": [
        "discreet candidates event.json",
        "discreet candidates nowhere.json --delta 1e-5",
        "discreet candidates event.json --delta 7",
        "discreet candidates event.json --delta 1e-5 --trials few",
        "discreet candidates event.json --delta 1e-5 --trials 1",
        "discreet candidates event.json --delta 1e-5 --epsilon -1",
        "discreet candidates event.json --delta 1e-5 --plot chart.gif",
    ],
    "compare": [
        "discreet compare",
        "discreet compare --sayings --delta 1e-6",
        "discreet compare --epsilon 1 --l1 1",
        "discreet compare --epsilon 1 --delta 1e-6",
        "discreet compare --epsilon 1 --delta 0 --l1 1",
        "discreet compare --epsilon 0 --delta 1e-6 --l1 1",
        "discreet compare --epsilon 1 --delta 1e-6 --l1 5 --l2 1 --dimension 4",
        "discreet compare --epsilon 1 --delta 1e-6 --l1 1 --steps 0",
        "discreet compare --epsilon 1 --delta 1e-6 --l1 1 --plot noise.exe",
        "discreet compare --epsilon 1 --delta 1e-6 --l1 1 --plot nowhere/noise.svg",
        "discreet compare --epsilon 1 --delta 1e-6 --l1 1 --grid 1e-30",
    ],
    "allocate": [
        "discreet allocate --epsilon 1",
        "discreet allocate --count people=10",
        "discreet allocate --epsilon 1 --count people",
        "discreet allocate --epsilon 1 --count people=0",
        "discreet allocate --epsilon 1 --count people=10 --count people=20",
        "discreet allocate --epsilon 1 --training model=1,2",
        "discreet allocate --epsilon 1 --selection region=0,5",
        "discreet allocate --epsilon 1 --count people=10 --weight others=2",
        "discreet allocate --epsilon 1 --count people=10 --plot noise.exe",
    ],
    "choose": [
        "discreet choose",
        "discreet choose --max-epsilon 0 --error 10 --probability 0.05",
        "discreet choose --max-epsilon nan --error 10 --probability 0.05",
        "discreet choose --max-epsilon 1 --error -1 --probability 0.05",
        "discreet choose --max-epsilon 1 --error 10 --probability 1",
        "discreet choose --max-epsilon 1 --error 10 --probability 0",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --mean 0,1",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --rows 5",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --mean 0,1 --rows 0",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --sum 5",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --sum 5,1",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --delta 1e-6",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --noise gaussian",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --plot range.exe",
        "discreet choose --max-epsilon 1 --error 10 --probability 0.05 --plot nowhere/range.svg",
    ],
    "belief": [
        "discreet belief --epsilon 1",
        "discreet belief --prior 0.5",
        "discreet belief --epsilon 1 --prior 2",
        "discreet belief --epsilon 1 --prior nan",
        "discreet belief --epsilon 1 --rho 1 --prior 0.5",
        "discreet belief --rho 1 --prior 0.5 --failure 0",
        "discreet belief --rho 1 --prior 0.5 --failure 1",
        "discreet belief --epsilon 1 --prior 0.5 --plot belief.exe",
    ],
    "demo": ["discreet demo --folder people.parquet", "discreet demo fast"],
    "train": [
        "discreet train nowhere.toml",
        "discreet train people.parquet",
        "discreet train event.json",
    ],
    "pate": [
        "discreet pate nowhere.toml",
        "discreet pate people.parquet",
        "discreet pate config.toml",
    ],
    "check": [
        "discreet check nowhere.py:build",
        "discreet check model.py",
        "discreet check model.py:absent",
        "discreet check model.py:breaks",
        "discreet check model.py:nothing",
        "discreet check model.py:build --shape wide",
        "discreet check model.py:build --shape 0",
        "discreet check model.py:build --shape 4",
        "discreet check model.py:build --shape 99999999999999999999",
        "discreet check model.py:build --shape 4 --classes 1",
    ],
    "completion": ["discreet completion tcsh", "discreet completion"],
    "audit": [
        "discreet audit",
        "discreet audit model.py",
        "discreet audit nowhere.py:release --epsilon 1 --bounds 0,1",
        "discreet audit model.py:absent --epsilon 1 --bounds 0,1",
        "discreet audit model.py:build --bounds 0,1",
        "discreet audit model.py:build --epsilon 1",
        "discreet audit model.py:build --epsilon 1 --bounds 1",
        "discreet audit model.py:build --epsilon 1 --bounds 0,1 --alpha 2",
        "discreet audit model.py:build --epsilon 1 --bounds 0,1 --samples 0",
    ],
    "learn": [
        "discreet learn nothing",
        "discreet learn --restart",
        "discreet learn odds bug",
        "discreet learn --progress people.parquet",
        "discreet learn odds --progress event.json",
        "discreet learn odds --restart --progress event.json",
        "discreet learn --progress .",
        "discreet learn odds --restart --progress people.parquet/learn.json",
    ],
    "tour": ["discreet tour --folder people.parquet", "discreet tour fast"],
    "plan": [
        "discreet plan",
        "discreet plan --examples 0 --epsilon 1 --delta 1e-6",
        "discreet plan --examples 1000 --epsilon -1 --delta 1e-6",
        "discreet plan --examples 1000 --epsilon 1 --delta 2",
        "discreet plan --examples 1000 --epsilon 1 --delta 1e-6 --batch-sizes large",
        "discreet plan --examples 1000 --epsilon 1 --delta 1e-6 --epochs 0",
        "discreet plan --examples 1000 --epsilon 1 --delta 1e-6 --gradients 0",
    ],
    "count": [
        "discreet count",
        "discreet count nowhere.txt --epsilon 1 --ledger census.ledger",
        "discreet count event.json --epsilon 0 --ledger census.ledger",
        "discreet count event.json --epsilon 1 --ledger nowhere.ledger",
        "discreet count event.json --epsilon 1 --steps 0 --ledger census.ledger",
        "discreet count event.json --epsilon 1 --every -1 --ledger census.ledger",
    ],
    "text fit": [
        "discreet text fit",
        "discreet text fit nowhere nowhere --epsilon 1",
    ],
    "text write": ["discreet text write", "discreet text write nowhere", "discreet text write . --count 0"],
}


def test_every_command_is_tried_with_bad_input():
    assert set(BAD) == set(leaves())


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line_and_code_2(name, run: Run, folder):
    run(INIT)
    (folder / "broken.json").write_text('{"tag": ')
    (folder / "unknown.json").write_text('{"tag": "magic"}')
    for line in BAD[name]:
        done = run(line)
        assert done.code == 2, (line, done)
        assert done.out == "", line
        assert done.err.startswith("error: "), line
        assert done.err.count("\n") == 1, (line, done.err)
        assert "Traceback" not in done.err
        assert len(done.err) > 30, line


@pytest.mark.parametrize("line", ["discreet nonsense", "discreet ledger nonsense", "discreet --nonsense"])
def test_an_unknown_command_or_flag_is_bad_input_too(run: Run, line):
    done = run(line)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("line", ["discreet", "discreet ledger", "discreet price"])
def test_a_group_alone_shows_its_help(run: Run, line):
    done = run(line)
    assert done.code == 2
    assert "Commands:" in done.err + done.out


def test_a_traceback_comes_only_with_debug(run: Run):
    line = "discreet ledger accounts nowhere.ledger"
    assert "Traceback" not in run(line).err
    assert "Traceback" in run(f"{line} --debug").err


def test_an_unexpected_failure_does_not_quote_its_message(run: Run, monkeypatch):
    """A foreign exception may quote a row."""

    def fails(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret row 42")

    monkeypatch.setattr(program_module.program, "main", fails)
    done = run("discreet ledger accounts census.ledger")
    assert done.code == 1
    assert "secret" not in done.err
    assert "RuntimeError" in done.err


def test_a_broken_file_is_not_mistaken_for_a_ledger(run: Run, folder):
    before = (folder / "people.parquet").read_bytes()
    assert run("discreet ledger init people.parquet --account a --epsilon 1").code == 2
    assert (folder / "people.parquet").read_bytes() == before


STRANGE = st.sampled_from(
    [
        *(
            "census.ledger",
            "people.parquet",
            "event.json",
            "model.py:build",
            "config.toml",
            "census",
            "nowhere",
            "bash",
        ),
        *("1", "0", "-1", "nan", "inf", "1e-6", "1e400", "99999999999999999999", "", " ", "=", "a=", "\x01", "ε", "🙂"),
        *("SELECT COUNT(*) FROM p", "SELECT *", "';--", "../..", "/", "-", "--", "@nowhere", "sex=Female,Male"),
        *("age=0,120", "epsilon=1", "epsilon=nan", "add/remove", "replace-one", "gaussian", "3.5", "x.svg"),
    ]
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """An existing command with some of its options, and strange values for all of them."""
    name: str = draw(st.sampled_from(sorted(set(leaves()) - {"demo", "compare"})))  # these are slow
    words = name.split()
    for parameter in leaves()[name].params:
        if isinstance(parameter, click.Argument):
            words.append(draw(STRANGE))
        elif parameter.opts[0] != "--debug" and draw(st.booleans()):
            words.append(parameter.opts[0])
            words += [] if parameter.is_flag else [draw(_fitting(parameter))]
    return words


def _fitting(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Values of the right type, so that they pass the first check, and others for text."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return st.sampled_from(list(kind.choices))
    if kind is click.INT:
        return st.sampled_from(["1", "2", "10", "0", "-3", "400", "99999999999999999999"])
    if kind is click.FLOAT:
        return st.sampled_from(["1", "0.5", "1e-6", "0", "-1", "nan", "inf", "1e-320", "1e150", "1e300"])
    return STRANGE


@given(words=command_lines())
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_words_whatever_lead_to_a_traceback_or_an_unexpected_failure(words, folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    if not (folder / "census.ledger").exists():
        main(INIT.split()[1:])
    capsys.readouterr()
    code = main(words)
    left = capsys.readouterr()
    assert code in (0, 1, 2, 3)
    assert "unexpected failure" not in left.err, words
    assert "Traceback" not in left.err
    if code == 2 and left.err.startswith("error: "):
        assert left.err.count("\n") == 1, left.err
