"""What ten million requests cost beside one million, in time and in memory: `python -m benchmarks.scale --json`.

Whole runs of `simnmt run`, with the five policies of @quickstart on one network, back to back and in an open loop, the page and
the request table included; some ten minutes of one processor. CPU time, since the machine may be shared; memory is that of
the whole tree of processes, pages shared among them counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.inputs import cnmt_inputs
from benchmarks.world import LOAD, cpu_s, run_world

SIZES = (1_000_000, 10_000_000)
ARRIVALS = {"back_to_back": "{kind: back_to_back}", "open_loop": "{kind: poisson, rate_rps: 9.0}"}
POLICIES = 5
FOUR_GB_IN_MIB = 4e9 / 2**20
BARS = {
    "world_10m_over_1m": 1.15,
    "back_to_back_10m_over_1m": 1.15,
    "open_loop_10m_over_1m": 1.15,
    "back_to_back_peak_mib": FOUR_GB_IN_MIB,
    "open_loop_peak_mib": FOUR_GB_IN_MIB,
}
"""What the project asks of the figures: no more than this."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command, with all the processes that it started."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    """Most memory at a time; sampled, but never less than what a single process ever had up to the last look at it."""


def cost(command: list[str], every_s: float = 0.1) -> Cost:
    """Run a command and look at its memory every so often."""
    started, peak_kib = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        processes = list(tree(process.pid))
        # Not the system's own `ru_maxrss`, which begins with the memory of whoever started the process.
        peak_kib = max(peak_kib, sum(map(memory_kib, processes)), *map(most_kib, processes))
        time.sleep(every_s)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak_kib / 1024)


def tree(process: int) -> Iterator[int]:
    """A process and all that descend from it, as long as they live."""
    yield process
    try:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from tree(int(child))
    except OSError:
        return


def memory_kib(process: int) -> int:
    """Its share of the memory, each page divided by the processes that have it mapped; 0 for one that has ended."""
    return _kib(Path(f"/proc/{process}/smaps_rollup"), "Pss:")


def most_kib(process: int) -> int:
    """The most memory that it ever had, pages shared with others in full."""
    return _kib(Path(f"/proc/{process}/status"), "VmHWM:")


def _kib(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(key))


def run_cost(discipline: str, requests: int, replications: int = 1, jobs: int = 1) -> Cost:
    """One whole run, written to a folder that is gone afterwards."""
    simnmt = shutil.which("simnmt", path=str(Path(sys.executable).parent)) or "simnmt"
    with tempfile.TemporaryDirectory() as folder:
        options = {"requests": requests, "replications": replications, "jobs": jobs, "out": f"{folder}/run"}
        sets = (f"workloads.de-en.arrivals={ARRIVALS[discipline]}", 'networks={cp2: {rtt: "@cp2"}}')
        return cost(
            [simnmt, "run", "@quickstart"]
            + [part for text in sets for part in ("--set", text)]
            + [part for name, value in options.items() for part in (f"--{name}", str(value))]
        )


def measure(rounds: int, sizes: tuple[int, int] = SIZES, replications: int = 1, jobs: int = 1) -> dict[str, Any]:
    """All figures; each round runs every size once, and the minimum of each counts. Figures are named after `SIZES`."""
    small, large = sizes
    figures: dict[str, Any] = {}
    for discipline in ARRIVALS:
        costs: dict[int, list[Cost]] = {size: [] for size in sizes}
        for _ in range(rounds):
            for size in sizes:
                costs[size].append(run_cost(discipline, size, replications, jobs))
        least_s = {size: min(each.cpu_s for each in costs[size]) for size in sizes}
        figures |= {
            f"{discipline}_10m_over_1m": least_s[large] / large / (least_s[small] / small),
            f"{discipline}_peak_mib": max(each.peak_mib for each in costs[large]),
            f"{discipline}_1m_peak_mib": max(each.peak_mib for each in costs[small]),
            f"{discipline}_cpu_s": least_s[large],
            f"{discipline}_wall_s": min(each.wall_s for each in costs[large]),
            f"{discipline}_us_per_request_and_policy": least_s[large] / (large * replications * POLICIES) * 1e6,
        }
    worlds = {size: cnmt_inputs(size, LOAD) for size in sizes}
    world_s = dict.fromkeys(sizes, float("inf"))
    for _ in range(rounds):
        for size, inputs in worlds.items():
            world_s[size] = min(world_s[size], cpu_s(lambda inputs=inputs: run_world(inputs)))
    figures["world_10m_over_1m"] = world_s[large] / large / (world_s[small] / small)
    return figures | {"sizes": list(sizes), "replications": replications, "jobs": jobs, "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=1, help="interleaved rounds (default 1)")
    parser.add_argument("--replications", type=int, default=1, help="of each run (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes of each run (default 1)")
    help_sizes = "requests of the small and the large run, for a quick look; the bars hold for the default"
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, metavar=("SMALL", "LARGE"), help=help_sizes)
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, tuple(arguments.sizes), arguments.replications, arguments.jobs)
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        print(f"{name:44}{shown:>16}" + (f"   asked: <= {BARS[name]:.4g}" if name in BARS else ""))


if __name__ == "__main__":
    main()
