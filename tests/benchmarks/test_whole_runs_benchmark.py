"""The benchmark of whole runs does what it says, on tiny runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import whole_runs
from benchmarks.whole_runs import BARS, SCENARIOS, measure, run_cpu_s


def test_a_figure_is_the_median_ratio_of_interleaved_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    compiled_s = iter([1.0, 3.0, 2.0] * len(BARS))

    def cost(arguments: list[str], engine: str) -> float:
        asked.append((" ".join(arguments), engine))
        return 10.0 if engine == "simpy" else next(compiled_s)

    monkeypatch.setattr(whole_runs, "run_cpu_s", cost)
    figures = measure(rounds=3, small_rounds=3)
    assert {name: figures[name] for name in BARS} == dict.fromkeys(BARS, 0.2)
    assert figures["load_sweep_simpy_cpu_s"] == 10.0 and figures["load_sweep_compiled_cpu_s"] == 2.0
    assert [engine for _, engine in asked[:6]] == ["simpy", "compiled", "compiled", "simpy", "simpy", "compiled"]
    assert [run for run, _ in asked[::6]] == [*SCENARIOS.values(), "@quickstart --requests 1000"]


@pytest.mark.deep
def test_it_prints_every_bar_of_whole_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    costs: list[float] = []

    def one_process(arguments: list[str], engine: str) -> float:
        costs.append(run_cpu_s([*arguments, "--replications", "1"], engine) if not costs else costs[0])
        return costs[-1]

    monkeypatch.setattr(whole_runs, "run_cpu_s", one_process)
    monkeypatch.setattr(
        sys, "argv", ["benchmarks.whole_runs", "--json", "--rounds", "1", "--small-rounds", "1", "--requests", "50"]
    )
    whole_runs.main()
    figures = json.loads(capsys.readouterr().out)
    assert {name: figures[name] for name in BARS} == dict.fromkeys(BARS, 1.0)
    assert 0.1 < costs[0] < 60.0


def test_a_run_that_fails_is_no_figure() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_cpu_s(["@no-such-scenario"], "compiled")
