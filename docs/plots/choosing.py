"""The pictures of docs/how-to/choosing-epsilon.md: `python docs/plots/choosing.py`."""

from pathlib import Path

import discreet as dp

FOLDER = Path(__file__).parent.parent / "img"


def main() -> None:
    """Draw a range of ε and a belief."""
    found = dp.epsilon_range(dp.queries.count([]), max_epsilon=0.5, error=10, probability=0.05)
    found.plot().figure.savefig(FOLDER / "epsilon-range.png", dpi=150)
    dp.PureDP(1.0).posterior(0.1).plot().figure.savefig(FOLDER / "belief.png", dpi=150)


if __name__ == "__main__":
    main()
