"""The demo: two analysts query and train on real data until their shared budget is spent and a question is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet import datasets
from discreet.apps import report as pages
from discreet.apps.training.config import Fact
from discreet.apps.training.data import encode
from discreet.apps.training.workflow import evaluate, make_folder, training_of
from discreet.errors import BudgetExceeded, MissingExtra
from discreet.guarantees import ApproxDP
from discreet.ledger import Ledger

BUDGET = ApproxDP(3.0, 1e-6)
#: A public estimate of the number of people. The exact number is not used.
PEOPLE = 32_000

#: Steps after which the accuracy on held-out people is measured, privately.
LOOKS = (10, 30, 80, 180, 375)

NUMBERS = {
    "age": (17.0, 90.0),
    "hours_per_week": (0.0, 100.0),
    "education_num": (1.0, 16.0),
    "capital_gain": (0.0, 20_000.0),
    "capital_loss": (0.0, 3_000.0),
}
CATEGORIES = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex")
FACTS: dict[str, Fact] = {**NUMBERS, **{name: datasets.CATEGORIES[name] for name in CATEGORIES}}


@dataclass(frozen=True)
class Stage:
    """One stage of the demo: its name, what it did, what it cost, and the share of the budget used after it."""

    name: str
    did: str
    cost: str
    used: float


@dataclass(frozen=True)
class Demo:
    """The stages of the demo and the files that it wrote."""

    stages: tuple[Stage, ...]
    account: str
    ledger: Path
    page: Path
    report: pages.Report


def play(folder: Path, tell: Callable[[Stage], None]) -> Demo:
    """Run the demo in a folder, and call `tell` after each stage.

    Guarantee: the one in its report. The Adult data were published long ago.
    """
    try:
        from discreet.analytics import Private
        from discreet.learning import Plan, train, zoo
    except ModuleNotFoundError as missing:
        raise MissingExtra("the demo needs all extras: pip install 'discreet[all]'") from missing
    make_folder(folder)
    for old in folder.glob("census.ledger*"):
        old.unlink()
    stages: list[Stage] = []

    def done(name: str, did: str, cost: str) -> None:
        stages.append(Stage(name, did, cost, account.statement().used))
        tell(stages[-1])

    with Ledger(folder / "census.ledger") as ledger:
        account = ledger.account("census", budget=BUDGET)
        # What ann and bob spend is charged to the census as well, whose budget always holds.
        ann, bob = account.allot("ann", BUDGET), account.allot("bob", BUDGET)
        done("budget", f"opened {account.budget}", "nothing")

        people = Private(datasets.adult(), account=ann)
        answers = _ask(people, done)

        inputs, labels = encode(datasets.adult(), FACTS, "income", datasets.INCOME)
        plan = Plan.for_epsilon(2.33, delta=BUDGET.delta, examples=PEOPLE, batch_size=1024, epochs=12, clip_norm=1.0)
        model = zoo.build("mlp", inputs.shape[1:], 2, hidden=(32,))
        optimizer = zoo.optimizer("adam", model, 0.02)
        test_inputs, test_labels = encode(datasets.adult("test"), FACTS, "income", datasets.INCOME)
        scores: list[tuple[int, pages.Evaluation]] = []

        def measure(step: int) -> None:
            guesses = zoo.predict(model, test_inputs)
            scores.append((step, evaluate(bob, test_labels, guesses, 0.03, f"accuracy after {step} steps")))

        zoo.after_steps(optimizer, LOOKS, measure)
        with zoo.one_thread():
            run = train(
                model,
                zoo.loss,
                (inputs, labels),
                plan,
                optimizer=optimizer,
                account=bob,
                purpose="income classifier",
                progress=False,
                compile=False,
            )
        cost = f"ε = {_epsilon(plan.guarantee):g} and {len(scores)} × 0.03"
        done("train", f"income classifier: {run.steps} noisy steps, {len(scores)} private scores", cost)

        score = evaluate(bob, test_labels, zoo.predict(model, test_inputs), 0.1)
        error = max(score.high - score.value, score.value - score.low)
        done("evaluate", f"accuracy on held-out people: {score.value:.1%} ± {error:.1%}", "ε = 0.1")

        try:
            people.mean("hours_per_week", bounds=(0, 100)).release(epsilon=0.1, purpose="one more")
            raise AssertionError("the budget should have been spent")
        except BudgetExceeded:
            done("refuse", "one more mean at ε = 0.1 is refused: no room left", "nothing")

        report = pages.collect(
            account,
            title="The Adult data: a privacy report",
            lead="People in the 1994 US census: the hours they work, and a model of their income.",
            answers=answers,
            trainings=[training_of(run, "income classifier", [score], scores)],
            commands=["make demo", "discreet ledger verify demo/census.ledger"],
        )
        page = folder / "report.html"
        page.write_text(pages.render(report), encoding="utf-8")
        (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
        run.save(folder / "model.pt")
    return Demo(tuple(stages), account.name, folder / "census.ledger", page, report)


def _ask(people: Any, done: Callable[[str, str, str], None]) -> list[pages.ReleasedTable]:
    """Ask a few questions about the data. Each is charged before it is answered."""
    answers = []
    result = people.count().release(epsilon=0.1, purpose="number of people")
    row = result.rows()[0]
    answers.append(pages.ReleasedTable("Number of people", tuple(result.rows()), 0, "Cost: ε = 0.1"))
    done("count", f"{row['count']:,} ± {row['count_error']:,.0f} people", "ε = 0.1")

    hours = people.group_by("education", keys=datasets.EDUCATION).mean("hours_per_week", bounds=(0, 100))
    result = hours.release(epsilon=0.3, purpose="hours of work per week by education")
    answers.append(
        pages.ReleasedTable("Hours of work per week, by education", tuple(result.rows()), 1, "Cost: ε = 0.3")
    )
    by_level = {row["education"]: row for row in result.rows()}
    examples = ", ".join(f"{name} {by_level[name]['mean']:.1f} h" for name in ("HS-grad", "Masters"))
    done("hours", f"16 means, one price: {examples}, …", "ε = 0.3")

    sql = "SELECT sex, COUNT(*) AS people FROM people WHERE income = '>50K' GROUP BY sex"
    result = people.sql(sql, epsilon=0.1, keys=datasets.SEX, purpose="people who earn over $50,000 by sex")
    title = "People who earn over $50,000, by sex"
    answers.append(pages.ReleasedTable(title, tuple(result.rows()), 1, "Cost: ε = 0.1", sql=sql))
    counts = ", ".join(f"{row['people']:,} {row['sex'].lower()}" for row in result.rows())
    done("sql", f"people who earn over $50,000: {counts}", "ε = 0.1")
    return answers


def _epsilon(guarantee: Any) -> float:
    return float(guarantee.epsilon)


def answer(demo: Demo) -> dict[str, Any]:
    """The demo as JSON values."""
    return {
        "stages": [
            {"name": stage.name, "did": stage.did, "cost": stage.cost, "used": stage.used} for stage in demo.stages
        ],
        "report": str(demo.page),
        "ledger": str(demo.ledger),
        "statement": json.loads(demo.report.statement.to_json()),
    }
