"""The Triton kernels in Triton's interpreter, on the CPU; run by test_triton.py in a process of its own.

Triton decides once a process, when it is first imported, whether it interprets or compiles, and transformers imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import kernels_cuda
from benchmarks.kernels_cuda import Row, judged
from simnmt.kernels.errors import KernelError
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


def test_worked_example_of_fni_03() -> None:
    best = triton_best(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0.5, -0.5, 1.0]), 1)
    assert (int(best.columns), float(best.values)) == (2, 3.0)
    assert float(best.log_sum) == pytest.approx(3.6041306, abs=1e-6)
    assert float(best.log_probs.exp()) == pytest.approx(0.5465494, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "vocab", "count"), [(3, 7, 5), (2, 1000, 1), (2, BLOCKS[0] + 1, 8)])
def test_best_columns_are_those_of_a_whole_softmax(dtype: torch.dtype, rows: int, vocab: int, count: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    holds(torch.randn(rows, vocab, generator=generator).mul(4).to(dtype), torch.randn(vocab, generator=generator), count)


def test_a_whole_vocabulary_is_joined_from_many_programs() -> None:
    generator = torch.Generator().manual_seed(1)
    holds(torch.randn(1, 40_000, generator=generator), torch.randn(40_000, generator=generator), 2)


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


def test_a_slice_is_read_by_the_stride_of_its_rows() -> None:
    products = torch.randn(3, 4000)[:, 100:1900]
    holds(products, None, 4)


def test_neither_large_nor_half_precision_extremes_overflow() -> None:
    for products in (torch.tensor([[1e4, -1e4, 9_999.0]]), torch.tensor([[65_504.0, -65_504.0, 6e-8]], dtype=torch.float16)):
        holds(products, None, 2)


def test_argmax_is_the_first_best_column() -> None:
    products, bias = torch.randn(4, 3000).bfloat16(), torch.randn(3000)
    assert torch.equal(triton_argmax(products, bias), triton_best(products, bias, 1)[0][:, 0])


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 1500])
def test_a_row_with_nan_or_infinity_is_named(wrong: float, column: int) -> None:
    products = torch.zeros(3, 2000)
    products[1, column] = wrong
    for call in (lambda: triton_best(products, None, 2), lambda: triton_argmax(products, None)):
        with pytest.raises(KernelError, match="row 1"):
            call()


def test_a_row_of_only_masked_columns_is_named() -> None:
    products = torch.zeros(3, 1200)
    products[2] = -math.inf
    for call in (lambda: triton_best(products, None, 2), lambda: triton_argmax(products, None)):
        with pytest.raises(KernelError, match="row 2"):
            call()


def test_no_rows_give_an_empty_result() -> None:
    assert [tuple(part.shape) for part in triton_best(torch.empty(0, 50), None, 2)] == [(0, 2), (0, 2), (0,)]


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


def row(beam: int, ratio: float, share: float = 0.8, *, beyond: bool = True, error: float = 0.0) -> Row:
    return Row(85_000, 8, beam, "float32", 10.0, 10.0 * ratio, ratio, share, beyond, error)


@pytest.mark.parametrize(
    ("given", "missed"),
    [
        (row(1, 2.1), ()),
        (row(1, 1.9), ("more gained than at beam 5",)),
        (row(5, 1.4), ("more than 1.5 times as fast",)),
        (row(1, 2.1, 0.6), ("at least 0.7 of copy bandwidth",)),
        (row(1, 2.1, 0.6, beyond=False), ()),
        (row(1, 2.1, error=1e-3), ("error within its bound",)),
    ],
)
def test_the_benchmark_judges_each_row(given: Row, missed: tuple[str, ...]) -> None:
    """Of bandwidth only where the products outgrow the cache; the gain at beam 1 beside that of the same batch at beam 5."""
    verdict = judged([given, row(5, 2.0)])[0]
    assert (verdict.missed, verdict.reached) == (missed, not missed)


def test_the_benchmark_runs_and_reports_reached_targets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_cuda, "LEAST_S", 0.0)
    kernels_cuda.main(["--device", "cpu", "--vocab", "50", "--batch", "1", "--dtype", "float32", "--rounds", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [result["beam"] for result in rows] == [1, 5]
    assert all(result["error"] <= kernels_cuda.ERROR_BOUND and result["reached"] == (not result["missed"]) for result in rows)
