"""Claims about many releases: sums of ε, advanced composition, Rényi DP, and samples."""

from discreet.apps.textbook.claim import TextbookClaim, shows

CLAIMS = (
    TextbookClaim(
        "Three queries",
        ("noise",),
        "Queries at ε = 1, 0.5 and 1.5 cost 3.0 together.",
        """\
total = accounting.basic([dp.PureDP(1.0), dp.PureDP(0.5), dp.PureDP(1.5)]).epsilon
laplace = events.Composed((Laplace(1.0), Laplace(2.0), Laplace(1 / 1.5)))
total, accounting.epsilon(laplace, 1e-6).upper""",
        "holds",
        lambda total, tight: shows(total, "3.0") and tight < total,
        "{0:.1f}. If they are Laplace releases, {1:.6f} at δ = 1e-6: with few queries the sum is nearly the truth.",
    ),
    TextbookClaim(
        "Budgets add up",
        ("deep learning", "machine learning", "glossary", "foundations"),
        "Mechanisms that are (εᵢ, δᵢ)-DP are (Σεᵢ, Σδᵢ)-DP together.",
        """\
together = accounting.basic([dp.ApproxDP(0.1, 1e-6)] * 100)
exact = accounting.epsilon(Repeated(Claimed(0.1, 1e-6), 100), 1.1e-4).upper
together.epsilon, together.delta, exact""",
        "holds",
        lambda epsilon, delta, exact: exact < epsilon,
        "100 mechanisms at (0.1, 1e-6) are ({0:g}, {1:g})-DP together. It is simple and far from tight: at δ = "
        "1.1e-4 the best bound for any such mechanisms is {2:.4g}. The outputs need not be independent; the noise "
        "must be.",
    ),
    TextbookClaim(
        "A log of validation accuracies",
        ("deep learning",),
        "T accuracies, each ε₀-DP, on one validation set are Tε₀-DP; counting each alone is wrong.",
        """\
search = Repeated(Laplace(1 / 0.1), 50)
accounting.pure(search).epsilon, accounting.epsilon(search, 1e-6).upper""",
        "holds",
        lambda pure, tight: abs(pure - 5) < 1e-9 and tight < pure,
        "50 models at 0.1 cost {0:g}, or {1:.3g} at δ = 1e-6. Choosing the best of them without the log costs far "
        "less ([choose among models](how-to/selection.md)).",
    ),
    TextbookClaim(
        "The losses of five models",
        ("machine learning",),
        "With ε = 1 for five losses, each gets 0.2; releasing each at ε = 1 would spend five times the budget.",
        """\
split = Repeated(Laplace(1 / 0.2), 5)
naive = Repeated(Laplace(1.0), 5)
pure = [accounting.pure(event).epsilon for event in (split, naive)]
pure[0], pure[1], accounting.epsilon(split, 1e-6).upper""",
        "holds",
        lambda split, naive, tight: split == 1 and naive == 5 and tight <= 1,
        "{0:g} and {1:g}. A δ of 1e-6 hardly helps with five releases ({2:.5g}). A loss has no bound of its own: it "
        "must be clamped first.",
    ),
    TextbookClaim(
        "Five queries on parts of the data",
        ("foundations",),
        "Five queries at ε cost 5ε on the same data and ε on five disjoint parts.",
        """\
one = Laplace(5.0)
same = accounting.pure(Repeated(one, 5)).epsilon
parts = events.Parallel((one,) * 5)
same, accounting.pure(parts).epsilon, accounting.pure(parts, dp.REPLACE_ONE).epsilon""",
        "holds in part",
        lambda same, added, replaced: shows(same, "1.0") and shows(added, "0.2") and shows(replaced, "0.4"),
        "At ε = 0.2: {0:g} and {1:g}, if a person is added or removed. If a record is replaced, it can move from "
        "one part to another and touch two of them: {2:g}.",
    ),
    TextbookClaim(
        "100 queries by advanced composition",
        ("noise",),
        "100 queries at ε = 0.1, δ = 1e-6 with δ′ = 1e-5 compose to ε ≈ 4.79 + 1.05 = 5.84, against 10 by adding up.",
        """\
advanced = accounting.advanced(dp.ApproxDP(0.1, 1e-6), 100, slack=1e-5)
spread = 0.1 * math.sqrt(2 * 100 * math.log(1e5))
laplace = accounting.epsilon(Repeated(Laplace(10.0), 100), 1.1e-4).upper
advanced.epsilon, advanced.delta, spread, laplace""",
        "holds in part",
        lambda epsilon, delta, spread, laplace: shows(epsilon, "5.850") and shows(laplace, "3.658"),
        "2·100·ln(1e5) is 2303, not 2294, so the first term is {2:.3f} and the theorem gives {0:.3f}, at a total δ "
        "= {1:.2g} that the text leaves out. For Laplace noise the exact ε at that δ is {3:.3f}.",
    ),
    TextbookClaim(
        "The simplified formula",
        ("noise",),
        "For small ε advanced composition is about ε√(2k ln(1/δ′)) + kε².",
        """\
simple = 0.1 * math.sqrt(2 * 100 * math.log(1e5)) + 100 * 0.1**2
theorem = accounting.advanced(dp.PureDP(0.1), 100, slack=1e-5).epsilon
simple, theorem""",
        "holds in part",
        lambda simple, theorem: shows(simple, "5.799") and simple < theorem,
        "{0:.3f} is close to {1:.3f}, but below it: ε² is less than ε(e^ε − 1). An approximation from below is not a "
        "bound; don't charge it.",
    ),
    TextbookClaim(
        "Adding up is useless for training",
        ("deep learning", "noise"),
        "Over the thousands of steps of a training, adding up gives an ε that is too large to be of use.",
        """\
training = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10_000)
compared = accounting.compare(training, 1e-5)
compared.epsilon("basic"), compared.epsilon("tight")""",
        "holds",
        lambda basic, tight: basic > 100 * tight,
        "10,000 steps at rate 0.01 and σ = 1: {0:,.0f} by adding up, {1:.2f} exactly (δ = 1e-5).",
    ),
    TextbookClaim(
        "Which composition needs a δ",
        ("noise",),
        "Adding up needs no δ; advanced composition and Rényi DP do, and Rényi DP grows more slowly than linearly.",
        """\
moments = accounting.rdp(Repeated(Laplace(10.0), 100))
at_last = float(np.asarray(moments.epsilons)[-1])
counts = 100, 400, 100_000, 400_000
costs = [accounting.epsilon(Repeated(Gaussian(30.0), k), 1e-5).upper for k in counts]
at_last, costs[1] / costs[0], costs[3] / costs[2]""",
        "holds in part",
        lambda at_last, few, many: at_last <= 10 and few < 2.5 and many > 3,
        "Rényi divergences add up without a δ, and stay below the 10 of adding up for 100 Laplace releases at 0.1 "
        "(here {0:.3g} at the highest order); δ enters when they become (ε, δ). Growth is slow at first only: with "
        "σ = 30, four times the releases cost {1:.2f} times as much from 100 on, and {2:.2f} times from 100,000 on.",
    ),
    TextbookClaim(
        "Growth like the square root",
        ("noise",),
        "Under advanced composition ε grows like √k, not like k.",
        """\
claim = dp.PureDP(0.1)
counts = 100, 400, 10_000, 40_000
costs = [accounting.advanced(claim, k, 1e-5).epsilon for k in counts]
costs[1] / costs[0], costs[3] / costs[2]""",
        "holds in part",
        lambda few, many: 2 <= few < 2.5 and many > 3,
        "The second term kε(e^ε − 1) is linear. At ε = 0.1, four times the queries cost {0:.2f} times as much from "
        "100 on, and {1:.2f} times from 10,000 on.",
    ),
    TextbookClaim(
        "Advanced is tighter than adding up",
        ("noise",),
        "Advanced composition is more accurate than adding up.",
        """\
claim = dp.PureDP(0.1)
next(k for k in range(1, 1000) if accounting.advanced(claim, k, 1e-5).epsilon < 0.1 * k)""",
        "holds in part",
        lambda first: 20 < first < 40,
        "For few queries it is worse. At ε = 0.1 and δ′ = 1e-5 it is better from {0} queries on.",
    ),
    TextbookClaim(
        "Laplace noise adds up linearly",
        ("noise",),
        "The ε of Laplace releases accumulates linearly and exhausts a budget fast.",
        """\
many = Repeated(Laplace(10.0), 100)
accounting.pure(many).epsilon, accounting.epsilon(many, 1e-5).upper""",
        "holds in part",
        lambda pure, tight: tight < pure / 2,
        "Only if δ must be 0. 100 releases at 0.1 are {0:g}-DP, and (ε, 1e-5)-DP with ε = {1:.3g}.",
    ),
    TextbookClaim(
        "1,000 steps with Laplace noise",
        ("noise",),
        "1,000 steps at ε = 3 leave 0.003 for each, a noise scale of 1000.",
        """\
budget = dp.ApproxDP(3.0, 1e-5)
least = calibrate(lambda b: Repeated(Laplace(b), 1000), budget, tolerance=1e-4)
1 / 0.003, least""",
        "does not hold",
        lambda scale, least: round(scale) == 333 and least < 50,
        "1/0.003 is {0:.0f}·Δ₁. With δ = 1e-5 a scale of {1:.3g}·Δ₁ is enough.",
    ),
    TextbookClaim(
        "Rényi DP is tightest",
        ("noise",),
        "Rényi DP gives the tightest known bounds for Gaussian noise.",
        """\
training = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10_000)
compared = accounting.compare(training, 1e-5)
compared.epsilon("RDP, tight"), compared.epsilon("tight")""",
        "does not hold",
        lambda renyi, exact: renyi > 1.05 * exact,
        "10,000 steps at rate 0.01 and σ = 1: ε = {0:.4g} by Rényi DP and {1:.4g} exactly (δ = 1e-5).",
    ),
    TextbookClaim(
        "Rényi DP composes and converts",
        ("deep learning", "noise"),
        "Rényi divergences of each order add up, also with samples, and min over α of R(α) + ln(1/δ)/(α − 1) is the "
        "tightest (ε, δ).",
        """\
training = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10_000)
moments = accounting.rdp(training)
[conversions.rdp_epsilon(moments, 1e-5, way) for way in ("textbook", "tight")]""",
        "holds in part",
        lambda ways: ways[1] < ways[0],
        "They add up, and the conversion is valid but not the tightest: {0[0]:.4g}, against {0[1]:.4g} by Canonne, "
        "Kamath & Steinke 2020 (Proposition 12), at the same orders.",
    ),
    TextbookClaim(
        "The moments accountant and its successor",
        ("glossary",),
        "The moments accountant tracks the loss over training; the Rényi accountant is its tighter successor.",
        """\
training = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
compared = accounting.compare(training, 1e-5)
[compared.epsilon(method) for method in ("RDP, textbook", "RDP, tight", "tight")]""",
        "holds in part",
        lambda epsilons: shows(epsilons[0], "1.26") and shows(epsilons[2], "0.947"),
        "The example of Abadi et al. 2016 (rate 0.01, σ = 4, 10,000 steps, δ = 1e-5) costs 1.26 by their "
        "accountant. Rényi DP with the textbook conversion is the same accountant: {0[0]:.3g}. A tighter conversion "
        "gives {0[1]:.4g}, and the truth is {0[2]:.3f}.",
    ),
    TextbookClaim(
        "Advanced composition against Rényi DP",
        ("noise",),
        "Advanced composition is weaker than Rényi DP.",
        """\
compared = accounting.compare(Repeated(Laplace(10.0), 100), 1e-5)
[compared.epsilon(method) for method in ("advanced", "RDP, tight", "tight")]""",
        "holds",
        lambda epsilons: epsilons[0] > epsilons[1] > epsilons[2],
        "100 Laplace releases at 0.1, δ = 1e-5: {0[0]:.3g} by advanced composition, {0[1]:.3g} by Rényi DP, "
        "{0[2]:.3g} exactly.",
    ),
    TextbookClaim(
        "A sample of rate q costs qε",
        ("glossary",),
        "On a sample of rate q, an ε-DP mechanism is roughly qε-DP for small ε.",
        """\
mechanisms = [PoissonSampled(0.01, Laplace(1 / epsilon)) for epsilon in (0.1, 1.0, 3.0)]
[accounting.pure(sampled).epsilon for sampled in mechanisms]""",
        "holds in part",
        lambda sampled: shows(sampled[1], "0.0170") and shows(sampled[2], "0.175"),
        "It is ln(1 + q(e^ε − 1)). At q = 0.01: ε = 0.1 gives {0[0]:.5f}, which is 5% more than qε; ε = 1 gives "
        "{0[1]:.4f}, 70% more; ε = 3 gives {0[2]:.3f}, nearly six times qε.",
    ),
    TextbookClaim(
        "Sampling saves noise",
        ("machine learning",),
        "Because a random batch hides who took part, the same privacy takes less noise, for free.",
        """\
budget = dp.ApproxDP(1.0, 1e-5)
plain = calibrate(Gaussian, budget)
sampled = calibrate(lambda s: PoissonSampled(0.01, Gaussian(s)), budget)
plain, sampled""",
        "holds",
        lambda plain, sampled: shows(plain, "3.731") and shows(sampled, "0.674"),
        "One step at (1, 1e-5): σ = {0:.4g} on all data and {1:.3g} on a sample of 1%. It is not quite free: the "
        "sample must be drawn at random for each step, and stay secret.",
    ),
    TextbookClaim(
        "Any random minibatch will do",
        ("machine learning", "glossary"),
        "The minibatches of ordinary training amplify privacy like Poisson samples of rate B/n.",
        """\
poisson = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 1000)
shuffled = Repeated(events.ShuffledEpoch(600, 60_000, Gaussian(1.0)), 10)
by_shuffle = accounting.epsilon(shuffled, 1e-5, dp.REPLACE_ONE).upper
accounting.epsilon(poisson, 1e-5).upper, by_shuffle""",
        "does not hold",
        lambda poisson, shuffled: shuffled > 3 * poisson,
        "Poisson samples cost {0:.4g} (10 epochs, rate 0.01, σ = 1, δ = 1e-5). Ordinary training shuffles; for "
        "shuffled epochs (replacing an example) no such amplification is proved, and we charge {1:.3g}. Lower "
        "bounds show that the true price of shuffling can far exceed that of Poisson samples (arXiv 2403.17673).",
    ),
    TextbookClaim(
        "No amplification for Laplace noise",
        ("noise",),
        "Sampling does not amplify pure DP, or less well than Gaussian noise: scale 1 over 400 steps means ε = 400.",
        """\
steps = Repeated(PoissonSampled(0.01, Laplace(1.0)), 400)
accounting.pure(steps).epsilon, accounting.epsilon(steps, 1e-5).upper""",
        "does not hold",
        lambda pure, tight: pure < 7 and tight < 1,
        "On Poisson samples of 1% these 400 steps are {0:.3g}-DP with δ = 0, and cost {1:.3g} at δ = 1e-5.",
    ),
    TextbookClaim(
        "Federated learning with differential privacy",
        ("glossary",),
        "With federated learning it forms a defensible stack.",
        """\
rounds = Repeated(PoissonSampled(0.1, Gaussian(1.0)), 100)
accounting.epsilon(rounds, 1e-5).upper""",
        "holds in part",
        lambda epsilon: shows(epsilon, "7.05"),
        "Keeping data on devices guarantees nothing by itself: updates reveal data. With 100 of 1,000 clients in "
        "each of 100 rounds and noise 1, a client has ε = {0:.3g} at δ = 1e-5, if clients are sampled at random.",
    ),
)
