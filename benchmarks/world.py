"""The simulator's speed and memory, as ratios of contestants that run in turn: `python -m benchmarks.world`.

Absolute times mean little on a shared machine. Each round runs every contestant in turn, and the least processor time of a
call counts. `--quick` tries the script with small sizes; the bars hold for the default sizes, which take two minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import simnmt
from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from simnmt.calibrate import harness
from simnmt.devices import Fifo
from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.units import run_unit
from simnmt.policies import LeastTotal, TransferEstimate
from simnmt.results.requests import Block, Requests, Trail
from simnmt.scenario.source import open_source
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.deciders import Beliefs
from simnmt.world.inputs import PolicySetup, World
from simnmt.world.reference import simulate_reference

BARS = {
    "compiled_vs_idiomatic": (">=", 150.0),
    "compiled_scale": ("<=", 1.15),
    "identical_to_ciw": ("==", True),
    "open_loop_compiled_vs_reference": (">=", 8.0),
    "streamed_compiled_vs_reference": (">=", 15.0),
    "user_decide_fastest_over_reference": ("<=", 1.0),
    "peak_gib": ("<=", 2.5),
}
"""What the project asks; a figure that misses its bar is printed as it is."""
UNITS = {"open_loop": "@open-loop", "batched": "@batched-cloud", "streamed": "@sti-gateway"}


def run_world(inputs: WorldInputs, engine: Callable[..., Trail]) -> Trail:
    """Run simnmt's world on the common inputs, with C-NMT's rule."""
    numbers = np.arange(inputs.requests)
    columns = (inputs.gateway_s, inputs.cloud_s), (inputs.uplink_s,), (inputs.downlink_s,)
    requests = Requests(numbers, *columns, inputs.arrival_s, None)

    def decide_for(block: Block) -> LeastTotal:
        return LeastTotal([inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]])

    beliefs = Beliefs(lambda decider, target: TransferEstimate(inputs.initial_transfer_s))
    return engine(World(requests, [Fifo()]), PolicySetup(decide_for, [beliefs]))


def first_unit(scenario: str, requests: int) -> Unit:
    """Return the first unit of work of a scenario."""
    source = open_source(scenario, [f"requests={requests}"])
    plan = read_inputs(source.scenario, Path.cwd(), source.document)
    case, (network, links) = next(iter(plan.cases.values())), next(iter(plan.networks.items()))
    return Unit(plan.scenario, case, network, links, 0)


class CNmtInPython:
    """C-NMT for two targets, as a user would write it."""

    def __init__(self, knowledge: Any) -> None:
        self.knowledge = knowledge

    def prepare(self, src_len: Any) -> Any:
        """Return the rule for a block of requests."""
        tgt_len = self.knowledge.lengths.predict(src_len)
        local_s, remote_s = (plane.seconds(src_len, tgt_len).tolist() for plane in self.knowledge.planes)

        def decide(request: int, delay_s: Any) -> int:
            return 0 if local_s[request] + delay_s[0] <= remote_s[request] + delay_s[1] else 1

        return decide


def run_users_policy(engine: str | None, requests: int) -> None:
    """Run a user's policy in an open loop; an engine of None is the fastest that covers the policy."""
    scenario = {
        "version": 1,
        "name": "users policy",
        "requests": requests,
        "replications": 1,
        "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4.0}}},
        "networks": {"cp1": {"rtt": "@cp1"}},
        "devices": {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}},
        "policies": {"mine": CNmtInPython},
    }
    simnmt.run(scenario, jobs=1, engine=engine)


def identical_to_ciw(inputs: WorldInputs) -> bool:
    """Return whether Ciw makes the same choices and completes requests at the same times, to 1e-9 s."""
    trail = run_world(inputs, simulate_compiled)
    remote_s = inputs.uplink_s + inputs.cloud_s + inputs.downlink_s
    completion_s = trail.arrival_s + trail.queue_s + np.where(trail.target == 1, remote_s, inputs.gateway_s)
    ciw_s, ciw_target = ciw_model.simulate(inputs)
    return bool(np.abs(completion_s - ciw_s).max() <= 1e-9 and (trail.target == ciw_target).all())


def peak_gib(requests: int) -> float:
    """Return the most memory of a whole run of one policy in an open loop, page and request table included."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--requests", str(requests), "--replications", "1", "--jobs", "1", "--set", "policies={cnmt: {}}"]
        command = [sys.executable, "-c", "from simnmt.cli import main; main()", "run", "@open-loop", *options]
        subprocess.run([*command, "--out", f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


def measure(rounds: int, requests: int, largest: int) -> dict[str, Any]:
    """Return all figures, by name."""
    inputs, large = cnmt_inputs(requests), cnmt_inputs(largest)
    worlds: dict[str, Callable[[], Any]] = {
        "compiled": lambda: run_world(inputs, simulate_compiled),
        "reference": lambda: run_world(inputs, simulate_reference),
        "idiomatic": lambda: idiomatic.simulate(inputs),
        "ciw": lambda: ciw_model.simulate(inputs),
        "large": lambda: run_world(large, simulate_compiled),
    }
    for engine in ("reference", None):
        worlds[f"user {engine}"] = lambda e=engine: run_users_policy(e, requests)
    for name, scenario in UNITS.items():
        unit = first_unit(scenario, requests // 10)
        for engine in ("reference", "compiled"):
            worlds[f"{name} {engine}"] = lambda u=unit, e=engine: run_unit(replace(u, engine=e))
    frame = harness.rounds(worlds, rounds, clock=time.process_time)
    cpu_s = {name: float(times_s.min()) for name, times_s in harness.by_round(frame).items()}
    return {
        **{f"compiled_vs_{name}": cpu_s[name] / cpu_s["compiled"] for name in ("idiomatic", "reference", "ciw")},
        "compiled_us_per_request": 1e6 * cpu_s["compiled"] / requests,
        "compiled_scale": cpu_s["large"] / largest / (cpu_s["compiled"] / requests),
        "identical_to_ciw": identical_to_ciw(inputs),
        **{f"{name}_compiled_vs_reference": cpu_s[f"{name} reference"] / cpu_s[f"{name} compiled"] for name in UNITS},
        "user_decide_fastest_over_reference": cpu_s["user None"] / cpu_s["user reference"],
        "peak_gib": peak_gib(largest),
        "requests": requests,
        "largest": largest,
    }


def main() -> None:
    """Print a line a figure, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, *((2_000, 20_000) if arguments.quick else (100_000, 10_000_000)))
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        sign, bar = BARS.get(name, ("", None))
        print(f"{name:34}{value:>12.4g}" + (f"   asked: {sign} {bar}" if bar is not None else ""))


if __name__ == "__main__":
    main()
