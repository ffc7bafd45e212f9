"""The page docs/textbook.md: every claim with its code, what comes out, and the verdict."""

from __future__ import annotations

from collections import Counter

from discreet.apps.textbook import composition, definition, mechanisms, practice, sensitivity, training
from discreet.apps.textbook.claim import PREAMBLE, TextbookClaim

#: The claims, by section of the page.
SECTIONS: dict[str, tuple[TextbookClaim, ...]] = {
    "The definition": definition.CLAIMS,
    "Sensitivity": sensitivity.CLAIMS,
    "One release": mechanisms.CLAIMS,
    "Many releases": composition.CLAIMS,
    "Training": training.CLAIMS,
    "In use": practice.CLAIMS,
}

_INTRODUCTION = """\
# The textbook, checked

<!-- Written by tools/make_textbook.py from discreet.apps.textbook. Change the claims there, then run it again. -->

Differential privacy is taught with formulas, worked examples and rules of thumb. Some of them are wrong, and many leave
out the condition under which they hold. This page takes the claims of five introductions (one each on the foundations,
on private machine learning, on private deep learning and on the choice of noise, and a glossary entry), states each in
our own words, and checks it with a few lines of code. The values are computed when this page is written, and a
test fails when a value or a verdict changes.

`discreet compare --sayings` prints the table, and `discreet learn` turns the problems into exercises
([in the terminal and as pages](exercises/index.md)).

All code starts from these lines:

```py
{preamble}```

Of {count} claims, {holds} hold, {part} hold in part and {fails} do not hold.
"""


_OPINIONS = """\
## What no number decides

The five texts also give advice and history that no computation can confirm. In short, and where we stand:

- *Use pure DP where a regulator or very sensitive data ask for it.* Sound, if ε is small: δ = 0 does not make up for a
  large ε.
- *The curator must be trusted in the central model, and nobody in the local model.* Right; a shuffler is a third way
  ([when to trust a curator](topics/trust.md)).
- *Gaussian noise has the more mature tools.* Right in 2026, too; the choice should still follow the task.
- *A privacy accountant that was validated is indispensable.* We agree: `accounting.epsilon` certifies its answers from
  both sides.
- *Differential privacy dates from 2006, DP-SGD from 2016, Laplace noise under an L2 bound from 2024.* Right: Dwork,
  McSherry, Nissim & Smith; Abadi et al.; Andersson et al.
- *Training data were extracted from language models that had no such defense.* Right (Carlini et al. 2021).
- *Anonymous is not private: any fact can identify somebody.* [The tour](tutorials/tour.md) shows nine ways.
"""


def claims() -> tuple[TextbookClaim, ...]:
    """All claims, in the order of the page."""
    return tuple(claim for section in SECTIONS.values() for claim in section)


def text() -> str:
    """The page, as Markdown."""
    verdicts = Counter(claim.verdict for claim in claims())
    blocks = [
        _INTRODUCTION.format(
            preamble=PREAMBLE,
            count=len(claims()),
            holds=verdicts["holds"],
            part=verdicts["holds in part"],
            fails=verdicts["does not hold"],
        )
    ]
    for title, section in SECTIONS.items():
        rows = "\n".join(f"| {claim.name} | {claim.verdict} |" for claim in section)
        blocks.append(f"## {title}\n\n| claim | verdict |\n|---|---|\n{rows}\n")
        blocks += [_claim_text(claim) for claim in section]
    return "\n".join([*blocks, _OPINIONS])


def _claim_text(claim: TextbookClaim) -> str:
    return (
        f"### {claim.name}\n\n"
        f"> {claim.says}\n>\n> *({', '.join(claim.sources)})*\n\n"
        f"```py\n{claim.code}\n```\n\n"
        f"We get `{claim.shown}`. **{claim.verdict.capitalize()}.** {claim.reason}\n"
    )
