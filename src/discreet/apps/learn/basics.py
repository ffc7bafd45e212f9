"""Exercises on the definition and on single releases: odds, anonymity, a mean, a dilemma, a poll."""

from discreet.apps.learn.exercise import Chart, Exercise, ExerciseQuestion, Mistake, OfferedAnswer

ODDS = Exercise(
    "odds",
    "What ε does to an attacker's odds",
    "Alex may or may not be in a table. An attacker sees a release that is ε-DP and updates what they believe. "
    "Differential privacy bounds the odds, P(in)/P(out): one release multiplies them by at most e^ε.",
    (
        ExerciseQuestion(
            "A release has ε = 0.01. By what factor can the odds grow at most?",
            "math.exp(0.01)",
            "e^0.01 = {0:.5f}: about one percent.",
            "The factor is e to the power of ε.",
            (
                Mistake(0.01, "0.01 is ε itself. The factor is e^ε."),
                Mistake(0.0100502, "That is how much the factor exceeds 1. The factor itself includes the 1."),
            ),
            tolerance=0.001,
        ),
        ExerciseQuestion(
            "The attacker was 50% sure that Alex is in the table. How sure can they be after ε = 1, in percent?",
            "odds = 1.0 * math.exp(1.0)\n100 * odds / (1 + odds)",
            "The odds were 1:1 and are at most e:1, which is {0:.1f}%.",
            "Turn 50% into odds (1:1), multiply by e^ε, and turn the odds back: odds/(1 + odds).",
            (
                Mistake(
                    135.914, "You multiplied the probability. It is the odds that grow by e^ε, so 100% is never passed."
                ),
                Mistake(
                    2.71828, "That is the factor on the odds, or the odds afterwards. Turn them into a probability."
                ),
                Mistake(0.731059, "Right as a share of 1. Type it in percent."),
            ),
        ),
        ExerciseQuestion(
            "Another attacker was only 1% sure. How sure can they be after ε = 1, in percent?",
            "odds = 0.01 / 0.99 * math.exp(1.0)\n100 * odds / (1 + odds)",
            "{0:.2f}%. A small belief stays small: e^ε bounds a ratio, not a probability.",
            "1% is odds of 1:99.",
            (
                Mistake(
                    2.71828, "Close: 1% times e. But the odds of 1% are 1/99, and odds turn back by odds/(1 + odds)."
                ),
                Mistake(73.1059, "That is for a belief of 50% before."),
            ),
            tolerance=0.005,
        ),
        ExerciseQuestion(
            "How many releases with ε = 0.01 does it take until the odds may have doubled?",
            "math.ceil(math.log(2) / 0.01)",
            "After {0:.0f} releases the factors multiply to e^0.7 = 2.01. Budgets exist because factors multiply.",
            "k releases multiply the odds by at most e^(0.01·k). Set this to 2, and round up.",
            (
                Mistake(100, "100 releases multiply the odds by e = 2.72. Fewer are enough for 2."),
                Mistake(69, "e^0.69 is 1.994, just below 2."),
                Mistake(200, "Factors multiply; they do not add up by one percent each."),
            ),
            tolerance=1e-6,
        ),
    ),
    Chart(
        "How sure an attacker can become",
        """\
epsilons = [0.05 * step for step in range(121)]

def posterior(prior, epsilon):
    odds = prior / (1 - prior) * math.exp(epsilon)
    return 100 * odds / (1 + odds)

priors = {"1% before": 0.01, "10% before": 0.1, "50% before": 0.5}
epsilons, {name: [posterior(p, e) for e in epsilons] for name, p in priors.items()}""",
        "ε",
        "percent sure at most",
        "lines",
        "Three rising curves over ε from 0 to 6, for beliefs of 1%, 10% and 50% before the release. At ε = 1 they "
        "reach 3%, 23% and 73%; at ε = 6 they reach 80%, 98% and nearly 100%.",
    ),
    "e^ε multiplies odds. At ε = 0.1 hardly anything changes, at ε = 1 a coin toss becomes 73%, and from ε = 6 on "
    "the guarantee alone protects nobody against an attacker who already suspects them.",
)

HOMOGENEITY = Exercise(
    "homogeneity",
    "When a group is too much alike",
    "A clinic publishes a table without names. Each row has a ZIP code and an illness:\n\n    13053  diabetes      "
    "13068  asthma        14850  flu\n    13053  diabetes      13068  asthma        14850  asthma\n    13053  "
    "diabetes      13068  flu           14850  diabetes\n\nNobody can tell apart the rows of one ZIP code. An "
    "attacker knows where Alex lives, and that Alex is in the table.",
    (
        ExerciseQuestion(
            "The table is k-anonymous if each row looks like at least k − 1 others. What is k?",
            "min(3, 3, 3)",
            "Each ZIP code has {0:.0f} rows.",
            "Count the rows that share a ZIP code; k is the smallest count.",
            (Mistake(9, "That is the whole table. An attacker who knows the ZIP code sees one group only."),),
        ),
        ExerciseQuestion(
            "Alex lives in 13053. How sure is the attacker that Alex has diabetes, in percent?",
            'group = ["diabetes", "diabetes", "diabetes"]\n100 * group.count("diabetes") / len(group)',
            "{0:.0f}%: the group is anonymous and tells everything. This is the homogeneity attack.",
            "Alex is one of the rows of 13053. What do they have in common?",
            (Mistake(33.3333, "One in three is the chance of picking Alex's row. But all three say the same."),),
        ),
        ExerciseQuestion(
            "Bo lives in 13068. How sure is the attacker that Bo has asthma, in percent?",
            'group = ["asthma", "asthma", "flu"]\n100 * group.count("asthma") / len(group)',
            "{0:.1f}%: less than certain, and still far more than before.",
            "Two of the three rows of 13068 say asthma.",
        ),
        ExerciseQuestion(
            "Now the clinic publishes noisy counts of illnesses by ZIP code instead, with ε = 0.5 for replacing one "
            "row. The attacker was 50% sure that Alex has diabetes. How sure can they be at most, in percent?",
            "100 / (1 + math.exp(-0.5))",
            "At most {0:.1f}%, whatever the group looks like and whatever else the attacker knows.",
            "Odds of 1:1, times e^0.5, back to a probability.",
            (
                Mistake(100, "With noise nothing is certain. The odds grow by at most e^0.5."),
                Mistake(82.436, "You multiplied the probability by e^0.5. Multiply the odds."),
            ),
        ),
    ),
    Chart(
        "How sure the attacker is of the most common illness",
        """\
groups = [("13053", 3 / 3), ("13068", 2 / 3), ("14850", 1 / 3)]
limit = 100 / (1 + math.exp(-0.5))
plain = [100 * share for _, share in groups]
[name for name, _ in groups], {"3-anonymous table": plain, "noisy counts, ε = 0.5, at most": [limit] * 3}""",
        "ZIP code",
        "percent",
        "bars",
        "Bars for three ZIP codes. In the 3-anonymous table the attacker is 100%, 67% and 33% sure; with noisy "
        "counts at ε = 0.5 at most 62% in each, from 50% before.",
    ),
    "k-anonymity bounds how well a row can be found, not what is learned from the group. Differential privacy "
    "bounds what is learned. `discreet tour` runs this attack on real rows.",
)

SALARY = Exercise(
    "salary",
    "The mean salary",
    "A company of N = 200 people wants to publish its mean salary with ε = 0.5. N is public; neighbors differ in "
    "one person's salary (replace-one). A salary has no upper limit, so each one is clamped to [0, 200,000] first.",
    (
        ExerciseQuestion(
            "How far can one person move the mean of the clamped salaries?",
            "query = dp.queries.mean([0.0] * 200, bounds=(0, 200_000), "
            'relation="replace-one")\nquery.sensitivity().l1 * float(query.granularity)',
            "(max − min)/N = {0:,.0f}.",
            "The sum moves by at most max − min. The mean is the sum divided by N.",
            (
                Mistake(200_000, "That is how far the sum moves. The mean is the sum divided by 200."),
                Mistake(2_000, "That would be for two people, or for N = 100."),
            ),
        ),
        ExerciseQuestion(
            "What scale b does Laplace noise need?",
            "1_000 / 0.5",
            "b = Δ/ε = {0:,.0f}.",
            "b is the sensitivity divided by ε.",
            (
                Mistake(500, "You multiplied by ε. A smaller ε needs more noise: divide."),
                Mistake(1_000, "That is the sensitivity, the scale at ε = 1."),
            ),
        ),
        ExerciseQuestion(
            "What error is exceeded in only 5% of all releases?",
            "2_000 * math.log(1 / 0.05)",
            "b·ln(20) = {0:,.0f}: Laplace noise exceeds t with probability e^(−t/b).",
            "P(|noise| > t) = e^(−t/b). Set this to 0.05 and solve for t.",
            (
                Mistake(
                    3_919.93, "1.96 standard deviations hold for Gaussian noise, and b is not the standard deviation."
                ),
                Mistake(5_656.85, "That is two standard deviations of √2·b. Use the tail of the Laplace distribution."),
            ),
        ),
        ExerciseQuestion(
            "What changes if N is private: neighbors may also have one person more or less?",
            "1",
            "A noisy sum is divided by a noisy count, and both are paid from ε. `dp.queries.mean` does so under "
            "add/remove.",
            "If N is private, can you divide by it?",
            choices=(
                OfferedAnswer(
                    "Nothing: the sensitivity is still (max − min)/N",
                    "N itself would then reveal how many people there are.",
                ),
                OfferedAnswer("Publish a noisy sum and a noisy count, and divide"),
                OfferedAnswer("It cannot be done", "Both the sum and the count have a small sensitivity of their own."),
            ),
        ),
    ),
    Chart(
        "Where to clamp: bias against noise",
        """\
from scipy import special

def missing(bound, median=45_000, spread=0.6):
    # E[(X − bound)₊] of a log-normal salary: what clamping takes off the mean
    z = (math.log(bound) - math.log(median)) / spread
    mean = median * math.exp(spread**2 / 2)
    return mean * special.ndtr(spread - z) - bound * special.ndtr(-z)

bounds = [50_000 + 10_000 * step for step in range(60)]
bias = [missing(bound) for bound in bounds]
noise = [math.sqrt(2) * bound / 200 / 0.5 for bound in bounds]
both = [math.hypot(a, b) for a, b in zip(bias, noise)]
bounds, {"lost by clamping": bias, "noise": noise, "both": both}""",
        "upper bound",
        "error of the mean",
        "lines",
        "Three curves over the upper bound from 50,000 to 640,000 for log-normal salaries with a median of 45,000. "
        "What clamping takes off falls fast, the noise grows in a straight line, and their sum is smallest near "
        "140,000.",
    ),
    "Clamping makes the sensitivity finite, and the bound trades bias against noise. Choose it from public "
    "knowledge, never from the largest salary in the data. State the relation: (max − min)/N holds for replacing, "
    "with N public.",
)

DILEMMA = Exercise(
    "dilemma",
    "Two demands on one ε",
    "A health agency publishes a count of cases with Laplace noise (sensitivity 1). The ethics board allows ε ≤ "
    "0.5. The epidemiologists accept an error above 10 cases in at most 5% of all releases.",
    (
        ExerciseQuestion(
            "What is the smallest ε that satisfies the epidemiologists?",
            "math.log(1 / 0.05) / 10",
            "ε ≥ ln(20)/10 = {0:.3f}.",
            "P(|noise| > t) = e^(−εt). Set this to 5% at t = 10.",
            (
                Mistake(2.99573, "That is ln(20). Divide by the error, 10."),
                Mistake(0.05, "5% is the probability. Solve e^(−10ε) = 0.05 for ε."),
            ),
        ),
        ExerciseQuestion(
            "What is the variance of the noise at ε = 0.5?",
            "2 / 0.5**2",
            "2/ε² = {0:g}, a standard deviation of 2.8 cases.",
            "Laplace noise of scale b = 1/ε has variance 2b².",
            (
                Mistake(4, "That is b². The variance of Laplace noise is 2b²."),
                Mistake(2.82843, "That is the standard deviation."),
                Mistake(2, "That is the scale b."),
            ),
        ),
        ExerciseQuestion(
            "What error is exceeded in 5% of releases at ε = 0.5?",
            "math.log(1 / 0.05) / 0.5",
            "{0:.2f} cases. Between 6 and 10 cases both sides can agree, with ε from 0.5 down to 0.3.",
            "Solve e^(−0.5·t) = 0.05 for t.",
        ),
        ExerciseQuestion(
            "The epidemiologists now want at most 4 cases of error, still in 95% of releases. Does any ε fit both "
            "demands?",
            "1",
            "They need ε ≥ ln(20)/4 = 0.75, and the board allows 0.5. One side must give: 6 cases, or 14% instead "
            "of 5%, or ε = 0.75.",
            "Compute the smallest ε for 4 cases, and compare it with 0.5.",
            choices=(
                OfferedAnswer("Yes", "For 4 cases they need ln(20)/4. Is that within 0.5?"),
                OfferedAnswer("No"),
            ),
        ),
    ),
    Chart(
        "How often the error exceeds 4, 6 and 10 cases",
        """\
epsilons = [0.05 * step for step in range(1, 25)]
limits = (4, 6, 10)
epsilons, {f"more than {t}": [100 * math.exp(-e * t) for e in epsilons] for t in limits}""",
        "ε",
        "percent of releases",
        "lines",
        "Three falling curves over ε from 0.05 to 1.2. The one for 10 cases falls below 5% at ε = 0.3, the one for "
        "6 cases at 0.5, and the one for 4 cases at 0.75, beyond what the board allows.",
        marks=(("x", 0.5, "the board's limit"), ("y", 5.0, "5%")),
    ),
    "A cap on ε comes from those who are protected, a cap on the error from those who use the result. Errors fall "
    "as ε grows, so the feasible range lies between ln(1/β)/t and the cap. If it is empty, no cleverness helps: ask "
    "which number can give.",
)

POLL = Exercise(
    "poll",
    "The most popular design",
    "Users vote for one of three designs: 30 for A, 25 for B, 20 for C. The company publishes a winner by the "
    "exponential mechanism with ε = 1: a design with q votes is chosen with probability proportional to "
    "exp(ε·q/(2Δ)), with Δ = 1.",
    (
        ExerciseQuestion(
            "How many times as likely is A as B?",
            "math.exp(1.0 * (30 - 25) / 2)",
            "e^2.5 = {0:.1f} times.",
            "Divide exp(ε·30/2) by exp(ε·25/2).",
            (
                Mistake(148.413, "You left out the 2 in ε·q/(2Δ)."),
                Mistake(1.2, "That is the ratio of the votes. The mechanism uses their difference, in an exponent."),
            ),
        ),
        ExerciseQuestion(
            "With what probability is A chosen, in percent?",
            "weights = np.exp(np.array([30, 25, 20]) / 2 - 15)\n100 * weights[0] / weights.sum()",
            "{0:.1f}%: 1/(1 + e^−2.5 + e^−5).",
            "Give A the weight 1, B e^−2.5 and C e^−5, and divide by their sum.",
            (
                Mistake(40, "That is A's share of the votes. A mechanism that used it would need no ε."),
                Mistake(92.4142, "You compared A with B only. C has a weight, too."),
            ),
            tolerance=0.003,
        ),
        ExerciseQuestion(
            "A new voter can only raise counts. Then exp(ε·q/Δ) is ε-DP as well (the scores are monotone). With what "
            "probability is A chosen now, in percent?",
            "weights = np.exp(np.array([30, 25, 20]) - 30.0)\n100 * weights[0] / weights.sum()",
            "{0:.1f}% at the same ε. `dp.exponential` knows which queries are monotone.",
            "As before, with e^−5 and e^−10.",
        ),
        ExerciseQuestion(
            "With two designs and exp(ε·q/(2Δ)), by how many votes must A lead to win in 99% of releases?",
            "math.ceil(2 * math.log(99))",
            "2·ln(99) = 9.2, so {0:.0f} votes.",
            "The odds of A against B are e^(lead/2). For 99% they must be 99:1. Round up.",
            (
                Mistake(9, "9 votes give odds of e^4.5 = 90:1, a little less than 99:1."),
                Mistake(5, "You left out the 2."),
            ),
            tolerance=1e-6,
        ),
    ),
    Chart(
        "Which design is published",
        """\
votes = np.array([30, 25, 20])

def chances(epsilon):
    weights = np.exp(epsilon * (votes - 30) / 2)
    return [float(100 * weight / weights.sum()) for weight in weights]

["A: 30 votes", "B: 25 votes", "C: 20 votes"], {f"ε = {e:g}": chances(e) for e in (0.1, 0.5, 1.0)}""",
        "",
        "percent of releases",
        "bars",
        "Bars for the designs A, B and C. At ε = 0.1 they are chosen in 42%, 33% and 26% of releases; at ε = 0.5 in "
        "73%, 21% and 6%; at ε = 1 in 92%, 8% and 1%.",
    ),
    "The exponential mechanism publishes a choice, not counts, and errs only among options that are nearly as good. "
    "The error is measured in votes: about (2/ε)·ln(number of options).",
)
