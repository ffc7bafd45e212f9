"""A connection to PostgreSQL that sends several statements in one message, through libpq itself.

A spend takes two messages. The driver's cursors and pipelines would take three times as long as the server and the
socket, while everyone who spends from the same account waits. `psycopg.pq` is the driver's documented access to libpq.
"""

from __future__ import annotations

import hashlib
import select
from collections.abc import Sequence
from typing import Any

from discreet.errors import InvalidArgument
from discreet.ledger.stores.base import check_not_forked

# Type identifiers (OIDs) of the integers int8, int2 and int4. Columns of any other type are read as text.
_INTEGERS = {20, 21, 23}

# The server's function that warns when a commit stops waiting for the replicas. The server then reports the commit as
# successful, so the warning is the only sign.
_GAVE_UP = "SyncRepWaitForLSN"

#: SQL text with ? for each value, and the values.
SqlStatement = tuple[str, tuple[object, ...]]


class PreparedConnection:
    """One connection. Each statement is prepared when it is first sent, under a name derived from its text."""

    #: Whether the last lock of an account had to wait for others. The next transaction then queues for the account.
    contended = False
    #: Time (`time.monotonic`) until which the session locks accounts without queueing, because a queue did not move.
    no_queue_until = 0.0

    def __init__(self, driver: Any, connection: Any, patience: float, *, guarded: bool = False) -> None:
        """`patience`: how many seconds the server may be silent before the connection counts as lost.

        `guarded`: whether this role may write to the ledger only through the database's functions.
        """
        self.guarded = guarded
        self._driver = driver
        self._patience = patience
        self._connection = connection
        self._libpq = connection.pgconn
        # Names of prepared statements by their text. The server parses and plans each statement once per connection.
        self._prepared: dict[str, bytes] = {}
        self.done = 0
        # Which of the server's functions sent a warning. Their names are not translated; the messages are.
        self._warned = warned = set[str | None]()
        connection.add_notice_handler(lambda notice: warned.add(notice.source_function))
        self._end, self._failed = int(driver.pq.ExecStatus.PIPELINE_SYNC), int(driver.pq.ExecStatus.FATAL_ERROR)

    def execute(self, sql: str) -> Any:
        """Run one statement through the driver."""
        return self._connection.execute(sql)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def lost(self) -> bool:
        """Whether the connection is closed or broken."""
        return bool(self._connection.closed or self._connection.broken)

    def send(self, statements: Sequence[SqlStatement]) -> list[tuple[Any, ...]]:
        """Send all statements in one message, wait for all results, and return the rows of the last one.

        If a statement fails, the server skips those after it, and its error is raised; `done` is then the number of
        statements before it.
        """
        check_not_forked()
        libpq = self._libpq
        new: dict[str, bytes] = {}
        # For each result: the number of its statement, and the text that it prepared, if any.
        owners: list[tuple[int, str]] = []
        self.done = 0
        texts = [[_encoded(value) for value in values] for _, values in statements]
        try:
            libpq.enter_pipeline_mode()
            for number, (sql, _) in enumerate(statements):
                name = self._prepared.get(sql) or new.get(sql)
                if name is None:
                    name = new[sql] = b"discreet_" + hashlib.sha256(sql.encode()).hexdigest()[:32].encode()
                    libpq.send_prepare(name, _numbered(sql).encode())
                    owners.append((number, sql))
                libpq.send_query_prepared(name, texts[number] or None)
                owners.append((number, ""))
            libpq.pipeline_sync()
            results = self._results()
            libpq.exit_pipeline_mode()
            if _GAVE_UP in self._warned:
                raise self._driver.OperationalError("the server gave up waiting for its replicas")
        except BaseException:
            self._connection.close()  # results may still be in flight
            raise
        # A failure at the end of the message, such as the implicit commit of a single statement, gives one more result.
        owners += [(len(statements), "")] * (len(results) - len(owners))
        for (owner, prepared), result in zip(owners, results, strict=False):
            if result.status == self._failed:
                self.done = owner
                raise self._driver.errors.error_from_result(result)
            if prepared:
                self._prepared[prepared] = new[prepared]
        return _rows(results[-1])

    def _results(self) -> list[Any]:
        """The result of each statement, up to the end of the message. Other threads run while this waits."""
        libpq = self._libpq
        while libpq.flush():
            self._wait(writes=True)
            libpq.consume_input()
        results: list[Any] = []
        while True:
            while libpq.is_busy():
                self._wait()
                libpq.consume_input()
            result = libpq.get_result()
            if result is None:
                if libpq.status != self._driver.pq.ConnStatus.OK:
                    for earlier in results:  # a server that shuts down sends an error before it closes the connection
                        if earlier.status == self._failed:
                            raise self._driver.errors.error_from_result(earlier)
                    raise self._driver.OperationalError("the server closed the connection unexpectedly")
            elif result.status == self._end:
                return results
            else:
                results.append(result)

    def _wait(self, *, writes: bool = False) -> None:
        """Sleep until the server sends something or, with `writes`, can take more."""
        socket = self._libpq.socket
        if hasattr(select, "poll"):
            poll = select.poll()  # unlike select(), it takes file descriptors above 1023
            poll.register(socket, select.POLLIN | (select.POLLOUT if writes else 0))
            ready = bool(poll.poll(1000 * self._patience))  # milliseconds
        else:
            ready = any(select.select([socket], [socket] if writes else [], [], self._patience))
        if not ready:
            raise self._driver.OperationalError(f"the server sent nothing for {self._patience:g} s")


def _numbered(sql: str) -> str:
    """The statement with $1, $2, … in place of each ?."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(rest, 1))


def _encoded(value: object) -> bytes | None:
    """A text or an integer in the server's text format."""
    if value is None:
        return None
    if "\0" in (text := str(value)):
        raise InvalidArgument(f"a text must contain no NUL, got {text!r}: PostgreSQL would cut it off there")
    return text.encode()


def _rows(result: Any) -> list[tuple[Any, ...]]:
    reads = [int if result.ftype(column) in _INTEGERS else bytes.decode for column in range(result.nfields)]
    return [
        tuple(
            [
                None if (value := result.get_value(row, column)) is None else read(value)
                for column, read in enumerate(reads)
            ]
        )
        for row in range(result.ntuples)
    ]
