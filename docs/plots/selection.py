"""Draw what a search costs and how good its winner is.

python docs/plots/selection.py      # run from the repository root
"""

from __future__ import annotations

from pathlib import Path

from discreet import events
from discreet.learning.selection import worth_trying

TARGET = Path(__file__).parents[1] / "img/selection-worth.png"
#: One run of DP-SGD at about ε = 1: 500 batches of 2% of the examples.
RUN = events.Repeated(events.PoissonSampled(0.02, events.Gaussian(2.0)), 500)


def main() -> None:
    """One chart."""
    advice = worth_trying(RUN, 1e-6, epsilon=2.0)
    print(advice.worth)
    advice.plot().figure.savefig(TARGET, dpi=120)


if __name__ == "__main__":
    main()
