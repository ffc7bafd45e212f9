"""Files that must survive a crash: replaced as a whole, readable by their owner alone, and locked by one process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from discreet.errors import InvalidArgument


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file atomically and durably: after a crash there is the old file or the new one.

    Only its owner can read the new file.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp sets the mode to 0600
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name must be flushed to disk as well
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def locked(path: Path, refusal: str) -> IO[bytes]:
    """An open file at `path` that is locked as long as it is open; `refusal` is the error if another process has it.

    On systems without such locks the file is only opened.
    """
    handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb")
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError:
        handle.close()
        raise InvalidArgument(refusal) from None
    return handle
