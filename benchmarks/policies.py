"""Where each policy beyond the paper wins and where it loses: `python -m benchmarks.policies --json`.

Per question, each policy is held against the paper's on the deployments of `policy_cases`, replication by replication on
the same requests: the change of the mean latency and of its 95th percentile, with 95 % intervals.

A change is the ratio of the means over the replications, as everywhere in simnmt (`simnmt.results.statistics`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.policy_cases import QUESTIONS, Case, poisson
from simnmt.experiment import draws
from simnmt.experiment.draws import Learnt, learn
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.units import Unit, run_unit
from simnmt.profile.cost import Plane
from simnmt.results.places import ALL, CellName, Place
from simnmt.results.stability import LOAD_SUFFIX, device_names
from simnmt.results.statistics import change_percent
from simnmt.scenario.source import open_source

Row = dict[str, Any]
Runs = dict[Place, list[Row]]
"""The numbers of every replication, by workload, network and policy."""


def measure(only: Sequence[str], requests: int, replications: int) -> dict[str, Any]:
    """Return the comparisons of each question, and over all of `queues` how often seeing them made slower."""
    document: dict[str, Any] = {"requests": requests, "replications": replications}
    with TemporaryDirectory() as folder:
        for question in only:
            rows: list[Row] = []
            for case in QUESTIONS[question](Path(folder)):
                print(f"{question}: {case.name}", file=sys.stderr)
                rows += run_case(case, requests, replications)
            document[question] = {"comparisons": rows}
    if "queues" in only:
        document["queues"]["never_slower"] = bar(document["queues"]["comparisons"])
    return document


def bar(rows: Sequence[Row]) -> Row:
    """What the project asks of the queue-aware policy: never slower beyond the interval over load 0.2 to 0.9."""
    return {
        name: {
            "comparisons": len(those),
            "faster_in_the_mean": sum(row["mean_percent"][2] < 0.0 for row in those),
            "slower_in_the_mean": sum(row["mean_percent"][1] > 0.0 for row in those),
            "slower_in_p95": sum(row["p95_percent"][1] > 0.0 for row in those),
            "most_slower_percent": [max(0.0, *(row[key][0] for row in those)) for key in ("mean_percent", "p95_percent")],
        }
        for name, wrong in (("times_as_measured", False), ("times_believed_wrongly", True))
        if (those := [row for row in rows if row["times_believed_wrongly"] is wrong])
    }


def run_case(case: Case, requests: int, replications: int) -> Iterator[Row]:
    """Yield a comparison for each pair of policies, network and load or rate."""
    with believing(case.planes_off):
        workloads = _workloads(case, requests)
        scenario = _scenario(case, workloads, requests, replications)
        runs = run(scenario)
        plain = case.pairs[0][1]
        cells = [CellName(ALL, workload, network) for workload in workloads for network in case.networks]
        for cell in cells:
            for policy, baseline in case.pairs:
                ours, theirs = runs[Place(*cell, policy)], runs[Place(*cell, baseline)]
                yield _placed(case, cell, runs[Place(*cell, plain)]) | compared(policy, ours, baseline, theirs)


def compared(policy: str, ours: Sequence[Row], baseline: str, theirs: Sequence[Row]) -> Row:
    """One policy beside another in the same replications."""
    return {
        "policy": policy,
        "baseline": baseline,
        **{f"{key}_percent": change([row[f"{key}_latency_s"] for row in ours], [row[f"{key}_latency_s"] for row in theirs])
           for key in ("mean", "p95", "p99")},
        "away_percent": [100.0 * float(np.mean([row["offloaded_share"] for row in rows])) for rows in (theirs, ours)],
    }  # fmt: skip


def change(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Return by how many percent the mean of ours differs from theirs, with its 95 % interval; paired by replication."""
    estimate = change_percent(ours, theirs)
    assert estimate.low is not None and estimate.high is not None
    return estimate.mean, estimate.low, estimate.high


def run(scenario: dict[str, Any]) -> Runs:
    """Return a scenario's numbers, replication by replication."""
    source = open_source(scenario)
    plan = read_inputs(source.scenario, Path.cwd(), source.document)
    runs: Runs = {}
    for replication in range(plan.scenario.replications):
        for case in plan.cases.values():
            for network, links in plan.networks.items():
                result = run_unit(Unit(plan.scenario, case, network, links, replication))
                for place, numbers in result.numbers.items():
                    runs.setdefault(place, []).append(numbers)
    return runs


def believing(planes_off: Sequence[float]) -> AbstractContextManager[Any]:
    """Let policies calibrate wrongly: each device's times multiplied by a factor of its own."""
    if not planes_off:
        return nullcontext()

    def wrongly(*given: Any) -> Learnt:
        learnt = learn(*given)
        planes = [
            Plane(factor * plane.s_per_src_token, factor * plane.s_per_tgt_token, factor * plane.s_fixed)
            for factor, plane in zip(planes_off, learnt.planes, strict=True)
        ]
        return replace(learnt, planes=tuple(planes))

    return mock.patch.object(draws, "learn", wrongly)


def _scenario(case: Case, workloads: dict[str, Any], requests: int, replications: int) -> dict[str, Any]:
    keys = {"devices": case.devices, "networks": case.networks, "policies": case.policies, "workloads": workloads}
    return {"version": 1, "name": "a case", "requests": requests, "replications": replications, **keys}


def _workloads(case: Case, requests: int) -> dict[str, Any]:
    lengths = {"lengths": case.lengths, "end_nodes": case.end_nodes}
    if case.arrivals is None:
        return {"back to back": lengths}
    rates = {f"{rate_rps:g} rps": rate_rps for rate_rps in case.rates_rps}
    if case.loads:
        full_rps = _full_rps(case, lengths, requests)
        rates = {f"load {load:g}": load * full_rps for load in case.loads}
    return {name: {**lengths, "arrivals": case.arrivals(float(f"{rate_rps:.4g}"))} for name, rate_rps in rates.items()}


def busiest_load(row: Row) -> float:
    """The load of the busiest box of any device."""
    return max(row[name + LOAD_SUFFIX] or 0.0 for name in device_names(row))


def _full_rps(case: Case, lengths: dict[str, Any], requests: int) -> float:
    """The rate at which the busiest box would have load 1 if nobody saw queues; told from a short run at 1 request/s a box."""
    if case.full_rps is not None:
        return case.full_rps
    plain = case.pairs[0][1]
    rate_rps = float(next(iter(case.devices.values())).get("count", 1))
    few = {"quiet": {**lengths, "arrivals": poisson(rate_rps)}}
    blind = {plain: {**case.policies[plain], "sees_backlog": False}}
    runs = run(_scenario(case, few, min(requests, 5_000), 1) | {"policies": blind})
    return rate_rps / busiest_load(runs[Place(ALL, "quiet", next(iter(case.networks)), plain)][0])


def _placed(case: Case, cell: CellName, theirs: Sequence[Row]) -> Row:
    """The case, and where among its runs: the load as it was, the rate, the network."""
    _, workload, network = cell
    if case.loads:
        workload = f"load {np.mean([busiest_load(row) for row in theirs]):.2f}"
    named = [workload] * (case.arrivals is not None) + [network] * (len(case.networks) > 1)
    return {"case": case.name, "at": ", ".join(named), "times_believed_wrongly": bool(case.planes_off)}


def printed(document: dict[str, Any]) -> Iterator[str]:
    """The tables, line by line."""
    for question in QUESTIONS:
        if question not in document:
            continue
        yield f"\n{question}: change in % of the mean and of the 95th percentile of the latency, with 95 % intervals"
        case = None
        for row in document[question]["comparisons"]:
            if row["case"] != case:
                case = row["case"]
                yield f"\n{case}"
            there, ours = row["away_percent"]
            pair = f"{row['policy']} / {row['baseline']}"
            yield (
                f"  {row['at']:44}{pair:32}mean {_shown(row['mean_percent'])}  p95 {_shown(row['p95_percent'])}"
                f"  away {there:.0f} -> {ours:.0f} %"
            )
    for name, made in document.get("queues", {}).get("never_slower", {}).items():
        mean, p95 = made["most_slower_percent"]
        yield (
            f"\nload 0.2 to 0.9, {name.replace('_', ' ')}, {made['comparisons']} comparisons: queue-aware is faster in "
            f"{made['faster_in_the_mean']}, slower in {made['slower_in_the_mean']} (asked: 0), by {mean:.2f} % at most; "
            f"in p95 slower in {made['slower_in_p95']}, by {p95:.2f} % at most"
        )


def _shown(change: Sequence[float]) -> str:
    mean, low, high = change
    verdict = "slower" if low > 0.0 else "faster" if high < 0.0 else "-"
    return f"{mean:+7.2f} [{low:+7.2f}, {high:+7.2f}] {verdict:6}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--only", choices=QUESTIONS, action="append", help="one question; may be repeated (default: all)")
    parser.add_argument("--requests", type=int, default=20_000, help="of each run (default 20,000)")
    parser.add_argument("--replications", type=int, default=10, help="of each run (default 10)")
    arguments = parser.parse_args()
    document = measure(arguments.only or list(QUESTIONS), arguments.requests, arguments.replications)
    print(json.dumps(document, indent=1) if arguments.json else "\n".join(printed(document)))


if __name__ == "__main__":
    main()
