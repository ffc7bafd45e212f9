"""Write docs/cli.md from the commands' help: `python -m tools.make_cli_reference`. A test fails if it is stale."""

from __future__ import annotations

from pathlib import Path

import click

from discreet.apps.cli.program import program

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

_INTRODUCTION = """\
# The command line

<!-- Written by tools/make_cli_reference.py from the commands' help. Change the commands, then run it again. -->

`pip install 'discreet[all]'` installs the command `discreet`. It is a thin layer over the Python API: a few lines of
Python do the same.

- **Output.** Tables in a terminal, plain text in a pipe, JSON with `--json`. Every command takes `--json`.
- **Errors.** One line on the standard error, `error: …`, with the problem and the remedy. `--debug` adds a traceback,
  which may quote data.
- **Exit codes.** 0: success. 2: invalid input. 3: the budget has no room, and what was refused is not charged. 1: any
  other failure, such as a ledger that does not verify.
- **Charged answers.** If an answer was charged but cannot be printed (a closed pipe, a full disk), it is saved as
  `discreet-answer-….json` in the current folder, and the error says so.
- **Completion.** `eval "$(discreet completion bash)"` in `~/.bashrc`, or the same with `zsh` in `~/.zshrc`;
  `discreet completion fish | source` for fish.

## A first session

```sh
discreet data adult people.parquet
discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6
discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \\
    --keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --preview
discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \\
    --keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --json > hours.json
discreet report census.ledger --result hours.json --out report.html
```

The first command writes a table of people in the 1994 US census; use your own Parquet or CSV file instead. The preview
spends nothing. The second query is charged to the ledger before it runs.

## A training

`discreet train` reads a TOML file. Everything in it is public: take bounds and categories from what is known without
looking at the data, and give an estimate of the number of people as `examples`.
`discreet data adult others.parquet --part test` writes the file for the evaluation.

```toml
[data]
file = "people.parquet"          # Parquet or CSV; or images = "…" and labels = "…", two idx files, and classes = 10
label = "income"
classes = ["<=50K", ">50K"]

[data.columns]
age = [17, 90]                   # two numbers are bounds: values are clamped and scaled to [-1, 1]
sex = ["Female", "Male"]         # a list has all possible values: one input for each

[model]
kind = "mlp"                     # logistic, mlp, or cnn for images
hidden = [32]
optimizer = "adam"               # or sgd
learning_rate = 0.02

[plan]
epsilon = 1.0
delta = 1e-6
examples = 32000
batch_size = 1024                # on average: each example joins each batch independently
epochs = 10
clip_norm = 1.0

[ledger]
file = "census.ledger"
account = "census"
purpose = "income model"

[evaluate]                       # optional: a charged evaluation on people who were not trained on
file = "others.parquet"
epsilon = 0.1

[output]
folder = "income"                # model.pt, report.html, statement.json
```

## Labels from private teachers

`discreet pate` reads a TOML file as well. The file of `[data]` is private; everything else is public. The rows of
`[questions]` need the columns of `[data]`, without the label. [Label public data with private
teachers](how-to/pate.md) explains the numbers.

```toml
[data]                           # as above: a table, or images and labels
file = "people.parquet"
label = "income"
classes = ["<=50K", ">50K"]

[data.columns]
age = [17, 90]
sex = ["Female", "Male"]

[questions]
file = "public.parquet"          # for images, an idx file
rows = 600                       # how many are asked, from the first on
answers = 400                    # the most that are answered, which is what the price is for

[teachers]
count = 200                      # each learns from its own shard
kind = "logistic"                # logistic, mlp, or cnn for images
epochs = 30
learning_rate = 0.01
workers = 2
folder = "income-secret"         # teachers, votes and what depends on them: not private

[voting]
kind = "confident"               # or gaussian, laplace: without a threshold
noise = 40
threshold = 130
check_noise = 100
delta = 1e-6

[student]
kind = "mlp"
hidden = [32]
rounds = 1                       # self-training on the questions without an answer

[ledger]
file = "census.ledger"
account = "census"               # if it protects persons, one teacher sees all rows of a person
purpose = "labels for an income model"

[evaluate]                       # optional, as above
file = "others.parquet"
epsilon = 0.1

[output]
folder = "income-labels"         # model.pt, labels.csv, labels.json, answers.png, report.html, …
```

All labels together have one price, which is charged before the first vote and holds for all votes. The
data-dependent price, which says what these votes revealed, is written to the folder of secrets and printed only with
`--secret`. To continue a killed run, start it again: it is charged once. To ask anew, choose another folder of secrets.

## All commands
"""


def text() -> str:
    """The complete page."""
    sections = [_INTRODUCTION]
    for path, command in _walk(program, "discreet"):
        settings = {**program.context_settings, "terminal_width": 100, "max_content_width": 100}
        context = click.Context(command, info_name=path, **settings)
        sections.append(f"### {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(sections)


def _walk(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    commands = [(path, command)]
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            commands += _walk(command.commands[name], f"{path} {name}")
    return commands


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE}")
