"""`discreet pate`: one charge for all labels, public and secret outputs apart, and a run that continues."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

import discreet as dp
from discreet.apps import report as pages
from discreet.apps.pate import label, read_pate_config
from discreet.learning import pate
from tests.apps.conftest import PATE, Run
from tests.apps.test_commands import INIT
from tests.apps.test_training import idx

PUBLIC = {"model.pt", "labels.csv", "labels.json", "answers.png", "report.html", "statement.json"}


@pytest.fixture
def no_charts(monkeypatch):
    """Drawing takes longer than all the rest; one test draws."""
    blank = SimpleNamespace(savefig=lambda file, **_: file.write(b"") if hasattr(file, "write") else file.touch())
    monkeypatch.setattr(pate, "plot_answers", lambda *_: blank)
    monkeypatch.setattr(pate, "plot_votes", lambda *_: blank)
    monkeypatch.setattr(pages, "render", lambda page: "")


def lines(name="census.ledger"):
    with dp.Ledger(name) as ledger:
        return [line for line in ledger.account("census").statement().lines if line.kind != "close"]


def test_labels_are_charged_once_and_a_repeated_run_costs_nothing(run: Run, folder, monkeypatch, no_charts):
    run(INIT)
    done = run("discreet pate pate.toml")
    assert done.code == 0, done.err
    assert "data-independent: charged" in done.out
    assert "data-dependent" not in done.out
    assert {path.name for path in (folder / "labeled").iterdir()} == PUBLIC
    charged = lines()
    assert [line.purpose for line in charged] == ["labels for a student (labels)", "accuracy on held-out people"]
    voting = pate.ConfidentVoting(100.0, 5.0, 100.0)
    assert charged[0].event == pate.voting_event(voting, 40, 20)
    labels = list(csv.DictReader((folder / "labeled" / "labels.csv").read_text().splitlines()))
    assert len(labels) == 40
    assert {row["label"] for row in labels} <= {"", "Female", "Male"}
    statement = json.loads((folder / "labeled" / "labels.json").read_text())
    assert statement["answered"] == sum(bool(row["label"]) for row in labels) <= 20
    assert "post-processing" in statement["student"]
    assert statement["epsilon"] == dp.accounting.epsilon(charged[0].event, 1e-6).upper

    model = (folder / "labeled" / "model.pt").read_bytes()
    monkeypatch.setattr(pate.Classifier, "fit", _fit_students_only(pate.Classifier.fit))
    again = run("discreet pate pate.toml --json --secret")
    assert again.code == 0, again.err
    assert len(lines()) == 2
    assert (folder / "labeled" / "model.pt").read_bytes() == model
    answer = json.loads(again.out)
    assert answer["price"] == "data-independent"
    assert answer["secret_data_dependent_epsilon"] > 0


def _fit_students_only(fit):
    """Teachers see 400 rows in ten shards, the trial 8; a student sees at most 20 labels."""

    def checked(self, inputs, labels):
        assert len(inputs) <= 20, "a teacher was trained again"
        return fit(self, inputs, labels)

    return checked


def test_secrets_stay_in_their_own_folder(run: Run, folder):
    run(INIT)
    assert run("discreet pate pate.toml").code == 0
    secrets = folder / "labeled-secret"
    assert secrets.stat().st_mode & 0o077 == 0
    prices = json.loads((secrets / "prices.json").read_text())
    assert prices["epsilon_for_these_votes"] <= prices["epsilon_for_all_votes"]
    assert "secret" in prices["its_meaning"]
    published = "".join((folder / "labeled" / name).read_text() for name in ("labels.json", "report.html"))
    assert "data-dependent" not in published
    assert (secrets / "votes.png").read_bytes()[:4] == b"\x89PNG"


def test_a_labeling_that_does_not_fit_is_refused_before_teachers_are_trained(run: Run, folder, monkeypatch):
    monkeypatch.setattr(pate, "train_teachers", lambda *_, **__: pytest.fail("teachers were trained"))
    run("discreet ledger init census.ledger --account census --epsilon 0.1 --delta 1e-6")
    done = run("discreet pate pate.toml")
    assert done.code == 3
    assert "ask fewer" in done.err
    assert not list((folder / "labeled").iterdir())


def test_a_run_that_was_killed_continues_with_one_charge(run: Run, folder, monkeypatch, no_charts):
    run(INIT)
    with monkeypatch.context() as broken:
        broken.setattr(pate.Teachers, "counts", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("discreet pate pate.toml").code == 1
    assert run("discreet pate pate.toml").code == 0
    assert len(lines()) == 2


def test_an_account_for_persons_sends_each_person_to_one_teacher(run: Run, folder, monkeypatch, no_charts):
    run("discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6 --unit person_id --max-rows 2")
    assert run("discreet pate pate.toml").code == 2  # the evaluation protects rows
    (folder / "pate.toml").write_text(PATE.partition("[evaluate]")[0])
    seen = {}
    train = pate.train_teachers

    def watched(*args, persons, **options):
        seen["persons"] = persons
        return train(*args, persons=persons, **options)

    monkeypatch.setattr(pate, "train_teachers", watched)
    done = run("discreet pate pate.toml")
    assert done.code == 0, done.err
    assert seen["persons"] == [i // 2 for i in range(400)]


def test_images_are_labeled_too(run: Run, folder, no_charts):
    run(INIT)
    generator = np.random.default_rng(0)
    labels = np.arange(60, dtype=np.uint8) % 2
    idx(folder / "images", (generator.integers(0, 80, (60, 16, 16)) + 150 * labels[:, None, None]).astype(np.uint8))
    idx(folder / "labels", labels)
    text = PATE.partition("[evaluate]")[0].partition("[questions]")[2].replace("people.parquet", "images")
    head = '[data]\nimages = "images"\nlabels = "labels"\nclasses = 2\n\n[questions]'
    (folder / "pate.toml").write_text(head + text)
    config = read_pate_config("pate.toml", (folder / "pate.toml").read_text())
    done = label(config)
    assert done.asked == 40


BROKEN = {
    "a misspelt key": ("threshold = 5", "treshold = 5"),
    "no noise": ("noise = 100\nthreshold", "threshold"),
    "no delta": ("delta = 1e-6", ""),
    "an unknown voting": ('kind = "confident"', 'kind = "loud"'),
    "one teacher": ("count = 10", "count = 1"),
    "more questions than rows": ("rows = 40", "rows = 4000"),
    "an unknown model": ('kind = "logistic"', 'kind = "forest"'),
    "negative noise": ("check_noise = 100", "check_noise = -100"),
    "no such questions": ('file = "people.parquet"\nrows', 'file = "nobody.parquet"\nrows'),
    "no such ledger": ('file = "census.ledger"', 'file = "nowhere.ledger"'),
    "no such account": ('account = "census"', 'account = "nobody"'),
    "secrets that would be published": ("count = 10", 'count = 10\nfolder = "labeled"'),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_wrong_configuration_is_one_clear_line_and_charges_nothing(why, run: Run, folder):
    run(INIT)
    old, new = BROKEN[why]
    assert old in PATE
    (folder / "pate.toml").write_text(PATE.replace(old, new, 1))
    done = run("discreet pate pate.toml")
    assert done.code == 2, done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert not lines()
