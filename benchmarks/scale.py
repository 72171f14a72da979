"""What ten million requests cost beside one million, in time and in memory: `python -m benchmarks.scale --json`.

Whole runs of `simnmt run`, with the five policies of @quickstart on one network, back to back and in an open loop, the page and
the request table included; some ten minutes of one processor. CPU time, since the machine may be shared; memory is that of
the whole tree of processes, pages shared among them counted once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

from benchmarks.inputs import cnmt_inputs
from benchmarks.process_costs import Cost, cost, simnmt_command
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


def run_cost(discipline: str, requests: int, replications: int = 1, jobs: int = 1) -> Cost:
    """One whole run, written to a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"requests": requests, "replications": replications, "jobs": jobs, "out": f"{folder}/run"}
        sets = (f"workloads.de-en.arrivals={ARRIVALS[discipline]}", 'networks={cp2: {rtt: "@cp2"}}')
        return cost(
            [simnmt_command(), "run", "@quickstart"]
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
