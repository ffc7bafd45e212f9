"""Per-example losses of transformers' models: on a batch of one, the loss that the model itself returns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from discreet.errors import InvalidArgument
from discreet.learning import Engine, Flat
from discreet.learning.integrations.model_losses import per_example_loss
from tests.learning.engine import truth

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

BERT = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def tokens(length=7):
    ids = torch.randint(1, 31, (4, length))
    mask = (torch.arange(length) < torch.tensor([[7], [5], [3], [7]])).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def classified(labels):
    return {**{name: value for name, value in tokens().items() if name != "labels"}, "labels": labels}


def causal():
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=31, n_positions=12,
                                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    return transformers.GPT2LMHeadModel(config), tokens()


def sequence_to_sequence():
    config = transformers.T5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
                                   dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)  # fmt: skip
    return transformers.T5ForConditionalGeneration(config), tokens()


def bert(kind, batch, **changes):
    return lambda: (getattr(transformers, kind)(transformers.BertConfig(**BERT, **changes)), batch())


CASES = {
    "causal": causal,
    "sequence to sequence": sequence_to_sequence,
    "masked": bert("BertForMaskedLM", tokens),
    "tokens": bert("BertForTokenClassification", tokens, num_labels=31),
    "one class": bert("BertForSequenceClassification", lambda: classified(torch.randint(3, (4,))), num_labels=3),
    "regression": bert("BertForSequenceClassification", lambda: classified(torch.randn(4)), num_labels=1),
    "several classes": bert(
        "BertForSequenceClassification",
        lambda: classified(torch.randint(2, (4, 3)).float()),
        num_labels=3,
        problem_type="multi_label_classification",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_an_example_is_that_of_a_batch_of_one(name):
    torch.manual_seed(0)
    model, batch = CASES[name]()
    values = per_example_loss(model)(model, batch)
    alone = [model(**{key: value[i : i + 1] for key, value in batch.items()}).loss for i in range(4)]
    assert torch.allclose(values, torch.stack(alone), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "one class"])
def test_its_examples_are_proved_apart_and_clipped_exactly(name):
    torch.manual_seed(0)
    model, batch = CASES[name]()
    model = model.double()
    loss = per_example_loss(model)
    engine = Engine(model, loss, Flat(0.1), compile=False)
    found = engine(batch, torch.ones(4, dtype=torch.bool))
    assert "fallback" not in engine.report
    each = truth.gradients(model, loss, batch)
    weights = (0.1 / truth.norms(each)).clamp(max=1.0)
    assert truth.worst(found.sums, truth.clipped(each, weights)) < 1e-9


def test_without_labels_a_causal_model_learns_its_inputs():
    torch.manual_seed(0)
    model, batch = causal()
    loss = per_example_loss(model)
    unlabeled = {name: value for name, value in batch.items() if name != "labels"}
    assert torch.equal(loss(model, batch), loss(model, unlabeled))


def test_an_unknown_model_needs_a_loss():
    with pytest.raises(InvalidArgument, match="loss must be given for Linear"):
        per_example_loss(nn.Linear(2, 2))
