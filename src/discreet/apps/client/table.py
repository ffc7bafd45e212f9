"""A dataset of a server as a private table: questions are recorded here, and previewed, tried and asked there."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from discreet import _check
from discreet.analytics import Aggregate, Discover, Expression, Preview, Result
from discreet.analytics.aggregates.registry import Asking
from discreet.analytics.aggregates.value_range import EXPONENTS
from discreet.analytics.table.expressions import Column
from discreet.apps.client.http import Http, Unreachable, segment
from discreet.apps.wire.results import preview_of, result_of
from discreet.apps.wire.values import written

Recorded = tuple[Any, ...]


class RemoteAnswer:
    """A question to a server that was not asked yet: `preview` and `trial` are free, `release` is charged."""

    def __init__(self, http: Http, dataset: str, question: Mapping[str, Any]) -> None:
        self._http = http
        self._path = f"/v1/datasets/{segment(dataset)}"
        self._question = dict(question)

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        total: bool | float = False,
        error_target: float | Mapping[str, float] | None = None,
        rows: int = 1000,
    ) -> Preview:
        """The cost, the expected errors and what remains, as `Answer.preview` shows them.

        Guarantee: spends nothing and touches no data.
        """
        body = self._body(epsilon=epsilon, delta=delta, rho=rho, noise=noise, total=total)
        body |= _given(error_target=error_target, rows=rows)
        return preview_of(self._http.call("POST", f"{self._path}/preview", body, repeatable=True))

    def trial(self, **spending: Any) -> Result:
        """The same question about public dummy data of the same schema; arguments are those of `release`.

        Guarantee: spends nothing and touches no data.
        """
        return result_of(self._http.call("POST", f"{self._path}/try", self._body(**spending), repeatable=True))

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        nonnegative: bool = False,
        integer: bool = False,
        total: bool | float = False,
        purpose: str | None = None,
        key: str | None = None,
    ) -> Result:
        """Ask: charged to one's own share, then computed there. Arguments are those of `Answer.release`.

        A `key` names this question: asked again with the same key, also from another process, it returns the same
        answer without a second charge. Without one a random key is used, so that a connection that breaks off can be
        tried again here.

        Raises:
            BudgetExceeded: there is no room; nothing was charged.
            Refused: a steward must approve it first, or the server refused it for another reason; `code` says which.

        Guarantee: as `Answer.release`, kept by the server.
        """
        body = self._body(
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            noise=noise,
            nonnegative=nonnegative,
            integer=integer,
            total=total,
        )
        body |= _given(purpose=purpose)
        used = uuid.uuid4().hex if key is None else key
        try:
            answer = self._http.call("POST", f"{self._path}/ask", body, key=used, repeatable=True)
        except Unreachable:
            answer = self._http.call("POST", f"{self._path}/ask", body, key=used)
        return result_of(answer)

    def _body(self, **spending: Any) -> dict[str, Any]:
        return {**self._question, **_given(**spending)}

    def __repr__(self) -> str:
        return f"<Answer, not released: {self._path.rpartition('/')[2]}>"


class _Recording(Asking):
    """What a remote table and its groups share: a question is the list of calls so far. Abstract."""

    def __init__(self, http: Http, dataset: Mapping[str, Any], calls: tuple[Recorded, ...] = ()) -> None:
        self._http = http
        self._dataset = dataset
        self._calls = calls

    def _with(self, name: str, /, *arguments: Any, **options: Any) -> tuple[Recorded, ...]:
        return (*self._calls, (name, list(arguments), _given(**options)))

    def _asked(self, name: str, /, *arguments: Any, **options: Any) -> Any:
        calls = written(list(self._with(name, *arguments, **options)))
        return RemoteAnswer(self._http, self._dataset["name"], {"calls": calls})

    def aggregate(self, **asked: Aggregate) -> Any:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        return self._asked("aggregate", **asked)

    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Any:
        """How many rows have each combination of public categories of some columns, for the price of one count."""
        return self._asked("marginal", *columns, categories=_listed(categories))

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Any:
        """How many rows fall into each of some public categories, or into each interval between public edges."""
        options = {"categories": categories, "edges": edges}
        return self._asked("histogram", column, **{name: None if v is None else list(v) for name, v in options.items()})

    def rows_per_person(self) -> Any:
        """How many persons have how many rows."""
        return self._asked("rows_per_person")

    def find_bounds(self, column: str, *, inside: float = 0.98, exponents: tuple[int, int] = EXPONENTS) -> Any:
        """A private range of `column`, for bounds that nobody knows."""
        return self._asked("find_bounds", column, inside=inside, exponents=list(exponents))


class RemoteGroups(_Recording):
    """Groups of a remote table; each aggregate gives one number for each of them."""


class RemoteTable(_Recording):
    """A dataset of a server. Its methods are those of `dp.Private`; rows never leave the server.

    Columns are `people.age` or `people["age"]`.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the dataset's columns, which are public."""
        return tuple(column["name"] for column in self._dataset["columns"])

    def schema(self) -> dict[str, str]:
        """The type of each column, as the engine names it."""
        return {column["name"]: column["type"] for column in self._dataset["columns"]}

    def __getitem__(self, name: str) -> Expression:
        if not isinstance(name, str):
            raise _check.fail("column", "be a name", type(name).__name__, ", ".join(self.columns))
        return Column(name)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        made = {new for call, _, options in self._calls if call in ("mutate", "per_person") for new in options}
        if name not in {*self.columns, *made}:
            raise _check.fail("column", "be one of the table's", name, ", ".join(self.columns))
        return Column(name)

    def where(self, *conditions: Expression) -> RemoteTable:
        """The rows for which all conditions hold."""
        return self._next("where", *conditions)

    def select(self, *names: str) -> RemoteTable:
        """Only these columns."""
        return self._next("select", *names)

    def mutate(self, **expressions: Expression) -> RemoteTable:
        """New columns, each computed from its own row."""
        return self._next("mutate", **expressions)

    def bin(self, column: str, edges: Iterable[float], name: str | None = None) -> RemoteTable:
        """A new column with the left edge of the interval that holds the value."""
        return self._next("bin", column, list(edges), name=name)

    def per_person(self, *columns: str, **values: Aggregate) -> RemoteTable:
        """One row for each person, with exact aggregates of that person's rows."""
        return self._next("per_person", *columns, **values)

    def where_person(self, condition: Expression, *, negate: bool = False) -> RemoteTable:
        """The rows of persons who have at least one row for which a condition holds; with `negate`, of the others."""
        return self._next("where_person", condition, negate=negate)

    def group_by(self, *columns: str, keys: object = None) -> RemoteGroups:
        """One answer for each group; keys are public, or `dp.discover()`."""
        calls = self._with("group_by", *columns, keys=keys if isinstance(keys, Discover) else _listed(keys))
        return RemoteGroups(self._http, self._dataset, calls)

    def plan(self, sql: str, *, keys: object = None) -> RemoteAnswer:
        """The answer that a subset of SQL asks for, to preview, to try or to release.

        Other datasets of the same account can be joined under their names.
        """
        if self._calls:
            raise _check.fail("plan", "be asked of the dataset itself", "a table of it", "write the filter in SQL")
        given = keys if isinstance(keys, Discover) else _listed(keys)
        return RemoteAnswer(self._http, self._dataset["name"], {"sql": sql, **_given(keys=written(given))})

    def sql(self, sql: str, *, keys: object = None, **spending: Any) -> Result:
        """Release what a subset of SQL asks for: `plan(sql, keys=…).release(epsilon=…)`.

        Guarantee: as `RemoteAnswer.release`.
        """
        return self.plan(sql, keys=keys).release(**spending)

    def _next(self, name: str, /, *arguments: Any, **options: Any) -> RemoteTable:
        return RemoteTable(self._http, self._dataset, self._with(name, *arguments, **options))

    def __len__(self) -> int:
        raise _check.fail("len", "not be asked of a private table", "len", "ask count()")

    def __repr__(self) -> str:
        return f"<Remote private table, rows hidden: {', '.join(self.columns)}; protects {self._dataset['protects']}>"


def _given(**options: Any) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in options.items() if value is not None}


def _listed(keys: Any) -> Any:
    """Keys as JSON holds them: lists, and lists by column; a table of keys as its rows."""
    if keys is None:
        return None
    if isinstance(keys, Mapping):
        return {name: list(values) for name, values in keys.items()}
    if hasattr(keys, "to_dict") or hasattr(keys, "to_pylist"):
        remedy = "list its rows as tuples"
        raise _check.fail("keys", "be a list, or lists by column", type(keys).__name__, remedy)
    return list(keys)
