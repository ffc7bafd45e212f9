"""Draw docs/img/hospital-months.png: the chart of the hospital tutorial, from releases like those on its page.

Run it from the repository root with the docs and analytics extras installed: `python docs/plots/hospital.py`. The noise
is fresh each time, so the figure differs slightly from run to run. Only a made-up hospital can show its exact numbers.
"""

import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import discreet as dp

TARGET = Path(__file__).parent.parent / "img"
BARS, INK, EXACT = "#2a9d8f", "#1d3557", "#e76f51"


def exact(visits: dict[str, np.ndarray]) -> list[int]:
    """How many emergencies each month of 2024 really had."""
    months = visits["day"][visits["ward"] == "emergency"].astype("datetime64[M]")
    return [int(np.sum(months == np.datetime64(f"2024-{month:02}"))) for month in range(1, 13)]


def main() -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9.5})
    with tempfile.TemporaryDirectory() as folder:
        _, path = dp.datasets.write_hospital(folder)
        ledger = dp.Ledger(Path(folder) / "hospital.ledger")
        unit = dp.person("patient", max_rows=6)
        hospital = ledger.account("hospital", dp.ApproxDP(4.0, 1e-6), unit=unit)
        visits = dp.Private(path, account=hospital)
        visits = visits.mutate(month=visits.day.truncate("month"))
        months = visits.partition("month", keys=dp.months("2024-01", "2024-12"), max_parts=6)
        counts = [part.where(part.ward == "emergency").count().release(epsilon=0.2) for _, part in months.items()]
        ledger.close()
    names = [month.strftime("%b") for month in months]
    figure, axes = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
    axes.bar(
        names,
        [count.value for count in counts],
        yerr=[count.columns["count_error"][0] for count in counts],
        color=BARS,
        ecolor=INK,
        error_kw={"elinewidth": 1.1, "capsize": 2.5},
        label="released, with the 95% error of its noise",
    )
    axes.plot(names, exact(dp.datasets.hospital()[1]), "o", color=EXACT, markersize=4, label="exact, made-up data only")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(ylabel="emergency visits, 2024", ylim=(0, None))
    axes.grid(axis="y", color="#d9dde1", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    figure.savefig(TARGET / "hospital-months.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
