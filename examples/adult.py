"""One budget for everything: private statistics of real people, each charged to a ledger before its noise is drawn.

The Adult data (1994 US census, published long ago) ship with the package, and numpy and scipy are enough. Run it with
`python examples/adult.py`. It keeps its ledger in demo/adult.ledger and starts a new one each time.
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
    """A budget of ε = 0.8, δ = 1e-6 for the whole dataset, in a file of its own."""
    place = Path("demo")
    place.mkdir(exist_ok=True)
    for old in place.glob("adult.ledger*"):
        old.unlink()
    return dp.Ledger(place / "adult.ledger").account("adult", budget=dp.ApproxDP(0.8, 1e-6))


def release(account: Any, purpose: str, mechanism: Any, query: Any) -> Any:
    """Charge what the mechanism is about to run, then run it."""
    event = mechanism.event(query) if isinstance(query, dp.Bounded) else mechanism.event()
    account.spend(event, purpose=purpose)
    return mechanism.release(query)


def show(what: str, released: Any, truth: float) -> None:
    low, high = released.confidence_interval(0.95)
    print(f"  {what:<30} {released.value:>9,.2f}   95%: {low:,.2f} … {high:,.2f}   (exact: {truth:,.2f})")


def main() -> None:
    people = dp.datasets.adult()
    age, hours, income = people["age"], people["hours_per_week"], people["income"]
    account = new_account()

    print("\nThe Adult data: people of the 1994 census of the United States.")
    print(f"Budget: {account.budget}, kept in demo/adult.ledger.")
    print("Each answer is charged first and carries exact noise; the exact answer beside it is for this demo only.\n")

    rich = dp.queries.count(income, where=income == ">50K")
    show("people earning over $50,000", release(account, "earners", Laplace.for_epsilon(rich, 0.1), rich), 7841)

    years = dp.queries.mean(age, bounds=(17, 90))
    show("mean age", release(account, "mean age", Laplace.for_epsilon(years, 0.1), years), age.mean())

    weekly = dp.queries.mean(hours, bounds=(0, 100))
    noise = Gaussian.for_epsilon(weekly, 0.2, 1e-7)
    show("mean hours of work a week", release(account, "mean hours", noise, weekly), hours.mean())

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
    common = release(account, "commonest job", NoisyMax(0.05), jobs)
    print(f"\n  median age, chosen privately: {median.value}   (exact: {np.median(age):.0f})")
    print(f"  the most common occupation, chosen privately: {common.value}\n")

    try:
        release(account, "one more", Laplace.for_epsilon(rich, 0.5), rich)
    except BudgetExceeded as refused:
        advice = str(refused).rpartition("; ")[2]
        print(textwrap.fill(f"One more count at ε = 0.5 is refused, the budget has no room for it: {advice}.", 100))

    print(f"\n{account.statement()}\n")
    spent = dp.events.Composed(tuple(entry.event for entry in account.history() if entry.event is not None))
    whole = dp.ApproxDP(dp.accounting.epsilon(spent, delta=1e-6).upper, 1e-6).protecting(dp.Neighbors())
    print(textwrap.fill(f"What that means. {whole.explain()}", 100))


if __name__ == "__main__":
    main()
