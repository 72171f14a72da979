"""`simnmt plan` against brute force, and how often a plan that is called sure holds: `python -m benchmarks.plan --json`.

200 deployments of a batching cloud (boxes, batching, policy) at one rate. Brute force runs all of them in all replications and
chooses by the same rule. A plan agrees with it if its objective lies within 1 % of the brute force's, or if the paired interval
of their difference contains 0. Of plans that are called 95 % sure, single runs with fresh seeds, and with freshly drawn
profiles, are counted that keep the service level.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.plan.candidates import Candidate, Minimised, make_candidates, objective
from simnmt.experiment.plan.search import CERTAINTY, DRAWS, Search, choose, known_certainty, with_boxes
from simnmt.experiment.plan.trial import Level, Site
from simnmt.results.service_level import Requirement
from simnmt.results.statistics import over_replications
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source
from simnmt.scenario.varied_keys import parse_varied_key

RATE_RPS = 700.0
LEVEL = "p95_ms<=250"
SCENARIO: dict[str, Any] = {
    "version": 1,
    "name": "plan",
    "replications": 5,
    "workloads": {
        "news": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1.0}, "end_nodes": 40},
    },
    "networks": {"near": {"rtt": {"constant_ms": 20.0}}},
    "devices": {
        "gateway": {"profile": "@cpu1-gru", "count": 40},
        "cloud": {"profile": "@cpu2-gru", "batching": {"kind": "top_up", "size": 32, "refill": "free"}},
    },
    "fit": {"inferences": 0},
    "policies": {"cloud": {}, "queue-aware": {"kind": "cnmt", "batch": "reported", "sees_backlog": True}},
}
_BATCHINGS = [f"{{kind: mini, size: {size}}}" for size in (4, 8, 16, 32)]
_BATCHINGS += [f"{{kind: top_up, size: {size}, refill: free}}" for size in (4, 8, 16, 32)]
_BATCHINGS += [f"{{kind: top_up, size: {size}, threshold: immediate, refill: free}}" for size in (16, 32)]
VARIED = ("devices.cloud.count=1:10", "devices.cloud.batching=" + ",".join(_BATCHINGS))


def opener(seed: int, requests: int) -> Any:
    """Return what opens the scenario with the values of a candidate."""

    def open_plan(overrides: Sequence[Override]) -> RunPlan:
        given = [Override.of("seed", seed), Override.of("requests", requests)]
        source = open_source(SCENARIO, [*given, *overrides])
        return read_inputs(source.scenario, Path.cwd(), source.document)

    return open_plan


def search_of(minimised: Minimised, open_plan: Any) -> Search:
    """Return a search among the candidates."""
    candidates = make_candidates([parse_varied_key(text) for text in VARIED], open_plan, RATE_RPS)
    scenario = candidates[0].sites[0].plan.scenario
    return Search(
        candidates,
        Level([Requirement.parse(LEVEL)]),
        objective(minimised, scenario),
        replications=scenario.replications,
        requests=scenario.requests,
    )


def brute_force(minimised: Minimised, open_plan: Any) -> tuple[Search, Candidate | None]:
    """Return the choice after all replications of all candidates."""
    search = search_of(minimised, open_plan)
    for candidate in search.candidates:
        candidate.stage = len(search.stages) - 2
        search.judge(candidate)
        if candidate.rejected:
            candidate.rejected = "misses the level"
    return search, choose(search, open_plan, CERTAINTY, DRAWS)[0]


def compare(seed: int, requests: int, minimised: Minimised) -> dict[str, Any]:
    """Return what the plan and the brute force choose, and what they cost."""
    open_plan = opener(seed, requests)
    search = search_of(minimised, open_plan)
    begin_s = time.process_time()
    search.reject_impossible()
    plan = choose(search, open_plan, CERTAINTY, DRAWS)[0]
    plan_s = time.process_time() - begin_s
    begin_s = time.process_time()
    whole, best = brute_force(minimised, open_plan)
    brute_s = time.process_time() - begin_s
    assert plan is not None and best is not None
    ours, theirs = ([outcome.objective for outcome in chosen.outcomes] for chosen in (plan, best))
    difference = over_replications([our - their for our, their in zip(ours, theirs, strict=True)])
    above = sum(ours) / sum(theirs) - 1.0
    return {
        "seed": seed,
        "candidates": len(search.candidates),
        "plan": plan.describe(),
        "brute_force": best.describe(),
        "objective_above_percent": 100.0 * above,
        "agrees": above <= 0.01 or not difference.excludes_zero,
        "requests": search.requests_simulated,
        "brute_force_requests": whole.requests_simulated,
        "share_of_requests": search.requests_simulated / whole.requests_simulated,
        "plan_cpu_s": plan_s,
        "brute_force_cpu_s": brute_s,
        "p_slo": known_certainty(plan).p_slo,
        **held(search, plan, seed, requests),
    }


FRESH = 100


def held(search: Search, plan: Candidate, seed: int, requests: int) -> dict[str, Any]:
    """Return how many of 100 runs with fresh seeds, and of 100 with fresh profiles too, keep the level of a sure plan."""
    if known_certainty(plan).p_slo < CERTAINTY:
        return {"held_seeds": None, "held_profiles": None}
    drawn = opener(seed, requests)(
        [*plan.overrides, Override.of("profile_uncertainty", {"profiles": DRAWS + FRESH})],
    )
    seeds = profiles = 0
    for number in range(FRESH):
        other = _with_seed(plan.sites, 1_000 + seed * FRESH + number)
        seeds += search.simulate(plan, other, 0, requests).verdict.excess <= 0.0
        fresh = with_boxes(plan.sites, drawn, DRAWS + number)
        profiles += search.simulate(plan, fresh, 1_000 + number, requests).verdict.excess <= 0.0
    return {"held_seeds": seeds, "held_profiles": profiles}


def _with_seed(sites: Sequence[Site], seed: int) -> list[Site]:
    return [
        replace(site, plan=replace(site.plan, scenario=site.plan.scenario.model_copy(update={"seed": seed}))) for site in sites
    ]


def main() -> None:
    """Print the comparison of every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--minimise", choices=("servers", "latency"), default="servers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [compare(seed, options.requests, options.minimise) for seed in range(1, options.seeds + 1)]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"seed {row['seed']}: {row['plan']}; brute force {row['brute_force']}; {row['objective_above_percent']:+.2f} %, "
            f"{'agrees' if row['agrees'] else 'differs'}, {100 * row['share_of_requests']:.1f} % of the requests, "
            f"{row['plan_cpu_s']:.1f} s against {row['brute_force_cpu_s']:.1f} s of processor time, p {row['p_slo']:.3f}, "
            f"held with fresh seeds {row['held_seeds']}, with fresh profiles {row['held_profiles']} of {FRESH}",
            flush=True,
        )


if __name__ == "__main__":
    main()
