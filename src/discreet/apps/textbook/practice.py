"""Claims about use: continual counting, what is deployed, tools and advice."""

from discreet.apps.textbook.claim import TextbookClaim, shows

CLAIMS = (
    TextbookClaim(
        "Privacy makes systems fairer",
        ("machine learning",),
        "Privacy-preserving methods are essential for fairer systems.",
        """\
people, found = np.array([10_000, 100]), 0.3
error = 1.0 / (people * found)
float(error[0]), float(error[1])""",
        "does not hold",
        lambda large, small: small > 50 * large,
        "Noise and clipping hit small groups hardest. At ε = 1 a count of 30% is off by {0:.2%} of itself among 10,000 "
        "people and by {1:.1%} among 100. Private training can widen the gap in accuracy between groups (Bagdasaryan, "
        "Poursaeed & Shmatikov 2019); it did not for a linear model on Adult "
        "([measured by group](how-to/evaluation.md)). Privacy and fairness are two demands; measure both.",
    ),
    TextbookClaim(
        "Laplace wins in continual observation",
        ("noise",),
        "For running counts, Laplace noise can beat Gaussian noise.",
        """\
from discreet.mechanisms.continual import Buffered, Stream, SubtractionTree


def wins_below(steps, branching):
    stream = Stream(steps)
    laplace = SubtractionTree.for_epsilon(stream, 1.0, branching=branching).mean_error()
    buffered = Buffered.for_epsilon(stream, 1.0, 1e-6, buffers=6, forgetting=0.75)
    gaussian = buffered.mean_error()
    known = gaussian_noise_multiplier(1.0, 1e-6)
    return gaussian_delta(1.0, 1 / (known * math.sqrt(laplace / gaussian)))


streams = (64, 13), (256, 23), (1024, 13), (4096, 21), (16384, 33), (65536, 21)
[wins_below(steps, branching) for steps, branching in streams]""",
        "holds in part",
        lambda values: values == sorted(values, reverse=True) and values[0] > 1e-5 > values[2],
        "For tiny δ only, and the longer the stream, the tinier. At ε = 1 the mean squared error is smaller than "
        "that of a buffered Gaussian factorization below δ = {0[0]:.1e} for 2⁶ steps, {0[1]:.1e} for 2⁸, {0[2]:.1e} "
        "for 2¹⁰, {0[3]:.1e} for 2¹², {0[4]:.1e} for 2¹⁴ and {0[5]:.1e} for 2¹⁶. Against the best of all "
        "factorizations it is up to 5% less ([which counter](how-to/continual.md#which-counter)).",
    ),
    TextbookClaim(
        "Trees with more branches",
        ("noise",),
        "Trees of k branches generalize the binary tree for counting.",
        """\
from discreet.mechanisms.continual import Stream, SubtractionTree, Tree

stream = Stream(1024)
binary = Tree.for_epsilon(stream, 1.0, refined=False).mean_error()
wide = SubtractionTree.for_epsilon(stream, 1.0, branching=13).mean_error()
binary, wide""",
        "holds",
        lambda binary, wide: wide < binary / 5,
        "Over 1,024 steps at ε = 1 the mean squared error falls from {0:,.0f} with a binary tree to {1:.0f} with 13 "
        "branches and subtraction.",
    ),
    TextbookClaim(
        "ε of 3 to 10 is common in production",
        ("glossary",),
        "In production, ε between 3 and 10 is common; above 10 a guarantee is weak and mostly heuristic.",
        """\
census, keyboard = 17.14 + 2.47, (0.994, 13.69)
census, 1 / (1 + math.exp(-10.0))""",
        "holds in part",
        lambda census, sure: census > 10 and sure > 0.9999,
        "Published deployments lie on both sides: {0:.2f} for the US census, 0.994 to 13.69 for Google's keyboard "
        "([deployments](topics/deployments.md)). At ε = 10 a guess that was 50% sure may become {1:.3%} sure, so "
        "the guarantee alone says little.",
    ),
    TextbookClaim(
        "Who uses it",
        ("glossary",),
        "The US census of 2020, Apple, Google and Meta use differential privacy; Apple's keyboard and RAPPOR use "
        "the local model.",
        """\
from discreet.mechanisms.local import Rappor

Rappor(bits=128).permanent.epsilon""",
        "holds",
        lambda epsilon: shows(epsilon, "4.39"),
        "They do, each with its own unit ([deployments](topics/deployments.md)). RAPPOR's published parameters (h = "
        "2, f = 1/2) mean ε = {0:.3g} for everything that a device ever reports about one value.",
    ),
    TextbookClaim(
        "The accountants of the tools",
        ("noise",),
        "TensorFlow Privacy and Opacus account with Rényi DP.",
        """\
training = Repeated(PoissonSampled(0.04, Gaussian(1.5)), 2250)
compared = accounting.compare(training, 1e-5)
compared.epsilon("RDP, tight"), compared.epsilon("tight")""",
        "holds in part",
        lambda renyi, exact: renyi > exact,
        "Both can; Opacus now defaults to a tighter numerical accountant (PRV). For rate 0.04, σ = 1.5 and 2,250 "
        "steps Rényi DP gives {0:.4g} and the exact price is {1:.4g} at δ = 1e-5 ([other "
        "libraries](topics/comparison.md)).",
    ),
    TextbookClaim(
        "Which mechanism for what",
        ("noise", "deep learning"),
        "Laplace for few simple queries and pure DP; Gaussian for many steps and many dimensions.",
        """\
gaussian = gaussian_noise_multiplier(1.0, 1e-6)
[math.sqrt(2 * d) for d in (1, 1000)], gaussian""",
        "holds",
        lambda laplace, gaussian: laplace[0] < gaussian < laplace[1],
        "At (1, 1e-6) and Δ₂ = 1 the standard deviation of Laplace noise is {0[0]:.3g} for one number and "
        "{0[1]:.3g} for 1,000 numbers that all move; that of Gaussian noise is {1:.3g} for both. `discreet compare` "
        "answers it for your own task.",
    ),
)
