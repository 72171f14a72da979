"""Plans of workloads and sites that share devices: the capacity of a mix, its factor, and boxes at sites and behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment import capacity
from simnmt.experiment.accounts import NoAnswers
from simnmt.experiment.trial import deployable_placements, opener
from simnmt.report.study_pages import render_plan
from simnmt.scenario.source import open_source
from tests.experiment.test_mixes import EXACT, constant_s, workload
from tests.world.theory import m_g_1_wait

SERVICE_S = {"short": 0.01, "long": 0.05}
RATES = {"short": 6.0, "long": 2.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replication's worth of the search for a sure rate."""
    monkeypatch.setattr(capacity, "SURE_STEPS", 1)


def lengths_of(seconds: float) -> Any:
    return {"lognormal": {"src_mean": 1000.0 * seconds, "src_sd": 0.0, "spread": 0.0}}


def by_source(src_len: Any, tgt_len: Any) -> Any:
    return np.asarray(src_len) / 1000.0


def mixed(**keys: Any) -> dict[str, Any]:
    """Two workloads with constant services of different lengths at one box."""
    return {
        "version": 1,
        "name": "mixed",
        "requests": 20_000,
        "replications": 3,
        "workloads": {name: workload(RATES[name], lengths_of(SERVICE_S[name])) for name in RATES},
        "networks": {"n": {"rtt": {"constant_ms": 1}}},
        "devices": {"gateway": {"profile": by_source}},
        "fit": {"inferences": 0},
        "policies": {"edge": {}},
    } | keys


def test_the_capacity_of_a_box_for_two_workloads_is_that_of_m_g_1_of_their_mixture() -> None:
    load, total_rps = 0.7, sum(RATES.values())
    by_rate = [rate / total_rps for rate in RATES.values()]
    service_s = np.average(list(SERVICE_S.values()), weights=by_rate)
    squared = np.average(np.square(list(SERVICE_S.values())), weights=by_rate)
    wait_s = service_s * m_g_1_wait(load, np.sqrt(squared / service_s**2 - 1.0))
    # The longer sentences come to their limit first.
    slo = f"mean_ms<={1e3 * (SERVICE_S['long'] + wait_s)}"
    best = simnmt.plan(mixed(), slo).best
    assert best.workload == "all"
    assert best.rate_rps == pytest.approx(load / service_s, rel=0.02)
    assert best.low <= load / service_s <= best.high
    assert best.factor == pytest.approx(best.rate_rps / total_rps)
    assert best.outcome.loads == {"gateway": pytest.approx(load, rel=0.03)}
    assert " for long, " in best.outcome.binding
    values = {check.workload: value for check, value in best.outcome.values.items()}
    assert values["short"] == pytest.approx(1e3 * (SERVICE_S["short"] + wait_s), rel=0.05)


def test_the_rate_of_a_mix_is_below_a_load_of_1_of_all_workloads_together() -> None:
    work_s = sum(RATES[name] * SERVICE_S[name] for name in RATES)
    keys = {"requests": 4_000, "replications": 2}
    best = simnmt.plan(mixed(**keys), "mean_ms<=1000000", precision=0.1).best
    assert best.factor == pytest.approx(1.0 / work_s, rel=0.05) and "saturated" in best.outcome.binding
    apart = simnmt.plan(mixed(share_devices=False, **keys), "mean_ms<=1000000", precision=0.1)
    rates = {row.workload: row.rate_rps for row in apart.rows}
    assert rates == {name: pytest.approx(1.0 / SERVICE_S[name], rel=0.05) for name in RATES}
    assert {row.factor for row in apart.rows} == {None}


def test_each_workload_is_judged_by_its_own_level() -> None:
    workloads = {name: {**part, "slo": {"mean_ms": 30.0}} for name, part in mixed()["workloads"].items()}
    workloads["long"]["slo"] = {"mean_ms": 500.0}
    answer = simnmt.plan(mixed(workloads=workloads, requests=4_000, replications=2), precision=0.1)
    assert {(str(check.requirement), check.workload) for check in answer.best.outcome.values} == {
        ("mean_ms<=30", "short"),
        ("mean_ms<=500", "long"),
    }
    assert answer.best.outcome.binding.startswith("mean_ms<=30 for short")
    assert "mean_ms<=30 for short" in answer.level and answer.document()["capacity"]["factor"] == answer.best.factor


def offices(**keys: Any) -> dict[str, Any]:
    """Three sites, one of them without a gateway and one repeated, in front of a server."""
    sites = {
        "berlin": {"share": 2.0},
        "rome": {"devices": {"gateway": None}},
        "branches": {
            "count": 4,
            "share": 0.5,
            "networks": {"n": {"rtt": {"constant_ms": 80}}},
            "devices": {"gateway": {"profile": constant_s(0.4), "count": 2, "price_per_hour": 0.1}},
        },
    }
    return {
        "version": 1,
        "name": "offices",
        "requests": 2_000,
        "replications": 2,
        "workloads": {"de-en": workload(10.0, **EXACT, end_nodes=3), "fr-en": workload(5.0, **EXACT, end_nodes=2)},
        "networks": {"n": {"rtt": {"constant_ms": 20}}},
        "devices": {
            "gateway": {"profile": constant_s(0.4), "price_per_hour": 0.5},
            "server": {"profile": constant_s(0.05), "price_per_hour": 2.0},
        },
        "fit": {"inferences": 0},
        "policies": {"cnmt": {"sees_backlog": True}},
        "sites": sites,
    } | keys


def test_boxes_at_sites_and_behind_are_counted_apart_with_their_price() -> None:
    vary = ["devices.server.count=1:3", "sites.*.devices.gateway.workers=1,2"]
    plan = simnmt.plan(offices(), "mean_ms<=250", rate=40.0, vary=vary, certainty=0.5)
    assert plan.choice is not None
    chosen = plan.document()["chosen"]
    assert {name: (row["sites"], row["boxes"], row["count"]) for name, row in chosen["boxes_by_site"].items()} == {
        "berlin": (1, {"gateway": 1}, 1),
        "rome": (1, {}, 0),
        "branches": (4, {"gateway": 2}, 8),
        "behind": (1, {"server": plan.choice.choice["devices.server.count"]}, plan.choice.choice["devices.server.count"]),
    }
    prices = {name: row["price_per_hour"] for name, row in chosen["boxes_by_site"].items()}
    assert prices == pytest.approx({"berlin": 0.5, "rome": 0.0, "branches": 0.8, "behind": 2.0 * chosen["boxes"]["server"]})
    assert chosen["boxes"]["gateway"] == 9 and chosen["servers"] == 9 + chosen["boxes"]["server"]
    for candidate in plan.candidates:
        gateways = [site.scenario.devices["gateway"] for site in candidate.placements[0].plan.sites if site.has_device]
        assert {gateway.workers for gateway in gateways} == {candidate.choice["sites.*.devices.gateway.workers"]}
    assert "boxes at sites" in render_plan(plan) and "4 x 2 gateway" in render_plan(plan)
    rates = {name: part.arrivals.rate_rps for name, part in plan.scenario.workloads.items()}  # type: ignore[union-attr]
    assert rates == pytest.approx({"de-en": 40.0 * 2 / 3, "fr-en": 40.0 / 3})


def test_the_cost_of_a_deployment_is_that_of_the_boxes_that_its_policy_may_use() -> None:
    """Gateways were once charged to a policy that sends everything to the server."""
    priced = offices(policies={"server": {"kind": "fixed", "device": "server"}, "cnmt": {"sees_backlog": True}})
    vary = ["devices.server.count=2"]
    plan = simnmt.plan(priced, "mean_ms<=1000", rate=15.0, vary=vary, minimise="cost", certainty=0.5)
    assert plan.choice is not None and plan.choice.policy == "server"
    for candidate in plan.candidates:
        per_hour = sum(boxes.price_per_hour or 0.0 for boxes in candidate.boxes_by_site.values())
        assert plan.value(candidate) * 15.0 * 3600.0 == pytest.approx(per_hour, rel=0.1)


def test_the_level_must_hold_at_each_site() -> None:
    best = simnmt.plan(offices(), "mean_ms<=250", precision=0.2).best
    where = Counter((check.site, check.workload) for check in best.outcome.values)
    assert where == Counter([("all", "de-en"), ("all", "fr-en"), ("berlin", "all"), ("rome", "all"), ("branches", "all")])
    far = offices()
    far["sites"]["branches"]["networks"] = {"n": {"rtt": {"constant_ms": 2_000}}}
    far["sites"]["branches"]["devices"]["gateway"]["profile"] = constant_s(0.9)
    answer = simnmt.plan(far, "mean_ms<=800")
    assert not answer.is_met and min(answer.best.outcome.headroom.items(), key=lambda pair: pair[1])[0].site == "branches"


@pytest.mark.parametrize(
    "rare",
    [
        {"workloads": {"w": workload(9.0)}, "sites": {"often": {"share": 1000}, "seldom": {}}},
        {"workloads": {"often": workload(9.0), "seldom": workload(0.005)}},
    ],
)
def test_a_short_run_of_a_plan_has_requests_of_rare_sites_and_workloads(rare: dict[str, Any]) -> None:
    devices = {"gateway": {"profile": constant_s(0.01)}, "cloud": {"profile": constant_s(0.01)}}
    keys = rare | {"devices": devices, "policies": {"cloud": {}}, "requests": 4_000, "replications": 1}
    best = simnmt.plan(mixed(**keys), "mean_ms<=1000000", precision=0.5).best
    assert best.rate_rps == pytest.approx(100.0, rel=0.2)


def test_a_site_that_is_cut_off_misses_every_level_in_a_plan_and_refuses_a_run() -> None:
    line = {"n": {"rtt": {"constant_ms": 10}, "outages": {"intervals_s": [[0, 1e9]]}}}
    devices = {"gateway": {"profile": constant_s(0.01)}, "cloud": {"profile": constant_s(0.01)}}
    sites = {"well": {}, "cut": {"networks": line}}
    keys = {"workloads": {"w": workload(9.0)}, "sites": sites, "devices": devices, "requests": 100, "replications": 1}
    cut_off = mixed(**keys, policies={"cloud": {}})
    best = simnmt.plan(cut_off, "mean_ms<=500", precision=0.5).best
    assert best.rate_rps == 0.0 and best.outcome.excess > 0.0
    assert best.outcome.lost_share == pytest.approx(0.5, abs=0.2)
    with pytest.raises(NoAnswers) as caught:
        simnmt.run(cut_off)
    assert caught.value.lost_share == pytest.approx(0.5, abs=0.2)


def test_a_factor_on_all_rates_keeps_their_proportions_at_every_site() -> None:
    source = open_source(offices())
    (placement,) = next(deployable_placements(opener(source, ["mean_ms<=250"], allow_code=True)(())))
    scaled = placement.at_rate(60.0)
    assert scaled.rates_rps == pytest.approx({"de-en": 40.0, "fr-en": 20.0})
    for site in scaled.plan.sites:
        rates = {name: case.arrivals.mean_rate_rps for name, case in site.cases.items()}
        assert rates == pytest.approx({"de-en": 40.0, "fr-en": 20.0})
    units = [one.unit(0, 2_000) for one in (placement, scaled)]
    requests = [[(part.site_name, part.case.name, part.scenario.requests) for part in unit.parts] for unit in units]
    assert requests[0] == requests[1]
