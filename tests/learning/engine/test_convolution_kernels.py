"""The CUDA kernels' per-example gradients of convolutions equal those of ordinary differentiation."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from discreet.learning.engine.operations import convolution_kernels as kernels
from discreet.learning.engine.operations.arithmetic import cut, on_grid
from discreet.learning.engine.operations.convolution import ConvolutionWeight

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

# channels, outputs, height, width, kernel, stride, padding, dilation
CASES = {
    "tiny": (3, 16, 8, 8, (3, 3), (1, 1), (1, 1), (1, 1)),
    "wide": (64, 64, 16, 16, (3, 3), (1, 1), (1, 1), (1, 1)),
    "large tiles": (130, 140, 9, 7, (3, 3), (2, 2), (1, 1), (1, 1)),
    "one tap": (20, 33, 9, 7, (1, 1), (2, 2), (0, 0), (1, 1)),
    "dilated": (5, 4, 11, 13, (5, 3), (1, 2), (2, 3), (2, 3)),
    "even kernel": (6, 7, 10, 9, (2, 4), (1, 1), (1, 0), (1, 1)),
}


def case(name, kind=torch.float32):
    channels, outputs, height, width, *geometry = CASES[name]
    torch.manual_seed(1)
    x = torch.randn(3, channels, height, width, device="cuda", dtype=kind)
    weight = torch.zeros(outputs, channels, *geometry[0], device="cuda", dtype=torch.float64, requires_grad=True)
    kernel_free = geometry[1:]
    shape = F.conv2d(x.double(), weight, None, *kernel_free).shape
    g = torch.randn(shape, device="cuda", dtype=kind)
    exact = []
    for i in range(3):
        output = F.conv2d(x[i : i + 1].double(), weight, None, *kernel_free)
        exact.append(torch.autograd.grad(output, weight, g[i : i + 1].double())[0])
    return x, g, [size for pair in geometry for size in pair], torch.stack(exact)


@cuda
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_and_their_powers_are_exact(name, kind):
    x, g, geometry, exact = case(name, kind)
    found = kernels.gradients(x, g, geometry, 24).movedim(-1, 2).double()
    assert float((found - exact).norm() / exact.norm()) < 1e-5
    for order, expected in ((2, exact.square().sum((1, 2, 3, 4))), (1, exact.abs().sum((1, 2, 3, 4)))):
        torch.testing.assert_close(kernels.powers(x, g, geometry, 24, order).double(), expected, rtol=1e-5, atol=0.0)


@cuda
def test_splitting_in_halves_keeps_sixteen_bits():
    value = torch.randn(3, 5, 4, 4, device="cuda") * torch.logspace(-30, 30, 5, device="cuda").view(1, 5, 1, 1)
    high, low, _ = kernels.halves(value, 24)
    assert bool(((high.double() + low.double() - value.double()).abs() <= 2.0**-16 * value.double().abs()).all())


@cuda
def test_halves_of_fewer_digits_are_exact():
    value = torch.randn(3, 5, 4, 4, device="cuda") * torch.logspace(-30, 30, 5, device="cuda").view(1, 5, 1, 1)
    high, low, _ = kernels.halves(value, 11)
    assert torch.equal(high.double() + low.double(), on_grid(value, 11).double())


def test_a_cut_tensor_keeps_its_memory_order():
    value = torch.randn(3, 5, 4, 4).to(memory_format=torch.channels_last)
    assert torch.equal(cut(value, 11), on_grid(value, 11))
    assert cut(value, 11).stride() == value.stride() == torch.ops.discreet.cut(value.to("meta"), 11).stride()
    assert cut(value, 24) is value
    assert cut(value.double(), 11).dtype == torch.float64


@cuda
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_norms_from_grams_over_positions_are_those_of_the_kernel(memory_format):
    torch.manual_seed(0)
    rule = ConvolutionWeight((256, 256, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, g = (torch.randn(4, 256, 8, 8, device="cuda").to(memory_format=memory_format) for _ in range(2))
    assert rule.has_small_grams(x, g)
    assert rule.has_kernel(x, g)
    found = rule.norm_power((x,), g, 2)
    exact = kernels.gradients(x, g, rule.geometry(), 24).double().square().sum((1, 2, 3, 4))
    assert ((found / exact).sqrt() - 1).abs().max() < 2e-2


@cuda
@pytest.mark.parametrize("shape", [(3, 5, 7, 9), (3, 16, 8, 8), (2, 64, 16, 8)])
def test_the_sum_of_squares_is_that_of_each_example(shape):
    value = torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)
    expected = on_grid(value, 11).double().square().sum((1, 2, 3))
    torch.testing.assert_close(kernels.halves(value, 11)[2].double(), expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(kernels.input_squares(value, 11).double(), expected, rtol=1e-6, atol=0.0)


def test_halves_that_a_compiler_can_fuse_keep_sixteen_bits_too():
    value = torch.randn(3, 5, 4, 4) * torch.logspace(-30, 30, 5).view(1, 5, 1, 1)
    high, low = kernels.fused_halves(value)
    assert bool(((high.double() + low.double() - value.double()).abs() <= 2.0**-16 * value.double().abs()).all())


def test_halves_of_a_number_that_is_not_finite_are_not_finite():
    bits = torch.tensor([0x7F800000, -0x00800000, 0x7FFFFFFF, 0x7F800001], dtype=torch.int32)  # infinities and NaN
    high, _ = kernels.fused_halves(bits.view(torch.float32))
    assert not bool(torch.isfinite(high).any())


def test_the_kernels_do_not_support_a_cpu():
    x = torch.zeros(1, 3, 4, 4)
    assert not kernels.supports(x, x, (3, 3), 1)


def test_three_products_of_halves_are_within_the_stated_error():
    """One factor is rounded and the other one cut; the worst numbers are those just below a power of two."""
    torch.manual_seed(0)
    hard = 2.0 - 2.0 ** -torch.arange(1.0, 24.0)
    x, g = torch.cat([torch.randn(4096), hard]), torch.cat([torch.randn(4096), hard.flip(0)])
    rounded = x.to(torch.bfloat16)
    x_low = (x - rounded.float()).to(torch.bfloat16)
    g_high, g_low = kernels.fused_halves(g)
    a, b, c, d = (
        value.double()[:, None] if i < 2 else value.double()[None]
        for i, value in enumerate((rounded, x_low, g_high, g_low))
    )
    found = a * c + a * d + b * c
    exact = x.double()[:, None] * g.double()[None]
    share = ((found - exact).abs() / exact.abs()).max()
    assert float(share) <= kernels.ERROR
