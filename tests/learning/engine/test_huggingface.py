"""Models of transformers, built from small configs and used unmodified, give exact clipped sums."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.engine.graph import compilation
from tests.learning.engine import truth
from tests.learning.engine.devices import DEVICES, on
from tests.learning.engine.test_operations import SINGLE

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def gpt2():
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=12, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    tokens = torch.randint(0, 31, (4, 9))

    def loss(model, batch):
        logits = model(input_ids=batch["tokens"]).logits
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), batch["tokens"][:, 1:], reduction="none").mean(1)

    return transformers.GPT2LMHeadModel(config), loss, {"tokens": tokens}


def bert():
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
    )  # fmt: skip
    batch = {
        "input_ids": torch.randint(0, 31, (4, 9)),
        "attention_mask": (torch.arange(9) < torch.tensor([[9], [7], [4], [9]])).long(),
        "labels": torch.randint(0, 3, (4,)),
    }

    def loss(model, batch):
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return F.cross_entropy(logits, batch["labels"], reduction="none")

    return transformers.BertForSequenceClassification(config), loss, batch


def vit():
    config = transformers.ViTConfig(
        image_size=16, patch_size=4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
    )  # fmt: skip

    def loss(model, batch):
        return F.cross_entropy(model(pixel_values=batch[0]).logits, batch[1], reduction="none")

    return transformers.ViTForImageClassification(config), loss, (torch.randn(4, 3, 16, 16), torch.randint(0, 3, (4,)))


SMALL = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def masked(kind, config):
    """A causal language model with a mask of lengths, one of them short."""
    batch = {
        "tokens": torch.randint(0, 31, (4, 9)),
        "mask": (torch.arange(9) < torch.tensor([[9], [7], [4], [9]])).long(),
    }

    def loss(model, batch):
        logits = model(input_ids=batch["tokens"], attention_mask=batch["mask"]).logits[:, :-1]
        values = F.cross_entropy(logits.transpose(1, 2), batch["tokens"][:, 1:], reduction="none")
        return (values * batch["mask"][:, 1:]).sum(1) / batch["mask"][:, 1:].sum(1)

    return getattr(transformers, kind)(config), loss, batch


def gemma2():
    config = transformers.Gemma2Config(**SMALL, intermediate_size=32, num_key_value_heads=1, head_dim=8)
    return masked("Gemma2ForCausalLM", config)


def gemma():
    config = transformers.GemmaConfig(**SMALL, intermediate_size=32, num_key_value_heads=1, head_dim=8)
    return masked("GemmaForCausalLM", config)


def bloom():
    config = transformers.BloomConfig(
        vocab_size=31, hidden_size=16, n_layer=1, n_head=2, hidden_dropout=0.0, attention_dropout=0.0
    )
    return masked("BloomForCausalLM", config)


def opt(layerdrop=0.0):
    """OPT draws a number for each layer in training and leaves the layer out if that is below a probability."""
    config = transformers.OPTConfig(
        **SMALL, ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=16, dropout=0.0, attention_dropout=0.0,
        layerdrop=layerdrop,
    )  # fmt: skip
    return masked("OPTForCausalLM", config)


def opt_without_layers():
    return opt(layerdrop=1e-12)


def mixtral():
    """Experts that gather their tokens by index."""
    config = transformers.MixtralConfig(
        **SMALL, intermediate_size=32, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2,
        experts_implementation="eager",
    )  # fmt: skip
    return masked("MixtralForCausalLM", config)


def t5():
    config = transformers.T5Config(
        vocab_size=31,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    batch = {
        "tokens": torch.randint(0, 31, (4, 9)),
        "mask": (torch.arange(9) < torch.tensor([[9], [7], [4], [9]])).long(),
        "answers": torch.randint(0, 31, (4, 5)),
    }

    def loss(model, batch):
        given = F.pad(batch["answers"][:, :-1], (1, 0))
        logits = model(input_ids=batch["tokens"], attention_mask=batch["mask"], decoder_input_ids=given).logits
        return F.cross_entropy(logits.transpose(1, 2), batch["answers"], reduction="none").mean(1)

    return transformers.T5ForConditionalGeneration(config), loss, batch


def deberta():
    """DeBERTa v2 has functions that TorchScript compiled, and a table of places that attention shares."""
    config = transformers.DebertaV2Config(
        **SMALL, intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pooler_dropout=0.0,
        pooler_hidden_size=16, max_position_embeddings=32, relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False,
    )  # fmt: skip
    batch = torch.randint(1, 31, (4, 9)), (torch.arange(9) < torch.tensor([[9], [7], [4], [9]])).long()

    def loss(model, batch):
        scores = model(input_ids=batch[0], attention_mask=batch[1]).logits
        return F.cross_entropy(scores, batch[0][:, 0] % 2, reduction="none")

    return transformers.DebertaV2ForSequenceClassification(config), loss, batch


def swin():
    """Windows of pixels share a table of biases, one of its rows for each pair of places."""
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 2], window_size=4, num_labels=3,
        hidden_dropout_prob=0.0, drop_path_rate=0.0,
    )  # fmt: skip

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).logits, batch[1], reduction="none")

    return transformers.SwinForImageClassification(config), loss, (torch.randn(4, 3, 16, 16), torch.arange(4) % 3)


def exact_engine(make, compile, device="cpu"):
    """The engine of a model, after its clipped sums were compared with those of ordinary gradients."""
    torch.manual_seed(0)
    model, loss, batch = make()
    model, batch = model.train().to(device), on(device, batch)
    each = truth.gradients(model, loss, batch)
    clip_norm = float(truth.norms(each).median())
    engine = Engine(model, loss, Flat(clip_norm), compile=compile)
    result = engine(batch, torch.ones(4, dtype=torch.bool))
    expected = truth.clipped(each, torch.clamp(clip_norm / truth.norms(each), max=1.0))
    assert truth.worst(result.sums, expected) < SINGLE
    return engine


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [gemma, gemma2, t5, swin, opt, deberta])
def test_a_model_is_proved_and_has_rules(make, device):
    report = exact_engine(make, compile=False, device=device).report
    assert "not proved apart" not in report
    assert "fallback" not in report


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [bloom, opt_without_layers, mixtral])
def test_a_model_that_has_no_other_path_runs_in_turn_and_is_exact(make, device):
    """Bloom has a backward pass in Python, Mixtral gathers tokens, and OPT draws which layers it leaves out."""
    assert "in turn" in exact_engine(make, compile=False, device=device).report


@pytest.mark.parametrize("make", [gpt2, *(pytest.param(one, marks=pytest.mark.slow) for one in (bert, vit))])
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_models_of_transformers_give_exact_clipped_sums(make, compile):
    engine = exact_engine(make, compile)
    assert "fallback" not in engine.report
    assert ("\ncompiled" in engine.report) == compile


@pytest.mark.slow
def test_a_llama_with_a_mask_is_traced_once(monkeypatch):
    """Its code looks at the mask where it has one, but in no way that changes the pass; a trace takes seconds."""
    traced = []
    trace = compilation.trace_flat
    monkeypatch.setattr("discreet.learning.engine.engine.trace_flat", lambda *args: traced.append(1) or trace(*args))
    config = transformers.LlamaConfig(**SMALL, intermediate_size=32, num_key_value_heads=1, use_cache=False)
    exact_engine(lambda: masked("LlamaForCausalLM", config), compile=False)
    assert len(traced) == 1


def test_dropout_and_autocast_change_no_path():
    torch.manual_seed(0)
    model, loss, batch = gpt2()
    model.config.resid_pdrop = 0.1
    wet = transformers.GPT2LMHeadModel(model.config).train()
    engine = Engine(wet, loss, Flat(1.0), compile=False, dtype=torch.bfloat16)
    found = engine(batch, torch.ones(4, dtype=torch.bool))
    assert "fallback" not in engine.report
    assert {value.dtype for value in found.sums.values()} == {torch.float32}
