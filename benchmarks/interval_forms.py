"""Which form of a paired change keeps its promise near saturation: `python -m benchmarks.interval_forms --json`.

C-NMT and its queue-aware form on @load-sweep's deployment, 200 replications a load. Samples of 5 and 10 are drawn from these,
each sample's 95 % interval is formed in five ways, and two things are counted: how often it holds what it estimates, taken over
all 200, and how often it tells the two policies apart (queue-aware is the faster one in every replication). Four are Student's
intervals of a number per replication: `bounded` is (ours - theirs) / (ours + theirs); both percentages are there, since they
differ by which policy is named first. `ratio_of_means` is what a run shows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks import policies
from benchmarks.policy_cases import SWEEP_FULL_RPS, poisson, queues
from simnmt.results.statistics import CONFIDENCE, ratio_of_means

Totals = NDArray[np.float64]
FORMS: dict[str, Callable[[Totals, Totals], Totals]] = {
    "percent_of_slower": lambda ours, theirs: ours / theirs - 1.0,
    "percent_of_faster": lambda ours, theirs: theirs / ours - 1.0,
    "logarithm": lambda ours, theirs: np.log(ours / theirs),
    "bounded": lambda ours, theirs: (ours - theirs) / (ours + theirs),
}
LOADS, SAMPLES = (0.5, 0.7, 0.8, 0.9), 2_000


def measure(replications: int = 200, requests: int = 10_000) -> dict[str, Any]:
    """For each load, sample size and form: (share of intervals that hold the mean, share that tell apart)."""
    found: dict[str, Any] = {"replications": replications, "requests": requests}
    for load in LOADS:
        blind, seeing = totals_s(load, replications, requests)
        of_load: dict[str, Any] = {"queue_aware_slower_in": int((seeing > blind).sum())}
        for size in (5, 10):
            shares = {name: kept(form(seeing, blind), size) for name, form in FORMS.items()}
            of_load[f"samples of {size}"] = shares | {"ratio_of_means": kept_by_ratio(seeing, blind, size)}
        found[f"load {load}"] = of_load
    return found


def totals_s(load: float, replications: int, requests: int) -> tuple[Totals, Totals]:
    """Total latencies of every replication, plain and queue-aware."""
    with TemporaryDirectory() as folder:
        case = next(queues(Path(folder)))
    workloads = {"w": {"lengths": case.lengths, "end_nodes": case.end_nodes, "arrivals": poisson(load * SWEEP_FULL_RPS)}}
    parts = {"devices": case.devices, "networks": case.networks, "policies": case.policies, "workloads": workloads}
    runs, _ = policies.run({"version": 1, "name": "forms", "requests": requests, "replications": replications, **parts})
    blind, seeing = (np.array([row["total_latency_s"] for row in runs["w", "n", name]]) for name in ("cnmt", "queue-aware"))
    return blind, seeing


def kept(changes: Totals, size: int) -> tuple[float, float]:
    """How often a sample's interval holds the mean of all, and how often it excludes 0."""
    random, truth = np.random.default_rng(1), float(changes.mean())
    samples = random.choice(changes, (SAMPLES, size))
    means, errors = samples.mean(axis=1), samples.std(axis=1, ddof=1) / np.sqrt(size)
    reach = stats.t.ppf(0.5 + CONFIDENCE / 2, size - 1) * errors
    return float(np.mean(np.abs(means - truth) <= reach)), float(np.mean(np.abs(means) > reach))


def kept_by_ratio(ours: Totals, theirs: Totals, size: int) -> tuple[float, float]:
    """The same for the interval that a run shows."""
    random, truth = np.random.default_rng(1), float(ours.mean() / theirs.mean())
    picks = random.integers(0, len(ours), (SAMPLES, size))
    estimates = [ratio_of_means(ours[pick], theirs[pick]) for pick in picks]
    bounds = np.array([(estimate.low, estimate.high) for estimate in estimates], np.float64)
    holds = (bounds[:, 0] <= truth) & (truth <= bounds[:, 1])
    return float(holds.mean()), float(((bounds[:, 0] > 1.0) | (bounds[:, 1] < 1.0)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    for load in LOADS:
        for size in (5, 10):
            shares = found[f"load {load}"][f"samples of {size}"].items()
            said = "; ".join(f"{name} holds {100 * holds:.0f}, tells {100 * tells:.0f}" for name, (holds, tells) in shares)
            print(f"load {load}, {size} replications, of 100 intervals: {said}")


if __name__ == "__main__":
    main()
