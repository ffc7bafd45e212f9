"""Every statistic of private tables passes an audit from the table to the released number, at group size 10.

The list of statistics is the registry's: one that is new is audited too, or fails here until somebody says how to ask
for it. False alarms: 1e-6 for each audit. Ten rows at ε = 0.1 are as far apart as one at ε = 1. What is released costs
ε = 0.1 and is held against a claim of ε = 0.02 as well, which stands for a mutant with a fifth of the noise: it is
refuted for every statistic, with a probability of failing to do so below 1e-6.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics.aggregates.outside import Outside
from discreet.analytics.aggregates.quantile import GridGap
from discreet.analytics.aggregates.registry import AGGREGATES
from discreet.analytics.aggregates.rows_per_person import GroupsPerPerson, RowsPerPerson
from discreet.analytics.aggregates.value_range import RangeEnd
from discreet.auditing import Pair, audit
from tests.analytics.test_neighbors import statistics

EPSILON, GROUP, SHARED = 0.1, 10, 30
LOW, HIGH = {"x": 0.0, "y": 0.0, "h": "u"}, {"x": 10.0, "y": 9.0, "h": "v"}


def table(rows):
    columns = {name: [row[name] for row in rows] for name in LOW}
    return pa.table({"id": list(range(len(rows))), **columns})


def pairs():
    """Rows at one extreme, and ten more at either of them."""
    made = []
    for base in (LOW, HIGH):
        for record in (HIGH, LOW):
            common = [base] * SHARED
            made.append(Pair(table(common), table([*common, *[record] * GROUP]), grows=True))
    return made


def limits(**asked):
    return lambda people: people.aggregate(**asked).limits()


#: How to ask for what no method of a table is named after.
INDIRECT = {
    Outside: limits(mean=dp.analytics.mean("x", bounds=(2, 8))),
    GridGap: limits(median=dp.analytics.median("x", bounds=(2, 8))),
    RangeEnd: lambda people: people.find_bounds("x"),
    RowsPerPerson: limits(count=dp.analytics.count()),
    GroupsPerPerson: lambda people: people.group_by("h", keys=["u", "v"]).count().limits(),
}


def questions(kind):
    """Questions to a table that use a statistic of this kind."""
    if kind in INDIRECT:
        return [INDIRECT[kind]]
    every = statistics((0, 10), [], True)
    return [lambda people, one=one: people.aggregate(asked=one) for one in every.values() if type(one) is kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGGREGATES, ids=lambda kind: kind.__name__)
def test_every_statistic_passes_an_audit_of_a_group(kind, tmp_path):
    ledger = dp.Ledger(tmp_path / "audits.ledger")
    accounts = 0
    asked = questions(kind)
    assert asked, f"say in INDIRECT or in tests.analytics.test_neighbors.statistics how to ask for {kind.__name__}"
    for question in asked[:1]:

        def release(rows, question=question):
            nonlocal accounts
            accounts += 1
            unit = dp.person("id", max_rows=1)
            account = ledger.account(f"audit{accounts}", dp.PureDP(1.0), unit)
            return question(dp.Private(rows, account=account)).release(epsilon=EPSILON)

        honest = audit(release, dp.PureDP(EPSILON), pairs(), access="white_box", distance=GROUP, max_samples=4_000)
        assert not honest.violated, str(honest)
        print(kind.__name__, honest.epsilon_lower, honest)
