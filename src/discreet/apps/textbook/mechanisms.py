"""Claims about single releases: Laplace, Gaussian and L2-Laplace noise, and choosing among options."""

import math

from discreet.apps.textbook.claim import TextbookClaim, shows

CLAIMS = (
    TextbookClaim(
        "The Laplace mechanism",
        ("deep learning", "machine learning", "noise", "glossary", "foundations"),
        "Laplace noise of scale Δ₁/ε gives ε-DP.",
        """\
noise = Laplace(1 / 0.5)
accounting.pure(noise).epsilon, accounting.delta(noise, 0.5).upper""",
        "holds",
        lambda epsilon, delta: shows(epsilon, "0.5") and delta <= 0,
        "Noise of twice the sensitivity is {0:g}-DP, with δ = {1:g}, and no smaller ε holds.",
    ),
    TextbookClaim(
        "The variance of Laplace noise",
        ("foundations",),
        "Laplace noise of scale b has variance 2b²: accuracy and privacy pull in opposite directions.",
        """\
from discreet.release import NoiseLaw


def variance(epsilon):
    law = NoiseLaw(gaussian=False, rounded=False, scale=1 / epsilon)
    return law.standard_deviation() ** 2


[variance(0.5), variance(1.0)]""",
        "holds",
        lambda variances: abs(variances[0] / 8 - 1) < 0.03 and variances[1] < 2,
        "2b² is 8 and 2. The noise that is really drawn lives on a grid; on whole numbers its variance is "
        "{0[0]:.4g} and {0[1]:.4g}, a little less at the same ε.",
    ),
    TextbookClaim(
        "The dilemma of the health agency",
        ("foundations",),
        "An ethics board asks for a small ε, for instance by asking that large errors are improbable; "
        "epidemiologists ask for a small variance; the two may contradict each other.",
        """\
large_errors = [math.exp(-epsilon * 10) for epsilon in (0.1, 1.0)]
large_errors, [2 / epsilon**2 for epsilon in (0.1, 1.0)]""",
        "holds in part",
        lambda errors, variances: errors[0] > errors[1] and variances[0] > variances[1],
        "A cap on ε and a cap on the variance do contradict each other. But improbable large errors are not a "
        "demand for a small ε: both want a large one. A count is off by more than 10 with probability {0[0]:.2g} at "
        "ε = 0.1 and {0[1]:.2g} at ε = 1; the variances are {1[0]:g} and {1[1]:g}.",
    ),
    TextbookClaim(
        "The classical Gaussian formula",
        ("deep learning", "noise", "glossary"),
        "σ = Δ₂√(2 ln(1.25/δ))/ε gives (ε, δ)-DP.",
        """\
growth = math.sqrt(2 * math.log(1.25 / 1e-5))
least = [gaussian_noise_multiplier(e, 1e-5) for e in (0.5, 1.0, 12.0)]
formula = [growth / epsilon for epsilon in (0.5, 1.0, 12.0)]
formula, least, accounting.epsilon(Gaussian(formula[2]), 1e-5).lower""",
        "holds in part",
        lambda formula, least, true: formula[0] > least[0] and formula[2] < least[2] and true > 12,
        "It is proved for ε < 1 only, which one text says and two do not. There it is safe and wasteful: "
        "{0[1]:.4g}·Δ₂ where {1[1]:.4g}·Δ₂ is enough at (1, 1e-5). At ε = 12 it gives {0[2]:.3g}·Δ₂ and the true ε "
        "is {2:.4g}.",
    ),
    TextbookClaim(
        "A smaller δ costs little",
        ("deep learning",),
        "The noise grows slowly as δ falls, for instance from 1/n to 1/n^1.1.",
        """\
n = 100_000
noise = [gaussian_noise_multiplier(1.0, delta) for delta in (1 / n, n**-1.1)]
noise[0], noise[1]""",
        "holds",
        lambda first, second: shows(first, "3.731") and shows(second, "3.983"),
        "With 100,000 people and ε = 1, σ grows from {0:.3f}·Δ₂ to {1:.3f}·Δ₂, by 7%.",
    ),
    TextbookClaim(
        "One number: Laplace has the smaller error",
        ("deep learning", "noise"),
        "For one number at the same ε, Laplace noise has a smaller expected error than Gaussian noise, above all "
        "for tiny δ.",
        """\
gaussian = gaussian_noise_multiplier(1.0, 1e-5) * math.sqrt(2 / math.pi)
crossing = gaussian_delta(1.0, math.sqrt(2 / math.pi))
1.0, gaussian, crossing""",
        "holds",
        lambda laplace, gaussian, crossing: laplace < gaussian and crossing > 1e-2,
        "At ε = 1 the mean error is {0:g}·Δ with Laplace noise and {1:.3g}·Δ with Gaussian noise at δ = 1e-5. "
        "Gaussian noise is better only above δ = {2:.2g}.",
    ),
    TextbookClaim(
        "Laplace adds more noise",
        ("noise",),
        "Laplace noise is larger than Gaussian noise at equivalent privacy; Laplace wins in very low dimensions only.",
        """\
gaussian = gaussian_noise_multiplier(1.0, 1e-6)
(gaussian / math.sqrt(2)) ** 2, gaussian_noise_multiplier(1.0, 1e-12) ** 2 / 2""",
        "holds in part",
        lambda first, second: 8 < first < 10 and second > first,
        "If one person moves all d coordinates alike, Laplace noise is smaller up to d = {0:.1f} at (1, 1e-6) and "
        "up to d = {1:.1f} at (1, 1e-12). If a person moves one coordinate, as in a histogram, it is smaller in any "
        "dimension.",
    ),
    TextbookClaim(
        "Irregular sensitivities",
        ("noise",),
        "Laplace noise is the choice for exploiting sensitivities that differ between coordinates.",
        """\
widths = np.array([1.0, 0.1, 0.01, 0.001])
sigma = gaussian_noise_multiplier(1.0, 1e-6)
laplace = [2 * len(widths) * widths.sum() ** 2, 2 * (widths ** (2 / 3)).sum() ** 3]
gaussian = [sigma**2 * len(widths) * (widths**2).sum(), sigma**2 * widths.sum() ** 2]
laplace[0] / laplace[1], gaussian[0] / gaussian[1]""",
        "holds in part",
        lambda laplace, gaussian: laplace > 1.5 and gaussian > 1.5,
        "Both can exploit them. Four coordinates move by at most 1, 0.1, 0.01 and 0.001. With the same noise on each, "
        "the total variance is {0:.2f} times that of the best Laplace noise (scales like the cube root of the width), "
        "and {1:.2f} times that of the best Gaussian noise (variances like the width).",
    ),
    TextbookClaim(
        "Gaussian noise needs a δ",
        ("noise",),
        "Gaussian noise never gives δ = 0.",
        """\
accounting.pure(Gaussian(100.0)).epsilon""",
        "holds",
        math.isinf,
        "The pure ε of Gaussian noise is {0:g}, however large σ is.",
    ),
    TextbookClaim(
        "L2-Laplace noise (Theorem 3)",
        ("noise",),
        "Laplace noise λ on each coordinate, under an L2 bound, is (ε, δ)-DP with ε = min{Δ₁/λ, (Δ₂/λ)(Δ₂/(2λ) + "
        "√(2 ln(1/δ)))}.",
        """\
theorem = closed_forms.l2_laplace_epsilon(1e-5, 4.0)
tight = accounting.epsilon(L2Laplace(4.0), 1e-5).upper
theorem, tight""",
        "holds",
        lambda theorem, tight: tight <= theorem,
        "For λ = 4Δ₂ and δ = 1e-5 the theorem (arXiv 2408.07021) gives {0:.4g}. Our accountant proves {1:.4g}.",
    ),
    TextbookClaim(
        "The practical scale of L2-Laplace noise",
        ("noise",),
        "In practice, λ = Δ₂√(2 ln(1.25/δ))/ε gives (ε, δ)-DP by that theorem.",
        """\
scale = math.sqrt(2 * math.log(1.25 / 1e-5))
theorem = closed_forms.l2_laplace_epsilon(1e-5, scale)
large = accounting.epsilon(L2Laplace(scale / 20), 1e-5).lower
theorem, accounting.epsilon(L2Laplace(scale), 1e-5).upper, large""",
        "holds in part",
        lambda theorem, tight, large: theorem > 1 and tight <= 1 and large > 20,
        "It does not follow: at (1, 1e-5) the theorem gives ε = {0:.4g} for it. It is enough for another reason: a "
        "sharper accountant gives {1:.3g}. At ε = 20 it fails: the true ε is at least {2:.3g}.",
    ),
    TextbookClaim(
        "Laplace in place of Gaussian",
        ("noise",),
        "Laplace noise of comparable variance can always replace Gaussian noise at the same (ε, δ).",
        """\
gaussian = gaussian_noise_multiplier(1.0, 1e-5)
theorem = 2 * closed_forms.l2_laplace_noise_multiplier(1.0, 1e-5) ** 2
least = calibrate(L2Laplace, dp.ApproxDP(1.0, 1e-5), tolerance=1e-4)
theorem / gaussian**2, 2 * least**2 / gaussian**2""",
        "holds in part",
        lambda theorem, tight: theorem > tight > 1.5,
        "Comparable means within a constant: under an L2 bound it takes {1:.3g} times the variance at (1, 1e-5), "
        "and {0:.3g} times by the theorem.",
    ),
    TextbookClaim(
        "Small δ favors Laplace",
        ("noise",),
        "For small δ Laplace noise is preferable.",
        """\
spreads = math.sqrt(2), math.sqrt(2 * 100)
gaussian_delta(1.0, 1 / spreads[0]), gaussian_delta(1.0, 1 / spreads[1])""",
        "holds in part",
        lambda single, hundred: single > 1e-2 and hundred < 1e-40,
        "For one number at ε = 1 it has the smaller variance below δ = {0:.2g}. For 100 numbers that all move, only "
        "below {1:.1g}.",
    ),
    TextbookClaim(
        "Laplace noise is simpler to draw",
        ("noise",),
        "Laplace noise is simpler to generate than Gaussian noise.",
        """\
sigma, t = 4.0, 5
y = np.arange(-400, 401)
laplace = np.exp(-np.abs(y) / t)
accepted = np.exp(-((np.abs(y) - sigma**2 / t) ** 2) / (2 * sigma**2))
laplace.sum() / (laplace * accepted).sum()""",
        "holds",
        lambda draws: 1 < draws < 2,
        "An exact discrete Gaussian is drawn by accepting or rejecting exact Laplace noise (Canonne, Kamath & "
        "Steinke 2020): {0:.3g} Laplace draws for each at σ = 4.",
    ),
    TextbookClaim(
        "Heavy tails",
        ("noise", "deep learning"),
        "Laplace noise has heavier tails than Gaussian noise.",
        """\
from scipy import special

laplace, gaussian = math.exp(-5 * math.sqrt(2)), 2 * special.ndtr(-5.0)
laplace, laplace / gaussian""",
        "holds",
        lambda laplace, times: times > 1000,
        "Beyond 5 standard deviations lies {0:.2g} of it, {1:,.0f} times as much. Its privacy loss is bounded all "
        "the same, and that of Gaussian noise is not.",
    ),
    TextbookClaim(
        "The exponential mechanism",
        ("foundations",),
        "Choosing o with probability proportional to exp(ε q(o)/(2Δ)) is ε-DP and mostly chooses a good option.",
        """\
from fractions import Fraction

votes = np.array([30, 25, 20])
winner = [float(1 / np.exp(rate * (votes - 30)).sum()) for rate in (0.5, 1.0)]
accounting.pure(events.Exponential(Fraction(1))).epsilon, winner[0], winner[1]""",
        "holds",
        lambda epsilon, plain, monotone: shows(epsilon, "1") and plain < monotone,
        "It is {0:g}-DP, and of 30, 25 and 20 votes the winner is chosen with probability {1:.1%}. A voter can only "
        "raise scores, so the 2 is not needed here: without it, {2:.1%} at the same ε.",
    ),
    TextbookClaim(
        "PATE",
        ("machine learning",),
        "Teachers on disjoint parts of the data vote, and the largest noisy count is private.",
        """\
gaussian = accounting.epsilon(events.GaussianVotes(40.0), 1e-5).upper
gaussian, accounting.pure(events.LaplaceVotes(20.0)).epsilon""",
        "holds",
        lambda gaussian, laplace: gaussian < 0.2 and laplace <= 0.1 + 1e-12,
        "One person trains one teacher and so moves one vote. A question costs ε = {1:.2g} with Laplace noise of "
        "scale 20, and {0:.2g} at δ = 1e-5 with Gaussian noise σ = 40. Answers with a clear majority cost less.",
    ),
    TextbookClaim(
        "Post-processing",
        ("deep learning", "machine learning", "glossary", "foundations"),
        "No function of the output that does not look at the data again can weaken the guarantee.",
        """\
released = closed_forms.laplace_delta(0.5, 1.0)
above = [1 - 0.5 * math.exp(-0.5), 0.5 * math.exp(-0.5)]
thresholded = above[0] - math.exp(0.5) * above[1]
released, thresholded""",
        "holds",
        lambda released, thresholded: thresholded <= released,
        "A count with Laplace noise at ε = 1 has δ = {0:.4f} at ε = 0.5. Told only whether the noisy count exceeds "
        "a threshold between the two worlds, an attacker is left with {1:.4f}.",
    ),
    TextbookClaim(
        "Temperature, rounding and calibration",
        ("deep learning",),
        "Scaling released logits by a temperature, rounding them, or calibrating them on public data costs nothing.",
        """\
from scipy import stats


def delta_after_rounding(step):
    edges = np.arange(-40, 40, step)
    masses = [np.diff(stats.laplace.cdf(edges, loc=center)) for center in (0, 1)]
    return float(np.maximum(masses[0] - math.exp(0.5) * masses[1], 0).sum())


closed_forms.laplace_delta(0.5, 1.0), [delta_after_rounding(s) for s in (0.3, 1.7)]""",
        "holds",
        lambda released, rounded: all(value <= released + 1e-12 for value in rounded),
        "A score with Laplace noise at ε = 1 has δ = {0:.4f} at ε = 0.5. Rounded to steps of 0.3 and 1.7 it has "
        "{1[0]:.4f} and {1[1]:.4f}; a temperature only changes the unit. Calibration on labels of private rows is not "
        "free: it looks at the data again ([scores instead of labels](how-to/pate.md#scores-instead-of-labels)).",
    ),
    TextbookClaim(
        "Local noise costs accuracy",
        ("foundations", "glossary"),
        "If each person adds noise, nobody has to be trusted, and the same ε takes far more noise.",
        """\
from discreet.mechanisms.local import GeneralizedResponse

people, coin = 100_000, GeneralizedResponse(1.0, ("yes", "no"))
local = people * math.sqrt(float(coin.variance(0.5, people)))
local, local / math.sqrt(2)""",
        "holds",
        lambda local, times: times > 100,
        "How many of 100,000 say yes, at ε = 1: a standard error of {0:.0f} people, {1:.0f} times that of a curator "
        "([when to trust a curator](topics/trust.md)).",
    ),
    TextbookClaim(
        "Comparing guarantees",
        ("noise",),
        "Versions of differential privacy are hard to compare: the answer may change with the way privacy is measured.",
        """\
laplace, gaussian = Laplace(1.0), Gaussian(math.sqrt(2))
by_epsilon = [accounting.epsilon(event, 1e-6).upper for event in (laplace, gaussian)]
by_rho = [accounting.zcdp(event).rho for event in (laplace, gaussian)]
by_epsilon, by_rho""",
        "holds",
        lambda by_epsilon, by_rho: by_epsilon[0] < by_epsilon[1] and by_rho[0] > by_rho[1],
        "At the same variance 2, Laplace noise is better by ε at δ = 1e-6 ({0[0]:.3g} against {0[1]:.3g}) and "
        "Gaussian noise by ρ of zCDP ({1[1]:.3g} against {1[0]:.3g}).",
    ),
)
