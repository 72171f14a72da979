"""Devices, links, clocks and policies that do not fit together are refused at the key to be changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import describe_separate_runs, open_source

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
HOPS = GOOD[GOOD.index("    hops") : GOOD.index("devices:")]
END_NODES = GOOD.replace("  gateway: {profile", "  end_node: {profile").replace(", count: 20", "").replace(
    "      gateway: [{rtt: {constant_ms: 1}}, {rtt: {constant_ms: 2}}]\n", ""
)  # fmt: skip
LISTED = END_NODES.replace("region: {rtt: {constant_ms: 5}}", "region: [{rtt: {constant_ms: 5}}, {rtt: {constant_ms: 6}}]")
"""End nodes reach the first remote device over links of their own."""
ALONE = GOOD[: GOOD.index("  region: {pro")].replace(HOPS, "") + "policies: {edge: {}}\n"
FAILS = "failures: {mttf_s: 60, mttr_s: 5}"


def fault(tmp_path: Path, text: str, *overrides: str) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        open_source(path, overrides)
    (line,) = caught.value.lines
    return line.removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        END_NODES,
        LISTED,
        GOOD.replace('"@cp1"\n', '"@cp1"\n    clock: own\n'),
        GOOD.replace("count: 2, balancer: least_work", "count: 50, balancer: random"),
    ],
)
def test_parts_that_fit_are_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    assert len(open_source(tmp_path / "s.yaml").scenario.devices) == 3


def test_two_devices_need_no_hop(make_scenario: Callable[..., dict[str, Any]]) -> None:
    assert open_source(make_scenario()).scenario.networks["cp1"].hops == {}


@pytest.mark.parametrize(
    ("base", "before", "after", "place"),
    [
        (GOOD, "      region: {rtt: {constant_ms: 5}}\n", "", "9:7: networks.n.hops"),
        (GOOD, HOPS, "", "7:5: networks.n"),
        (GOOD, "devices:", '  m: {rtt: "@cp2"}\ndevices:', "11:6: networks.m"),
        (GOOD, "      region: {rtt", "      moon: {rtt", "10:13: networks.n.hops.moon"),
        (GOOD, "      region: {rtt", "      cloud: {rtt", "10:14: networks.n.hops.cloud"),
        (GOOD, "region: {rtt: {constant_ms: 5}}", "region: [{rtt: {constant_ms: 5}}]", "10:15: networks.n.hops.region"),
        (ALONE, '"@cp1"\n', '"@cp1"\n    hops: {gateway: {rtt: "@cp2"}}\n', "8:21: networks.n.hops.gateway"),
        (GOOD, "device: region", "device: regoin", "17:31: policies.near.device"),
        (GOOD, "policies:", "gap_analysis: true\npolicies:", ""),
        (GOOD, "count: 20}", "count: 20, balancer: round_robin}", "12:58: devices.gateway.balancer"),
        (GOOD, '"@cp1"\n', '"@cp1"\n    clock: pace\n', "8:12: networks.n.clock"),
        (GOOD, '"@cp1"\n', '"@cp1"\n    pace_s: 0.1\n', "8:13: networks.n.pace_s"),
        (GOOD, 'region: {profile: "@tx2-bilstm"', 'region: {profile: {v: "@tx2-bilstm"}', "13:21: devices.region.profile"),
        (GOOD, "end_nodes: 20", "end_nodes: 19", "12:44: devices.gateway.count"),
        (GOOD, "count: 2, balancer: least_work", "count: 50", "13:43: devices.region.count"),
        (
            GOOD,
            "{kind: poisson, rate_rps: 3}",
            "{kind: clients, clients: 5, think_time: {constant_s: 1}}",
            "12:44: devices.gateway.count",
        ),
        (GOOD, "region", "offloaded", "13:14: devices.offloaded"),
        (GOOD, "region", "region_busiest", "13:19: devices.region_busiest"),
        (GOOD, "count: 4", "count: 4, beyond_measured_batch: true", "14:73: devices.cloud.beyond_measured_batch"),
        (GOOD, "count: 4", "workers: 4, batching: {kind: mini, size: 4}", "14:49: devices.cloud.workers"),
        (GOOD, "count: 4", "workers: 4, sti: {deadline_ms: 9, preload_mb: 0}", "14:49: devices.cloud.workers"),
        (GOOD, "count: 4", f"sti: {{deadline_ms: 9, preload_mb: 0}}, {FAILS}", "14:88: devices.cloud.failures"),
        (
            END_NODES,
            '_node: {profile: "@tx2-bilstm"',
            '_node: {profile: "@tx2-bilstm", count: 20',
            "11:45: devices.end_node.count",
        ),
        (
            END_NODES,
            '  end_node: {profile: "@tx2-bilstm"}\n  region:',
            '  gw: {profile: "@cp1"}\n  end_node:',
            "12:13: devices.end_node",
        ),
        (
            END_NODES,
            "      region: {rtt",
            "      end_node: {rtt: {constant_ms: 1}}\n      region: {rtt",
            "9:17: networks.n.hops.end_node",
        ),
        (GOOD, "{constant_ms: 2}}", "{constant_ms: 2}, shared: true}", "9:74: networks.n.hops.gateway.1.shared"),
        (ALONE, '"@cp1"\n', '"@cp1"\n    shared: true\n', "8:13: networks.n.shared"),
        (GOOD, '"@cp1"\n', '"@cp1"\n    shared: true\n    clock: spread\n    uplink_mbps: up.csv\n', "8:13: networks.n.shared"),
        (
            GOOD,
            '"@cp1"\n',
            '"@cp1"\n    shared: true\n    outages: {mean_between_s: 60, mean_duration_s: 5}\n',
            "8:13: networks.n.shared",
        ),
        (
            GOOD,
            "{constant_ms: 2}}",
            "{constant_ms: 2}, outages: {intervals_s: [[1, 2]]}}",
            "9:75: networks.n.hops.gateway.1.outages",
        ),
        (GOOD, '"@cp1"\n', '"@cp1"\n    outages: trace\n    clock: spread\n', "8:14: networks.n.outages"),
        (GOOD, '"@tx2-bilstm", count: 20', f'"@tx2-bilstm", count: 20, {FAILS}', "12:58: devices.gateway.failures"),
        (
            GOOD,
            "count: 4",
            "batching: {kind: mini, size: 4}, failures: {mttf_s: 60, mttr_s: 5, requests: resumed}",
            "14:117: devices.cloud.failures.requests",
        ),
        (GOOD, ", arrivals: {kind: poisson, rate_rps: 3}}", "}\nlate_answers: {timeout_ms: 100}", "4:6: workloads.w"),
        (ALONE, "policies", "late_answers: {timeout_ms: 50}\npolicies", "10:15: late_answers"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_at_its_key(tmp_path: Path, base: str, before: str, after: str, place: str) -> None:
    assert before in base
    text = base.replace(before, after)
    if "gap_analysis" in text:
        text, place = text.replace("  cnmt: {}\n", "  edge: {}\n"), "15:15: gap_analysis"
    assert fault(tmp_path, text).startswith(f"s.yaml:{place}: ")


def test_a_fault_that_an_option_brings_in_names_it(tmp_path: Path) -> None:
    option = "policies.near.device=moon"
    assert fault(tmp_path, GOOD, option).startswith(f"--set {option}: policies.near.device: ")


def test_workloads_with_rates_are_named_separate_runs_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "simnmt.scenario")
    (tmp_path / "s.yaml").write_text(GOOD, encoding="utf-8")
    for kinds, separate in (
        (["poisson, rate_rps: 3"], False),
        (["back_to_back"] * 2, False),
        (["poisson, rate_rps: 3"] * 2, True),
    ):
        caplog.clear()
        workload = "workloads.{}={{lengths: '@de-en-news', end_nodes: 20, arrivals: {{kind: {}}}}}"
        overrides = [workload.format(name, kind) for name, kind in zip("wv", kinds, strict=False)]
        source = open_source(tmp_path / "s.yaml", overrides)
        assert any("separate" in line for line in caplog.messages) is separate
        assert bool(describe_separate_runs(source.scenario)) is separate
