"""Models for every operation with a rule, and for operations without one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Convolutions(nn.Module):
    def __init__(self, places: int) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[places - 1]
        norm = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[places - 1]
        self.first = conv(4, 8, 3, padding=1)
        self.group = nn.GroupNorm(2, 8)
        self.second = conv(8, 8, 3, stride=2, groups=4, dilation=2, bias=False)
        self.instance = norm(8, affine=True)
        self.third = conv(8, 5, 3, padding="same", padding_mode="zeros")

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.group(self.first(x)), inplace=True)
        return self.third(self.instance(self.second(h))).flatten(2).mean(2)


class Frames(nn.Module):
    """The frames of one example are folded into the batch dimension, as for video."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 6, 3), nn.GroupNorm(3, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.norm(self.conv(x.flatten(0, 1)))).mean((2, 3))
        return self.head(h).view(x.shape[0], x.shape[1], -1).mean(1)


class Transformer(nn.Module):
    """Tied embedding and head, positions by an embedding and by a slice of a parameter, a class token, a scale."""

    def __init__(self, tied: bool = True, batch_first: bool = True, words: int = 11, width: int = 8) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(20, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=batch_first)
        self.head = nn.Linear(width, words, bias=False)
        self.scale = nn.Parameter(torch.randn(width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.shift = nn.Parameter(torch.randn(1, 20, width))
        if tied:
            self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)) + self.shift[:, : x.shape[1]]
        h = torch.cat([self.token.expand(x.shape[0], -1, -1), h], 1) * self.scale
        h = self.layer(h) if self.batch_first else self.layer(h.transpose(0, 1)).transpose(0, 1)
        return self.head(h).transpose(1, 2)


class Attention(nn.Module):
    """Cross attention with separate widths, a causal mask and, on request, attention weights."""

    def __init__(self, other: int | None = None, need_weights: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=other, vdim=other, batch_first=True)
        self.read = nn.Linear(8, other or 8)
        self.head = nn.Linear(8, 4)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device), 1)
        memory = self.read(x)
        h, _ = self.attention(x, memory, memory, attn_mask=mask, need_weights=self.need_weights)
        return self.head(h.mean(1))


class Sequence(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], batch_first: bool = True, **options: object) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.inner = kind(6, 5, batch_first=batch_first, **options)
        self.head = nn.Linear(10 if options.get("bidirectional") else 5, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.inner(x if self.batch_first else x.transpose(0, 1))
        h = h if self.batch_first else h.transpose(0, 1)
        return self.head(h[:, -1] + h[:, 0])


class Bags(nn.Module):
    def __init__(self, mode: str, padding: int | None = None) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(12, 6, mode=mode, padding_idx=padding)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bag(x))


class Plain(nn.Module):
    """Parameters combined with the data by operators, in several ways and more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(6, 6))
        self.turned = nn.Parameter(torch.randn(4, 6))
        self.shift = nn.Parameter(torch.randn(6))
        self.less = nn.Parameter(torch.randn(6))
        self.scale = nn.Parameter(torch.randn(()))
        self.log_scale = nn.Parameter(torch.randn(4))
        self.table = nn.Parameter(torch.randn(9, 6))
        self.norm = nn.RMSNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        numbers = (x[:, :3].abs() * 3).long().clamp(max=8)
        h = torch.tanh(x @ self.matrix + self.shift) @ self.matrix
        h = self.scale * self.norm(h - self.less) + self.table[numbers].sum(1)
        return torch.addmm(self.log_scale, h, self.turned.t()) * self.log_scale.exp()


class Several(nn.Module):
    """A layer that is called several times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)
        self.conv = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.norm(torch.tanh(self.layer(x)))
            x = x + self.conv(x.unsqueeze(1)).squeeze(1)
        return self.head(x)


class Adapter(nn.Module):
    """A frozen layer with a low-rank adapter, whose second half starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(6, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 4, bias=False)
        nn.init.zeros_(self.up.weight)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


class NoRule(nn.Module):
    """Bilinear has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.head = nn.Bilinear(6, 6, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pair(x, x))


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.LSTM(6, 5, proj_size=3, batch_first=True), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


def vectors(size: int = 6, classes: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(5, size), torch.randint(0, classes, (5,))


def sequences(*shape: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(5, *shape), torch.randint(0, classes, (5,))


def words(length: int, count: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randint(0, count, (5, length)), torch.randint(0, classes, (5,))


def texts(length: int = 7, count: int = 11) -> tuple[Tensor, Tensor]:
    return torch.randint(0, count, (5, length)), torch.randint(0, count, (5, length + 1))


#: name → (model, batch); both are called under a fixed seed and a default type.
ZOO = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)), vectors),
    "conv1d": (lambda: Convolutions(1), lambda: sequences(4, 11, classes=5)),
    "conv2d": (lambda: Convolutions(2), lambda: sequences(4, 11, 9, classes=5)),
    "conv3d": (lambda: Convolutions(3), lambda: sequences(4, 7, 8, 9, classes=5)),
    "frames in the batch": (Frames, lambda: sequences(4, 3, 6, 6)),
    "transformer, tied": (Transformer, texts),
    "transformer, untied": (lambda: Transformer(tied=False), texts),
    "transformer, time first": (lambda: Transformer(batch_first=False), texts),
    "attention": (Attention, lambda: sequences(5, 8)),
    "attention, separate": (lambda: Attention(6), lambda: sequences(5, 8)),
    "attention, fused": (lambda: Attention(None, need_weights=False), lambda: sequences(5, 8)),
    "lstm": (lambda: Sequence(nn.LSTM), lambda: sequences(7, 6)),
    "lstm, deep, both ways, time first": (
        lambda: Sequence(nn.LSTM, False, num_layers=2, bidirectional=True),
        lambda: sequences(7, 6),
    ),
    "gru": (lambda: Sequence(nn.GRU), lambda: sequences(7, 6)),
    "gru, deep, both ways": (lambda: Sequence(nn.GRU, num_layers=2, bidirectional=True), lambda: sequences(7, 6)),
    "gru, no bias": (lambda: Sequence(nn.GRU, bias=False), lambda: sequences(7, 6)),
    "rnn": (lambda: Sequence(nn.RNN), lambda: sequences(7, 6)),
    "rnn, relu": (lambda: Sequence(nn.RNN, nonlinearity="relu", bias=False), lambda: sequences(7, 6)),
    "lstm, projected": (Projected, lambda: sequences(4, 6)),
    "embedding bag, mean": (lambda: Bags("mean", 0), lambda: words(5, 12)),
    "embedding bag, sum": (lambda: Bags("sum"), lambda: words(5, 12)),
    "embedding bag, max": (lambda: Bags("max"), lambda: words(5, 12)),
    "plain parameters": (Plain, vectors),
    "a layer called several times": (Several, vectors),
    "adapter": (Adapter, vectors),
    "no rule": (NoRule, vectors),
}
