"""What all traces have in common: one at a time, and quietly."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

#: While torch traces, it patches `nn.Module.__call__` for the whole process. Two threads that trace at once would leave
#: the patches behind.
TRACE_LOCK = threading.RLock()
#: Reports each operation that cannot run without data as an error, with its stack.
_fake_tensors = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def tracing() -> Iterator[None]:
    """Trace within. Parts of the tracer warn about each other, never about the model; that is not shown."""
    with TRACE_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disabled, _fake_tensors.disabled = _fake_tensors.disabled, True
        try:
            yield
        finally:
            _fake_tensors.disabled = disabled
