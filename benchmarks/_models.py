"""The models of the training benchmark, written out so that only torch and transformers are needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(width: int = 512) -> nn.Module:
    """784 - width - width - 10."""
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


class _Block(nn.Module):
    """A pre-activation residual block of a wide residual network, with GroupNorm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, before), nn.GroupNorm(16, after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(before, after, 1, stride, bias=False) if before != after or stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        short = x if self.short is None else self.short(h)
        h = self.conv2(F.relu(self.norm2(self.conv1(h))))
        return torch.add(h, short)


class WideResNet(nn.Module):
    """WRN-depth-width (Zagoruyko and Komodakis 2016) with GroupNorm, as De et al. 2022 train it privately."""

    def __init__(self, depth: int = 16, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        sizes = [16, 16 * width, 32 * width, 64 * width]
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
        for stage in range(3):
            for block in range(blocks):
                before = sizes[stage] if block == 0 else sizes[stage + 1]
                layers.append(_Block(before, sizes[stage + 1], 2 if stage and block == 0 else 1))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.GroupNorm(16, sizes[3])
        self.head = nn.Linear(sizes[3], classes)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.layers(x)))
        scores: Tensor = self.head(h.mean((2, 3)))
        return scores


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return result


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, heads)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, self.attention(self.norm1(x)))
        return torch.add(x, self.wide(self.norm2(x)))


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al. 2021) with a mean over patches; positions are an embedding, which all peers support."""

    def __init__(self, image: int = 224, patch: int = 16, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.patch_count = (image // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Embedding(self.patch_count, width)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        positions = torch.arange(self.patch_count, device=x.device).expand(x.shape[0], -1)
        h = torch.add(h, self.position(positions))
        scores: Tensor = self.head(self.norm(self.layers(h)).mean(1))
        return scores


class LanguageModel(nn.Module):
    """An unmodified GPT-2 from transformers, built from a config, with scores of shape [B, classes, T]."""

    def __init__(
        self, width: int = 768, layers: int = 12, heads: int = 12, words: int = 50257, length: int = 1024
    ) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config: Any = GPT2Config(
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            vocab_size=words,
            n_positions=length,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
        )
        self.inner: Any = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]  # transformers has no types here

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
        logits: Tensor = self.inner(input_ids=x, position_ids=positions).logits
        return logits.transpose(1, 2)


class _Llama(nn.Module):
    """An unmodified Llama from transformers, built from a config, with scores of shape [B, classes, T]."""

    def __init__(self, width: int, inner: int, layers: int, heads: int, key_heads: int, words: int = 32_000) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config: Any = LlamaConfig(
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            vocab_size=words,
            max_position_embeddings=2048,
            use_cache=False,
        )
        self.inner: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers has no types here

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=x).logits
        return logits.transpose(1, 2)


def llama() -> nn.Module:
    """1.1B parameters, with the sizes of TinyLlama."""
    return _Llama(2048, 5632, 22, 32, 4)


class Adapter(nn.Module):
    """A frozen linear layer with a trainable low-rank update (Hu et al. 2022)."""

    def __init__(self, frozen: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.frozen = frozen
        device = frozen.weight.device
        self.down = nn.Linear(frozen.in_features, rank, bias=False, device=device)
        self.up = nn.Linear(rank, frozen.out_features, bias=False, device=device)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.frozen(x), self.up(self.down(x.to(self.down.weight.dtype))).to(x.dtype))


def llama_with_adapters(layers: int = 28, width: int = 4096, inner: int = 11_008, heads: int = 32) -> nn.Module:
    """5.9B frozen parameters in bf16, with adapters in fp32 for the queries and values of each layer."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = _Llama(width, inner, layers, heads, heads).requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    for layer in model.inner.model.layers:
        attention = layer.self_attn
        attention.q_proj, attention.v_proj = Adapter(attention.q_proj), Adapter(attention.v_proj)
    return model


class Recurrent(nn.Module):
    """An embedding, an LSTM and a classifier on its last state."""

    def __init__(self, words: int = 10_000, width: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        scores: Tensor = self.head(states[:, -1])
        return scores
