"""`discreet text`: fine-tune a language model privately, and write from it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, to_json_value
from discreet.apps.cli.shared_options import open_account
from discreet.errors import InvalidArgument, MissingExtra


@click.group("text")
def group() -> None:
    """Fine-tune a causal language model privately with LoRA, and generate text from it for free."""


@group.command(
    "fit",
    cls=Command,
    example="discreet text fit base-model notes.txt --epsilon 4 --examples 400 --ledger notes.ledger --out fitted",
)
@click.argument("model", metavar="MODEL")
@click.argument("data", metavar="DATA")
@click.option("--epsilon", type=float, required=True, help="ε of the whole training.")
@click.option("--delta", type=float, default=1e-6, show_default=True, help="δ of the whole training.")
@click.option("--examples", type=int, required=True, help="The public number of examples; it sets the sampling rate.")
@click.option("--ledger", required=True, help="The ledger to charge: a file or a postgresql:// URL.")
@click.option("--account", help="The account to charge. Optional if the ledger has only one dataset.")
@click.option("--out", default="fitted", show_default=True, help="A new folder for the result.")
@click.option("--batch-size", type=int, help="Expected examples in a batch.  [default: a tenth of the examples]")
@click.option("--epochs", type=float, default=3.0, show_default=True, help="Passes over the data.")
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="Largest norm of an example's gradient.")
@click.option("--length", type=int, default=128, show_default=True, help="Most tokens of an example; the rest is cut.")
@click.option("--rank", type=int, default=8, show_default=True, help="Rank of LoRA's matrices.")
@click.option("--learning-rate", type=float, default=1e-3, show_default=True, help="Adam's learning rate.")
@click.option("--at-once", type=int, default=8, show_default=True, help="Examples that go through the model at once.")
@click.option("--purpose", default="a private text", show_default=True, help="What the ledger records.")
@click.option(
    "--progress", is_flag=True, help="Show a progress bar. It shows exact losses, which only the data's owner may see."
)
@with_output
def fit(
    output: Output,
    model: str,
    data: str,
    epsilon: float,
    delta: float,
    examples: int,
    ledger: str,
    account: str | None,
    out: str,
    batch_size: int | None,
    epochs: float,
    clip_norm: float,
    length: int,
    rank: int,
    learning_rate: float,
    at_once: int,
    purpose: str,
    progress: bool,
) -> None:
    """Fine-tune the model in folder MODEL on the texts in DATA, and save the result in a new folder.

    MODEL is a folder in Hugging Face's format with a causal language model and its tokenizer; nothing is downloaded.
    DATA is a folder of .txt files with one example each, a text file with one example in each line, or a .jsonl file
    with a "text" in each line. Each example is protected. The account is charged before the first step.
    """
    try:
        from discreet.learning import Plan
        from discreet.learning.integrations.text import Lora, fit_text, read_texts
    except ModuleNotFoundError as missing:
        raise MissingExtra("private texts need more: pip install 'discreet[learning,transformers]'") from missing
    plan = Plan.for_epsilon(
        epsilon,
        delta=delta,
        examples=examples,
        batch_size=max(1, examples // 10) if batch_size is None else batch_size,
        epochs=epochs,
        clip_norm=clip_norm,
        physical_batch_size=at_once,
    )
    lora = Lora(rank, length, learning_rate)
    opened = open_account(ledger, account)
    shown = progress and not output.json
    with nullcontext() if shown else output.working("Training"):
        run = fit_text(
            Path(model),
            read_texts(Path(data)),
            plan,
            Path(out),
            lora=lora,
            account=opened,
            purpose=purpose,
            progress=shown,
        )
    if output.json:
        output.emit(to_json_value({"guarantee": run.guarantee, "steps": run.steps, "folder": out}))
        return
    output.say(f"trained {run.steps:,} steps: {run.guarantee}")
    output.say(f"wrote {out}; write from it with discreet text write {out}")


@group.command("write", cls=Command, example='discreet text write fitted --prompt "The patient" --count 2')
@click.argument("fitted", metavar="FITTED")
@click.option("--prompt", default="", help="How each text starts.")
@click.option("--count", type=int, default=1, show_default=True, help="How many texts.")
@click.option("--tokens", type=int, default=64, show_default=True, help="Most tokens of each text.")
@with_output
def write(output: Output, fitted: str, prompt: str, count: int, tokens: int) -> None:
    """Write texts with a model that `discreet text fit` saved in folder FITTED. This costs nothing."""
    try:
        from discreet.learning.integrations.text import write_text
    except ModuleNotFoundError as missing:
        raise MissingExtra("private texts need more: pip install 'discreet[learning,transformers]'") from missing
    if not Path(fitted).is_dir():
        raise InvalidArgument(f"FITTED must be a folder that discreet text fit wrote, got {fitted!r}")
    with output.working("Writing"):
        texts = write_text(Path(fitted), prompt=prompt, count=count, tokens=tokens)
    if output.json:
        output.emit(to_json_value({"texts": texts}))
        return
    for text in texts:
        output.say(text)
