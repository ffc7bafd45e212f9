"""Each command does what its help says: the examples run as typed, and --json prints JSON."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest

import discreet as dp
from discreet.apps.cli import main
from discreet.apps.cli.command import Command
from discreet.apps.cli.program import program
from discreet.apps.pate import read_pate_config
from discreet.apps.training import read_config
from discreet.codec import encode, encode_tree
from discreet.learning import Plan
from tests.apps.conftest import EVENT, Run
from tools import make_cli_reference

REPOSITORY = Path(__file__).parent.parent.parent

INIT = "discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6"
QUERY = (
    'discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" '
    "--keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --account census"
)

#: The program in a process of its own.
COMMAND = (sys.executable, "-c", "import sys; from discreet.apps.cli import main; sys.exit(main())")

#: Commands whose examples need what these leave behind, first ones first.
FIRST = (
    "data adult",
    "ledger init",
    "ledger allot",
    "ledger accounts",
    "query",
    "certificate key",
    "ledger anchor",
    "certificate make",
    "certificate verify",
)


def leaves(group: click.Group = program, path: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        whole = f"{path} {name}".strip()
        found |= leaves(command, whole) if isinstance(command, click.Group) else {whole: command}
    return found


def in_order() -> list[str]:
    names = [*FIRST, *(name for name in leaves() if name not in FIRST)]
    own_tests = {"demo", "tour", "text fit", "text write", "ledger guard"}
    return [name for name in names if name not in own_tests]


@pytest.mark.parametrize("name", leaves())
def test_every_command_has_help_an_example_and_the_common_flags(name, run: Run):
    command = leaves()[name]
    assert isinstance(command, Command)
    assert command.examples
    assert all(line.startswith(f"discreet {name}") for line in command.examples)
    shown = run(f"discreet {name} --help")
    assert shown.code == 0
    assert all(line in shown.out for line in command.examples)
    assert "--json" in shown.out
    assert "--debug" in shown.out


@pytest.mark.slow
def test_the_examples_run_as_typed(run: Run, folder):
    (folder / "people.parquet").unlink()  # the first example writes it
    for name in in_order():
        for line in leaves()[name].examples:
            done = run(line)
            assert done.code == 0, (line, done.err)
            assert done.out, line
            assert "Traceback" not in done.err
        if name == "query":
            (folder / "hours.json").write_text(run(f"{QUERY} --json").out)


@pytest.mark.slow
def test_every_example_prints_json_on_request(run: Run, folder):
    (folder / "people.parquet").unlink()  # the first example writes it
    for name in in_order():
        for line in leaves()[name].examples:
            if "--steps 1000" in line:
                continue  # slow, and the same command as the first example
            done = run(f"{line} --json")
            assert done.code == 0, (line, done.err)
            json.loads(done.out)
            if name == "query" and "--preview" not in line:
                (folder / "hours.json").write_text(done.out)


def test_the_installed_command_is_this_one():
    done = subprocess.run(
        [Path(sys.executable).parent / "discreet", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"discreet {dp.__version__}"


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("latin-1", "cp1252", "utf-8"))]
)
@pytest.mark.parametrize("flag", [pytest.param("--json", marks=pytest.mark.slow), "--delta=1e-6"])
def test_a_terminal_without_greek_letters_is_no_reason_to_fail(encoding, flag):
    done = subprocess.run(
        [*COMMAND, "price", "gaussian", "--noise", "4", "--delta", "1e-6", flag],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=True,
    )
    assert b"1e-06" in done.stdout


def test_a_terminal_gets_a_table_with_lines_and_a_pipe_gets_plain_text(folder):
    line = [str(Path(sys.executable).parent / "discreet"), "price", "gaussian", "--noise", "4", "--delta", "1e-6"]
    piped = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert "─" not in piped
    ours, theirs = pty.openpty()
    with subprocess.Popen(line, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # raised at the end of a terminal
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
    assert process.returncode == 0
    assert "─" in shown.decode()
    assert "tight" in shown.decode()


def test_a_missing_extra_is_one_line_that_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.startswith("discreet.apps.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("discreet.apps.cli.program")
    assert main(["--help"]) == 1
    assert capsys.readouterr().err == ("error: the command line needs click and rich: pip install 'discreet[cli]'\n")


# --- ledger -------------------------------------------------------------------------------------------------------


def test_init_opens_the_account_that_python_opens(run: Run):
    assert run(INIT).code == 0
    with dp.Ledger("census.ledger", create=False) as ledger:
        assert ledger.account("census").budget == dp.ApproxDP(3.0, 1e-6).protecting(dp.Neighbors())


def test_init_knows_persons_and_other_relations(run: Run):
    persons = "--unit person_id --max-rows 2 --relation replace-one"
    made = run(f"discreet ledger init c.ledger --account c --rho 0.5 {persons} --json")
    assert json.loads(made.out)["protects"] == "replace one person (at most 2 rows)"


def test_a_statement_is_that_of_the_account(run: Run):
    run(INIT)
    run(QUERY)
    with dp.Ledger("census.ledger") as ledger:
        expected = json.loads(ledger.account("census").statement().to_json())
    assert json.loads(run("discreet ledger statement census.ledger --json").out) == expected
    shown = run("discreet ledger statement census.ledger census").out
    assert expected["charges"][0]["purpose"] in shown
    assert "6.67%" in shown


def test_the_account_is_named_in_the_same_way_everywhere_and_the_old_way_still_works(run: Run, folder):
    run(INIT)
    for line in ("ledger statement census.ledger", "report census.ledger --json"):
        outs = [run(f"discreet {line} {way}") for way in ("", "census", "--account census", "census --account census")]
        assert {done.code for done in outs} == {0}
        assert all("census" in done.out for done in outs)
    for way in ("one", "census two", "three --account census"):
        assert run(f"discreet ledger allot census.ledger {way} --epsilon 1 --delta 1e-6").code == 0
    with dp.Ledger("census.ledger", create=False) as ledger:
        assert [one.name for one in ledger.accounts()] == ["census", "census/one", "census/three", "census/two"]


def test_a_name_that_is_not_in_the_ledger_is_told_which_ones_are(run: Run):
    run(INIT)
    for line in ("ledger statement", "report", "ledger allot"):
        done = run(f"discreet {line} census.ledger nobody{' ann --epsilon 1' if 'allot' in line else ''}")
        assert done.code == 2
        assert "'nobody': it has census" in done.err
    dp.Ledger("empty.ledger").close()
    assert "discreet ledger init" in run("discreet ledger statement empty.ledger").err


def test_what_remains_of_an_epsilon_delta_budget_is_said_without_renyi_orders(run: Run):
    run(INIT)
    run(QUERY)
    said = run("discreet ledger statement census.ledger")
    preview = run(f"{QUERY} --preview")
    refused = run(QUERY.replace("--epsilon 0.2", "--epsilon 20"))
    assert refused.code == 3
    assert "it costs 20-DP" in refused.err
    for text in (said.out, preview.out, refused.err):
        assert "one more answer of up to ε = 2.798" in text
        assert "RDP" not in text
    machines = json.loads(run("discreet ledger statement census.ledger --json").out)
    assert len(machines["orders"]) == 9
    with dp.Ledger("census.ledger", create=False) as ledger:
        left = ledger.account("census").remaining()
    assert [(one["order"], one["remaining"]) for one in machines["orders"]] == list(
        zip(left.orders, left.epsilons, strict=True)
    )
    assert run(QUERY.replace("--epsilon 0.2", "--epsilon 2.798")).code == 0


def test_keys_of_a_column_of_dates_are_written_as_dates(run: Run, folder):
    run("discreet ledger init c.ledger --account c --epsilon 300")
    (folder / "stays.csv").write_text("day,at\n" + "1950-02-03,2024-12-31T10:00:00\n" * 40 + ",\n")
    for column, key in (("day", "1950-02-03"), ("at", "2024-12-31T10:00:00")):
        line = f'discreet query stays.csv "SELECT {column}, COUNT(*) AS n FROM t GROUP BY {column}" --ledger c.ledger'
        done = run(f"{line} --keys {column}={key} --epsilon 50 --json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["rows"][0]["n"] == 40
        refused = run(f"{line} --keys {column}=yesterday --epsilon 1")
        assert refused.code == 2
        assert "2024-12-31" in refused.err
    for computed, key in (("DATE_TRUNC('hour', at)", "2024-12-31T10:00"), ("DATE_TRUNC('month', day)", "1950-02-01")):
        line = f'discreet query stays.csv "SELECT {computed} AS k, COUNT(*) AS n FROM t GROUP BY 1" --ledger c.ledger'
        done = run(f"{line} --keys k={key} --epsilon 50 --json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["rows"][0]["n"] == 40
    for day, code in (("2000-01-01", 0), ("yesterday", 2)):
        line = f"discreet query stays.csv \"SELECT COUNT(*) FROM t WHERE day > '{day}'\" --ledger c.ledger --epsilon 1"
        assert run(line).code == code


def test_a_key_that_has_paid_is_something_given_that_is_wrong(run: Run):
    run(INIT)
    assert run(f"{QUERY} --key monday").code == 0
    again = run(f"{QUERY} --key monday")
    assert again.code == 2
    assert "has paid for a release already" in again.err


def test_a_delta_that_was_not_set_aside_is_told_in_words(run: Run):
    run(INIT)
    done = run(f"{QUERY.replace('--keys sex=Female,Male', '--discover')} --delta 1e-7")
    assert done.code == 3
    assert "and 0 is left of what was set aside for that when the budget was opened (aside)" in done.err


def test_an_answer_without_a_group_says_so_and_has_a_place_in_the_report(run: Run, folder):
    run("discreet ledger init c.ledger --account c --epsilon 9 --delta 1e-6 --aside 5e-7")
    (folder / "few.csv").write_text("sex\nF\nM\n")
    line = 'discreet query few.csv "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex" --discover --epsilon 1 --delta 1e-9'
    said = run(f"{line} --ledger c.ledger")
    assert said.code == 0, said.err
    assert "no key was common enough to be released" in said.out
    (folder / "none.json").write_text(run(f"{line} --ledger c.ledger --json").out)
    assert json.loads((folder / "none.json").read_text())["rows"] == []
    done = run("discreet report c.ledger --result none.json")
    assert done.code == 0, done.err


def test_a_receipt_may_be_kept_as_the_query_printed_it(run: Run, folder):
    run(INIT)
    whole = run(f"{QUERY} --json").out
    (folder / "whole.json").write_text(whole)
    (folder / "alone.json").write_text(json.dumps(json.loads(whole)["receipt"]))
    (folder / "other.json").write_text('{"rows": [12.5]}')
    for name in ("whole", "alone"):
        assert run(f"discreet ledger verify census.ledger --receipt {name}.json").code == 0
    run(INIT.replace("census.ledger", "fresh.ledger"))
    assert run("discreet ledger verify fresh.ledger --receipt whole.json").code == 1
    other = run("discreet ledger verify census.ledger --receipt other.json")
    assert other.code == 2
    assert "--receipt must be a receipt of a ledger, got 'other.json'" in other.err


def test_what_others_wrote_into_a_ledger_cannot_steer_a_terminal(run: Run):
    run(INIT)
    with dp.Ledger("census.ledger") as ledger:
        ledger.account("census").spend(dp.events.Laplace(10.0), purpose="\x1b[2Jgone\x07\nerror: fake")
    shown = run("discreet ledger statement census.ledger census").out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\nerror" not in shown


def test_verify_says_so_where_a_ledger_was_edited(run: Run, folder):
    run(INIT)
    run(QUERY)
    assert run("discreet ledger verify census.ledger").code == 0
    with sqlite3.connect(folder / "census.ledger") as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        entries = next(name for name in tables if "entr" in name)
        text = f"UPDATE {entries} SET body = replace(body, 'hours', 'years')"
        for trigger in [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]:
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(text)
    connection.close()
    found = run("discreet ledger verify census.ledger --json")
    assert found.code != 0


# --- query --------------------------------------------------------------------------------------------------------


def test_a_preview_spends_nothing_and_a_query_is_charged_first(run: Run, folder):
    run(INIT)
    seen = json.loads(run(f"{QUERY} --preview --json").out)
    assert seen["affordable"] is True
    assert json.loads(run("discreet ledger accounts census.ledger --json").out)[0]["charges"] == 0
    done = json.loads(run(f"{QUERY} --json").out)
    assert [row["sex"] for row in done["rows"]] == ["Female", "Male"]
    (folder / "receipt.json").write_text(json.dumps(done["receipt"]))
    assert run("discreet ledger verify census.ledger --receipt receipt.json").code == 0
    assert json.loads(run("discreet ledger accounts census.ledger --json").out)[0]["charges"] == 1


def test_a_preview_shows_its_sql_only_on_request(run: Run):
    run(INIT)
    short, long = run(f"{QUERY} --preview"), run(f"{QUERY} --preview --show-sql")
    assert "SELECT" not in short.out
    assert "costs      ε = 0.2" in short.out
    assert long.out.startswith(short.out)
    assert "SELECT" in long.out
    assert "SELECT" in json.loads(run(f"{QUERY} --preview --json").out)["sql"]


def test_a_query_that_does_not_fit_is_refused_with_code_3_and_charges_nothing(run: Run):
    run(INIT)
    refused = run(QUERY.replace("--epsilon 0.2", "--epsilon 50"))
    assert refused.code == 3
    assert refused.out == ""
    assert refused.err.startswith("error: account 'census' has no room")
    assert refused.err.count("\n") == 1
    assert json.loads(run("discreet ledger accounts census.ledger --json").out)[0]["charges"] == 0


def test_keys_may_stand_in_a_file_and_numbers_are_numbers(run: Run, folder):
    run(INIT)
    (folder / "keys.txt").write_text("18\n19\n")
    line = 'discreet query people.parquet "SELECT age, COUNT(*) AS n FROM p GROUP BY age" --epsilon 0.1'
    done = run(f"{line} --keys age=@keys.txt --ledger census.ledger --json")
    assert [row["age"] for row in json.loads(done.out)["rows"]] == [18, 19]


def test_a_key_in_quotes_may_hold_a_comma(run: Run):
    run(INIT)
    line = 'discreet query people.parquet "SELECT sex, COUNT(*) AS n FROM p GROUP BY sex" --epsilon 0.1'
    done = run(f"{line} --keys 'sex=Female, \"Male, or not\" ,Male' --ledger census.ledger --json")
    assert [row["sex"] for row in json.loads(done.out)["rows"]] == ["Female", "Male, or not", "Male"]


def test_keys_are_discovered_where_delta_was_set_aside(run: Run):
    run("discreet ledger init d.ledger --account d --epsilon 5 --delta 1e-5 --aside 5e-6")
    line = 'discreet query people.parquet "SELECT sex, COUNT(*) AS n FROM p GROUP BY sex" --ledger d.ledger'
    done = run(f"{line} --epsilon 2 --delta 1e-6 --discover --json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["cost"] == "ε = 2, δ = 1e-06"
    assert {row["sex"] for row in found["rows"]} <= {"Female", "Male"}


def test_a_query_may_cost_a_rho(run: Run):
    run("discreet ledger init z.ledger --account z --rho 1")
    line = 'discreet query people.parquet "SELECT COUNT(*) AS n FROM p" --ledger z.ledger --rho 0.1'
    assert "charged ρ = 0.1" in run(line).out


def test_a_person_s_rows_are_bounded(run: Run):
    run("discreet ledger init p.ledger --account p --epsilon 1 --unit person_id --max-rows 2")
    line = (
        'discreet query people.parquet "SELECT COUNT(DISTINCT person_id) AS n FROM p" --epsilon 0.5 --ledger p.ledger'
    )
    assert run(f"{line} --unit person_id --max-rows 2").code == 0
    assert run(f"{line} --unit person_id --max-rows 3").code == 2
    assert run(f"{line} --unit sex").code == 2
    assert run(f"{line} --unit person_id").code == 0  # the account knows the limit


def test_a_query_says_what_its_errors_cover_and_estimates_the_rest(run: Run):
    run("discreet ledger init p.ledger --account p --epsilon 1 --unit person_id --max-rows 2")
    line = 'discreet query people.parquet "SELECT COUNT(*) AS n FROM p" --epsilon 0.3 --ledger p.ledger'
    words = "a person with more than 2 rows counts as 2"
    assert words in run(f"{line} --preview").out
    shown = json.loads(run(f"{line} --json").out)
    assert words in shown["covers"]
    assert shown["guarantee"] == "0.3-DP, add or remove one person (at most 2 rows)"
    assert shown["intervals"]["n"]["low"][0] <= shown["rows"][0]["n"] <= shown["intervals"]["n"]["high"][0]
    assert "ε = 0.3" in run(f"{line} --bias --preview").out
    estimated = run(f"{line} --bias")
    assert "rows that they lose in all" in estimated.out
    assert "charged ε = 0.3 to p as entry 2" in estimated.out
    assert run(f"{line.replace('0.3', '0.9')} --bias").code == 3


# --- price --------------------------------------------------------------------------------------------------------


def test_a_price_is_the_accountant_s(run: Run):
    line = "discreet price dpsgd --examples 60000 --batch-size 512 --epochs 15 --noise 1.1 --delta 1e-5 --json"
    found = json.loads(run(line).out)
    event = dp.events.Repeated(dp.events.PoissonSampled(512 / 60000, dp.events.Gaussian(1.1)), 1758)
    assert found["steps"] == 1758
    assert found["epsilon"] == dp.accounting.epsilon(event, 1e-5).upper
    assert {row["method"] for row in found["methods"]} >= {"basic", "advanced", "RDP, tight", "tight"}


def test_a_price_of_dpsgd_is_that_of_the_plan_which_would_run(run: Run):
    line = "discreet price dpsgd --examples 30000 --batch-size 1024 --epochs 15 --noise 2 --delta 1e-6 --json"
    plan = Plan.for_noise(2.0, delta=1e-6, examples=30_000, batch_size=1024, epochs=15, clip_norm=1.0)
    assert json.loads(run(line).out)["event"] == encode_tree(plan.event)


def test_what_is_left_out_is_found(run: Run):
    base = "discreet price dpsgd --examples 60000 --batch-size 512 --delta 1e-5 --calibrate epsilon=3 --json"
    noise = json.loads(run(f"{base} --epochs 15").out)
    assert 2.999 < noise["epsilon"] <= 3
    steps = json.loads(run(f"{base} --noise 1.1").out)
    assert 2.99 < steps["epsilon"] <= 3
    assert steps["calibrated"] == "steps"


def test_an_event_can_be_given_as_the_ledger_writes_it(run: Run, folder):
    event = dp.events.Repeated(dp.events.Gaussian(2.0), 10)
    (folder / "canonical.json").write_text(encode(event))
    expected = dp.accounting.epsilon(event, 1e-6).upper
    for name in ("canonical.json", "event.json"):
        assert json.loads(run(f"discreet price json {name} --delta 1e-6 --json").out)["epsilon"] == expected
    assert json.loads(EVENT)["count"] == 10


# --- allocate -----------------------------------------------------------------------------------------------------


def test_allocate_says_what_is_achievable_and_charges_nothing(run: Run, folder):
    run("discreet ledger init plan.ledger --account plan --epsilon 1 --delta 1e-6")
    line = "discreet allocate --ledger plan.ledger --count people=1 --count rows=40 --weight people=3"
    said = run(f"{line} --plot plan.svg")
    assert said.code == 0
    assert "Not all wishes fit" in said.out
    assert (folder / "plan.svg").stat().st_size > 0
    answer = json.loads(run(f"{line} --json").out)
    assert answer["met"] is False
    people, rows = answer["wishes"]
    assert people["reached"] - 1 == pytest.approx((rows["reached"] / 40 - 1) / 3)
    with dp.Ledger("plan.ledger", create=False) as ledger:
        assert ledger.account("plan").summary().charges == 0
        assert ledger.account("plan").statement().used == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--epsilon 1", "at least one of --count"),
        ("--count a=1", "exactly one of --epsilon"),
        ("--epsilon 1 --count a", "NAME=VALUE"),
        ("--epsilon 1 --count a=x", "numbers > 0"),
        ("--epsilon 1 --count a=-1", "numbers > 0"),
        ("--epsilon 1 --training a=10,2", "4 numbers"),
        ("--epsilon 1 --delta 1e-6 --training a=10.5,2,1,1", "whole numbers"),
        ("--epsilon 1 --training a=100,10,1,1", "have a price"),
        ("--epsilon 1 --selection a=1,5", "candidates"),
        ("--epsilon 1 --count a=1 --weight b=2", "--weight must name a wish"),
        ("--epsilon 1 --count a=1 --plot x.txt", "--plot must end in"),
        ("--epsilon 1 --count a=1 --count a=2", "name of its own"),
        ("--epsilon 1 --ledger census.ledger --count a=1", "one of --ledger"),
        ("--epsilon 1 --account census --count a=1", "--account must be used with --ledger"),
    ],
)
def test_allocate_refuses_what_it_cannot_plan(run: Run, flags: str, words: str):
    outcome = run(f"discreet allocate {flags}")
    assert outcome.code == 2
    assert words in outcome.err


# --- compare and completion ---------------------------------------------------------------------------------------


def test_compare_shows_common_claims_only_on_request(run: Run):
    line = "discreet compare --epsilon 1 --delta 1e-6 --l1 1"
    plain, with_sayings = run(line), run(f"{line} --sayings")
    assert "verdict" not in plain.out
    assert "verdict" in with_sayings.out
    assert with_sayings.out.startswith(plain.out)
    assert json.loads(run(f"{line} --json").out)["sayings"]  # machines get the field as before


def test_compare_draws_what_it_says(run: Run, folder):
    assert run("discreet compare --epsilon 1 --delta 1e-6 --l1 1 --plot noise.svg").code == 0
    assert (folder / "noise.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_this_program(run: Run, shell):
    assert "_DISCREET_COMPLETE" in run(f"discreet completion {shell}").out


def test_completion_completes(monkeypatch, capsys):
    monkeypatch.setenv("_DISCREET_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "discreet led")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert "plain,ledger" in capsys.readouterr().out


# --- documents ----------------------------------------------------------------------------------------------------


def test_the_reference_of_the_command_line_is_not_stale():
    """Run `python -m tools.make_cli_reference` after changing a command."""
    assert make_cli_reference.PAGE.read_text(encoding="utf-8") == make_cli_reference.text()


def test_every_command_is_documented():
    page = make_cli_reference.PAGE.read_text(encoding="utf-8")
    for name in leaves():
        assert f"### discreet {name}\n" in page


def test_the_configuration_in_the_reference_is_one_that_train_takes(tmp_path):
    page = make_cli_reference.PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (training,) = (text for text in blocks if "[plan]" in text)
    found = read_config(tmp_path / "config.toml", training)
    assert found.budget.epsilon == 1.0
    assert found.evaluation is not None
    (labeling,) = (text for text in blocks if "[voting]" in text)
    asked = read_pate_config(tmp_path / "pate.toml", labeling)
    assert asked.questions.answers == 400
    assert asked.evaluation is not None
