"""Discovered keys: bounded for each person, above a threshold, charged first, and nothing else is revealed."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import answer, count, count_distinct, mean, median, top_k
from discreet.analytics.plan import discovery
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.events import Claimed, Composed
from discreet.queries.discovered import keys_moved
from tests.analytics.plans import ids, row, table

BUDGET = dp.ApproxDP(1e5, 0.5)
CITIES = ["bern"] * 400 + ["ulm"] * 300 + ["oslo"] * 200 + [f"rare{i}" for i in range(50)] + [None] * 90


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return dp.Ledger(tmp_path_factory.mktemp("ledger") / "discover.ledger")


@pytest.fixture
def account_with_delta(ledger, request):
    def account(unit=None, relation=dp.ADD_REMOVE, budget=BUDGET, aside=0.4):
        name = f"a{abs(hash((str(unit), relation, str(budget), aside, request.node.name)))}"
        return ledger.account(name, budget, unit or dp.rows(), relation, aside=aside)

    return account


def cities(account, values=CITIES):
    return dp.Private({"city": values, "x": [float(i % 7) for i in range(len(values))]}, account=account)


# --- what comes out -----------------------------------------------------------------------------------------------


def test_common_keys_come_out_sorted_and_rare_ones_do_not(account_with_delta):
    """A rare key comes out with a probability below 50 · 1e-9; a common one fails to with an even smaller one."""
    for values in (CITIES, CITIES[::-1]):
        found = cities(account_with_delta(), values).group_by("city", keys=dp.discover())
        result = found.aggregate(n=count(), m=mean("x", bounds=(0, 6))).release(epsilon=20.0, delta=1e-9)
        assert result.columns["city"] == ("bern", "oslo", "ulm")
        assert result.columns["n"] == pytest.approx((400, 200, 300), abs=10)


def test_a_key_of_one_row_comes_out_no_more_often_than_delta_allows(account_with_delta):
    """Of 2,000 keys with one row each, at δ = 0.05, 100 are expected; 170 has a probability below 1e-9."""
    people = cities(account_with_delta(), [f"key{i}" for i in range(2000)])
    found = people.group_by("city", keys=dp.discover()).count().release(epsilon=1.0, delta=0.05, noise="laplace")
    assert len(found.rows()) <= 170


def test_no_key_at_all_is_an_answer_too(account_with_delta):
    for values in ([], [None, None], ["once"]):
        people = dp.Private(pa.table({"city": pa.array(values, pa.string())}), account=account_with_delta())
        asked = people.group_by("city", keys=dp.discover()).aggregate(
            n=count(), t=top_k("city", k=1, categories=["a", "b"])
        )
        result = asked.release(epsilon=1.0, delta=1e-9, nonnegative=True, total=True)
        assert result.rows() == []
        assert list(result.columns) == ["city", "n", "n_error", "t", "t_count_error"]


def test_keys_may_be_of_any_plain_kind(account_with_delta):
    many = 300
    data = {
        "whole": [7, -(2**62)] * many,
        "real": [0.0, -0.0, math.nan, math.inf, 0.5, None] * (many // 3),
        "day": [dt.date(1969, 1, 1), dt.date(2020, 2, 29)] * many,
        "when": [dt.datetime(1969, 1, 1, 12), dt.datetime(2020, 2, 29)] * many,
        "yes": [True, False] * many,
        "text": ["é", "a'; DROP TABLE people; --"] * many,
    }
    people = dp.Private(data, account=account_with_delta())
    for name, wanted in {
        "whole": (-(2**62), 7),
        "real": (0.0, 0.5),
        "day": (dt.date(1969, 1, 1), dt.date(2020, 2, 29)),
        "when": (dt.datetime(1969, 1, 1, 12), dt.datetime(2020, 2, 29)),
        "yes": (False, True),
        "text": ("a'; DROP TABLE people; --", "é"),
    }.items():
        result = people.group_by(name, keys=dp.discover()).count().release(epsilon=50.0, delta=1e-9)
        assert result.columns[name] == wanted, name
        assert all(n > 80 for n in result.columns["count"]), name
    both = people.group_by("yes", "whole", keys=dp.discover()).count().release(epsilon=50.0, delta=1e-9)
    assert both.columns["whole"] == (-(2**62), 7)


def test_a_value_that_a_driver_fails_on_is_no_key_and_breaks_nothing(account_with_delta):
    far = pa.table(
        {
            "day": pa.array([10**6, -(10**6), 0] * 200, pa.date32()),
            "when": pa.array([2**61, -(2**61), 0] * 200, pa.timestamp("us")),
            "text": ["a\0b", "b", "c"] * 200,
            "big": pa.array([2**64 - 1, 5, 6] * 200, pa.uint64()),
            "third": [0.1 + 0.2, 1e-250, 5e-324] * 200,
        }
    )
    people = dp.Private(far, account=account_with_delta())
    wanted = {"day": 1, "when": 1, "text": 2, "big": 2, "third": 2}
    for name, many in wanted.items():
        result = people.group_by(name, keys=dp.discover()).count().release(epsilon=50.0, delta=1e-9)
        assert len(result.columns[name]) == many, name
        assert all(n > 150 for n in result.columns["count"]), name


def test_only_the_rows_that_are_left_have_keys(account_with_delta):
    people = cities(account_with_delta())
    some = people.where(people.city != "bern").group_by("city", keys=dp.discover())
    assert some.count().release(epsilon=50.0, delta=1e-9).columns["city"] == ("oslo", "ulm")


def test_a_least_count_is_kept_and_raises_the_threshold(account_with_delta):
    people = cities(account_with_delta())
    one, two = (people.group_by("city", keys=dp.discover(least=least)).count() for least in (1, 250))
    assert two.release(epsilon=50.0, delta=1e-9).columns["city"] == ("bern", "ulm")
    assert "250" in two.sql
    assert ">= 250" not in one.sql
    thresholds = [a.preview(epsilon=1.0, delta=1e-6).keys for a in (one, two)]
    assert thresholds[0] != thresholds[1]


# --- each unit is bounded -----------------------------------------------------------------------------------------

UNITS = [dp.person("id", max_rows=5, max_groups=2), dp.person("id", max_rows=1), dp.person("id", max_rows=3)]
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = [(1.0, 1, g, k) for g in ("a", "b", "c", "é", "") for k in (0.0, 1.0, 2.0)]


def counted(data, account, columns, secret=99):
    asked = dp.Private(table(data), account=account).group_by(*columns, keys=dp.discover()).count()
    found = answer._run([asked._question.candidates(secret)])[0].to_pylist()
    assert all(value is not None for one in found for value in one.values())
    return {tuple(one[f"g{i}"] for i in range(len(columns))): one["units"] for one in found}


def assert_within(one, two, moved):
    changes = [abs(one.get(key, 0) - two.get(key, 0)) for key in {*one, *two}]
    assert sum(change > 0 for change in changes) <= moved
    assert max(changes, default=0) <= 1


def check(account_of, unit, rows, theirs, others, columns):
    absent, present, swapped = (
        counted([*rows, *(("new", *one) for one in extra)], account_of(unit), columns) for extra in ([], theirs, others)
    )
    assert_within(absent, present, keys_moved(unit, dp.ADD_REMOVE))
    assert_within(present, swapped, keys_moved(unit, dp.REPLACE_ONE))


@given(
    unit=st.sampled_from(UNITS),
    rows=st.lists(st.tuples(ids, row).map(lambda both: (both[0], *both[1])), max_size=8),
    theirs=st.lists(row, max_size=8),
    others=st.lists(row, max_size=8),
    columns=st.sampled_from([("g",), ("k",), ("g", "k")]),
)
@few
def test_one_person_moves_no_more_keys_than_declared(account_of, unit, rows, theirs, others, columns):
    check(account_of, unit, rows, theirs, others, columns)


def check_many(account_of):
    for unit in UNITS:
        check(account_of, unit, [("p", 1.0, 1, "a", 0.0)] * 3, MANY * 2, MANY[::-1], ("g", "k"))


def test_one_person_with_many_keys_counts_in_a_few(account_of):
    check_many(account_of)


def no_limit(monkeypatch):
    monkeypatch.setattr(discovery, "_limited", lambda pairs, *_: pairs)


def limit_by_rows(monkeypatch):
    monkeypatch.setattr(discovery, "keys_moved", lambda unit, relation: unit.max_rows)


def rows_for_persons(monkeypatch):
    honest = discovery.narrow

    class Undistinct:
        def __init__(self, rows):
            self._rows = rows

        def distinct(self):
            return self._rows

    monkeypatch.setattr(discovery, "narrow", lambda *args: Undistinct(honest(*args)))


@pytest.mark.parametrize("mutant", [no_limit, limit_by_rows, rows_for_persons], ids=lambda f: f.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch, account_of):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_many(account_of)


def test_which_keys_of_a_person_count_depends_on_the_secret_alone(account_of):
    data = [("p", *one) for one in MANY]
    one, two, three = (
        counted(rows, account_of(UNITS[0]), ("g", "k"), s) for rows, s in ((data, 1), (data[::-1], 1), (data, 2))
    )
    assert one == two
    assert len(one) == len(three) == 2
    others = [counted(data, account_of(UNITS[0]), ("g", "k"), secret) for secret in range(3, 9)]
    assert any(set(other) != set(one) for other in others)


# --- charged first ------------------------------------------------------------------------------------------------


def check_charge_first(people, monkeypatch):
    steps = []
    run, spend = answer._run, people._spec.account.spend
    monkeypatch.setattr(answer, "_run", lambda *a: steps.append("query") or run(*a))
    monkeypatch.setattr(
        type(people._spec.account), "spend", lambda self, *a, **k: (steps.append("charge"), spend(*a, **k))[1]
    )
    asked = people.group_by("city", keys=dp.discover()).count()
    asked.release(epsilon=5.0, delta=1e-9)
    assert steps == ["charge", "query", "query"]
    with pytest.raises(BudgetExceeded):
        asked.release(epsilon=1e9, delta=1e-9)
    assert steps == ["charge", "query", "query", "charge"]


def test_the_charge_comes_before_the_search(account_with_delta, monkeypatch):
    check_charge_first(cities(account_with_delta()), monkeypatch)


def test_the_mutant_that_searches_first_is_caught(account_with_delta, monkeypatch):
    honest = answer.Answer.release

    def early(self, **rest):
        answer._run([self._question.candidates(0)])
        return honest(self, **rest)

    monkeypatch.setattr(answer.Answer, "release", early)
    with pytest.raises(AssertionError):
        check_charge_first(cities(account_with_delta()), monkeypatch)


SPENDS = ({"epsilon": 9.0}, {"epsilon": 9.0, "noise": "gaussian"}, {"rho": 3.0})


@pytest.mark.parametrize(("relation", "spend"), list(zip(dp.Relation, SPENDS, strict=True)), ids=str)
@pytest.mark.parametrize("unit", [dp.rows(), UNITS[0]], ids=str)
def test_what_is_charged_is_what_was_previewed(account_with_delta, unit, relation, spend):
    """Under every relation, however few keys come out."""
    account = account_with_delta(unit, relation)
    data = [(f"p{i}", 1.0, i, "a", 0.0) for i in range(400)]
    people = dp.Private(table(data), account=account).group_by("g", keys=dp.discover())
    asked = people.aggregate(n=count(), m=mean("x", bounds=(0, 2)), h=median("n", bounds=(0, 400)))
    preview = asked.preview(**spend, delta=1e-6)
    result = asked.release(**spend, delta=1e-6)
    assert result.event == preview.event
    assert result.columns["g"] == ("a",)
    assert isinstance(result.event, Composed)
    claimed = [part for part in result.event.walk() if isinstance(part, Claimed)]
    assert [one.delta for one in claimed] == [5e-7 if "noise" in spend else 1e-6]
    assert "95% of the time" in str(preview)
    assert preview.groups is None


def test_gaussian_noise_is_taken_where_a_person_has_many_keys(account_with_delta):
    unit = dp.person("id", max_rows=100)
    people = dp.Private(table([]), account=account_with_delta(unit)).group_by("g", keys=dp.discover())
    notes = {
        noise: people.count_distinct().preview(epsilon=1.0, delta=1e-6, noise=noise)
        for noise in ("auto", "laplace", "gaussian")
    }
    assert notes["auto"].event == notes["gaussian"].event
    assert notes["auto"].noise.startswith("Gaussian; Laplace noise would be")
    single = dp.Private(table([]), account=account_with_delta()).group_by("g", keys=dp.discover()).count()
    assert single.preview(epsilon=1.0, delta=1e-6).noise.startswith("Laplace; Gaussian noise would be")


def test_persons_are_counted_among_discovered_keys(account_with_delta):
    unit = dp.person("id", max_rows=8, max_groups=2)
    data = [(f"p{i // 4}", 1.0, i, "ab"[i % 2], 0.0) for i in range(1600)]
    people = dp.Private(table(data), account=account_with_delta(unit)).group_by("g", keys=dp.discover())
    result = people.aggregate(p=count_distinct(), n=count()).release(epsilon=50.0, delta=1e-9)
    assert result.columns["g"] == ("a", "b")
    assert result.columns["p"] == pytest.approx((400, 400), abs=25)


# --- in SQL, and what is refused ----------------------------------------------------------------------------------


def test_sql_discovers_keys_where_a_delta_is_given(account_with_delta):
    people = cities(account_with_delta())
    query = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"
    assert people.sql(query, epsilon=20.0, delta=1e-9).columns["city"] == ("bern", "oslo", "ulm")
    assert people.sql(query, epsilon=20.0, delta=1e-9, keys=["ulm"]).columns["city"] == ("ulm",)
    with pytest.raises(InvalidArgument, match=r"dp\.discover"):
        people.sql(query, epsilon=20.0)
    binned = people.bin("x", [0, 3, 6])
    result = binned.sql("SELECT x_bin, COUNT(*) FROM people GROUP BY x_bin", epsilon=20.0, delta=1e-9)
    assert result.columns["x_bin"] == (0.0, 3.0)


def test_an_account_without_a_delta_is_told_what_it_needs(account_of, account_with_delta):
    pure = cities(account_of()).group_by("city", keys=dp.discover()).count()
    with pytest.raises(InvalidArgument, match="aside"):
        pure.preview(epsilon=1.0, delta=1e-6)
    closed = cities(account_with_delta(aside=0.0)).group_by("city", keys=dp.discover()).count()
    assert not closed.preview(epsilon=1.0, delta=1e-6).affordable
    with pytest.raises(BudgetExceeded, match="set aside"):
        closed.release(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda p: dp.discover(share=0), "share"),
        (lambda p: dp.discover(share=math.nan), "share"),
        (lambda p: dp.discover(least=0), "least"),
        (lambda p: dp.discover(least=2.5), "least"),
        (lambda p: dp.discover(least=True), "least"),
        (lambda p: p.group_by(keys=dp.discover()), "column"),
        (lambda p: p.group_by("no", keys=dp.discover()), "column"),
        (lambda p: p.group_by("g", "g", keys=dp.discover()), "once"),
        (lambda p: p.group_by("g", keys=dp.discover), "list"),
        (lambda p: p.group_by("g", keys=dp.discover()).histogram("k", categories=[1]), "marginal"),
        (lambda p: p.group_by("g", keys=dp.discover()).count().release(epsilon=1.0), "delta"),
        (lambda p: p.group_by("g", keys=dp.discover()).count().release(rho=1.0), "delta"),
        (lambda p: p.group_by("g", keys=dp.discover()).count().release(epsilon=1.0, delta=0), "delta"),
        (lambda p: p.group_by("g", keys=dp.discover()).count().release(epsilon=1.0, delta=1), "delta"),
        (lambda p: p.group_by("g", keys=dp.discover()).count().release(epsilon=1.0, delta=math.nan), "delta"),
    ],
)
def test_what_cannot_be_discovered_is_refused(account_with_delta, refused, words):
    people = dp.Private(table([]), account=account_with_delta())
    with pytest.raises(InvalidArgument, match=words):
        refused(people)


def test_a_column_without_plain_keys_is_refused(account_with_delta):
    zoned = pa.table({"t": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us", "UTC"))})
    with pytest.raises(InvalidArgument, match="plain column"):
        dp.Private(zoned, account=account_with_delta()).group_by("t", keys=dp.discover())


def test_two_databases_discover_their_own_keys(tmp_path):
    account = dp.Ledger(tmp_path / "keys.ledger").account("keys", dp.ApproxDP(1e5, 0.5), aside=0.4)
    answers = [
        dp.Private({"city": [name] * 500}, account=account).group_by("city", keys=dp.discover()).count()
        for name in ("bern", "ulm")
    ]
    found = [one.release(epsilon=20.0, delta=1e-9).columns["city"] for one in answers]
    assert found == [("bern",), ("ulm",)]
