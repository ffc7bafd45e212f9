"""Which rule each aten operation has. What is not listed has none, and makes its result depend on all examples."""

from __future__ import annotations

import functools

import torch

from discreet.learning.engine.independence.rules import elementwise, layers, places
from discreet.learning.engine.independence.rules.base import Rule

_POINTWISE = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift ceil celu clamp clamp_max clamp_min clone copysign cos cosh deg2rad
    digamma div elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax fmin fmod frac ge gelu glu_jvp gt
    hardshrink hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan isneginf isposinf le leaky_relu lerp
    lgamma log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logit lt masked_fill maximum minimum mish mul nan_to_num native_dropout ne neg nextafter polar pow prelu
    _prelu_kernel rad2deg reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc
    sinh softplus softshrink special_entr special_erfcx special_i0 special_log_ndtr special_ndtr special_xlog1py sqrt
    square sub tan tanh threshold true_divide trunc where xlogy zero _to_copy _conj complex real imag
    _fused_dropout bernoulli angle
"""
_REDUCTIONS = """
    sum mean amax amin prod var std var_mean std_mean any all argmax argmin logsumexp norm linalg_vector_norm max min
    count_nonzero nansum aminmax median nanmedian mode kthvalue
"""
_WITHIN = """
    _softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod cummax cummin _cummax_helper logcumsumexp
    sort argsort topk flip roll glu
"""
_CONSTANTS = """
    zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty new_empty_strided sym_size
    sym_stride sym_numel sym_storage_offset
"""
_DRAWN = "rand_like randn_like randint_like uniform normal_functional"
_PRODUCTS = "mm bmm mv addmm addmv baddbmm"
_LEADING = {
    1: "max_pool1d_with_indices avg_pool1d adaptive_avg_pool1d upsample_nearest1d upsample_linear1d reflection_pad1d "
    "replication_pad1d _upsample_nearest_exact1d",
    2: "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d reflection_pad2d replication_pad2d _upsample_nearest_exact2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa tril triu",
    3: "max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d "
    "upsample_trilinear3d reflection_pad3d replication_pad3d _upsample_nearest_exact3d im2col "
    "pixel_shuffle pixel_unshuffle",
}
_ATTENTION = """
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable
"""
_LOSSES = """
    mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss
"""

_OTHERS: dict[str, Rule] = {
    "copy": elementwise.overwritten,
    "bucketize": elementwise.bucketized,
    "_log_softmax_backward_data": elementwise.softmax_backward,
    "_trilinear": layers.trilinear,
    "linear": layers.linear,
    "convolution": layers.first_dimension("input", "weight", "bias"),
    "_convolution": layers.first_dimension("input", "weight", "bias"),
    "mkldnn_convolution": layers.first_dimension("self", "weight", "bias"),
    "constant_pad_nd": elementwise.padded,
    "native_layer_norm": layers.layer_norm,
    "_fused_rms_norm": layers.rms_norm,
    "native_group_norm": layers.group_norm,
    "native_batch_norm": layers.batch_norm,
    "cudnn_batch_norm": layers.batch_norm,
    "_native_batch_norm_legit": layers.batch_norm,
    "_native_batch_norm_legit_no_training": layers.batch_norm,
    "_batch_norm_with_update": layers.batch_norm,
    "embedding": layers.embedding,
    "_embedding_bag": layers.embedding_bag,
    "_embedding_bag_forward_only": layers.embedding_bag,
    "nll_loss_forward": layers.nll,
    "nll_loss2d_forward": layers.nll,
    "cat": places.concatenated,
    "stack": places.stacked,
    "repeat": places.repeated,
    "mkldnn_rnn_layer": layers.recurrent_layer,
    "gather": places.gathered,
    "scatter": places.scattered,
    "scatter_add": places.scattered,
    "scatter_reduce": places.scattered,
    "index_select": places.index_select,
    "index": places.indexed,
    "index_put": places.put,
    "_unsafe_index": places.indexed,
    "_unsafe_index_put": places.put,
    "_index_put_impl": places.put,
    "_thnn_fused_lstm_cell": layers.rows,
    "_thnn_fused_gru_cell": layers.rows,
}


def _table() -> dict[str, Rule]:
    rows: list[tuple[str, Rule]] = [
        (_POINTWISE, elementwise.pointwise),
        (_REDUCTIONS, elementwise.reduction),
        (_WITHIN, elementwise.within),
        (_CONSTANTS, elementwise.constant),
        (_DRAWN, elementwise.drawn),
        (_PRODUCTS, layers.product),
        (_ATTENTION, layers.attention),
        (_LOSSES, elementwise.unreduced),
        *((names, elementwise.leading(count)) for count, names in _LEADING.items()),
    ]
    table = {f"aten.{name}": rule for names, rule in rows for name in names.split()}
    ours = {f"discreet.{name}": layers.recurrence for name in ("lstm_steps", "gru", "rnn")}
    return table | ours | {f"aten.{name}": rule for name, rule in _OTHERS.items()}


RULES = _table()
_WRITTEN = "uniform normal exponential cauchy log_normal random geometric rand randn randint"
#: Random numbers written in place, or made from sizes alone.
DRAWS = {f"aten.{name}" for name in _WRITTEN.split()}

_FILLED = "zeros ones full scalar_tensor zeros_like ones_like full_like new_zeros new_ones new_full"
#: Operations whose result has the same value everywhere.
FILLS = {f"aten.{name}" for name in _FILLED.split()}
#: Operations that fill a tensor in place.
REFILLS = {"aten.zero", "aten.fill"}
_UNSET = "empty empty_like empty_strided new_empty new_empty_strided"
#: Operations whose result has no values yet.
UNSET = {f"aten.{name}" for name in _UNSET.split()}
_LOOKS = "transpose t squeeze unsqueeze swapaxes swapdims as_strided detach"
#: Operations in place that change how a tensor looks at its memory, and no value.
RESHAPES = {f"aten.{name}" for name in _LOOKS.split()}


@functools.cache
def name_of(operation: torch._ops.OpOverload) -> str:
    """The name of an operation, the same for its functional, in-place and out= form: aten.add for aten.add_.Tensor."""
    packet = operation.overloadpacket
    namespace, _, name = packet._qualified_op_name.partition("::")
    mutable = operation._schema.is_mutable
    return f"{namespace}.{name[:-1] if mutable and name.endswith('_') and not name.endswith('__') else name}"
