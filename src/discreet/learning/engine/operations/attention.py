"""Attention with parameters: projections, which are linear operations, and biases that are added to the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations.base import Args, Function, Handlers, Kwargs, Recorder, arguments

_NAMES = """
    query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p
    out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask use_separate_proj_weight
    q_proj_weight k_proj_weight v_proj_weight static_k static_v average_attn_weights is_causal
"""


def _projections(recorder: Recorder, given: dict[str, Any]) -> list[Tensor]:
    """Queries, keys and values. A packed weight that meets different inputs is one parameter with several uses."""
    sources = [given["query"], given["key"], given["value"]]
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    if given.get("use_separate_proj_weight"):
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        projected = [recorder.apply(F.linear, (s, given[n]), {}) for s, n in zip(sources, names, strict=True)]
        if bias is None:
            return projected
        # The packed bias is added to zeros first, so that its rule sees all of it; each projection takes its third.
        zeros = [p.new_zeros((*p.shape[:-1], bias.shape[0])) for p in projected]
        shifts = [recorder.apply(torch.add, (zero, bias), {}).chunk(3, -1) for zero in zeros]
        return [p + shift[third] for third, (p, shift) in enumerate(zip(projected, shifts, strict=True))]
    by_source: dict[int, tuple[Tensor, ...]] = {}
    for source in sources:
        if id(source) not in by_source:
            by_source[id(source)] = recorder.apply(F.linear, (source, weight, bias), {}).chunk(3, -1)
    return [by_source[id(source)][third] for third, source in enumerate(sources)]


def _additive_mask(value: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask in the form that is added to the scores."""
    if value is None or value.dtype != torch.bool:
        return value
    return torch.zeros(value.shape, dtype=dtype, device=value.device).masked_fill(value, float("-inf"))


def multi_head_attention(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """The same values as `torch.nn.functional.multi_head_attention_forward`, projection by projection."""
    given = dict(zip(_NAMES.split(), args, strict=False)) | kwargs
    unsupported = ("bias_k", "bias_v", "static_k", "static_v")
    if any(given.get(name) is not None for name in unsupported) or given.get("add_zero_attn"):
        return NotImplemented
    if given["query"].dim() == 2:  # one sequence without a batch dimension
        return NotImplemented
    heads, training = given["num_heads"], given.get("training", True)
    q, k, v = _projections(recorder, given)
    length, examples, width = q.shape
    size = width // heads

    def split(value: Tensor) -> Tensor:
        return value.reshape(value.shape[0], examples, heads, size).permute(1, 2, 0, 3)

    q, k, v = split(q), split(k), split(v)
    mask = _additive_mask(given.get("attn_mask"), q.dtype)
    if mask is not None and mask.dim() == 3:
        mask = mask.view(examples, heads, length, -1)
    padding = _additive_mask(given.get("key_padding_mask"), q.dtype)
    if padding is not None:
        padding = padding.view(examples, 1, 1, -1)
        mask = padding if mask is None else mask + padding
    dropout = given["dropout_p"] if training else 0.0
    weights = None
    if given.get("need_weights", True):
        scores = (q * size**-0.5) @ k.mT
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, dropout) if dropout > 0 else weights
        mixed = weights @ v
        weights = weights.mean(1) if given.get("average_attn_weights", True) else weights
    else:
        causal = bool(given.get("is_causal")) and mask is None
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
    joined = mixed.permute(2, 0, 1, 3).reshape(length, examples, width)
    return recorder.apply(F.linear, (joined, given["out_proj_weight"], given["out_proj_bias"]), {}), weights


def attention(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A bias that is added to the scores is expanded to their shape first."""
    q, k, v, bias, dropout, causal = arguments(
        "query key value attn_mask dropout_p is_causal", args, kwargs, dropout_p=0.0, is_causal=False
    )
    if bias is None or id(bias) not in recorder.names or any(id(x) in recorder.names for x in (q, k, v)):
        return NotImplemented
    bias = recorder.apply(Tensor.expand, (bias, (*q.shape[:-1], k.shape[-2])), {})
    more = {name: kwargs[name] for name in ("scale", "enable_gqa") if name in kwargs}
    return func(q, k, v, bias, dropout, causal, **more)


HANDLERS: Handlers = {
    F.multi_head_attention_forward: multi_head_attention,
    F.scaled_dot_product_attention: attention,
}
