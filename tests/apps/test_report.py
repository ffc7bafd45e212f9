"""The page agrees with the ledger, loads nothing from the network, and is accessible."""

from __future__ import annotations

import json
import math
import re
import types
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

import discreet as dp
from discreet import events as ev
from discreet.accounting import closed_forms
from discreet.apps import report as report_package
from discreet.apps.report import (
    Charge,
    Evaluation,
    ReleasedTable,
    Training,
    charts,
    collect,
    federated_training,
    render,
)
from discreet.apps.report.titles import charge_title
from discreet.learning import Plan
from discreet.learning.clipping import Adaptive

CSS = (Path(report_package.__file__).parent / "report.css").read_text()
ATTACK = "</script><script>alert(1)</script>"


def sample(folder: Path, budget: dp.Guarantee | None = None):
    """A report with every kind of content, some of it hostile."""
    ledger = dp.Ledger(folder / "sample.ledger")
    account = ledger.account("census", budget=budget or dp.ApproxDP(3.0, 1e-6))
    account.spend(ev.DiscreteLaplace(1, dp.mechanisms.Laplace(10).scale), purpose="how many people")
    account.spend(ev.Laplace(8.0), purpose=f"hours {ATTACK}")
    account.allot("ann", budget or dp.ApproxDP(1.0, 1e-6)).spend(ev.Laplace(20.0), purpose="ann's question")
    answers = [
        ReleasedTable(
            f"Hours by sex {ATTACK}",
            ({"sex": "Female", "hours": 36.4, "hours_error": 0.4}, {"sex": "Male", "hours": 42.4, "hours_error": 0.2}),
            1,
            "Cost: ε = 0.125",
        ),
        ReleasedTable("People", ({"people": 32_554, "people_error": 30},), 0, "Cost: ε = 0.1"),
    ]
    training = Training(
        "Income model",
        "A logistic model in 100 steps.",
        tuple(range(1, 101)),
        (("ε so far", tuple(math.sqrt(k) / 10 for k in range(1, 101))), ("clip norm", (1.0,) * 100)),
        "(1, 1e-06)-DP",
        (Evaluation("Accuracy", 0.84, 0.83, 0.85, "Cost: ε = 0.1"),),
        tuple((step, Evaluation("Accuracy", 0.7 + step / 1000, 0.69, 0.85, "ε = 0.01")) for step in (10, 50, 100)),
    )
    commands = ["discreet ledger verify sample.ledger"]
    return account, collect(account, lead="A sample.", answers=answers, trainings=[training], commands=commands)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    account, report = sample(tmp_path_factory.mktemp("report"))
    return account, report, render(report)


class Elements(HTMLParser):
    """All start tags of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def __getitem__(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_says_what_the_ledger_says(made):
    account, _, page = made
    embedded = re.search(r'<script type="application/json" id="report-json">(.*?)</script>', page, re.DOTALL)
    assert "<" not in embedded[1], "a comment or a tag inside the JSON could swallow the page"
    machine = json.loads(embedded[1])
    assert machine["statement"] == json.loads(account.statement().to_json())
    statement = account.statement()
    assert f"{100 * statement.used:.1f}%" in page
    assert [one["used_after"] for one in machine["charges"]][-1] == statement.used
    assert len(machine["charges"]) == len(statement.lines)
    for line in statement.lines:
        assert line.time[:19].replace("T", " ") in page
    assert "ann&#39;s question" in page
    assert f"ε = {statement.tight.upper:.4g}" in page


def test_used_never_falls_while_things_are_charged(made):
    used = [one.used_after for one in made[1].charges]
    assert used == sorted(used)
    assert used[0] > 0


def test_a_reservation_that_was_closed_early_shows_what_came_back(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ZCDP(1.0))
    plan = account.reserve(ev.Repeated(ev.Gaussian(10.0), 100), key="plan")
    plan.start_block(10)
    plan.close()
    charges = collect(account).charges
    assert [one.kind for one in charges] == ["reserve", "close"]
    assert charges[0].used_after == pytest.approx(0.5)
    assert charges[1].used_after == pytest.approx(0.05)


def test_the_page_counts_charges_in_one_way(tmp_path):
    """A plan that ran to its end is one charge, in the text and in the table."""
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(3.0, 1e-6))
    plan = account.reserve(ev.Repeated(ev.Gaussian(20.0), 5), key="plan", purpose="a model")
    plan.start_block(5)
    plan.close()
    account.spend(ev.Laplace(20.0), purpose="a count")
    report = collect(account)
    assert len(report.charges) == 2
    assert any(one.answer.startswith("2 charges are listed in this report") for one in report.promise)


def test_the_page_needs_nothing_from_elsewhere(made):
    elements = Elements(made[2])
    assert elements["script"] == [{"type": "application/json", "id": "report-json"}]
    assert elements["link"] == [{"rel": "icon", "href": "data:,"}]
    assert not elements["img"]
    assert not elements["iframe"]
    assert all((one["href"] or "").startswith("#") for one in elements["a"])
    assert "@import" not in made[2]
    assert not re.search(r"url\((?!#)", made[2])
    policy = next(one["content"] for one in elements["meta"] if one.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_what_users_wrote_is_text_and_never_markup(made):
    page = made[2]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("</script>") == 1


def test_the_budget_rises_at_its_charges_and_not_before(monkeypatch):
    """The first charge is drawn at 1: between 0 and 1 nothing is used."""
    drawn: list[tuple] = []
    monkeypatch.setattr(Axes, "step", lambda axes, x, y, **how: drawn.append((list(x), list(y), how["where"])))
    charts.budget_steps([Charge(n, "", "", "spend", "", "", 0.25, 0.25 * n) for n in (1, 2)])
    (places, heights, where) = drawn[0]
    assert where == "post"
    assert (places, heights) == ([0, 1, 2, 2.5], [0.0, 25.0, 50.0, 50.0])


def test_a_few_charges_are_bars_that_begin_where_the_last_one_ended(monkeypatch):
    drawn: list[tuple] = []
    monkeypatch.setattr(Axes, "barh", lambda axes, y, width, **how: drawn.append((list(width), how.get("left"))))
    charts.budget([Charge(n, "", "", "spend", f"question {n}", "", 0.25, 0.25 * n) for n in (1, 2)])
    assert drawn[1] == ([25.0, 25.0], [0.0, 25.0])


def test_many_charges_are_drawn_as_steps():
    charges = [Charge(n, "", "", "spend", "q", "", 0.001, 0.001 * n) for n in range(1, 500)]
    assert "charges, in order" in charts.budget(charges)


def test_results_and_budget_come_first_and_the_questions_are_folded(made):
    page = made[2]
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == ["results", "budget", "promise", "attack", "reproduce"]
    assert len(made[1].summary) == 3
    assert all(sentence.count(". ") == 0 and sentence.endswith(".") for sentence in made[1].summary)
    for paragraph in made[1].promise:
        assert f"<details><summary>{paragraph.question}</summary>" in page


def test_spending_is_broken_down_by_analyst_and_adds_up(made):
    account, report, page = made
    assert {one.analyst: one.charges for one in report.by_analyst} == {"census": 2, "ann": 1}
    assert sum(one.used for one in report.by_analyst) == pytest.approx(account.statement().used, rel=1e-12)
    assert '<th scope="row">ann</th>' in page
    machine = json.loads(report.to_json())["by_analyst"]
    assert machine == [{"analyst": one.analyst, "charges": one.charges, "used": one.used} for one in report.by_analyst]


@pytest.mark.parametrize(
    ("purpose", "title"),
    [
        ("", "Charge without a purpose"),
        ("who earns over $50,000", "Who earns over $50,000"),
        ("count=count()", "Count"),
        ("mean=mean(hours_per_week) by education", "Mean of hours_per_week by education"),
        ("hours=mean(hours), n=count() by sex, age", "Mean of hours and count, by sex, age"),
        ("correlation=correlation(age, hours)", "Correlation of age and hours"),
        ("n=count() by city (discovered)", "Count by city"),
        ("select sex, count(*) from people group by sex", "SQL query by sex"),
        ("SELECT COUNT(*) FROM people", "SQL query"),
        ("a=b(c", "A=b(c"),
    ],
)
def test_a_charge_is_titled_by_its_purpose_and_not_by_code(purpose, title):
    assert charge_title(purpose) == title


def test_a_table_s_own_purpose_is_one_that_the_titles_know(tmp_path):
    account = dp.Ledger(tmp_path / "t.ledger").account("t", budget=dp.PureDP(10.0))
    people = dp.Private({"age": [30, 40, 50], "sex": ["f", "m", "f"]}, account=account, bounds={"age": (0, 100)})
    people.group_by("sex", keys=["f", "m"]).mean("age").release(epsilon=1)
    (charge,) = collect(account).charges
    assert charge.title == "Mean of age by sex"


def test_the_sql_of_an_answer_is_folded_and_not_its_title(tmp_path):
    account = dp.Ledger(tmp_path / "q.ledger").account("q", budget=dp.PureDP(1.0))
    rows = ({"sex": "f", "n": 3}, {"sex": "m", "n": 4})
    page = render(collect(account, answers=[ReleasedTable("People by sex", rows, 1, "ε = 1", sql="SELECT 1 FROM t")]))
    assert "<h3>People by sex</h3>" in page
    assert re.search(r"<details><summary>What was the SQL\?</summary>.*SELECT 1 FROM t", page)


def test_a_group_may_be_written_in_any_script():
    """Warnings are errors here: the browser draws the text, so matplotlib's fonts need not have it."""
    rows = ({"who": "李雷", "n": 3, "n_error": 1.0},)
    assert "李雷" in charts.answer(ReleasedTable("q", rows, 1, "ε = 1"), "n", 0)


def test_a_screen_reader_finds_its_way(made):
    elements = Elements(made[2])
    assert elements["html"] == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(elements[landmark]) == 1, landmark
    levels = [int(tag[1]) for tag, _ in elements.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert len(elements["caption"]) == len(elements["table"])
    assert all(one.get("scope") in ("col", "row") for one in elements["th"])
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids)), "a duplicate id"
    for _, attributes in elements.found:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids
    assert all(one.get("aria-hidden") == "true" for one in elements["svg"]), "a table or a caption replaces each chart"
    for figure in elements["figure"]:
        assert figure.get("aria-labelledby") or figure.get("aria-label")


def test_every_figure_names_its_parts_apart(made):
    used = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', made[2]))
    defined = re.findall(r'\bid="([^"]+)"', made[2])
    assert used <= set(defined)


def schemes() -> dict[str, dict[str, str]]:
    """The colors in light, dark and print."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    return {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for name, block in zip(("light", "dark", "print"), blocks, strict=True)
    }


def contrast(one: str, two: str) -> float:
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_all_text_stands_out_from_its_ground(scheme):
    colors = schemes()[scheme]
    for text in ("ink", "muted", "accent", "second"):
        for ground in ("paper", "raised"):
            assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)


def test_the_promised_curve_is_that_of_the_budget(made):
    found = made[1].trade_off
    for alarm, misses in zip(found.false_alarms, found.promised, strict=True):
        expected = max(0.0, 1 - 1e-6 - math.exp(3.0) * alarm, math.exp(-3.0) * (1 - 1e-6 - alarm))
        assert misses == pytest.approx(expected, abs=1e-12)


def test_what_was_charged_is_no_easier_to_attack_than_the_budget_allows(made):
    found = made[1].trade_off
    assert found.so_far is not None
    assert all(so_far >= promised for so_far, promised in zip(found.so_far, found.promised, strict=True))
    assert all(miss <= 1 - alarm + 1e-12 for miss, alarm in zip(found.so_far, found.false_alarms, strict=True))


def test_the_curve_of_a_gaussian_lies_just_below_its_closed_form(tmp_path):
    account = dp.Ledger(tmp_path / "g.ledger").account("g", budget=dp.GDP(2.0))
    account.spend(ev.Gaussian(1.0))
    found = collect(account).trade_off
    from scipy.special import ndtr, ndtri

    alarms = np.array(found.false_alarms)
    exact = ndtr(ndtri(1 - alarms) - 1.0)
    assert np.all(np.array(found.so_far) <= exact + 1e-9)
    assert np.max(exact - np.array(found.so_far)) < 0.01
    promised = ndtr(ndtri(1 - alarms) - 2.0)
    assert np.all(np.array(found.promised) <= promised + 1e-9)
    assert np.max(promised - np.array(found.promised)) < 0.01
    assert closed_forms.gaussian_delta(1.0, 1.0) > 0


@pytest.mark.parametrize(
    "budget", [dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.5), dp.GDP(1.0), dp.RDP((2.0, 8.0), (1.0, 2.0))]
)
def test_every_kind_of_budget_makes_a_page_even_before_it_is_used(budget, tmp_path):
    account = dp.Ledger(tmp_path / "empty.ledger").account("empty", budget=budget)
    report = collect(account)
    page = render(report)
    assert "Nothing has been charged yet" in page
    assert report.trade_off.so_far == pytest.approx([1 - alarm for alarm in report.trade_off.false_alarms])


def test_the_statement_in_words_answers_a_reviewer(made):
    asked = {one.question: one.answer for one in made[1].promise}
    assert "Every row" in asked["Who is protected?"]
    assert "whatever else they know" in asked["Against whom?"]
    assert "(3, 1e-06)-DP" in asked["How much?"]
    assert "time a query takes" in asked["What is not covered?"]
    assert asked["Which sampling?"].startswith("None")


def test_samplers_and_persons_are_named(tmp_path):
    account = dp.Ledger(tmp_path / "s.ledger").account(
        "s", budget=dp.ApproxDP(3.0, 1e-6), unit=dp.person("id", max_rows=3)
    )
    account.spend(ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(2.0)), 10))
    asked = {one.question: one.answer for one in collect(account).promise}
    assert "probability 0.01" in asked["Which sampling?"]
    assert "more than 3 of their rows" in asked["Who is protected?"]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_federated_training_is_a_section_with_the_curves_of_accuracy_and_budget(adaptive, tmp_path):
    account = dp.Ledger(tmp_path / "f.ledger").account("f", budget=dp.ApproxDP(3.0, 1e-5), unit=dp.client())
    clipping = {"clipping": Adaptive(1.0, count_noise=5.0)} if adaptive else {"clip_norm": 1.0}
    plan = Plan.federated(100, rate=0.5, rounds=4, epsilon=1.0, delta=1e-5, **clipping)
    account.reserve(plan.event, "a key", "a federated training", plan.neighbors).start_block()
    # As after a restart: the last process took rounds 3 and 4.
    facts = {number: {"epsilon": number / 4, "clip-norm": 1 - adaptive / (number - 1)} for number in (3, 4)}
    measured = {number: {"accuracy": number / 5, "confusion": [1, 2]} for number in (2, 3, 4)}
    result = types.SimpleNamespace(train_metrics_clientapp=facts, evaluate_metrics_serverapp=measured)
    training = federated_training(plan, result)
    spent, *others = (values for _, values in training.series)
    assert training.steps == (2, 3, 4)
    assert spent == (plan.guarantee_after(2).epsilon, 0.75, 1.0)
    assert others == [(0.4, 0.6, 0.8), *([(0.5, 0.5, 1 - 1 / 3)] if adaptive else [])]
    page = render(collect(account, trainings=[training]))
    assert "accuracy went from 0.4 to 0.8 in 4 rounds" in page
    assert "ε so far went from" in page
    assert "add or remove one client" in page


def test_a_federated_training_without_a_round_has_no_curve():
    plan = Plan.federated(100, rate=0.5, rounds=4, epsilon=1.0, delta=1e-5, clip_norm=1.0)
    nothing = types.SimpleNamespace(train_metrics_clientapp={}, evaluate_metrics_serverapp={})
    assert federated_training(plan, nothing).series == ()


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (dp.client(), "the bound is that of two clients"),
        (dp.client(per_person=2), "at most 2 clients of the federation, which hold data of nobody else"),
        (dp.client(shared=True), "at most one client of the federation, which may hold data of others too"),
    ],
    ids=str,
)
def test_people_who_share_a_client_are_not_promised_what_a_client_is(unit, words, tmp_path):
    account = dp.Ledger(tmp_path / "c.ledger").account("c", budget=dp.ApproxDP(3.0, 1e-6), unit=unit)
    asked = {one.question: one.answer for one in collect(account).promise}
    assert words in asked["Who is protected?"]


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ({"city": "a", "most": ["x", "y"], "most_count_error": 3.0},),
        tuple({"city": f"c{i}", "n": i, "n_error": 1.5} for i in range(500)),
        ({"city": None, "n": None},),
        ({"city": 1.5, "n": float("inf"), "n_error": float("nan")},),
    ],
    ids=["no row", "choices", "many rows", "missing", "infinite"],
)
def test_any_answer_has_a_place_in_the_page(rows, tmp_path):
    account = dp.Ledger(tmp_path / "r.ledger").account("r", budget=dp.PureDP(1.0))
    page = render(collect(account, answers=[ReleasedTable("An answer", rows, 1, "Cost: ε = 0.1")]))
    assert "An answer" in page
    assert len(page) < 400_000
