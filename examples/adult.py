"""Private statistics of real people: the Adult data (1994 US census), with their errors and what they cost.

Run it with `make demo`, or `python examples/adult.py`.
"""

import textwrap

import numpy as np

import discreet as dp

WIDTH = 36


def show(what: str, released: dp.Release, truth: float) -> None:
    low, high = released.confidence_interval(0.95)
    print(f"  {what:<34} {released.value:>10,.2f}   95%: {low:,.2f} … {high:,.2f}")
    print(f"  {'':<34} {'':>10}   cost: {released.guarantee}   (exact: {truth:,.2f})\n")


def main() -> None:
    people = dp.datasets.adult()
    age, hours, income = people["age"], people["hours_per_week"], people["income"]
    costs: list[dp.Release] = []

    print("\nThe Adult data: people of the 1994 census of the United States, published long ago.")
    print("Each answer below carries exact noise that hides whether any one of them is in the data.")
    print("Beside it stands the exact answer, which you would not see, to show what the noise does.\n")

    rich = dp.laplace(dp.queries.count(income, where=income == ">50K"), epsilon=0.1)
    show("people earning over $50,000", rich, np.sum(income == ">50K"))

    mean_age = dp.laplace(dp.queries.mean(age, bounds=(17, 90)), epsilon=0.1)
    show("mean age", mean_age, age.mean())

    mean_hours = dp.gaussian(dp.queries.mean(hours, bounds=(0, 100)), epsilon=0.1, delta=1e-6)
    show("mean hours of work a week", mean_hours, hours.mean())

    spread = dp.laplace(dp.queries.variance(hours, bounds=(0, 100)), epsilon=0.2)
    show("variance of the hours", spread, hours.var())
    costs += [rich, mean_age, mean_hours, spread]

    levels = dp.laplace(dp.queries.histogram(people["education"], categories=dp.datasets.EDUCATION), epsilon=0.1)
    low, high = levels.confidence_interval(0.95)
    print(f"  education: one release of {len(levels.labels or ())} counts   cost: {levels.guarantee}")
    largest = max(levels.value)
    for label, count, lo, hi in zip(levels.labels or (), levels.value, low, high, strict=True):
        bar = "█" * max(0, round(WIDTH * count / largest))
        print(f"    {label:<13} {bar:<{WIDTH}} {count:>7,} ({lo:,} … {hi:,})")
    costs.append(levels)

    median = dp.exponential(dp.queries.quantile_scores(age, candidates=range(17, 91)), epsilon=0.1)
    common = dp.noisy_max(dp.queries.votes(people["occupation"], candidates=dp.datasets.OCCUPATION), epsilon=0.1)
    print(f"\n  median age, chosen privately:         {median.value}   cost: {median.guarantee}")
    print(f"  the most common occupation:           {common.value}   cost: {common.guarantee}")
    costs += [median, common]

    everything = dp.events.Composed(tuple(release.event for release in costs))
    whole = dp.ApproxDP(dp.accounting.epsilon(everything, delta=1e-6).upper, 1e-6)
    print(f"\nAll {len(costs)} answers together cost {whole.epsilon:.3f}, where each by itself would add up to 0.8:")
    print(textwrap.fill(whole.protecting(dp.Neighbors()).explain(), 100))
    print("\nWhat was run, as an accountant sees it:")
    for release in costs:
        print(f"  {release.event}")
    print("\nWhat each method of accounting would have charged for all of it:")
    print(textwrap.indent(str(dp.accounting.compare(everything, delta=1e-6)).partition("\n\n")[2], "  "))


if __name__ == "__main__":
    main()
