"""Claims about the definition: what ε and δ mean, groups of people, and data without names."""

from discreet.apps.textbook.claim import TextbookClaim, shows

CLAIMS = (
    TextbookClaim(
        "Odds at ε = 0.01",
        ("foundations",),
        "At ε = 0.01 no output raises an attacker's odds by more than a factor of about 1.01.",
        """\
factor = math.exp(0.01)
posterior = factor * 0.5 / (factor * 0.5 + 0.5)
factor, posterior""",
        "holds",
        lambda factor, posterior: shows(factor, "1.01") and posterior < 0.503,
        "e^ε = {0:.4f}. It is a factor on the odds, not on the probability: a belief of 50% becomes at most "
        "{1:.2%}. Over several outputs the factors multiply.",
    ),
    TextbookClaim(
        "ε = 0",
        ("foundations", "noise"),
        "ε = 0 is perfect privacy: outputs say nothing about anyone, and usually nothing at all.",
        """\
from discreet.guarantees import strength

revealed = accounting.delta(Claimed(0.0), 0.0).upper
revealed, strength(0.0)""",
        "holds",
        lambda revealed, word: revealed == 0 and word == "perfect",
        "With δ = 0 the two distributions are the same. With δ > 0 it is not perfect: (0, δ)-DP may reveal "
        "everything with probability δ.",
    ),
    TextbookClaim(
        "δ as the probability that the bound fails",
        ("deep learning", "machine learning", "noise", "glossary", "foundations"),
        "δ is the probability that the factor e^ε does not hold.",
        """\
noise = gaussian_noise_multiplier(1.0, 1e-5)
exceeds = accounting.profile(Gaussian(noise)).loss_exceeds(1.0).upper
exceeds, exceeds / 1e-5""",
        "does not hold",
        lambda exceeds, ratio: ratio > 10,
        "Gaussian noise that is exactly (1, 1e-5)-DP exceeds the factor e¹ with probability {0:.3g}, {1:.0f} times "
        "δ. δ weighs each excess by its size. And in the worst case δ is the probability that everything is "
        "revealed ([what δ means](proofs/what-delta-means.md)).",
    ),
    TextbookClaim(
        "δ below one over the number of people",
        ("deep learning", "glossary", "foundations"),
        "δ should be smaller than 1/n.",
        """\
n = 100_000
somebody = [1 - (1 - delta) ** n for delta in (1 / n, 1 / n**1.1, 1e-8)]
somebody""",
        "holds in part",
        lambda chances: chances[0] > 0.6 and chances[2] < 1e-2,
        "Just below 1/n is not enough. Publishing each record with probability δ is (0, δ)-DP; of 100,000 people at "
        "least one is then exposed with probability {0[0]:.0%} at δ = 1/n, {0[1]:.0%} at 1/n^1.1, and {0[2]:.1%} at "
        "1e-8.",
    ),
    TextbookClaim(
        "δ between 1e-5 and 1e-7",
        ("noise",),
        "δ is typically 1e-5 to 1e-7.",
        """\
people = 331_000_000
people * 1e-7""",
        "holds in part",
        lambda exposed: exposed > 1,
        "It is typical in papers on small data. δ has to follow the number of people: for a census of 331 million, "
        "δ = 1e-7 allows {0:.0f} people to be exposed on average; the US census of 2020 used 1e-10.",
    ),
    TextbookClaim(
        "A mechanism with a bug",
        ("foundations",),
        "A mechanism that is (ε₀, δ₀)-DP but leaks everything with probability p is (ε₀, p + (1 − p)δ₀)-DP.",
        """\
buggy = events.MayFail(1e-4, Claimed(1.0, 1e-6))
accounting.delta(buggy, 1.0).upper, 1e-4 + (1 - 1e-4) * 1e-6""",
        "holds",
        lambda priced, formula: abs(priced / formula - 1) < 1e-6,
        "Both are {1:.6g}: the failure's probability goes almost unchanged into δ.",
    ),
    TextbookClaim(
        "Pure DP needs more noise",
        ("noise",),
        "Pure DP is the stronger guarantee and needs more noise; a δ allows less noise at the same ε.",
        """\
laplace = math.sqrt(2) * 1.0
gaussian = gaussian_noise_multiplier(1.0, 1e-6)
laplace, gaussian, (gaussian / laplace) ** 2""",
        "holds in part",
        lambda laplace, gaussian, _: laplace < gaussian,
        "For one number it is the other way round: at ε = 1 Laplace noise has standard deviation {0:.3g} with δ = "
        "0, and Gaussian noise {1:.3g} at δ = 1e-6. A δ pays off for vectors and for many releases: from {2:.0f} "
        "coordinates on, if all of them move, Gaussian noise is smaller.",
    ),
    TextbookClaim(
        "Tasks that need a δ",
        ("foundations",),
        "Pure DP is so strict that some tasks cannot be done with it.",
        """\
def threshold(delta):
    return 1 + math.log(1 / (2 * delta)) / 1.0


[threshold(delta) for delta in (1e-3, 1e-6, 1e-12, 1e-300)]""",
        "holds",
        lambda thresholds: thresholds[1] < 15 and thresholds[3] > 600,
        "Listing the values of a column that nobody knows in advance is one. A value that a single person has must not "
        "show, so the noisy count has to reach 1 + ln(1/(2δ))/ε: {0[0]:.1f}, {0[1]:.1f} and {0[2]:.1f} at ε = 1 and "
        "δ = 1e-3, 1e-6 and 1e-12. It grows without limit as δ goes to 0 "
        "([keys that are discovered](decisions/0005-discovered-keys.md)).",
    ),
    TextbookClaim(
        "What counts as strong",
        ("noise", "glossary"),
        "One text calls ε below 1 strong, 1–3 moderate, 5–10 weak and more than 10 minimal; another calls up to 1 "
        "strong, 3–10 moderate and more than 10 weak.",
        """\
from discreet.guarantees import strength

[strength(epsilon) for epsilon in (0.0, 1.0, 3.0, 10.0, 11.0)]""",
        "holds in part",
        lambda words: words == ["perfect", "strong", "reasonable", "reasonable", "weak"],
        "They disagree about 5–10, and published scales do, too. We follow the tiers of *How to DP-fy ML* "
        "(Ponomareva et al. 2023, arXiv 2303.00654): strong up to 1, reasonable up to 10, weak above. Hands-on "
        "books recommend 0.01 to 1. No scale can know the unit: ε for a day of a person is not ε for their lifetime.",
    ),
    TextbookClaim(
        "Groups",
        ("glossary",),
        "For k people together, (ε, δ) becomes (kε, k e^((k−1)ε) δ).",
        """\
group = dp.ApproxDP(1.0, 1e-6).group(3)
noise = gaussian_noise_multiplier(1.0, 1e-6)
exact = accounting.delta(Gaussian(noise / 3), 3.0).upper
group.epsilon, group.delta, exact""",
        "holds",
        lambda epsilon, delta, exact: shows(epsilon, "3") and exact < delta,
        "(1, 1e-6) gives three people ({0:g}, {1:.4g}). It is a bound for every mechanism: of Gaussian noise with "
        "this guarantee the δ at ε = 3 is {2:.3g} for three people.",
    ),
    TextbookClaim(
        "Any attack",
        ("machine learning", "glossary"),
        "The guarantee bounds every later attack, membership inference and extraction of training data among them.",
        """\
[1 / (1 + math.exp(-epsilon)) for epsilon in (0.1, 1.0, 8.0)]""",
        "holds in part",
        lambda right: right[0] < 0.53 and right[2] > 0.999,
        "It bounds them all, but the bound can be empty: of two equally likely worlds an attacker names the right "
        "one with probability at most {0[0]:.1%} at ε = 0.1, {0[1]:.1%} at 1 and {0[2]:.2%} at 8.",
    ),
    TextbookClaim(
        "Whatever the attacker knows",
        ("machine learning", "glossary"),
        "The promise holds whatever else an attacker knows, even about everybody else, and whatever they can compute.",
        """\
alone = dp.PureDP(0.5).posterior(0.5).high
family = dp.PureDP(0.5).group(5).posterior(0.5).high
alone, family""",
        "holds in part",
        lambda alone, family: alone < 0.63 and family > 0.9,
        "It bounds what your record adds. At ε = 0.5 somebody who knows all other records moves from 50% to at most "
        "{0:.1%}. But if four relatives are in the data and share the fact, all five change together, and the bound is "
        "{1:.1%}. And what holds for people in general is learned with or without you.",
    ),
    TextbookClaim(
        "Almost the same output",
        ("machine learning", "foundations"),
        "The output is almost the same with and without you, so you can plausibly deny that you took part.",
        """\
[math.tanh(epsilon / 2) for epsilon in (0.1, 1.0, 8.0)]""",
        "holds in part",
        lambda apart: apart[0] < 0.06 and apart[2] > 0.99,
        "That is a matter of ε. Two output distributions of an ε-DP mechanism may be tanh(ε/2) apart in total "
        "variation: {0[0]:.2f} at ε = 0.1, {0[1]:.2f} at 1 and {0[2]:.4f} at 8, where nothing is left to deny.",
    ),
    TextbookClaim(
        "k-anonymity and the homogeneity attack",
        ("foundations",),
        "In a table that is 3-anonymous, an attacker can be certain: if all three people who share a ZIP code have "
        "the same illness, so does the target. Differential privacy has no such case.",
        """\
illnesses = ["diabetes", "diabetes", "diabetes"]
certain = illnesses.count("diabetes") / len(illnesses)
certain, 1 / (1 + math.exp(-0.1))""",
        "holds",
        lambda plain, limit: plain == 1 and limit < 0.53,
        "Without noise the attacker is {0:.0%} sure; with ε = 0.1 and even odds before, at most {1:.1%}. `discreet "
        "tour` runs this attack on a 5-anonymous version of the Adult data.",
    ),
    TextbookClaim(
        "The governor's record",
        ("machine learning",),
        "A hospital table without names was linked to the voters' list by birth date, sex and ZIP code.",
        """\
from discreet.auditing import reidentification

reidentification.governor().plain""",
        "holds",
        lambda plain: plain > 0.8,
        "Sweeney did so in 1997, and later estimated that 87% of Americans are unique by these three facts. On a "
        "generated population the attack finds {0:.0%} of the diagnoses.",
    ),
    TextbookClaim(
        "Film ratings",
        ("machine learning",),
        "People in a published table of film ratings were found by their public ratings.",
        """\
from discreet.auditing import reidentification

reidentification.ratings().plain""",
        "holds",
        lambda plain: plain > 0.9,
        "Narayanan and Shmatikov (2008) did so with 8 ratings and dates, known approximately. On generated ratings "
        "the same attack finds {0:.0%}.",
    ),
)
