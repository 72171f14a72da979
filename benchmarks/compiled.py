"""What the compiled world gains, and what 100,000,000 requests take: the part of `python -m benchmarks.world` about the C.

Both engines run in turn, and the least CPU time of each counts. Figures of other engines are as published, not measured.
"""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.batch_server import COST, SENTENCES, SIZE, Work
from benchmarks.process_costs import cost, simnmt_command
from simnmt.base.compile import WORLD_LIBRARY
from simnmt.batching import half_empty, top_up
from simnmt.devices import Batched
from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.units import run_unit
from simnmt.policies import CLOUD, Fixed, TransferEstimate
from simnmt.results.requests import Requests, Trail
from simnmt.scenario.source import open_source
from simnmt.world.deciders import Beliefs
from simnmt.world.engine import simulate_compiled

HUGE = 100_000_000
"""Requests of the largest run; the other has half as many."""
BARS = {
    "compiled_vs_idiomatic": (">=", 50.0),
    "compiled_run_vs_simpy_run": (">=", 8.0),
    "compiled_batched_vs_simpy": (">=", 15.0),
    "compiled_streamed_vs_simpy": (">=", 15.0),
    "compiled_scale_10m_over_100k": ("<=", 1.15),
    "peak_gib_100m": ("<=", 4.0),
    "peak_100m_over_50m": ("<=", 1.1),
    "wheel_growth_mb": ("<=", 0.2),
}
PUBLISHED = {
    "cimba_over_simpy": "45 (published: M/M/1, all cores; github.com/ambonvik/cimba, read 2026-11)",
    "cimba_us_per_event": "0.05 (published: 20 million events a second on one core; the same page)",
}
"""Of another compiled engine, a general library in C; not measured here. One request of ours is several events."""
UNITS = {
    "compiled_run_vs_simpy_run": ("@open-loop", ["requests=100000"]),
    "compiled_batched_run_vs_simpy_run": ("@batched-cloud", ["requests=20000"]),
    "compiled_streamed_vs_simpy": ("@sti-gateway", ["requests=100000"]),
}
"""Whole units of work that both engines run: draw, learn, world, log and summary, under every policy of the scenario."""


def batched_world(work: Work, simulate: Callable[..., Trail]) -> Trail:
    """Send every sentence to one server that batches; 0 s away. `simulate`: of an engine."""
    nothing = np.zeros(len(work.src_len))
    alone_s = COST.solo_s(work.src_len, work.tgt_len)
    requests = Requests(work.src_len, (alone_s, alone_s), (nothing,), (nothing,), work.arrival_s, tgt_len=work.tgt_len)
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.0))
    return simulate(requests, lambda block: Fixed(CLOUD), beliefs, [BatchPool(Batched(work.batching, COST))])


def measure_batched(rounds: int, sentences: int = SENTENCES) -> float:
    """Times faster: top-up with batches of 32, a load of 0.95, 20 target tokens on average."""
    work = Work.of(top_up(SIZE, half_empty(SIZE)), 20, sentences)
    least_s = least_of(
        rounds,
        {"simpy": lambda: batched_world(work, reference.simulate), "compiled": lambda: batched_world(work, simulate_compiled)},
    )
    return least_s["simpy"] / least_s["compiled"]


def measure_units(rounds: int, overrides: list[str] | None = None) -> dict[str, float]:
    """Times faster, of whole units of work. `overrides`: instead of their own numbers of requests."""
    figures = {}
    for name, (scenario, own) in UNITS.items():
        unit = unit_of(scenario, own if overrides is None else overrides)
        engines: dict[str, Callable[[], Any]] = {
            engine: (lambda engine=engine, unit=unit: run_unit(replace(unit, engine=engine)))
            for engine in ("simpy", "compiled")
        }
        least_s = least_of(rounds, engines)
        figures[name] = least_s["simpy"] / least_s["compiled"]
    return figures


def unit_of(scenario: str, overrides: list[str]) -> Unit:
    """The first unit of work of a scenario."""
    source = open_source(scenario, overrides)
    plan = read_inputs(source.scenario, Path.cwd(), source.document)
    case, (network, links) = next(iter(plan.cases.values())), next(iter(plan.networks.items()))
    return Unit(plan.scenario, case, network, links, 0)


def least_of(rounds: int, contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """CPU seconds of each in turn, the least of all rounds."""
    least_s = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, work in contestants.items():
            started = time.process_time()
            work()
            least_s[name] = min(least_s[name], time.process_time() - started)
    return least_s


def measure_memory(requests: int = HUGE) -> dict[str, float]:
    """Whole runs of one policy in an open loop, page and table of requests included; the memory of all their processes.

    100,000,000 requests need some 40 GB of disk and five minutes of one processor.
    """
    peaks = {}
    for size in (requests // 2, requests):
        with tempfile.TemporaryDirectory() as folder:
            options = {"requests": size, "replications": 1, "jobs": 1, "set": "policies={cnmt: {}}", "out": f"{folder}/run"}
            spent = cost(
                [simnmt_command(), "run", "@open-loop"]
                + [part for name, value in options.items() for part in (f"--{name}", str(value))]
            )
            peaks[size] = spent.peak_mib / 1024
    return {
        "peak_gib_100m": peaks[requests],
        "peak_100m_over_50m": peaks[requests] / peaks[requests // 2],
        "cpu_us_per_request_100m": spent.cpu_s / requests * 1e6,
    }


def measure_wheel() -> dict[str, float]:
    """Megabytes that the compiled world adds to a wheel: its library and its sources, compressed as there."""
    folder = WORLD_LIBRARY.folder
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "grown.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for added in sorted([*folder.iterdir(), *folder.parent.glob("compiled_*.py")]):
                if added.is_file():
                    archive.write(added, added.name)
        return {"wheel_growth_mb": path.stat().st_size / 1e6}
