"""A wrong scenario is refused by lines that begin with the place and the key; wording is free."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from simnmt.scenario.document import apply_overrides, parse_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import open_source
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document

WHOLE: dict[str, Any] = {
    "version": 1,
    "name": "x",
    "workloads": {"w": {"lengths": "@w"}},
    "networks": {"n": {"rtt": "@n"}},
    "devices": {"gateway": {"profile": "@g"}, "cloud": {"profile": "@c"}},
    "policies": {"edge": {}},
}
LENGTHS = "source: a, target: b, src_unit: word, tgt_unit: word"
STREAM = "devices: {a: {profile: x, sti: {deadline_ms: 5, preload_mb: 3, %s}}}"


def fault(text: str, *overrides: str) -> str:
    """Return the line about a scenario that begins with `text`; the keys that it lacks are added below."""
    with pytest.raises(ScenarioError) as caught:
        data = parse_document(text, "s.yaml").data
        rest = {key: value for key, value in WHOLE.items() if key not in data}
        document = parse_document(f"{text.rstrip()}\n{write_document(rest)}" if rest else text, "s.yaml")
        validate(apply_overrides(document, overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("policies:\n  cnmt:\n    len_slop: 0.8\n", "3:5: policies.cnmt.len_slop"),
        ("policies: {cnmt: {len_slope: a}}", "1:30: policies.cnmt.len_slope"),
        ("policies: {cnmtt: {}}", "1:12: policies.cnmtt.kind"),
        ("policies: {x: {kind: edgy}}", "1:22: policies.x.kind"),
        ("fit:\n", "1:1: fit"),
        ("networks: {a: {rtt: {constant_ms: 50ms}}}", "1:35: networks.a.rtt.constant_ms"),
        ("networks: {}", "1:11: networks"),
        (f"name: {'x' * 81}", "1:7: name"),
        ("fit: {share: 1e999}", "1:14: fit.share"),
        ("version: true", "1:10: version"),
        ("devices: {a: {profile: x, execution: {kind: {b: 1}}}}", "1:38: devices.a.execution"),
        ("networks:\n  a: {uplink_mbps: 3}", "2:3: networks.a.rtt"),
        ("workloads: {a: {lengths: '@x', arrivals: {rate_rps: 1}}}", "1:32: workloads.a.arrivals.kind"),
        (
            "workloads: {a: {lengths: '@x', arrivals: {kind: clients, clients: 5, think_time: {constant_s: -1}}}}",
            "1:95: workloads.a.arrivals.think_time.constant_s",
        ),
        ("workloads: {a: {lengths: [[3, 4]]}}", "1:26: workloads.a.lengths"),
        ("networks: {a: {rtt: {object: Series}}}", "1:21: networks.a.rtt"),
        ("networks: {a: {rtt: {constant_ms: 1, csv: x}}}", "1:38: networks.a.rtt.csv"),
        ("devices: {gateway: {profile: {by_workload: 1}}}", "1:44: devices.gateway.profile.by_workload"),
        ('networks: {"a.b": {rtt: x, rtt_mean_ms: a}}', '1:41: networks."a.b".rtt_mean_ms'),
        ("requests: 9\nwarm_up_requests: 9", "2:19: warm_up_requests"),
        ("profile_uncertainty: {profiles: 20, confidence: 0.99}", "1:33: profile_uncertainty.profiles"),
        ("objective: p40", "1:12: objective"),
        ("metrics: [p95_ms, p95]", "1:19: metrics.1"),
        ("slo: {p95_ms: 300, p95: 1}", "1:25: slo.p95"),
        ("slo: {stable: 3}", "1:15: slo.stable"),
        (STREAM % "cache_mb: 2", "1:74: devices.a.sti.cache_mb"),
        (STREAM % "keeps_cache: true, keeps_preload: false", "1:77: devices.a.sti.keeps_cache"),
        (STREAM % "reclaimed_after_s: 1", "1:83: devices.a.sti.reclaimed_after_s"),
        (STREAM % "changes: [{at_s: 2, preload_mb: 1}, {at_s: 1, preload_mb: 2}]", "1:73: devices.a.sti.changes"),
        (STREAM % "changes: [{at_s: 2}]", "1:74: devices.a.sti.changes.0"),
        ("devices: {a: {profile: x, power: {idle_w: 20, busy_w: 15}}}", "1:55: devices.a.power.busy_w"),
    ],
)
def test_a_fault_is_one_line_at_its_key(text: str, place: str) -> None:
    line = fault(text)
    assert line.startswith(f"s.yaml:{place}: ") and line.isprintable() and len(line) < 400


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("policies: {cnmt: {len_slop: 1}}", "(did you mean len_slope?)"),
        ("policies: {edge: {zzz: 1}}", "(known: kind)"),
        ("networks: {a: {rtt: {constant_ms: 1, csv: x}}}", "a.rtt.csv: does not go with constant_ms"),
        (
            "workloads: {a: {lengths: '@x', repeats: {zipf: 1, over: 2, recorded: x}}}",
            "recorded: does not go with zipf and over",
        ),
        ("policies: {x: {kind: edgy}}", "(did you mean edge?)"),
        ("workloads: {a: {lengths: '@x', arrivals: {kind: poisson, rate_rp: 1}}}", "(did you mean rate_rps?)"),
        ("networks: {a: {rtt: {csv: a, time_unit: seconds}}}", "'s' or 'ms'"),
    ],
)
def test_a_slip_is_answered_by_the_known_names(text: str, remedy: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        open_source({**WHOLE, **parse_document(text).data})
    assert remedy in str(caught.value)


def test_the_first_fault_of_the_file_is_shown() -> None:
    assert fault("fit: {share: 2.0}\nrequests: 0\nseed: a\n").startswith("s.yaml:1:14: fit.share: ")
    assert fault("k: 1\nseed: a\n").startswith("s.yaml:1:1: k: ")


def test_a_fault_of_an_override_names_it() -> None:
    line = fault("policies:\n  cnmt: {}\n", "policies.cnmt.len_slop=0.8")
    assert line.startswith("--set policies.cnmt.len_slop=0.8: policies.cnmt.len_slop: ")
    assert fault("seed: 1\nrequests: 0", "seed=x").startswith("--set seed=x: seed: ")
    for override, name in (("policies.cnmtt.len_slope=1", "cnmt"), ("networks.naer.uplink_mbps=5", "near")):
        line = fault("networks: {near: {rtt: x}}\npolicies: {cnmt: {}}", override)
        assert line.startswith(f"--set {override}: ") and line.endswith(f"(did you mean {name}?)")


def test_an_error_survives_the_way_between_processes() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(apply_overrides(parse_document("sed: 1\nx: 1", "s.yaml"), ["name=a/b"]))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.exit_status, again.path, again.line, again.column) == (2, "s.yaml", 1, 1)
