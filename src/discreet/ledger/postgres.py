"""A ledger in PostgreSQL, for a team: row locks on the accounts, commits forced to disk, patience with restarts.

A transaction that was lost before its commit was sent is run again, because the server has rolled it back. One that was
lost in the middle of a commit is run again only where a key finds what it may have left.

Where many spend from one account, each would wait for the disk while it holds the account, and all others with it. So
after a connection had to wait for an account, its next transaction commits to memory, which frees the account, and then
waits until the log has reached the disk up to a mark of its own: one flush serves all who wait for one. A receipt is
given after that. It also queues up for the account before it asks for the row: where many wait for a row itself, the
server wakes each of them twice, and has them look for the newest version of the row.
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
from discreet.ledger import schema
from discreet.ledger.session import Session, Statement
from discreet.ledger.store import Pool, Step, no_step

T = TypeVar("T")

_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_LOCKS = 0x44534C47  # ours among the server's advisory locks: alone for migrations, with a number for an account
_WAIT = 0.1
# So many seconds longer than for a lock does either side wait for the other, should it be frozen.
_SILENT = 30
_LONGEST = 2e6  # seconds: a server counts milliseconds, up to 2³¹
# An account that is locked later than after so many seconds is wanted by others too.
_CROWDED = 0.001
# A place in the queue for an account, until the transaction ends. It is a courtesy: what counts is the row's lock.
_QUEUE = f"SELECT pg_advisory_xact_lock({_LOCKS}, ?)"
_LATER = "SET LOCAL synchronous_commit = off"
# A record in the server's log, whose commit is forced to disk together with all that is in the log before it.
_MARK = "SELECT pg_logical_emit_message(true, 'discreet', '')"
# The server no longer has a prepared statement, or has one of that name from someone else: the connection is not ours.
_FORGOTTEN = ("26000", "42P05")
# What waiting does not mend.
_HOPELESS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "could not translate host name")
_MAY_QUEUE = (
    "SELECT bool_and(has_function_privilege(oid, 'execute')) FROM pg_proc "
    "WHERE proname IN ('pg_logical_emit_message', 'pg_advisory_xact_lock')"
)


def driver() -> Any:
    """psycopg 3, or how to install it."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("a ledger in PostgreSQL needs psycopg: pip install 'discreet[ledger]'") from error
    return psycopg


class PostgresTransaction:
    """One open transaction on a server. Changes are kept back and sent together with what follows, in one message."""

    for_update = " FOR UPDATE"

    def __init__(self, session: Session, begin: str, may_queue: bool) -> None:
        self._session = session
        self._may_queue = may_queue
        self._crowded = self._later = self.committed = False
        self.known: dict[str, Any] = {}  # others may write as soon as the transaction before has ended
        self._waiting: list[Statement] = [(begin, ())]

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        waiting, self._waiting = self._waiting, []
        if not sql.endswith(self.for_update):
            return self._session.send([*waiting, (sql, values)])
        if self._session.crowded and self._may_queue:
            if not self._later:
                waiting.append((_LATER, ()))
            waiting.append((_QUEUE, (crc32(repr(values).encode()) - 2**31,)))
            self._later = True
        self._session.crowded = False  # where the queue fails, as one that a stranger holds, the next one does without
        start = time.monotonic()
        found = self._session.send([*waiting, (sql, values)])
        self._crowded = self._crowded or time.monotonic() - start > _CROWDED
        self._session.crowded = self._crowded
        return found

    def run(self, sql: str, *values: object) -> None:
        self._waiting.append((sql, values))

    def commit(self) -> None:
        """Send the changes that wait and commit. The server skips the commit if one of them fails.

        Of a crowded account the commit does not wait for the disk, but the mark that follows it in the same message
        does, also where nothing was changed because a key was found: it forces the row that was found to disk.
        """
        changes: list[Statement] = [*self._waiting, ("COMMIT", ())]
        self._waiting = []
        try:
            self._session.send([*changes, (_MARK, ())] if self._later else changes)
        finally:
            self.committed = self._session.done >= len(changes)


class PostgresStore:
    """A database that keeps a ledger; see `Store` for what each method promises."""

    def __init__(self, url: str, *, create: bool, timeout: float, on_step: Step) -> None:
        self._driver = driver()
        self._url = url
        self._timeout = timeout
        self._on_step = on_step
        parts = urlsplit(url)
        # Never the password: this text goes into messages.
        self._place = f"the ledger at postgresql://{parts.hostname or ''}{parts.path}"
        self._pool: Pool[Session] = Pool(self._connect, lambda found: found.close())
        found = self.read(self._found)
        if found is None and not create:
            raise LedgerUnavailable(f"{self._place} does not exist: with create=True one is started there")
        if found is not None:
            schema.check(found)
        if found is None or found < len(schema.MIGRATIONS):
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
    def _found(transaction: PostgresTransaction) -> int | None:
        if transaction.rows("SELECT to_regclass('discreet_schema')")[0][0] is None:
            return None
        return schema.version(transaction)

    @staticmethod
    def _migrate(transaction: PostgresTransaction) -> None:
        transaction.rows("SELECT pg_advisory_xact_lock(?)", _LOCKS)
        schema.migrate(transaction)

    def _connect(self) -> Session:
        limit = max(1, int(1000 * min(self._timeout, _LONGEST)))
        connection = self._driver.connect(
            self._url,
            autocommit=True,
            connect_timeout=max(2, limit // 1000),
            client_encoding="utf8",
            prepare_threshold=None,
        )
        try:
            connection.execute(f"SET lock_timeout = {limit}")
            # A client that freezes inside a transaction must not hold an account for ever.
            connection.execute(f"SET idle_in_transaction_session_timeout = {limit + 1000 * _SILENT}")
            # Also where it is as it should be: one that was not set here would change with the server's configuration.
            commits = connection.execute("SHOW synchronous_commit").fetchone()[0]
            connection.execute(f"SET synchronous_commit = {'on' if commits in {'off', 'local'} else commits}")
            self._may_queue = connection.execute(_MAY_QUEUE).fetchone()[0] is True
        except BaseException:
            connection.close()
            raise
        return Session(self._driver, connection, limit / 1000 + _SILENT)

    def _patiently(self, begin: str, work: Callable[[PostgresTransaction], T], on_step: Step, *, repeatable: bool) -> T:
        """Run `work` again after a lost connection, where that is safe, until the timeout has passed."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._transact(begin, work, on_step)
            except _Lost as lost:
                if lost.committing and not repeatable:
                    raise LedgerUnavailable(
                        f"{self._place} was lost in the middle of a commit: it is not known whether the spend was "
                        "recorded, so nothing may be released for it; give a key to make a retry safe (that the row "
                        "is there to be seen is no proof that it will stay)"
                    ) from lost.__cause__
                if time.monotonic() >= deadline:
                    raise LedgerUnavailable(
                        f"{self._place} could not be reached for {self._timeout:g} s ({lost}): nothing may be released"
                    ) from lost.__cause__
                time.sleep(_WAIT)

    def _transact(self, begin: str, work: Callable[[PostgresTransaction], T], on_step: Step) -> T:
        try:
            session, epoch = self._pool.take()
        except self._driver.Error as error:
            if any(words in str(error) for words in _HOPELESS):
                raise LedgerUnavailable(f"{self._place} cannot be opened ({_line(error)})") from error
            raise _Lost(_line(error), committing=False) from error
        committing = False
        try:
            transaction = PostgresTransaction(session, begin, self._may_queue and begin == _WRITE)
            done = work(transaction)
            on_step("committing")
            committing = True
            transaction.commit()
            on_step("committed")
        except DiscreetError:
            self._roll_back(session, epoch)
            raise
        except self._driver.Error as error:
            # Without a code from the server it is the connection that failed, whatever the driver calls it.
            lost = session.lost or _is_shutdown(error) or error.sqlstate is None or error.sqlstate in _FORGOTTEN
            if lost:
                with contextlib.suppress(self._driver.Error):
                    self._pool.discard(session)
            else:
                self._roll_back(session, epoch)
            # A failure after the commit leaves it open what is on disk. The next ones wait for theirs.
            self._may_queue = self._may_queue and not transaction.committed
            if lost or transaction.committed or isinstance(error, self._driver.errors.DeadlockDetected):
                # A deadlock on the way to the commit has rolled all back.
                raise _Lost(_line(error), committing=committing and (lost or transaction.committed)) from error
            raise self._explanation(error) from error
        except BaseException:
            self._roll_back(session, epoch)
            raise
        self._pool.give_back(session, epoch)
        return done

    def _roll_back(self, session: Session, epoch: int) -> None:
        try:
            session.execute("ROLLBACK")
        except BaseException as error:  # an interrupt too: what is still open would hold the account
            with contextlib.suppress(self._driver.Error):
                self._pool.discard(session)
            if not isinstance(error, self._driver.Error):
                raise
        else:
            self._pool.give_back(session, epoch)

    def _explanation(self, error: Exception) -> errors.LedgerError:
        known = self._driver.errors
        if isinstance(error, known.QueryCanceled):  # by someone, or by a limit of the server's own
            return LedgerBusy(f"{self._place} gave up ({_line(error)}): nothing was charged; try again")
        if isinstance(error, known.LockNotAvailable):
            return LedgerBusy(
                f"{self._place} was held by others for {self._timeout:g} s: nothing was charged; try again"
            )
        if isinstance(error, known.IntegrityError | known.ProgrammingError) and not isinstance(
            error, known.InsufficientPrivilege
        ):
            return NotALedger(f"{self._place} is not a ledger, or was edited ({_line(error)}); it is left as it is")
        return LedgerUnavailable(
            f"{self._place} cannot be used ({_line(error)}): nothing was charged, and nothing may be released"
        )


class _Lost(Exception):
    """The connection went away; `committing` says whether the server may have committed."""

    def __init__(self, message: str, *, committing: bool) -> None:
        super().__init__(message)
        self.committing = committing


def _is_shutdown(error: Exception) -> bool:
    return str(getattr(error, "sqlstate", "") or "").startswith(("57P", "08"))


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
