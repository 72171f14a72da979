"""The bench: timed calls are correct, ratios are medians of rounds, and every kernel keeps its entry in the registry."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from simnmt.base.errors import InputError
from simnmt.base.packages import MissingPackage
from simnmt.cli import app as command_line
from simnmt.cli.kernels import app
from simnmt.kernels import bench as benching
from simnmt.kernels import bench_cases, sharp_cases
from simnmt.kernels.arrays import HUGE_PAGE
from simnmt.kernels.bench import KERNELS, UnknownKernel, UnmeasurableKernel, bench, kernel
from simnmt.kernels.bench_cases import argmax_cases, best_cases, best_error, gathered_cases, in_place, unpack_cases
from simnmt.kernels.errors import need, need_torch
from simnmt.kernels.measurement import (
    Case,
    Comparison,
    Kernel,
    Memory,
    Roofline,
    Times,
    Work,
    interleaved,
    last_cache_bytes,
    library_threads,
    measure_roofline,
    nearer_cache_bytes,
    target_at,
)
from simnmt.kernels.native_library import NONE, level_name
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.sharp.decoder import SharpDecoder
from simnmt.kernels.sharp_cases import (
    BASELINE,
    LAST,
    LIBRARY_VARIANTS,
    RUNG_TARGET,
    TABLE,
    Ladder,
    ProductVariants,
    activation_cases,
    float32_cases,
    int16_cases,
    ladder_cases,
    other_words,
)

ROOFLINE = Roofline(1, 1000, ((100, 50.0), (1000, 20.0)), 10.0, 8.0, 32.0)
LADDER = Ladder(width=48, embedding=24, vocab=60, beam=3, src_len=5, tgt_len=6, candidates=20)


# Interleaved timing.


def test_runs_alternate_and_the_first_one_changes() -> None:
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in "abc"}
    times = interleaved(runs, 3, least_s=0.0)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert times.rounds == 3


def test_the_restoring_before_a_run_is_not_timed() -> None:
    now = [0.0]

    def passing(seconds: float) -> None:
        now[0] += seconds

    runs = {"a": partial(passing, 2.0), "b": partial(passing, 3.0)}
    for warm in (False, True):
        now[0] = 0.0
        before = {"a": partial(passing, 100.0)}
        times = interleaved(runs, 2, before, warm=warm, least_s=0.0, clock=lambda: now[0])
        assert times.of == {"a": (2.0, 2.0), "b": (3.0, 3.0)}
        assert now[0] == (2.0 + 3.0 + 100.0) * 3 * (2 if warm else 1), "of each, one round more"


def test_a_warm_run_follows_its_own_untimed_run_and_its_input_is_restored_each_time() -> None:
    """Otherwise a hot run follows others that used 20 MB: a cache of 32 MB keeps more of smaller weights."""
    order: list[str] = []
    runs, before = {name: partial(order.append, name) for name in "ab"}, {"a": partial(order.append, "-")}
    interleaved(runs, 1, before, warm=True, least_s=0.0)
    assert "".join(order) == "-a-abb" * 2


def test_short_runs_get_more_rounds() -> None:
    now = [0.0]

    def passing() -> None:
        now[0] += 0.25

    assert interleaved({"a": passing}, 2, least_s=1.0, clock=lambda: now[0]).rounds == 4
    assert interleaved({"a": passing}, 2, least_s=1e9, clock=lambda: now[0]).rounds == 40


def test_a_slow_moment_of_the_box_changes_no_ratio() -> None:
    """The third round met a box of half the speed; the ratio of the medians would be 3."""
    times = Times({"ours": (1.0, 1.0, 2.0), "theirs": (2.0, 3.0, 6.0)})
    assert times.ratio("theirs", "ours") == 3.0
    assert Times({"ours": (1.0, 10.0, 1.0), "theirs": (3.0, 30.0, 30.0)}).ratio("theirs", "ours") == 3.0


# Rates of the box.


def test_the_least_time_is_the_longer_of_moving_and_multiplying() -> None:
    assert ROOFLINE.least_s(100, 8, cold=False) == 2.0
    assert ROOFLINE.least_s(100, 80, cold=False) == 10.0
    assert ROOFLINE.least_s(100, 320, cold=False, number="int16") == 10.0
    assert ROOFLINE.least_s(101, 0, cold=False) == pytest.approx(101 / 20.0)
    assert ROOFLINE.least_s(100, 0, cold=True) == 10.0
    assert ROOFLINE.least_s(2000, 0, cold=False) == 200.0


def test_a_box_has_copy_and_product_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simnmt.kernels.measurement.last_cache_bytes", lambda: 2**20)
    roofline = measure_roofline(1, lambda rounds: (1.0, 3e9), rounds=1)
    assert [size for size, _ in roofline.copies] == [2**18, 2**20, 2**20]
    assert min(roofline.copy_bytes_per_s, *(rate for _, rate in roofline.copies)) > 1e7
    assert roofline.float32_per_s > 1e7  # the library's: ours was made up slower
    assert roofline.int16_per_s == 3e9
    json.dumps(asdict(roofline), allow_nan=False)


def test_the_largest_cache_is_the_last(tmp_path: Path) -> None:
    assert (last_cache_bytes(tmp_path), nearer_cache_bytes(tmp_path)) == (32 * 2**20, 4 * 2**20)
    for number, size in enumerate(["32K", "1024K", "96M", "odd"]):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert (last_cache_bytes(tmp_path), nearer_cache_bytes(tmp_path)) == (96 * 2**20, 2**20)


def test_library_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with library_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


# The cases.


SMALL_CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "fused_best": lambda: best_cases(1, vocab=203),
    "fused_argmax": lambda: argmax_cases(1, vocab=203),
    "int16_product": lambda: int16_cases(1, size=48),
    "float32_product": lambda: float32_cases(1, size=48),
    "gathered_product": lambda: gathered_cases(1, vocab=3000, width=24, clusters=90),
    "tanh": lambda: activation_cases("tanh", 1, count=1000),
    "sigmoid": lambda: activation_cases("sigmoid", 1, count=1000),
    "sharp_decoder": lambda: ladder_cases(1, LADDER),
    "unpack": lambda: unpack_cases(1, weights=480),
}


def test_the_small_cases_cover_every_kernel_of_the_processor() -> None:
    assert set(SMALL_CASES) == {kernel.name for kernel in KERNELS if kernel.device == "cpu"}


@pytest.mark.parametrize("name", SMALL_CASES)
def test_a_kernel_keeps_its_bound_in_every_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sharp_cases, "last_cache_bytes", lambda: 2**15)
    baselines = set()
    for case in SMALL_CASES[name]():
        for run_name, run in case.runs.items():
            if run_name in case.before:
                case.before[run_name]()
            run()
        assert case.comparisons
        for comparison in case.comparisons:
            assert comparison.ours in case.runs
            assert set(comparison.baseline_runs or [comparison.baseline]) <= set(case.runs)
            assert comparison.work.bytes_moved > 0
            assert 0.0 <= comparison.error <= comparison.error_bound, case.text
            baselines.add(comparison.baseline)
    assert set(kernel(name).baselines) <= baselines or level_name() == NONE


@pytest.mark.parametrize("count", [1, 5])
def test_the_baseline_in_place_takes_softmax_and_best(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    products, bias = torch.randn(4, 300, generator=generator), torch.randn(300, generator=generator)
    wanted = torch.log_softmax(products.double() + bias, 1).topk(count, 1)
    values, columns = in_place(products, bias, count)()
    torch.testing.assert_close(values.reshape(4, count).double(), wanted.values, rtol=0, atol=1e-5)
    assert torch.equal(columns.reshape(4, count), wanted.indices)


def plain(result: Any) -> NDArray[np.float32]:
    return np.copy(result.numpy() if isinstance(result, torch.Tensor) else result)


@pytest.mark.parametrize("cold", [False, True])
def test_all_variants_return_the_same_product(monkeypatch: pytest.MonkeyPatch, cold: bool) -> None:
    monkeypatch.setattr(sharp_cases, "last_cache_bytes", lambda: 2**15)
    case = next(case for case in int16_cases(1, size=40) if (case.memory == "cold") is cold and case.text.startswith("5 rows"))
    results = {name: plain(run()) for name, run in case.runs.items()}
    assert set(results) >= {"int16", "packed float32"}
    for name, result in results.items():
        tolerance = case.comparisons[0].error_bound if name == "int16" else 1e-5
        np.testing.assert_allclose(result, results["packed float32"], rtol=0, atol=tolerance)


@pytest.mark.skipif(
    level_name() in (NONE, "portable"), reason="this processor or build has no kernels wider than the portable ones"
)
@pytest.mark.parametrize("cases", [best_cases, argmax_cases])
def test_the_portable_level_is_measured_at_every_size(
    monkeypatch: pytest.MonkeyPatch, cases: Callable[..., Iterator[Case]]
) -> None:
    taken: list[str | None] = []
    for name in ("fused_best", "fused_argmax"):
        kernel = getattr(bench_cases, name)
        monkeypatch.setattr(bench_cases, name, lambda *a, f=kernel, level=None, **k: (taken.append(level), f(*a, **k))[1])
    known = list(cases(1, vocab=203))
    sizes = {
        level: {case.text for case in known if case.level == level and case.comparisons[0].target}
        for level in (level_name(), "portable")
    }
    assert len(sizes["portable"]) == {best_cases: 7, argmax_cases: 4}[cases]
    assert sizes["portable"] <= sizes[level_name()]
    assert {"portable", level_name()} <= set(taken) <= {"portable", level_name(), None}


def test_data_larger_than_the_cache_are_not_called_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 rows of 85,000 products are 44 MB, here a hundredth of that; only rows that fit are warmed before they are timed."""
    monkeypatch.setattr(bench_cases, "last_cache_bytes", lambda: 32 * 2**20 // 100)
    memory = {case.text: case.memory for case in [*best_cases(1, vocab=850), *argmax_cases(1, vocab=850)]}
    rows = {int(text.split()[0]): memory[text] for text in memory if text.endswith("float32")}
    assert rows == {1: "hot", 5: "hot", 8: "hot", 32: "hot", 40: "hot", 128: "beyond", 160: "beyond", 512: "beyond"}


def test_the_error_of_the_best_sees_a_wrong_column_in_any_row() -> None:
    products, bias = torch.randn(20, 50, generator=torch.Generator().manual_seed(1)), torch.zeros(50)
    best = fused_best(products, bias, 3)
    assert best_error(best, products, bias) < 1e-5
    for row in (0, 19):
        wrong = fused_best(products, bias, 3)
        wrong.columns[row, 2] = int(products[row].argmin())
        assert best_error(wrong, products, bias) > 0.1
        wrong.columns[row, 2] = wrong.columns[row, 1]
        assert best_error(wrong, products, bias) >= 1.0, "returned twice"


@pytest.mark.skipif(level_name() == NONE, reason="nothing was compiled: there was no C compiler")
def test_a_random_models_beam_branches_as_the_papers_does() -> None:
    """SHARP-09: 70 % of states differ at beam 6; with a collapsing beam, merging would save more than in the paper."""
    ladder = Ladder()
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()[BASELINE]
    translation = SharpDecoder(weights, settings, max_len=28, most_src_len=25).decode(states, candidates, 28)
    assert translation.distinct_share == pytest.approx(0.70, abs=0.05)
    assert len(set(translation.tokens)) > 20


def test_the_weights_of_all_variants_are_on_huge_pages() -> None:
    """A pass over small pages takes longer, which would favour our kernels: their weights are on huge pages."""
    variants = ProductVariants.of(1024, cold=False)
    for name in LIBRARY_VARIANTS:
        assert variants.copies[name]
        for copy in variants.copies[name]:
            weights = np.asarray(copy)
            np.testing.assert_array_equal(weights, variants.weight.T)
            assert weights.ctypes.data % HUGE_PAGE == 0


def test_the_rungs_of_the_ladder_differ_in_one_technique_each() -> None:
    rungs = LADDER.rungs()
    plain, *others = (settings.model_dump() for name, settings in rungs.items() if name != TABLE)
    changed = [{key for key in plain if one[key] != two[key]} for one, two in zip([plain, *others], others, strict=False)]
    assert changed == [{"gemm"}, {"embeddings"}, {"attention"}, {"activations"}, {"merge"}]
    table = {key: value for key, value in rungs[TABLE].model_dump().items() if value != rungs["+ attention"].model_dump()[key]}
    assert table == {"activations": "table"}


@pytest.mark.skipif(level_name() == NONE, reason="nothing was compiled: there was no C compiler")
def test_every_rung_is_compared_with_the_rung_before_and_reports_its_distinct_states() -> None:
    (case,) = ladder_cases(1, LADDER)
    steps = {comparison.ours: comparison.target for comparison in case.comparisons if comparison.baseline == "the rung before"}
    assert steps == dict.fromkeys(
        [name for name in LADDER.rungs() if name != BASELINE], target_at(level_name(), avx512=RUNG_TARGET, avx2=RUNG_TARGET)
    )
    assert all("% of states distinct" in comparison.remark for comparison in case.comparisons)


def test_a_level_that_nobody_measured_has_no_target() -> None:
    targets = [target_at(level, avx512=5.0, avx2=4.0) for level in ("avx512", "avx2", "portable", NONE)]
    assert targets == [5.0, 4.0, None, None]


def test_an_identity_that_changes_the_translation_is_an_error() -> None:
    @dataclass
    class Words:
        tokens: tuple[int, ...]

    translations: Any = {name: Words((1, 2, 3)) for name in LADDER.rungs()}
    assert other_words(translations) == []
    translations[LAST] = Words((1, 2, 4))
    assert other_words(translations) == [LAST]
    translations["+ int16"] = Words((1, 2, 5))  # rounding may change words
    assert other_words(translations) == ["+ embeddings", LAST]


def test_the_ladder_saves_the_work_that_the_paper_saves() -> None:
    """SHARP-09: 4.2 of 6 states differ; the identities shrink what is multiplied, int16 halves what is read."""
    ladder, rungs = Ladder(), Ladder().rungs()
    work = {name: ladder.work(settings, 0.7) for name, settings in rungs.items()}
    assert work["+ int16"].multiply_adds == work[BASELINE].multiply_adds
    assert work["+ int16"].bytes_moved < 0.51 * work[BASELINE].bytes_moved
    order = [work[name].multiply_adds for name in ("+ int16", "+ embeddings", "+ attention", LAST)]
    assert order == sorted(order, reverse=True)
    assert work[LAST].multiply_adds == pytest.approx(6 * (0.7 * 4 * 1024**2 + 500 * 1024 + 25 * 4 * 1024))


# Results.


def fake(target: float, error: float = 0.0, memory: Memory = "cold") -> Kernel:
    comparison = Comparison("ours", "theirs", Work(1000), ("slow run", "fast run"), target, error=error, error_bound=0.5)
    runs = {name: lambda: None for name in ("ours", "slow run", "fast run")}
    case = Case("a case", memory, runs, (comparison,))
    return Kernel("fake", "m", "FNI-00", "r", "b", "c", ("theirs", "-"), lambda threads: iter([case]))


@pytest.mark.parametrize(("target", "error", "reached"), [(3.0, 0.5, True), (3.1, 0.5, False), (3.0, 0.6, False)])
def test_a_result_has_its_target_and_whether_it_was_reached(
    monkeypatch: pytest.MonkeyPatch, target: float, error: float, reached: bool
) -> None:
    """A kernel that is beyond its error bound reaches nothing, however fast it is."""
    times = Times({"ours": (2.0, 2.0), "slow run": (9.0, 9.0), "fast run": (6.0, 6.0)})
    monkeypatch.setattr(benching, "KERNELS", (fake(target, error),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: Roofline(1, 10, ((10, 1.0),), 1000.0, 1.0, None))
    monkeypatch.setattr(benching, "interleaved", lambda *arguments, **others: times)
    [result] = bench(rounds=2).as_json()["results"]
    assert result == {
        "kernel": "fake",
        "case": "a case",
        "baseline": "theirs",
        "way": "fast run",
        "ratio": 3.0,
        "target": target,
        "reached": reached,
        "roofline_share": 0.5,
        "level": level_name(),
        "median_us": 2e6,
        "baseline_us": 6e6,
        "memory": "cold",
        "rounds": 2,
        "error": error,
        "error_bound": 0.5,
        "remark": "",
    }


def test_the_listing_for_json_has_no_field_that_only_the_benchmark_uses() -> None:
    for described in benching.listing().as_json()["kernels"]:
        assert described.keys() == {"name", "meaning", "source", "reference", "bound", "cost", "baselines", "device"}


@pytest.mark.parametrize(("memory", "warm"), [("hot", True), ("cold", True), ("beyond", False)])
def test_hot_and_cold_cases_run_untimed_before_they_are_timed(
    monkeypatch: pytest.MonkeyPatch, memory: Memory, warm: bool
) -> None:
    asked: list[bool] = []

    def spied(runs: Any, rounds: int, before: Any, *, warm: bool) -> Times:
        asked.append(warm)
        return Times(dict.fromkeys(runs, (1.0,)))

    monkeypatch.setattr(benching, "KERNELS", (fake(1.0, memory=memory),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: ROOFLINE)
    monkeypatch.setattr(benching, "interleaved", spied)
    [result] = bench(rounds=1).results
    assert (asked, result.memory) == ([warm], memory)


def test_targets_hold_for_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "KERNELS", (fake(1e9),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: replace(ROOFLINE, threads=2))
    [result] = bench(rounds=1).results
    assert (result.target, result.reached) == (None, None)


def test_a_misspelt_kernel_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownKernel, match=r"^fused_bst: no such kernel \(did you mean fused_best\?\)$"):
        kernel("fused_bst")
    with pytest.raises(UnknownKernel, match="known: fused_best, fused_argmax"):
        bench("qqq")
    with pytest.raises(InputError, match="one or more"):
        bench("tanh", rounds=0)
    with pytest.raises(InputError, match="no more threads than CPUs"):
        bench("tanh", threads=100_000)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_kernel_for_cuda_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: pytest.fail("the box was measured first"))
    monkeypatch.setattr(sys, "argv", ["simnmt", "kernels", "bench", "--part", "triton_best", *options])
    status = command_line._status()  # main would leave this process without its signals
    printed = capsys.readouterr()
    assert (status, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert "triton_best needs a CUDA device and Triton: " in printed.err
    assert "benchmarks.kernels_cuda" in printed.err


def test_a_kernel_that_needs_compiled_kernels_is_refused_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "KERNELS", (replace(fake(1.0), compiled_only=True),))
    monkeypatch.setattr(benching, "level_name", lambda: NONE)
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: pytest.fail("the box was measured first"))
    assert kernel("fake").compiled_only and [each.name for each in KERNELS if each.compiled_only] == ["sharp_decoder"]
    with pytest.raises(
        UnmeasurableKernel, match=r"^fake needs compiled kernels: none are in use \(`simnmt kernels` says why\)$"
    ):
        bench("fake")


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingPackage, match=r"^this needs the package no_such_package \(do without\)$"):
        need("no_such_package", "do without")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match="torch"):
        need_torch()


def output(*arguments: str) -> str:
    run = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert run.exit_code == 0
    return run.stdout


def test_the_list_names_level_and_contract() -> None:
    text = output()
    assert text.startswith("level: ")
    for listed in KERNELS:
        assert f"\n{listed.name}" in text
        assert listed.bound in text
    document: dict[str, Any] = json.loads(output("--json"))
    assert document["level"] == level_name()
    assert [kernel["name"] for kernel in document["kernels"]] == [kernel.name for kernel in KERNELS]
    assert all(len(kernel["baselines"]) == 2 for kernel in document["kernels"])


def test_the_bench_prints_json_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "KERNELS", (fake(1e9),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: ROOFLINE)
    document = json.loads(output("bench", "--json", "--rounds", "1", "--part", "fake"))
    assert {"kernel", "case", "baseline", "ratio", "target", "roofline_share"} <= set(document["results"][0])
    assert document["roofline"]["copy_bytes_per_s"] == 10.0
    text = output("bench", "--rounds", "1")
    assert ">= 1e+09 *" in text
    assert "0 of 1 targets reached" in text
