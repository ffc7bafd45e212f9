"""Exercises on several releases and on δ: parts of the data, a bug, and the losses of five models."""

from discreet.apps.learn.exercise import Chart, Exercise, ExerciseQuestion, Mistake

PARALLEL = Exercise(
    "parallel",
    "Five queries, one budget",
    "A hospital has five wards, and every patient is in exactly one. Analysts ask queries with Laplace noise.",
    (
        ExerciseQuestion(
            "Five queries on all patients, each with ε = 0.2. What do they cost together?",
            "accounting.pure(Repeated(Laplace(5.0), 5)).epsilon",
            "{0:g}: on the same data, ε adds up.",
            "Every patient is in every query.",
            (Mistake(0.2, "That holds for disjoint parts. Here each query uses all patients."),),
        ),
        ExerciseQuestion(
            "One query in each ward instead, each with ε = 0.2. What do they cost together, if a patient may be "
            "added or removed?",
            "accounting.pure(events.Parallel((Laplace(5.0),) * 5)).epsilon",
            "{0:g}: a patient is in one ward and touches one answer.",
            "How many of the five answers can one patient change?",
            (Mistake(1.0, "Each patient is in one ward only, so four of the five answers do not depend on them."),),
        ),
        ExerciseQuestion(
            "The same, but neighbors differ in one record that is replaced, ward included. What do the five cost now?",
            "accounting.pure(events.Parallel((Laplace(5.0),) * 5), dp.REPLACE_ONE).epsilon",
            "{0:g}: the record leaves one ward and enters another, so it touches two answers.",
            "A replaced record may move to another ward.",
            (
                Mistake(0.2, "That is for adding or removing a patient. A replaced record can change wards."),
                Mistake(1.0, "It can touch two wards at most: the old one and the new one."),
            ),
        ),
        ExerciseQuestion(
            "100 queries on all patients with ε = 0.1 each. What do they cost at δ = 1.1e-4, exactly? (`discreet "
            "price laplace --noise 10 --times 100 --delta 1.1e-4`)",
            "accounting.epsilon(Repeated(Laplace(10.0), 100), 1.1e-4).upper",
            "{0:.3f}, against 10 by adding up and 5.85 by advanced composition.",
            "Run the command in another terminal, and take the line `tight`.",
            (
                Mistake(10.0, "That is the sum, with δ = 0. A δ makes it much less."),
                Mistake(5.85024, "That is advanced composition. The accountant knows that the noise is Laplace."),
                Mistake(3.73434, "That is the best for any pure mechanism. For Laplace noise it is less."),
            ),
        ),
    ),
    Chart(
        "Five queries at ε = 0.2",
        """\
one = Laplace(5.0)
parts = events.Parallel((one,) * 5)
costs = [
    accounting.pure(Repeated(one, 5)).epsilon,
    accounting.pure(parts, dp.REPLACE_ONE).epsilon,
    accounting.pure(parts).epsilon,
]
["same data", "parts, a record replaced", "parts, a patient added"], {"ε": costs}""",
        "",
        "ε together",
        "bars",
        "Three bars: five queries at ε = 0.2 cost 1 on the same data, 0.4 on disjoint parts if a record is "
        "replaced, and 0.2 if a patient is added or removed.",
    ),
    "Queries on the same people add up; queries on disjoint people do not. Whether a person can change parts "
    "depends on the relation. For many queries, an accountant's total is far below the sum.",
)

BUG = Exercise(
    "bug",
    "A mechanism with a bug",
    "A mechanism is (1, 1e-6)-DP when it works. Because of a bug, it publishes the whole table once in 10,000 runs.",
    (
        ExerciseQuestion(
            "The buggy mechanism is (1, δ)-DP. What is δ?",
            "accounting.delta(events.MayFail(1e-4, Claimed(1.0, 1e-6)), 1.0).upper",
            "p + (1 − p)·δ₀ = {0:.4g}.",
            "With probability p everything is published; otherwise δ₀ holds. Weigh the two.",
            (
                Mistake(1e-6, "That is δ without the bug."),
                Mistake(1e-4, "Nearly. The runs that work still have their own δ₀."),
                Mistake(1e-10, "You multiplied p and δ₀. Both kinds of failure count, so they add up."),
            ),
            tolerance=0.004,
        ),
        ExerciseQuestion(
            "It runs once a day. With what probability does it publish the table at least once in a year, in percent?",
            "100 * (1 - (1 - 1e-4) ** 365)",
            "{0:.2f}%: far too often for a table of patients.",
            "One minus the probability that all 365 runs work.",
        ),
        ExerciseQuestion(
            "How large may p be if the buggy mechanism must still be (1, 2e-6)-DP?",
            "(2e-6 - 1e-6) / (1 - 1e-6)",
            "{0:.3g}, one in a million: a bug must be as rare as δ promises.",
            "Solve p + (1 − p)·1e-6 = 2e-6.",
            (Mistake(2e-6, "Then none of δ would be left for the runs that work."),),
        ),
        ExerciseQuestion(
            "A third mechanism publishes each row of 100,000 with probability δ = 1e-5, independently, and nothing "
            "else. It is (0, 1e-5)-DP. With what probability is somebody exposed, in percent?",
            "100 * (1 - (1 - 1e-5) ** 100_000)",
            "{0:.1f}%. This is why δ must be far below one over the number of people.",
            "One minus the probability that no row is published.",
            (
                Mistake(
                    100, "The expected number of exposed people is 1, but the probability of at least one is less."
                ),
                Mistake(0.001, "That is δ, for one given person, in percent."),
            ),
        ),
    ),
    Chart(
        "δ of a mechanism with a bug",
        """\
rates = [10 ** (-9 + step / 4) for step in range(29)]
priced = [accounting.delta(events.MayFail(p, Claimed(1.0, 1e-6)), 1.0).upper for p in rates]
rates, {"δ of the buggy mechanism": priced, "δ without the bug": [1e-6] * len(rates)}""",
        "probability p of the bug",
        "δ at ε = 1",
        "lines",
        "δ over the probability of the bug, both logarithmic. Below p = 1e-7 it stays at 1e-6; above 1e-5 it equals p.",
        "xy",
    ),
    "δ is where everything that may go wrong has to fit: bugs, broken hardware, weak randomness. p goes into δ "
    "almost unchanged.",
)

MODELS = Exercise(
    "models",
    "The losses of five models",
    "You have five models and a private validation set of 500 examples. You want to publish the mean loss of each, "
    "with ε = 1 in total and Laplace noise. Each example's loss is clamped to [0, 2]; neighbors differ in one "
    "example (replace-one).",
    (
        ExerciseQuestion(
            "What ε does each of the five losses get, if they share equally?",
            "1.0 / 5",
            "{0:g}: five questions about the same examples.",
            "The five releases use the same 500 examples, so their ε add up to 1.",
            (Mistake(1.0, "Then the five together would cost 5."),),
        ),
        ExerciseQuestion(
            "What would five releases at ε = 1 each cost?",
            "accounting.pure(Repeated(Laplace(1.0), 5)).epsilon",
            "{0:g}: five times the budget, and nobody would notice without an accountant.",
            "Add them up.",
        ),
        ExerciseQuestion(
            "What scale b of Laplace noise does each mean loss get?",
            "2 / 500 / 0.2",
            "(2/500)/0.2 = {0:g}.",
            "The mean moves by at most (2 − 0)/500. Divide by the ε of one loss.",
            (
                Mistake(0.004, "That is the sensitivity. Divide by ε = 0.2."),
                Mistake(0.0008, "You multiplied by ε. Divide."),
                Mistake(0.01, "The loss lies in [0, 2], so one example moves the mean by 2/500."),
            ),
        ),
        ExerciseQuestion(
            "Two models differ by 0.05 in loss. With what probability does the noise swap them, in percent? (The "
            "difference of two Laplace draws exceeds x·b with probability e^−x·(2 + x)/4.)",
            "x = 0.05 / 0.02\n100 * math.exp(-x) * (2 + x) / 4",
            "{0:.1f}%. To publish only the best model, `dp.noisy_max` needs a single ε for all five.",
            "x = 0.05/0.02 = 2.5.",
            (Mistake(4.10425, "That is e^−2.5/2, for one noisy loss against an exact one. Both are noisy."),),
        ),
    ),
    Chart(
        "How often noise swaps two models",
        """\
gaps = [0.005 * step for step in range(41)]

def swapped(gap, scale):
    return 100 * math.exp(-gap / scale) * (2 + gap / scale) / 4

ways = {"ε = 0.2 for each of five losses": 0.02, "ε = 1 for each: five times the budget": 0.004}
gaps, {name: [swapped(gap, scale) for gap in gaps] for name, scale in ways.items()}""",
        "difference of the two losses",
        "percent of releases",
        "lines",
        "Two falling curves over the difference of two losses from 0 to 0.2. With ε = 0.2 for each loss a "
        "difference of 0.05 is swapped in 9% of releases; with ε = 1 for each, hardly ever, at five times the cost.",
    ),
    "Looking at validation data costs privacy too. Split the budget over all looks, or ask for the best model instead "
    "of all losses (see *choose among models*).",
)
