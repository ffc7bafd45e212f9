"""The lock that all traces take."""

from __future__ import annotations

import threading

#: While torch traces, it patches `nn.Module.__call__` for the whole process. Two threads that trace at once would leave
#: the patches behind.
TRACE_LOCK = threading.RLock()
