"""Turn docstrings into pages: doctests become code blocks, and headings such as `Guarantee:` become bold.

Loaded by mkdocstrings (see mkdocs.yml). The docstrings themselves stay plain text that reads well in an editor.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_PROMISES = re.compile(r"^(Guarantee|Privacy|Error|Event): ", re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Rewrites each docstring of a package once, before it is parsed."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        obj.docstring.value = _PROMISES.sub(r"**\1.** ", _fenced(obj.docstring.value))
    for member in obj.members.values():
        if isinstance(member, griffe.Object):  # an alias is rewritten where it is defined
            _rewrite(member)


def _fenced(text: str) -> str:
    """`text` with each doctest, from its `>>>` to the next empty line, in a code block."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.startswith(">>> "):
            inside = True
            lines.append("```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append("```")
        lines.append(line)
    return "\n".join(lines[:-1])
