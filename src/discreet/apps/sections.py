"""Tables of a TOML file, read so that a misspelt or unknown key is found before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discreet import _check
from discreet.errors import InvalidArgument


class Section:
    """A table of the file. Every key in it must be read; `done` refuses the others."""

    def __init__(self, name: str, content: Mapping[str, Any], see: str = "docs/cli.md") -> None:
        self._name = name
        self._content = content
        self._see = see
        self._asked: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the table has a key."""
        return key in self._content

    def names(self) -> list[str]:
        """All keys."""
        return list(self._content)

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any = None) -> Any:
        self._asked.add(key)
        value = self._content.get(key, default)
        if value is None:
            raise InvalidArgument(f"{key} must be given in {self._name}: it is {words}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _check.fail(f"{key} in {self._name}", f"be {words}", value, f"{self._see} has an example")
        return value

    def section(self, key: str, *, optional: bool = False) -> Section:
        """A table inside this one."""
        content = self._get(key, dict, f"a table [{key}]", {} if optional else None)
        inside = key if self._name == "the file" else f"{self._name.strip('[]')}.{key}"
        return Section(f"[{inside}]", content, self._see)

    def sections(self, key: str) -> list[tuple[str, Section]]:
        """The named tables inside an optional one, such as [users.ann] and [users.bob] for "users"."""
        outer = self.section(key, optional=True)
        return [(name, outer.section(name)) for name in outer.names()]

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        return str(self._get(key, str, "a text", default))

    def number(self, key: str, default: float | None = None) -> float:
        """A number."""
        return float(self._get(key, (int, float), "a number", default))

    def optional_number(self, key: str) -> float | None:
        """A number, or None if it is not given."""
        self._asked.add(key)
        return self.number(key) if key in self._content else None

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self._get(key, bool, "true or false", default))

    def whole(self, key: str, *, at_least: int = 1, default: int | None = None) -> int:
        """A whole number."""
        return _check.integer(
            f"{key} in {self._name}", self._get(key, int, "an integer", default), f"see {self._see}", at_least=at_least
        )

    def optional_whole(self, key: str, *, at_least: int = 1) -> int | None:
        """A whole number, or None if it is not given."""
        self._asked.add(key)
        return self.whole(key, at_least=at_least) if key in self._content else None

    def values(self, key: str) -> list[Any]:
        """A list."""
        return list(self._get(key, list, "a list"))

    def whole_numbers(self, key: str, default: list[int]) -> list[int]:
        """A list of whole numbers."""
        return [
            _check.integer(f"{key} in {self._name}", value, f"see {self._see}")
            for value in self._get(key, list, "a list of integers", default)
        ]

    def get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any = None) -> Any:
        """A value of another kind, such as a time; `words` say which."""
        return self._get(key, kind, words, default)

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        left = sorted(set(self._content) - self._asked)
        if left:
            accepted = ", ".join(sorted(self._asked))
            raise InvalidArgument(f"{left[0]!r} is unknown in {self._name}: it takes {accepted}")
