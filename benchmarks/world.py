"""The world's speed, as ratios taken in one interleaved run: `python -m benchmarks.world --json`.

Absolute times mean little on a shared machine; a ratio of two things measured in turn, minimum of repeats on either side, does.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import ciw_model, compiled, idiomatic
from benchmarks.inputs import EndNodes, WorldInputs, cnmt_inputs, end_nodes, two_choices
from benchmarks.printing import print_figures
from benchmarks.process_costs import simnmt_command
from simnmt.devices import Fifo, Kind
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import LeastTotal, TransferEstimate
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world import reference
from simnmt.world.deciders import Beliefs
from simnmt.world.engine import simulate_compiled

LOAD, OVERLOAD = 0.6, 1.9
COMPILED_LARGE = 10_000_000
"""Requests of the largest world that the compiled engine runs."""
SIZES = (10_000, 100_000, 1_000_000)
"""Requests of the small world, of the common one that all models run, and of the large one; figures are named after these."""
NODES, SERVERS = 1_000, 16
"""End nodes, and servers in the cloud, of the wider worlds."""
BARS = {
    "vs_idiomatic": (">=", 5.0),
    "vs_ciw": (">=", 20.0),
    "scale_1m_over_10k": ("<=", 1.15),
    "overload_100k_over_10k": ("<=", 1.1),
    "nodes_1000_over_1": ("<=", 1.1),
    "servers_16_over_1": ("<=", 1.25),
    "identical_to_ciw": ("==", True),
    "table1_over_idiomatic_process": ("<=", 12.0),
    **compiled.BARS,
}
"""What the project asks of the figures; a figure that misses its bar is printed as it is."""


def run_world(
    inputs: WorldInputs,
    asking: EndNodes | None = None,
    deciders: int = 1,
    pool: Callable[[], Kind] = Fifo,
    simulate: Callable[..., Trail] = reference.simulate,
) -> Trail:
    """simnmt's own world on the common inputs, with C-NMT's rule; entries of the trail in the order of the decisions.

    `asking`: end nodes with links of their own to the one decider; with several, each decides for its share of the end nodes,
    without a link. `pool`: the cloud's servers, idle. `simulate`: of an engine.
    """
    numbers = np.arange(inputs.requests)
    columns = (inputs.gateway_s, inputs.cloud_s), (inputs.uplink_s,), (inputs.downlink_s,)
    requests = Requests(numbers, *columns, inputs.arrival_s, None if asking is None else asking.node)
    if asking is not None and deciders == 1:
        decided_s = inputs.arrival_s + asking.access_s
        requests = requests.in_order(np.argsort(decided_s, kind="stable"), decided_s)

    def decide_for(block: Block) -> LeastTotal:
        return LeastTotal([inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]])

    beliefs = Beliefs(lambda decider, target: TransferEstimate(inputs.initial_transfer_s))
    return simulate(requests, decide_for, beliefs, [pool()], deciders=deciders)


def wider_worlds(inputs: WorldInputs) -> dict[str, Callable[[], Trail]]:
    """The same requests in a world with more boxes, by the figure that is their cost over that of the plain world.

    1,000 end nodes with links of their own to the gateway; the same deciding themselves, with a device each; and 16 servers
    behind a balancer, 16 gateways before them, asked 16 times as often, so that each box is as busy as in the plain world.
    """
    many, sixteen = end_nodes(inputs.requests, NODES), end_nodes(inputs.requests, SERVERS)
    busy = replace(inputs, arrival_s=inputs.arrival_s / SERVERS)
    choices = two_choices(inputs.requests, SERVERS)
    balancers: dict[str, Callable[[], Kind]] = {
        "round_robin": lambda: Fifo(SERVERS, balancer=InTurn()),
        "least_work": lambda: Fifo(SERVERS, 1, LeastWork()),
        "two_choices": lambda: Fifo(SERVERS, balancer=LeastLoadedOfDrawn(choices)),
    }
    return {
        "nodes_1000_over_1": lambda: run_world(inputs, many),
        "deciders_1000_over_1": lambda: run_world(inputs, many, deciders=NODES),
        **{
            f"servers_16_{name}_over_1": (lambda pool=pool: run_world(busy, sixteen, deciders=SERVERS, pool=pool))
            for name, pool in balancers.items()
        },
    }


def completion_s(inputs: WorldInputs, trail: Trail) -> np.ndarray:
    """When each request was answered, from its columns."""
    away = trail.target == 1
    served_s = np.where(away, inputs.uplink_s + inputs.cloud_s + inputs.downlink_s, inputs.gateway_s)
    return trail.arrival_s + trail.queue_s + served_s


def cpu_s(work: Callable[[], Any], at_least_s: float = 0.1) -> float:
    """CPU seconds of one call, the mean over as many calls as fill a moment."""
    calls, started = 0, time.process_time()
    while True:
        work()
        calls += 1
        spent = time.process_time() - started
        if spent >= at_least_s:
            return spent / calls


def measure(
    rounds: int,
    whole_processes: bool,
    ciw: bool = True,
    sizes: tuple[int, int, int] = SIZES,
    largest: int = COMPILED_LARGE,
    huge: bool = False,
) -> dict[str, Any]:
    """All figures; each round runs every contestant once, and the minimum of each counts.

    `sizes`: see `SIZES`; `huge`: with runs of 100,000,000 requests.
    """
    small, middle, large = sizes
    world = {(n, LOAD): cnmt_inputs(n, LOAD) for n in sizes}
    over = {(n, OVERLOAD): cnmt_inputs(n, OVERLOAD) for n in (small, middle)}
    contestants: dict[Any, Callable[[], Any]] = {key: (lambda x=inputs: run_world(x)) for key, inputs in (world | over).items()}
    common = world[middle, LOAD]
    wider = wider_worlds(common)
    contestants |= wider
    contestants["idiomatic"] = lambda: idiomatic.simulate(common)
    if ciw:
        contestants["ciw"] = lambda: ciw_model.simulate(common)
    least = dict.fromkeys(contestants, float("inf"))
    for number in range(rounds):
        for key, work in contestants.items():
            if key == "ciw" and number % 2:
                continue  # 40 times as long as ours: every other round
            least[key] = min(least[key], cpu_s(work))
    ours = least[middle, LOAD]
    figures: dict[str, Any] = {
        "vs_idiomatic": least["idiomatic"] / ours,
        "vs_ciw": least["ciw"] / ours if ciw else None,
        "scale_1m_over_10k": least[large, LOAD] / large / (least[small, LOAD] / small),
        "overload_100k_over_10k": least[middle, OVERLOAD] / middle / (least[small, OVERLOAD] / small),
        **{name: least[name] / ours for name in wider},
        "servers_16_over_1": max(least[name] / ours for name in wider if name.startswith("servers_16_")),
        "bytes_per_request": bytes_per_request(common),
        "identical_to_ciw": None,
        "largest_difference_to_ciw_s": None,
        "us_per_request": ours / middle * 1e6,
        "sizes": list(sizes),
        "rounds": rounds,
        "python": sys.version.split()[0],
    }
    if ciw:
        trail = run_world(common)
        theirs, target = ciw_model.simulate(common)
        difference = float(np.abs(completion_s(common, trail) - np.asarray(theirs)).max())
        figures["largest_difference_to_ciw_s"] = difference
        figures["identical_to_ciw"] = difference <= 1e-9 and bool((trail.target == np.asarray(target)).all())
    if structures.library() is not None:
        figures |= measure_compiled(rounds, least["idiomatic"], common, largest)
        if huge:
            figures |= compiled.measure_memory()
    if whole_processes:
        figures |= measure_table1(requests=middle)
    return figures


def measure_compiled(rounds: int, idiomatic_s: float, common: WorldInputs, largest: int) -> dict[str, Any]:
    """The compiled engine's figures; `idiomatic_s`: CPU seconds of the idiomatic model on the common inputs, taken before."""
    contestants = {size: cnmt_inputs(size, LOAD) for size in (common.requests, largest)}
    least_s = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for size, inputs in contestants.items():
            least_s[size] = min(least_s[size], cpu_s(lambda inputs=inputs: run_world(inputs, simulate=simulate_compiled)))
    full = largest == COMPILED_LARGE
    fewer = max(rounds // 2, 1)
    return {
        "compiled_vs_idiomatic": idiomatic_s / least_s[common.requests],
        "compiled_scale_10m_over_100k": least_s[largest] / largest / (least_s[common.requests] / common.requests),
        "compiled_us_per_request": least_s[common.requests] / common.requests * 1e6,
        "compiled_batched_vs_simpy": compiled.measure_batched(fewer, *(() if full else (500,))),
        **compiled.measure_units(fewer, None if full else ["requests=200"]),
        **compiled.measure_wheel(),
        **compiled.PUBLISHED,
    }


def bytes_per_request(inputs: WorldInputs) -> float:
    """Peak memory that a run allocates beside its inputs, per request."""
    tracemalloc.start()
    try:
        run_world(inputs)
        return tracemalloc.get_traced_memory()[1] / inputs.requests
    finally:
        tracemalloc.stop()


def measure_table1(rounds: int = 3, requests: int = SIZES[1]) -> dict[str, float]:
    """`simnmt run @table1` on two jobs over the idiomatic model, both at `requests`: wall time of whole processes, in turn."""
    table1, yardstick = [], []
    command = simnmt_command()
    size = ["--requests", str(requests)]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            table1.append(_wall_s([command, "run", "@table1", "--jobs", "2", *size, "--out", f"{folder}/run"]))
        yardstick.append(_wall_s([sys.executable, "-m", "benchmarks.idiomatic", *size]))
    return {
        "table1_over_idiomatic_process": float(np.median(table1) / np.median(yardstick)),
        "table1_wall_s": float(np.median(table1)),
        "idiomatic_process_wall_s": float(np.median(yardstick)),
        "table1_peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def _wall_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--skip-table1", action="store_true", help="leave out the whole-process comparison")
    parser.add_argument("--skip-100m", action="store_true", help="leave out the runs of 100,000,000 requests (40 GB of disk)")
    help_sizes = "requests of the small, the common and the large world, for a quick look; the bars hold for the default"
    parser.add_argument("--sizes", type=int, nargs=3, default=SIZES, metavar=("SMALL", "COMMON", "LARGE"), help=help_sizes)
    arguments = parser.parse_args()
    sizes = tuple(arguments.sizes)
    largest = COMPILED_LARGE if sizes == SIZES else sizes[2]
    figures = measure(
        arguments.rounds,
        whole_processes=not arguments.skip_table1,
        sizes=sizes,
        largest=largest,
        huge=sizes == SIZES and not arguments.skip_100m,
    )
    print_figures(figures, BARS, as_json=arguments.json)


if __name__ == "__main__":
    main()
