"""Where each policy beyond the paper wins and where it loses: `python -m benchmarks.policies`.

Per question, each policy is held against the paper's on the deployments of `policy_cases`, replication by replication on the
same requests: the change of the mean latency and of its 95th percentile in percent, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import simnmt
from benchmarks.policy_cases import QUESTIONS, Case, poisson
from simnmt.base.text_tables import format_table
from simnmt.experiment import draws
from simnmt.experiment.draws import Learnt, learn
from simnmt.profile.cost import Plane
from simnmt.results.number_text import percent_interval
from simnmt.results.places import ALL, Place
from simnmt.results.stability import LOAD_SUFFIX, device_names
from simnmt.results.statistics import change_percent

Row = dict[str, Any]


def run_case(case: Case, requests: int, replications: int) -> Iterator[Row]:
    """Yield a comparison for each pair of policies, network and load or rate."""
    with believing(case.planes_off):
        # Workloads of one scenario would share the devices.
        runs = {
            name: simnmt.run(_scenario(case, {name: workload}, requests, replications))
            for name, workload in _workloads(case, requests).items()
        }
    for (workload, result), network in product(runs.items(), case.networks):
        summary = {Place.of(row): row for row in result.summary_rows}
        places = {policy: Place(ALL, workload, network, policy) for policy in case.policies}
        at = [network] * (len(case.networks) > 1)
        if case.loads:
            at = [f"load {busiest_load(summary[places[case.pairs[0][1]]]):.2f}", *at]
        elif case.arrivals is not None:
            at = [workload, *at]
        for policy, baseline in case.pairs:
            ours, theirs = places[policy], places[baseline]
            yield {
                "case": case.name,
                "at": ", ".join(at),
                "policy": policy,
                "baseline": baseline,
                **{
                    f"{key}_percent": change(*(result.replicated[place][f"{key}_latency_s"] for place in (ours, theirs)))
                    for key in ("mean", "p95", "p99")
                },
                "away_percent": [100.0 * summary[place]["offloaded_share"] for place in (theirs, ours)],
            }


def change(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[float, float, float]:
    """Return by how many percent the mean of ours differs from theirs, with its 95 % interval; paired by replication."""
    estimate = change_percent(ours, theirs)
    assert estimate.low is not None and estimate.high is not None
    return estimate.mean, estimate.low, estimate.high


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
    """The rate at which the busiest box would have load 1 if nobody saw queues, by a short run at 1 request/s a box."""
    plain = case.pairs[0][1]
    rate_rps = float(next(iter(case.devices.values())).get("count", 1))
    few = {"quiet": {**lengths, "arrivals": poisson(rate_rps)}}
    blind = {plain: {**case.policies[plain], "sees_backlog": False}}
    result = simnmt.run(_scenario(case, few, min(requests, 5_000), 1) | {"policies": blind})
    return rate_rps / busiest_load(result.summary_rows[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--only", choices=QUESTIONS, action="append", help="one question; may be repeated (default: all)")
    parser.add_argument("--requests", type=int, default=20_000, help="of each run (default 20,000)")
    parser.add_argument("--replications", type=int, default=10, help="of each run (default 10)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        for question in arguments.only or QUESTIONS:
            for case in QUESTIONS[question](Path(folder)):
                print(f"{question}: {case.name}", file=sys.stderr)
                rows += run_case(case, arguments.requests, arguments.replications)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    texts, changes = ("case", "at", "policy", "baseline"), ("mean_percent", "p95_percent")
    lines = [[*(row[key] for key in texts), *(percent_interval(*row[key]) for key in changes)] for row in rows]
    print(format_table([*texts, "mean", "p95"], lines, len(texts)))


if __name__ == "__main__":
    main()
