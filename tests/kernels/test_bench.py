"""The cases of the kernels: their calls are correct within their bounds, and every kernel has its entry in the registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from simnmt.cli.kernels import app
from simnmt.kernels import sharp_cases
from simnmt.kernels.bench_cases import argmax_cases, best_cases, gathered_cases, in_place, unpack_cases
from simnmt.kernels.cases import Case, target_at
from simnmt.kernels.native_library import NONE, level_name
from simnmt.kernels.registry import KERNELS, kernel
from simnmt.kernels.sharp.decoder import SharpDecoder
from simnmt.kernels.sharp_cases import (
    BASELINE,
    LAST,
    RUNG_TARGET,
    TABLE,
    Ladder,
    activation_cases,
    float32_cases,
    int16_cases,
    ladder_cases,
    other_words,
)

LADDER = Ladder(width=48, embedding=24, vocab=60, beam=3, src_len=5, tgt_len=6, candidates=20)


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


@pytest.mark.skipif(level_name() == NONE, reason="nothing was compiled: there was no C compiler")
def test_a_random_models_beam_branches_as_the_papers_does() -> None:
    """SHARP-09: 70 % of states differ at beam 6; with a collapsing beam, merging would save more than in the paper."""
    ladder = Ladder()
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()[BASELINE]
    translation = SharpDecoder(weights, settings, max_len=28, most_src_len=25).decode(states, candidates, 28)
    assert translation.distinct_share == pytest.approx(0.70, abs=0.05)
    assert len(set(translation.tokens)) > 20


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
