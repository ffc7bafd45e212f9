"""Write docs/cli.md from the commands themselves: `python -m tools.make_cli_reference`. A test finds it stale."""

from __future__ import annotations

from pathlib import Path

import click

from discreet.apps.cli.program import program

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

_INTRODUCTION = """\
# The command line

<!-- Written by tools/make_cli_reference.py from the commands' own help. Change the commands, then run it again. -->

`pip install 'discreet[all]'` brings the command `discreet`. It is a thin skin over the Python API: whatever it does, a
few lines of Python do too.

- **Output.** Tables in a terminal, plain text in a pipe, JSON with `--json`, with every command.
- **Errors.** One line on the standard error, `error: …`, that says what is wrong and what to do. `--debug` adds a
  traceback, which may quote data.
- **Exit codes.** 0: it worked. 2: something that was given is wrong. 3: the budget has no room, and nothing was
  charged. 1: anything else, such as a ledger that does not verify.
- **Completion.** `eval "$(discreet completion bash)"` in `~/.bashrc`, or the same with `zsh` in `~/.zshrc`;
  `discreet completion fish | source` for fish.

## A first session

```sh
discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6
discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \\
    --keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --preview
discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \\
    --keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --json > hours.json
discreet report census.ledger --result hours.json --out report.html
```

The preview spends nothing. The second query is charged to the ledger before it runs.

## A training

`discreet train` reads a TOML file. Everything in it is public: bounds and categories come from what is known without
looking at the data, and `examples` is about how many people there are.

```toml
[data]
file = "people.parquet"          # Parquet or CSV; or images = "…" and labels = "…", two idx files, and classes = 10
label = "income"
classes = ["<=50K", ">50K"]

[data.columns]
age = [17, 90]                   # two numbers are bounds: clamped, and scaled to [-1, 1]
sex = ["Female", "Male"]         # a list is all possible values: one input for each

[model]
kind = "mlp"                     # logistic, mlp, or cnn for images
hidden = [32]
optimizer = "adam"               # or sgd
learning_rate = 0.02

[plan]
epsilon = 1.0
delta = 1e-6
examples = 32000
batch_size = 1024                # on average: each example joins each batch on its own
epochs = 10
clip_norm = 1.0

[ledger]
file = "census.ledger"
account = "census"
purpose = "income model"

[evaluate]                       # optional: a charged look at people who were not trained on
file = "others.parquet"
epsilon = 0.1

[output]
folder = "income"                # model.pt, report.html, statement.json
```

## All commands
"""


def text() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for path, command in _walk(program, "discreet"):
        settings = {**program.context_settings, "terminal_width": 100, "max_content_width": 100}
        context = click.Context(command, info_name=path, **settings)
        parts.append(f"### {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(parts)


def _walk(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            found += _walk(command.commands[name], f"{path} {name}")
    return found


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE}")
