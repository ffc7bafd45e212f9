"""Signed heads, certificates and the export: what they prove, and every way in which they must fail."""

from __future__ import annotations

import json
import os
import stat
import sys
from hashlib import sha256

import pytest

import discreet as dp
from discreet.errors import InvalidArgument, LedgerUnavailable, NotALedger
from discreet.ledger.access import Access, Role
from discreet.ledger.chain import digest
from discreet.ledger.evidence import AnchorFile, Certificate, PublicKeys, SigningKey, certify, export, sign_head
from discreet.ledger.evidence.keys import append_line, rotate
from discreet.ledger.stores import base

EVENT = dp.events.Laplace(8.0)


@pytest.fixture
def key(tmp_path):
    made = SigningKey.create(tmp_path / "steward.key")
    append_line(tmp_path / "steward.pub", made.first_line())
    return made


@pytest.fixture
def keys(key, tmp_path):
    return PublicKeys.of_file(tmp_path / "steward.pub")


@pytest.fixture
def ledger(place):
    with dp.Ledger(place.location) as opened:
        census = opened.account("census", budget=dp.PureDP(1.0))
        census.allot("ada", dp.PureDP(0.5)).spend(EVENT, purpose="ages")
        Access(opened).add_user("ada", Role.ANALYST)
        yield opened


def forget(place) -> None:
    """What a process that starts afresh knows: nothing."""
    base.seen_at(place.location).clear()
    base._seen_at.clear()


# --- keys


def test_a_key_is_readable_by_its_owner_alone_and_never_overwritten(key, tmp_path):
    path = tmp_path / "steward.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(InvalidArgument, match="never overwritten"):
        SigningKey.create(path)
    assert path.read_bytes() == before
    assert SigningKey.load(path).id == key.id
    path.chmod(0o640)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        SigningKey.load(path)


def test_a_signature_is_bound_to_what_it_is_about(key, keys):
    signed = key.sign("head", {"a": 1})
    assert keys.check("head", signed) == key.id
    for value in (
        {**signed, "a": 2},
        {**signed, "b": 1},
        {**signed, "signature": "AAAA"},
        {**signed, "signature": None},
        {**signed, "key": "0" * 16},
        {"a": 1},
        [],
    ):
        with pytest.raises(NotALedger):
            keys.check("head", value)
    with pytest.raises(NotALedger):
        keys.check("certificate", signed)


def test_a_key_hands_over_to_its_successor(key, keys, tmp_path):
    old_certificate = key.sign("head", {"a": 1})
    new = rotate(key, tmp_path / "new.key", tmp_path / "steward.pub")
    longer = PublicKeys.of_file(tmp_path / "steward.pub")
    assert longer.check("head", old_certificate) == key.id
    assert longer.check("head", new.sign("head", {"a": 1})) == new.id
    with pytest.raises(NotALedger):
        keys.check("head", new.sign("head", {"a": 1}))  # the shorter list does not know it
    newest = rotate(new, tmp_path / "newest.key", tmp_path / "steward.pub")
    assert list(PublicKeys.of_file(tmp_path / "steward.pub").keys) == [key.id, new.id, newest.id]


def test_a_key_that_nobody_signed_is_not_trusted(key, tmp_path):
    stranger = SigningKey.create(tmp_path / "stranger.key")
    public = tmp_path / "steward.pub"
    first = public.read_text()
    for line in (stranger.first_line(), stranger.succeed(stranger), "{}", "[]", "nonsense"):
        public.write_text(first + line + "\n")
        with pytest.raises(InvalidArgument, match="line 2"):
            PublicKeys.of_file(public)
    public.write_text("")
    with pytest.raises(InvalidArgument):
        PublicKeys.of_file(public)


# --- anchors


def test_a_rollback_is_noticed_without_receipts(ledger, place, key, keys, tmp_path):
    heads = AnchorFile(tmp_path / "heads.jsonl")
    heads.append(ledger, key)
    receipt = ledger.account("census/ada").spend(EVENT)
    heads.append(ledger, key)
    assert heads.check(ledger, keys) == ""
    assert heads.verify(ledger, keys)
    ledger.close()
    tables = "discreet_account", "discreet_entry"
    saved = {table: place.query(f"SELECT * FROM {table}") for table in tables}
    assert saved
    with dp.Ledger(place.location) as again:
        # An older copy: the rows of the last charge are taken back, with all hashes as they were then.
        _take_back(place, again, receipt)
        forget(place)
    with dp.Ledger(place.location) as restored:
        assert restored.verify()  # consistent in itself
        assert "older copy was restored" in heads.check(restored, keys)
        assert not heads.verify(restored, keys)
        # Nor does the next head, signed by a clock that knows of nothing, make the older copy the one that counts.
        restored.account("census").spend(EVENT)
        with pytest.raises(NotALedger, match="older copy was restored"):
            heads.append(restored, key)
        assert "older copy was restored" in heads.check(restored, keys)


def _take_back(place, ledger, receipt) -> None:
    """Remove the last charge from both accounts, as a backup from before it would be."""
    from discreet.ledger.chain import seal

    for name in ("census/ada", "census"):
        account = ledger.account(name)
        entries = account.history()
        terms = account._terms
        totals = terms.beginning()
        for entry in entries[:-1]:
            if entry.event is not None:
                totals = terms.changed(totals, entry.change, entry.claimed)
        last = entries[-2]
        head, state = digest(last.body()), totals.text()
        sealed = seal(terms.name, terms.parent, terms.text(), state, last.sequence, head)
        place.execute(
            f"DELETE FROM discreet_entry WHERE account = '{name}' AND sequence = {entries[-1].sequence}",
            f"UPDATE discreet_account SET state = '{state}', sequence = {last.sequence}, head = '{head}', "
            f"seal = '{sealed}' WHERE name = '{name}'",
        )


def test_a_head_covers_users_and_policies(ledger, place, key, keys, tmp_path):
    heads = AnchorFile(tmp_path / "heads.jsonl")
    heads.append(ledger, key)
    place.execute("UPDATE discreet_access_change SET body = replace(body, 'analyst', 'steward')")
    assert "users and policies" in heads.check(ledger, keys)


def test_heads_are_appended_only_when_something_changed_and_passed_on(ledger, key, keys, tmp_path):
    copy = tmp_path / "copy"
    program = f"import sys; open({str(copy)!r}, 'a').write(sys.stdin.read() + chr(10))"
    heads = AnchorFile(tmp_path / "heads.jsonl", command=[sys.executable, "-c", program])
    for _ in range(3):
        heads.append(ledger, key)
    ledger.account("census").spend(EVENT)
    heads.append(ledger, key)
    assert len(heads.heads(keys)) == 2
    assert copy.read_text() == (tmp_path / "heads.jsonl").read_text()
    failing = AnchorFile(tmp_path / "other.jsonl", command=["false"])
    with pytest.raises(LedgerUnavailable, match="could not be passed on"):
        failing.append(ledger, key)
    with pytest.raises(InvalidArgument):
        AnchorFile(tmp_path / "x", webhook="file:///etc/passwd")


def test_a_forged_head_is_refused(ledger, key, keys, tmp_path):
    heads = tmp_path / "heads.jsonl"
    stranger = SigningKey.create(tmp_path / "stranger.key")
    AnchorFile(heads).append(ledger, stranger)
    with pytest.raises(NotALedger, match="not among"):
        AnchorFile(heads).check(ledger, keys)
    value = json.loads(sign_head(ledger, key).text)
    value["accounts"]["census"][0] += 1
    heads.write_text(json.dumps(value))
    with pytest.raises(NotALedger, match="signature"):
        AnchorFile(heads).check(ledger, keys)


# --- certificates


def certified(ledger, key, **options) -> str:
    return certify(ledger, "census/ada", 1, key, dataset="adult", version="1994", **options)


def test_a_certificate_says_what_ran_and_what_it_guarantees(ledger, key, keys):
    text = certified(ledger, key, content=[b"rows"])
    certificate = Certificate.of_text(text, keys)
    assert certificate.event == EVENT
    assert certificate.guarantee == "0.125-DP, add or remove one row"
    assert certificate.budget == "0.5-DP, add or remove one row"
    assert certificate.dataset == ("adult", "1994")
    assert certificate.purpose == "ages"
    assert certificate.disagreement(ledger=ledger) == ""
    assert json.loads(text)["head"]["row"][0] == 1


def test_a_certificate_confirms_no_guess_about_the_data(ledger, key, keys, tmp_path):
    """No digest of the data without the steward's secret is in it, in any of the obvious forms."""
    data = b"name,disease\nann,flu\n"
    text = certified(ledger, key, content=[data[:5], data[5:]])
    for guess in (sha256(data), sha256(b"adult1994" + data), sha256(sha256(data).hexdigest().encode())):
        assert guess.hexdigest() not in text
    certificate = Certificate.of_text(text, keys)
    assert certificate.has_tag(key, [data])
    assert not certificate.has_tag(key, [data + b" "])
    assert not certificate.has_tag(SigningKey.create(tmp_path / "other.key"), [data])
    assert key.tag("a", "bc", []) != key.tag("ab", "c", [])


EDITS = {
    "event": lambda value: value["event"].__setitem__("tag", "gaussian"),
    "guarantee": lambda value: value["guarantee"].__setitem__("alone", "0.001-DP"),
    "dataset": lambda value: value["dataset"].__setitem__("version", "2026"),
    "tag": lambda value: value["dataset"].__setitem__("tag", "0" * 64),
    "head": lambda value: value["head"]["row"].__setitem__(0, 9),
    "artifact": lambda value: value.__setitem__("artifact", "0" * 64),
    "extra": lambda value: value.__setitem__("note", "approved"),
    "missing": lambda value: value.pop("purpose"),
    "signature": lambda value: value.__setitem__("signature", value["signature"][:-4] + "AAA="),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_certificate_does_not_hold(new_sqlite, key, keys, edit):
    with dp.Ledger(new_sqlite().location) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).allot("ada", dp.PureDP(0.5)).spend(EVENT)
        value = json.loads(certified(ledger, key))
        EDITS[edit](value)
        with pytest.raises(NotALedger):
            Certificate.of_text(json.dumps(value), keys)


def test_a_certificate_is_about_one_file_and_one_ledger(ledger, key, keys, tmp_path, new_sqlite):
    model = tmp_path / "model.bin"
    model.write_bytes(b"weights")
    certificate = Certificate.of_text(certified(ledger, key, artifact=model), keys)
    assert certificate.disagreement(artifact=model, ledger=ledger) == ""
    model.write_bytes(b"other weights")
    assert "another file" in certificate.disagreement(artifact=model)
    with dp.Ledger(new_sqlite().location) as other:
        other.account("census", budget=dp.PureDP(1.0)).allot("ada", dp.PureDP(0.5)).spend(EVENT, purpose="ages")
        assert "is not the charge" in certificate.disagreement(ledger=other)


def test_only_charges_are_certified(ledger, key):
    for sequence in (0, 99, -1, 1.5):
        with pytest.raises(InvalidArgument):
            certify(ledger, "census/ada", sequence, key, dataset="a", version="1")
    with pytest.raises(InvalidArgument):
        certify(ledger, "census/ada", 1, key, dataset="", version="1")


def test_an_event_without_a_pure_price_is_certified_at_the_accounts_delta(new_sqlite, key, keys):
    with dp.Ledger(new_sqlite().location) as ledger:
        ledger.account("health", budget=dp.ApproxDP(4.0, 1e-6)).spend(dp.events.Gaussian(4.3))
        text = certify(ledger, "health", 1, key, dataset="health", version="1")
        assert "1e-06)-DP" in Certificate.of_text(text, keys).guarantee


# --- export


def test_an_export_can_be_checked_without_this_library(ledger, monkeypatch):
    monkeypatch.setattr("discreet.ledger.stores.records._PAGE", 1)  # several pages
    Access(ledger).refused(None, "POST /ask", "not a token")
    lines = [json.loads(line) for line in export(ledger)]
    assert lines[0]["kind"] == "header"
    previous: dict[str, str] = {}
    for line in lines:
        if line["kind"] in {"entry", "change"}:
            assert sha256(line["body"].encode()).hexdigest() == line["hash"]
            chain = line.get("account", "changes")
            assert json.loads(line["body"])["previous"] == previous.get(chain, "0" * 64)
            previous[chain] = line["hash"]
    entries = [line for line in lines if line["kind"] == "entry"]
    assert len(entries) == sum(len(account.history()) for account in ledger.accounts())
    assert lines[-1] | {"time": ""} == {
        "action": "POST /ask",
        "kind": "refusal",
        "reason": "not a token",
        "time": "",
        "token": "",
        "user": "",
    }


def test_the_key_is_not_in_the_database(ledger, place, key, tmp_path):
    certified(ledger, key)
    secret = (tmp_path / "steward.key").read_text().splitlines()[1]
    if place.server is None:
        ledger.close()
        files = [path for path in os.listdir(os.path.dirname(place.location)) if "key" in path]
        assert not files
    for table in ("discreet_entry", "discreet_account", "discreet_access_state", "discreet_access_change"):
        assert secret not in str(place.query(f"SELECT * FROM {table}"))
