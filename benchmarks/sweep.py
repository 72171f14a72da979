"""What a sweep costs beside its units: `python -m benchmarks.sweep`.

The units alone are the same experiment units, each a call of `run_unit` one after another in one process, with their inputs
read beforehand: nothing but the simulation counts. The sweep is the command `simnmt sweep` with all its processes: imports,
checks, reading of inputs, dealing, storing, gathering, table and page. Both figures are processor time. The units run before
and after the sweep, so that a slow drift of a shared machine meets both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from math import isqrt
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.printing import print_figures
from benchmarks.process_costs import cost, simnmt_command

POINTS, REPLICATIONS, REQUESTS, JOBS = 1_000, 3, 20_000, 2
"""What the project asks for: two policies, on two cores."""
BARS = {"cpu_ratio": ("<=", 1.3), "peak_mib": ("<=", 1024)}
SCENARIO = "@open-loop"
POLICIES = "policies={edge: {}, cnmt: {}}"


def options(points: int, replications: int, requests: int) -> list[str]:
    """Return the options of a sweep over two keys with so many points or a few more."""
    rates = max(isqrt(points), 2)
    return [
        f"--grid=workloads.de-en.arrivals.rate_rps=4:11:{rates}",
        f"--grid=networks.cp2.rtt_mean_ms=20:200:{max(-(-points // rates), 2)}",
        f"--set={POLICIES}",
        f"--replications={replications}",
        f"--requests={requests}",
    ]


def units_cpu_s(arguments: list[str]) -> tuple[float, int]:
    """Return the processor time of all units of a sweep in this process, and their number."""
    from simnmt.experiment.sweep.points import make_points

    from simnmt.experiment.cases import Unit
    from simnmt.experiment.inputs import InputCache, read_inputs
    from simnmt.experiment.units import run_unit
    from simnmt.scenario.document import Override
    from simnmt.scenario.source import open_source
    from simnmt.scenario.sweep_configuration import read_sweep

    grid = [text.removeprefix("--grid=") for text in arguments if text.startswith("--grid=")]
    overrides = [text.removeprefix("--set=").removeprefix("--") for text in arguments if not text.startswith("--grid=")]
    sweep = read_sweep(SCENARIO, grid, None, [Override.parse(text) for text in overrides])
    points = make_points(sweep, open_source(SCENARIO, sweep.overrides))
    cache, taken_s, units = InputCache(), 0.0, 0
    for point in points:
        plan = read_inputs(point.scenario, Path.cwd(), cache=cache)
        for replication in range(point.scenario.replications):
            for case in plan.cases.values():
                for network, links in plan.networks.items():
                    unit = Unit(point.scenario, case, network, links, replication)
                    started_s = time.process_time()
                    run_unit(unit)
                    taken_s += time.process_time() - started_s
                    units += 1
    return taken_s, units


def units_in_a_process(arguments: list[str]) -> tuple[float, int]:
    """Return the figures of `units_cpu_s` of a fresh process."""
    command = [sys.executable, "-m", "benchmarks.sweep", "--units-alone", *arguments]
    seconds, units = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(units)


def measure(points: int, replications: int, requests: int, jobs: int) -> dict[str, Any]:
    """Return all figures of one sweep."""
    arguments = options(points, replications, requests)
    before_s, units = units_in_a_process(arguments)
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "sweep")
        spent = cost([simnmt_command(), "sweep", SCENARIO, *arguments, "--jobs", str(jobs), "--out", out])
    after_s, _ = units_in_a_process(arguments)
    alone_s = mean((before_s, after_s))
    return {
        "cpu_ratio": spent.cpu_s / alone_s,
        "peak_mib": spent.peak_mib,
        "units": units,
        "units_alone_cpu_s": alone_s,
        "units_alone_spread": abs(after_s - before_s) / alone_s,
        "sweep_cpu_s": spent.cpu_s,
        "sweep_wall_s": spent.wall_s,
        "jobs": jobs,
        "requests": requests,
        "python": sys.version.split()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--points", type=int, default=POINTS, help="about so many points (default 1000)")
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes of the sweep (default 2)")
    if sys.argv[1:2] == ["--units-alone"]:
        print(*units_cpu_s(sys.argv[2:]))
        return
    arguments = parser.parse_args()
    figures = measure(arguments.points, arguments.replications, arguments.requests, arguments.jobs)
    print_figures(figures, BARS, as_json=arguments.json)


if __name__ == "__main__":
    main()
