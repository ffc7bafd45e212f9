"""Exercises on private training: microbatches and batch normalization."""

from discreet.apps.learn.exercise import Chart, Exercise, ExerciseQuestion, Mistake, OfferedAnswer

MICROBATCH = Exercise(
    "microbatch",
    "Clipping a microbatch",
    "In DP-SGD each example's gradient is clipped to norm C, the clipped gradients are summed, and Gaussian noise "
    "with standard deviation σC is added. To save memory, somebody groups the batch into microbatches of k examples "
    "and clips once for each group. σ = 1, δ = 1e-5, one step, no sampling; one example is added or removed.",
    (
        ExerciseQuestion(
            "Done right (each example is clipped), what ε does the step have? (`discreet price gaussian --noise 1 "
            "--delta 1e-5`)",
            "accounting.epsilon(Gaussian(1.0), 1e-5).upper",
            "{0:.2f}.",
            "Run the command in another terminal, and take the line `tight`.",
            (
                Mistake(4.8448, "That is the classical formula, which is not stated for ε above 1."),
                Mistake(4.7985, "That leaves out part of the bound. Let the accountant do it."),
            ),
        ),
        ExerciseQuestion(
            "The gradients of a group are summed, and the sum is clipped to C. One example of one group changes. "
            "How many times C can the total move?",
            "2.0",
            "{0:g}: the clipped sum of the group may turn around, from +C to −C, whatever k is.",
            "The group's clipped sum is some vector of norm at most C before, and another one after.",
            (
                Mistake(1, "That is for clipped examples. Here the whole group's sum can point anywhere afterwards."),
                Mistake(8, "That is for k times a clipped mean, the next question."),
                Mistake(4, "The sum of the group is clipped to C, not each of its members."),
            ),
        ),
        ExerciseQuestion(
            "Instead, the mean of a group of k = 4 is clipped to C and multiplied by 4. How many times C can the "
            "total move?",
            "2.0 * 4",
            "{0:g}: 2kC.",
            "As before, but each group counts four times.",
            (Mistake(4, "The clipped mean may turn around: from +C to −C is 2C."),),
        ),
        ExerciseQuestion(
            "The noise is still σC. What ε does that step really have?",
            "accounting.epsilon(Gaussian(1 / 8), 1e-5).upper",
            "{0:.1f} instead of 4.38: a silent failure. At k = 16 it is 648.",
            "The noise is 1/8 of the sensitivity: `discreet price gaussian --noise 0.125 --delta 1e-5`.",
            (
                Mistake(35.0174, "ε grows more than in proportion to the sensitivity."),
                Mistake(9.99726, "That is for a sensitivity of 2C."),
            ),
        ),
    ),
    Chart(
        "The true ε of one step, σ = 1, δ = 1e-5",
        """\
def price(sensitivity):
    return accounting.epsilon(Gaussian(1 / sensitivity), 1e-5).upper

sizes = [2, 4, 8, 16]
ways = {"each example clipped": [price(1)] * 4, "sum of a group clipped": [price(2)] * 4}
ways["k times a clipped mean"] = [price(2 * k) for k in sizes]
[f"k = {k}" for k in sizes], ways""",
        "size of a group",
        "ε",
        "bars",
        "Bars for groups of 2, 4, 8 and 16 examples, logarithmic. Clipping each example costs 4.38 and clipping "
        "sums of groups 10.0 at any size; k times a clipped mean costs 24.4, 65.3, 195 and 648.",
        "y",
    ),
    "Clip examples, not groups. `physical_batch_size` in Discreet saves memory without changing what is clipped.",
)

BATCHNORM = Exercise(
    "batchnorm",
    "One example moves the others",
    "Batch normalization subtracts the mean of the batch and divides by its standard deviation (the root of the "
    "mean squared distance from the mean). A batch has one feature and four examples: 1, 2, 3, 4.",
    (
        ExerciseQuestion(
            "What is the normalized value of the first example?",
            "batch = np.array([1.0, 2.0, 3.0, 4.0])\n(batch[0] - batch.mean()) / batch.std()",
            "(1 − 2.5)/1.118 = {0:.3f}.",
            "The mean is 2.5, the standard deviation √1.25.",
            (
                Mistake(-1.1619, "That is with n − 1 in the standard deviation. Batch normalization divides by n."),
                Mistake(1.34164, "Mind the sign: 1 is below the mean."),
                Mistake(-1.5, "Divide by the standard deviation, too."),
            ),
        ),
        ExerciseQuestion(
            "Somebody replaces the fourth example with 100. What is the normalized value of the first example now?",
            "batch = np.array([1.0, 2.0, 3.0, 100.0])\n(batch[0] - batch.mean()) / batch.std()",
            "{0:.3f}: the first example did not change, but what the network sees of it did, and so does its gradient.",
            "The mean is 26.5.",
        ),
        ExerciseQuestion(
            "With layer normalization each example is normalized over its own features. The first example has "
            "features 1 and 3. What is its first value, after the fourth example became 100?",
            "features = np.array([1.0, 3.0])\n(features[0] - features.mean()) / features.std()",
            "{0:g}, as before: the other examples do not enter.",
            "Only the features 1 and 3 count. Their mean is 2.",
        ),
        ExerciseQuestion(
            "Which of these must not be used with DP-SGD?",
            "1",
            "Its statistics come from the private batch, so clipping no longer bounds what one example does. "
            "`learning.fix(model)` replaces it, and `discreet check` finds it.",
            "Which one mixes examples of the private batch?",
            choices=(
                OfferedAnswer("Group normalization", "It normalizes groups of channels of one example."),
                OfferedAnswer("Batch normalization in training mode"),
                OfferedAnswer(
                    "Batch normalization with statistics of public data, frozen",
                    "Frozen public numbers mix no examples.",
                ),
            ),
        ),
    ),
    Chart(
        "The normalized values of the examples 1, 2 and 3, as the fourth one grows",
        """\
fourth = [4.0 + 2 * step for step in range(49)]

def normalized(index, last):
    batch = np.array([1.0, 2.0, 3.0, last])
    return float((batch[index] - batch.mean()) / batch.std())

fourth, {f"example {index + 1}": [normalized(index, x) for x in fourth] for index in range(3)}""",
        "value of the fourth example",
        "normalized value",
        "lines",
        "Three curves over the value of the fourth example from 4 to 100. The normalized values of the others start "
        "at −1.34, −0.45 and 0.45 and all move to about −0.6.",
    ),
    "Clipping bounds an example's own gradient. If an example changes the gradients of others, that bound says "
    "nothing about what it does to the sum. Discreet proves for each model that examples do not mix, and refuses or "
    "isolates what it cannot prove.",
)
