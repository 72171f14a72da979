"""Mixes: workloads and sites that share devices, against runs without sites and against closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.draws import draw, learn_parts
from simnmt.experiment.policy_setup import UnitSetup
from simnmt.experiment.routes import lines_of
from simnmt.experiment.run import units_of
from simnmt.policies.decision import LeastTotal
from simnmt.report.words import verdicts
from simnmt.results.run import Run
from tests.campaigns.harness import deep
from tests.units import plan_of
from tests.worlds import needs_compiled

EXACT = {"lengths": {"lognormal": {"src_mean": 20.0, "src_sd": 0.0, "spread": 0.0}}}
"""A workload whose sentences all have the same lengths."""


def workload(rate_rps: float, lengths: Any = "@de-en-news", **keys: Any) -> dict[str, Any]:
    return {"lengths": lengths, "arrivals": {"kind": "poisson", "rate_rps": rate_rps}, **keys}


def scenario(**keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "mixed",
        "requests": 6_000,
        "replications": 2,
        "workloads": {"de-en": workload(4.0, end_nodes=3), "fr-en": workload(5.0, "@fr-en-news", end_nodes=2)},
        "networks": {"n": {"rtt": "@cp1", "hops": {"gateway": {"rtt": {"constant_ms": 20}}}}},
        "devices": {"gateway": {"profile": "@tx2-gru", "count": 2}, "cloud": {"profile": "@titan-xp-gru"}},
        "policies": {"edge": {}, "cloud": {}, "cnmt": {}, "aware": {"kind": "cnmt", "sees_backlog": True}, "oracle": {}},
    } | keys


def row_of(result: Run, policy: str, site: str = "all", workload: str = "all") -> dict[str, Any]:
    place = site, workload, policy
    (row,) = (row for row in result.summary_rows if (row["site"], row["workload"], row["policy"]) == place)
    return row


def assert_equal_columns(ours: Run, theirs: Run) -> None:
    for our_row, their_row in zip(ours.summary_rows, theirs.summary_rows, strict=True):
        assert our_row == their_row
    ours_requests, their_requests = ours.requests.drop(columns="site"), theirs.requests.drop(columns="site")
    pd.testing.assert_frame_equal(ours_requests, their_requests, check_exact=True)


@pytest.mark.parametrize("jobs", [1, deep(2)])
def test_one_site_written_as_sites_gives_equal_bytes(jobs: int) -> None:
    keys = {"workloads": {"de-en": workload(9.0, end_nodes=3)}, "warm_up_requests": 100, "slo": {"p95_ms": 900}}
    without, with_site = (simnmt.run(scenario(**keys, **sites), jobs=jobs) for sites in ({}, {"sites": {"hq": {}}}))
    assert_equal_columns(with_site, without)
    assert with_site.comparisons == without.comparisons


def test_a_site_that_shares_nothing_has_the_numbers_of_its_own_run() -> None:
    gateways = {"de-en": {"profile": "@tx2-gru", "workers": 2}, "fr-en": {"profile": "@tx2-bilstm"}}
    keys = scenario(policies={"edge": {}})
    sites = {name: {"workloads": [name], "devices": {"gateway": gateway}} for name, gateway in gateways.items()}
    result = simnmt.run({**keys, "sites": sites})
    for name, gateway in gateways.items():
        ours = row_of(result, "edge", name)
        devices = {**keys["devices"], "gateway": gateway}
        alone = {"workloads": {name: keys["workloads"][name]}, "requests": ours["requests"], "devices": devices}
        (theirs,) = simnmt.run({**keys, **alone}).summary_rows
        for column in ("mean_latency_s", "p95_latency_s", "mean_queue_s", "mean_transfer_s", "gateway_load"):
            assert ours[column] == pytest.approx(theirs[column], rel=1e-9), column
        assert ours["unstable"] == theirs["unstable"]


def test_what_a_site_writes_itself_is_the_same_as_what_the_scenario_writes() -> None:
    keys = scenario(workloads={"de-en": workload(9.0, end_nodes=3)})
    site = {key: {name: keys[key][name]} for key, name in (("networks", "n"), ("devices", "gateway"), ("policies", "cnmt"))}
    moved = {**keys, "sites": {"hq": {**site, "end_nodes": 3}}, "workloads": {"de-en": workload(9.0, end_nodes=7)}}
    assert_equal_columns(simnmt.run(moved), simnmt.run(keys))


def test_the_requests_of_a_workload_are_those_of_its_own_run() -> None:
    mixed = simnmt.run(scenario()).requests
    for name, rate_rps in (("de-en", 4.0), ("fr-en", 5.0)):
        alone = scenario(requests=round(6_000 * rate_rps / 9.0))
        alone["workloads"] = {name: alone["workloads"][name]}
        separate = simnmt.run(alone).requests.query("policy == 'cnmt'")
        part = mixed.query(f"policy == 'cnmt' and workload == '{name}'")
        for column in ("arrival_s", "src_len", "tgt_len", "tgt_len_predicted"):
            np.testing.assert_array_equal(part[column], separate[column])


@pytest.mark.parametrize("shares", [True, False])
def test_a_workload_may_have_an_objective_of_its_own(shares: bool) -> None:
    mixed = scenario(requests=600, share_devices=shares, objective="p95")
    mixed["workloads"]["fr-en"]["objective"] = "p80"
    result = simnmt.run(mixed, jobs=1)
    stable = [row for row in result.summary_rows if row["policy"] != "oracle" and not row["unstable"]]
    best = min((row for row in stable if row["workload"] == "fr-en"), key=lambda row: row["p80_latency_s"])["policy"]
    if shares:
        (recommended,) = result.recommendations
        assert recommended["objective"] == "p95"
        assert recommended["workloads"] == [{"workload": "fr-en", "objective": "p80", "policy": best}]
        assert f"fr-en alone, {best}" in verdicts(result)[0]["sentence"]
    else:
        german, french = result.recommendations
        assert [german["objective"], french["objective"], french["policy"]] == ["p95", "p80", best]
        assert "cnmt" in french["reason"]["kept"], "of one workload, lengths can be told"


def test_two_languages_on_one_box_wait_as_long_as_pollaczek_and_khinchine_say() -> None:
    languages = {"de-en": workload(1.5), "fr-en": workload(2.5, "@fr-en-news")}
    devices = {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}}
    networks = {"n": {"rtt": {"constant_ms": 50}}}
    keys = {"requests": 200_000, "replications": 5, "policies": {"edge": {}}}
    result = simnmt.run(scenario(workloads=languages, devices=devices, networks=networks, **keys))
    service_s = result.requests["t_exe_s"].to_numpy()
    load = 4.0 * service_s.mean()
    assert 0.3 < load < 0.9
    wait_s = 4.0 * (service_s**2).mean() / (2.0 * (1.0 - load))
    for name in ("all", *languages):  # Poisson arrivals see time averages, those of a part of them as well
        row = row_of(result, "edge", workload=name)
        assert row["mean_queue_s"] == pytest.approx(wait_s, rel=0.02)
        assert row["gateway_load"] == pytest.approx(load, rel=0.02)


def constant_s(seconds: float) -> Any:
    def cost(src_len: Any, tgt_len: Any) -> Any:
        return np.full(np.shape(src_len), seconds)

    return cost


def test_three_sites_and_one_server_have_the_means_of_their_closed_forms() -> None:
    execution_s, rates = 0.05, {"near": 3.0, "far": 2.0, "bare": 5.0}
    sites: dict[str, Any] = {
        name: {"share": rate, "networks": {"n": {"rtt": {"constant_ms": rtt_ms}, "uplink_mbps": 1e9, "downlink_mbps": 1e9}}}
        for (name, rate), rtt_ms in zip(rates.items(), (20.0, 120.0, 60.0), strict=True)
    }
    sites["bare"]["devices"] = {"gateway": None}
    keys = {
        "workloads": {"exact": workload(sum(rates.values()), **EXACT)},
        "devices": {"gateway": {"profile": constant_s(0.4)}, "cloud": {"profile": constant_s(execution_s)}},
        "policies": {"cloud": {}, "edge": {}},
        "sites": sites,
        "networks": {"n": {"rtt": {"constant_ms": 1}}},
    }
    result = simnmt.run(scenario(**keys, requests=100_000, replications=3))
    load = execution_s * sum(rates.values())
    waits_s = execution_s * load / (2.0 * (1.0 - load))  # M/D/1
    for name, rtt_s in (("near", 0.020), ("far", 0.120), ("bare", 0.060)):
        row = row_of(result, "cloud", name, "exact")
        assert row["mean_latency_s"] == pytest.approx(rtt_s + execution_s + waits_s, rel=0.02)
        assert row["requests"] == pytest.approx(100_000 * rates[name] / 10.0, rel=0.02)
    # Under the policy that keeps everything, the site without a gateway alone reaches the server.
    alone = row_of(result, "edge", "bare", "exact")
    load = execution_s * rates["bare"]
    assert alone["mean_latency_s"] == pytest.approx(0.060 + execution_s + execution_s * load / (2.0 * (1.0 - load)), rel=0.02)
    assert alone["cloud_share"] == 1.0 and row_of(result, "edge", "near", "exact")["gateway_share"] == 1.0


def test_two_languages_that_each_load_a_box_by_more_than_half_overload_it() -> None:
    rate_rps = 0.55 / 0.25
    languages = {name: workload(rate_rps, **EXACT) for name in ("de-en", "fr-en")}
    keys = {"devices": {"gateway": {"profile": constant_s(0.25)}}, "policies": {"edge": {}}, "networks": {"n": {"rtt": "@cp1"}}}
    shared = simnmt.run(scenario(workloads=languages, **keys))
    for name in ("all", *languages):
        row = row_of(shared, "edge", workload=name)
        assert row["gateway_load"] == pytest.approx(1.10, rel=0.03)
        assert row["unstable_device"] == "gateway"
    apart = simnmt.run(scenario(workloads=languages, share_devices=False, **keys))
    assert [row["unstable"] for row in apart.summary_rows] == [None, None]


def test_a_rare_site_or_workload_does_not_hide_that_a_shared_device_is_overloaded() -> None:
    keys: dict[str, Any] = {
        "devices": {"gateway": {"profile": constant_s(0.01)}, "cloud": {"profile": constant_s(0.25)}},
        "policies": {"cloud": {}, "edge": {}},
        "networks": {"n": {"rtt": {"constant_ms": 5}}},
        "requests": 20_000,
    }
    at_sites = simnmt.run(scenario(workloads={"w": workload(4.4, **EXACT)}, sites={"big": {"share": 199}, "rare": {}}, **keys))
    languages = {"big": workload(4.38, **EXACT), "rare": workload(0.02, **EXACT)}
    for result in (at_sites, simnmt.run(scenario(workloads=languages, **keys))):
        judged = {row["policy"]: [] for row in result.summary_rows}
        for row in result.summary_rows:
            judged[row["policy"]].append((row["unstable_device"], row["unstable_replications"]))
        assert judged == {"cloud": [("cloud", 2)] * 3, "edge": [(None, None)] * 3}


def test_the_energy_of_parts_counts_the_warm_up_as_that_of_all_does() -> None:
    power = {"power": {"idle_w": 5.0, "busy_w": 15.0}}
    devices = {"gateway": {"profile": "@tx2-gru", **power}, "cloud": {"profile": "@titan-xp-gru", **power}}
    keys = {"requests": 2_000, "replications": 1, "devices": devices, "policies": {"edge": {}}}
    rows = [simnmt.run(scenario(warm_up_requests=count, **keys)).summary_rows for count in (0, 1_000)]
    for all_counted, cut in zip(*rows, strict=True):
        assert cut["mean_energy_j"] == pytest.approx(all_counted["mean_energy_j"], rel=1e-12)


def test_end_nodes_of_each_workload_have_devices_of_their_own() -> None:
    devices = {"end_node": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}}
    result = simnmt.run(scenario(devices=devices, networks={"n": {"rtt": "@cp1"}}))
    at_nodes = result.requests.query("policy == 'edge'")
    servers = {name: set(of_workload["server"]) for name, of_workload in at_nodes.groupby("workload", observed=True)}
    assert servers == {"de-en": {0, 1, 2}, "fr-en": {3, 4}}


SITES: dict[str, Any] = {
    "berlin": {"share": 2, "devices": {"gateway": {"profile": "@tx2-gru", "workers": 2, "overhead": 2}}},
    "branches": {"count": 2, "networks": {"n": {"rtt": "@cp1", "rtt_mean_ms": {"dist": "lognorm", "s": 0.5, "scale": 40}}}},
    "bare": {"devices": {"gateway": None}, "workloads": ["fr-en"]},
}
"""An own device, drawn lines, and no device."""


class ShortStays:
    """Keeps short sentences at the gateway: a policy in Python, of which no column can be made."""

    def __init__(self, knowledge: simnmt.Knowledge) -> None:
        self.last = len(knowledge.devices) - 1

    def prepare(self, src_len: Any) -> Any:
        return lambda request, delay_s: self.last * bool(src_len[request] > 15)


@needs_compiled
def test_both_engines_agree_on_sites_whose_policies_differ() -> None:
    policies = {"mine": ShortStays, "cnmt": {}, "aware": {"kind": "cnmt", "sees_backlog": True}, "oracle": {}}
    sites = {**SITES, "berlin": {**SITES["berlin"], "policies": {"mine": {"kind": "edge"}}}}
    keys = scenario(requests=1_500, sites=sites, policies=policies)
    compiled, reference = (simnmt.run(keys, engine=engine) for engine in ("compiled", "reference"))
    ours, theirs = compiled.requests, reference.requests
    np.testing.assert_array_equal(ours[["request_id", "target", "server"]], theirs[["request_id", "target", "server"]])
    np.testing.assert_allclose(ours["latency_s"], theirs["latency_s"], rtol=1e-9)
    at_berlin = ours.query("policy == 'mine' and site == 'berlin'")
    assert not at_berlin["target"].any()
    elsewhere = ours.query("policy == 'mine' and site == 'branches'")
    np.testing.assert_array_equal(elsewhere["target"] == 1, elsewhere["src_len"] > 15)


@pytest.mark.parametrize("policy", ["cnmt", "aware"])
def test_no_policy_of_a_mix_sees_the_truth(policy: str) -> None:
    plan = plan_of(scenario(sites=SITES, policies={"cnmt": {}, "aware": {"kind": "cnmt", "sees_backlog": True}}))
    unit = units_of(plan, None)[0]
    drawn = draw(unit, learn_parts(unit))
    (block,) = drawn.requests.blocks(len(drawn.requests))
    unknown = tuple(np.full(len(block), np.nan) for _ in block.execution_s)
    blind = replace(block, execution_s=unknown, uplink_s=unknown[1:], downlink_s=unknown[1:], tgt_len=unknown[0])
    setup = UnitSetup.of(unit, drawn, policy).composed(unit)
    seeing, unseeing = (setup.decide_for(known) for known in (block, blind))
    assert isinstance(seeing, LeastTotal) and isinstance(unseeing, LeastTotal)
    for ours, theirs in zip(seeing.execution_s, unseeing.execution_s, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_each_site_pays_for_the_bytes_on_its_own_line() -> None:
    keys = {"workloads": {"w": workload(9.0)}, "policies": {"cloud": {}}, "requests": 1_000, "replications": 1}
    devices = {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}}

    def cost(site: str = "all", **sites: dict[str, Any]) -> float | None:
        lines = {
            name: {"networks": {"n": {"rtt": {"constant_ms": 10}, "price_per_gb": 0.0 if name == "free" else 100.0}}}
            for name in sites
        }
        result = simnmt.run(scenario(**keys, devices=devices, sites={name: lines[name] | sites[name] for name in sites}))
        spent: float | None = row_of(result, "cloud", site, "w")["mean_cost"]
        return spent

    alone = cost(many={})
    for paid in ({"count": 9}, {"share": 9}, {"share": 9, "devices": {"gateway": None}}):
        for order in (("many", "free"), ("free", "many")):
            sites = {name: {"many": paid, "free": {}}[name] for name in order}
            assert cost("many", **sites) == pytest.approx(alone, rel=0.05)
            assert cost("free", **sites) == 0.0
            assert cost(**sites) == pytest.approx(0.9 * alone, rel=0.06)


def test_a_gateway_of_two_workloads_costs_once() -> None:
    keys = {"workloads": {"x": workload(4.0), "y": workload(4.0)}, "policies": {"edge": {}}, "requests": 400, "replications": 1}
    here = {"workloads": ["x", "y"], "devices": {"gateway": {"profile": "@tx2-gru", "price_per_hour": 10.0}}}
    there = {"workloads": ["y"], "devices": {"gateway": {"profile": "@tx2-gru"}}}
    result = simnmt.run(scenario(**keys, sites={"here": here, "there": there}))
    span_s = float((result.requests["arrival_s"] + result.requests["latency_s"]).max())
    assert row_of(result, "edge")["mean_cost"] * 400 == pytest.approx(10.0 * span_s / 3600.0)


def test_faults_of_lines_are_those_of_a_site_alone() -> None:
    lines = {"n": {"rtt": {"constant_ms": 50}, "outages": {"intervals_s": [[0.0, 1e6]]}}}
    sites = {"cut": {"networks": lines}, "well": {}}
    networks = {"n": {"rtt": {"constant_ms": 50}}}
    keys = {"requests": 1_000, "replications": 1, "late_answers": {"timeout_ms": 900}, "policies": {"cloud": {}}}
    result = simnmt.run(scenario(sites=sites, networks=networks, **keys))
    cut, well = (row_of(result, "cloud", site) for site in sites)
    assert cut["gateway_share"] == 1.0 and cut["fallback_share"] > 0.0
    assert well["gateway_share"] == well["fallback_share"] == 0.0


def test_a_box_has_the_workers_of_its_site() -> None:
    result = simnmt.run(scenario(sites=SITES, policies={"edge": {}}, replications=1))
    busiest = {site: row_of(result, "edge", site)["gateway_busiest_load"] for site in SITES}
    assert row_of(result, "edge")["gateway_busiest_load"] == max(busiest.values())
    requests = result.requests.query("site == 'berlin'")
    span_s = requests["arrival_s"].max()
    assert row_of(result, "edge", "berlin")["gateway_load"] == pytest.approx(requests["t_exe_s"].sum() / (2.0 * span_s))


def test_the_gap_analysis_of_a_mix_is_of_all_requests() -> None:
    gaps = simnmt.run(scenario(requests=1_000, sites=SITES, policies={"cnmt": {}}, gap_analysis=True)).gaps
    assert {(row["site"], row["workload"]) for row in gaps} == {("all", "all")}
    assert next(row for row in gaps if row["removed"] == "everything")["change_percent"] < 0.0


@pytest.mark.parametrize("hops", [{}, {"gateway": {"rtt": "@cp1"}}])
def test_true_lengths_at_a_site_are_those_of_its_own_requests(hops: dict[str, Any]) -> None:
    """With a link to the gateways, requests are decided on in another order than that of issue."""
    keys = {"workloads": {"w": workload(9.0, end_nodes=2)}, "networks": {"n": {"rtt": "@cp1", "hops": hops}}}
    unit = units_of(plan_of(scenario(**keys, sites={"here": {}, "there": {}})), None)[0]
    drawn = draw(unit, learn_parts(unit))
    for part in drawn.parts:
        assert part.rows is not None and part.numbers is not None
        np.testing.assert_array_equal(part.tgt_len[part.numbers], drawn.requests.tgt_len[part.rows])


TOP_UP = {"profile": "@cpu1-gru", "batching": {"kind": "top_up", "size": 8, "refill": "free"}}
MOMENTS = {"lengths": "@fr-en-news", "arrivals": np.cumsum(np.full(9_000, 0.2)), "end_nodes": 2}
RATED = workload(4.0, end_nodes=2)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (
            {"workloads": {"de-en": workload(4.0, end_nodes=2), "fr-en": MOMENTS}, "share_devices": True},
            "workloads.fr-en.arrivals",
        ),
        ({"sites": {"hq": {}}, "profile_uncertainty": {"profiles": 20}}, "profile_uncertainty"),
        ({"sites": {"far": {"networks": {"n": {"rtt": "@cp1", "clock": "spread"}}}}}, "sites.far.networks.n.clock"),
        ({"sites": {"here": {}, "there": {"devices": {"gateway": TOP_UP}}}}, "sites.there.devices.gateway"),
    ],
)
def test_what_cannot_be_shared_is_refused_at_its_key(keys: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        simnmt.run(scenario(**keys))
    assert caught.value.what.startswith(f"{place}: ")


def test_profiles_are_drawn_for_workloads_that_share_devices() -> None:
    keys = {"requests": 400, "devices": {"gateway": {"profile": "@cpu1-gru"}, "cloud": {"profile": "@cpu2-gru"}}}
    uncertain = scenario(**keys, policies={"edge": {}}, profile_uncertainty={"profiles": 20})
    row = row_of(simnmt.run(uncertain), "edge", workload="fr-en")
    assert row["mean_latency_s_predicted_low"] < row["mean_latency_s"] < row["mean_latency_s_predicted_high"]


@pytest.mark.parametrize("engine", [pytest.param("compiled", marks=needs_compiled), "reference"])
def test_a_link_to_the_gateway_may_be_at_one_site_alone(engine: Any) -> None:
    near, far = ({"rtt": {"constant_ms": 30}, "hops": hops} for hops in ({}, {"gateway": {"rtt": {"constant_ms": 20}}}))
    sites = {"near": {"networks": {"n": near}}, "far": {"networks": {"n": far}, "workloads": ["de-en"]}}
    keys = scenario(sites=sites, policies={"edge": {}}, requests=500, replications=1)
    result = simnmt.run({**keys, "networks": {"n": near}}, engine=engine)
    between_s = row_of(result, "edge", "far")["mean_transfer_s"] - row_of(result, "edge", "near")["mean_transfer_s"]
    assert between_s == pytest.approx(0.020, rel=0.01)


@needs_compiled
def test_batches_of_two_profiles_share_a_box_alike_in_both_engines() -> None:
    batching = {"kind": "top_up", "size": 8, "refill": "free"}
    cloud = {"profile": {"de-en": "@cpu1-gru", "fr-en": "@cpu2-gru"}, "batching": batching}
    keys = {"devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": cloud}, "policies": {"cloud": {}}, "replications": 1}
    runs = [simnmt.run(scenario(requests=1_000, **keys), engine=engine) for engine in ("compiled", "reference")]
    for name in ("all", "de-en", "fr-en"):
        ours, theirs = (row_of(result, "cloud", workload=name) for result in runs)
        assert ours["mean_latency_s"] == pytest.approx(theirs["mean_latency_s"], rel=1e-9)
        assert ours["cloud_load"] == pytest.approx(theirs["cloud_load"], rel=1e-9)
    assert 0.0 < row_of(runs[0], "cloud")["cloud_load"] < 1.0


def test_a_copy_of_a_site_may_have_no_request_but_a_site_must_have_some() -> None:
    few = scenario(requests=60, replications=1, policies={"edge": {}})
    sites = {"branches": {"count": 50}}
    assert row_of(simnmt.run(few | {"sites": sites}), "edge")["requests"] == 60
    with pytest.raises(InputError) as caught:
        simnmt.run(few | {"sites": sites | {"rome": {"share": 1e-6}}})
    assert caught.value.exit_status == 2


def test_series_of_several_sites_begin_apart_in_the_first_replication_too() -> None:
    unit = units_of(plan_of(scenario(sites={"hq": {}, "branches": {"count": 2}})), None)[0]
    begins_s = {line.name: line.routes.begin_s for line in lines_of(unit)}
    assert begins_s["n/hq 0"] == 0.0
    assert len({*begins_s.values()}) == len(begins_s) == 3


def test_the_batching_devices_of_each_site_are_loaded_as_in_a_run_of_its_own() -> None:
    batching = {"kind": "top_up", "size": 8, "refill": "free"}
    sites = {name: {"devices": {"gateway": {"profile": f"@{name}-gru", "batching": batching}}} for name in ("cpu1", "cpu2")}
    devices = {"gateway": {"profile": "@cpu1-gru", "batching": batching}, "cloud": {"profile": "@titan-xp-gru"}}

    def run(rate_rps: float, **sites: Any) -> Run:
        keys = {"requests": int(10 * rate_rps), "replications": 1, "networks": {"n": {"rtt": {"constant_ms": 10}}}}
        return simnmt.run(
            scenario(**keys, devices=devices, policies={"edge": {}}, workloads={"w": workload(rate_rps)}, sites=sites)
        )

    both = run(80.0, **sites)
    loads = {name: row_of(both, "edge", name, "w")["gateway_load"] for name in sites}
    for name, site in sites.items():
        (alone,) = run(40.0, **{name: site}).summary_rows
        assert loads[name] == pytest.approx(alone["gateway_load"], rel=0.1)
    whole = row_of(both, "edge", workload="w")
    assert whole["gateway_load"] == pytest.approx(sum(loads.values()) / 2.0, rel=0.01)
    assert whole["gateway_busiest_load"] == pytest.approx(max(loads.values()), rel=0.01)
    assert loads["cpu1"] > 1.0 > loads["cpu2"] and whole["unstable_device"] == "gateway"


def test_what_a_later_site_states_counts_as_what_the_first_one_does() -> None:
    priced = {"networks": {"n": {"rtt": {"constant_ms": 10}, "price_per_gb": 100.0}}, "policies": {"edge": {"kind": "cnmt"}}}
    sites: dict[str, Any] = {"plain": {}, "priced": priced}
    keys = {"requests": 300, "replications": 1, "policies": {"edge": {}, "cloud": {}}, "objective": "cost_per_request"}
    for names in (["plain", "priced"], ["priced", "plain"]):
        result = simnmt.run(
            scenario(
                **keys,
                workloads={"w": workload(2.0, end_nodes=2)},
                networks={"n": {"rtt": {"constant_ms": 10}}},
                sites={name: sites[name] for name in names},
            )
        )
        assert row_of(result, "cloud", workload="w")["mean_cost"] > 0.0
        ages_s = [row_of(result, "edge", name, "w")["mean_estimate_age_s"] for name in ("plain", "priced")]
        assert ages_s[0] is None and ages_s[1] > 0.0


def test_lengths_do_not_depend_on_the_order_of_sites() -> None:
    sites = {name: {"devices": {"gateway": {"profile": f"@{name}-gru"}}} for name in ("tx2", "cpu1")}
    devices = {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}}
    cases = [
        {
            site.name: site.cases["w"]
            for site in plan_of(scenario(devices=devices, workloads={"w": workload(2.0)}, sites=ordered)).sites
        }
        for ordered in (sites, dict(reversed(sites.items())))
    ]
    tables = [case.table for by_site in cases for case in by_site.values()]
    assert {table.end_of_sentence for table in tables} == {"both"}, "as the profile with decode steps counts"
    assert len({table.tgt_len.tobytes() for table in tables}) == 1
    for name in sites:
        assert cases[0][name].targets[0].profile.plane == cases[1][name].targets[0].profile.plane
