"""What whole runs cost with the compiled world, against the world in SimPy: `python -m benchmarks.whole_runs --json`.

A run is the process `simnmt run SCENARIO` with everything that it does and starts: imports, drawing, regression, world,
summaries, request log and page. Its cost is the processor time of the process and its children. Absolute times mean little on a
shared machine: both engines run in turn, and a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.printing import print_figures

SCENARIOS = {"quickstart": "@quickstart", "load_sweep": "@load-sweep", "batched_cloud": "@batched-cloud"}
SMALL = 1_000
"""Requests of the small run, whose world costs next to nothing."""
BARS = {
    "quickstart": ("<=", 0.5),
    "load_sweep": ("<=", 0.2),
    "batched_cloud": ("<=", 0.2),
    "compiled_1k_over_simpy": ("<=", 1.02),
}
"""What the project asks of the figures: processor time with the compiled world over that with SimPy's; a figure that misses its
bar is printed as it is."""
ENGINES = ("simpy", "compiled")


def run_cpu_s(arguments: list[str], engine: str) -> float:
    """Return the seconds of processor time of `simnmt run` with these arguments, of the process and its children.

    `compiled` stands for the default, without `--engine`. Raises `subprocess.CalledProcessError` if the run fails.
    """
    command = shutil.which("simnmt", path=str(Path(sys.executable).parent)) or "simnmt"
    chosen = [] if engine == "compiled" else ["--engine", engine]
    with tempfile.TemporaryDirectory() as folder:
        call = [command, "run", *arguments, *chosen, "--out", str(Path(folder) / "run")]
        with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, call)
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int, small_rounds: int, requests: int | None = None) -> dict[str, Any]:
    """Return all figures.

    Args:
        rounds: of the scenarios, each with both engines in turn.
        small_rounds: of the small run, whose engines differ by a few per cent at most.
        requests: of every run, for a quick look; None: as the scenarios and the bars have it.
    """
    size = [] if requests is None else ["--requests", str(requests)]
    runs: Mapping[str, tuple[list[str], int]] = {
        **{name: ([scenario, *size], rounds) for name, scenario in SCENARIOS.items()},
        "compiled_1k_over_simpy": (["@quickstart", "--requests", str(requests or SMALL)], small_rounds),
    }
    figures: dict[str, Any] = {}
    cpu_s: dict[str, float] = {}
    for name, (arguments, repeats) in runs.items():
        taken = {engine: list[float]() for engine in ENGINES}
        for number in range(repeats):
            # The engine that begins changes, so that none always follows the other.
            for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
                taken[engine].append(run_cpu_s(arguments, engine))
        figures[name] = median(ours / theirs for ours, theirs in zip(taken["compiled"], taken["simpy"], strict=True))
        cpu_s |= {f"{name}_{engine}_cpu_s": median(taken[engine]) for engine in ENGINES}
    return figures | cpu_s | {"rounds": rounds, "small_rounds": small_rounds, "python": sys.version.split()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of each scenario (default 3)")
    parser.add_argument("--small-rounds", type=int, default=15, help="interleaved rounds of the small run (default 15)")
    parser.add_argument("--requests", type=int, help="of every run, for a quick look; the bars hold without it")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, arguments.small_rounds, arguments.requests)
    print_figures(figures, BARS, as_json=arguments.json)


if __name__ == "__main__":
    main()
