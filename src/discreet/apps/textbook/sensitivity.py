"""Claims about sensitivity: how far one person can move a result, and under which relation."""

from discreet.apps.textbook.claim import TextbookClaim

CLAIMS = (
    TextbookClaim(
        "Sensitivity belongs to the query",
        ("deep learning", "foundations"),
        "The sensitivity is a property of the query, a worst case over all data, and not of the data at hand.",
        """\
agreeing, split = np.zeros(101), np.repeat([0.0, 100.0], [51, 50])


def largest_change(data):
    changed = [np.median(np.append(data[1:], value)) for value in (0.0, 100.0)]
    return float(max(abs(np.array(changed) - np.median(data))))


[largest_change(data) for data in (agreeing, split)]""",
        "holds",
        lambda changes: changes == [0.0, 100.0],
        "One changed value moves the median of 101 equal values by {0[0]:.0f}, and that of 51 zeros and 50 hundreds by "
        "{0[1]:.0f}. Noise that is set to what the data at hand allow would be 0 in one case, which tells them apart. "
        "Where a formula contains the number of rows, that number must be public.",
    ),
    TextbookClaim(
        "Accuracy on m examples",
        ("deep learning", "machine learning"),
        "The accuracy on m examples, like any mean of values in [0, 1], has sensitivity 1/m.",
        """\
query = dp.queries.accuracy([1] * 50, [0] * 50)
query.sensitivity().l1 * float(query.granularity), str(query.relation.value)""",
        "holds",
        lambda change, relation: abs(change - 1 / 50) < 1e-12 and relation == "replace-one",
        "With m = 50 it is {0:g}, if neighbors differ in the contents of one example ({1}). If an example may come "
        "or go, m is private and a noisy sum is divided by a noisy count.",
    ),
    TextbookClaim(
        "The mean of clamped salaries",
        ("foundations",),
        "The mean of N salaries that are clamped to [min, max] has sensitivity (max − min)/N.",
        """\
query = dp.queries.mean([50.0] * 200, bounds=(0, 100), relation="replace-one")
replaced = query.sensitivity().l1 * float(query.granularity)
alone = abs(np.mean([100.0]) - np.mean([100.0, 0.0]))
replaced, alone""",
        "holds in part",
        lambda replaced, alone: abs(replaced - 100 / 200) < 1e-6 and alone == 50,
        "It holds if one salary is replaced and N is public: {0:.3g} for [0, 100] and N = 200. The text defines "
        "neighbors by adding or removing a person. Then N is private and may be 1: a second person moves the mean "
        "by {1:g}, so no bound smaller than that holds for all tables.",
    ),
    TextbookClaim(
        "Unbounded values",
        ("foundations", "deep learning", "glossary"),
        "Without bounds on values or gradients the sensitivity is infinite, and no finite noise is enough.",
        """\
from discreet.errors import InvalidArgument

try:
    refused = dp.queries.sum([50_000.0], bounds=(0, math.inf)) is None
except InvalidArgument:
    refused = True
refused""",
        "holds",
        lambda refused: refused,
        "A sum without finite bounds is refused before anything is computed.",
    ),
    TextbookClaim(
        "Mean of clipped gradients",
        ("deep learning",),
        "The mean of n gradients that are clipped to C has sensitivity 2C/n if one is replaced, and C/n if one is "
        "added or removed.",
        """\
n, C = 100, 1.0
before = np.full(n, C).mean()
after = np.append(np.full(n, C), -C).mean()
abs(after - before) * n / C""",
        "holds in part",
        lambda change: 1.9 < change < 2.0,
        "If the mean divides by the true n, adding a gradient changes n as well: here by {0:.3g}·C/n, nearly as "
        "much as replacing one. C/n holds for a sum divided by a fixed number. Discreet divides by the expected "
        "batch size.",
    ),
    TextbookClaim(
        "More data, less noise",
        ("deep learning", "noise"),
        "For a mean the noise falls like 1/n, so larger datasets are easier to protect.",
        """\
[100 / (n * 1.0) for n in (100, 1_000, 10_000)]""",
        "holds",
        lambda scales: scales[0] / scales[1] == 10,
        "Laplace noise at ε = 1 on a mean in [0, 100] has scale {0[0]:g}, {0[1]:g} and {0[2]:g} for 100, 1,000 and "
        "10,000 people.",
    ),
    TextbookClaim(
        "Thousands of samples",
        ("noise",),
        "Useful results need thousands of samples.",
        """\
proportion = math.ceil(math.log(1 / 0.05) / (1.0 * 0.01))
sigma = gaussian_noise_multiplier(1.0, 1e-5)
training = [sigma * math.sqrt(parameters) for parameters in (100, 10**6)]
proportion, training""",
        "holds in part",
        lambda people, norms: people < 1000 < norms[1],
        "It depends on the question. A proportion within 1% (95% of the time, ε = 1) needs {0:,} people. One noisy "
        "sum of gradients carries noise of norm {1[0]:.3g}·C with 100 parameters and {1[1]:.3g}·C with a million, "
        "which takes as many people who agree.",
    ),
    TextbookClaim(
        "L1 against L2 in high dimension",
        ("noise",),
        "The L1 sensitivity is √d times the L2 sensitivity: with 100,000 parameters it takes 316 times the noise.",
        """\
ratio = math.sqrt(100_000)
laplace = math.sqrt(2) * ratio / 1.0
gaussian = gaussian_noise_multiplier(1.0, 1e-6)
ratio, laplace / gaussian""",
        "holds in part",
        lambda ratio, times: round(ratio) == 316 and times < 200,
        "√d = {0:.0f} is right where one person moves all coordinates alike. Against Gaussian noise at (1, 1e-6) it "
        "means {1:.0f} times the standard deviation, not 316, since Gaussian noise pays for δ.",
    ),
    TextbookClaim(
        "Clipping in L1 against L2",
        ("deep learning",),
        "For long gradients the expected squared norm of the noise favors Gaussian noise over L1 clipping with "
        "Laplace noise.",
        """\
d = 1_000
laplace = 2 * d
gaussian = d * gaussian_noise_multiplier(1.0, 1e-5) ** 2
laplace, gaussian, laplace * d / gaussian""",
        "holds in part",
        lambda laplace, gaussian, fair: laplace < gaussian and fair > 100,
        "At the same clip norm the squared norm of Laplace noise is smaller: {0:,} against {1:,.0f}·C² for d = "
        "1,000 at (1, 1e-5). But clipping to the same number in L1 shrinks a dense gradient √d times as much. For the "
        "same remaining gradient, Laplace noise is {2:.0f} times larger.",
    ),
    TextbookClaim(
        "Clipping a gradient",
        ("deep learning", "machine learning", "glossary"),
        "g·min(1, C/‖g‖) has norm at most C, so a sum of clipped gradients has sensitivity C when one is added or "
        "removed.",
        """\
g, C = np.array([3.0, 4.0]), 1.0
clipped = g * min(1, C / np.linalg.norm(g))
float(np.linalg.norm(clipped)), accounting.epsilon(Gaussian(1.0), 1e-5).upper""",
        "holds",
        lambda norm, epsilon: abs(norm - 1) < 1e-12,
        "The norm is {0:g}. With noise σ = 1 on the sum, one step costs ε = {1:.3g} at δ = 1e-5. When one example "
        "is replaced, the sensitivity is 2C. One text says that a person's share of the mean is at most C; over a "
        "batch of B it is at most C/B.",
    ),
    TextbookClaim(
        "A Lipschitz loss instead of clipping",
        ("deep learning",),
        "A loss with a bounded slope bounds gradients without clipping, but rarely applies to deep models.",
        """\
scores = np.linspace(-30, 30, 6001)
slopes = 1 / (1 + np.exp(-scores)) - 1.0
float(np.abs(slopes).max())""",
        "holds",
        lambda slope: 0.999 < slope <= 1,
        "The logistic loss has slope at most 1 (here {0:.4f}), so with inputs of norm 1 no gradient exceeds 1. In a "
        "deep model the slope with respect to the first layer is a product over all layers.",
    ),
)
