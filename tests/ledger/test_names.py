"""A name that is mistyped, or looks like another one, does not open a fresh budget."""

from __future__ import annotations

import threading
import time

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import InvalidArgument, TermsDiffer
from discreet.ledger import names
from tests.ledger.faults import hooked

BUDGET = dp.PureDP(1.0)


@pytest.fixture
def ledger(place):
    with dp.Ledger(place.location) as opened:
        opened.account("census", budget=BUDGET).spend(ev.Laplace(1.0))
        yield opened


LOOK_ALIKES = {
    "case": "Census",
    "all capitals": "CENSUS",
    "a space inside": "cen sus",
    "Cyrillic": "\u0441\u0435nsus",
    "Cyrillic capitals": "\u0421ENSUS",
}
NOT_NORMAL = {
    "a space after": "census ",
    "a space before": " census",
    "two spaces": "census  2020",
    "full width": "\uff43\uff45\uff4e\uff53\uff55\uff53",
    "a ligature": "\ufb01les",
    "decomposed": "su\u0308d",
    "a long s": "cen\u017fus",
    "an invisible mark": "census\ufe0f",
    "an invisible letter": "census\u1160",
    "only invisible": "\u115f",
    "a slash in disguise": "census\uff0fann",
}


@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_name_that_looks_like_another_opens_nothing_and_names_the_other(ledger, name):
    with pytest.raises(InvalidArgument, match=r"differ from 'census'.*reopen 'census'"):
        ledger.account(name, budget=BUDGET)
    assert [account.name for account in ledger.accounts()] == ["census"]
    assert ledger.verify()


@pytest.mark.parametrize("name", NOT_NORMAL.values(), ids=NOT_NORMAL)
def test_a_name_that_is_not_in_normal_form_opens_nothing(ledger, name):
    with pytest.raises(InvalidArgument, match="normal form"):
        ledger.account(name, budget=BUDGET)
    with pytest.raises(InvalidArgument, match="normal form"):
        ledger.account("census").allot(name, BUDGET)
    assert [account.name for account in ledger.accounts()] == ["census"]


@pytest.mark.parametrize("name", ["census\n", "census\u200b", "cen\u00adsus", "census\u00a0", "\u202ecensus", "a\tb"])
def test_a_name_with_control_or_format_characters_is_refused(ledger, name):
    with pytest.raises(InvalidArgument, match="plain name"):
        ledger.account(name, budget=BUDGET)


def test_the_error_says_how_to_write_the_name(ledger):
    with pytest.raises(InvalidArgument, match="write 'census'"):
        ledger.account(" census ", budget=BUDGET)


def test_parts_are_compared_with_the_parts_beside_them_only(ledger):
    census, wages = ledger.account("census"), ledger.account("wages", budget=BUDGET)
    census.allot("ann", BUDGET)
    with pytest.raises(InvalidArgument, match=r"differ from 'census/ann'"):
        census.allot("Ann", BUDGET)
    wages.allot("Ann", BUDGET)
    census.allot("census", BUDGET)
    ledger.account("ANN", budget=BUDGET)
    assert len(ledger.accounts()) == 6
    assert ledger.verify()


@pytest.mark.parametrize("name", ["süd", "人口普查", "перепись", 'süd "1"', "census 2020", "données", "wages_v2.1"])
def test_ordinary_names_in_any_language_open(ledger, name):
    assert ledger.account(name, budget=BUDGET).name == name
    assert ledger.account(name, budget=BUDGET).name == name


def test_an_older_ledger_with_such_names_still_opens(place, monkeypatch):
    older = ["Census", " census ", "census", "e\u0301cole"]
    with dp.Ledger(place.location) as ledger, monkeypatch.context() as patched:
        patched.setattr(names, "check_new", lambda name, existing: None)
        for name in older:
            ledger.account(name, budget=BUDGET)
        ledger.account("census").allot(" ann", BUDGET)
    for create in (True, False):
        with dp.Ledger(place.location, create=create) as ledger:
            for name in older:
                ledger.account(name, budget=BUDGET).spend(ev.Laplace(100.0))
                assert ledger.account(name).name == name
            ledger.account("census").allot(" ann", BUDGET).spend(ev.Laplace(100.0))
            assert ledger.verify()


def test_without_create_no_account_is_opened_and_the_error_names_similar_ones(ledger, place):
    ledger.account("wages", budget=BUDGET)
    with dp.Ledger(place.location, create=False) as existing:
        for attempt in (lambda: existing.account("cenus", budget=BUDGET), lambda: existing.account("cenus")):
            with pytest.raises(TermsDiffer, match=r"got 'cenus' \(did you mean 'census'\?\).*create=False"):
                attempt()
        with pytest.raises(TermsDiffer, match=r"got 'Census' \(did you mean 'census'\?\)"):
            existing.account("Census", budget=BUDGET)
        with pytest.raises(TermsDiffer, match=r"got 'zebra': "):
            existing.account("zebra", budget=BUDGET)
        assert existing.account("census", budget=BUDGET).name == "census"
        existing.account("census").allot("ann", BUDGET)  # it spends from the same budget
    with pytest.raises(TermsDiffer, match=r"got 'cenus' \(did you mean 'census'\?\): give a budget"):
        ledger.account("cenus")
    assert [account.name for account in ledger.accounts()] == ["census", "census/ann", "wages"]


def test_of_look_alikes_that_are_opened_at_once_one_is_opened(new_place):
    place = new_place()
    dp.Ledger(place.location).close()
    spellings = ["census", "Census", "CENSUS", "censuS"]
    ready, outcomes = threading.Barrier(len(spellings)), []

    def slowly(step):
        if step == "recorded":  # and not yet committed
            time.sleep(0.2)

    def open_one(name):
        with dp.Ledger(place.location) as ledger:
            hooked(ledger, slowly)
            ready.wait()
            try:
                outcomes.append(ledger.account(name, budget=BUDGET).name)
            except InvalidArgument:
                outcomes.append(None)

    threads = [threading.Thread(target=open_one, args=(name,)) for name in spellings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome is None for outcome in outcomes) == [False, True, True, True]
    with dp.Ledger(place.location) as ledger:
        assert len(ledger.accounts()) == 1
