"""A private text: fine-tunes a causal language model by LoRA, and writes from it.

The model comes from a folder in Hugging Face's format, its tokenizer with it. Only the small matrices that LoRA adds
are trained, and only they are saved.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from discreet import _check
from discreet.errors import InvalidArgument, MissingExtra
from discreet.learning._train import train
from discreet.learning.data.padding import PadTo
from discreet.learning.integrations.model_losses import per_example_loss
from discreet.learning.plan import Plan
from discreet.learning.run import Run
from discreet.ledger.account import Account

#: The file that says what a fitted model promises.
STATEMENT = "privacy.json"


@dataclass(frozen=True)
class Lora:
    """How a text model is fine-tuned.

    Attributes:
        rank: the rank of the matrices that are added to each linear layer.
        length: the largest number of tokens of an example; longer ones are cut.
        learning_rate: Adam's learning rate.
    """

    rank: int = 8
    length: int = 128
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        _check.settle_integers(self, "rank", remedy="it is the rank of LoRA's matrices")
        _check.settle_integers(self, "length", remedy="it is the most tokens of an example", at_least=2)
        _check.positive("learning_rate", self.learning_rate, "it is the size of Adam's steps")


def read_texts(path: Path) -> list[str]:
    """The examples of a path: each .txt file of a folder, or each line of a file; in a .jsonl file, each "text".

    Empty lines count as no example. Lines that are no JSON, or have no text, count as empty examples: an error would
    reveal them.
    """
    if path.is_dir():
        return [file.read_text(encoding="utf-8", errors="replace") for file in sorted(path.glob("*.txt"))]
    if not path.is_file():
        raise _check.fail("DATA", "be a folder of .txt files, or a .txt or .jsonl file", str(path), "it must exist")
    # Not splitlines: it also splits at rarer characters, and one line must stay one example.
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return [_text_of(line) for line in lines] if path.suffix == ".jsonl" else lines


def _text_of(line: str) -> str:
    try:
        content = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return ""
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def fit_text(
    model: Path,
    texts: Sequence[str],
    plan: Plan,
    folder: Path,
    *,
    lora: Lora | None = None,
    account: Account | None = None,
    purpose: str = "a private text",
    progress: bool = False,
) -> Run:
    """Fine-tune the causal language model in folder `model` on `texts`, and save the result in `folder`.

    Args:
        model: a folder with a model and its tokenizer. Nothing is downloaded, and no code in it runs.
        texts: the examples; each is protected as the plan says.
        plan: the plan.
        folder: a new or empty folder for LoRA's matrices, the tokenizer and the privacy statement.
        lora: rank, length and learning rate.
        account: the account to charge before the first step; None charges nobody.
        purpose: what the training is for; the ledger records it.
        progress: whether to draw a progress bar, which shows exact losses.

    It trains on a GPU if there is one, compiled; on a CPU compilation would not pay.

    Guarantee:
        As `train`. Each text is turned into tokens by itself and cut or padded to `lora.length`, which is public.
        The folder holds outputs of private steps and public facts.
    """
    lora = Lora() if lora is None else lora
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _check.fail("folder", "be new or empty", str(folder), "a fitted model gets a folder of its own")
    transformers, peft = _libraries()
    if not (model / "config.json").is_file():
        remedy = "save a model and its tokenizer there with save_pretrained"
        raise _check.fail("MODEL", "be a folder with a config.json", str(model), remedy)
    model = model.resolve()  # saved as the base of the fitted model, which may be used from another folder
    local = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, **local)
    if tokenizer.eos_token_id is None:
        remedy = "set tokenizer.eos_token and save it again"
        raise _check.fail("MODEL", "have a tokenizer with an end-of-text token", str(model), remedy)
    base = transformers.AutoModelForCausalLM.from_pretrained(model, **local, dtype=torch.float32)
    base.config.use_cache = False
    targets = {"target_modules": "all-linear", "r": lora.rank, "lora_alpha": 2 * lora.rank}
    settings = peft.LoraConfig(task_type="CAUSAL_LM", **targets)
    on_gpu = torch.cuda.is_available()
    adapted = peft.get_peft_model(base, settings).to("cuda" if on_gpu else "cpu").train()
    folder.mkdir(parents=True, exist_ok=True)  # before the charge, in case that it cannot be made
    run = train(
        adapted,
        per_example_loss(adapted),
        [_tokens(tokenizer, text, lora.length) for text in texts],
        plan,
        optimizer=torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=lora.learning_rate),
        account=account,
        purpose=purpose,
        collate=PadTo(lora.length, fill={"input_ids": tokenizer.eos_token_id}),
        progress=progress,
        compile=on_gpu,
    )
    adapted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    receipt = run.receipt
    statement = {
        "guarantee": str(run.guarantee),
        "plan": plan.explain(),
        "receipt": None if receipt is None else receipt.to_json(),
    }
    (folder / STATEMENT).write_text(json.dumps(statement, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return run


def _tokens(tokenizer: Any, text: str, length: int) -> dict[str, list[int]]:
    """A text's tokens with an end-of-text token, cut to `length`."""
    ids = tokenizer(text, truncation=True, max_length=length - 1)["input_ids"]
    ids = [*ids, tokenizer.eos_token_id]
    return {"input_ids": ids, "labels": ids}


def write_text(folder: Path, *, prompt: str = "", count: int = 1, tokens: int = 64) -> list[str]:
    """Texts drawn from a model that `fit_text` saved. Free: the model is private already.

    Args:
        folder: the folder that `fit_text` wrote; the base model must still be where it was.
        prompt: how each text starts.
        count: how many texts.
        tokens: the most tokens of each.
    """
    _check.integer("count", count, "it is the number of texts", at_most=10_000)
    _check.integer("tokens", tokens, "it is the most tokens of a text", at_most=100_000)
    transformers, peft = _libraries()
    if not (folder / STATEMENT).is_file():
        raise InvalidArgument(f"FITTED must be a folder that discreet text fit wrote, got {str(folder)!r}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = peft.AutoPeftModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    start = tokenizer(prompt)["input_ids"] or [tokenizer.eos_token_id]
    ids = torch.tensor([start] * count)
    with torch.no_grad():
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=tokens,
            pad_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    return [str(tokenizer.decode(row, skip_special_tokens=True)) for row in written]


def _libraries() -> tuple[Any, Any]:
    """transformers and peft, or one line that says what to install."""
    try:
        return importlib.import_module("transformers"), importlib.import_module("peft")
    except ModuleNotFoundError as missing:
        raise MissingExtra("private texts need more: pip install 'discreet[learning,transformers]'") from missing
