"""One budget for everything: private statistics about real people, each charged to a ledger before noise is drawn.

The Adult data (1994 US census, published long ago) ship with the package; only numpy and scipy are needed. Run it with
`python examples/adult.py`. Each run starts a new ledger in demo/adult.ledger.
"""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dp
from discreet.errors import BudgetExceeded
from discreet.mechanisms import Exponential, Gaussian, Laplace, NoisyMax

WIDTH = 36


def new_account() -> Any:
    """A new account with a budget of ε = 0.8, δ = 1e-6 for the whole dataset."""
    folder = Path("demo")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("adult.ledger*"):
        old.unlink()
    return dp.Ledger(folder / "adult.ledger").account("adult", budget=dp.ApproxDP(0.8, 1e-6))


def release(account: Any, purpose: str, mechanism: Any, query: Any) -> Any:
    """Charge the event of the mechanism, then run it."""
    event = mechanism.event(query) if isinstance(query, dp.Bounded) else mechanism.event()
    account.spend(event, purpose=purpose)
    return mechanism.release(query)


def show(what: str, released: Any, truth: float) -> None:
    low, high = released.confidence_interval(0.95)
    print(f"  {what:<30} {released.value:>9,.2f}   95%: {low:,.2f} … {high:,.2f}   (true: {truth:,.2f})")


def main() -> None:
    people = dp.datasets.adult()
    age, hours, income = people["age"], people["hours_per_week"], people["income"]
    account = new_account()

    print("\nThe Adult data: people in the 1994 US census.")
    print(f"Budget: {account.budget}, kept in demo/adult.ledger.")
    print("Each answer is charged before it gets exact noise. The true answer beside it is for this demo only.\n")

    rich = dp.queries.count(income, where=income == ">50K")
    show("people earning over $50,000", release(account, "earners", Laplace.for_epsilon(rich, 0.1), rich), 7841)

    years = dp.queries.mean(age, bounds=(17, 90))
    show("mean age", release(account, "mean age", Laplace.for_epsilon(years, 0.1), years), age.mean())

    weekly = dp.queries.mean(hours, bounds=(0, 100))
    noise = Gaussian.for_epsilon(weekly, 0.2, 1e-7)
    show("mean hours worked per week", release(account, "mean hours", noise, weekly), hours.mean())

    spread = dp.queries.variance(hours, bounds=(0, 100))
    show(
        "variance of the hours",
        release(account, "hours' variance", Laplace.for_epsilon(spread, 0.1), spread),
        hours.var(),
    )

    education = dp.queries.histogram(people["education"], categories=dp.datasets.EDUCATION)
    levels = release(account, "education", Laplace.for_epsilon(education, 0.1), education)
    low, high = levels.confidence_interval(0.95)
    print(f"\n  education, {len(levels.labels)} counts for the price of one ({levels.guarantee}):")
    for label, count, lo, hi in zip(levels.labels, levels.value, low, high, strict=True):
        bar = "█" * max(0, round(WIDTH * count / max(levels.value)))
        print(f"    {label:<13} {bar:<{WIDTH}} {count:>7,} ({lo:,} … {hi:,})")

    ages = dp.queries.quantile_scores(age, candidates=range(17, 91))
    jobs = dp.queries.votes(people["occupation"], candidates=dp.datasets.OCCUPATION)
    median = release(account, "median age", Exponential(0.1), ages)
    common = release(account, "most common job", NoisyMax(0.05), jobs)
    print(f"\n  median age, chosen privately: {median.value}   (true: {np.median(age):.0f})")
    print(f"  the most common occupation, chosen privately: {common.value}\n")

    try:
        release(account, "one more", Laplace.for_epsilon(rich, 0.5), rich)
    except BudgetExceeded as refused:
        advice = str(refused).rpartition("; ")[2]
        print(textwrap.fill(f"One more count at ε = 0.5 is refused, because the budget has no room: {advice}.", 100))

    print(f"\n{account.statement()}\n")
    spent = dp.events.Composed(tuple(entry.event for entry in account.history() if entry.event is not None))
    total = dp.ApproxDP(dp.accounting.epsilon(spent, delta=1e-6).upper, 1e-6).protecting(dp.Neighbors())
    print(textwrap.fill(f"What this means: {total.explain()}", 100))


if __name__ == "__main__":
    main()
