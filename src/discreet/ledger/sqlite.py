"""A ledger in a SQLite file: write-ahead log, every commit forced to disk, one writer at a time.

A file is looked at before it is written to: what is foreign, empty, truncated or newer is refused and left as it was.
A new ledger is built beside its place and linked into it whole, so no crash leaves half of one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from discreet.errors import DiscreetError, LedgerBusy, LedgerError, LedgerUnavailable, NotALedger
from discreet.ledger import schema
from discreet.ledger.store import Pool, Step, no_step

T = TypeVar("T")

#: "DSLG" in the file's header, which says that a SQLite file is a ledger.
APPLICATION_ID = 0x44534C47

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}


_WRITE = "BEGIN IMMEDIATE"


@dataclass(frozen=True)
class _Identity:
    """Which file, and which write-ahead log, a path stands for."""

    file: tuple[int, int]
    log: tuple[int, int]
    links: int = field(compare=False)


class _Connection(sqlite3.Connection):
    """A connection that remembers which files it was made for."""

    identity: _Identity | None = None


def _identity(path: Path) -> _Identity | None:
    try:
        file, log = os.stat(path), os.stat(f"{path}-wal")
    except FileNotFoundError:
        return None
    return _Identity((file.st_dev, file.st_ino), (log.st_dev, log.st_ino), file.st_nlink)


class SQLiteTransaction:
    """One open transaction on a file."""

    for_update = ""  # BEGIN IMMEDIATE has locked the whole file

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: object) -> None:
        # Rows kept in the order of their key need no index beside them: one page less for every commit to write.
        if sql.startswith("CREATE TABLE discreet_entry "):
            sql += " WITHOUT ROWID"
        self._connection.execute(sql, values)


class SQLiteStore:
    """A file that keeps a ledger; see `Store` for what each method promises."""

    def __init__(self, path: Path, *, create: bool, timeout: float, on_step: Step) -> None:
        path = Path(os.path.realpath(path))  # SQLite's other files lie beside the real one, wherever we go from here
        self._path = path
        self._timeout = timeout
        self._on_step = on_step
        self._pool: Pool[_Connection] = Pool(lambda: self._connect("rw"), lambda found: found.close())
        try:
            if not path.exists():
                if not create:
                    raise LedgerUnavailable(
                        f"there is no ledger at {str(path)!r}: with create=True one is started there"
                    )
                self._create()
            found = self._inspect()
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {str(path)!r} cannot be reached: {error.strerror}") from error
        if found < len(schema.MIGRATIONS):
            self.write(schema.migrate)

    def write(self, work: Callable[[SQLiteTransaction], T], *, keyed: bool = False) -> T:
        return self._transact(_WRITE, work, self._on_step)

    def read(self, work: Callable[[SQLiteTransaction], T]) -> T:
        return self._transact("BEGIN", work, no_step)

    def damage(self) -> str | None:
        try:
            found = self.read(lambda transaction: transaction.rows("PRAGMA quick_check(1)"))
        except NotALedger as error:
            return str(error)
        return None if found == [("ok",)] else str(found[0][0])

    def close(self) -> None:
        self._pool.close()

    def _transact(self, begin: str, work: Callable[[SQLiteTransaction], T], on_step: Step) -> T:
        with self._explained():
            connection, epoch = self._pool.take()
            try:
                connection.execute(begin)
                if begin == _WRITE:
                    self._same_files(connection)
                done = work(SQLiteTransaction(connection))
                on_step("committing")
                connection.execute("COMMIT")
                on_step("committed")
                if begin == _WRITE:
                    self._same_files(connection)
            except BaseException:
                try:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                except sqlite3.Error:
                    self._pool.discard(connection)
                else:
                    self._pool.give_back(connection, epoch)
                raise
            self._pool.give_back(connection, epoch)
            return done

    def _same_files(self, connection: _Connection) -> None:
        """Refuse to believe a commit into files that are no longer the ledger.

        Whoever deletes or replaces them, or closes a descriptor of them in this process, which drops SQLite's locks so
        that others may remove its log, makes later commits vanish. Seen before a commit, nothing was charged; seen
        after one, nothing may be released.
        """
        now = _identity(self._path)
        connection.identity = connection.identity or now
        if now is None or now != connection.identity:
            self._pool.close()
            raise LedgerUnavailable(
                f"the files of the ledger {str(self._path)!r} were replaced, or opened by other means, beneath this "
                "process: it is not known whether the spend was recorded, so nothing may be released for it; "
                "copy a ledger with SQLite's own backup, never by opening it"
            )
        if now.links > 1 and self._names_left() > 1:
            raise LedgerUnavailable(
                f"the ledger {str(self._path)!r} has more than one name (hard links), and each would keep a log of "
                "its own: nothing was charged; remove all names but one"
            )

    def _names_left(self) -> int:
        """How many names the file has, after those are gone that a crash left behind while it was made."""
        for left in self._path.parent.glob(f".{self._path.name}.*.new"):
            with contextlib.suppress(OSError):
                if left.samefile(self._path):
                    left.unlink()
        return os.stat(self._path).st_nlink

    def _connect(self, mode: str, path: Path | None = None) -> _Connection:
        place = (path or self._path).absolute().as_uri() + f"?mode={mode}"
        connection = sqlite3.connect(
            place, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Build an empty ledger beside its place and link it in; whoever links first wins."""
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}-{threading.get_ident()}.new")
        with self._explained():
            try:
                connection = self._connect("rwc", beside)
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    schema.migrate(SQLiteTransaction(connection))
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute("COMMIT")
                finally:
                    connection.close()
                _sync(beside)
                self._on_step("built")
                with contextlib.suppress(FileExistsError):
                    os.link(beside, self._path)
                self._on_step("linked")
                _sync(self._path.absolute().parent)
            except OSError as error:
                raise LedgerUnavailable(f"no ledger can be made at {str(self._path)!r}: {error.strerror}") from error
            finally:
                beside.unlink(missing_ok=True)

    def _inspect(self) -> int:
        """The schema's number, read without the right to write."""
        if self._path.stat().st_size == 0:
            raise NotALedger(f"{str(self._path)!r} is empty: it was truncated, or was never a ledger; it is untouched")
        with self._explained():
            with contextlib.closing(self._connect("ro")) as connection:
                if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                    raise NotALedger(f"{str(self._path)!r} is a SQLite file, but not a ledger; it is untouched")
                found = schema.version(SQLiteTransaction(connection))
                self._check_size(connection)
            schema.check(found)
            return found

    def _check_size(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that ends within its last page, which SQLite itself would read as if it were whole."""
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        # Asked in this order: where the log is empty, all pages that were counted before are in the file.
        log = self._path.with_name(self._path.name + "-wal")
        logged = log.exists() and log.stat().st_size > 0
        if not logged and self._path.stat().st_size < pages * size:
            raise NotALedger(
                f"{str(self._path)!r} was truncated: it has {pages} pages and ends before; it is untouched"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what SQLite says into what the caller can do about it."""
        try:
            yield
        except DiscreetError:
            raise
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def _explanation(self, error: sqlite3.Error) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        place = f"the ledger {str(self._path)!r}"
        if code in _BUSY:
            return LedgerBusy(f"{place} was held by others for {self._timeout:g} s: nothing was charged; try again")
        if code in _BROKEN or "no such table" in str(error) or "no such column" in str(error):
            return NotALedger(f"{place} is not a ledger, or was truncated or edited ({error}); it is left as it is")
        if code == sqlite3.SQLITE_FULL:
            return LedgerUnavailable(f"{place} has no room left ({error}): nothing was charged; free some space")
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
            return LedgerUnavailable(
                f"{place} cannot be opened for writing ({error}): nothing was charged; the file, the files beside it "
                "and their folder must be writable"
            )
        return LedgerUnavailable(f"{place} cannot be used ({error}): nothing may be released for this spend")


def _sync(path: Path) -> None:
    """Force a file, or a folder's list of files, to disk."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
