"""The CUDA kernel's norms from Gram matrices equal those of the gradients themselves."""

from __future__ import annotations

import pytest
import torch

from discreet.learning.engine.operations import gram_kernels, sequence_norms

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def case(examples, length, d, p, kind):
    torch.manual_seed(1)
    a = torch.randn(examples, length, d, device="cuda").to(kind)
    g = (torch.randn(examples, length, p, device="cuda") * 1e-2).to(kind)
    return a, g, torch.einsum("btp,btd->bpd", g.double(), a.double()).square().sum((1, 2))


@cuda
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "sizes", [(3, 32, 40, 33), (2, 64, 64, 128), (3, 196, 96, 200), (2, 513, 64, 70), (1, 1030, 65, 8)]
)
def test_products_and_diagonals_are_exact(sizes, kind):
    a, g, expected = case(*sizes, kind)
    squares, of_a, of_g = gram_kernels.gram_products(a, g)
    torch.testing.assert_close(squares.double(), expected, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(of_a.double(), a.double().square().sum(2), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(of_g.double(), g.double().square().sum(2), rtol=1e-5, atol=0.0)


@cuda
def test_rows_that_are_views_of_wider_ones_give_the_same():
    a, g, expected = case(2, 100, 64, 48, torch.bfloat16)
    wide = torch.full((2, 100, 3, 64), float("nan"), device="cuda", dtype=torch.bfloat16)
    wide[:, :, 1] = a
    by_length = g.transpose(0, 1).contiguous().transpose(0, 1)
    squares, _, _ = gram_kernels.gram_products(wide[:, :, 1], by_length)
    torch.testing.assert_close(squares.double(), expected, rtol=1e-5, atol=0.0)
    squares, _, _ = gram_kernels.gram_products(a.mT.contiguous().mT, g)
    torch.testing.assert_close(squares.double(), expected, rtol=1e-5, atol=0.0)


@cuda
@pytest.mark.parametrize("cancel", [False, True])
def test_norms_are_those_of_both_ways_and_never_too_short(cancel, monkeypatch):
    a, g, _ = case(3, 200, 512, 640, torch.bfloat16)
    if cancel:  # a gradient of zero whose terms are large
        a[:, 1::2], g[:, 1::2] = a[:, ::2], -g[:, ::2]
    exact = torch.einsum("btp,btd->bpd", g.double(), a.double()).square().sum((1, 2))
    assert sequence_norms.gram_is_cheaper(200, 512, 640)
    by_kernel = sequence_norms.sequence_norm_squared(a, g)
    monkeypatch.setattr(gram_kernels, "supports", lambda *_: False)
    by_products = sequence_norms.sequence_norm_squared(a, g)
    assert bool((by_kernel.double() >= exact).all())
    torch.testing.assert_close(by_kernel, by_products, rtol=1e-3, atol=0.0)


@cuda
def test_rows_that_cannot_be_read_fast_are_left_to_others():
    a = torch.zeros(2, 64, 48, device="cuda", dtype=torch.bfloat16)
    assert gram_kernels.supports(a, a)
    assert not gram_kernels.supports(a, a[:, :, :1].expand(2, 64, 48).contiguous()[:, :, :47].contiguous())
    assert not gram_kernels.supports(a, a.mT.contiguous().mT)


def test_the_kernel_does_not_support_a_cpu():
    x = torch.zeros(1, 64, 4, dtype=torch.bfloat16)
    assert not gram_kernels.supports(x, x)
