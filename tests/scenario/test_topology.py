"""Devices, links, clocks and policies that do not fit together are refused at the key to be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import Source, describe_separate_runs, open_source

GOOD = """\
version: 1
name: x
workloads:
  w: {lengths: "@de-en-news", end_nodes: 20, arrivals: {kind: poisson, rate_rps: 3}}
networks:
  n:
    rtt: "@cp1"
    hops:
      gateway: [{rtt: {constant_ms: 1}}, {rtt: {constant_ms: 2}}]
      region: {rtt: {constant_ms: 5}}
devices:
  gateway: {profile: "@tx2-bilstm", count: 20}
  region: {profile: "@tx2-bilstm", count: 2, balancer: least_work}
  cloud: {profile: "@titan-xp-bilstm", count: 4, balancer: two_choices}
policies:
  cnmt: {}
  near: {kind: fixed, device: region}
"""
END_NODES = ["devices={end_node: {profile: '@a'}, region: {profile: '@a', balancer: random}, cloud: {profile: '@b'}}"]
END_NODES += ["networks.n.hops={region: {rtt: {constant_ms: 5}}}"]
ALONE = ["devices={gateway: {profile: '@a', count: 20}}", "networks.n.hops={}", "policies={edge: {}}"]
LINK, STI, BATCHING = "{rtt: {constant_ms: 5}}", "{deadline_ms: 9, preload_mb: 0}", "{kind: mini, size: 4}"
FAILS = "failures={mttf_s: 60, mttr_s: 5}"


def source_of(folder: Path, *overrides: str) -> Source:
    (folder / "s.yaml").write_text(GOOD, encoding="utf-8")
    return open_source(folder / "s.yaml", overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        END_NODES,
        [*END_NODES, f"networks.n.hops.region=[{LINK}, {LINK}]"],
        ["networks.n.clock=own"],
        ["devices.region={profile: '@a', count: 50, balancer: random}"],
        ["devices={gateway: {profile: '@a'}, cloud: {profile: '@b'}}", "networks.n.hops={}", "policies={cnmt: {}}"],
    ],
)
def test_parts_that_fit_are_taken(tmp_path: Path, overrides: list[str]) -> None:
    assert source_of(tmp_path, *overrides).scenario.devices


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["networks.n.hops={}"], "networks.n"),
        ([f"networks.n.hops={{gateway: {LINK}}}"], "networks.n.hops"),
        (["networks.m={rtt: '@cp2'}"], "networks.m"),
        ([f"networks.n.hops.moon={LINK}"], "networks.n.hops.moon"),
        ([f"networks.n.hops.cloud={LINK}"], "networks.n.hops.cloud"),
        ([f"networks.n.hops.region=[{LINK}]"], "networks.n.hops.region"),
        ([*ALONE, f"networks.n.hops.gateway={LINK}"], "networks.n.hops.gateway"),
        ([*END_NODES, f"networks.n.hops.end_node={LINK}"], "networks.n.hops.end_node"),
        (["policies.near.device=regoin"], "policies.near.device"),
        (["policies={edge: {}}", "gap_analysis=true"], "gap_analysis"),
        (["networks.n.clock=pace"], "networks.n.clock"),
        (["networks.n.pace_s=0.1"], "networks.n.pace_s"),
        (["devices.region.profile={v: '@a'}"], "devices.region.profile"),
        (["devices.gateway.balancer=round_robin"], "devices.gateway.balancer"),
        (["workloads.w.end_nodes=19"], "devices.gateway.count"),
        (["devices.region={profile: '@a', count: 50}"], "devices.region.count"),
        (["workloads.w.arrivals={kind: clients, clients: 5, think_time: {constant_s: 1}}"], "devices.gateway.count"),
        ([*ALONE, "devices={offloaded: {profile: '@a'}}"], "devices.offloaded"),
        ([*ALONE, "devices={a_busiest: {profile: '@a'}}"], "devices.a_busiest"),
        (["devices.cloud.beyond_measured_batch=true"], "devices.cloud.beyond_measured_batch"),
        ([f"devices.cloud.batching={BATCHING}", "devices.cloud.workers=4"], "devices.cloud.workers"),
        ([f"devices.cloud.sti={STI}", "devices.cloud.workers=4"], "devices.cloud.workers"),
        ([f"devices.cloud.sti={STI}", "devices.cloud.decoder={fused: true}"], "devices.cloud.decoder"),
        ([f"devices.cloud.sti={STI}", f"devices.cloud.batching={BATCHING}"], "devices.cloud.batching"),
        ([f"devices.cloud.sti={STI}", f"devices.cloud.{FAILS}"], "devices.cloud.failures"),
        ([*END_NODES, "devices.end_node.count=20"], "devices.end_node.count"),
        ([*ALONE, "devices={a: {profile: '@a'}, end_node: {profile: '@a'}}"], "devices.end_node"),
        (["networks.n.hops.gateway.1.outages={intervals_s: [[1, 2]]}"], "networks.n.hops.gateway.1.outages"),
        (["networks.n.outages=trace", "networks.n.clock=spread"], "networks.n.outages"),
        ([f"devices.gateway.{FAILS}"], "devices.gateway.failures"),
        (["workloads.w.arrivals={kind: back_to_back}", "late_answers={timeout_ms: 100}"], "workloads.w"),
        ([*ALONE, "late_answers={timeout_ms: 50}"], "late_answers"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_at_its_key(tmp_path: Path, overrides: list[str], key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        source_of(tmp_path, *overrides)
    assert f": {key}: " in str(caught.value)


def test_the_key_is_named_with_its_place_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        source_of(tmp_path, "workloads.w.end_nodes=19")
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:12:37: devices.gateway.count: ")


@pytest.mark.parametrize(
    ("kinds", "separate"),
    [(["poisson, rate_rps: 3"], False), (["back_to_back"] * 2, False), (["poisson, rate_rps: 3"] * 2, True)],
)
def test_workloads_with_rates_are_separate_runs(tmp_path: Path, kinds: list[str], separate: bool) -> None:
    workload = "workloads.{}={{lengths: '@de-en-news', end_nodes: 20, arrivals: {{kind: {}}}}}"
    workloads = (workload.format(name, kind) for name, kind in zip("wv", kinds, strict=False))
    source = source_of(tmp_path, "share_devices=false", *workloads)
    assert bool(describe_separate_runs(source.scenario)) is separate
