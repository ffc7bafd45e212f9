"""A connection to PostgreSQL that sends several statements in one message, through libpq itself.

A spend is two messages. Cursors and pipelines of the driver cost three times what the server and the socket do, and
everyone who spends from the same account waits for it. `psycopg.pq` is the driver's documented door to libpq.
"""

from __future__ import annotations

import hashlib
import select
from collections.abc import Sequence
from typing import Any

from discreet.errors import InvalidArgument

# Object identifiers of the types whose text is an integer: int8, int2, int4.
_WHOLE = {20, 21, 23}

# Where the server warns that it gave up waiting for its replicas. It then says of a commit that all is well.
_GAVE_UP = "SyncRepWaitForLSN"

Statement = tuple[str, tuple[object, ...]]


class Session:
    """One connection. Every statement is prepared when it is first sent, under a name that is made from its text."""

    crowded = False  # whether others were waited for when it last locked an account

    def __init__(self, driver: Any, connection: Any, patience: float) -> None:
        """`patience`: how many seconds the server may be silent before it counts as lost."""
        self._driver = driver
        self._patience = patience
        self._connection = connection
        self._libpq = connection.pgconn
        self._prepared: dict[str, bytes] = {}
        self.done = 0
        self._warned = warned = set[str | None]()  # by which of the server's functions; texts are translated
        connection.add_notice_handler(lambda said: warned.add(said.source_function))
        self._end, self._failed = int(driver.pq.ExecStatus.PIPELINE_SYNC), int(driver.pq.ExecStatus.FATAL_ERROR)

    def execute(self, sql: str) -> Any:
        """Run one statement by the driver's own means."""
        return self._connection.execute(sql)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def lost(self) -> bool:
        """Whether the connection is closed or broken."""
        return bool(self._connection.closed or self._connection.broken)

    def send(self, statements: Sequence[Statement]) -> list[tuple[Any, ...]]:
        """Send all statements in one message and wait for all answers; the rows that the last one found.

        The server skips what follows a statement that fails, and that statement's error is raised; `done` is the number
        of statements before it.
        """
        libpq = self._libpq
        new: dict[str, bytes] = {}
        owners: list[tuple[int, str]] = []  # whose answer is whose, and what it prepared
        self.done = 0
        texts = [[_written(value) for value in values] for _, values in statements]
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
            results = self._answers()
            libpq.exit_pipeline_mode()
            if _GAVE_UP in self._warned:
                raise self._driver.OperationalError("the server gave up waiting for its replicas")
        except BaseException:
            self._connection.close()  # answers may still be on their way
            raise
        # What fails when the message ends, as the commit of a statement on its own, comes after all answers.
        owners += [(len(statements), "")] * (len(results) - len(owners))
        for (owner, prepared), result in zip(owners, results, strict=False):
            if result.status == self._failed:
                self.done = owner
                raise self._driver.errors.error_from_result(result)
            if prepared:
                self._prepared[prepared] = new[prepared]
        return _rows(results[-1])

    def _answers(self) -> list[Any]:
        """What the server says to each statement, up to the end of the message. Other threads run while it waits."""
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
                    for said in results:  # a server that is shut down says so before it goes
                        if said.status == self._failed:
                            raise self._driver.errors.error_from_result(said)
                    raise self._driver.OperationalError("the server closed the connection unexpectedly")
            elif result.status == self._end:
                return results
            else:
                results.append(result)

    def _wait(self, *, writes: bool = False) -> None:
        """Sleep until the server has something to say, or can be told more."""
        socket = self._libpq.socket
        if hasattr(select, "poll"):
            ready = select.poll()
            ready.register(socket, select.POLLIN | (select.POLLOUT if writes else 0))
            heard = bool(ready.poll(1000 * self._patience))
        else:
            heard = any(select.select([socket], [socket] if writes else [], [], self._patience))
        if not heard:
            raise self._driver.OperationalError(f"the server said nothing for {self._patience:g} s")


def _numbered(sql: str) -> str:
    """The same statement with $1, $2 … for each ?."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def _written(value: object) -> bytes | None:
    """A text or an integer as the server reads it."""
    if value is None:
        return None
    if "\0" in (text := str(value)):
        raise InvalidArgument(f"a text must hold no NUL, got {text!r}: PostgreSQL would end it there")
    return text.encode()


def _rows(result: Any) -> list[tuple[Any, ...]]:
    reads = [int if result.ftype(column) in _WHOLE else bytes.decode for column in range(result.nfields)]
    return [
        tuple(
            [
                None if (value := result.get_value(row, column)) is None else read(value)
                for column, read in enumerate(reads)
            ]
        )
        for row in range(result.ntuples)
    ]
