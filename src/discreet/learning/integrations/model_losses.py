"""One loss for each example from Hugging Face models, which themselves return a mean over the batch.

The mean that such a model returns is taken over all labeled tokens of the batch, so an example's share depends on how
long the others are. Here the loss of an example is the mean over its own labeled tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.errors import InvalidArgument
from discreet.learning.losses import LossFunction

#: The label of positions that have none.
_IGNORED = -100


def per_example_loss(model: Any) -> LossFunction:
    """The loss of a Hugging Face model, with one value per example, by the name of its class.

    It knows causal, masked and sequence-to-sequence language models, and classifiers of sequences, tokens and images. A
    PEFT model has the loss of its base model. A batch is a dict of the model's inputs with "labels"; for causal models
    without labels, the inputs are the labels.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(base).__name__
    for endings, loss in _BY_ENDING.items():
        if name.endswith(endings):
            return loss
    listed = ", ".join(ending for endings in _BY_ENDING for ending in endings)
    raise InvalidArgument(
        f"loss must be given for {name}, whose loss per example is not known (known are names ending in {listed}): "
        "pass loss=, a function loss(model, batch) that returns one value per example"
    )


def _outputs(model: Any, batch: Any, **more: Any) -> Any:
    return model(**{name: value for name, value in batch.items() if name != "labels"}, **more).logits


def _wide(logits: Tensor) -> Tensor:
    """At least float32: in a narrower type, a softmax over a large vocabulary is inexact."""
    return logits if logits.dtype == torch.float64 else logits.float()


def _token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over an example's labeled positions; zero if it has none."""
    flat = F.cross_entropy(_wide(logits.flatten(0, 1)), labels.flatten(), reduction="none", ignore_index=_IGNORED)
    labeled = (labels != _IGNORED).to(flat.dtype)
    return flat.view(labels.shape).sum(1) / labeled.sum(1).clamp_min(1.0)


def _causal(model: Any, batch: Any) -> Tensor:
    labels = batch.get("labels")
    if labels is None:
        labels = batch["input_ids"]
        if "attention_mask" in batch:
            labels = labels.masked_fill(batch["attention_mask"] == 0, _IGNORED)
    # Soft prompts come first and have no labels.
    logits = _outputs(model, batch)[:, -labels.shape[1] :]
    return _token_losses(logits[:, :-1], labels[:, 1:])


def _each_token(model: Any, batch: Any) -> Tensor:
    return _token_losses(_outputs(model, batch), batch["labels"])


def _sequence_to_sequence(model: Any, batch: Any) -> Tensor:
    if "decoder_input_ids" in batch:
        return _each_token(model, batch)
    shifted = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    return _token_losses(_outputs(model, batch, decoder_input_ids=shifted), batch["labels"])


def _class(model: Any, batch: Any) -> Tensor:
    """As the model's own loss: cross-entropy, or one loss for each of several labels, or a squared error."""
    logits, labels = _wide(_outputs(model, batch)), batch["labels"]
    kind = getattr(model.config, "problem_type", None)
    if kind == "regression" or (kind is None and logits.shape[-1] == 1):
        errors: Tensor = logits - labels.reshape(logits.shape).to(logits.dtype)
        return errors.square().mean(1)
    if kind == "multi_label_classification" or (kind is None and labels.is_floating_point()):
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").mean(1)
    return F.cross_entropy(logits, labels.reshape(-1).to(torch.long), reduction="none")


_BY_ENDING: dict[tuple[str, ...], Callable[[Any, Any], Tensor]] = {
    ("ForCausalLM", "LMHeadModel"): _causal,
    ("ForSequenceClassification", "ForImageClassification"): _class,
    ("ForTokenClassification", "ForMaskedLM"): _each_token,
    ("ForConditionalGeneration",): _sequence_to_sequence,
}
