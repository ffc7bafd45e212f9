"""A ledger in a SQLite file: write-ahead log, every commit forced to disk, one writer at a time.

A file is looked at before it is written to: what is foreign, empty, truncated or newer is refused and left as it was.
A new ledger is built beside its place and linked into it whole, so no crash leaves half of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
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


# Nanoseconds after which a folder's time of change is certain to differ from that of a change that follows: on any
# disk, and on one that shows by the time itself that it counts finer than in hundredths of a second, as clocks tick.
_SETTLED, _SOON = 2_000_000_000, 100_000_000
_TICK = 10_000_000
# How many rows a connection keeps in mind.
_REMEMBERED = 256
# Seconds between two attempts to take a file that others hold.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.01


_MOUNTS = Path("/proc/self/mountinfo")


class _Connection(sqlite3.Connection):
    """A connection that remembers its files, and what it wrote as long as no other connection has written since."""

    files: tuple[int, ...] | None = None  # the file and its log that the connection was made for
    seen: tuple[int, ...] | None = None  # how the file and its folder looked when all was well
    version: int | None = None  # SQLite's count of what others wrote
    known: dict[str, Any]


class SQLiteTransaction:
    """One open transaction on a file."""

    for_update = ""  # BEGIN IMMEDIATE has locked the whole file

    def __init__(self, connection: sqlite3.Connection, known: dict[str, Any] | None = None) -> None:
        self._connection = connection
        self.known = {} if known is None else known

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: object) -> None:
        self._connection.execute(sql, values)


class SQLiteStore:
    """A file that keeps a ledger; see `Store` for what each method promises."""

    def __init__(self, path: Path, *, create: bool, timeout: float, on_step: Step) -> None:
        path = Path(os.path.realpath(path))  # SQLite's other files lie beside the real one, wherever we go from here
        self._path = path
        self._name, self._folder = str(path), str(path.parent)
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
            if _mounted_alone(self._name):
                raise LedgerUnavailable(
                    f"the ledger {self._name!r} is mounted by itself, so that its log here is another than that beside "
                    "the file elsewhere, and each side would miss what the other charged: mount its folder"
                )
            found = self._inspect()
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {str(path)!r} cannot be reached: {error.strerror}") from error
        if found < len(schema.MIGRATIONS):
            self.write(schema.migrate)

    def write(self, work: Callable[[SQLiteTransaction], T], *, keyed: bool = False) -> T:
        try:
            return self._transact(work, self._on_step, writes=True)
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def read(self, work: Callable[[SQLiteTransaction], T]) -> T:
        with self._explained():
            return self._patiently(lambda: self._transact(work, no_step, writes=False))

    def damage(self) -> str | None:
        try:
            found = self.read(lambda transaction: transaction.rows("PRAGMA integrity_check(1)"))
        except NotALedger as error:
            return str(error)
        return None if found == [("ok",)] else str(found[0][0])

    def close(self) -> None:
        self._pool.close()

    def _transact(self, work: Callable[[SQLiteTransaction], T], on_step: Step, *, writes: bool) -> T:
        connection, epoch = self._pool.take()
        try:
            if writes:
                self._begin(connection)
                transaction = SQLiteTransaction(connection, connection.known)
            else:
                connection.execute("BEGIN")
                transaction = SQLiteTransaction(connection)
            done = work(transaction)
            on_step("committing")
            connection.execute("COMMIT")
            on_step("committed")
            if writes:
                self._same_files(connection)
        except BaseException:
            connection.version = None  # what was written may be rolled back
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

    def _begin(self, connection: _Connection) -> None:
        """Take the file for writing. What this connection knows stays known if no other has written in between.

        SQLite's `data_version` changes with every commit of another connection, of this process or any other, and with
        none of this one.
        """
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY:
                raise
            self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        [(version,)] = connection.execute("PRAGMA data_version")
        if version != connection.version or len(connection.known) > _REMEMBERED:
            connection.version, connection.known = version, {}
        self._same_files(connection)  # before anything is written over what others wrote

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try again while others hold the file, until the timeout has passed.

        SQLite's own waits grow to a tenth of a second, and a spend takes less than a thousandth: trying more often lets
        several processes take turns without idling in between.
        """
        deadline, pause = 0.0, _SHORTEST_PAUSE
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY:
                    raise
                deadline = deadline or time.monotonic() + self._timeout
                if time.monotonic() >= deadline:
                    raise
            time.sleep(pause * (0.5 + time.perf_counter_ns() % 1024 / 1024))
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _same_files(self, connection: _Connection) -> None:
        """Refuse to believe a commit into files that are no longer the ledger.

        Whoever deletes or replaces them, or closes a descriptor of them in this process, which drops SQLite's locks so
        that others may remove its log, makes later commits vanish. So it is asked after each commit, before anything
        may be released. It is asked before anything is written as well: with a log's index (-shm) of its own, a
        connection would write over what others wrote since.

        Looking at a file's times makes the next write to it cost a new time, and the next commit half as much again. So
        the log is looked at only when its folder has changed, or changed so lately that one more change might not show.
        """
        try:
            file, folder = os.stat(self._name), os.stat(self._folder)
            seen = file.st_dev, file.st_ino, file.st_nlink, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns
            if seen == connection.seen:
                return
            log, index = os.stat(f"{self._name}-wal"), os.stat(f"{self._name}-shm")
        except FileNotFoundError:
            same = False
        else:
            files = file.st_dev, file.st_ino, log.st_dev, log.st_ino, index.st_dev, index.st_ino
            connection.files = connection.files or files
            same = files == connection.files
        if not same:
            self._pool.close()
            raise LedgerUnavailable(
                f"the files of the ledger {self._name!r} were replaced, or opened by other means, beneath this "
                "process: it is not known whether the spend was recorded, so nothing may be released for it; "
                "copy a ledger with SQLite's own backup, never by opening it"
            )
        if file.st_nlink > 1 and self._names_left() > 1:
            raise LedgerUnavailable(
                f"the ledger {self._name!r} has more than one name (hard links), and each would keep a log of "
                "its own: nothing may be released for this spend; remove all names but one"
            )
        settled = _settled(time.time_ns(), folder.st_mtime_ns, folder.st_ctime_ns)
        connection.seen = seen if settled and file.st_nlink == 1 else None

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
            connection.execute("PRAGMA busy_timeout = 0")  # `_patiently` waits
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
        code = _code(error)
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


def _code(error: sqlite3.Error) -> int:
    """SQLite's code for what went wrong; an error of the driver itself has none."""
    found: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return found & 0xFF


def _mounted_alone(name: str) -> bool:
    """Whether a file was mounted without its folder, as containers allow; only Linux tells."""
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    places = (line.split(" ")[4] for line in lines if line.count(" ") > 4)
    return any(re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), place) == name for place in places)


def _settled(now: int, *changed: int) -> bool:
    """Whether whatever changes from now on gets another time than these, in nanoseconds."""
    pause = min(_SETTLED, _SOON) if all(moment % _TICK for moment in changed) else _SETTLED
    return now - max(changed) > pause


def _sync(path: Path) -> None:
    """Force a file, or a folder's list of files, to disk."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
