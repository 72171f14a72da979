"""The claims of docs/reference/policies.md about each policy beyond the paper, small: where it wins, loses or changes nothing.

`benchmarks.policies` measures the same at full size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from benchmarks import policies
from benchmarks.policy_cases import QUEUES, Case, capped_table, constant, poisson, series, slowed
from simnmt.results.places import ALL, Place

Deployment = Callable[[Path], dict[str, Any]]
"""The keys of a case that say what stands where, its files written to a folder."""
BILSTM = {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}}


def changes(case: Case, requests: int = 3_000, replications: int = 5) -> dict[tuple[str, str], dict[str, Any]]:
    """The case's comparisons by place and policy; place is empty where there is but one."""
    return {(row["at"], row["policy"]): row for row in policies.run_case(case, requests, replications)}


def faster(change: tuple[float, float, float]) -> bool:
    return change[2] < 0.0


def slower(change: tuple[float, float, float]) -> bool:
    return change[1] > 0.0


def gateway_fills_first(folder: Path) -> dict[str, Any]:
    return {"devices": BILSTM, "networks": {"n": {"rtt": "@cp1"}}}


def server_fills_first(folder: Path) -> dict[str, Any]:
    slow = {"profile": slowed(folder, "titan-xp-bilstm", 3.0)}
    return {"devices": {**BILSTM, "cloud": slow}, "networks": constant(20)}


def many_gateways_that_never_fill(folder: Path) -> dict[str, Any]:
    """Each sends a twentieth of what the server gets, so its view of the queue there holds next to nothing of its own."""
    roomy = {"profile": "@tx2-bilstm", "count": 20, "workers": 50}
    return {"devices": {**BILSTM, "gateway": roomy}, "networks": constant(60), "end_nodes": 200}


DEPLOYMENTS = [gateway_fills_first, server_fills_first, many_gateways_that_never_fill]


DREADED = ((1.3, 0.7), (0.7, 1.3))
"""Factors of times that a policy expects at the gateway and at the server."""


@pytest.mark.parametrize(
    ("deployment", "planes_off"),
    [(deployment, ()) for deployment in DEPLOYMENTS] + [(deployment, off) for deployment in DEPLOYMENTS[:2] for off in DREADED],
)
def test_seeing_queues_is_never_slower_and_pays_under_load(
    tmp_path: Path, deployment: Deployment, planes_off: tuple[float, ...]
) -> None:
    """Where the gateway has a queue, with times that are 30 % wrong as well."""
    case = Case("a case", policies=QUEUES, arrivals=poisson, loads=(0.2, 0.8), planes_off=planes_off, **deployment(tmp_path))
    low, high = changes(case).values()
    assert not slower(low["mean_percent"])
    assert faster(high["mean_percent"]) or planes_off
    assert high["mean_percent"][0] < 0.0 and not slower(high["mean_percent"])
    if not planes_off:
        assert faster(high["p95_percent"]) and high["mean_percent"][0] < low["mean_percent"][0]


def test_where_the_gateway_is_believed_too_fast_and_never_fills_seeing_queues_costs(tmp_path: Path) -> None:
    """Too little is sent away already, and a wait at the server is one more reason to send less."""
    workloads = {"w": {"lengths": "@de-en-news", "end_nodes": 200, "arrivals": poisson(40.0)}}
    small = {"version": 1, "name": "small", "requests": 2_000, "replications": 5, "workloads": workloads}
    deployment = many_gateways_that_never_fill(tmp_path)
    with policies.believing((0.7, 1.3)):
        run = simnmt.run(small | {"policies": QUEUES} | {key: deployment[key] for key in ("devices", "networks")})
    blind, seeing = (run.totals_s[Place(ALL, "w", "n", name)] for name in QUEUES)
    assert slower(policies.change(seeing, blind))


@cache
def lengths_compared(table: str, model: str) -> dict[str, dict[str, Any]]:
    """Distribution against line, and percentile against mean, back to back on the paper's devices."""
    devices = {name: {"profile": f"@{box}-{model}", "outside_range_share": 1} for name, box in
               (("gateway", "tx2"), ("cloud", "titan-xp"))}  # fmt: skip
    distribution = {"kind": "cnmt", "lengths": "distribution"}
    rules = {"line": {"kind": "cnmt"}, "distribution": distribution, "p95": {**distribution, "minimises": "p95"}}
    pairs = (("distribution", "line"), ("p95", "distribution"))
    lengths = table if table.startswith("@") else {"table": table}
    case = Case("lengths", devices, {"cp1": {"rtt": "@cp1"}}, rules, lengths=lengths, pairs=pairs)
    return {policy: row for (_, policy), row in changes(case, requests=6_000, replications=10).items()}


def test_the_distribution_pays_where_lengths_bend_and_nowhere_else(tmp_path: Path) -> None:
    """Translations that are cut off at 20 tokens bend the mean; the line goes on rising."""
    bent = lengths_compared(str(capped_table(tmp_path, "de-en-news", 20)), "bilstm")
    straight = lengths_compared("@en-zh-docs", "marian")
    assert faster(bent["distribution"]["mean_percent"])
    assert abs(straight["distribution"]["mean_percent"][0]) < 0.05


def test_the_percentile_rule_shortens_the_tail_and_pays_with_the_mean() -> None:
    p95 = lengths_compared("@en-zh-docs", "marian")["p95"]
    assert p95["p95_percent"][2] < -3.0 and p95["p99_percent"][2] < -8.0
    assert p95["mean_percent"][1] > 0.5 and p95["mean_percent"][2] < 3.0


def test_smoothing_pays_where_the_network_jitters_and_costs_where_it_shifts(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    jitter = 50.0 + random.exponential(30.0, 3_000)
    shifts = np.repeat(random.choice([40.0, 80.0, 120.0], 75), 40)
    # A sample a request: what jitters is each request's RTT.
    networks = {
        name: {"rtt": series(tmp_path, name, rtt_ms, 1.0), "clock": "spread"}
        for name, rtt_ms in (("jitter", jitter), ("shifts", shifts))
    }
    smoothed = {"kind": "cnmt", "transfer_estimate": "smoothed"}
    rules = {"last": {"kind": "cnmt"}, "smoothed": smoothed}
    changed = changes(Case("transfer", BILSTM, networks, rules, pairs=(("smoothed", "last"),)), replications=10)
    assert changed["jitter", "smoothed"]["mean_percent"][2] < -3.0
    assert changed["shifts", "smoothed"]["mean_percent"][1] > 1.0


def test_a_low_quantile_pays_where_the_remote_overhead_has_a_tail_and_costs_where_the_rtt_shifts(tmp_path: Path) -> None:
    """With a tail C-NMT keeps outliers and stays local; a constant overhead changes no decision."""
    level_ms = np.repeat(np.random.default_rng(1).choice([6.0, 8.0, 10.0, 12.0, 14.0], 75), 40)
    networks = {"still": {"rtt": {"constant_ms": 9.6}}}
    networks["shifts"] = {"rtt": series(tmp_path, "shifts", level_ms, 1.0), "clock": "spread"}
    queries = {"lognormal": {"src_mean": 4.0, "src_sd": 3.0, "sentences": 5_000}, "fertility": {"src": 1.0, "tgt": 1.0}}
    rules = {"last": {"kind": "cnmt"}, "quantile": {"kind": "cnmt", "transfer_estimate": "quantile"}}
    pairs = (("quantile", "last"),)
    stalls = {**BILSTM, "cloud": {**BILSTM["cloud"], "overhead": {"quantiles_ms": [0.8] * 100 + [99.2]}}}
    tail = changes(Case("a tail", stalls, {"still": networks["still"]}, rules, queries, pairs), replications=10)["", "quantile"]
    assert tail["mean_percent"][2] < -5.0 and tail["p95_percent"][2] < -10.0
    assert tail["away_percent"][0] < 30.0 < 35.0 < tail["away_percent"][1]
    even = {**BILSTM, "cloud": {**BILSTM["cloud"], "overhead": 1.3}}
    constant_ones = changes(Case("constant", even, networks, rules, queries, pairs))
    assert constant_ones["still", "quantile"]["mean_percent"] == (0.0, 0.0, 0.0)
    assert constant_ones["shifts", "quantile"]["mean_percent"][1] > 0.3
