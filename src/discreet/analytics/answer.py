"""An answer that has not been given yet: what it would cost and how good it would be, and then the release itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ibis
from ibis.common.exceptions import IbisError

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.analytics import discovery, running
from discreet.analytics.collation import require_exact
from discreet.analytics.consistency import Consistency
from discreet.analytics.preview import Preview, expected, key_note
from discreet.analytics.question import Question
from discreet.analytics.result import Result
from discreet.analytics.spending import Part, Plan, Spend, plan
from discreet.bounded import Bounded, Scores
from discreet.errors import EngineFailed, Exhausted
from discreet.events import Event
from discreet.ledger import Account
from discreet.mechanisms import Exponential, TopK
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Relation
from discreet.release import Release

#: The key of the hash in a preview's SQL, where keys are discovered; a release draws its own.
_SHOWN_SECRET = 0


class Answer:
    """Aggregates that were asked for and not yet released. `preview` is free, `release` is charged."""

    def __init__(self, question: Question, account: Account) -> None:
        self._question = question
        self._account = account
        self._queries(_SHOWN_SECRET)  # refuses a column of the wrong type now, not at the release

    @property
    def sql(self) -> str:
        """The SQL that a release runs; discovered keys are shown as one example, and chosen under a fresh key."""
        return ";\n\n".join(str(ibis.to_sql(query)) for query in self._queries(_SHOWN_SECRET))

    def event(
        self,
        epsilon: float | None = None,
        *,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        total: bool | float = False,
    ) -> Event:
        """What a release would be charged as; looks at public facts alone."""
        return self._plan(Spend.of(epsilon, delta, rho, noise), Consistency.of(False, False, total)).event

    def epsilon_for(
        self,
        error_target: float | Mapping[str, float],
        *,
        rows: int = 1000,
        delta: float | None = None,
        noise: str = "auto",
        total: bool | float = False,
    ) -> float:
        """The least ε at which each column's expected error in a group of `rows` rows is within its target.

        Args:
            error_target: one error for all columns, or one for each of some columns by name, as `preview` shows them.
            rows: a guess of how many rows a group has.
            delta: the δ of Gaussian noise, or of keys that are discovered.
            noise: as in `release`.
            total: as in `release`.

        Guarantee: spends nothing and touches no data.
        """
        asked = self._question.asked
        given = error_target if isinstance(error_target, Mapping) else dict.fromkeys(asked, error_target)
        remedy = "it is the error that 95% of the column's numbers should stay within"
        targets = {name: float(_check.positive(f"error_target of {name}", e, remedy)) for name, e in given.items()}
        unknown = [name for name in targets if name not in asked]
        if unknown or not targets:
            raise _check.fail("error_target", "name columns of this answer", unknown, ", ".join(asked))
        wanted = Consistency.of(False, False, total)

        def enough(epsilon: float) -> bool:
            made = self._plan(Spend.of(epsilon, delta, None, noise), wanted)
            found = expected(self._question, made, self._relation, rows)
            return all(one.error <= targets[one.name] for one in found if one.name in targets)

        low, high = 1e-6, 1e4
        if not enough(high):
            raise _check.fail("error_target", "be reachable with ε ≤ 1e4", error_target, "allow for more, or more rows")
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

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
        """The cost, the expected error at 95% of each column in a group of `rows` rows, the SQL and what remains.

        Args:
            epsilon: what would be spent.
            delta: as in `release`.
            rho: as in `release`.
            noise: as in `release`.
            total: as in `release`.
            error_target: instead of `epsilon`, the errors that are wanted: the ε for them is found (see `epsilon_for`).
            rows: a guess of how many rows a group has.

        Guarantee: spends nothing and touches no data.
        """
        if sum(one is not None for one in (epsilon, rho, error_target)) != 1:
            remedy = "say which one is wanted"
            raise _check.fail("epsilon", "be given, or rho, or error_target, but not both", epsilon, remedy)
        if error_target is not None:
            epsilon = self.epsilon_for(error_target, rows=rows, delta=delta, noise=noise, total=total)
        made = self._plan(Spend.of(epsilon, delta, rho, noise), Consistency.of(False, False, total))
        return Preview(
            epsilon=None if made.spend.epsilon is None else float(made.spend.epsilon),
            cost=made.cost,
            noise=made.why,
            keys=key_note(made, self._question),
            event=made.event,
            neighbors=self._account.neighbors,
            groups=self._question.groups if self._question.discover is None else None,
            rows=rows,
            columns=tuple(expected(self._question, made, self._relation, rows)),
            sql=self.sql,
            budget=self._account.budget,
            remaining=self._account.remaining(),
            afterwards=self._account.remaining_after(made.event),
        )

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
        """Charge the account, then run the query, then add exact noise.

        Args:
            epsilon: the privacy loss ε > 0 of all columns together, split among them by their shares.
            delta: the δ of Gaussian noise, and of keys that are discovered.
            rho: instead of `epsilon`, the ρ of zCDP: discrete Gaussian noise.
            noise: "laplace", "gaussian", or "auto": with a `delta` the family whose errors are smaller, by public facts
                alone; Laplace without one.
            nonnegative: move counts, and sums of what cannot be negative, up to 0. Free.
            integer: make counts whole numbers. Free.
            total: measure each count's and sum's total over all groups as well, for this part of its column's budget
                (True: a fifth), and move the groups by least squares so that they add up to it.
            purpose: what it is for, in the ledger; by default what was asked.
            key: a name for this release in the ledger. A key that was charged before is refused: its noise was drawn.

        Raises:
            BudgetExceeded: the account has no room; the query did not run.
            EngineFailed: the engine broke down after the charge, which stays.

        Guarantee: ε-DP, (ε, δ)-DP or ρ-zCDP for the account's unit and relation, charged before the query runs. Each of
        the disjoint groups is answered at the full budget of its column. Sums are exact integers on a public grid with
        exact noise; quantiles and choices are drawn by the exponential mechanism; keys are given, or discovered with
        a threshold. Consistency looks at released numbers alone. Not protected: the plan and the time it takes.
        """
        wanted = Consistency.of(nonnegative, integer, total)
        made = self._plan(Spend.of(epsilon, delta, rho, noise), wanted)
        self._compile()
        require_exact(self._question.table, self._question.grouping)
        why = str(self._question) if purpose is None else purpose
        receipt = self._account.spend(made.event, why, key, self._account.neighbors)
        if receipt.replayed:
            raise Exhausted(f"key {key!r} has paid for a release already: keep that one, or choose another key")
        question = self._discovered(made)
        # Where no key was discovered there is nothing to ask the engine.
        tables = _run(question.queries()) if question.groups else [[] for _ in question.asked]
        values = question.values(tables, self._relation)
        done = {name: [self._noised(part, one) for one in values[name]] for name, part in made.parts.items()}
        totals = {name: self._total(question, name, part, values) for name, part in made.totals.items()}
        return Result.of(question, made, done, totals, wanted, receipt, self._relation)

    def __repr__(self) -> str:
        return f"<Answer, not released: {self._question}>"

    @property
    def _relation(self) -> Relation:
        return self._account.neighbors.relation

    def _plan(self, spend: Spend, wanted: Consistency) -> Plan:
        if wanted.total is not None:
            if self._question.keys is None:
                raise _check.fail("total", "go with groups", True, "without groups the answer is the total")
            if not any(one.statistic.kind in ("count", "sum") for one in self._question.asked.values()):
                raise _check.fail(
                    "total", "go with a count or a sum", str(self._question), "other columns do not add up"
                )
        budget = self._account.budget
        if self._question.discover is not None and not form_of(budget).takes_delta:
            remedy = (
                "open one with budget=dp.ApproxDP(ε, δ) and aside=, the part of δ for such releases; or list the keys"
            )
            raise _check.fail("account", "have a δ to discover keys", str(budget), remedy)
        if not form_of(budget).takes_gaussian and spend.noise == "auto":
            spend = replace(spend, noise="laplace")  # such a budget has no room for any other
        return plan(self._question, spend, self._relation, wanted.total)

    def _compile(self) -> None:
        """Refuse before the charge what the engine has no words for; looks at no data."""
        try:
            for query in self._queries(_SHOWN_SECRET):
                running.prepare(query)
        except IbisError as error:
            remedy = "this engine lacks a function: choose another column or aggregate, or another engine"
            raise _check.fail("question", "be one that the engine can be asked", type(error).__name__, remedy) from None

    def _queries(self, secret: int) -> list[Any]:
        first = [] if self._question.discover is None else [self._question.candidates(secret)]
        return first + self._question.queries()

    def _discovered(self, made: Plan) -> Question:
        """The question with its keys: those given, or those that come out of a private selection."""
        if made.selection is None:
            return self._question
        question = self._question
        assert question.keys is not None
        (table,) = _run([question.candidates(entropy.bits().integer(62))], running.arrow)
        return question.found(
            discovery.chosen(table, question.keys.columns, made.selection, question.unit, self._relation)
        )

    def _noised(self, part: Part, value: Bounded | Scores) -> Release[Any]:
        """The release of one value, by the mechanism whose event was charged."""
        if isinstance(part.mechanism, Exponential | TopK):
            assert isinstance(value, Scores)
            released = part.mechanism.release(value, relation=self._relation)
        else:
            assert isinstance(value, Bounded)
            released = part.mechanism.release(value, relation=self._relation)
        assert released.event == part.event, "what runs is what was charged"
        return released

    def _total(self, question: Question, name: str, part: Part, values: Mapping[str, list[Any]]) -> Release[Any]:
        (groups,) = values[name]
        return self._noised(part, question.whole(name, groups, self._relation))


def _run(queries: list[Any], read: Callable[[Any], Any] = running.rows) -> list[Any]:
    """What the engine answers: at most one row for each group, or level of a group; or all candidates for keys."""
    try:
        return [read(query) for query in queries]
    except Exception as error:
        failed = EngineFailed(error)
    raise failed
