"""`discreet text`: fits a tiny model made here by LoRA, charges the ledger, and writes from it for free."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch

import discreet as dp
from discreet.learning.integrations.text import read_texts

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs peft"),
]

INIT = "discreet ledger init notes.ledger --account notes --epsilon 8 --delta 1e-5"
FIT = (
    "discreet text fit base-model notes.txt --epsilon 4 --examples 40 --ledger notes.ledger --out fitted "
    "--length 12 --rank 2 --epochs 1 --batch-size 10"
)
WORDS = ["the", "patient", "was", "well", "and", "slept", "in", "a", "quiet", "room"]


def make_model(folder):
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(["<end>", "<unknown>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", unk_token="<unknown>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=len(vocabulary), n_positions=64, bos_token_id=0, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


@pytest.fixture
def base(folder):
    make_model(folder / "base-model")
    lines = [" ".join(WORDS[i % 5 : i % 5 + 4]) for i in range(40)]
    (folder / "notes.txt").write_text("\n".join(lines) + "\n")
    return folder / "base-model"


@pytest.mark.slow
def test_a_text_is_fitted_charged_once_and_written_from_for_free(run, base, folder):
    assert run(INIT).code == 0
    before = {path.name: path.read_bytes() for path in base.iterdir()}
    done = run(FIT)
    assert done.code == 0, done.err
    assert "(4, 1e-06)-DP" in done.out
    account = dp.Ledger(folder / "notes.ledger").account("notes")
    charged = len(account.history())
    assert json.loads((folder / "fitted" / "privacy.json").read_text())["receipt"] is not None
    assert not (folder / "fitted" / "model.safetensors").exists()  # the base model is not copied
    written = run('discreet text write fitted --prompt "the patient" --count 2 --tokens 5 --json')
    assert written.code == 0, written.err
    texts = json.loads(written.out)["texts"]
    assert len(texts) == 2
    assert all(text.startswith("the patient") for text in texts)
    assert len(account.history()) == charged
    assert {path.name: path.read_bytes() for path in base.iterdir()} == before
    again = run(FIT)
    assert again.code == 2
    assert "be new or empty" in again.err
    assert len(account.history()) == charged


@pytest.mark.slow
def test_mistakes_are_found_before_the_charge(run, base, folder):
    assert run(INIT).code == 0
    wrong = {
        FIT.replace("base-model", "nowhere"): "config.json",
        FIT.replace("notes.txt", "nowhere.txt"): "DATA must be",
        FIT.replace("--rank 2", "--rank 0"): "rank must be",
        FIT.replace("--length 12", "--length 1"): "length must be",
        FIT.replace("--epsilon 4", "--epsilon nan"): "epsilon must be",
        "discreet text write nowhere": "FITTED must be",
        "discreet text write base-model": "FITTED must be",
    }
    for line, words in wrong.items():
        done = run(line)
        assert done.code == 2, (line, done.err)
        assert words in done.err, (line, done.err)
    assert len(dp.Ledger(folder / "notes.ledger").account("notes").history()) == 1  # it was opened


def test_texts_come_from_a_folder_a_file_or_json_lines(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "b.txt").write_text("second\nline")
    (folder / "a.txt").write_text("first")
    assert read_texts(folder) == ["first", "second\nline"]
    (tmp_path / "notes.txt").write_bytes("one\u2028still one\n\n\xfftwo\n".encode("utf-8") + b"\xff\n")
    assert read_texts(tmp_path / "notes.txt") == ["one\u2028still one", "\xfftwo", "\N{REPLACEMENT CHARACTER}"]
    (tmp_path / "notes.jsonl").write_text('{"text": "one"}\nnot json\n{"other": 1}\n[1]\n{"text": 3}\n')
    assert read_texts(tmp_path / "notes.jsonl") == ["one", "", "", "", ""]
