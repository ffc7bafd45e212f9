"""Published deployments of differential privacy, each priced by our accountant where its mechanism is public."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from discreet.apps.textbook.claim import PREAMBLE, run, shows

#: For figures that circulate, but that we have not seen in a source ourselves.
UNCONFIRMED = "unconfirmed: we have not read this figure in its source, so the price holds for the figure as given"

#: A public list of deployments with their parameters, kept up to date by its author.
LIST = "https://desfontain.es/blog/real-world-differential-privacy.html"


@dataclass(frozen=True)
class Deployment:
    """One release or service, what was published about it, and what we compute.

    Attributes:
        who: the organization.
        what: the data or the service.
        published: ε and δ as published.
        unit: whom or what that ε protects, and between which neighbors.
        mechanism: the noise, as far as it is public.
        checked: how the published figures were confirmed, or that they were not.
        sources: (title, address) of where they are, or should be, stated.
        code: Python after the textbook's preamble; empty if too little is public.
        supported: from the values to whether they support `finding`. A test calls it.
        finding: what the price means, with places for the values.
    """

    who: str
    what: str
    published: str
    unit: str
    mechanism: str
    checked: str
    sources: tuple[tuple[str, str], ...]
    code: str
    supported: Callable[..., bool]
    finding: str

    @property
    def values(self) -> tuple[Any, ...]:
        """What the code gives; nothing without code."""
        return run(self.code) if self.code else ()

    @property
    def still_holds(self) -> bool:
        """Whether the values still support the finding."""
        return bool(self.supported(*self.values))

    @property
    def found(self) -> str:
        """The finding, with the values in their places."""
        return self.finding.format(*self.values)


DEPLOYMENTS = (
    Deployment(
        "US Census Bureau",
        "2020 census, redistricting data: persons",
        "ε = 17.14, δ = 1e-10",
        "the data of one person are replaced; state totals and a few other counts are exact",
        "discrete Gaussian noise on histograms of six geographic levels, σ = 339/542 for the whole budget",
        "ε follows from σ in the production configuration, to all digits that were published",
        (
            (
                "production code and its configuration",
                "https://github.com/uscensusbureau/DAS_2020_Redistricting_Production_Code",
            ),
            ("The TopDown algorithm (Abowd et al. 2022)", "https://doi.org/10.1162/99608f92.529e3cb9"),
        ),
        """\
sigma, shares = 339 / 542, [104, 1440, 447, 687, 1256, 165]
levels = [Gaussian(sigma / math.sqrt(2) / math.sqrt(share / 4099)) for share in shares]
rho = accounting.zcdp(events.Composed(tuple(levels))).rho
by_rho = conversions.zcdp_epsilon(dp.ZCDP(rho), 1e-10)
rho, by_rho, accounting.epsilon(events.Composed(tuple(levels)), 1e-10).upper""",
        lambda rho, by_rho, exact: shows(rho, "2.56") and abs(by_rho - 17.14) < 0.02 and exact < by_rho,
        "A replaced person moves two counts by one, so Δ₂ = √2 and the six levels together have ρ = {0:.4f}. "
        "Converted as the bureau did, that is ε = {1:.2f}. The exact price of Gaussian noise with this ρ is "
        "{2:.2f}. Counts that are exact by policy, such as state totals, are outside the guarantee.",
    ),
    Deployment(
        "US Census Bureau",
        "2020 census, redistricting data: housing units",
        "ε = 2.47, δ = 1e-10; 19.61 with the persons",
        "the data of one housing unit are replaced",
        "as above",
        "the total of 19.61 is widely reported; this part is the rest, without the persons",
        (
            (
                "production code and its configuration",
                "https://github.com/uscensusbureau/DAS_2020_Redistricting_Production_Code",
            ),
            ("a public list of deployments", LIST),
        ),
        """\
persons, units = (542 / 339) ** 2, 0.0747
units_alone = conversions.zcdp_epsilon(dp.ZCDP(units), 1e-10)
both = conversions.zcdp_epsilon(dp.ZCDP(persons + units), 1e-10)
units_alone, 17.14 + 2.47, both""",
        lambda alone, added, both: abs(alone - 2.47) < 0.01 and both < added,
        "ε = 2.47 corresponds to ρ = 0.0747 (here {0:.2f}). The published total of {1:.2f} adds two ε. Adding the "
        "two ρ instead gives {2:.2f} for somebody whose person and home both count.",
    ),
    Deployment(
        "Apple",
        "popular emoji, new words, health types, Safari domains",
        "ε = 4 (emoji), 16 (words), 8 (lookup hints), 2 (health types), 8 (Safari), δ = 0",
        "one device's reports of one day",
        "local: a sketch of ±1 in which each coordinate is flipped with probability 1/(1 + e^(ε/2))",
        "the list of deployments states each ε and the unit; the flip probability is in Apple's own description",
        (
            (
                "Learning with privacy at scale (2017)",
                "https://machinelearning.apple.com/research/learning-with-privacy-at-scale",
            ),
            ("a public list of deployments", LIST),
        ),
        """\
flip = 1 / (1 + math.exp(4.0 / 2))
one_day = 2 * math.log((1 - flip) / flip)
month = accounting.epsilon(Repeated(Claimed(4.0), 30), 1e-6, dp.REPLACE_ONE).upper
one_day, 30 * 4.0, month""",
        lambda day, basic, month: abs(day - 4) < 1e-9 and month <= basic,
        "Two coordinates differ between two emoji, each by a factor of (1 − p)/p: ε = {0:g} for a day. The unit is "
        "the day: over a month of daily reports it adds up to {1:g}, and a δ of 1e-6 leaves it at {2:.0f}. Names "
        "and IP addresses are dropped on arrival, which the ε does not rely on.",
    ),
    Deployment(
        "Google",
        "Chrome: RAPPOR",
        "f = 1/2 and 2 hashes, ε = 4.39 for all reports about one value",
        "one device's value, replaced by another",
        "local: a Bloom filter with 2 hashes, permanent randomized response f = 1/2, then p = 1/2, q = 3/4 for each "
        "report",
        "the formula is Theorem 1 of the paper; the parameters are those of its examples",
        (("RAPPOR (Erlingsson, Pihur & Korolova 2014)", "https://arxiv.org/abs/1407.6981"),),
        """\
from discreet.mechanisms.local import Rappor

chrome = Rappor(bits=128, hashes=2)
chrome.permanent.epsilon, chrome.instantaneous.epsilon""",
        lambda permanent, once: shows(permanent, "4.39") and once < permanent,
        "With these parameters everything a device ever says about one value is {0:.3g}-DP, and one report alone "
        "{1:.3g}-DP. A value that changes spends the permanent ε again.",
    ),
    Deployment(
        "Google",
        "COVID-19 Community Mobility Reports",
        "ε = 2.64, δ = 0",
        "one person's contribution of one day is added or removed",
        "Laplace noise on counts of visitors by place and category, with a bounded number of places for each person",
        UNCONFIRMED,
        (
            ("Anonymization process (Aktay et al. 2020)", "https://arxiv.org/abs/2004.04145"),
            ("a public list of deployments", LIST),
        ),
        """\
month = Repeated(Claimed(2.64), 30)
accounting.pure(month).epsilon, accounting.epsilon(month, 1e-6).upper""",
        lambda basic, tight: tight < basic,
        "Again the unit is a day. Over 30 days a person spends {0:.1f}. If only the ε of a day is known, a δ "
        "of 1e-6 does not lower that ({1:.1f}).",
    ),
    Deployment(
        "Google",
        "Gboard: language models trained on devices",
        "ε = 8.9 (the first, Spanish); 0.994 to 13.69 for more than 30 models, δ = 1e-10",
        "all of one device's contributions to one model are zeroed",
        "federated training with correlated Gaussian noise (DP-FTRL), ρ between 0.2 and 2",
        "ε of the first model, the range of all models and the range of ρ are in the sources",
        (
            ("Federated learning of Gboard models (Xu et al. 2023)", "https://arxiv.org/abs/2305.18465"),
            (
                "Advances in private training (2024)",
                "https://research.google/blog/advances-in-private-training-for-production-on-device-language-models/",
            ),
        ),
        """\
first = conversions.zcdp_epsilon(dp.ZCDP(0.81), 1e-10)
exact = accounting.epsilon(Gaussian(1 / math.sqrt(2 * 0.81)), 1e-10).upper
ends = [conversions.zcdp_epsilon(dp.ZCDP(rho), 1e-10) for rho in (0.2, 2.0)]
first, exact, ends""",
        lambda first, exact, ends: abs(first - 8.9) < 0.05 and exact < first,
        "ε = 8.9 corresponds to ρ = 0.81 (here {0:.2f}); the exact price of Gaussian noise with that ρ is {1:.2f}. "
        "ρ from 0.2 to 2 means ε from {2[0]:.1f} to {2[1]:.1f}.",
    ),
    Deployment(
        "Google",
        "VaultGemma: a language model of 1 billion parameters",
        "ε ≤ 2.0, δ ≤ 1.1e-10",
        "one sequence of 1,024 tokens; a text or a person may have several",
        "DP-SGD with truncated Poisson batches",
        "in the source; batch size, steps and noise are not",
        (("a summary of the model card", "https://sourceforge.net/projects/vaultgemma"),),
        """\
group = dp.ApproxDP(2.0, 1.1e-10).group(3)
group.epsilon, group.delta""",
        lambda epsilon, delta: shows(epsilon, "6") and delta < 1e-7,
        "We did not price the training: our source does not give batch size, steps and noise. For a person with "
        "three sequences the guarantee means ({0:g}, {1:.1g}).",
    ),
    Deployment(
        "Meta",
        "Full URLs data set: who viewed, shared and clicked which link",
        "ε = 0.45, δ = 1e-5",
        "a bounded number of actions of one person (the bound covers most people, not all)",
        "Gaussian noise on counts; links are listed if shared in public more than 100 times, plus Laplace noise of "
        "scale 5",
        "the threshold is in the codebook's summary; ε is " + UNCONFIRMED,
        (
            ("Codebook (Messing et al. 2020)", "https://doi.org/10.7910/DVN/TDOAPG"),
            ("a public list of deployments", LIST),
        ),
        """\
noise = gaussian_noise_multiplier(0.45, 1e-5)
listed = accounting.pure(Laplace(5.0)).epsilon
noise, 1 / (2 * noise**2), listed""",
        lambda noise, rho, listed: 7 < noise < 9 and shows(listed, "0.2"),
        "ε = 0.45 takes noise of {0:.3g} times the L2 norm of all counts that a protected person moves, ρ = "
        "{1:.4f}. The noisy threshold of a link alone is {2:g}-DP for one more share, paid again for each link that "
        "a person shares.",
    ),
    Deployment(
        "Meta",
        "Movement Range Maps",
        "ε = 2, δ = 0",
        "one person's location data of one day",
        "Laplace noise on two metrics of each region",
        UNCONFIRMED,
        (
            (
                "Protecting privacy in mobility data (2020)",
                "https://research.fb.com/blog/2020/06/protecting-privacy-in-facebook-mobility-data-during-the-covid-19-response/",
            ),
            ("a public list of deployments", LIST),
        ),
        """\
year = Repeated(Claimed(2.0), 365)
accounting.pure(year).epsilon, accounting.epsilon(year, 1e-6).upper""",
        lambda basic, tight: tight < basic,
        "For a person who stayed on the map for a year, {0:.0f}, or {1:.0f} at δ = 1e-6: a guarantee for days, not "
        "for people.",
    ),
)

_INTRODUCTION = """\
# Deployments

<!-- Written by tools/make_textbook.py from discreet.apps.deployments. Change it there, then run it again. -->

What large organizations have published with differential privacy, with their ε, the unit that it protects, and our
accountant's price where enough about the mechanism is public. A test recomputes every number. Two figures can only
be compared if their units can: an ε for one day of a device is not an ε for a person.

Each entry says how its published figures were checked. Some are unconfirmed: please read the source before you rely on
them, and tell us if one is wrong.

| who | what | published | unit |
|---|---|---|---|
{rows}

All code starts from the lines of [the textbook](../textbook.md):

```py
{preamble}```
"""

_END = """\
## What to take from it

- **Ask for the unit first.** Per day, per report, per sequence or per person decides more than the number.
- **Ask how it adds up.** Only the census and the language models state what a person spends in total.
- **Published ε are upper bounds of different tightness.** The exact price lies 4% below what the census published, and
  what two files cost together is less than the sum of their ε.
- **Large ε are common**, even where the formal guarantee says little against a determined attacker. Their value lies in
  a known bound, in noise that stops simple attacks, and in a budget that somebody had to decide on.
"""


def text() -> str:
    """The page, as Markdown."""
    rows = "\n".join(
        f"| {deployment.who} | {deployment.what} | {deployment.published} | {deployment.unit} |"
        for deployment in DEPLOYMENTS
    )
    return "\n".join(
        [
            _INTRODUCTION.format(rows=rows, preamble=PREAMBLE),
            *(_section(deployment) for deployment in DEPLOYMENTS),
            _END,
        ]
    )


def _section(deployment: Deployment) -> str:
    sources = "; ".join(f"[{title}]({address})" for title, address in deployment.sources)
    return (
        f"## {deployment.who}: {deployment.what}\n\n"
        f"- **Published:** {deployment.published}.\n- **Unit:** {deployment.unit}.\n"
        f"- **Mechanism:** {deployment.mechanism}.\n- **Checked:** {deployment.checked}.\n"
        f"- **Sources:** {sources}.\n\n```py\n{deployment.code}\n```\n\n{deployment.found}\n"
    )
