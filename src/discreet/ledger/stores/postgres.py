"""A ledger in PostgreSQL, for a team: row locks on the accounts, commits flushed to disk, retries across restarts.

A transaction whose connection is lost before its commit was sent is run again: the server has rolled it back. One that
is lost during its commit is run again only if a key finds what it may have written.

If many spend from one account, each would hold the account while it waits for the disk, and all others would wait with
it. So after a connection had to wait for an account, its next transaction commits to memory, which frees the account,
and then waits until the log is on disk up to a record of its own. One flush serves all who wait for one. The receipt is
returned after that flush. Such a transaction also takes an advisory lock, the queue, before it locks the row: the
server wakes each of many waiters for a row twice and lets each look up the row's newest version.

Locks are taken in one order, so that spends cannot deadlock: accounts from the top down, and the queue of an account
before its row.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit
from zlib import crc32

from discreet import errors
from discreet.errors import DiscreetError, LedgerBusy, LedgerUnavailable, MissingExtra, NotALedger
from discreet.ledger.stores import schema
from discreet.ledger.stores.base import GUARDED_LOCK, OnStep, Pool, Seen, check_not_forked, no_step, remember, seen_at
from discreet.ledger.stores.session import PreparedConnection, SqlStatement

T = TypeVar("T")

_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# The first number of our advisory locks ("DSLG"): alone for migrations, with a second number for an account's queue.
_LOCK_SPACE = 0x44534C47
# Seconds between two attempts to reach a server that restarts.
_RETRY_PAUSE = 0.1
# Grace period in seconds, on top of the lock timeout, before either side gives up on a silent peer.
_GRACE = 30
# Seconds. The server counts timeouts in milliseconds, as 32-bit integers.
_LONGEST_TIMEOUT = 2e6
# If taking the lock took longer than this many seconds, others are contending for the account. An idle server on the
# same network answers faster; on a slower network the only effect is that commits share flushes needlessly.
_CONTENDED = 0.001
# The queue of an account, held until the transaction ends. It only saves work: the row lock protects the totals.
_QUEUE = f"SELECT pg_advisory_xact_lock({_LOCK_SPACE}, ?)"
# Seconds during which a session avoids queues after one did not move within the lock timeout: something
# else may hold that advisory lock, and then every spend that queues would fail.
_QUEUE_REST = 60.0
_COMMIT_TO_MEMORY = "SET LOCAL synchronous_commit = off"
# Writes a log record of its own. Its commit flushes everything that is in the server's log before it.
_FLUSH = "SELECT pg_logical_emit_message(true, 'discreet', '')"

# SQLSTATE codes and classes: they are the same in every language, unlike the server's messages.
# The server no longer has a prepared statement, or has one of that name from someone else: the connection was reset or
# handed to us by a pooler, so it cannot be trusted.
_UNPREPARED = ("26000", "42P05")
# The server is shutting down or starting (57P), or the connection failed (08).
_CONNECTION_LOST = ("57P", "08")
# Errors of opening a connection that retrying cannot fix: wrong credentials (28), no such database (3D), no permission
# or not a PostgreSQL server (42).
_HOPELESS = ("28", "3D", "42")
# Seconds to wait before the second and last attempt, if a server answers but refuses the first connection. The pause
# covers a server that came up in between, and a moment of too many connections. There are only two attempts because
# many servers lock an account after a few wrong passwords.
_REFUSED_PAUSE = 1.0
_MAY_QUEUE = (
    "SELECT bool_and(has_function_privilege(oid, 'execute')) FROM pg_proc "
    "WHERE proname IN ('pg_logical_emit_message', 'pg_advisory_xact_lock')"
)
# Whether this role may write to the ledger only through the functions of `guarded.sql`.
_GUARDED = (
    "SELECT to_regclass('discreet_account') IS NOT NULL AND to_regproc('discreet_append') IS NOT NULL "
    "AND NOT has_table_privilege(to_regclass('discreet_account'), 'update')"
)


def driver() -> Any:
    """psycopg 3, or how to install it."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("a ledger in PostgreSQL needs psycopg: pip install 'discreet[ledger]'") from error
    return psycopg


class PostgresTransaction:
    """One open transaction on a server. Changes are buffered and sent with the next query or commit, in one message."""

    for_update = " FOR UPDATE"
    # Waits for spends in flight too, which have all of their locks by then.
    lock_accounts = "LOCK TABLE discreet_account IN SHARE ROW EXCLUSIVE MODE"
    table_exists = "SELECT 1 FROM pg_class WHERE oid = to_regclass(?)"
    visible_is_durable = False  # see the module's text: others commit to memory first

    def __init__(self, session: PreparedConnection, begin: str, may_queue: bool, seen: Seen) -> None:
        self._session = session
        self.guarded = session.guarded
        if self.guarded:
            self.lock_accounts = "SELECT discreet_lock_accounts()"
        self._may_queue = may_queue
        self._contended = False  # whether any lock of this transaction had to wait
        self._queued = False  # whether it queued for an account; its commit then goes to memory first
        self.committed = False
        self.seen = seen
        self.seen_before = seen if begin == _WRITE else seen.copy()
        self.written: list[Any] = []
        self.current: dict[str, Any] = {}  # empty at first: others may have written since the last transaction
        self._buffered: list[SqlStatement] = [(begin, ())]

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        buffered, self._buffered = self._buffered, []
        if not sql.endswith((self.for_update, GUARDED_LOCK)):
            return self._session.send([*buffered, (sql, values)])
        return self._lock(buffered, (sql, values))

    def _lock(self, buffered: list[SqlStatement], select: SqlStatement) -> list[tuple[Any, ...]]:
        session, start = self._session, time.monotonic()
        queues = self._may_queue and session.contended and start >= session.no_queue_until
        if queues:
            if not self._queued:
                buffered.append((_COMMIT_TO_MEMORY, ()))
            buffered.append((_QUEUE, (crc32(repr(select[1]).encode()) - 2**31,)))
            self._queued = True
        session.contended = False
        try:
            rows = session.send([*buffered, select])
        except Exception:
            if queues and session.done == len(buffered) - 1:  # the queue failed, not the row
                session.no_queue_until = time.monotonic() + _QUEUE_REST
            raise
        self._contended = self._contended or time.monotonic() - start > _CONTENDED
        session.contended = self._contended
        return rows

    def run(self, sql: str, *values: object) -> None:
        self._buffered.append((sql, values))

    def commit(self) -> None:
        """Send the buffered changes and commit. The server skips the commit if one of them fails.

        After queueing, the commit itself does not wait for the disk, but the flush that follows it in the same message
        does. It is sent even if nothing was changed because a key was found: the row that was found must be on disk.
        """
        changes: list[SqlStatement] = [*self._buffered, ("COMMIT", ())]
        self._buffered = []
        try:
            self._session.send([*changes, (_FLUSH, ())] if self._queued else changes)
        finally:
            self.committed = self._session.done >= len(changes)


class PostgresStore:
    """A database that keeps a ledger; see `Store` for what each method promises."""

    def __init__(self, location: str, *, create: bool, timeout: float, on_step: OnStep) -> None:
        self._driver = driver()
        self._url = location
        self._timeout = timeout
        self._on_step = on_step
        self._seen = seen_at(location)
        self._connected = False  # whether a connection was ever made
        self._may_queue = False  # whether the role may call what queues and flushes need
        address = urlsplit(location)
        # Never the password: this text goes into messages.
        self._place = f"the ledger at postgresql://{address.hostname or ''}{address.path}"
        self._pool: Pool[PreparedConnection] = Pool(self._connect, lambda session: session.close())
        version = self.read(self._version)
        if version is None and not create:
            raise LedgerUnavailable(f"{self._place} does not exist: with create=True one is started there")
        if version is not None:
            schema.check(version)
        if version is None or version < len(schema.MIGRATIONS):
            self.write(self._migrate)

    def write(self, work: Callable[[PostgresTransaction], T], *, keyed: bool = False) -> T:
        return self._patiently(_WRITE, work, self._on_step, repeatable=keyed)

    def read(self, work: Callable[[PostgresTransaction], T]) -> T:
        return self._patiently("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work, no_step, repeatable=True)

    def damage(self) -> str | None:
        return None  # the server checks its own pages

    def close(self) -> None:
        self._pool.close()

    @staticmethod
    def _version(transaction: PostgresTransaction) -> int | None:
        if transaction.rows("SELECT to_regclass('discreet_schema')")[0][0] is None:
            return None
        return schema.version(transaction)

    @staticmethod
    def _migrate(transaction: PostgresTransaction) -> None:
        # Of several processes that open a new ledger at once, one migrates it and the others find it migrated.
        transaction.rows("SELECT pg_advisory_xact_lock(?)", _LOCK_SPACE)
        schema.migrate(transaction)

    def _connect(self) -> PreparedConnection:
        limit = max(1, int(1000 * min(self._timeout, _LONGEST_TIMEOUT)))  # milliseconds
        connection = self._driver.connect(
            self._url,
            autocommit=True,
            connect_timeout=max(2, limit // 1000),  # seconds; libpq takes no less than 2
            client_encoding="utf8",
            prepare_threshold=None,  # `PreparedConnection` prepares its statements itself
        )
        try:
            if connection.execute("SHOW fsync").fetchone()[0] == "off":
                raise LedgerUnavailable(
                    f"{self._place} is on a server with fsync = off, which forgets spends when it loses power: nothing "
                    "may be charged there; set fsync = on in postgresql.conf and reload"
                )
            connection.execute(f"SET lock_timeout = {limit}")
            # A client that freezes inside a transaction must not hold an account forever.
            connection.execute(f"SET idle_in_transaction_session_timeout = {limit + 1000 * _GRACE}")
            # Set even if the value is right already: otherwise a change of the server's configuration would change it.
            commits = connection.execute("SHOW synchronous_commit").fetchone()[0]
            connection.execute(f"SET synchronous_commit = {'on' if commits in {'off', 'local'} else commits}")
            self._may_queue = connection.execute(_MAY_QUEUE).fetchone()[0] is True
            guarded = connection.execute(_GUARDED).fetchone()[0] is True
        except BaseException:
            connection.close()
            raise
        self._connected = True
        return PreparedConnection(self._driver, connection, limit / 1000 + _GRACE, guarded=guarded)

    def _patiently(
        self, begin: str, work: Callable[[PostgresTransaction], T], on_step: OnStep, *, repeatable: bool
    ) -> T:
        """Run `work` again after a lost connection, if that is safe, until the timeout has passed."""
        deadline = time.monotonic() + self._timeout
        refusals = 0
        while True:
            try:
                return self._transact(begin, work, on_step)
            except _Lost as lost:
                if lost.committing and not repeatable:
                    raise LedgerUnavailable(
                        f"{self._place} was lost in the middle of a commit: it is not known whether the spend was "
                        "recorded, so nothing may be released for it; give a key to make a retry safe (a row that is "
                        "visible now may still be lost in a crash)"
                    ) from lost.__cause__
                refusals = refusals + 1 if lost.refused else 0
                if refusals > 1:
                    raise LedgerUnavailable(f"{self._place} cannot be opened ({lost})") from lost.__cause__
                if time.monotonic() >= deadline:
                    raise LedgerUnavailable(
                        f"{self._place} could not be reached for {self._timeout:g} s ({lost}): nothing may be released"
                    ) from lost.__cause__
                time.sleep(_REFUSED_PAUSE if lost.refused else _RETRY_PAUSE)

    def _transact(self, begin: str, work: Callable[[PostgresTransaction], T], on_step: OnStep) -> T:
        try:
            session, epoch = self._pool.take()
        except self._driver.Error as error:
            if _starts(error.sqlstate, _HOPELESS):
                raise LedgerUnavailable(f"{self._place} cannot be opened ({_line(error)})") from error
            raise _Lost(_line(error), committing=False, refused=self._refuses()) from error
        committing = False
        try:
            transaction = PostgresTransaction(session, begin, self._may_queue and begin == _WRITE, self._seen)
            result = work(transaction)
            on_step("committing")
            committing = True
            transaction.commit()
            on_step("committed")
            for row in transaction.written:
                remember(self._seen, row.name, row.sequence, row.head)
        except DiscreetError:
            self._roll_back(session, epoch)
            raise
        except self._driver.Error as error:
            # An error without a code does not come from the server: the connection failed.
            lost = (
                session.lost
                or error.sqlstate is None
                or error.sqlstate in _UNPREPARED
                or _starts(error.sqlstate, _CONNECTION_LOST)
            )
            if lost:
                with contextlib.suppress(self._driver.Error):
                    self._pool.discard(session)
            else:
                self._roll_back(session, epoch)
            # If the flush after a commit failed, it is not known what is on disk. Later commits wait for the disk
            # themselves.
            self._may_queue = self._may_queue and not transaction.committed
            if lost or transaction.committed or isinstance(error, self._driver.errors.DeadlockDetected):
                # A deadlock before the commit has rolled everything back, so running again is safe without a key.
                raise _Lost(_line(error), committing=committing and (lost or transaction.committed)) from error
            raise self._explanation(error) from error
        except BaseException:
            self._roll_back(session, epoch)
            raise
        self._pool.give_back(session, epoch)
        return result

    def _refuses(self) -> bool:
        """Whether the server answers and refuses us, so that waiting for the whole timeout is pointless.

        libpq does not expose the SQLSTATE of a failed connection, only a message, which the server translates. Its ping
        does look at the code: OK means that the server answered, and with anything but "cannot connect now" (57P03), so
        it is not restarting. That leaves wrong credentials, an unknown database and too many connections, which look
        alike from here. Once a connection was made, the first two are ruled out, and it is worth waiting. A host name
        that cannot be resolved is retried too: name servers have outages.
        """
        if self._connected:
            return False
        pq = self._driver.pq
        try:
            # Ping needs no valid user. Another name keeps it from counting as a failed login of the real one.
            address = self._driver.conninfo.make_conninfo(self._url, user="ping", password="", connect_timeout=2)
            answer = pq.PGconn.ping(address.encode())
        except self._driver.ProgrammingError:
            return True  # libpq cannot parse the URL
        return answer in (pq.Ping.OK, pq.Ping.NO_ATTEMPT)

    def _roll_back(self, session: PreparedConnection, epoch: int) -> None:
        try:
            check_not_forked()  # the connection is the parent's
            session.execute("ROLLBACK")
        except BaseException as error:  # an interrupt too: a transaction that stays open would hold the account
            with contextlib.suppress(self._driver.Error):
                self._pool.discard(session)
            if not isinstance(error, self._driver.Error | LedgerUnavailable):
                raise
        else:
            self._pool.give_back(session, epoch)

    def _explanation(self, error: Exception) -> errors.LedgerError:
        kinds = self._driver.errors
        if isinstance(error, kinds.QueryCanceled):  # by an administrator, or by a timeout of the server's own
            return LedgerBusy(f"{self._place} gave up ({_line(error)}): nothing was charged; try again")
        if isinstance(error, kinds.LockNotAvailable):
            return LedgerBusy(
                f"{self._place} was held by others for {self._timeout:g} s: nothing was charged; try again"
            )
        if isinstance(error, kinds.IntegrityError | kinds.ProgrammingError) and not isinstance(
            error, kinds.InsufficientPrivilege
        ):
            return NotALedger(f"{self._place} is not a ledger, or was edited ({_line(error)}); it is left as it is")
        return LedgerUnavailable(
            f"{self._place} cannot be used ({_line(error)}): nothing was charged, and nothing may be released"
        )


class _Lost(Exception):
    """The connection was lost or could not be made.

    `committing` says whether the server may have committed, `refused` whether the server answered and refused us.
    """

    def __init__(self, message: str, *, committing: bool, refused: bool = False) -> None:
        super().__init__(message)
        self.committing = committing
        self.refused = refused


def _starts(sqlstate: str | None, codes: tuple[str, ...]) -> bool:
    """Whether an SQLSTATE is one of these codes, or in one of these classes."""
    return sqlstate is not None and sqlstate.startswith(codes)


def _line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
