"""A ledger in a SQLite file: write-ahead log, every commit flushed to disk, one writer at a time.

A file is inspected before it is written to: a foreign, empty, truncated or newer file is refused and left as it was.
A new ledger is built under a temporary name and then linked to its own, so a crash never leaves half of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from discreet.errors import DiscreetError, LedgerBusy, LedgerError, LedgerUnavailable, NotALedger
from discreet.ledger.stores import schema
from discreet.ledger.stores.base import OnStep, Pool, Seen, check_not_forked, no_step, remember, seen_at

T = TypeVar("T")

#: "DSLG" in the file's header marks a SQLite file as a ledger.
APPLICATION_ID = 0x44534C47

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_INDEX = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}

# Nanoseconds after a folder's last change until a further change is certain to get another timestamp. File systems
# count time in steps of at most 2 s (FAT). A timestamp that is not a multiple of 10 ms shows that this one counts finer
# than the kernel's clock ticks (at most 10 ms), and 0.1 s is then enough.
_SETTLED_COARSE, _SETTLED_FINE = 2_000_000_000, 100_000_000
_TICK = 10_000_000
# Account rows that a connection keeps in `current`, which bounds its memory.
_MOST_CURRENT = 256
# Seconds between two attempts to lock a file that others hold. SQLite's own waits grow to 0.1 s, but a spend takes less
# than 1 ms: short waits let several processes take turns without idling in between.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.01

_MOUNTS = Path("/proc/self/mountinfo")


class _Connection(sqlite3.Connection):
    """A connection that remembers which files it belongs to."""

    #: Device and inode of the file, its log and the log's index when the connection first wrote. Others mean that the
    #: files were replaced.
    files: tuple[int, ...] | None = None
    #: How the file and its folder looked at the last full check. While both look the same, the log is not checked
    #: again: reading a file's timestamps makes the kernel write a new one at the next commit, which then takes 1.5
    #: times as long.
    seen: tuple[int, ...] | None = None
    #: Rows that this connection wrote last, and SQLite's `data_version` at that time. As long as the version is the
    #: same, no other connection has written, and the rows need not be read: that saves a tenth of a spend.
    current: dict[str, Any]
    version: int | None = None
    #: The folder of the copy that is read, if it is a copy. It is removed together with this object.
    copy: tempfile.TemporaryDirectory[str] | None = None
    #: How the files looked before they were read, if they are read without locks.
    looked: tuple[int, ...] | None = None


class SQLiteTransaction:
    """One open transaction on a file."""

    guarded = False
    for_update = lock_accounts = ""  # BEGIN IMMEDIATE has locked the whole file
    table_exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

    visible_is_durable = True  # the log is flushed before the log's index shows a commit to others

    def __init__(
        self, connection: _Connection, seen: Seen | None = None, current: dict[str, Any] | None = None
    ) -> None:
        """`current` is for a transaction that writes: nobody else commits until it ends."""
        self.connection = connection
        self.seen = {} if seen is None else seen
        self.seen_before = self.seen.copy() if current is None else self.seen
        self.current = {} if current is None else current
        self.written: list[Any] = []

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: object) -> None:
        self.connection.execute(sql, values)


class SQLiteStore:
    """A file that keeps a ledger; see `Store` for what each method promises."""

    def __init__(self, location: str, *, create: bool, timeout: float, on_step: OnStep) -> None:
        # Resolved once: SQLite's log lies beside the real file, and the working directory may change later.
        path = Path(os.path.realpath(location))
        self._path = path
        self._name, self._folder = str(path), str(path.parent)
        self._seen = seen_at(self._name)
        self._timeout = timeout
        self._on_step = on_step
        self._writable = True
        self._pool: Pool[_Connection] = Pool(
            lambda: self._connect("rw") if self._writable else self._reader(), lambda connection: connection.close()
        )
        try:
            if not path.exists():
                if not create:
                    raise LedgerUnavailable(
                        f"there is no ledger at {str(path)!r}: with create=True one is started there"
                    )
                self._create()
            if _mounted_alone(self._name):
                raise LedgerUnavailable(
                    f"the ledger {self._name!r} is mounted without its folder: its log is not shared with other mounts "
                    "of the file, and each side would miss what the other charged; mount its folder"
                )
            self._writable = os.access(self._name, os.W_OK) and os.access(self._folder, os.W_OK)
            version = self._inspect()
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {str(path)!r} cannot be reached: {error.strerror}") from error
        if version < len(schema.MIGRATIONS):
            self.write(schema.migrate)

    def write(self, work: Callable[[SQLiteTransaction], T], *, keyed: bool = False) -> T:
        if not self._writable:
            raise LedgerUnavailable(
                f"the ledger {self._name!r} cannot be opened for writing: nothing was charged; the file, the files "
                "beside it and their folder must be writable"
            )
        try:
            return self._transact(work, self._on_step, writes=True)
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def read(self, work: Callable[[SQLiteTransaction], T]) -> T:
        with self._explained():
            return self._patiently(lambda: self._read(work))

    def _read(self, work: Callable[[SQLiteTransaction], T]) -> T:
        """Run `work` on a snapshot. Where it cannot be locked, what was read counts only if nobody wrote meanwhile."""

        def unlocked(transaction: SQLiteTransaction) -> T:
            try:
                return work(transaction)
            finally:
                if transaction.connection.looked not in {None, self._looks()}:
                    raise _written_meanwhile()

        return self._transact(work if self._writable else unlocked, no_step, writes=False)

    def damage(self) -> str | None:
        try:
            report = self.read(lambda transaction: transaction.rows("PRAGMA integrity_check(1)"))
        except NotALedger as error:
            return str(error)
        return None if report == [("ok",)] else str(report[0][0])

    def close(self) -> None:
        self._pool.close()

    def _transact(self, work: Callable[[SQLiteTransaction], T], on_step: OnStep, *, writes: bool) -> T:
        connection, epoch = self._pool.take()
        try:
            if writes:
                self._begin(connection)
                transaction = SQLiteTransaction(connection, self._seen, connection.current)
            else:
                connection.execute("BEGIN")
                transaction = SQLiteTransaction(connection, self._seen)
            result = work(transaction)
            on_step("committing")
            check_not_forked()  # until here, a forked child has changed nothing outside of its own memory
            connection.execute("COMMIT")
            on_step("committed")
            if writes:
                self._same_files(connection)
                for row in transaction.written:
                    remember(self._seen, row.name, row.sequence, row.head)
        except BaseException:
            connection.version = None  # `current` may hold rows that are now rolled back
            try:
                check_not_forked()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except (sqlite3.Error, LedgerUnavailable):
                self._pool.discard(connection)
            else:
                self._release(connection, epoch)
            raise
        self._release(connection, epoch)
        return result

    def _release(self, connection: _Connection, epoch: int) -> None:
        if self._writable:
            self._pool.give_back(connection, epoch)
        else:
            self._pool.discard(connection)  # without locks, it would not notice what others write

    def _begin(self, connection: _Connection) -> None:
        """Lock the file for writing, and forget the rows in `current` if another connection has written since.

        SQLite's `data_version` changes with every commit of another connection, in this process or any other, and with
        none of this one.
        """
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY:
                raise
            self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        [(version,)] = connection.execute("PRAGMA data_version")
        if version != connection.version or len(connection.current) > _MOST_CURRENT:
            connection.version, connection.current = version, {}
        self._same_files(connection)  # before anything is written over what others wrote

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Retry while others hold the file, until the timeout has passed since the first failure."""
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
            time.sleep(pause * (0.5 + time.perf_counter_ns() % 1024 / 1024))  # jitter, so that waiters spread out
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _same_files(self, connection: _Connection) -> None:
        """Raise if the files on disk are no longer those that this connection writes to.

        Commits vanish if someone deletes or replaces the files, or closes a descriptor of them in this process: that
        drops SQLite's locks, and others may then remove its log. So this is checked after each commit, before anything
        may be released. It is checked before each write too: a connection with a log index (-shm) of its own would
        overwrite what others wrote since.

        The log is checked only if its folder has changed since the last check, or changed so recently before it that
        one more change might not show in the folder's timestamps.
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
        """How many names the file has, after removing temporary names that a crash left behind in `_create`."""
        for temporary in self._path.parent.glob(f".{self._path.name}.*.new"):
            with contextlib.suppress(OSError):
                if temporary.samefile(self._path):
                    temporary.unlink()
        return os.stat(self._path).st_nlink

    def _connect(self, mode: str, path: Path | None = None) -> _Connection:
        uri = (path or self._path).absolute().as_uri() + f"?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")  # in WAL mode, only FULL flushes the log at each commit
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA busy_timeout = 0")  # `_patiently` retries instead
        except BaseException:
            connection.close()
            raise
        return connection

    def _reader(self) -> _Connection:
        """A connection for someone who may not write to the file or its folder, such as an auditor.

        SQLite locks a file with a log through an index beside it (-shm), which it must be able to open.

        - There is no log: everything is in the file, which is read as it is, without locks ("immutable").
        - The log has its index: others use the ledger now, and SQLite reads it beside them.
        - The log has no readable index, as in a copy of a ledger in use: SQLite must make one, so a copy of both files
          in a temporary folder is read.
        """
        looked = self._looks()
        if not _size(f"{self._name}-wal"):
            connection = self._connect("ro&immutable=1")
            connection.looked = looked
            return connection
        try:
            return self._connect("ro")  # its first pragma reads the file
        except sqlite3.OperationalError as error:
            if _code(error) not in _NO_INDEX:
                raise
        copy = tempfile.TemporaryDirectory(prefix="discreet-")
        target = Path(copy.name, "copy.ledger")
        shutil.copyfile(self._name, target)
        shutil.copyfile(f"{self._name}-wal", f"{target}-wal")
        connection = self._connect("ro", target)
        connection.copy, connection.looked = copy, looked
        return connection

    def _looks(self) -> tuple[int, ...]:
        """What changes when someone writes to the file or its log."""
        file, log = os.stat(self._name), _size(f"{self._name}-wal")
        return file.st_ino, file.st_size, file.st_mtime_ns, log

    def _create(self) -> None:
        """Build an empty ledger under a temporary name and link it; of several processes, the first to link wins."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}-{threading.get_ident()}.new")
        with self._explained():
            try:
                connection = self._connect("rwc", temporary)
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    schema.migrate(SQLiteTransaction(connection))
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute("COMMIT")
                finally:
                    connection.close()
                _sync(temporary)
                self._on_step("built")
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, self._path)
                self._on_step("linked")
                _sync(self._path.absolute().parent)
            except OSError as error:
                raise LedgerUnavailable(f"no ledger can be made at {str(self._path)!r}: {error.strerror}") from error
            finally:
                temporary.unlink(missing_ok=True)

    def _inspect(self) -> int:
        """The schema's number, read through a read-only connection."""
        if self._path.stat().st_size == 0:
            raise NotALedger(f"{str(self._path)!r} is empty: it was truncated, or was never a ledger; it is untouched")
        with self._explained():
            with contextlib.closing(self._connect("ro") if self._writable else self._reader()) as connection:
                if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                    raise NotALedger(f"{str(self._path)!r} is a SQLite file, but not a ledger; it is untouched")
                version = schema.version(SQLiteTransaction(connection))
                self._check_size(connection)
            schema.check(version)
            return version

    def _check_size(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that ends inside its last page: SQLite itself would read it without an error."""
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        # The order matters: if the log is empty after the pages were counted, all of those pages are in the file.
        log = self._path.with_name(self._path.name + "-wal")
        logged = log.exists() and log.stat().st_size > 0
        if not logged and self._path.stat().st_size < pages * size:
            raise NotALedger(
                f"{str(self._path)!r} was truncated: it ends before the last of its {pages} pages; it is untouched"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate SQLite's errors into ours."""
        try:
            yield
        except DiscreetError:
            raise
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def _explanation(self, error: sqlite3.Error) -> LedgerError:
        code = _code(error)
        subject = f"the ledger {str(self._path)!r}"
        if code in _BUSY:
            return LedgerBusy(f"{subject} was held by others for {self._timeout:g} s: nothing was charged; try again")
        if code in _BROKEN or "no such table" in str(error) or "no such column" in str(error):
            return NotALedger(f"{subject} is not a ledger, or was truncated or edited ({error}); it is left as it is")
        if code == sqlite3.SQLITE_FULL:
            return LedgerUnavailable(f"{subject} has no room left ({error}): nothing was charged; free some space")
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
            return LedgerUnavailable(
                f"{subject} cannot be opened for writing ({error}): nothing was charged; the file, the files beside it "
                "and their folder must be writable"
            )
        return LedgerUnavailable(f"{subject} cannot be used ({error}): nothing may be released for this spend")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; an error of the driver itself has none."""
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return extended & 0xFF


def _written_meanwhile() -> sqlite3.OperationalError:
    """What SQLite itself raises where it can lock."""
    error = sqlite3.OperationalError("others wrote while this was read")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def _size(name: str) -> int:
    """The size of a file, 0 if there is none."""
    try:
        return os.stat(name).st_size
    except FileNotFoundError:
        return 0


def _mounted_alone(name: str) -> bool:
    """Whether a file was mounted without its folder, as containers allow; known on Linux only."""
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    points = (line.split(" ")[4] for line in lines if line.count(" ") > 4)  # the fifth field is the mount point
    return any(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point) == name for point in points)


def _settled(now: int, *changed: int) -> bool:
    """Whether any change from `now` on gets a timestamp that differs from these; all are in nanoseconds."""
    fine = all(moment % _TICK for moment in changed)
    return now - max(changed) > (_SETTLED_FINE if fine else _SETTLED_COARSE)


def _sync(path: Path) -> None:
    """Flush a file, or a folder's list of files, to disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
