"""Each expression gives the same value on every engine, whatever a row holds, and none of them fails."""

from __future__ import annotations

import datetime as dt
import math

import ibis
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import case, coalesce, greatest, least
from discreet.analytics.engine import running
from discreet.errors import InvalidArgument
from tests.analytics.engines import duckdb
from tests.analytics.plans import exact

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)
X = [1.5, -2.5, 0.0, -0.0, None, math.nan, math.inf, -math.inf, 1e308, 5e-324]
N = [7, -7, 0, 2**63 - 1, -(2**63), None, 1, 2, 3, 4]
S = ["Ab", "", None, "  x\t", "é\u0301", "a%b", "12.5", "-3", "2024-02-29", "2023-02-29"]
T = ["12", "1e5", "0x1", "12\n", "\u0661\u0662", "999999999999999", "1_0", "+5", "NaN", "-0.5"]
B = [True, False, None, True, False, None, True, False, None, True]
D = [dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]
D += [dt.date(2021, 1, 3), dt.date(2000, 3, 1), dt.date(1900, 2, 28), dt.date(2023, 12, 31), dt.date(1970, 1, 1)]
E = [dt.date(2024, 3, 1), dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(1, 1, 1), dt.date(1, 1, 1)]
E += [None, dt.date(1999, 3, 1), dt.date(1900, 3, 1), dt.date(2024, 1, 1), dt.date(1970, 1, 1)]
W = [dt.datetime(2024, 2, 29, 23, 59, 59), dt.datetime(1969, 12, 31, 1, 30), None, dt.datetime(1970, 1, 1)] + [None] * 6
TABLE = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "x": pa.array(X, pa.float64()),
        "n": pa.array(N, pa.int64()),
        "s": pa.array(S, pa.string()),
        "t": pa.array(T, pa.string()),
        "b": pa.array(B, pa.bool_()),
        "d": pa.array(D, pa.date32()),
        "e": pa.array(E, pa.date32()),
        "w": pa.array(W, pa.timestamp("us")),
    }
)
BIG = 1e60
NUMBERS = {
    "+": (lambda p: p.x + 1, [2.5, -1.5, 1, 1, None, None, BIG, -BIG, BIG, 1]),
    "x - x": (lambda p: p.x - p.x, [0, 0, 0, 0, None, None, 0, 0, 0, 0]),
    "x * x": (lambda p: p.x * p.x, [2.25, 6.25, 0, 0, None, None, BIG**2, BIG**2, BIG**2, 0]),
    "n * n": (lambda p: p.n * p.n, [49, 49, 0, 2.0**126, 2.0**126, None, 1, 4, 9, 16]),
    "1 / x": (lambda p: 1 / p.x, [1 / 1.5, -0.4, None, None, None, None, 1e-60, -1e-60, 1e-60, None]),
    "n / n": (lambda p: p.n / p.n, [1, 1, None, 1, 1, None, 1, 1, 1, 1]),
    "n % 3 as in Python": (lambda p: p.n.clip(-9, 9) % 3, [1, 2, 0, 0, 0, None, 1, 2, 0, 1]),
    "n % 0": (lambda p: p.n % 0, [None] * 10),
    "x % 1 beyond 2^53": (lambda p: p.x % 1, [0.5, 0.5, 0, 0, None, None, None, None, None, 0]),
    "n // 2": (lambda p: p.n.clip(-9, 9) // 2, [3, -4, 0, 4, -5, None, 0, 1, 1, 2]),
    "floor": (lambda p: p.x.floor(), [1, -3, 0, 0, None, None, 2.0**52, -(2.0**52), 2.0**52, 0]),
    "ceil": (lambda p: p.x.ceil(), [2, -2, 0, 0, None, None, 2.0**52, -(2.0**52), 2.0**52, 0]),
    "trunc": (lambda p: p.x.trunc(), [1, -2, 0, 0, None, None, 2.0**52, -(2.0**52), 2.0**52, 0]),
    "round": (lambda p: p.x.round(), [2, -3, 0, 0, None, None, 2.0**52, -(2.0**52), 2.0**52, 0]),
    "round to tens": (lambda p: p.n.clip(-9, 9).round(-1), [10, -10, 0, 10, -10, None, 0, 0, 0, 0]),
    "sqrt": (lambda p: p.x.sqrt(), [1.5**0.5, None, 0, 0, None, None, 1e30, None, 1e30, 0]),
    "sign": (lambda p: p.x.sign(), [1, -1, 0, 0, None, None, 1, -1, 1, 1]),
    "exp": (lambda p: (p.x * 1000).exp() > 0, [False, False, True, True, False, False, False, False, False, True]),
    "ln": (lambda p: p.x.ln().is_null(), [False, True, True, True, True, True, False, True, False, True]),
    "abs": (lambda p: abs(p.n), [7, 7, 0, 2.0**63, 2.0**63, None, 1, 2, 3, 4]),
    "**": (lambda p: p.x.clip(-2, 2) ** 3, [3.375, -8, 0, 0, None, None, 8, -8, 8, 0]),
    "greatest": (lambda p: greatest(p.x.clip(-9, 9), 1), [1.5, 1, 1, 1, 1, 1, 9, 1, 9, 1]),
    "least": (lambda p: least(p.n, 2, 5), [2, -7, 0, 2, -(2.0**63), 2, 1, 2, 2, 2]),
    "coalesce": (lambda p: coalesce(p.n, 0) < 0, [False, True, False, False, True] + [False] * 5),
    "nested": (lambda p: (p.x * p.x * p.n + p.n) / (p.x - 1.5), [None, 12.6875, 0, ...] + [...] * 6),
    "case": (
        lambda p: case((p.n > 0, "up"), (p.n < 0, "down"), otherwise="level"),
        ["up", "down", "level", "up", "down", "level", "up", "up", "up", "up"],
    ),
    "a boolean as a number": (lambda p: p.b.cast("number") + 0, [1, 0, None, 1, 0, None, 1, 0, None, 1]),
    "an integer": (lambda p: p.x.cast("integer"), [2, -3, 0, 0, None, None, None, None, None, 0]),
    "a number as a boolean": (lambda p: p.n.cast("boolean"), [True, True, False, True, True, None] + [True] * 4),
}
TEXTS = {
    "lower": (lambda p: p.s.lower(), ["ab", *S[1:]]),
    "upper": (lambda p: p.s.upper(), ["AB", "", None, "  X\t", "é\u0301", "A%B", *S[6:]]),
    "strip": (lambda p: p.s.strip(), ["Ab", "", None, "x", *S[4:]]),
    "length": (lambda p: p.s.length(), [None if s is None else len(s) for s in S]),
    "substring": (lambda p: p.s.substring(1, 2), [None if s is None else s[1:3] for s in S]),
    "tail": (lambda p: p.s.substring(1), [None if s is None else s[1:] for s in S]),
    "right": (lambda p: p.s.right(2), [None if s is None else s[-2:] for s in S]),
    "concat": (lambda p: p.s.concat("-", p.s), [None if s is None else f"{s}-{s}" for s in S]),
    "like": (lambda p: p.s.like("%b"), [True, False, None, False, False, True] + [False] * 4),
    "like in any case": (lambda p: p.s.like("a_", ignore_case=True), [True, False, None] + [False] * 7),
    "contains %": (lambda p: p.s.contains("%"), [None if s is None else "%" in s for s in S]),
    "startswith": (lambda p: p.s.startswith("2"), [None if s is None else s.startswith("2") for s in S]),
    "endswith": (lambda p: p.s.endswith("b"), [None if s is None else s.endswith("b") for s in S]),
    "replace": (lambda p: p.s.replace("2", "zwei"), [None if s is None else s.replace("2", "zwei") for s in S]),
    "text as a number": (lambda p: p.t.cast("number"), [12, *[None] * 4, 999999999999999, *[None] * 3, -0.5]),
    "text as an integer": (lambda p: p.s.cast("integer"), [*[None] * 6, 13, -3, None, None]),
    "text as a date": (lambda p: p.s.cast("date"), [*[None] * 8, dt.date(2024, 2, 29), None]),
    "an integer as text": (lambda p: p.n.cast("text"), [None if n is None else str(n) for n in N]),
    "a boolean as text": (lambda p: p.b.cast("text"), [None if b is None else str(b).lower() for b in B]),
    "a date as text": (lambda p: p.d.cast("text"), [None if d is None else d.isoformat() for d in D]),
}


def each(values, function):
    return [None if value is None else function(value) for value in values]


DATES = {
    "year": (lambda p: p.d.year(), each(D, lambda d: d.year)),
    "quarter": (lambda p: p.d.quarter(), each(D, lambda d: (d.month + 2) // 3)),
    "month": (lambda p: p.d.month(), each(D, lambda d: d.month)),
    "week": (lambda p: p.d.week(), each(D, lambda d: d.isocalendar().week)),
    "day": (lambda p: p.d.day(), each(D, lambda d: d.day)),
    "weekday": (lambda p: p.d.weekday(), each(D, lambda d: d.weekday())),
    "hour": (lambda p: p.w.hour(), each(W, lambda w: w.hour)),
    "minute": (lambda p: p.w.minute(), each(W, lambda w: w.minute)),
    "the date of a time": (lambda p: p.w.date(), each(W, lambda w: w.date())),
    "a month": (lambda p: p.d.truncate("month"), each(D, lambda d: d.replace(day=1))),
    "a quarter": (
        lambda p: p.d.truncate("quarter"),
        each(D, lambda d: d.replace(month=d.month - (d.month - 1) % 3, day=1)),
    ),
    "a year": (lambda p: p.d.truncate("year"), each(D, lambda d: d.replace(month=1, day=1))),
    "a week": (lambda p: p.d.truncate("week"), each(D, lambda d: d - dt.timedelta(days=d.weekday()))),
    "the month of a time": (lambda p: p.w.truncate("month"), each(W, lambda w: w.date().replace(day=1))),
    "days": (
        lambda p: p.d.days_since(p.e),
        [None if None in (d, e) else (d - e).days for d, e in zip(D, E, strict=True)],
    ),
    "d - e": (lambda p: p.d - p.e, [None if None in (d, e) else (d - e).days for d, e in zip(D, E, strict=True)]),
    "strftime": (lambda p: p.d.strftime("%Y/%m of %d"), each(D, lambda d: f"{d.year:04}/{d:%m} of {d:%d}")),
    "bins of dates": (
        lambda p: p.d.bin([dt.date(1900, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]),
        [
            None if d is None or not 1900 <= d.year <= 2024 else dt.date(1900 if d.year < 1970 else 1970, 1, 1)
            for d in D
        ],
    ),
    "a date as text in a comparison": (lambda p: p.d >= "1970-01-01", [bool(d and d.year >= 1970) for d in D]),
}


def same(found, wanted):
    if wanted is ...:
        return True
    if isinstance(wanted, float) and found is not None:
        return found == pytest.approx(wanted, rel=1e-12)
    return found == wanted


@pytest.mark.parametrize("family", [NUMBERS, TEXTS, DATES], ids=["numbers", "text", "dates"])
def test_an_expression_has_the_same_value_on_every_engine(engine, account, family):
    table = engine(TABLE)
    people = dp.Private(table, account=account)
    engine_table = people._spec.table
    columns = {f"e{i}": build(people).to_ibis(engine_table) for i, (build, _) in enumerate(family.values())}
    found = running.arrow(engine_table.select("id", **columns).order_by("id"))
    for i, (words, (_, wanted)) in enumerate(family.items()):
        values = found[f"e{i}"].to_pylist()
        assert all(same(a, b) for a, b in zip(values, wanted, strict=True)), (words, values, wanted)


def test_dates_beyond_the_calendar_are_missing(account):
    with duckdb() as load:
        connection = load(TABLE).get_backend()
        connection.con.execute(
            "CREATE TABLE odd AS SELECT * FROM (VALUES ('infinity'::DATE), ('-infinity'::DATE), "
            "('0044-03-15 (BC)'::DATE), ('12000-01-01'::DATE), ('2024-05-05'::DATE), (NULL)) AS t(d)"
        )
        people = dp.Private(connection.table("odd"), account=account)
        for build in (lambda p: p.d.year(), lambda p: p.d.truncate("month"), lambda p: p.d - dt.date(2024, 1, 1)):
            (kept,) = exact(people.where(~build(people).is_null()).count())["count"]
            assert kept.values.tolist() == 1


def test_postgres_infinity_is_missing(account):
    from tests.analytics.engines import postgres

    with postgres() as load:
        connection = load(TABLE).get_backend()
        with connection.begin() as cursor:
            cursor.execute(
                "CREATE TABLE odd AS SELECT * FROM (VALUES ('infinity'::date, 'infinity'::timestamptz), "
                "('-infinity', '-infinity'), ('4000-03-15 BC', NULL), ('12000-01-01', '12000-01-01'), "
                "('2024-05-05', '2024-12-31 23:30+00'), (NULL, NULL)) AS t(d, at)"
            )
        people = dp.Private(connection.table("odd"), account=account)
        new_year = people.at.in_zone("Europe/Paris").year() == 2025
        for condition in (
            ~people.d.year().is_null(),
            ~people.d.truncate("week").is_null(),
            ~(people.d - dt.date(2024, 1, 1)).is_null(),
            new_year,
            people.d.strftime("%Y") == "2024",
        ):
            result = people.where(condition).count().release(epsilon=1000.0)
            assert result.value == 1


def test_a_zone_must_be_stated(account):
    at = [dt.datetime(2024, 12, 31, 23, 30, tzinfo=dt.UTC), None]
    people = dp.Private(pa.table({"at": pa.array(at, pa.timestamp("us", tz="UTC"))}), account=account)
    with pytest.raises(InvalidArgument, match="in_zone"):
        people.where(people.at.year() == 2024)
    with pytest.raises(InvalidArgument, match="time zone"):
        people.at.in_zone("Mars/Olympus")
    counted = [people.where(people.at.in_zone(zone).year() == 2025).count() for zone in ("Europe/Paris", "UTC")]
    assert [exact(answer)["count"][0].values.tolist() for answer in counted] == [1, 0]


def test_keys_of_a_range_of_dates():
    months = dp.months("2023-11", "2024-02")
    assert months == [dt.date(2023, 11, 1), dt.date(2023, 12, 1), dt.date(2024, 1, 1), dt.date(2024, 2, 1)]
    assert len(dp.days("2024-01-01", "2024-12-31")) == 366
    assert dp.weeks("2024-12-31", "2025-01-06") == [dt.date(2024, 12, 30), dt.date(2025, 1, 6)]
    assert dp.quarters("2023-05", "2023-12") == [dt.date(2023, 4, 1), dt.date(2023, 7, 1), dt.date(2023, 10, 1)]
    assert dp.years("1969", dt.datetime(1971, 5, 5)) == [dt.date(year, 1, 1) for year in (1969, 1970, 1971)]
    for first, last in (("2024-02", "2024-01"), ("2024-13", "2025-01"), ("soon", "2024"), (2024, 2025)):
        with pytest.raises(InvalidArgument, match=r"date|before"):
            dp.months(first, last)


def test_month_by_month(account):
    people = dp.Private(TABLE, account=account)
    monthly = people.mutate(month=people.d.truncate("month")).group_by("month", keys=dp.months("2023-12", "2024-02"))
    (found,) = exact(monthly.count())["count"]
    assert found.values.tolist() == [1, 0, 1]


def test_keys_that_an_expression_has_itself_need_not_be_listed(account):
    people = dp.Private(TABLE, account=account)
    named = people.mutate(
        kind=case((people.n > 0, "up"), otherwise="other"), up=people.n > 0, quarter=people.d.quarter()
    )
    assert exact(named.group_by("kind").count())["count"][0].values.tolist() == [6, 4]
    assert exact(named.group_by("up").count())["count"][0].values.tolist() == [4, 6]
    assert exact(named.group_by("quarter").count())["count"][0].values.tolist() == [6, 0, 0, 3]


def test_bounds_follow_from_the_bounds_of_columns(account):
    people = dp.Private(TABLE, account=account, bounds={"x": (0, 10), "n": (1, 5)})
    named = people.mutate(
        a=people.x * 2 - people.n,
        b=people.x / people.n,
        c=case((people.n > 2, people.x), otherwise=-1),
        e=people.n / people.x,
        f=abs(people.x - 4),
        g=(people.n > 2).cast("integer"),
        h=(people.n / 2).cast("integer"),
        i=(people.x * 10 - 1).sqrt(),
        j=people.n.ln(),
        k=people.x.ln(),
    )
    bounds = named._spec.bounds
    assert {name: bounds[name] for name in "abcf"} == {"a": (-5, 19), "b": (0, 10), "c": (-1, 10), "f": (0, 6)}
    assert {name: bounds[name] for name in "ghij"} == {
        "g": (0, 1),
        "h": (0, 3),
        "i": (0, 99**0.5),
        "j": (0, math.log(5)),
    }
    assert not {"e", "k"} & bounds.keys()  # they divide by 0, or take its logarithm


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda p: p.where(p.s + 1 > 2), "numbers"),
        (lambda p: p.where(p.n.lower() == "a"), "text"),
        (lambda p: p.where(p.n.year() == 1), "date"),
        (lambda p: p.where(p.d.hour() == 1), "time"),
        (lambda p: p.mutate(k=p.d.truncate("hour")), "time"),
        (lambda p: p.d.truncate("decade"), "unit"),
        (lambda p: p.s.like("a\\%"), "backslash"),
        (lambda p: p.s.substring(-1), "start"),
        (lambda p: p.x.round(0.5), "digits"),
        (lambda p: p.x**0.5, "exponent"),
        (lambda p: p.x**40, "exponent"),
        (lambda p: p.x.cast("money"), "kind"),
        (lambda p: p.mutate(k=p.x.cast("text")), "differently"),
        (lambda p: case(), "pairs"),
        (lambda p: case((True, 1)), "conditions"),
        (lambda p: p.mutate(k=case((p.n > 1, "a"), otherwise=2)), "one kind"),
        (lambda p: p.d.strftime("%B"), "pattern"),
        (lambda p: p.d.in_zone("UTC").year(), "zone"),
        (lambda p: p.n.bin([1, dt.date(2024, 1, 1)]), "edges|real"),
        (lambda p: p.d.bin([dt.date(2024, 1, 1)]), "edges"),
    ],
)
def test_what_no_engine_can_do_is_refused_before_a_row_is_read(account, refused, words):
    people = dp.Private(TABLE, account=account)
    with pytest.raises(InvalidArgument, match=words):
        people.mutate(k=refused(people))


def test_sql_stays_short_however_deep_arithmetic_is(account):
    people = dp.Private(TABLE, account=account)
    deep = people.n
    for _ in range(6):
        deep = deep * 2 + 1
    assert len(ibis.to_sql(people.mutate(k=deep)._spec.table)) < 10_000


@pytest.mark.parametrize("grow", [lambda value: value.concat(value), lambda value: value.replace("e", "e" * 900)])
def test_one_rows_text_never_grows_until_the_engine_fails(account, grow):
    """The failure would tell, for next to no budget, that a row of this name is there."""
    people = dp.Private(pa.table({"name": ["Ann"] * 9 + ["Zebedee"]}), account=account)
    grown = people.where(people.name == "Zebedee")
    for _ in range(13):
        grown = grown.mutate(name=grow(grown.name))
    (found,) = exact(grown.where(grown.name.length().between(5_000, 10_000)).count())["count"]
    assert found.values == 1


def test_an_expression_whose_sql_would_never_end_is_refused(account):
    people = dp.Private(pa.table({"x": [1.0, 2.0]}), account=account)
    nested = people.x
    for _ in range(6):
        nested = nested % 3
    with pytest.raises(InvalidArgument, match="nest fewer functions"):
        people.where(nested > 1)
    stepwise = people.mutate(x=people.x % 3)
    stepwise = stepwise.mutate(x=stepwise.x % 3)
    with pytest.raises(InvalidArgument, match="nest fewer functions"):
        stepwise.mutate(x=stepwise.x % 3)
