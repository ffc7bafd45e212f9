"""A server that signs heads while it runs, does not start on a ledger that was rolled back, and runs behind a guard."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from discreet.apps.server.config import read_config
from discreet.apps.server.starting import start
from discreet.apps.server.tables import Work
from discreet.errors import NotALedger
from discreet.ledger.evidence import AnchorFile, PublicKeys, SigningKey
from discreet.ledger.evidence.keys import append_line
from discreet.ledger.stores import base
from tests.server.conftest import CONFIG, COUNT, World, make_world, write_people

ANCHORS = """
[anchors]
key = "steward.key"
keys = "steward.pub"
to = "heads.jsonl"
minutes = 0.0005
"""


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    append_line(tmp_path / "steward.pub", SigningKey.create(tmp_path / "steward.key").first_line())
    return tmp_path


def test_heads_are_signed_while_the_server_runs_and_a_rollback_keeps_it_from_starting(keyed):
    text = CONFIG + ANCHORS
    keys = PublicKeys.of_file(keyed / "steward.pub")
    heads = AnchorFile(keyed / "heads.jsonl")
    for world in make_world(keyed, text):
        with (
            contextlib.closing(sqlite3.connect(keyed / "curator.ledger")) as source,
            contextlib.closing(sqlite3.connect(keyed / "older")) as copy,
        ):
            source.backup(copy)
        assert world.ask("ann").status_code == 200
        world.curator.anchoring.sign()
        charged = world.curator.ledger.account("census").history()[-1].sequence
        assert ("census", charged) in {(one.account, one.sequence) for one in heads.heads(keys)[-1].anchors}
        assert heads.verify(world.curator.ledger, keys)
    shutil.copy(keyed / "older", keyed / "curator.ledger")
    for suffix in ("-wal", "-shm"):
        (keyed / f"curator.ledger{suffix}").unlink(missing_ok=True)
    base._seen_at.clear()  # a process that starts afresh
    with pytest.raises(NotALedger, match="does not start"):
        start(read_config(keyed / "curator.toml", text))


def test_a_head_that_cannot_be_kept_is_logged_and_answers_go_on(keyed, caplog):
    text = CONFIG + ANCHORS.replace('"heads.jsonl"', '"nowhere/heads.jsonl"')
    world: World
    for world in make_world(keyed, text):
        world.curator.anchoring.sign()
        assert world.ask("ann").status_code == 200
    assert "no signed head was kept" in caplog.text


@pytest.mark.slow
def test_a_server_runs_behind_a_guarded_database(tmp_path, server_place):
    """Everything that a server does, as a role that owns nothing."""
    from discreet.ledger.stores.guarded import guard

    owner, role, url = server_place
    guard(owner, role)
    write_people(tmp_path)
    started = start(read_config(tmp_path / "curator.toml", CONFIG.replace('"curator.ledger"', f'"{url}"')))
    curator, tokens = started.curator, {user: token for user, _, token in started.tokens}
    ann = curator.access.authenticate(tokens["ann"])
    assert curator.ask(ann, "people", COUNT, "k", Work())["rows"]
    assert curator.ask(ann, "people", COUNT, "k", Work())["replayed"]
    assert curator.ledger.verify()
    assert curator.ledger.account("census").history()[-1].user == "ann"
    curator.close()


@pytest.fixture
def server_place():
    psycopg = pytest.importorskip("psycopg")
    from tests.ledger.server import Server, programs

    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    running = Server(durable=False)
    try:
        with psycopg.connect(running.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE worker LOGIN")
        yield running.url(), "worker", running.url().replace("discreet@", "worker@")
    finally:
        running.remove()
