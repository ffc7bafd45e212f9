"""A temporary PostgreSQL server on a local socket, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, or None if PostgreSQL is not installed."""
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
    path = installed[-1] if installed else shutil.which("initdb")
    return None if path is None else Path(path).parent


class Server:
    """A cluster in a temporary folder. PostgreSQL refuses to run as root; for root, another user runs it."""

    def __init__(self, *, durable: bool = True) -> None:
        """Without `durable` its files lie in memory, if possible: a flush costs nothing there."""
        folder = programs()
        if folder is None:
            raise RuntimeError("PostgreSQL is not installed")
        self._programs = folder
        memory = None if durable or not os.access("/dev/shm", os.W_OK) else "/dev/shm"
        self.folder = Path(tempfile.mkdtemp(prefix="discreet-pg-", dir=memory))
        self._user: pwd.struct_passwd | None = None
        if os.getuid() == 0:
            names = {entry.pw_name: entry for entry in pwd.getpwall()}
            self._user = names.get("postgres") or names["nobody"]
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", str(self._data), "-U", "discreet", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        identity: dict[str, object] = {}
        if self._user is not None:
            identity = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,  # seconds; an idle machine needs one
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
            **identity,  # type: ignore[call-overload]  # a user to run as, only where we are root
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-k {self.folder} -h '' -c max_connections=60 -c shared_buffers=16MB"
        options += " -c recovery_init_sync_method=syncfs"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: "immediate" is a crash, "fast" cuts all connections."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    def signal(self, number: int) -> None:
        """Send a signal to the server and to all of its child processes."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        for process in (main, *self._children(main)):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process, number)

    def kill(self) -> None:
        """Kill the server and all of its child processes, as kill -9 does."""
        self.signal(signal.SIGKILL)
        # Where nobody collects a dead process, its number stays taken, and the next start would take it for running.
        for left in (self._data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            left.unlink()

    @staticmethod
    def _children(process: int) -> list[int]:
        """Linux's own list of a process's children may lack some while others end: a frozen one would stay frozen."""
        children = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                children += [int(status.parent.name)] if parent == process else []
        return children

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on this server."""
        return f"postgresql://discreet@/{database}?host={self.folder}"

    def remove(self) -> None:
        """Stop it and delete everything."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
