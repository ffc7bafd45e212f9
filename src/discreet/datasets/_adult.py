"""The Adult data: 48,842 people in the 1994 US census, with their work and their income.

Becker & Kohavi, *Adult*, UCI Machine Learning Repository, 1996, doi:10.24432/C5XW20, licensed CC BY 4.0. Repackaged as
small integers; no row was changed. The lists below are the data dictionary: public facts, not taken from the rows.
"""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.errors import MissingExtra

WORKCLASS = (
    "Private",
    "Self-emp-not-inc",
    "Self-emp-inc",
    "Federal-gov",
    "Local-gov",
    "State-gov",
    "Without-pay",
    "Never-worked",
)
EDUCATION = (
    "Preschool",
    "1st-4th",
    "5th-6th",
    "7th-8th",
    "9th",
    "10th",
    "11th",
    "12th",
    "HS-grad",
    "Some-college",
    "Assoc-voc",
    "Assoc-acdm",
    "Bachelors",
    "Masters",
    "Prof-school",
    "Doctorate",
)
MARITAL_STATUS = (
    "Married-civ-spouse",
    "Divorced",
    "Never-married",
    "Separated",
    "Widowed",
    "Married-spouse-absent",
    "Married-AF-spouse",
)
OCCUPATION = (
    "Tech-support",
    "Craft-repair",
    "Other-service",
    "Sales",
    "Exec-managerial",
    "Prof-specialty",
    "Handlers-cleaners",
    "Machine-op-inspct",
    "Adm-clerical",
    "Farming-fishing",
    "Transport-moving",
    "Priv-house-serv",
    "Protective-serv",
    "Armed-Forces",
)
RELATIONSHIP = ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")
RACE = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
SEX = ("Female", "Male")
NATIVE_COUNTRY = (
    "United-States",
    "Cambodia",
    "England",
    "Puerto-Rico",
    "Canada",
    "Germany",
    "Outlying-US(Guam-USVI-etc)",
    "India",
    "Japan",
    "Greece",
    "South",
    "China",
    "Cuba",
    "Iran",
    "Honduras",
    "Philippines",
    "Italy",
    "Poland",
    "Jamaica",
    "Vietnam",
    "Mexico",
    "Portugal",
    "Ireland",
    "France",
    "Dominican-Republic",
    "Laos",
    "Ecuador",
    "Taiwan",
    "Haiti",
    "Columbia",
    "Hungary",
    "Guatemala",
    "Nicaragua",
    "Scotland",
    "Thailand",
    "Yugoslavia",
    "El-Salvador",
    "Trinadad&Tobago",
    "Peru",
    "Hong",
    "Holand-Netherlands",
)
INCOME = ("<=50K", ">50K")

#: The values that each text column may hold.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "workclass": WORKCLASS,
    "education": EDUCATION,
    "marital_status": MARITAL_STATUS,
    "occupation": OCCUPATION,
    "relationship": RELATIONSHIP,
    "race": RACE,
    "sex": SEX,
    "native_country": NATIVE_COUNTRY,
    "income": INCOME,
}

_UNKNOWN = 255  # the code of an unknown category in the stored array


def adult(part: Literal["train", "test"] = "train") -> dict[str, NDArray[Any]]:
    """The Adult data as columns: integers for numbers, strings for categories, None for unknown values.

    Args:
        part: "train" (32,561 rows) or "test" (16,281 rows), the split of the UCI repository.

    Guarantee: none. These are rows about people, published long ago; look at them through queries and mechanisms.

    >>> people = adult()
    >>> len(people["age"]), people["education"][0]
    (32561, 'Bachelors')
    """
    _check.one_of("part", part, ("train", "test"), "these are the two parts of the data")
    columns: dict[str, NDArray[Any]] = {}
    with resources.files(__package__).joinpath("adult.npz").open("rb") as file, np.load(file) as stored:
        for name in stored.files:
            prefix, _, column = name.partition("_")
            if prefix != part:
                continue
            if column in CATEGORIES:
                table = np.array([*CATEGORIES[column], None], dtype=object)
                codes = stored[name].astype(np.int64)
                columns[column] = table[np.where(codes == _UNKNOWN, len(table) - 1, codes)]
            else:
                columns[column] = stored[name].astype(np.int64)
    return columns


#: Column names in files that differ from those of `adult()`: short ones, as in the command-line examples.
_FILE_NAMES = {"hours_per_week": "hours"}


def write_adult(path: Path | str, part: Literal["train", "test"] = "train", *, overwrite: bool = False) -> Path:
    """Write the Adult data to a file, to try the command line with: Parquet or CSV, by the file's ending.

    The columns are those of `adult`, except that `hours_per_week` is called `hours`. Unknown values are null in Parquet
    and empty in CSV.

    Args:
        path: where to write; it ends in ".parquet" or ".csv".
        part: "train" (32,561 rows) or "test" (16,281 rows).
        overwrite: replace the file if it exists.

    Returns:
        The path.

    Guarantee: none. The file holds rows about people, published long ago.
    """
    target = Path(path)
    kind = _check.one_of("path's ending", target.suffix.lower(), (".parquet", ".csv"), "it decides the format")
    if target.exists() and not overwrite:
        raise _check.fail("path", "not exist yet", str(path), "give another path, or overwrite=True")
    if not target.parent.is_dir():
        raise _check.fail("path", "lie in an existing folder", str(path), "create the folder first")
    columns = {_FILE_NAMES.get(name, name): values for name, values in adult(part).items()}
    if kind == ".parquet":
        _write_parquet(columns, target)
    else:
        _write_csv(columns, target)
    return target


def _write_parquet(columns: dict[str, NDArray[Any]], path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        remedy = "pip install 'discreet[analytics]', or write a .csv file, which needs nothing"
        raise MissingExtra(f"writing Parquet needs pyarrow: {remedy}") from error
    pq.write_table(pa.table(columns), path)


def _write_csv(columns: dict[str, NDArray[Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
