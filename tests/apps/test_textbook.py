"""The textbook: each claim is computed, its verdict is still supported, and the page is not stale."""

from __future__ import annotations

import json
import re

import pytest

from discreet.accounting.folklore import sayings
from discreet.accounting.noises import Task, noises
from discreet.apps import textbook
from discreet.apps.textbook import TextbookClaim
from discreet.guarantees import ApproxDP
from tests.apps.conftest import Run
from tools import make_textbook

#: The eleven sayings of `accounting.folklore`, in order, and the claim of the page that each has become.
SAYINGS = (
    "The practical scale of L2-Laplace noise",
    "The classical Gaussian formula",
    "Laplace in place of Gaussian",
    "Small δ favors Laplace",
    "L1 against L2 in high dimension",
    "1,000 steps with Laplace noise",
    "No amplification for Laplace noise",
    "Rényi DP is tightest",
    "100 queries by advanced composition",
    "A multiplier of 1 means ε ≈ 1.8",
    "Heavy tails",
)

#: Numbers that the page must show, each computed.
NUMBERS = {
    "Three queries": "3.0",
    "100 queries by advanced composition": "5.850",
    "The simplified formula": "5.799",
    "The moments accountant and its successor": "0.947",
    "A multiplier of 1 means ε ≈ 1.8": "1.828",
    "A sample of rate q costs qε": "0.0170",
    "A smaller δ costs little": "3.983",
    "Clipping microbatches": "648",
    "A mechanism with a bug": "0.000101",
    "The practical scale of L2-Laplace noise": "1.012",
}


#: What every claim was found to be; all others hold. A verdict that changes must be changed here, too.
VERDICTS = {
    "does not hold": {
        "δ as the probability that the bound fails",
        "1,000 steps with Laplace noise",
        "Rényi DP is tightest",
        "Any random minibatch will do",
        "No amplification for Laplace noise",
        "A lower clip norm gives better privacy",
        "The best clip norm is 1 to 5",
        "Heavy tails prevent convergence",
        "Privacy makes systems fairer",
    },
    "holds in part": {
        "δ below one over the number of people",
        "δ between 1e-5 and 1e-7",
        "Pure DP needs more noise",
        "What counts as strong",
        "Any attack",
        "Whatever the attacker knows",
        "Almost the same output",
        "The mean of clamped salaries",
        "Mean of clipped gradients",
        "Thousands of samples",
        "L1 against L2 in high dimension",
        "Clipping in L1 against L2",
        "The dilemma of the health agency",
        "The classical Gaussian formula",
        "Laplace adds more noise",
        "Irregular sensitivities",
        "The practical scale of L2-Laplace noise",
        "Laplace in place of Gaussian",
        "Small δ favors Laplace",
        "Five queries on parts of the data",
        "100 queries by advanced composition",
        "The simplified formula",
        "Which composition needs a δ",
        "Growth like the square root",
        "Advanced is tighter than adding up",
        "Laplace noise adds up linearly",
        "Rényi DP composes and converts",
        "The moments accountant and its successor",
        "A sample of rate q costs qε",
        "Federated learning with differential privacy",
        "Noise on the mean gradient",
        "A multiplier of 1 means ε ≈ 1.8",
        "Clipping microbatches",
        "Batch normalization breaks the analysis",
        "Same noise, similar accuracy, other ε",
        "Gaussian noise is smaller thanks to its accounting",
        "Smaller models do better",
        "5 to 15 points lost on ImageNet",
        "Privacy as regularization",
        "An optimal ε",
        "Laplace wins in continual observation",
        "ε of 3 to 10 is common in production",
        "The accountants of the tools",
    },
}
HOLDS = 42


@pytest.mark.parametrize("claim", textbook.claims(), ids=lambda claim: claim.name)
def test_the_values_support_the_verdict(claim: TextbookClaim):
    assert claim.still_holds, claim.values


def test_no_verdict_has_changed():
    for verdict, names in VERDICTS.items():
        assert {claim.name for claim in textbook.claims() if claim.verdict == verdict} == names
    assert sum(claim.verdict == "holds" for claim in textbook.claims()) == HOLDS


def test_the_page_is_what_the_claims_say():
    assert (make_textbook.DOCS / "textbook.md").read_text(encoding="utf-8") == textbook.text()


def test_measured_accuracies_are_those_of_the_kept_results():
    kept = json.loads((make_textbook.DOCS.parent / "benchmarks" / "results" / "accuracy.json").read_text())
    rows = {row["case"]: row for row in kept["rows"] if "accuracy" in row["metric"] or "ε at" in row["metric"]}
    by_name = {claim.name: claim for claim in textbook.claims()}
    accuracies = [rows[case]["ours"] for case in rows if case.endswith("ε = 3") or "linear" in case]
    assert [f"{accuracy:.1f}%" for accuracy in accuracies] == ["98.5%", "98.4%", "91.0%"]
    assert all(f"{accuracy:.1f}%" in by_name["Heavy tails prevent convergence"].reason for accuracy in accuracies)
    same = by_name["Same noise, similar accuracy, other ε"].reason
    assert f"{rows['l2-laplace, same noise level']['ours']:.1f} under L2" in same
    assert f"{rows['laplace, same noise level']['ours']:.0f} under L1" in same


def test_the_page_shows_the_numbers_that_were_asked_for():
    by_name = {claim.name: claim for claim in textbook.claims()}
    for name, number in NUMBERS.items():
        assert number in by_name[name].reason, name


def test_a_verdict_that_the_values_do_not_support_is_noticed():
    """The mutant: the same claim, with a value from the wrong side."""
    claim = next(claim for claim in textbook.claims() if claim.name == "The simplified formula")
    mutant = TextbookClaim(
        claim.name,
        claim.sources,
        claim.says,
        claim.code.replace("100 * 0.1**2", "100 * 0.1 * 0.11"),
        claim.verdict,
        claim.supported,
        claim.because,
    )
    assert claim.still_holds
    assert not mutant.still_holds


def test_names_are_unique_and_code_fits_the_page():
    names = [claim.name for claim in textbook.claims()]
    assert len(set(names)) == len(names)
    assert max(len(line) for claim in textbook.claims() for line in claim.code.splitlines()) <= 88
    assert max(map(len, textbook.PREAMBLE.splitlines())) <= 88


def test_code_that_ends_without_an_expression_is_refused():
    claim = TextbookClaim("name", ("noise",), "says", "x = 1", "holds", bool, "because")
    with pytest.raises(ValueError, match="ends with an expression"):
        _ = claim.values


def test_the_eleven_sayings_have_joined_with_the_same_verdicts():
    by_name = {claim.name: claim.verdict for claim in textbook.claims()}
    checked = sayings(noises(Task.of(ApproxDP(1.0, 1e-5), l1=1.0)))
    assert len(checked) == len(SAYINGS)
    for saying, name in zip(checked, SAYINGS, strict=True):
        # A formula that does not follow from its theorem, but holds for another reason, holds in part.
        verdict = "holds in part" if saying.verdict == "does not follow" else saying.verdict
        assert verdict == by_name[name], name


def test_the_command_prints_every_claim_without_a_task(run: Run):
    done = run("discreet compare --sayings --json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)["textbook"]
    assert [claim["name"] for claim in shown] == [claim.name for claim in textbook.claims()]
    assert not any(re.search(r"\]\(|\{\d", claim["because"]) for claim in shown)
    table = run("discreet compare --sayings").out
    assert "does not hold" in table
    assert "5.850" in table
