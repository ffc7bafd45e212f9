"""The demo runs as typed until a question is refused, and its report agrees with the ledger."""

from __future__ import annotations

import json
import re

import pytest

import discreet as dp
from discreet.apps.cli import main
from discreet.apps.cli.program import program
from discreet.apps.demo import LOOKS
from tests.apps.conftest import fill


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Run the example in the help as typed, once for all tests."""
    folder = tmp_path_factory.mktemp("demo")
    fill(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (line,) = program.commands["demo"].examples
        assert line == "discreet demo"
        code = main(line.split()[1:])
    return folder / "demo", code


def test_it_runs_to_the_end_and_leaves_its_files(played):
    folder, code = played
    assert code == 0
    for name in ("census.ledger", "report.html", "report.json", "model.pt"):
        assert (folder / name).stat().st_size > 1000


def test_the_report_says_what_the_ledger_says(played):
    folder, _ = played
    with dp.Ledger(folder / "census.ledger", create=False) as ledger:
        assert ledger.verify()
        account = ledger.account("census")
        statement = json.loads(account.statement().to_json())
        used = account.statement().used
    page = (folder / "report.html").read_text()
    embedded = json.loads(re.search(r'id="report-json">(.*?)</script>', page, re.DOTALL)[1])
    assert embedded == json.loads((folder / "report.json").read_text())
    assert embedded["statement"] == statement
    assert embedded["charges"][-1]["used_after"] == used
    assert f"{100 * used:.1f}%" in page
    assert "ε = 3" in page


def test_everything_that_was_released_was_charged(played):
    folder, _ = played
    report = json.loads((folder / "report.json").read_text())
    purposes = [one["purpose"] for one in report["charges"]]
    assert purposes == [
        "number of people",
        "hours of work per week by education",
        "people who earn over $50,000 by sex",
        "income classifier",
        *(f"accuracy after {step} steps" for step in LOOKS),
        "accuracy on held-out people",
    ]
    assert [(one["analyst"], one["charges"]) for one in report["by_analyst"]] == [("bob", 2 + len(LOOKS)), ("ann", 3)]
    assert len(report["answers"]) == 3
    (training,) = report["trainings"]
    assert len(training["evaluations"]) == 1
    assert [step for step, _ in training["scores"]] == list(LOOKS)


def test_the_budget_is_spent_so_that_one_more_question_is_refused(played):
    folder, _ = played
    with dp.Ledger(folder / "census.ledger", create=False) as ledger:
        account = ledger.account("census")
        assert account.budget == dp.ApproxDP(3.0, 1e-6).protecting(dp.Neighbors())
        assert 0.9 < account.statement().used <= 1
        assert not account.would_afford(dp.events.Laplace(10.0))
        assert "one more" not in [line.purpose for line in account.statement().lines]


def test_no_exact_loss_is_written_down(played):
    """The losses of a run are exact, so no report may show them."""
    folder, _ = played
    report = json.loads((folder / "report.json").read_text())
    (training,) = report["trainings"]
    assert [name for name, _ in training["series"]] == ["ε so far"]
    assert not list(folder.glob("*history*"))


def test_the_model_is_of_use(played):
    """Guessing the more common class gives 76%. The noise of training moves the accuracy by about 0.5%."""
    report = json.loads((played[0] / "report.json").read_text())
    assert report["trainings"][0]["evaluations"][0]["value"] > 0.82


def test_each_stage_says_what_it_did_and_what_it_cost(tmp_path, monkeypatch, capsys):
    """A stage is printed as one short line."""
    import discreet.apps.demo as module

    stage = module.Stage("count", "32,557 ± 30 people", "ε = 0.1", 0.0254)

    def refuses(folder, tell):
        tell(stage)
        raise dp.errors.BudgetExceeded("no room")

    monkeypatch.setattr(module, "play", refuses)
    assert main(["demo", "--folder", str(tmp_path)]) == 3
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("count")]
    assert "ε = 0.1" in line
    assert "2.54%" in line
    assert len(line) <= 110
