"""A made-up hospital: patients and their visits over two years, drawn from a seed. Nobody in it exists.

The shapes are those of real records. Most patients come a few times, a few come every week, winters are busy, costs
have a long tail, some costs are missing and a few are typing errors. The lists below are public facts.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check

WARDS = ("emergency", "medicine", "surgery", "children", "maternity", "dialysis")
DISTRICTS = ("Harbor", "Old Town", "Hillside", "Riverside", "Mill End", "North Park")

_PATIENTS = 20_000
_FIRST, _LAST = np.datetime64("2023-01-01"), np.datetime64("2024-12-31")
#: How many live in each district, relative to the others.
_DISTRICT_SIZES = (5, 4, 3, 3, 2, 1)
#: How busy each month is, relative to the others: January to December.
_SEASONS = (1.30, 1.25, 1.10, 0.98, 0.92, 0.88, 0.84, 0.82, 0.92, 0.98, 1.08, 1.25)
#: One patient in 200 comes for dialysis, about every fifth day.
_DIALYSIS = 1 / 200
_DIALYSIS_VISITS = 146
#: The median cost of a visit to each ward, and of each night.
_COSTS = (240.0, 380.0, 2100.0, 210.0, 1500.0, 310.0)
_NIGHT = 420.0
#: The mean number of nights in each ward.
_NIGHTS = (0.1, 1.2, 2.5, 0.3, 2.2, 0.0)
_MISSING, _TYPING_ERRORS = 0.015, 0.0005


def hospital(seed: int = 0) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Two tables of a made-up hospital, as columns by name: 20,000 patients, and about 100,000 visits.

    Patients have `patient`, `born`, `sex` and `district`. Visits have `visit`, `patient`, `day`, `ward`, `nights` and
    `cost`, of which some are missing (NaN). `datasets.WARDS` and `datasets.DISTRICTS` list the public values.

    Args:
        seed: another seed gives another hospital of the same shape.
    """
    draw = np.random.default_rng(_check.integer("seed", seed, "it makes the data reproducible", at_least=0))
    ids = 100_000 + draw.permutation(_PATIENTS)
    born = 2024 - np.minimum(draw.gamma(3.2, 14.0, _PATIENTS), 98).astype(np.int64)
    sizes = np.array(_DISTRICT_SIZES) / sum(_DISTRICT_SIZES)
    patients = {
        "patient": ids,
        "born": born,
        "sex": np.array(["Female", "Male"])[draw.integers(0, 2, _PATIENTS)],
        "district": np.array(DISTRICTS)[draw.choice(len(DISTRICTS), _PATIENTS, p=sizes)],
    }
    dialysis = draw.random(_PATIENTS) < _DIALYSIS
    # A rate for each patient: how often people come differs more than chance alone explains.
    rates = draw.gamma(0.9, 4.2, _PATIENTS) * (0.6 + (2024 - born) / 70)
    times = np.where(dialysis, draw.poisson(_DIALYSIS_VISITS, _PATIENTS), draw.poisson(rates))
    who = np.repeat(np.arange(_PATIENTS), times)
    return patients, _visits(draw, patients, who, dialysis[who])


def _visits(
    draw: np.random.Generator, patients: Mapping[str, NDArray[Any]], who: NDArray[Any], dialysis: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The visits of some patients, in the order of their days."""
    many = len(who)
    days = np.arange(_FIRST, _LAST + 1)
    months = days.astype("datetime64[M]").astype(np.int64) % 12
    weights = np.array(_SEASONS)[months]
    day = np.sort(draw.choice(days, many, p=weights / weights.sum()))
    order = draw.permutation(many)
    who, dialysis = who[order], dialysis[order]
    age = 2024 - patients["born"][who]
    mothers = (patients["sex"][who] == "Female") & (age >= 20) & (age < 42) & (draw.random(many) < 0.2)
    adults = draw.choice(3, many, p=(0.38, 0.42, 0.20))  # emergency, medicine or surgery
    ward = np.select([dialysis, age < 16, mothers], [5, np.where(adults == 0, 0, 3), 4], adults)
    nights = draw.poisson(np.array(_NIGHTS)[ward])
    cost = np.array(_COSTS)[ward] * draw.lognormal(0.0, 0.6, many) + nights * _NIGHT
    cost = np.where(draw.random(many) < _TYPING_ERRORS, cost * 100, cost)
    cost = np.where(draw.random(many) < _MISSING, np.nan, np.round(cost, 2))
    return {
        "visit": np.arange(1, many + 1),
        "patient": patients["patient"][who],
        "day": day,
        "ward": np.array(WARDS)[ward],
        "nights": nights,
        "cost": cost,
    }


def write_hospital(folder: Path | str, *, seed: int = 0, overwrite: bool = False) -> tuple[Path, Path]:
    """Write the tables of `hospital` to patients.csv and visits.csv in a folder, which is made if it is not there.

    Args:
        folder: where to write.
        seed: as in `hospital`.
        overwrite: replace the files if they exist.

    Returns:
        The two paths.
    """
    target = Path(folder)
    paths = target / "patients.csv", target / "visits.csv"
    for path in paths:
        if path.exists() and not overwrite:
            raise _check.fail("folder", "not hold these files yet", str(path), "give another one, or overwrite=True")
    tables = hospital(seed)
    target.mkdir(parents=True, exist_ok=True)
    for path, columns in zip(paths, tables, strict=True):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(_cells(values) for values in columns.values()), strict=True))
    return paths


def _cells(values: NDArray[Any]) -> list[Any]:
    """A column as it is written: NaN is an empty cell."""
    if values.dtype.kind != "f":
        return [str(value) for value in values.tolist()]
    return ["" if value != value else f"{value:.2f}" for value in values.tolist()]
