"""The fused output layer against the papers' examples, a float64 oracle, and the torch it replaces."""

from __future__ import annotations

import itertools
import math
import os
import signal
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simnmt.kernels import native_library, output_layer
from simnmt.kernels.native_library import KernelError, native
from simnmt.kernels.output_layer import fused_argmax, fused_best
from simnmt.kernels.output_reference import Best, Partial, combine, reference_best
from tests.kernels.implementations import each_implementation

pytestmark = each_implementation

INF = math.inf


def oracle(products: Tensor, bias: Tensor | None, count: int) -> Best:
    """In float64, by sorting: of equal values the lowest column first."""
    values = products.float() if bias is None else products.float() + bias
    ordered = values.sort(dim=1, descending=True, stable=True)
    return Best(ordered.indices[:, :count], ordered.values[:, :count].double(), relative(values.double()).logsumexp(1))


def relative(values: Tensor) -> Tensor:
    """The values of each row less the largest."""
    return values - values.amax(1, keepdim=True)


def assert_best(best: Best, products: Tensor, bias: Tensor | None) -> None:
    """Columns and values to the bit, the sum's logarithm to float32."""
    wanted = oracle(products, bias, best.columns.shape[1])
    assert torch.equal(best.columns, wanted.columns)
    assert torch.equal(best.values, wanted.values)
    scale = wanted.log_sum.abs().clamp(min=1.0)
    assert ((best.log_sum.double() - wanted.log_sum).abs() <= 1e-6 * scale).all()
    probability = best.log_probs[:, 0].exp()
    assert (probability <= 1.0).all()
    assert (probability >= (1.0 - 1e-6) / products.shape[1]).all()


def absolute_errors(best: Best, values: Tensor) -> Tensor:
    """How far the log-probabilities of the best columns are off those in float64."""
    exact = values.double().log_softmax(1).gather(1, best.columns)
    return (best.log_probs.double() - exact).abs()


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4, -1e4])
def test_log_probabilities_hold_at_large_logits(offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subtracting a rounded log-sum, they were off by 5e-4 at 1e4."""
    products = drawn(16, 5_000)[0] + offset
    bias = torch.zeros(5_000)
    assert absolute_errors(fused_best(products, bias, 8), products).max() <= 1e-5
    assert absolute_errors(fused_best(products, None, 1), products).max() <= 1e-5
    assert absolute_errors(reference_best(products.clone(), None, 8), products).max() <= 1e-5
    monkeypatch.setattr(output_layer, "LEAST_OF_A_THREAD", 1)
    divided = fused_best(products[:1], None, 8, threads=3)
    assert absolute_errors(divided, products[:1]).max() <= 1e-5


def drawn(rows: int, columns: int, *, spread: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=made) * spread, torch.randn(columns, generator=made)


def part_of(products: Tensor, bias: Tensor) -> Partial:
    best = fused_best(products, bias, 1)
    return Partial(best.values[:, 0], best.log_total.exp(), best.columns[:, 0])


def test_worked_example_of_fni_03() -> None:
    products, bias = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0.5, -0.5, 1.0])
    totals = [float(part_of(products[:, :seen].contiguous(), bias[:seen]).total) for seen in (1, 2, 3)]
    assert totals == pytest.approx([1.0, 1.3678794, 1.8296608], abs=5e-7)
    best = fused_best(products, bias, 3)
    assert best.columns.tolist() == [[2, 1, 0]]
    assert float(best.log_sum) == pytest.approx(3.6041306, abs=5e-7)
    assert best.log_probs.exp()[0].tolist() == pytest.approx([0.5465494, 0.3314990, 0.1219517], abs=2e-7)


def test_worked_example_of_fni_04() -> None:
    a = Partial(torch.tensor([2.5]), torch.tensor([1.3678794]), torch.tensor([1]))
    b = Partial(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([2]))
    nothing = Partial(torch.tensor([-INF]), torch.tensor([0.0]), torch.tensor([0]))
    for whole in (combine(a, b), combine(b, a), combine(nothing, combine(a, b)), combine(combine(b, a), nothing)):
        assert float(whole.maximum) == 3.0
        assert float(whole.total) == pytest.approx(1.8296608, abs=2e-7)
        assert int(whole.column) == 2
    assert combine(nothing, nothing) == nothing


@given(st.data())
def test_any_split_and_order_of_a_row_combine_to_the_same_result(data: st.DataObject) -> None:
    """FNI-04: to 1e-6; of equal maxima the lowest column, whichever part came first."""
    width = data.draw(st.integers(2, 300))
    products, bias = drawn(3, width, seed=width)
    products, bias = products.round(), bias.round()
    inner = data.draw(st.lists(st.integers(1, width - 1), unique=True, max_size=6))
    bounds = [0, *sorted(inner), width]
    parts = []
    for begin, end in itertools.pairwise(bounds):
        part = part_of(products[:, begin:end].contiguous(), bias[begin:end].contiguous())
        parts.append(part._replace(column=part.column + begin))
    whole = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
    for part in data.draw(st.permutations(parts)):
        whole = combine(whole, part)
    wanted = oracle(products, bias, 1)
    assert torch.equal(whole.column, wanted.columns[:, 0])
    assert torch.allclose(whole.maximum + whole.total.log().double(), wanted.log_sum, rtol=1e-6)


@pytest.mark.parametrize("vocab", [7, 1000, 85000])
@pytest.mark.parametrize("beam", [1, 2, 5, 8])
def test_the_best_candidates_of_all_rows_are_the_best_of_the_beam(beam: int, vocab: int) -> None:
    """FNI-05: as the full log-softmax and a search of all beam x vocabulary candidates."""
    products, bias = drawn(beam, vocab, seed=beam)
    scores = torch.linspace(-1.0, 0.0, beam)
    best = fused_best(products, bias, min(beam, vocab))
    candidates = (scores[:, None] + best.log_probs).flatten()
    sums, order = candidates.sort(descending=True, stable=True)
    full = (scores.double()[:, None] + (products + bias).double().log_softmax(1)).flatten()
    wanted, places = full.sort(descending=True, stable=True)
    assert sums[:beam].tolist() == pytest.approx(wanted[:beam].tolist(), abs=1e-5)
    row = order[:beam] // best.columns.shape[1]
    place = row * vocab + best.columns.flatten()[order[:beam]]
    apart = (wanted[:beam] - wanted[1 : beam + 1]) > 1e-5
    assert apart.all()
    assert torch.equal(place, places[:beam])


SIZES = st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 1023, 1024, 1025, 2111, 4097]))


@given(st.data())
def test_any_size_and_any_values_agree_with_float64(data: st.DataObject) -> None:
    """Also with ties, which a few whole numbers make many of, with masked columns, and at addresses that fit no vector."""
    rows, width = data.draw(st.integers(0, 4)), data.draw(SIZES)
    count = data.draw(st.integers(1, min(width, 9)))
    shift = data.draw(st.integers(0, 3))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    values, bias = drawn(rows, width, spread=data.draw(st.sampled_from([0.01, 3.0, 100.0])), seed=width)
    if data.draw(st.booleans()):
        values, bias = values.round(), bias.round()
    if data.draw(st.booleans()):
        hidden = torch.rand(rows, width, generator=torch.Generator().manual_seed(rows)) < 0.7
        hidden[:, data.draw(st.integers(0, width - 1))] = False
        values = values.masked_fill(hidden, -INF)
    products = torch.empty(rows * width + shift, dtype=dtype)[shift:].view(rows, width)
    products.copy_(values)
    given_bias = bias if data.draw(st.booleans()) else None
    best = fused_best(products, given_bias, count)
    assert_best(best, products, given_bias)
    assert torch.equal(fused_argmax(products, given_bias), best.columns[:, 0])


@pytest.mark.parametrize("rows", [1, 3, 19])
def test_threads_change_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are divided by their columns, many by rows; ties lie on both sides of every border."""
    monkeypatch.setattr(output_layer, "LEAST_OF_A_THREAD", 1)
    products, bias = drawn(rows, 5003)
    products, bias = products.round(), bias.round()
    products[:, :4000:3] = -INF
    one = fused_best(products, bias, 5)
    for threads in (2, 3, 7):
        more = fused_best(products, bias, 5, threads=threads)
        assert torch.equal(more.columns, one.columns)
        assert torch.equal(more.values, one.values)
        assert torch.allclose(more.log_sum, one.log_sum, rtol=1e-6)
        assert torch.equal(fused_argmax(products, bias, threads=threads), one.columns[:, 0])
    products[rows - 1, 4999] = math.nan
    with pytest.raises(KernelError, match=f"row {rows - 1} has NaN at column 4999"):
        fused_best(products, bias, 5, threads=3)
    products[rows - 1] = -INF
    for search in (lambda: fused_best(products, bias, 5, threads=3), lambda: fused_argmax(products, bias, threads=3)):
        with pytest.raises(KernelError, match=f"row {rows - 1} has no finite value"):
            search()


def test_masked_columns_add_nothing() -> None:
    """FNI-07: a row's sum is that of its other columns, whatever block they lie in."""
    products, bias = drawn(2, 3000)
    masked = products.clone()
    masked[:, 1000:2900] = -INF
    kept = torch.cat([products[:, :1000], products[:, 2900:]], dim=1)
    expected = (kept + torch.cat([bias[:1000], bias[2900:]])).double().logsumexp(1)
    assert torch.allclose(fused_best(masked, bias, 1).log_sum.double(), expected, rtol=1e-6)
    single = torch.full((1, 1500), -INF)
    single[0, 1400] = -7.5
    assert fused_best(single, None, 1).log_probs.tolist() == [[0.0]]


@pytest.mark.parametrize("vocab", [3, 1500])
def test_a_row_without_a_finite_value_is_refused_by_name(vocab: int) -> None:
    products, bias = drawn(4, vocab)
    products[2] = -INF
    for search in (lambda: fused_best(products, bias, 2), lambda: fused_argmax(products, bias)):
        with pytest.raises(KernelError, match="row 2 has no finite value: every column is -inf"):
            search()


NANS = [0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7FC00101]
"""Quiet, signalling and negative ones: their low bits must not find their way into an exponent."""


@pytest.mark.parametrize("place", [0, 17, 1023, 1024, 2998, 2999])
def test_nan_and_infinity_are_refused_at_any_column(place: int) -> None:
    products, bias = drawn(3, 3000)
    for bits in NANS:
        products.view(torch.int32)[1, place] = bits if bits < 1 << 31 else bits - (1 << 32)
        assert_refused(products, bias, f"row 1 has NaN at column {place}")
    products[1, place] = INF
    assert_refused(products, bias, rf"row 1 has \+inf at column {place}")


def assert_refused(products: Tensor, bias: Tensor | None, why: str) -> None:
    with pytest.raises(KernelError, match=why):
        fused_best(products, bias, 2)
    with pytest.raises(KernelError, match=why):
        fused_argmax(products, bias)


def test_large_values_do_not_overflow() -> None:
    """FNI-07: up to 1e4 and beyond, rising by more than a float's exponent from block to block, and rising_all as much."""
    for rising in (torch.linspace(-1e4, 1e4, 5000), torch.linspace(1e4, -1e4, 5000), torch.linspace(-1.5e38, 1.5e38, 4100)):
        products = rising[None].contiguous()
        assert_best(fused_best(products, None, 3), products, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_extremes_of_halves_are_read_exactly(dtype: torch.dtype) -> None:
    """Every finite half: subnormals and the largest; the sum is taken in float32, where 65,504 halves of 0 overflow nothing."""
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    products = every[every.isfinite()][None].contiguous()
    assert_best(fused_best(products, None, 9), products, None)
    small = products[products.abs() < 1e-4][None].contiguous()
    assert_best(fused_best(small, torch.zeros(small.shape[1]), 9), small, None)
    flat = torch.zeros(1, 85_000, dtype=dtype)
    assert float(fused_best(flat, None, 1).log_sum) == pytest.approx(math.log(85_000), rel=1e-7)


def test_without_probabilities_the_same_column_is_best() -> None:
    """FNI-06."""
    products, bias = drawn(6, 4001, seed=5)
    assert torch.equal(fused_argmax(products, bias), fused_best(products, bias, 1).columns[:, 0])


def test_threads_are_those_of_torch_where_its_runtime_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of Python beside torch's waiting threads took longer than one thread; see docs/background/kernels.md."""
    if native() is None or native_library._openmp_parallel() is None:
        pytest.skip("nothing was compiled, or with an OpenMP runtime that is not known")

    def refuse(works: object) -> None:
        raise AssertionError("threads of Python were used")

    products, bias = drawn(8, 40_000)
    one = fused_best(products, bias, 5)
    with monkeypatch.context() as patched:
        patched.setattr(native_library, "at_once", refuse)
        two = fused_best(products, bias, 5, threads=2)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(two, one, strict=True))
    monkeypatch.setattr(native_library, "_openmp_parallel", lambda: None)
    without = fused_best(products, bias, 5, threads=2)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(without, one, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_waits_for_no_thread_that_was_not_forked() -> None:
    """The OpenMP runtime of a forked process still counts the threads of its parent."""
    products = torch.randn(8, 40_000)
    best = fused_best(products, None, 5, threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads, which is what is tested
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # so that a test that fails ends
            os._exit(0 if torch.equal(fused_best(products, None, 5, threads=2).columns, best.columns) else 3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@given(st.data())
def test_the_reference_agrees_with_float64(data: st.DataObject) -> None:
    """FNI-01: it is what the fused one is held to, so it has an oracle of its own; ties too."""
    rows, width = data.draw(st.integers(1, 4)), data.draw(SIZES)
    products, bias = drawn(rows, width, seed=width)
    if data.draw(st.booleans()):
        products, bias = products.round(), bias.round()
    count = data.draw(st.integers(1, min(width, 9)))
    assert_best(reference_best(products.clone(), bias, count), products, bias)


ROWS, BIAS = torch.zeros(2, 10), torch.zeros(10)


@pytest.mark.parametrize(
    ("products", "bias", "count"),
    [(ROWS.double(), BIAS, 1), (ROWS, BIAS[None], 1), (ROWS, BIAS.tolist(), 1), (ROWS.to_mkldnn(), BIAS, 1), (ROWS, BIAS, 11)],
)
def test_invalid_arguments_are_refused(products: Tensor, bias: Tensor, count: int) -> None:
    with pytest.raises(KernelError):
        fused_best(products, bias, count)
