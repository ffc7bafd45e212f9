"""Every statistic of private tables passes an audit from the table to the released number, at group size 10.

The list of statistics is the registry's: one that is new is audited too, or fails here until somebody says how to ask
for it. Ten rows at ε = 0.1 are as far apart as one at ε = 1. False alarms: 1e-6 for each audit. What ten rows move as
far as they may is held against a claim of ε = 0.02 as well, which stands for a mutant with a fifth of the noise. It is
refuted by more than fifteen standard errors, of which five are needed, so this fails with a probability below 1e-9.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics.aggregates.count import Count, CountDistinct
from discreet.analytics.aggregates.outside import OutsideBounds
from discreet.analytics.aggregates.quantile import GridGap, Quantile
from discreet.analytics.aggregates.registry import AGGREGATES
from discreet.analytics.aggregates.rows_per_person import GroupsPerPerson, RowsPerPerson
from discreet.analytics.aggregates.sum import Sum
from discreet.analytics.aggregates.top_k import TopCategories
from discreet.analytics.aggregates.value_range import RangeEnd
from discreet.auditing import Pair, audit
from tests.analytics.test_neighbors import statistics

EPSILON, GROUP, SHARED = 0.1, 10, 30
LOW, HIGH = {"x": 0.0, "y": 0.0, "h": "u"}, {"x": 10.0, "y": 9.0, "h": "v"}


def table(rows):
    columns = {name: [row[name] for row in rows] for name in LOW}
    return pa.table({"id": list(range(len(rows))), **columns})


def pair():
    """Rows at one extreme, and ten more at the other."""
    common = [LOW] * SHARED
    return Pair(table(common), table([*common, *[HIGH] * GROUP]), grows=True)


def limits(**asked):
    return lambda people: people.aggregate(**asked).limits()


#: How to ask for what no method of a table is named after.
INDIRECT = {
    OutsideBounds: limits(mean=dp.analytics.mean("x", bounds=(2, 8))),
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


#: Statistics that ten rows move as far as they may: a claim of a fifth is refuted by more than fifteen standard errors.
REACHED = {Count, CountDistinct, Sum}
#: Chosen among many candidates one release at a time, which takes longer.
CHOSEN = {Quantile, TopCategories, RangeEnd, GridGap}


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGGREGATES, ids=lambda kind: kind.__name__)
def test_every_statistic_passes_an_audit_of_a_group(kind, tmp_path):
    ledger, number = dp.Ledger(tmp_path / "audits.ledger"), itertools.count()
    asked = questions(kind)
    assert asked, f"say in INDIRECT or in tests.analytics.test_neighbors.statistics how to ask for {kind.__name__}"

    def release(rows):
        account = ledger.account(f"audit{next(number)}", dp.PureDP(1.0), dp.person("id", max_rows=1))
        return asked[-1](dp.Private(rows, account=account)).release(epsilon=EPSILON)

    settings = {"access": "white_box", "distance": GROUP, "max_samples": 500 if kind in CHOSEN else 4_000}
    honest = audit(release, dp.PureDP(EPSILON), [pair()], **settings)
    assert not honest.violated, str(honest)
    if kind in REACHED:
        assert audit(release, dp.PureDP(EPSILON / 5), [pair()], **settings).violated
