"""Which function is which rule: the one table that the recorder looks things up in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.attention import multi_head_attention
from discreet.learning.engine.capture import Claim, Handler, Recorder
from discreet.learning.engine.normalization import group_norm
from discreet.learning.engine.recurrent import gru, lstm, rnn_relu, rnn_tanh
from discreet.learning.engine.rules.convolution import ConvolutionWeight
from discreet.learning.engine.rules.elementwise import Broadcast, Normalized
from discreet.learning.engine.rules.embedding import EmbeddingWeight
from discreet.learning.engine.rules.linear import Bias, LinearWeight

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Function = Callable[..., Any]


def named(names: str, args: Args, kwargs: Kwargs, **defaults: Any) -> list[Any]:
    """Arguments in the order of `names`, whether they came by place or by name."""
    words = names.split()
    given = dict(zip(words, args, strict=False)) | kwargs
    return [given.get(word, defaults.get(word)) for word in words]


def narrowed(x: Tensor) -> Tensor:
    """An input in the type that autocast would give it, so that the copy which is kept is the copy that is used."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64:
        return x.to(torch.get_autocast_dtype(kind))
    return x


def linear(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias = named("input weight bias", args, kwargs)
    source = recorder.transposed.get(id(weight))
    x = narrowed(x)
    output = func(x, weight, bias)
    claims = [Claim(source if source is not None else weight, LinearWeight(source is not None), (x,))]
    if bias is not None:
        claims.append(Claim(bias, Bias()))
    return recorder.record("linear", output, claims)


def addmm(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    bias, x, weight = named("input mat1 mat2", args, kwargs)
    if len(args) > 3 or set(kwargs) - {"input", "mat1", "mat2"} or id(x) in recorder.names or bias.dim() != 1:
        return NotImplemented
    source = recorder.transposed.get(id(weight))
    x = narrowed(x)
    output = func(bias, x, weight)
    weight_claim = Claim(source if source is not None else weight, LinearWeight(source is None), (x,))
    return recorder.record("addmm", output, [weight_claim, Claim(bias, Bias())])


def matmul(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs or args[1].dim() != 2 or args[0].dim() < 2:
        return NotImplemented
    x, weight = args
    if id(x) in recorder.names or id(x) in recorder.transposed:
        return NotImplemented
    source = recorder.transposed.get(id(weight))
    x = narrowed(x)
    claim = Claim(source if source is not None else weight, LinearWeight(source is None), (x,))
    return recorder.record("matmul", func(x, weight), [claim])


def transpose(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A parameter's transpose is the parameter in another order: a product with it still has a rule."""
    if kwargs or args[0].dim() != 2 or id(args[0]) not in recorder.names:
        return NotImplemented
    if len(args) == 3 and {args[1] % 2, args[2] % 2} != {0, 1}:
        return NotImplemented
    return recorder.alias(args[0], func(*args))


def wants_channels_last(x: Tensor) -> bool:
    """Whether convolutions of such an input are quicker with channels last: images on CUDA, on its matrix units."""
    return x.is_cuda and x.dim() == 4 and x.dtype != torch.float64


def convolution(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias, stride, padding, dilation, groups = named(
        "input weight bias stride padding dilation groups", args, kwargs, stride=1, padding=0, dilation=1, groups=1
    )
    places: int = weight.dim() - 2
    if x.dim() != weight.dim():
        return NotImplemented
    x = narrowed(x)
    turned = weight
    if recorder.traced and wants_channels_last(x):
        x, turned = (value.contiguous(memory_format=torch.channels_last) for value in (x, weight))
    output = func(x, turned, bias, stride, padding, dilation, groups)

    def each(value: Any) -> tuple[int, ...]:
        if isinstance(value, int):
            return (value,) * places
        sizes = tuple(int(size) for size in value)
        return sizes * places if len(sizes) == 1 else sizes

    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(each(dilation), weight.shape[2:], strict=True)]
        sides = tuple((total // 2, total - total // 2) for total in totals)
    else:
        sides = tuple((side, side) for side in each(0 if padding == "valid" else padding))
    rule = ConvolutionWeight(tuple(weight.shape), each(stride), sides, each(dilation), groups)
    claims = [Claim(weight, rule, (x,))]
    if bias is not None:
        claims.append(Claim(bias, Bias(-1 - places)))
    return recorder.record("convolution", output, claims)


def embedding(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    ids, weight, padding, max_norm, _, by_frequency, _ = named(
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", args, kwargs
    )
    if max_norm is not None or by_frequency or id(weight) not in recorder.names:
        return NotImplemented
    output = F.embedding(ids, weight, padding)
    if padding is not None and padding < 0:
        padding += weight.shape[0]
    return recorder.record("embedding", output, [Claim(weight, EmbeddingWeight(weight.shape[0], padding), (ids,))])


def lookup(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """`table[numbers]` is an embedding."""
    table, numbers = args
    if (
        isinstance(numbers, Tensor)
        and numbers.dtype == torch.int64
        and table.dim() == 2
        and id(table) in recorder.names
    ):
        return recorder.apply(F.embedding, (numbers % table.shape[0], table), {})
    return NotImplemented


def embedding_bag(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A bag of a fixed length is an embedding and a sum; bags given by offsets go through the fallback."""
    ids, weight, offsets, max_norm, _, by_frequency, mode, _, samples, _, padding = named(
        "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights "
        "include_last_offset padding_idx",
        args,
        kwargs,
        mode="mean",
    )
    if ids.dim() != 2 or offsets is not None or max_norm is not None or by_frequency or mode == "max":
        return NotImplemented
    rows = recorder.apply(F.embedding, (ids, weight, padding), {})
    if samples is not None:
        rows = rows * samples.unsqueeze(-1)
    counted = torch.ones_like(ids, dtype=rows.dtype)
    if padding is not None:
        counted = (ids != padding % weight.shape[0]).to(rows.dtype)
        rows = rows * counted.unsqueeze(-1)
    total = rows.sum(1)
    return total if mode == "sum" else total / counted.sum(1, keepdim=True).clamp_min(1)


def _normalization(operation: str, names: str, channel: bool) -> Handler:
    def handle(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        given = dict(zip(names.split(), args, strict=False)) | kwargs
        x, weight, bias = given["input"], given.get("weight"), given.get("bias")
        if operation == "instance_norm" and (
            given.get("running_mean") is not None or not given.get("use_input_stats", True)
        ):
            return NotImplemented
        statistics: tuple[Tensor, ...] = ()
        if operation == "group_norm" and recorder.traced and wants_channels_last(x):
            output, *found = group_norm(x, given["num_groups"], weight, bias, given.get("eps", 1e-5))
            statistics = tuple(found)
        else:
            output = func(**given) if operation != "rms_norm" else func(*args, **kwargs)
        claims = []
        for parameter, scale in ((weight, True), (bias, False)):
            if parameter is None:
                continue
            shape = tuple(parameter.shape)
            padded = (1, *shape) + (1,) * (x.dim() - 2) if channel else (1,) * (x.dim() - len(shape)) + shape
            if not scale:
                claims.append(Claim(parameter, Broadcast(shape, padded)))
                continue
            option = given.get("num_groups") or given.get("normalized_shape") or shape
            options = (option if isinstance(option, int) else tuple(option), given.get("eps"))
            claims.append(
                Claim(parameter, Normalized(shape, padded, 1.0, operation, options, x.dim()), (x, *statistics))
            )
        return recorder.record(operation, output, claims)

    return handle


def _elementwise(operation: str) -> Handler:
    def handle(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2 or kwargs or not all(isinstance(a, Tensor) for a in args):
            return NotImplemented
        first, second = args
        mine = [id(a) in recorder.names for a in args]
        if all(mine) or any(id(a) in recorder.transposed for a in args):
            return NotImplemented
        output = func(first, second)
        parameter, other = (first, second) if mine[0] else (second, first)
        if not parameter.is_floating_point() or output.dim() < parameter.dim():
            return NotImplemented
        padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
        inputs = (other.expand(output.shape),) if operation == "mul" else ()
        sign = -1.0 if operation == "sub" and not mine[0] else 1.0
        return recorder.record(
            operation, output, [Claim(parameter, Broadcast(tuple(parameter.shape), padded, sign), inputs)]
        )

    return handle


def expand(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or id(args[0]) not in recorder.names:
        return NotImplemented
    parameter = args[0]
    output = func(*args)
    padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
    return recorder.record("expand", output, [Claim(parameter, Broadcast(tuple(parameter.shape), padded))])


_PROPERTIES = [vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")]

HANDLERS: dict[Any, Handler] = {
    F.linear: linear,
    torch.addmm: addmm,
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), matmul),
    **dict.fromkeys((torch.t, Tensor.t, torch.transpose, Tensor.transpose, *_PROPERTIES), transpose),
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), convolution),
    F.embedding: embedding,
    F.embedding_bag: embedding_bag,
    Tensor.__getitem__: lookup,
    F.layer_norm: _normalization("layer_norm", "input normalized_shape weight bias eps", False),
    F.rms_norm: _normalization("rms_norm", "input normalized_shape weight eps", False),
    torch.rms_norm: _normalization("rms_norm", "input normalized_shape weight eps", False),
    F.group_norm: _normalization("group_norm", "input num_groups weight bias eps", True),
    F.instance_norm: _normalization(
        "instance_norm", "input running_mean running_var weight bias use_input_stats momentum eps", True
    ),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), _elementwise("add")),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.__sub__), _elementwise("sub")),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), _elementwise("mul")),
    **dict.fromkeys((Tensor.expand, Tensor.expand_as), expand),
    F.multi_head_attention_forward: multi_head_attention,
    torch.lstm: lstm,
    torch.gru: gru,
    torch.rnn_tanh: rnn_tanh,
    torch.rnn_relu: rnn_relu,
}
