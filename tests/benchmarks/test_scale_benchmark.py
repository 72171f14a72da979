"""The benchmark of long runs: it sees the memory and the time of all processes, and makes of them the ratios that it says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale
from benchmarks.process_costs import Cost

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system has no /proc/self/smaps_rollup"
)

HOLDS = "held = b'x' * 100_000_000; import time; time.sleep({seconds})"


def test_the_memory_of_all_processes_counts() -> None:
    """A process of 100 MB that waits for another of 100 MB."""
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDS.format(seconds=0.5)!r}])"
    one = scale.cost([sys.executable, "-c", HOLDS.format(seconds=0.5)], every_s=0.02)
    two = scale.cost([sys.executable, "-c", HOLDS.format(seconds=0.0) + "; " + inner], every_s=0.02)
    assert 95 < one.peak_mib < 150
    assert 190 < two.peak_mib < 300
    assert one.wall_s > 0.5 > one.cpu_s > 0.0


def test_a_short_peak_is_seen_too() -> None:
    """Between two looks; the system keeps each process's."""
    code = "held = b'x' * 100_000_000; del held; import time; time.sleep(0.6)"
    cost_of_run = scale.cost([sys.executable, "-c", code], every_s=0.4)
    assert 95 < cost_of_run.peak_mib < 150


def test_memory_of_whoever_looks_does_not_count() -> None:
    held = b"x" * 300_000_000
    assert scale.cost([sys.executable, "-c", HOLDS.format(seconds=0.3)], every_s=0.1).peak_mib < 150
    assert held


def test_the_time_of_children_counts() -> None:
    burn = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    cost_of_run = scale.cost(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"]
    )
    assert 0.2 < cost_of_run.cpu_s < 2.0


def test_a_run_that_fails_is_no_figure() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        scale.cost([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.deep
def test_a_whole_run_costs_something_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    cost_of_run = scale.run_cost("open_loop", requests=100)
    assert cost_of_run.peak_mib > 30
    assert cost_of_run.cpu_s > 0.1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Worlds cost 2 s, whole runs a second and what their requests cost: 1 s for 100 of the first round, 3 s of the second."""
    asked: list[tuple[Any, ...]] = []

    def run_cost(discipline: str, requests: int, replications: int, jobs: int) -> Cost:
        dear = 3.0 if asked.count((discipline, requests, replications, jobs)) else 1.0
        asked.append((discipline, requests, replications, jobs))
        return Cost(wall_s=10.0 * dear, cpu_s=1.0 + dear * requests / 100, peak_mib=requests * dear)

    monkeypatch.setattr(scale, "cpu_s", lambda work: (work(), 2.0)[1])
    monkeypatch.setattr(scale, "run_cost", run_cost)
    return asked


def test_ratios_are_those_of_the_least_times_per_request(made_up: list[tuple[Any, ...]]) -> None:
    figures = scale.measure(rounds=2, sizes=(100, 400), replications=3, jobs=2)
    assert made_up == [(discipline, size, 3, 2) for discipline in scale.ARRIVALS for _ in range(2) for size in (100, 400)]
    assert figures["world_10m_over_1m"] == 1 / 4
    for discipline in scale.ARRIVALS:
        assert figures[f"{discipline}_10m_over_1m"] == pytest.approx((5.0 / 400) / (2.0 / 100))
        assert figures[f"{discipline}_peak_mib"] == 1200.0
        assert figures[f"{discipline}_cpu_s"] == 5.0
        assert figures[f"{discipline}_wall_s"] == 10.0
        assert figures[f"{discipline}_us_per_request_and_policy"] == pytest.approx(5e6 / (400 * 3 * 5))


def test_every_bar_is_about_a_figure_and_figures_survive_json(
    made_up: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = scale.measure(rounds=1, sizes=(100, 200))
    assert set(scale.BARS) <= set(figures)
    assert all(math.isfinite(value) for value in figures.values() if isinstance(value, float))
    monkeypatch.setattr(sys, "argv", ["benchmarks.scale", "--json", "--sizes", "100", "200"])
    scale.main()
    assert set(json.loads(capsys.readouterr().out)) == set(figures)
    monkeypatch.setattr(sys, "argv", ["benchmarks.scale", "--sizes", "100", "200"])
    scale.main()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == list(figures)
    assert lines["open_loop_peak_mib"].endswith("asked: <= 3815")
