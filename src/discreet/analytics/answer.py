"""An answer before its release: what it would cost and how good it would be, and then the release itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ibis
import pyarrow as pa
from ibis.common.exceptions import IbisError

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.engine import running
from discreet.analytics.engine.collation import require_exact, require_plain_numbers
from discreet.analytics.plan import discovery, limits
from discreet.analytics.plan.preview import Preview, expected, key_note
from discreet.analytics.plan.question import Question
from discreet.analytics.plan.spending import PricedMeasurement, ReleasePlan, Spend, plan_release
from discreet.analytics.result.bias import Bias
from discreet.analytics.result.consistency import Consistency
from discreet.analytics.result.result import Result
from discreet.analytics.table.expressions import within_the_stack
from discreet.bounded import Bounded, Scores
from discreet.errors import EngineFailed, Exhausted, InvalidArgument
from discreet.events import Event
from discreet.ledger import Account, Part
from discreet.mechanisms import Exponential, NoisyMax, TopK, observation
from discreet.mechanisms.refinement import Refinement
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Relation
from discreet.numeric.search import bisect_ratio
from discreet.queries.statistics.quantile import RefinedScores
from discreet.release import Release

#: The hash key in the SQL of a preview that discovers keys; a release draws a fresh one.
_SHOWN_SECRET = 0


class Answer:
    """Aggregates that were asked for and not yet released. `preview` is free, `release` is charged."""

    def __init__(
        self,
        question: Question,
        account: Account,
        part: Part | None = None,
        afterwards: Callable[[Result], Result] | None = None,
    ) -> None:
        self._question = question
        self._account = account
        self._part = part  # of a partition, if the rows are one
        self._afterwards = afterwards
        with within_the_stack():
            self._queries(_SHOWN_SECRET)  # refuses a column of the wrong type now, not at the release

    @property
    def sql(self) -> str:
        """The SQL that a release runs. Where keys are discovered, an example and a fixed hash key stand for them."""
        return ";\n\n".join(str(ibis.to_sql(query)) for query in self._queries(_SHOWN_SECRET))

    @property
    def description(self) -> str:
        """The question in words, which the ledger records as the purpose unless another one is given."""
        return str(self._question)

    @property
    def aggregates(self) -> int:
        """How many aggregates are asked for."""
        return len(self._question.asked)

    @property
    def size(self) -> tuple[int, int]:
        """How many groups are listed, and how many integers the engine returns for each at most: public facts."""
        return self._question.groups, max(measurement.coordinates for measurement in self._question.asked.values())

    def event(
        self,
        epsilon: float | None = None,
        *,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        total: bool | float = False,
    ) -> Event:
        """The event that a release would be charged as; depends on public facts alone."""
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
            delta: the δ of Gaussian noise, or of discovered keys.
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
            plan = self._plan(Spend.of(epsilon, delta, None, noise), wanted)
            columns = expected(self._question, plan, self._relation, rows)
            return all(column.error <= targets[column.name] for column in columns if column.name in targets)

        low, high = 1e-6, 1e4
        if not enough(high):
            raise _check.fail("error_target", "be reachable with ε ≤ 1e4", error_target, "allow for more, or more rows")
        return bisect_ratio(enough, low, high, ratio=1.001).high

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
        """The cost, the expected error at 95% of each column in a group of `rows` rows, and what remains of the budget.

        `print` shows these; the SQL that would run is in the preview's `sql`.

        Args:
            epsilon: what would be spent.
            delta: as in `release`.
            rho: as in `release`.
            noise: as in `release`.
            total: as in `release`.
            error_target: instead of `epsilon`, the largest errors to accept: their ε is computed (see `epsilon_for`).
            rows: a guess of how many rows a group has.

        Guarantee: spends nothing and touches no data.
        """
        _check.exactly_one(epsilon=epsilon, rho=rho, error_target=error_target)
        if error_target is not None:
            epsilon = self.epsilon_for(error_target, rows=rows, delta=delta, noise=noise, total=total)
        plan = self._plan(Spend.of(epsilon, delta, rho, noise), Consistency.of(False, False, total))
        return Preview(
            epsilon=None if plan.spend.epsilon is None else float(plan.spend.epsilon),
            cost=plan.cost,
            noise=plan.why,
            keys=key_note(plan, self._question),
            event=plan.event,
            neighbors=self._account.neighbors,
            groups=self._question.groups if self._question.discover is None else None,
            rows=rows,
            columns=tuple(expected(self._question, plan, self._relation, rows)),
            sql=self.sql,
            budget=self._account.budget,
            remaining=self._account.remaining(self._part),
            afterwards=self._account.remaining_after(plan.event, self._part),
            covers=limits.meaning(self._question),
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
            delta: the δ of Gaussian noise, and of discovered keys.
            rho: instead of `epsilon`, the ρ of zCDP: discrete Gaussian noise.
            noise: "laplace", "gaussian", or "auto": with a `delta` the one whose errors are smaller, judged by public
                facts alone; Laplace without one.
            nonnegative: move counts, and sums of what cannot be negative, up to 0. Free.
            integer: make counts whole numbers. Free.
            total: measure each count's and sum's total over all groups as well, for this part of its column's budget
                (True: a fifth), and move the groups by least squares so that they add up to it.
            purpose: the purpose that the ledger records; by default the question.
            key: a name for this release in the ledger. A key that was charged before is refused: its noise was drawn.

        Raises:
            BudgetExceeded: the account has no room; the query did not run.
            EngineFailed: the engine failed after the charge, which stays.

        Guarantee: ε-DP, (ε, δ)-DP or ρ-zCDP for the account's unit and relation, charged before the query runs. Each of
        the disjoint groups is answered at the full budget of its column. Sums are exact integers on a public grid with
        exact noise; quantiles and choices are drawn by the exponential mechanism; keys are given, or discovered with
        a threshold. Consistency looks at released numbers alone. Not protected: the plan and the time it takes.
        """
        wanted = Consistency.of(nonnegative, integer, total)
        plan = self._plan(Spend.of(epsilon, delta, rho, noise), wanted)
        require_exact(self._question.table, self._question.compared)
        planned = self._compile()
        why = str(self._question) if purpose is None else purpose
        promise = plan.guarantee(self._account.neighbors)
        receipt = self._account.spend(plan.event, why, key, self._account.neighbors, self._part)
        if receipt.replayed:
            raise Exhausted(f"key {key!r} has paid for a release already: keep that one, or choose another key")
        question = self._discovered(plan)
        if question is not self._question:  # keys were discovered; without any there is nothing to ask the engine
            planned = question.queries() if question.groups else []
        answers = _run(planned)
        values = question.values(answers, self._relation)
        done = {name: self._all_noised(name, priced, values[name]) for name, priced in plan.parts.items()}
        totals = {name: self._total(priced, values[name]) for name, priced in plan.totals.items()}
        result = Result.of(question, plan, done, totals, wanted, receipt, promise, self._relation)
        return result if self._afterwards is None else self._afterwards(result)

    def then(self, afterwards: Callable[[Result], Result]) -> Answer:
        """The same answer, with something that is done to its released result: free post-processing.

        Guarantee: `afterwards` sees the released result alone.
        """
        return Answer(self._question, self._account, self._part, afterwards)

    def withholding(self, least: int) -> Answer:
        """The same answer without the groups whose released counts are below `least`; it must count rows or persons.

        Every count of a group is judged, also that of some of its rows, such as `COUNT(*) FILTER (WHERE …)`. Where a
        group is withheld, so are totals, which would give it back. Conditions inside sums and means are not judged.

        Guarantee: looks at released counts alone, never at true ones, so it is free: post-processing keeps every
        guarantee (Dwork & Roth 2014, Proposition 2.1).
        """
        wanted = _check.integer("least", least, "groups with a smaller released count are withheld")
        asked = self._question.asked
        if not any(measurement.aggregate.counts_units for measurement in asked.values()):
            remedy = "add COUNT(*), or n=count(), to the question: the smallest group is judged by its released count"
            raise _check.fail("question", "count the rows or persons of each group", str(self._question), remedy)
        judged = [
            output.name
            for name, measurement in asked.items()
            if measurement.aggregate.counts_members
            for output in measurement.aggregate.outputs(name)
        ]
        before = self._afterwards

        def afterwards(result: Result) -> Result:
            counts = zip(*(result.columns[name] for name in judged), strict=True)
            stays = [min(each) >= wanted for each in counts]
            kept = result if all(stays) else replace(result.where(stays), totals={})
            return kept if before is None else before(kept)

        return Answer(self._question, self._account, self._part, afterwards)

    def limits(self) -> Answer:
        """The question of what this answer's bounds and limits change, to preview or to release: see `bias`."""
        return Answer(limits.of(self._question), self._account, self._part)

    def bias(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        purpose: str | None = None,
        key: str | None = None,
    ) -> Bias:
        """Estimate, for a price, what bounds and limits change: rows that persons lose, and values that are clamped.

        The ± of an answer covers its noise alone. This releases how many persons have how many rows (and are in how
        many groups), and how many rows lie how far outside each column's bounds, over all groups together; for
        discovered groups over all rows. `limits().preview(epsilon=…)` shows what it costs. Arguments are those of
        `release`.

        Guarantee: as `release`. A person moves one cell of each histogram of persons by 1, and the counts of rows
        outside the bounds as any count.
        """
        asked = self.limits()
        why = f"limits of {self._question}" if purpose is None else purpose
        result = asked.release(epsilon=epsilon, delta=delta, rho=rho, noise=noise, purpose=why, key=key)
        return Bias.of(result, self._question.unit, tuple(self._question.clamped))

    def __repr__(self) -> str:
        return f"<Answer, not released: {self._question}>"

    @property
    def _relation(self) -> Relation:
        return self._account.neighbors.relation

    def _plan(self, spend: Spend, wanted: Consistency) -> ReleasePlan:
        if wanted.total is not None:
            if self._question.keys is None:
                raise _check.fail("total", "go with groups", True, "without groups the answer is the total")
            if not any(measurement.aggregate.adds_up for measurement in self._question.asked.values()):
                raise _check.fail(
                    "total", "go with a count or a sum", str(self._question), "other columns do not add up"
                )
        budget = self._account.budget
        if self._question.discover is not None and not form_of(budget).takes_delta:
            remedy = (
                "open one with budget=dp.ApproxDP(ε, δ) and aside=, the part of δ for such releases; or list the keys"
            )
            raise _check.fail("account", "have a δ to discover keys", str(budget), remedy)
        if not form_of(budget).takes_gaussian:
            # Such a budget has no room for any other noise.
            spend = replace(spend, noise="laplace" if spend.noise == "auto" else spend.noise, pure=spend.rho is None)
        return plan_release(self._question, spend, self._relation, wanted.total)

    def _compile(self) -> list[running.Planned]:
        """The planned queries. Refuses, before the charge, what the engine cannot express or plan; looks at no data."""
        question = self._question
        require_plain_numbers(
            question.table, [name for asked in question.asked.values() for name in asked.aggregate.columns]
        )
        try:
            with within_the_stack():
                return [running.plan(query) for query in self._queries(_SHOWN_SECRET)]
        except InvalidArgument:
            raise
        except IbisError as error:
            problem = type(error).__name__
            remedy = "this engine lacks a function: choose another column or aggregate, or another engine"
        except Exception as error:
            problem = type(error).__name__  # the engine's own message is not kept
            remedy = (
                "a column has a type that it cannot compare or compute with: cast the column, in a view of the table"
            )
        raise _check.fail("question", "be one that the engine can be asked", problem, remedy)

    def _queries(self, secret: int) -> list[Any]:
        first = [] if self._question.discover is None else [self._question.candidates(secret)]
        return first + self._question.queries()

    def _discovered(self, plan: ReleasePlan) -> Question:
        """The question with its keys: the public ones, or those that the private selection releases."""
        if plan.selection is None:
            return self._question
        question = self._question
        assert question.keys is not None
        (table,) = _run([question.candidates(observation.secret(lambda: entropy.bits().integer(62)))])
        return question.with_keys(
            discovery.chosen(table, question.keys.columns, plan.selection, question.unit, self._relation)
        )

    def _all_noised(
        self, name: str, priced: PricedMeasurement, values: Sequence[Bounded | Scores | RefinedScores]
    ) -> list[Release[Any]]:
        """The releases of all groups. They share the bound of one unit, because the groups are disjoint."""
        if isinstance(priced.mechanism, Refinement):
            refined = [value for value in values if isinstance(value, RefinedScores)]
            assert priced.mechanism.event() == priced.event, "what runs is what was charged"
            return priced.mechanism.release(name, refined, self._relation)
        with observation.jointly(name):
            return [self._noised(priced, value) for value in values]

    def _noised(self, priced: PricedMeasurement, value: Bounded | Scores | RefinedScores) -> Release[Any]:
        """The release of one value, by the mechanism whose event was charged."""
        assert not isinstance(priced.mechanism, Refinement)
        if isinstance(priced.mechanism, Exponential | NoisyMax | TopK):
            assert isinstance(value, Scores)
            released = priced.mechanism.release(value, relation=self._relation)
        else:
            assert isinstance(value, Bounded)
            released = priced.mechanism.release(value, relation=self._relation)
        assert released.event == priced.event, "what runs is what was charged"
        return released

    def _total(self, priced: PricedMeasurement, values: Sequence[Any]) -> Release[Any]:
        assert isinstance(priced.measurement, Sums)
        (groups,) = values
        return self._noised(priced, priced.measurement.total(groups, self._relation))


def _run(queries: Sequence[Any]) -> list[pa.Table]:
    """The engine's answers: at most one row for each group, or for each level of a group; or all candidate keys.

    Queries that were planned before the charge are run as they were planned.
    """
    try:
        return [query.arrow() if isinstance(query, running.Planned) else running.arrow(query) for query in queries]
    except Exception as error:
        failed = EngineFailed(error)
    raise failed
