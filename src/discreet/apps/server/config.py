"""`curator.toml`: datasets, accounts, users and limits, checked before anything is opened.

docs/how-to/server.md shows a complete file. Relative paths start at the file's folder.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.apps.budgets import budget_of
from discreet.apps.sections import Section
from discreet.apps.server.anchoring import AnchorConfig
from discreet.apps.server.oidc import Provider
from discreet.errors import InvalidArgument
from discreet.guarantees import Guarantee
from discreet.ledger.access import Policy, Role
from discreet.neighbors import Neighbors, Person, Relation, Rows, Unit

_SEE = "docs/how-to/server.md"
#: Names that appear in addresses: letters, digits and a few signs, never a slash or a dot at the start.
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_LONGEST_NAME = 64
#: Days: a century.
_LONGEST_PERIOD = 36_525


@dataclass(frozen=True)
class AccountConfig:
    """An account to open: its budget, whom it protects, its policy, and the analysts' shares of it."""

    name: str
    budget: Guarantee
    neighbors: Neighbors
    aside: float
    policy: Policy
    shares: Mapping[str, Guarantee]


@dataclass(frozen=True)
class Dataset:
    """A table that analysts may ask about.

    Attributes:
        name: what it is called in addresses and in SQL.
        source: a Parquet or CSV path, or a database's address.
        account: the account that pays for questions about it.
        bounds: public bounds by column.
        values: public values by column: keys of groups, and the values of dummy data.
        person: the column with the person's id, where it is called otherwise than in the account's unit.
        description: one line for people.
        version: which state of the data this is, as the steward names it.
    """

    name: str
    source: str
    account: str
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    person: str | None = None
    description: str = ""
    version: str = "1"


@dataclass(frozen=True)
class ModelConfig:
    """A model that may be trained: a `discreet train` file of the steward, whose plan analysts may change."""

    name: str
    config: Path
    account: str
    description: str = ""


@dataclass(frozen=True)
class UserConfig:
    """A user to add, and how long the first token is valid."""

    name: str
    role: Role
    lifetime: dt.timedelta


@dataclass(frozen=True)
class ServerLimits:
    """What one request, one token and one process may use.

    Attributes:
        request_bytes: the largest body of a request.
        read_seconds: how long a client may take to send a body.
        query_seconds: how long a question may run; it is cancelled then, and its charge stays.
        requests_per_minute: how many requests one token may send; half as many may come at once.
        threads: how many questions run at the same time.
        waiting: how many requests may wait for a thread; more are turned away.
        answer_step: answers to questions leave at the next multiple of this many seconds after the request came in.
        keep_days: how long answers are kept for retries with the same idempotency key.
    """

    request_bytes: int = 262_144
    read_seconds: float = 10.0
    query_seconds: float = 60.0
    requests_per_minute: int = 600
    threads: int = 4
    waiting: int = 256
    answer_step: float = 0.05
    keep_days: int = 30


@dataclass(frozen=True)
class CuratorConfig:
    """A complete configuration."""

    folder: Path
    ledger: str
    host: str
    port: int
    accounts: tuple[AccountConfig, ...]
    datasets: tuple[Dataset, ...]
    models: tuple[ModelConfig, ...]
    users: tuple[UserConfig, ...]
    limits: ServerLimits
    webhook: str | None
    provider: Provider | None = None
    anchors: AnchorConfig | None = None


def read_config(path: str | Path, text: str) -> CuratorConfig:
    """Parse and check a configuration."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"CONFIG must be TOML, got {str(path)!r}: {error}") from None
    folder = Path(path).resolve().parent
    root = Section("the file", tree, _SEE)
    server = root.section("server", optional=True)
    accounts = tuple(_account(name, section) for name, section in root.sections("accounts"))
    if not accounts:
        raise InvalidArgument(f"CONFIG must have an account, got none: write [accounts.NAME] as in {_SEE}")
    account_names = {account.name for account in accounts}
    datasets = tuple(_dataset(name, section, folder, account_names) for name, section in root.sections("datasets"))
    models = tuple(_model(name, section, folder, account_names) for name, section in root.sections("models"))
    users = tuple(_user(name, section) for name, section in root.sections("users"))
    config = CuratorConfig(
        folder=folder,
        ledger=_location(root.text("ledger", "curator.ledger"), folder),
        host=server.text("host", "127.0.0.1"),
        port=server.whole("port", at_least=0, default=8080),
        accounts=accounts,
        datasets=datasets,
        models=models,
        users=users,
        limits=_limits(root.section("limits", optional=True)),
        webhook=server.text("webhook", "") or None,
        provider=_provider(root.section("oidc", optional=True), folder) if root.has("oidc") else None,
        anchors=_anchors(root.section("anchors", optional=True), folder) if root.has("anchors") else None,
    )
    server.done()
    root.done()
    return config


def checked_item_name(kind: str, name: object) -> str:
    """The name of a dataset or model: a plain word, because it is part of addresses and of SQL."""
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= _LONGEST_NAME
        or not set(name) <= _NAME_LETTERS
        or name.startswith(".")
    ):
        remedy = f"use 1 to {_LONGEST_NAME} of the letters a to z, digits, _, - and ."
        raise _check.fail(f"the name of a {kind}", "be a plain word", name, remedy)
    return name


def neighbors_of(column: str | None, max_rows: int | None, max_groups: int | None, relation: str) -> Neighbors:
    """Whom an account protects: rows, or the persons that a column names."""
    if column is None:
        if max_rows is not None or max_groups is not None:
            raise InvalidArgument("max_rows and max_groups must be used with unit: name the column of the person's id")
        unit: Unit = Rows()
    else:
        if max_rows is None:
            raise InvalidArgument(
                f"unit = {column!r} must be used with max_rows: it bounds what one person contributes"
            )
        unit = Person(column, max_rows, max_groups)
    relations = [member.value for member in Relation]
    if relation not in relations:
        raise _check.fail(
            "relation", f"be one of {', '.join(relations)}", relation, "it says which datasets are neighbors"
        )
    return Neighbors(Relation(relation), unit)


def period_of(days: float) -> dt.timedelta:
    """A period of this many days."""
    if not 0 < days <= _LONGEST_PERIOD:
        raise _check.fail("period_days", f"be above 0 and at most {_LONGEST_PERIOD}", days, "a year has 365")
    return dt.timedelta(days=float(days))


def _budget(section: Section) -> Guarantee:
    return budget_of(*(section.optional_number(name) for name in ("epsilon", "delta", "rho", "mu")))


def _account(name: str, section: Section) -> AccountConfig:
    unit = section.text("unit", "") or None
    account = AccountConfig(
        name=name,
        budget=_budget(section),
        neighbors=neighbors_of(
            unit,
            section.optional_whole("max_rows"),
            section.optional_whole("max_groups"),
            section.text("relation", "add/remove"),
        ),
        aside=section.number("aside", 0.0),
        policy=_policy(section.section("policy", optional=True)),
        shares={user: _share(share) for user, share in section.sections("shares")},
    )
    section.done()
    return account


def _share(section: Section) -> Guarantee:
    budget = _budget(section)
    section.done()
    return budget


def _policy(section: Section) -> Policy:
    expires = section.get("expires", (dt.datetime, dt.date), "a date", dt.date.max) if section.has("expires") else None
    if isinstance(expires, dt.date) and not isinstance(expires, dt.datetime):
        expires = dt.datetime(expires.year, expires.month, expires.day)
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=dt.UTC)
    days = section.optional_number("period_days")
    policy = Policy(
        max_epsilon_per_question=section.optional_number("max_epsilon_per_question"),
        min_group_size=section.optional_whole("min_group_size"),
        approval_above=section.optional_number("approval_above"),
        expires=expires,
        frozen=section.flag("frozen", False),
        period=None if days is None else period_of(days),
        alerts=tuple(float(share) for share in section.get("alerts", list, "a list of shares", [0.5, 0.8, 1.0])),
    )
    section.done()
    return policy


def _dataset(name: str, section: Section, folder: Path, accounts: set[str]) -> Dataset:
    bounds = section.section("bounds", optional=True)
    values = section.section("values", optional=True)
    dataset = Dataset(
        name=checked_item_name("dataset", name),
        source=_location(section.text("source"), folder),
        account=_known_account(section, accounts),
        bounds={column: _pair(column, bounds.values(column)) for column in bounds.names()},
        values={column: tuple(values.values(column)) for column in values.names()},
        person=section.text("person", "") or None,
        description=section.text("description", ""),
        version=section.text("version", "1"),
    )
    section.done()
    return dataset


def _model(name: str, section: Section, folder: Path, accounts: set[str]) -> ModelConfig:
    model = ModelConfig(
        name=checked_item_name("model", name),
        config=folder / section.text("config"),
        account=_known_account(section, accounts),
        description=section.text("description", ""),
    )
    section.done()
    return model


def _known_account(section: Section, accounts: set[str]) -> str:
    account = section.text("account", next(iter(accounts)) if len(accounts) == 1 else None)
    if account not in accounts:
        raise _check.fail("account", f"be one of {', '.join(sorted(accounts))}", account, "open it in [accounts]")
    return account


def _user(name: str, section: Section) -> UserConfig:
    role = section.text("role")
    if role not in {member.value for member in Role}:
        raise _check.fail(
            "role", f"be one of {', '.join(member.value for member in Role)}", role, "it decides what they may"
        )
    user = UserConfig(name, Role(role), dt.timedelta(days=section.number("days", 90.0)))
    section.done()
    return user


def _provider(section: Section, folder: Path) -> Provider:
    provider = Provider(
        issuer=section.text("issuer"),
        audience=section.text("audience"),
        keys=_location(section.text("keys"), folder),
        claim=section.text("claim", "sub"),
    )
    section.done()
    return provider


def _anchors(section: Section, folder: Path) -> AnchorConfig:
    command = [str(word) for word in section.values("command")] if section.has("command") else []
    anchors = AnchorConfig(
        key=folder / section.text("key"),
        keys=folder / section.text("keys"),
        to=folder / section.text("to"),
        minutes=float(_check.positive("minutes", section.number("minutes", 15.0), "a head is signed this often")),
        command=tuple(command),
        webhook=section.text("webhook", "") or None,
    )
    section.done()
    return anchors


def _limits(section: Section) -> ServerLimits:
    standard = ServerLimits()
    limits = ServerLimits(
        request_bytes=section.whole("request_bytes", default=standard.request_bytes),
        read_seconds=section.number("read_seconds", standard.read_seconds),
        query_seconds=section.number("query_seconds", standard.query_seconds),
        requests_per_minute=section.whole("requests_per_minute", default=standard.requests_per_minute),
        threads=section.whole("threads", default=standard.threads),
        waiting=section.whole("waiting", default=standard.waiting),
        answer_step=section.number("answer_step", standard.answer_step),
        keep_days=section.whole("keep_days", default=standard.keep_days),
    )
    section.done()
    for name in ("read_seconds", "query_seconds"):
        _check.positive(name, getattr(limits, name), "it is a number of seconds")
    _check.nonnegative("answer_step", limits.answer_step, "it is a number of seconds; 0 sends answers at once")
    return limits


def _pair(column: str, values: list[Any]) -> tuple[float, float]:
    if len(values) != 2:
        raise _check.fail(f"bounds of {column}", "be [lower, upper]", values, "such as age = [0, 120]")
    low, high = _check.bounds(tuple(values), f"bounds of {column}")
    return float(low), float(high)


def _location(text: str, folder: Path) -> str:
    return text if "://" in text else str(folder / text)
