"""The Adult data: 48,842 people from the 1994 census of the United States, with what they work and earn.

Becker & Kohavi, *Adult*, UCI Machine Learning Repository, 1996, doi:10.24432/C5XW20, licensed CC BY 4.0. Repackaged as
small integers; no row was changed. The lists below are the data dictionary: public facts, not taken from the rows.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.errors import InvalidArgument, MissingExtra

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

_UNKNOWN = 255


def adult(part: Literal["train", "test"] = "train") -> dict[str, NDArray[Any]]:
    """The Adult data as columns: integers for numbers, text for categories, None for unknown.

    Args:
        part: "train" (32,561 rows) or "test" (16,281 rows), the split of the UCI repository.

    Guarantee: none. These are rows about people, published long ago; use queries and mechanisms to look at them.

    >>> people = adult()
    >>> len(people["age"]), people["education"][0]
    (32561, 'Bachelors')
    """
    _check.one_of("part", part, ("train", "test"), "the data come in these two parts")
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


def write_adult(
    path: str | os.PathLike[str], *, part: Literal["train", "test"] = "train", overwrite: bool = False
) -> Path:
    """Write the Adult data to a Parquet file, as the examples of the command line use it.

    The columns are those of `adult`, except that `hours_per_week` is called `hours`.

    Args:
        path: the file to write.
        part: "train" or "test".
        overwrite: whether to replace a file that exists.

    Guarantee: none. These are rows about people, published long ago.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as missing:
        raise MissingExtra("Parquet files need pyarrow: pip install 'discreet[analytics]'") from missing
    columns = {"hours" if name == "hours_per_week" else name: column for name, column in adult(part).items()}
    target = Path(path)
    try:
        with target.open("wb" if overwrite else "xb") as file:
            pq.write_table(pa.table(columns), file)
    except FileExistsError:
        raise InvalidArgument(f"path must not exist, got {str(target)!r}: choose another, or overwrite it") from None
    return target
