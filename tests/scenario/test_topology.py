"""What no single key can know: devices, links and policies that do not fit together are refused at the key to be changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.removed import KEYS
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
  asks: {kind: cnmt, transfer_estimate: smoothed}
"""
HOPS = GOOD[GOOD.index("    hops") : GOOD.index("devices:")]
END_NODES = GOOD.replace("  gateway: {profile", "  end_node: {profile").replace(", count: 20", "").replace(
    "      gateway: [{rtt: {constant_ms: 1}}, {rtt: {constant_ms: 2}}]\n", ""
)  # fmt: skip


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        open_source(path, overrides)
    assert caught.value.exit_status == 2
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/")


LISTED = END_NODES.replace("region: {rtt: {constant_ms: 5}}", "region: [{rtt: {constant_ms: 5}}, {rtt: {constant_ms: 6}}]")
"""End nodes reach the first remote device over links of their own."""


@pytest.mark.parametrize("text", [GOOD, END_NODES, LISTED, GOOD.replace('"@cp1"\n', '"@cp1"\n    clock: own\n')])
def test_what_fits_together_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    assert len(open_source(tmp_path / "s.yaml").scenario.devices) == 3


def test_two_devices_need_no_hop(make_scenario: Callable[..., dict[str, Any]]) -> None:
    assert open_source(make_scenario()).scenario.networks["cp1"].hops == {}


CASES = {
    "a tier that no link leads to": (
        ("      region: {rtt: {constant_ms: 5}}\n", ""),
        "s.yaml:9:7: networks.n.hops: region cannot be reached: no link leads there from gateway "
        "(give networks.n.hops.region, such as {rtt: {constant_ms: 5}})",
    ),
    "no hops at all": (
        (
            HOPS,
            "",
        ),
        "s.yaml:7:5: networks.n: region cannot be reached: no link leads there from gateway "
        "(give networks.n.hops.region, such as {rtt: {constant_ms: 5}})",
    ),
    "a hop to a device misspelt": (
        ("      region: {rtt", "      regoin: {rtt"),
        "s.yaml:10:7: networks.n.hops.regoin: no device is called regoin (did you mean region?)",
    ),
    "a hop to a device that is none": (
        ("      region: {rtt", "      moon: {rtt"),
        "s.yaml:10:7: networks.n.hops.moon: no device is called moon (known: gateway, region)",
    ),
    "a hop to the last device": (
        ("      region: {rtt", "      cloud: {rtt"),
        "s.yaml:10:7: networks.n.hops.cloud: cloud is the last device (its link is networks.n itself: rtt, uplink_mbps, ...)",
    ),
    "a fixed policy on a device misspelt": (
        ("device: region", "device: regoin"),
        "s.yaml:17:31: policies.near.device: no device is called regoin (did you mean region?)",
    ),
    "a fixed policy on a device that is none": (
        ("device: region", "device: moon"),
        "s.yaml:17:31: policies.near.device: no device is called moon (known: gateway, region, cloud)",
    ),
    "a balancer on the first": (
        ("count: 20}", "count: 20, balancer: round_robin}"),
        "s.yaml:12:48: devices.gateway.balancer: end nodes are attached to the first device, "
        "so round_robin has nothing to choose (remove it)",
    ),
    "a pace where requests arrive by themselves": (
        ('    rtt: "@cp1"\n', '    rtt: "@cp1"\n    clock: pace\n'),
        "s.yaml:8:12: networks.n.clock: pace is for requests back to back, but workload w has arrivals of kind poisson "
        "(remove it: left out, each workload meets the trace as suits it)",
    ),
    "a pace without the clock": (
        ('    rtt: "@cp1"\n', '    rtt: "@cp1"\n    pace_s: 0.1\n'),
        "s.yaml:8:5: networks.n.pace_s: no workload meets networks.n on the clock pace "
        "(remove it, or set the network's clock: pace)",
    ),
    "profiles of some workloads": (
        ('region: {profile: "@tx2-bilstm"', 'region: {profile: {v: "@tx2-bilstm"}'),
        "s.yaml:13:21: devices.region.profile: names v where the workloads are w "
        "(give one profile for each, or a single one for all)",
    ),
    "more gateways than end nodes": (
        ("end_nodes: 20", "end_nodes: 19"),
        "s.yaml:12:44: devices.gateway.count: 20 boxes, but workload w has 19 end nodes to attach to them, "
        "so some would never be used (set workloads.w.end_nodes, and clients in a closed loop, to 20 or more)",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_does_not_fit_has_one_line_with_place_and_remedy(tmp_path: Path, case: tuple[tuple[str, str], str]) -> None:
    (before, after), message = case
    assert before in GOOD
    assert complaint(tmp_path, GOOD.replace(before, after)) == message


OF_END_NODES = {
    "a count of end nodes": (
        ('end_node: {profile: "@tx2-bilstm"', 'end_node: {profile: "@tx2-bilstm", count: 20'),
        "devices.end_node.count: every end node has one (remove it; workloads.NAME.end_nodes says how many)",
    ),
    "end nodes behind another device": (
        ('  end_node: {profile: "@tx2-bilstm"}\n  region:', '  gateway: {profile: "@tx2-bilstm"}\n  end_node:'),
        "devices.end_node: stands behind another device (name the devices nearest first: end_node comes first)",
    ),
    "a balancer of end nodes": (
        ('end_node: {profile: "@tx2-bilstm"', 'end_node: {profile: "@tx2-bilstm", balancer: random'),
        "devices.end_node.balancer: end nodes are attached to the first device, so random has nothing to choose (remove it)",
    ),
    "a link to an end node": (
        ("      region: {rtt", "      end_node: {rtt: {constant_ms: 1}}\n      region: {rtt"),
        "networks.n.hops.end_node: no link leads to an end node (remove it)",
    ),
}


@pytest.mark.parametrize("case", OF_END_NODES.values(), ids=OF_END_NODES.keys())
def test_so_has_what_does_not_fit_end_nodes_with_a_device(tmp_path: Path, case: tuple[tuple[str, str], str]) -> None:
    (before, after), message = case
    assert before in END_NODES
    assert complaint(tmp_path, END_NODES.replace(before, after)).split(": ", 1)[1] == message


def test_attached_boxes_behind_the_first_need_end_nodes_too(tmp_path: Path) -> None:
    text = GOOD.replace("count: 2, balancer: least_work", "count: 50")
    assert complaint(tmp_path, text).startswith(
        "s.yaml:13:43: devices.region.count: 50 boxes, but workload w has 20 end nodes to attach to them"
    )
    (tmp_path / "s.yaml").write_text(text.replace("count: 50", "count: 50, balancer: random"), encoding="utf-8")
    assert open_source(tmp_path / "s.yaml").scenario.devices["region"].count == 50


def test_what_an_option_brings_in_names_it(tmp_path: Path) -> None:
    message = complaint(tmp_path, GOOD, "policies.near.device=moon")
    assert message.startswith("--set policies.near.device=moon: policies.near.device: no device is called moon")


@pytest.mark.parametrize("name", ["offloaded", "misrouted", "region_busiest"])
def test_no_device_is_called_what_other_columns_are(tmp_path: Path, name: str) -> None:
    """A device `gateway_busiest` would have overwritten the load of the busiest gateway, and hidden that it is overloaded."""
    message = complaint(tmp_path, GOOD.replace("region", name))
    assert message.startswith(f"s.yaml:13:3: devices.{name}: {name} would stand for other numbers of the summary")


def test_only_the_way_from_the_end_nodes_may_be_a_list(tmp_path: Path) -> None:
    """A gateway that met another link for each end node would have one estimate for them all."""
    message = complaint(tmp_path, GOOD.replace("region: {rtt: {constant_ms: 5}}", "region: [{rtt: {constant_ms: 5}}]"))
    assert message.startswith("s.yaml:10:15: networks.n.hops.region: a list of links is for the way from the end nodes")


def test_fewer_clients_than_attached_boxes_leave_some_idle(tmp_path: Path) -> None:
    thinking = "{kind: clients, clients: 5, think_time: {constant_s: 1}}"
    message = complaint(tmp_path, GOOD.replace("{kind: poisson, rate_rps: 3}", thinking))
    assert "20 boxes, but workload w has 5 end nodes to attach to them" in message


def test_a_gap_analysis_needs_a_policy_to_analyse(tmp_path: Path) -> None:
    text = GOOD.replace("  cnmt: {}\n", "  edge: {}\n").replace("  asks: {kind: cnmt, transfer_estimate: smoothed}\n", "")
    assert complaint(tmp_path, text + "gap_analysis: true\n").startswith(
        "s.yaml:18:15: gap_analysis: there is no policy of kind"
    )


def test_of_several_networks_the_one_that_lacks_a_link_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("devices:", '  m: {rtt: "@cp2"}\ndevices:')
    assert complaint(tmp_path, text).startswith("s.yaml:11:6: networks.m: region cannot be reached")


def test_devices_have_names_that_can_head_columns(tmp_path: Path) -> None:
    message = complaint(tmp_path, GOOD.replace("region", "Region-1"))
    assert "Region-1" in message
    assert "^[a-z][a-z0-9_]*$" in message


def test_the_network_itself_leads_to_a_single_device(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("  region: {profile")] + "policies: {cnmt: {}}\n"
    assert "networks.n.hops.gateway: gateway is the last device (its link is networks.n itself" in complaint(tmp_path, text)


ALONE = GOOD[: GOOD.index("  region: {pro")].replace(HOPS, "") + "policies: {edge: {}}\n"
FAILS = "failures: {mttf_s: 60, mttr_s: 5}"
FAULTS = {
    "failures of the device that decides": (
        ('"@tx2-bilstm", count: 20', f'"@tx2-bilstm", count: 20, {FAILS}'),
        "s.yaml:12:48: devices.gateway.failures: the first device decides, and is always up "
        "(give failures of the devices behind it)",
    ),
    "a batch that would be resumed": (
        (
            "balancer: two_choices",
            "balancer: two_choices, batching: {kind: mini, size: 4}, failures: {mttf_s: 60, mttr_s: 5, requests: resumed}",
        ),
        "s.yaml:14:150: devices.cloud.failures.requests: a box that batches forgets its batch when it fails, so nothing is "
        "resumed (write requeued or lost)",
    ),
    "faults of requests back to back": (
        (", arrivals: {kind: poisson, rate_rps: 3}}", "}\nlate_answers: {timeout_ms: 100}"),
        "s.yaml:4:3: workloads.w: faults happen at moments of a run, but workload w has requests back to back, without "
        "any (give workloads.w.arrivals, such as {kind: poisson, rate_rps: 2})",
    ),
    "outages before the decision": (
        ("{constant_ms: 2}}", "{constant_ms: 2}, outages: {intervals_s: [[1, 2]]}}"),
        "s.yaml:9:66: networks.n.hops.gateway.1.outages: outages is for links behind gateway, which decides, and this one "
        "leads to it (remove it)",
    ),
    "outages of the trace whatever the time": (
        ('"@cp1"\n', '"@cp1"\n    outages: trace\n    clock: spread\n'),
        "s.yaml:8:5: networks.n.outages: outages of the trace need a time axis, but requests meet it one by one (set "
        "networks.n.clock: arrival, or another form of outages)",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_that_the_world_does_not_know_are_refused(tmp_path: Path, case: str) -> None:
    (old, new), expected = FAULTS[case]
    assert old in GOOD
    assert (
        complaint(tmp_path, GOOD.replace(old, new, 1).replace("  asks: {kind: cnmt, transfer_estimate: smoothed}\n", ""))
        == expected
    )


def test_late_answers_need_a_second_device(tmp_path: Path) -> None:
    text = ALONE.replace("policies", "late_answers: {timeout_ms: 50}\npolicies")
    assert complaint(tmp_path, text).startswith("s.yaml:10:1: late_answers: ")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (
            "policies:\n",
            "late_answers: {timeout_ms: 90, hedge_after_ms: 50}\npolicies:\n",
            "15:32: late_answers.hedge_after_ms",
        ),
        ('"@cp1"\n', '"@cp1"\n    retransmission: {times: 2}\n', "8:5: networks.n.retransmission"),
        ("{constant_ms: 2}}", "{constant_ms: 2}, loss: {}}", "9:66: networks.n.hops.gateway.1.loss"),
    ],
)
def test_keys_of_faults_that_were_removed_are_refused_with_what_replaces_them(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    message = complaint(tmp_path, GOOD.replace(old, new, 1))
    assert f"s.yaml:{place}: " in message
    assert any(remedy in message for remedy in KEYS.values())


def test_workloads_with_rates_are_named_separate_runs_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "simnmt.scenario")
    first = "{lengths: '@de-en-news', end_nodes: 20, arrivals: {kind: %s}}"
    for workloads, separate in (
        ({"w": "poisson, rate_rps: 3"}, False),
        ({"w": "back_to_back", "v": "back_to_back"}, False),
        ({"w": "poisson, rate_rps: 3", "v": "poisson, rate_rps: 4"}, True),
    ):
        caplog.clear()
        overrides = [f"workloads.{name}={first % arrivals}" for name, arrivals in workloads.items()]
        (tmp_path / "s.yaml").write_text(GOOD, encoding="utf-8")
        source = open_source(tmp_path / "s.yaml", overrides)
        assert any("w and v" in line or "separate" in line for line in caplog.messages) is separate
        assert bool(describe_separate_runs(source.scenario)) is separate
