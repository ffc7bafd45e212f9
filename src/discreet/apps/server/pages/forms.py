"""What a form says: its fields as texts and numbers, and whether it came from our own page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from discreet.apps.server.problems import Problem

#: Fields that a form may have.
_MOST_FIELDS = 30

FormFields = Mapping[str, str]


def read_form(content_type: str, content: bytes) -> dict[str, str]:
    """The fields of a form; line breaks become single characters, as everywhere else."""
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Problem(415, "invalid", "this form is not from these pages")
    try:
        text = content.decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict") if text else []
    except ValueError:
        raise Problem(400, "invalid", "the form cannot be read: go back and try again") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def number(form: FormFields, name: str) -> float | None:
    """A number that somebody typed; None if the field is empty."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Problem(400, "invalid", f"{name} must be a number: write it like 0.1")
    return value


def same_origin(request: Request) -> bool:
    """Whether a form was sent by a page of this server. Old browsers send no origin; the form's value protects them."""
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
