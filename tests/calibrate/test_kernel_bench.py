"""`kernels bench`: targets, rates of the box, and what it prints."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from simnmt.base.errors import InputError
from simnmt.calibrate import kernel_bench as benching
from simnmt.calibrate.kernel_bench import Roofline, bench, measure_roofline
from simnmt.cli.kernels import app
from simnmt.kernels import registry
from simnmt.kernels.cases import Case, Comparison, Kernel, Memory
from simnmt.kernels.registry import UnknownKernel, kernel

ROOFLINE = Roofline(1000, 20.0, 10.0)


def test_a_box_has_copy_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "last_cache_bytes", lambda: 2**20)
    roofline = measure_roofline(1, rounds=1)
    assert min(roofline.copy_bytes_per_s, roofline.cached_bytes_per_s) > 1e7
    json.dumps(asdict(roofline), allow_nan=False)


def fake(target: float, error: float = 0.0, memory: Memory = "beyond") -> Kernel:
    comparison = Comparison("ours", "theirs", 1000, ("slow run", "fast run"), target, error=error, error_bound=0.5)
    took_s = {"ours": 2.0, "slow run": 9.0, "fast run": 6.0}
    runs = {name: lambda second=second: {"seconds": second} for name, second in took_s.items()}
    case = Case("a case", memory, runs, (comparison,))
    return Kernel("fake", "m", "FNI-00", "b", ("theirs", "-"), lambda threads: iter([case]))


@pytest.mark.parametrize(("target", "error", "reached"), [(3.0, 0.5, True), (3.1, 0.5, False), (3.0, 0.6, False)])
def test_a_result_has_its_target_and_whether_it_was_reached(
    monkeypatch: pytest.MonkeyPatch, target: float, error: float, reached: bool
) -> None:
    """A kernel that is beyond its error bound reaches nothing, however fast it is."""
    monkeypatch.setattr(registry, "KERNELS", (fake(target, error),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: Roofline(10, 1.0, 1000.0))
    [result] = bench(rounds=2).results
    assert (result.ratio, result.target, result.reached) == (3.0, target, reached)
    assert (result.baseline_run, result.median_us, result.baseline_us) == ("fast run", 2e6, 6e6)
    assert result.roofline_share == 0.5


def test_targets_hold_for_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KERNELS", (fake(1e9),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: ROOFLINE)
    monkeypatch.setattr(benching.os, "cpu_count", lambda: 2)
    [result] = bench(rounds=1, threads=2).results
    assert (result.target, result.reached) == (None, None)


def test_a_misspelt_kernel_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownKernel, match=r"^fused_bst: no such kernel \(did you mean fused_best\?\)$"):
        kernel("fused_bst")
    with pytest.raises(UnknownKernel, match="known: fused_best"):
        bench("qqq")
    with pytest.raises(InputError, match="no more threads than CPUs"):
        bench("unpack", threads=100_000)


def output(*arguments: str) -> str:
    run = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert run.exit_code == 0
    return run.stdout


def test_the_bench_prints_json_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KERNELS", (fake(1e9),))
    monkeypatch.setattr(benching, "measure_roofline", lambda *arguments: ROOFLINE)
    document = json.loads(output("bench", "--json", "--rounds", "1", "--part", "fake"))
    assert {"kernel", "case", "baseline", "ratio", "target", "roofline_share"} <= set(document["results"][0])
    assert document["roofline"]["copy_bytes_per_s"] == 10.0
    text = output("bench", "--rounds", "1")
    assert ">= 1e+09 *" in text
    assert "0 of 1 targets reached" in text
