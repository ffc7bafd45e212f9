"""What a search must remember to continue after a crash. All of it is secret: how many trials there are, and scores."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from discreet import _check
from discreet._files import locked, replace_file


class Journal:
    """The drawn trials and the best run so far, in a folder that only its owner can read; in memory without one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock: IO[bytes] | None = None
        self._begun: dict[str, Any] | None = None
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            refusal = f"folder must not be in use, and another process searches in {folder}"
            self._lock = locked(folder / "lock", refusal)  # two processes would draw twice for one charge
            file = folder / "search.json"
            self._begun = json.loads(file.read_text()) if file.exists() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()  # which gives up the lock

    @property
    def token(self) -> str | None:
        """The token under which the search in this folder was charged; None before it began."""
        return None if self._begun is None else str(self._begun["token"])

    def begin(self, facts: dict[str, str], token: str) -> None:
        """Write down what is searched for and the token of its charge, before the charge."""
        if self._folder is not None and self._begun is None:
            content = json.dumps({"facts": facts, "token": token}).encode()
            replace_file(self._folder / "search.json", lambda out: out.write(content))

    def check(self, facts: dict[str, str]) -> None:
        """Refuse a folder that holds another search: its trials are numbers of other candidates."""
        if self._begun is None:
            if self._folder is not None and any(self._folder.glob("*.*")):
                raise _check.fail("folder", "be empty or hold a search", "other files", "give each search its folder")
            return
        differ = [name for name, value in facts.items() if self._begun["facts"].get(name) != value]
        if differ:
            remedy = "a folder and its key belong to one search; use others"
            raise _check.fail("folder", f"hold a search with the same {differ[0]}", "another search", remedy)

    def order(self, draw: Callable[[], list[int]]) -> list[int]:
        """The candidates of the trials, drawn once: a search that continues runs the same ones."""
        order: list[int] = self._once("trials", draw)
        return order

    def choice(self, draw: Callable[[], tuple[int, list[int] | None]]) -> tuple[int, list[int] | None]:
        """The private choice, drawn once: one charge pays for one draw."""
        chosen, shown = self._once("choice", draw)
        return chosen, shown

    def _once(self, name: str, draw: Callable[[], Any]) -> Any:
        """What was drawn under this name, or a first draw, which is on disk before anybody sees it."""
        if self._folder is None:
            return draw()
        file = self._folder / f"{name}.json"
        if not file.exists():
            content = json.dumps(draw()).encode()
            replace_file(file, lambda out: out.write(content))
        return json.loads(file.read_text())

    def load(self) -> tuple[int, Any]:
        """How many trials are done, and the best of them."""
        file = None if self._folder is None else self._folder / "best.pickle"
        if file is None or not file.exists():
            return 0, None
        done, best = pickle.loads(file.read_bytes())
        return int(done), best

    def save(self, done: int, best: Any) -> None:
        """Remember how many trials are done, and the best of them."""
        if self._folder is not None:
            content = pickle.dumps((done, best))
            replace_file(self._folder / "best.pickle", lambda out: out.write(content))
