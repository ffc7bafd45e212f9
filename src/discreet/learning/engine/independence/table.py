"""Which rule each aten operation has. What is not listed has none, and makes its result depend on all examples."""

from __future__ import annotations

import torch

from discreet.learning.engine.independence import rules
from discreet.learning.engine.independence.rules import Rule

_POINTWISE = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift ceil celu clamp clamp_max clamp_min clone copysign cos cosh deg2rad
    digamma div elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax fmin fmod frac ge gelu glu_jvp gt
    hardshrink hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan isneginf isposinf le leaky_relu lerp
    lgamma log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logit lt masked_fill maximum minimum mish mul nan_to_num native_dropout ne neg nextafter polar pow prelu
    _prelu_kernel rad2deg reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc
    sinh softplus softshrink special_entr special_erfcx special_i0 special_log_ndtr special_ndtr special_xlog1py sqrt
    square sub tan tanh threshold tril triu true_divide trunc where xlogy zero _to_copy _conj complex real imag
    _fused_dropout bernoulli rrelu_with_noise angle bucketize
    _log_softmax_backward_data
"""
_REDUCTIONS = """
    sum mean amax amin prod var std var_mean std_mean any all argmax argmin logsumexp norm linalg_vector_norm max min
    count_nonzero nansum aminmax median nanmedian mode kthvalue
"""
_WITHIN = """
    _softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod cummax cummin _cummax_helper logcumsumexp sort
    argsort topk flip roll glu diff renorm
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
    "upsample_bilinear2d upsample_bicubic2d reflection_pad2d replication_pad2d _upsample_nearest_exact2d im2col "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa pixel_shuffle pixel_unshuffle",
    3: "max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d "
    "upsample_trilinear3d reflection_pad3d replication_pad3d _upsample_nearest_exact3d",
}
_ATTENTION = """
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable
"""
_LOSSES = "mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss"

_OTHERS: dict[str, Rule] = {
    "copy": rules.overwritten,
    "linear": rules.linear,
    "convolution": rules.first_dimension("input", "weight", "bias"),
    "_convolution": rules.first_dimension("input", "weight", "bias"),
    "mkldnn_convolution": rules.first_dimension("self", "weight", "bias"),
    "constant_pad_nd": rules.padded,
    "native_layer_norm": rules.layer_norm,
    "_fused_rms_norm": rules.rms_norm,
    "native_group_norm": rules.group_norm,
    "native_batch_norm": rules.batch_norm,
    "cudnn_batch_norm": rules.batch_norm,
    "_native_batch_norm_legit": rules.batch_norm,
    "_native_batch_norm_legit_no_training": rules.batch_norm,
    "_batch_norm_with_update": rules.batch_norm,
    "embedding": rules.embedding,
    "_embedding_bag": rules.embedding_bag,
    "_embedding_bag_forward_only": rules.embedding_bag,
    "nll_loss_forward": rules.nll,
    "nll_loss2d_forward": rules.nll,
    "cat": rules.concatenated,
    "stack": rules.stacked,
    "repeat": rules.repeated,
    "mkldnn_rnn_layer": rules.recurrent_layer,
    "gather": rules.gathered,
    "scatter": rules.scattered,
    "scatter_add": rules.scattered,
    "scatter_reduce": rules.scattered,
    "index_select": rules.index_select,
    "index": rules.indexed,
    "index_put": rules.put,
    "_unsafe_index": rules.indexed,
    "_unsafe_index_put": rules.put,
    "_index_put_impl": rules.put,
    "_thnn_fused_lstm_cell": rules.rows,
    "_thnn_fused_gru_cell": rules.rows,
}


def _table() -> dict[str, Rule]:
    rows: list[tuple[str, Rule]] = [
        (_POINTWISE, rules.pointwise),
        (_REDUCTIONS, rules.reduction),
        (_WITHIN, rules.within),
        (_CONSTANTS, rules.constant),
        (_DRAWN, rules.drawn),
        (_PRODUCTS, rules.product),
        (_ATTENTION, rules.attention),
        (_LOSSES, rules.unreduced),
        *((names, rules.leading(count)) for count, names in _LEADING.items()),
    ]
    table = {f"aten.{name}": rule for names, rule in rows for name in names.split()}
    return table | {f"aten.{name}": rule for name, rule in _OTHERS.items()}


RULES = _table()
#: Random numbers written in place, or made from sizes alone.
DRAWS = {"aten.uniform", "aten.normal", "aten.exponential", "aten.cauchy", "aten.log_normal", "aten.random", "aten.geometric",
         "aten.rand", "aten.randn", "aten.randint"}  # fmt: skip

#: Operations in place that change how a tensor looks at its memory, and no value.
RESHAPES = {f"aten.{name}" for name in "transpose t squeeze unsqueeze swapaxes swapdims as_strided detach".split()}


def name_of(operation: torch._ops.OpOverload) -> str:
    """The name of an operation, the same for its functional, in-place and out= form: aten.add for aten.add_.Tensor."""
    packet = operation.overloadpacket
    namespace, _, name = packet._qualified_op_name.partition("::")
    mutable = operation._schema.is_mutable
    return f"{namespace}.{name[:-1] if mutable and name.endswith('_') and not name.endswith('__') else name}"
