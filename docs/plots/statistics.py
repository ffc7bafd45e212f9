"""Draw docs/img/statistics-*.png: the figures of the statistics tutorial, from releases like those on its page.

Run it from the repository root with the docs and analytics extras installed: `python docs/plots/statistics.py`. The
noise is fresh each time, so the figures differ slightly from run to run.
"""

import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import discreet as dp

TARGET = Path(__file__).parent.parent / "img"


def main() -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9.5})
    with tempfile.TemporaryDirectory() as folder:
        ledger = dp.Ledger(Path(folder) / "census.ledger")
        census = ledger.account("census", budget=dp.ApproxDP(3.0, 1e-6), aside=5e-7)
        people = dp.Private(dp.datasets.adult(), account=census, bounds={"hours_per_week": (0, 100)})
        levels = {"education": dp.datasets.EDUCATION}
        pictures = {
            "ages": people.histogram("age", edges=range(15, 96, 5)).release(epsilon=0.1).plot(),
            "hours": people.group_by("education", keys=levels).mean("hours_per_week").release(epsilon=0.3).plot(),
            "countries": people.group_by("native_country", keys=dp.discover())
            .count()
            .release(epsilon=0.4, delta=1e-7, nonnegative=True)
            .plot(),
            "income": people.marginal("education", "income", categories={**levels, "income": dp.datasets.INCOME})
            .release(epsilon=0.2, nonnegative=True, integer=True, total=True)
            .plot(kind="heatmap"),
        }
    pictures["countries"].set_xscale("symlog", linthresh=100)
    pictures["countries"].set_xticks([0, 100, 1000, 10_000], ["0", "100", "1,000", "10,000"])
    for name, axes in pictures.items():
        axes.figure.savefig(TARGET / f"statistics-{name}.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
