"""Draw docs/img/trust.png: the error of a count with a curator, with a shuffler and without either; print its table.

Run from the repository root: `python docs/plots/trust.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from discreet import events
from discreet.accounting import shuffled_delta
from discreet.mechanisms.local import GeneralizedResponse
from discreet.release import NoiseLaw

DELTA = 1e-6
# No report is more informative than this: a larger ε₀ hardly lowers the error.
LARGEST = 20.0
COLORS = {"curator": "#00796b", "shuffler": "#f9a825", "nobody": "#d84315"}


def central(epsilon: float, people: int) -> float:
    """The standard error of a count that a curator releases with Laplace noise."""
    return NoiseLaw(gaussian=False, rounded=False, scale=1 / epsilon).standard_deviation()


def local(epsilon: float, people: int) -> float:
    """The standard error of the number of people who say yes, if each randomizes their answer."""
    protocol = GeneralizedResponse(epsilon, ("yes", "no"))
    return people * math.sqrt(float(protocol.variance(0.5, people)))


def shuffled(epsilon: float, people: int) -> float:
    """The same, if the reports are shuffled and may have the largest ε₀ that costs (ε, δ)."""
    low, high = epsilon, LARGEST
    while high - low > 1e-2:
        middle = (low + high) / 2
        report = events.RandomizedResponse(Fraction(middle), 2)
        fits = shuffled_delta(events.Shuffled(people, report), epsilon) <= DELTA
        low, high = (middle, high) if fits else (low, middle)
    return local(low, people)


def main() -> None:
    figure, (over_people, over_epsilon) = plt.subplots(1, 2, figsize=(9.2, 4.2), layout="constrained")
    ways = {"curator": central, "shuffler": shuffled, "nobody": local}
    people = np.unique(np.geomspace(1e3, 1e7, 17).astype(int))
    epsilons = np.geomspace(0.05, 4.0, 13)
    for name, error in ways.items():
        label = f"trusted: {name}"
        over_people.plot(people, [error(1.0, int(n)) for n in people], color=COLORS[name], label=label)
        over_epsilon.plot(epsilons, [error(float(e), 100_000) for e in epsilons], color=COLORS[name], label=label)
    over_people.set(xscale="log", yscale="log", xlabel="people", ylabel="standard error, in people", title="ε = 1")
    over_epsilon.set(xscale="log", yscale="log", xlabel="ε", title="100,000 people")
    for axes in (over_people, over_epsilon):
        axes.grid(alpha=0.3)
    over_people.legend(frameon=False)
    figure.savefig(Path(__file__).parent.parent / "img" / "trust.png", dpi=130)
    print("| people | ε | curator | shuffler | nobody |")
    print("|---:|---:|---:|---:|---:|")
    for count in (1_000, 100_000, 10_000_000):
        for epsilon in (0.1, 1.0, 4.0):
            cells = " | ".join(f"{error(epsilon, count):,.3g}" for error in ways.values())
            print(f"| {count:,} | {epsilon:g} | {cells} |")


if __name__ == "__main__":
    main()
