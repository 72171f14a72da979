"""The Triton kernels in Triton's interpreter, on the CPU; run by test_triton.py in a process of its own.

Triton decides once a process, when it is first imported, whether it interprets or compiles, and transformers imports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.native_library import KernelError
from simnmt.kernels.triton_output import BLOCKS, Workspace, best_into, triton_argmax, triton_best


@pytest.fixture(autouse=True)
def _as_on_a_gpu():
    """Arithmetic with infinities warns in numpy, which is what interprets."""
    with np.errstate(all="ignore"):
        yield


def oracle(products: torch.Tensor, bias: torch.Tensor | None, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """In float64; a stable sort puts the lowest of equal columns first."""
    values = products.float() if bias is None else products.float() + bias
    columns = torch.sort(values, dim=1, descending=True, stable=True).indices[:, :count]
    return columns, values.gather(1, columns), values.double().logsumexp(1)


def holds(products: torch.Tensor, bias: torch.Tensor | None, count: int) -> None:
    best = triton_best(products, bias, count)
    columns, values, log_sum = best.columns, best.values, best.log_sum
    wanted = oracle(products, bias, count)
    assert torch.equal(columns, wanted[0])
    assert torch.equal(values, wanted[1])
    torch.testing.assert_close(log_sum.double(), wanted[2], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(best.log_probs.double(), values.double() - wanted[2][:, None], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_log_probabilities_hold_at_large_logits(offset: float) -> None:
    generator = torch.Generator().manual_seed(1)
    holds(torch.randn(2, BLOCKS[0] + 5, generator=generator).mul(4) + offset, None, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "vocab", "count"), [(3, 7, 5), (2, 1000, 1), (2, BLOCKS[0] + 1, 8)])
def test_best_columns_are_those_of_a_whole_softmax(dtype: torch.dtype, rows: int, vocab: int, count: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    holds(torch.randn(rows, vocab, generator=generator).mul(4).to(dtype), torch.randn(vocab, generator=generator), count)


@given(st.integers(1, 3), st.integers(1, 2100), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))
def test_ties_and_masks_go_to_the_lowest_column(rows: int, vocab: int, count: int, kinds: int, seed: int) -> None:
    """Few different values make ties everywhere, also across programs; -inf masks, and is chosen last."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([-math.inf, 0.0, 1.0, -2.5, 7.0])[:kinds]
    products = values[torch.randint(kinds, (rows, vocab), generator=generator)]
    products[:, torch.randint(vocab, (1,), generator=generator)] = 3.0
    holds(products, None, min(count, vocab))


def test_wide_and_narrow_programs_give_the_same_result() -> None:
    products, bias = torch.randn(2, 9000), torch.randn(9000)
    wide = Workspace.of(1_000, 9000, 3, "cpu")
    assert wide.block == BLOCKS[1]
    narrow = triton_best(products, bias, 3)
    best_into(wide, products, bias)
    for by_wide, by_narrow in zip(wide.best, narrow, strict=True):
        torch.testing.assert_close(by_wide[:2], by_narrow, rtol=1e-6, atol=1e-6)


def test_argmax_is_the_first_best_column() -> None:
    products, bias = torch.randn(4, 3000).bfloat16(), torch.randn(3000)
    assert torch.equal(triton_argmax(products, bias), triton_best(products, bias, 1)[0][:, 0])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_row_without_a_result_is_named(wrong: float) -> None:
    products = torch.full((3, 1200), wrong) if wrong < 0 else torch.zeros(3, 1200)
    products[0::2] = 0.0
    products[1, 1100] = wrong
    for call in (lambda: triton_best(products, None, 2), lambda: triton_argmax(products, None)):
        with pytest.raises(KernelError, match="row 1"):
            call()


def test_kernels_are_launched_on_the_gpu_of_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.Tensor] = []

    @contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        entered.append(tensor)
        yield

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    products = torch.randn(2, 50)
    triton_best(products, None, 1)
    assert len(entered) == 1
    assert entered[0] is products
