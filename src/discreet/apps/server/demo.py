"""The demo's curator: the Adult data, one budget, and three users, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

from discreet import datasets
from discreet.apps.server.config import CuratorConfig, read_config
from discreet.apps.server.starting import Started, start
from discreet.errors import InvalidArgument

_CONFIG = """\
ledger = "curator.ledger"

[accounts.census]
epsilon = 3.0
delta = 1e-6

[accounts.census.policy]
approval_above = 0.5

[accounts.census.shares]
ann = {{ epsilon = 2.0, delta = 1e-6 }}

[datasets.people]
source = "people.parquet"
description = "People in the 1994 US census"

[datasets.people.bounds]
age = [17, 90]
hours = [0, 100]

[datasets.people.values]
sex = {sex}
education = {education}

[users.sam]
role = "steward"

[users.ann]
role = "analyst"

[users.eve]
role = "auditor"
"""


def prepare(folder: Path) -> Started:
    """Write the data and `curator.toml` into a folder, with a fresh ledger, and open all of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"folder must be writable, got {str(folder)!r}: {error.strerror}") from None
    for old in folder.glob("curator.ledger*"):
        old.unlink()
    datasets.write_adult(folder / "people.parquet", overwrite=True)
    path = folder / "curator.toml"
    path.write_text(_CONFIG.format(sex=list(datasets.SEX), education=list(datasets.EDUCATION)), encoding="utf-8")
    return start(configuration(path))


def configuration(path: Path) -> CuratorConfig:
    """The configuration that `prepare` wrote."""
    return read_config(path, path.read_text(encoding="utf-8"))
