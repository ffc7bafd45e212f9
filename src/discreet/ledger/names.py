"""Names of accounts: one spelling each, so that a slip of the pen does not open a fresh budget beside the old one."""

from __future__ import annotations

import contextlib
import difflib
import unicodedata
from collections.abc import Iterable

from discreet import _check

_LONGEST_NAME = 200
_LONGEST_TEXT = 2000

# Characters that show nothing although Unicode counts them as letters or marks: joiners, fillers, variation selectors.
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0" + "".join(
    map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
# Cyrillic and Greek letters, in lower case, that look like Latin ones in lower or upper case.
_LOOK_ALIKES = str.maketrans("авеһніјкмоԛрсѕтухԝԁѵӏɑαβεζηικμνορτυχ", "abehhijkmoqpcstyxwdvlaabeznikmvoptyx")
_VISIBLE = str.maketrans("", "", _INVISIBLE)


def checked_name(name: object) -> str:
    """A name that an account may have: a short text without slashes or control characters.

    A new account's name must also be in normal form (`check_new`); older ledgers may have others, which still open.
    """
    remedy = (
        f"names are 1 to {_LONGEST_NAME} printable characters without '/', which separates accounts from sub-accounts"
    )
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or "/" in name or not name.isprintable():
        raise _check.fail("name", "be a plain name", name, remedy)
    return checked_text("name", name)


def checked_text(what: str, text: object, longest: int = _LONGEST_TEXT) -> str:
    """A text that every store can keep: no NUL, no lone surrogate, not too long."""
    if isinstance(text, str) and len(text) <= longest and "\0" not in text:
        if text.isascii():
            return text
        rule = "be valid Unicode"
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            return text
    else:
        rule = "be a text"
    remedy = f"it is stored with the entry: a text of at most {longest} characters without NUL"
    raise _check.fail(what, rule, text, remedy)


def check_new(full_name: str, existing: Iterable[str]) -> None:
    """Refuse a new account whose name is not in normal form, or looks like that of an account beside it.

    It is never changed silently: whoever wrote it may mean the account that it looks like.
    """
    above, _, name = full_name.rpartition("/")
    normal = _normal(name)
    if name != normal:
        remedy = f"write {normal!r}" if normal else "use letters that can be seen"
        rule = "be in normal form (Unicode NFKC, single spaces between words, nothing invisible)"
        raise _check.fail("name", rule, name, remedy)
    wanted = _skeleton(name)
    for taken in existing:
        parent, _, beside = taken.rpartition("/")
        if parent == above and beside != name and _skeleton(beside) == wanted:
            rule = f"differ from {taken!r} by more than case, spaces and look-alike letters"
            raise _check.fail(
                "name", rule, full_name, f"reopen {taken!r}, or choose a name that nobody confuses with it"
            )


def similar(name: str, existing: Iterable[str]) -> str:
    """A hint at accounts that may be meant: " (did you mean 'census'?)", or nothing."""
    same_depth = [candidate for candidate in existing if candidate.count("/") == name.count("/")]
    by_skeleton = {_skeleton(candidate): candidate for candidate in sorted(same_depth, reverse=True)}
    close = difflib.get_close_matches(_skeleton(name), by_skeleton, n=3, cutoff=0.6)
    meant = " or ".join(repr(by_skeleton[match]) for match in close)
    return f" (did you mean {meant}?)" if meant else ""


def _normal(name: str) -> str:
    """The one spelling of a name."""
    return " ".join(unicodedata.normalize("NFKC", name.translate(_VISIBLE)).translate(_VISIBLE).split())


def _skeleton(name: str) -> str:
    """What two names have in common that people take for the same."""
    folded = unicodedata.normalize("NFKC", _normal(name).casefold())
    return "".join(folded.translate(_LOOK_ALIKES).split())
