"""A ledger in PostgreSQL that a server's role can write to only through functions which check every charge.

The owner of the tables installs the functions. They run with the owner's rights and a fixed search path. The server's
role may read, and may call them, and has no right to change an account's totals or an entry by any other means.
"""

from __future__ import annotations

from importlib import resources

from discreet import _check
from discreet.errors import LedgerUnavailable
from discreet.ledger.access import Access
from discreet.ledger.ledger import Ledger
from discreet.ledger.stores import served
from discreet.ledger.stores.postgres import driver

# What the server's role may call: the rest is called by these.
_CALLABLE = (
    "discreet_locked(text)",
    "discreet_lock_accounts()",
    "discreet_append(text, text, bigint, text, text)",
)
_OPEN = "discreet_open(text, text, text)"
_DEFINER = (*_CALLABLE, _OPEN, "discreet_charged_above()")
_LEDGER_TABLES = ("discreet_account", "discreet_entry", "discreet_schema")
_SERVER_TABLES = (served.ITEMS, served.ANSWERS)
_ACCESS_TABLES = ("discreet_access_state", "discreet_access_change", "discreet_access_refusal")
# Whether a role could change a table or a column of it: by its rights, by those of a role that it may take on with SET
# ROLE, or as owner.
_COULD_WRITE = (
    "SELECT bool_or(has_table_privilege(taken.oid, one.oid, 'insert, update, delete, truncate, trigger') "
    "OR has_any_column_privilege(taken.oid, one.oid, 'insert, update') OR taken.oid = one.relowner) "
    "FROM pg_roles AS taken, pg_class AS one "
    "WHERE pg_has_role(%s, taken.oid, 'member') AND one.oid = ANY (%s::regclass[])"
)


def guard(location: str, role: str, *, may_open: bool = True) -> None:
    """Let a role write to the ledger at `location` through checked functions only.

    Args:
        location: the `postgresql://` URL of the ledger, as the owner of its tables.
        role: an existing role that the server connects as. It must not own the tables, nor be a superuser.
        may_open: whether the server may also open accounts and parts. Without it the steward opens them as the owner.

    Guarantee:
        The role cannot exceed a limit, change or delete an entry, or charge a part without the accounts above it. It
        can lower a total only by handing back an open reservation: `Ledger.verify` finds if its steps had started.
        The functions do not price events: whoever controls the server can charge too little, or open accounts if
        `may_open`. `Ledger.verify` finds a price that is too low afterwards.
    """
    if "://" not in location:
        raise _check.fail("location", "be a postgresql:// URL", location, "a file has no roles")
    with Ledger(location) as ledger:
        Access(ledger)  # so that its tables exist, and belong to the owner
        ledger.backend.write(served.create)
    psycopg = driver()
    try:
        with psycopg.connect(location) as connection:
            [schema] = connection.execute("SELECT quote_ident(current_schema())").fetchone()
            existing = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
            if existing is None or existing[0]:
                raise _check.fail("role", "be an existing role without superuser rights", role, "CREATE ROLE … LOGIN")
            [name] = connection.execute("SELECT quote_ident(%s)", (role,)).fetchone()
            functions = resources.files("discreet.ledger.stores").joinpath("guarded.sql").read_text("utf-8")
            connection.execute(functions.replace("@SCHEMA@", schema))
            for statement in _rights(schema, name, may_open):
                connection.execute(statement)
            if connection.execute(_COULD_WRITE, (role, list(_LEDGER_TABLES))).fetchone() != (False,):
                remedy = "it owns the tables, or is a member of a role that does or that may change them"
                raise _check.fail("role", "have no right of its own to change accounts", role, remedy)
    except psycopg.Error as error:
        text = str(error).strip().splitlines()
        raise LedgerUnavailable(f"the functions cannot be installed ({text[0] if text else type(error)})") from error


def _rights(schema: str, role: str, may_open: bool) -> list[str]:
    """Statements that give `role` what a server needs, and take everything else from everyone but the owner."""
    tables = ", ".join((*_LEDGER_TABLES, *_ACCESS_TABLES, *_SERVER_TABLES))
    allowed = (*_CALLABLE, _OPEN) if may_open else _CALLABLE
    return [
        f"REVOKE ALL ON {tables} FROM PUBLIC, {role}",
        f"REVOKE ALL ON FUNCTION {', '.join(_DEFINER)} FROM PUBLIC, {role}",
        f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {role}",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON {tables} TO {role}",
        f"GRANT INSERT, UPDATE ON discreet_access_state TO {role}",
        f"GRANT INSERT ON discreet_access_change, discreet_access_refusal TO {role}",
        f"GRANT INSERT, UPDATE, DELETE ON {', '.join(_SERVER_TABLES)} TO {role}",
        f"GRANT EXECUTE ON FUNCTION {', '.join(allowed)} TO {role}",
    ]
