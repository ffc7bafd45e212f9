"""The claims of introductory texts on differential privacy, each with code that checks it and a verdict.

`claims` lists them; docs/textbook.md is written from them, and `discreet compare --sayings` prints them.
"""

from discreet.apps.textbook.claim import PREAMBLE, TextbookClaim
from discreet.apps.textbook.page import SECTIONS, claims, text

__all__ = ["PREAMBLE", "SECTIONS", "TextbookClaim", "claims", "text"]
