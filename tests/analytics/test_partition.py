"""Partitions: what is charged to disjoint parts, who counts in which, and what the ledger remembers of it."""

from __future__ import annotations

import ibis
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import count
from discreet.analytics.table import partition
from discreet.analytics.table import public as public_tables
from discreet.analytics.table.public import Public
from discreet.errors import BudgetExceeded, InvalidArgument, TermsDiffer
from tests.analytics import engines
from tests.analytics.plans import exact

MONTHS = ["jan", "feb", "mar", "apr"]
VISITS = pa.table(
    {
        "who": [1, 1, 1, 2, 2, 3, None],
        "month": ["jan", "feb", "mar", "feb", "feb", "apr", "jan"],
        "cost": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    }
)
few = settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spent(account):
    return account.budget.epsilon - account.remaining().epsilon


def test_rows_pay_for_the_dearest_part(account_of):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    months = dp.Private(VISITS, account=account).partition("month", keys=MONTHS)
    assert list(months) == MONTHS
    for month, table in months.items():
        table.count().release(epsilon=0.25)
        assert spent(account) == 0.25, month
    months["feb"].count().release(epsilon=0.25)
    assert spent(account) == 0.5
    dp.Private(VISITS, account=account).count().release(epsilon=0.125)
    assert spent(account) == 0.625
    assert "month: feb" in str(account.statement())
    with pytest.raises(BudgetExceeded):
        months["feb"].count().release(epsilon=0.5)
    assert months["jan"].count().preview(epsilon=0.5).affordable
    assert months["jan"].count().preview(epsilon=0.5).remaining.epsilon == 0.625
    months["jan"].count().release(epsilon=0.5)
    assert spent(account) == 0.875


def test_replaced_rows_pay_for_the_two_dearest_parts(account_of):
    account = account_of(relation=dp.REPLACE_ONE, budget=dp.PureDP(1.0), fresh=True)
    months = dp.Private(VISITS, account=account).partition("month", keys=MONTHS)
    for month, total in zip(MONTHS, [0.25, 0.5, 0.5, 0.5], strict=True):
        months[month].count().release(epsilon=0.25)
        assert spent(account) == total


@pytest.mark.parametrize(("relation", "counted"), [(dp.ADD_REMOVE, 2), (dp.REPLACE_ONE, 4), (dp.ZERO_OUT, 2)])
def test_persons_pay_for_as_many_parts_as_they_count_in(account_of, relation, counted):
    unit = dp.person("who", max_rows=1)
    account = account_of(unit, relation, budget=dp.PureDP(2.0), fresh=True)
    months = dp.Private(VISITS, account=account).partition("month", keys=MONTHS, max_parts=2)
    for asked, month in enumerate(MONTHS, 1):
        months[month].count().release(epsilon=0.125)
        assert spent(account) == 0.125 * min(asked, counted)


def test_two_partitions_of_one_table_add_up(account_of):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    people = dp.Private(VISITS, account=account)
    people.partition("month", keys=MONTHS)["jan"].count().release(epsilon=0.25)
    people.partition("who", keys=[1, 2])[2].count().release(epsilon=0.25)
    assert spent(account) == 0.5


def test_another_partition_under_the_same_name_is_refused(account_of):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    people = dp.Private(VISITS, account=account)
    people.partition("month", keys=MONTHS)["jan"].count().release(epsilon=0.25)
    others = [
        people.partition("month", keys=MONTHS[:2]),
        people.where(people.cost > 2).partition("month", keys=MONTHS),
        people.mutate(month=people.month.fill_null("jan")).partition("month", keys=MONTHS),
        people.join(dp.public({"cost_band": ["jan"], "v": ["x"]}), on=("month", "cost_band")).partition(
            "v", keys=["x"], name="month"
        ),
    ]
    for other in others:
        with pytest.raises(TermsDiffer, match="another definition"):
            next(iter(other.items()))[1].count().release(epsilon=0.1)
    assert spent(account) == 0.25


def test_a_public_table_belongs_to_the_definition(account_of):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    people = dp.Private(VISITS, account=account)

    def halves(months):
        half = dp.public({"month": months, "half": ["first", "first", "second", "second"]})
        return people.join(half, "month").partition("half", keys=["first", "second"])

    halves(MONTHS)["first"].count().release(epsilon=0.25)
    halves(list(MONTHS))["second"].count().release(epsilon=0.25)
    assert spent(account) == 0.25
    with pytest.raises(TermsDiffer):
        halves(MONTHS[::-1])["second"].count().release(epsilon=0.25)


def halves_of(connection, account):
    """A partition by a column of a public table that lies in the engine."""
    visits = dp.Private(connection.table("visits"), account=account, name="visits")
    return visits.join(dp.public(connection.table("halves")), "month").partition("half", keys=["first", "second"])


def store_halves(connection, months):
    halves = pa.table({"month": months, "half": ["first", "first", "second", "second"]})
    connection.create_table("halves", halves, overwrite=True)


def test_a_public_table_that_changes_in_the_engine_moves_no_row_to_another_part(account_of):
    account = account_of(budget=dp.PureDP(1e9), fresh=True)
    connection = ibis.duckdb.connect()
    connection.create_table("visits", VISITS)
    store_halves(connection, MONTHS)
    first = halves_of(connection, account)
    assert first["first"].count().release(epsilon=1e4).value == 5
    store_halves(connection, MONTHS[::-1])
    # The partition that was made before reads the copy; one that is made now is another one.
    assert first["second"].count().release(epsilon=1e4).value == 2
    with pytest.raises(TermsDiffer, match="content of a public table"):
        halves_of(connection, account)["second"].count().release(epsilon=1e4)
    assert spent(account) == 1e4
    store_halves(connection, MONTHS)
    halves_of(connection, account)["second"].count().release(epsilon=1e4)
    assert spent(account) == 2e4


@pytest.mark.parametrize("start", [engines.duckdb, engines.postgres], ids=lambda start: start.__name__)
def test_a_copy_of_the_public_table_is_read_on_database_engines(start, account_of):
    with start() as engine:
        check_copies(engine, account_of(dp.person("who", max_rows=9), budget=dp.PureDP(1e9), fresh=True))


def check_copies(engine, account):
    halves = {"month": MONTHS, "half": ["first", "first", "second", "second"]}
    visits = dp.Private(engine(VISITS, "visits_in_parts"), account=account, name="visits")

    def parts():
        stored = dp.public(engine(pa.table(halves), "halves_of_years"))
        return visits.join(stored, "month").partition("half", keys=["first", "second"], max_parts=1)

    before = parts()
    assert before["first"].count().release(epsilon=1e4).value == 4
    again = parts()
    assert again["second"].count().release(epsilon=1e4).value == 1
    assert spent(account) == 1e4
    halves["half"].reverse()
    assert before["second"].count().release(epsilon=1e4).value == 1
    with pytest.raises(TermsDiffer):
        parts()["second"].count().release(epsilon=1e4)


def test_a_mutant_that_reads_the_engine_s_public_table_is_caught(account_of, monkeypatch):
    monkeypatch.setattr(partition, "_settled", lambda spec: spec)
    monkeypatch.setattr(Public, "fingerprint", "always the same")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_public_table_that_changes_in_the_engine_moves_no_row_to_another_part(account_of)


def test_a_definition_is_the_same_in_every_connection(account_of, tmp_path):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    path = tmp_path / "clinic.duckdb"
    for local in (True, False):
        for _ in range(2):
            connection = ibis.duckdb.connect(path)
            connection.create_table("visits", VISITS, overwrite=True)
            store_halves(connection, MONTHS)
            halves = connection.table("halves").to_pyarrow() if local else connection.table("halves")
            visits = dp.Private(connection.table("visits"), account=account, name="visits")
            parts = visits.join(dp.public(halves), "month").partition(
                "half", keys=["first", "second"], name=f"local {local}"
            )
            parts["first"].count().release(epsilon=0.125)
            connection.disconnect()
    assert spent(account) == 0.5


def test_a_large_public_table_in_the_engine_is_refused(account, monkeypatch):
    monkeypatch.setattr(public_tables, "MAX_COPIED", 3)
    connection = ibis.duckdb.connect()
    connection.create_table("visits", VISITS)
    store_halves(connection, MONTHS)
    with pytest.raises(InvalidArgument, match="at most 3 rows"):
        halves_of(connection, account)


def test_tables_never_share_parts_where_rows_are_protected(account_of, tmp_path):
    """A record may be in a file and in its corrected version, in another part of each."""
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    corrected = VISITS.set_column(1, "month", VISITS["month"].take(pa.array([1, 0, 2, 3, 4, 5, 6])))
    pa.parquet.write_table(VISITS, tmp_path / "visits.parquet")
    pa.parquet.write_table(corrected, tmp_path / "corrected.parquet")
    for name in ("visits", "corrected"):
        people = dp.Private(tmp_path / f"{name}.parquet", account=account)
        if name == "corrected":
            with pytest.raises(TermsDiffer):
                people.partition("month", keys=MONTHS)["feb"].count().release(epsilon=0.25)
        people.partition("month", keys=MONTHS, name=f"month of {name}" if name == "corrected" else None)[
            "jan"
        ].count().release(epsilon=0.25)
    assert spent(account) == 0.5


def test_a_partition_of_an_earlier_definition_stays_readable_and_counts(tmp_path):
    old = dp.ledger.Part("month", "jan", 1, "a definition that left the table out")
    with dp.Ledger(tmp_path / "a.ledger") as ledger:
        account = ledger.account("clinic", dp.PureDP(1.0))
        account.spend(dp.events.Laplace(4.0), "visits", part=old)
    with dp.Ledger(tmp_path / "a.ledger") as ledger:
        account = ledger.account("clinic", dp.PureDP(1.0))
        assert (spent(account), bool(ledger.verify())) == (0.25, True)
        assert "month: jan" in str(account.statement())
        months = dp.Private(VISITS, account=account)
        with pytest.raises(TermsDiffer):
            months.partition("month", keys=MONTHS)["jan"].count().release(epsilon=0.25)
        months.partition("month", keys=MONTHS, name="months")["jan"].count().release(epsilon=0.25)
        assert spent(account) == 0.5


def test_a_restart_forgets_nothing(tmp_path):
    path, data = tmp_path / "a.ledger", tmp_path / "visits.parquet"
    pa.parquet.write_table(VISITS, data)
    unit = dp.person("who", max_rows=2)
    for month, total in [("jan", 0.25), ("feb", 0.25), ("jan", 0.5)]:
        with dp.Ledger(path) as ledger:
            account = ledger.account("clinic", dp.PureDP(1.0), unit=unit)
            months = dp.Private(data, account=account).partition("month", keys=MONTHS, max_parts=1)
            months[month].count().release(epsilon=0.25)
            assert spent(account) == total
            assert ledger.verify()


def test_a_table_in_memory_is_known_by_its_name(account_of):
    account = account_of(dp.person("who", max_rows=2), budget=dp.PureDP(1.0), fresh=True)

    def months(**named):
        return dp.Private(VISITS, account=account, **named).partition("month", keys=MONTHS, max_parts=1)

    months(name="visits")["jan"].count().release(epsilon=0.25)
    months(name="visits")["feb"].count().release(epsilon=0.25)
    assert spent(account) == 0.25
    for other in (months(), months(name="other")):
        with pytest.raises(TermsDiffer, match="name="):
            other["feb"].count().release(epsilon=0.25)


def totals(account, data, max_parts, max_rows=100):
    people = dp.Private(data, account=account)
    months = people.partition("month", keys=MONTHS, max_parts=max_parts)
    found = []
    for key in months:
        table = months[key]
        asked = table.where(table.cost > 1).aggregate(n=count())
        found.append([one.values.tolist() for values in exact(asked).values() for one in values])
    return found


person = st.lists(
    st.tuples(st.sampled_from([*MONTHS, "may", None]), st.sampled_from([None, 1.0, 2.0, 9.0])), max_size=8
)


def check_persons(account_of, max_parts, rows, mine, theirs):
    def table(own):
        everyone = [*((1 + i % 3, *row) for i, row in enumerate(rows)), *((7, *row) for row in own)]
        columns = list(zip(*everyone, strict=True)) or [[], [], []]
        schema = pa.schema([("who", pa.int64()), ("month", pa.string()), ("cost", pa.float64())])
        return pa.table([list(column) for column in columns], schema=schema)

    account = account_of(dp.person("who", max_rows=100))
    absent, present, swapped = (totals(account, table(own), max_parts) for own in ([], mine, theirs))
    assert sum(one != other for one, other in zip(absent, present, strict=True)) <= max_parts
    assert sum(one != other for one, other in zip(swapped, present, strict=True)) <= 2 * max_parts


@given(max_parts=st.integers(1, 3), rows=person, mine=person, theirs=person)
@few
def test_one_person_moves_the_answers_about_few_parts(account_of, max_parts, rows, mine, theirs):
    check_persons(account_of, max_parts, rows, mine, theirs)


@pytest.mark.slow
@given(max_parts=st.integers(1, 3), rows=person, mine=person, theirs=person)
@settings(few, max_examples=40)
def test_one_person_moves_the_answers_about_few_parts_at_length(account_of, max_parts, rows, mine, theirs):
    check_persons(account_of, max_parts, rows, mine, theirs)


def test_a_mutant_that_limits_no_person_is_caught(account_of, monkeypatch):
    everywhere = [(month, 9.0) for month in MONTHS]
    check_persons(account_of, 1, [], everywhere, everywhere[::-1])
    honest = partition._rows_of_part
    monkeypatch.setattr(partition, "_rows_of_part", lambda spec, keys, place, most: honest(spec, keys, place, 99))
    with pytest.raises(AssertionError):
        check_persons(account_of, 1, [], everywhere, [])


def test_a_person_counts_in_the_first_parts_in_which_they_have_rows(account_of):
    account = account_of(dp.person("who", max_rows=100), fresh=True)
    months = dp.Private(VISITS, account=account).partition("month", keys=MONTHS, max_parts=1)
    counts = [table.count_distinct().release(epsilon=2e4).value for _, table in months.items()]
    assert counts == [1, 1, 0, 1]
    months = dp.Private(VISITS, account=account).partition("month", keys=MONTHS, max_parts=2, name="two")
    counts = [table.count().release(epsilon=2e4).value for _, table in months.items()]
    assert counts == [1, 3, 0, 1]


def test_partitions_that_are_not_sound_are_refused(account_of):
    rows = dp.Private(VISITS, account=account_of())
    persons = dp.Private(VISITS, account=account_of(dp.person("who", max_rows=2)))
    with pytest.raises(InvalidArgument, match="max_parts must be given"):
        persons.partition("month", keys=MONTHS)
    with pytest.raises(InvalidArgument, match="max_parts must be left out"):
        rows.partition("month", keys=MONTHS, max_parts=2)
    with pytest.raises(InvalidArgument, match="whole table"):
        rows.partition("month", keys=MONTHS)["jan"].partition("who", keys=[1])
    part = persons.partition("month", keys=MONTHS, max_parts=1)["jan"]
    with pytest.raises(InvalidArgument, match="whole tables"):
        persons.join(part)
    twice = rows.join(dp.public({"month": ["jan", "jan"], "half": ["a", "b"]}), "month")
    with pytest.raises(InvalidArgument, match="no join repeats"):
        twice.partition("half", keys=["a", "b"])
    with pytest.raises(InvalidArgument, match="one of the partition's"):
        rows.partition("month", keys=MONTHS)["dec"]
    with pytest.raises(InvalidArgument, match="differ as text"):
        rows.mutate(again=rows.month).partition("month", "again", keys=[("a, b", "c"), ("a", "b, c")])
