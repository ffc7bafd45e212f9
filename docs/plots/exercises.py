"""Draw docs/img/exercise-….png, the picture of each exercise of `discreet learn`.

Run from the repository root: `python docs/plots/exercises.py`.
"""

from __future__ import annotations

from pathlib import Path

from discreet.apps.learn import EXERCISES, charts

IMAGES = Path(__file__).resolve().parents[1] / "img"


if __name__ == "__main__":
    for exercise in EXERCISES:
        charts.draw(exercise.chart, IMAGES / f"exercise-{exercise.slug}.png")
