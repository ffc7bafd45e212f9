"""Replaces something of the whole process while a pass runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Replacement:
    """Something of the process that is replaced while at least one pass runs; they may overlap in several threads.

    Args:
        replace: replaces it, and returns what undoes that.
    """

    def __init__(self, replace: Callable[[], Callable[[], None]]) -> None:
        self._begin, self._lock, self._passes = replace, threading.Lock(), 0
        self._undo: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The replacement holds within."""
        with self._lock:
            if not self._passes:
                self._undo = self._begin()
            self._passes += 1
        try:
            yield
        finally:
            with self._lock:
                self._passes -= 1
                if not self._passes:
                    self._undo()
