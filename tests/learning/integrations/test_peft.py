"""PEFT's adapters, unmodified, on frozen bases of several types: clipped exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.learning import Engine, Flat
from discreet.learning.integrations.model_losses import per_example_loss
from tests.learning.engine import truth

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def library(name):
    """Imported here and not above: it takes seconds, also where these tests are not run."""
    return pytest.importorskip(name)


class Packed(nn.Linear):
    """A frozen layer in the style of 4-bit bases: two weights in a byte, scaled per row in the forward pass."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None)
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 7
        codes = (linear.weight.detach() / scale).round().to(torch.int16) + 8
        self.weight = nn.Parameter((codes[:, 0::2] * 16 + codes[:, 1::2]).to(torch.uint8), requires_grad=False)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        codes = torch.stack([self.weight // 16, self.weight % 16], 2).flatten(1)
        weight = (codes.to(self.scale.dtype) - 8) * self.scale
        return F.linear(inputs, weight.to(inputs.dtype), self.bias)


def llama():
    torch.manual_seed(0)
    config = library("transformers").LlamaConfig(
        vocab_size=31, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    return library("transformers").LlamaForCausalLM(config)


def packed(model):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and name != "lm_head":
                setattr(module, name, Packed(child))
    return model


def lora(modules, **more):
    return library("peft").LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=modules, **more)


ADAPTERS = {
    "LoRA": lambda: lora(["q_proj", "v_proj", "down_proj"]),
    "DoRA": lambda: lora(["q_proj", "v_proj"], use_dora=True),
    "prompt": lambda: library("peft").PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefix": lambda: library("peft").PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "p-tuning": lambda: library("peft").PromptEncoderConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8
    ),
    "IA3": lambda: library("peft").IA3Config(
        task_type="CAUSAL_LM", target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
    ),
    "LoRA of the words": lambda: lora(["embed_tokens"]),
    "AdaLoRA": lambda: library("peft").AdaLoraConfig(
        task_type="CAUSAL_LM", init_r=2, target_r=2, total_step=10, target_modules=["q_proj", "v_proj"]
    ),
    "LoKr": lambda: library("peft").LoKrConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]),
    "VeRA": lambda: library("peft").VeraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]),
}
BASES = {
    "fp64": lambda model: model.double(),
    "fp32": lambda model: model,
    "bf16": lambda model: model.bfloat16(),
    "packed": packed,
}
#: The largest error of a sum, by the type that the base computes in.
TOLERANCE = {"fp64": 1e-5, "fp32": 1e-4, "bf16": 0.1, "packed": 1e-4}


def batch():
    torch.manual_seed(1)
    ids = torch.randint(1, 31, (4, 7))
    mask = (torch.arange(7) < torch.tensor([[7], [5], [3], [7]])).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def assert_clipped_exactly(adapter, base):
    model = library("peft").get_peft_model(BASES[base](llama()), ADAPTERS[adapter]()).train()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)  # at its initial zero, half of the gradients are zero
    loss = per_example_loss(model)
    each = truth.gradients(model, loss, batch())
    wide = torch.float64 if base == "fp64" else torch.float32
    each = [{name: value.to(wide) for name, value in one.items()} for one in each]
    norm = float(truth.norms(each).median())
    engine = Engine(model, loss, Flat(norm), compile=False)
    found = engine(batch(), torch.ones(4, dtype=torch.bool))
    weights = (norm / truth.norms(each)).clamp(max=1.0)
    assert weights.min() < 1
    assert truth.worst(found.sums, truth.clipped(each, weights)) < TOLERANCE[base]
    return engine.report


@pytest.mark.parametrize("base", BASES)
def test_lora_is_proved_and_clipped_exactly_on_every_base(base):
    assert "fallback" not in assert_clipped_exactly("LoRA", base)


@pytest.mark.parametrize("base", ["fp32", "bf16"])
@pytest.mark.parametrize("adapter", [name for name in ADAPTERS if name != "LoRA"])
def test_an_adapter_that_all_examples_share_has_rules_and_is_clipped_exactly(adapter, base):
    report = assert_clipped_exactly(adapter, base)
    assert "fallback" not in report
    assert "in turn" not in report


def test_prompt_tuning_is_clipped_exactly_on_a_packed_base():
    assert "fallback" not in assert_clipped_exactly("prompt", "packed")
