"""Functions of text that never fail and mean the same on every engine.

Positions and lengths count Unicode code points. Letters change case for A to Z alone: beyond these, engines and their
settings disagree. Patterns have no escape character.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import ibis

from discreet import _check
from discreet.analytics.table.expressions.calls import Methods, RowFunction, within
from discreet.analytics.table.semantics import family, literal

if TYPE_CHECKING:
    from discreet.analytics.table.expressions.nodes import Expression

_LOWER, _UPPER = string.ascii_lowercase, string.ascii_uppercase
#: No text that engines hold is longer.
_LONGEST = float(2**31)
#: The most characters of a text that a function has made longer. Without a limit, `concat` and `replace` could make one
#: row's text so long that the engine fails, and the failure would tell that the row is there.
LONGEST_MADE = 10_000


def text(value: Any, wanted_by: str) -> Any:
    """An engine's text; anything else is refused."""
    if family(value) != "text":
        raise _check.fail(wanted_by, "get text", f"a value of type {value.type()}", "cast it to text first")
    return value


@ibis.udf.scalar.builtin(name="left")  # type: ignore[untyped-decorator]  # Ibis has no types
def _first(value: str, length: int) -> str:
    """The engine's LEFT: it mentions the text once in SQL, where Ibis's own mentions it twice."""
    raise NotImplementedError  # Ibis reads the signature alone


@ibis.udf.scalar.builtin(name="right")  # type: ignore[untyped-decorator]  # Ibis has no types
def _last(value: str, length: int) -> str:
    """The engine's RIGHT, which mentions the text once in SQL."""
    raise NotImplementedError  # Ibis reads the signature alone


def _part(value: Any, start: int, length: int | None) -> Any:
    checked = text(value, "substring")
    if start == 0 and length is not None:
        return _first(checked, length)
    return checked.substr(start, length)


def _ending(value: Any, length: int) -> Any:
    return _last(text(value, "right"), length)


def _joined(*values: Any) -> Any:
    """The texts one after another, cut at the longest; missing if one of them is."""
    pieces = [_first(text(value, "concat"), LONGEST_MADE) for value in values]
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = joined + piece
    return _first(joined, LONGEST_MADE)


def _replaced(value: Any, old: str, new: str) -> Any:
    """The text with one public text in place of another. One that would grow is cut before, whatever it holds."""
    checked = text(value, "replace")
    if len(new) > len(old):
        checked = _first(checked, LONGEST_MADE * len(old) // len(new))
    return checked.replace(old, new)


def _like(value: Any, pattern: str, ignore_case: bool) -> Any:
    checked = text(value, "like")
    return _lowered(checked).like(pattern) if ignore_case else checked.like(pattern)


def _lowered(value: Any) -> Any:
    return text(value, "lower").translate(_UPPER, _LOWER)


def _uppered(value: Any) -> Any:
    return text(value, "upper").translate(_LOWER, _UPPER)


LOWER = RowFunction("lower", _lowered)
UPPER = RowFunction("upper", _uppered)
STRIP = RowFunction("strip", lambda value: text(value, "strip").strip())
LENGTH = RowFunction("length", lambda value: text(value, "length").length().cast("int64"), within(0.0, _LONGEST))
SUBSTRING = RowFunction("substring", _part)
RIGHT = RowFunction("right", _ending)
CONCAT = RowFunction("concat", _joined)
LIKE = RowFunction("like", _like, exact=True)
STARTS_WITH = RowFunction("startswith", lambda value, start: text(value, "startswith").startswith(start), exact=True)
ENDS_WITH = RowFunction("endswith", lambda value, end: text(value, "endswith").endswith(end), exact=True)
CONTAINS = RowFunction("contains", lambda value, piece: text(value, "contains").contains(piece), exact=True)
REPLACE = RowFunction("replace", _replaced, exact=True)


def _public(name: str, value: object, *, empty: bool = True) -> str:
    if not isinstance(value, str) or (not value and not empty):
        raise _check.fail(name, "be a public text", value, "write the text itself")
    return str(literal(value))


class TextMethods(Methods):
    """Functions of text. Abstract."""

    def lower(self) -> Expression:
        """The text with A to Z made a to z; other letters stay as they are."""
        return self._call(LOWER)

    def upper(self) -> Expression:
        """The text with a to z made A to Z; other letters stay as they are."""
        return self._call(UPPER)

    def strip(self) -> Expression:
        """The text without spaces, tabs and line ends at its ends."""
        return self._call(STRIP)

    def length(self) -> Expression:
        """The number of characters (code points)."""
        return self._call(LENGTH)

    def substring(self, start: int, length: int | None = None) -> Expression:
        """The part from position `start`, where the first is 0, of at most `length` characters."""
        remedy = "positions count from 0, as in Python"
        for name, value in (("start", start), ("length", 0 if length is None else length)):
            if type(value) is not int or not 0 <= value < _LONGEST:
                raise _check.fail(name, "be a whole number ≥ 0", value, remedy)
        return self._call(SUBSTRING, options=(start, length))

    def right(self, length: int) -> Expression:
        """The last `length` characters."""
        _check.integer("length", length, "it is how many characters to keep")
        return self._call(RIGHT, options=(length,))

    def concat(self, *others: object) -> Expression:
        """This text and others, one after another, cut at 10,000 characters; missing if one of them is."""
        return self._call(CONCAT, *others)

    def like(self, pattern: str, *, ignore_case: bool = False) -> Expression:
        """Whether the text matches a public pattern, in which % stands for any text and _ for one character.

        There is no escape character. With `ignore_case`, A to Z match a to z.
        """
        checked = _public("pattern", pattern)
        if "\\" in checked:
            raise _check.fail("pattern", "have no backslash: engines disagree on it", pattern, "use contains()")
        return self._call(LIKE, options=(checked.translate(_TO_LOWER) if ignore_case else checked, ignore_case))

    def startswith(self, start: str) -> Expression:
        """Whether the text starts with a public one."""
        return self._call(STARTS_WITH, options=(_public("start", start),))

    def endswith(self, end: str) -> Expression:
        """Whether the text ends with a public one."""
        return self._call(ENDS_WITH, options=(_public("end", end),))

    def contains(self, part: str) -> Expression:
        """Whether a public text occurs in it."""
        return self._call(CONTAINS, options=(_public("part", part),))

    def replace(self, old: str, new: str) -> Expression:
        """The text with each occurrence of a public text replaced by another.

        If `new` is longer than `old`, the text is cut first, so that the result has at most 10,000 characters.
        """
        return self._call(REPLACE, options=(_public("old", old, empty=False), _public("new", new)))


_TO_LOWER = str.maketrans(_UPPER, _LOWER)
