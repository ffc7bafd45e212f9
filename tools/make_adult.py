"""Make src/discreet/datasets/adult.npz from the UCI files: `python tools/make_adult.py DIR`.

Text columns are stored as indexes into the public lists of `discreet.datasets`, numbers as the smallest integer type
that holds them. Unknown values ("?") get the code 255.
"""

import gzip
import sys
from pathlib import Path

import numpy as np

from discreet import datasets

COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]


def read(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as lines:
        rows = [[cell.strip() for cell in line.rstrip(".\n").split(",")] for line in lines]
    return [row for row in rows if len(row) == len(COLUMNS)]


def main(folder: str) -> None:
    arrays = {}
    for split, name in (("train", "adult.data.gz"), ("test", "adult.test.gz")):
        columns = dict(zip(COLUMNS, zip(*read(Path(folder) / name), strict=True), strict=True))
        for column, cells in columns.items():
            if column in datasets.CATEGORIES:
                index = {label: code for code, label in enumerate(datasets.CATEGORIES[column])}
                coded = [255 if cell == "?" else index[cell] for cell in cells]
                arrays[f"{split}_{column}"] = np.array(coded, dtype=np.uint8)
            else:
                numbers = np.array(cells, dtype=np.int64)
                arrays[f"{split}_{column}"] = numbers.astype(np.min_scalar_type(numbers.max()))
    target = Path(datasets.__file__).with_name("adult.npz")
    np.savez_compressed(target, **arrays)
    print(target, target.stat().st_size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1])
