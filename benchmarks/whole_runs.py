"""What whole runs cost with the compiled world, against the world in SimPy: `python -m benchmarks.whole_runs --json`.

A run is the process `simnmt run SCENARIO` with everything that it does and starts: imports, drawing, regression, world,
summaries, request log and page. Its cost is the processor time of the process and its children. Absolute times mean little on a
shared machine: both engines run in turn, and a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.printing import print_figures
from benchmarks.process_costs import cost, simnmt_command

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
    chosen = [] if engine == "compiled" else ["--engine", engine]
    with tempfile.TemporaryDirectory() as folder:
        return cost([simnmt_command(), "run", *arguments, *chosen, "--out", str(Path(folder) / "run")]).cpu_s


def measure_pairs(arguments: list[str], rounds: int) -> tuple[float, dict[str, float]]:
    """Return the median ratio of the compiled world's cost to that of SimPy's, and the median cost of each engine, seconds."""
    taken = {engine: list[float]() for engine in ENGINES}
    for number in range(rounds):
        # The engine that begins changes, so that none always follows the other.
        for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
            taken[engine].append(run_cpu_s(arguments, engine))
    ratio = median(ours / theirs for ours, theirs in zip(taken["compiled"], taken["simpy"], strict=True))
    return ratio, {engine: median(seconds) for engine, seconds in taken.items()}


def measure_small(rounds: int, requests: int = SMALL) -> tuple[float, dict[str, float]]:
    """Return the figures of `measure_pairs` for a run of few requests."""
    return measure_pairs(["@quickstart", "--requests", str(requests)], rounds)


def measure(rounds: int, small_rounds: int, requests: int | None = None) -> dict[str, Any]:
    """Return all figures.

    Args:
        rounds: of the scenarios, each with both engines in turn.
        small_rounds: of the small run, whose engines differ by a few per cent at most.
        requests: of every run, for a quick look; None: as the scenarios and the bars have it.
    """
    size = [] if requests is None else ["--requests", str(requests)]
    pairs = {name: measure_pairs([scenario, *size], rounds) for name, scenario in SCENARIOS.items()}
    pairs["compiled_1k_over_simpy"] = measure_small(small_rounds, requests or SMALL)
    figures = {name: ratio for name, (ratio, _) in pairs.items()}
    cpu_s = {f"{name}_{engine}_cpu_s": seconds for name, (_, of) in pairs.items() for engine, seconds in of.items()}
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
