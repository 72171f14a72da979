"""Devices of several models: what a scenario may state, what is refused, and what a run shows of loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.draws import draw, learn_parts
from simnmt.experiment.policy_setup import UnitSetup
from simnmt.experiment.run import units_of
from simnmt.experiment.units import UnitWorld
from simnmt.profile import read_profile
from simnmt.results.requests import FALLBACK
from simnmt.scenario.source import open_source
from simnmt.world.structures import library
from tests.model_cache import misses
from tests.units import plan_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def scenario(make_scenario: Make) -> dict[str, Any]:
    """Two languages in turn at one cloud with memory for one model."""
    scenario = make_scenario(requests=300, replications=2, policies={"cloud": {}, "oracle": {}})
    arrivals = {"kind": "poisson", "rate_rps": 1.0}
    scenario["workloads"] = {name: {"lengths": "@de-en-news", "arrivals": arrivals} for name in ("de-en", "fr-en")}
    scenario["workloads"]["de-en"]["end_nodes"] = scenario["workloads"]["fr-en"]["end_nodes"] = 1
    profile = scenario["devices"]["cloud"].pop("profile")
    model = {"profile": profile, "memory_gb": 1.5, "load_s": 2.0}
    scenario["devices"]["cloud"] |= {"models": {"de-en": model, "fr-en": dict(model)}, "memory_gb": 2}
    return scenario


def test_a_run_shows_the_loads_of_a_device(scenario: dict[str, Any], tmp_path: Path) -> None:
    result = simnmt.run(scenario, out=tmp_path / "run", jobs=1)
    row = next(row for row in result.summary_rows if row["policy"] == "cloud")
    assert row["model_loads"] == row["cloud_model_loads"] >= 1.0
    assert row["cloud_miss_share"] == pytest.approx(row["cloud_model_loads"] / 300)
    assert row["cloud_mean_load_wait_s"] > 0.0
    log = result.requests.query("policy == 'cloud'")
    first = log.iloc[0]
    assert first["model_load"] and first["load_wait_s"] == pytest.approx(2.0)
    assert (log["load_wait_s"] <= log["t_queue_s"] + 1e-9).all()
    if library() is not None:
        assert set(result.engines.values()) == {"compiled"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Models, per policy" in page
    assert all(row["misrouted_share"] is None for row in result.summary_rows), "no oracle foresees waits for memory"


def test_a_box_is_overloaded_if_its_disk_is(scenario: dict[str, Any]) -> None:
    """About half of 2 requests/s of two languages ask for a load of 2 s: the disk has twice the work that it can do."""
    row = simnmt.run(scenario, jobs=1).summary_rows[0]
    assert row["cloud_busiest_load"] == pytest.approx(row["model_loads"] * 2.0 * row["offered_rps"] / 300, rel=0.02)
    assert row["cloud_busiest_load"] > 1.5 and "cloud" in row["unstable"]


def test_loads_for_requests_that_fell_back_are_counted_and_keep_the_disk_busy(scenario: dict[str, Any]) -> None:
    scenario |= {"late_answers": {"timeout_ms": 1_000}, "policies": {"cloud": {}}, "warm_up_requests": 30}
    result = simnmt.run(scenario, jobs=1)
    row, *by_workload = sorted(result.summary_rows, key=lambda row: row["workload"])
    assert row["workload"] == "all" and len(by_workload) == 2
    assert row["model_loads"] == row["cloud_model_loads"] == sum(part["model_loads"] for part in by_workload)
    assert row["model_loads"] > 30 and not result.requests["model_load"].any(), "a load takes longer than the timeout"
    assert row["cloud_busiest_load"] == pytest.approx(row["model_loads"] * 2.0 * row["offered_rps"] / 270, rel=0.02)


@pytest.mark.parametrize("changes", [{"memory_gb": None}, {"memory_gb": 3, "evict": "never"}])
def test_models_that_are_always_in_memory_are_profiles_by_workload(scenario: dict[str, Any], changes: dict[str, Any]) -> None:
    cloud = scenario["devices"]["cloud"]
    cloud |= changes
    rows = simnmt.run(scenario, jobs=1).summary_rows
    profiles = {name: model["profile"] for name, model in cloud.pop("models").items()}
    scenario["devices"]["cloud"] = {"profile": profiles}
    assert rows == simnmt.run(scenario, jobs=1).summary_rows


def test_back_to_back_the_model_is_in_memory(scenario: dict[str, Any]) -> None:
    for part in scenario["workloads"].values():
        del part["arrivals"]
    row = simnmt.run(scenario, jobs=1).summary_rows[0]
    assert row["mean_queue_s"] == 0.0 and "model_loads" not in row


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"models": {"de-en": "@titan-xp-bilstm"}}, "devices.cloud.models"),
        ({"models": {"de-en": "@a", "fr-en": "@a", "it-en": "@a"}}, "devices.cloud.models.it-en"),
        ({"models": {"de-en": ["@a", "@b"], "fr-en": "@a"}}, "devices.cloud.models.de-en"),
        ({"models": {"de-en": {"profile": "@a", "memory_gb": 0}, "fr-en": "@a"}}, "devices.cloud.models.de-en.memory_gb"),
        ({"models": {"de-en": {"memory_gb": 1}, "fr-en": "@a"}}, "devices.cloud.models.de-en.profile"),
        ({"memory_gb": 1}, "devices.cloud.memory_gb"),
        ({"evict": "never"}, "devices.cloud.memory_gb"),
        ({"evict": "fifo"}, "devices.cloud.evict"),
        ({"profile": "@titan-xp-bilstm"}, "devices.cloud.models"),
        ({"models": None, "profile": "@titan-xp-bilstm"}, "devices.cloud.memory_gb"),
        ({"models": None}, "devices.cloud.profile"),
        ({"failures": {"mttf_s": 60, "mttr_s": 5}}, "devices.cloud.failures"),
        ({"execution": "fifo"}, "devices.cloud.execution"),
        ({"execution": "models"}, "devices.cloud.execution"),
        ({"sti": {"deadline_ms": 9, "preload_mb": 0}}, "devices.cloud.models"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(scenario: dict[str, Any], change: dict[str, Any], place: str) -> None:
    scenario["devices"]["cloud"] |= change
    with pytest.raises(InputError, match=place.replace(".", r"\.")):
        simnmt.run(scenario, jobs=1)


@pytest.mark.parametrize("key", ["memory_gb", "load_s"])
def test_a_profile_that_was_not_measured_so_needs_both_numbers(scenario: dict[str, Any], key: str) -> None:
    del scenario["devices"]["cloud"]["models"]["fr-en"][key]
    with pytest.raises(InputError, match=r"devices\.cloud\.models\.fr-en"):
        simnmt.run(scenario, jobs=1)


def test_multilingual_models_of_one_profile_are_one(scenario: dict[str, Any]) -> None:
    cloud = scenario["devices"]["cloud"]
    cloud["evict"] = "never"
    for model in cloud["models"].values():
        model["multilingual"] = True
    simnmt.run(scenario | {"requests": 20, "replications": 1}, jobs=1)


def test_languages_that_share_a_box_miss_as_an_independent_cache_does_by_the_log() -> None:
    """Zipf rates; all sentences have one length, so that they reach the cloud in the order in which they are issued."""
    lengths = {"lognormal": {"src_mean": 20.0, "src_sd": 0.0, "spread": 0.0}}
    languages = [f"l{number}" for number in range(1, 7)]
    rates_rps = [1.0 / number for number in range(1, 7)]
    scenario = {
        "version": 1,
        "name": "languages",
        "requests": 3_000,
        "replications": 1,
        "workloads": {
            name: {"lengths": lengths, "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}
            for name, rate_rps in zip(languages, rates_rps, strict=True)
        },
        "networks": {"n": {"rtt": {"constant_ms": 20}}},
        "devices": {
            "gateway": {"profile": "@cpu1-marian"},
            "cloud": {
                "models": {
                    name: {"profile": "@cpu2-marian-int8", "memory_gb": 1 + number % 2, "load_s": 0.2}
                    for number, name in enumerate(languages)
                },
                "memory_gb": 4,
            },
        },
        "policies": {"cloud": {}},
    }
    result = simnmt.run(scenario, jobs=1)
    log = result.requests.sort_values("arrival_s", kind="stable")
    missed = misses({name: 1 + number % 2 for number, name in enumerate(languages)}, 4, log["workload"])
    assert log["model_load"].tolist() == missed and 0.1 < sum(missed) / len(missed) < 0.9
    by_workload = {row["workload"]: row for row in result.summary_rows}
    assert by_workload["all"]["model_loads"] == sum(missed)
    for name in languages:
        of_language = [miss for miss, other in zip(missed, log["workload"], strict=True) if other == name]
        assert by_workload[name]["cloud_model_loads"] == sum(of_language)
        assert by_workload[name]["cloud_miss_share"] == pytest.approx(sum(of_language) / len(of_language))


def test_loads_without_an_answer_belong_to_the_requests_that_fell_back(scenario: dict[str, Any]) -> None:
    """Requests of the far site are decided on long after later ones of the near site."""
    hops = {"gateway": {"rtt": {"constant_ms": 900}}}
    far = {"networks": {name: {**network, "hops": hops} for name, network in scenario["networks"].items()}}
    scenario |= {"late_answers": {"timeout_ms": 1_000}, "policies": {"cloud": {}}, "sites": {"near": {}, "far": far}}
    unit = units_of(plan_of(scenario), None)[0]
    drawn = draw(unit, learn_parts(unit))
    trail = UnitWorld(unit, drawn).trail(UnitSetup.of(unit, drawn, "cloud"))
    assert trail.faults is not None and len(trail.faults.loads) > 10
    assert (trail.outcome[[request for request, *_ in trail.faults.loads]] == FALLBACK).all()


@pytest.mark.parametrize("memory", [{}, {"memory_gb": 1.5}])
def test_batches_of_languages_with_models_of_their_own_hold_one_language(memory: dict[str, Any]) -> None:
    """Where both share a multilingual model, batches are larger."""
    arrivals = {"kind": "poisson", "rate_rps": 20.0}
    model = {"profile": "@cpu2-gru", "memory_gb": 1, "load_s": 0.01}
    cloud = {"models": {"de-en": model, "fr-en": model}, "batching": {"kind": "top_up", "size": 16, "refill": "free"}, **memory}
    scenario = {
        "version": 1,
        "name": "batches",
        "requests": 600,
        "replications": 1,
        "workloads": {name: {"lengths": f"@{name}-news", "arrivals": arrivals} for name in ("de-en", "fr-en")},
        "networks": {"n": {"rtt": {"constant_ms": 20}}},
        "devices": {"gateway": {"profile": "@cpu2-gru"}, "cloud": cloud},
        "policies": {"cloud": {}},
    }
    rows = []
    for multilingual in (False, True):
        cloud["models"] = {name: {**model, "multilingual": multilingual} for name in ("de-en", "fr-en")}
        rows.append(simnmt.run(scenario, jobs=1).summary_rows[0])
    by_language, shared = rows
    assert shared["cloud_mean_batch"] > by_language["cloud_mean_batch"]
    if memory:
        assert by_language["model_loads"] > shared["model_loads"] == 1.0


def test_a_site_may_have_models_of_its_own_device(scenario: dict[str, Any]) -> None:
    cloud = scenario["devices"]["cloud"]
    gateway = {"models": {"de-en": cloud["models"]["de-en"]}, "memory_gb": 1.5}
    sites = {"paris": {"devices": {"gateway": None}}, "berlin": {"workloads": ["de-en"], "devices": {"gateway": gateway}}}
    scenario |= {"sites": sites, "policies": {"edge": {}, "cloud": {}}}
    result = simnmt.run(scenario, jobs=1)
    rows = {(row["site"], row["policy"]): row for row in result.summary_rows if row["workload"] == "all"}
    assert rows["berlin", "edge"]["model_loads"] == rows["berlin", "edge"]["gateway_model_loads"] == 1.0
    assert rows["paris", "edge"]["cloud_model_loads"] > 1.0
    assert rows["all", "cloud"]["model_loads"] >= rows["paris", "cloud"]["model_loads"]
    cloud["evict"] = "never"  # each site's models fit, and those of both do not
    scenario["sites"]["paris"]["workloads"] = ["fr-en"]
    with pytest.raises(InputError, match=r"devices\.cloud\.memory_gb"):
        simnmt.run(scenario, jobs=1)


def test_a_pivot_is_two_executions_whose_models_it_shares(scenario: dict[str, Any]) -> None:
    """de-fr by English: the models of de-en, which is a workload too, and of en-fr, which is none."""
    cloud, workloads = scenario["devices"]["cloud"], scenario["workloads"]
    workloads["de-fr"] = workloads.pop("fr-en")
    cloud["models"]["en-fr"] = cloud["models"].pop("fr-en")
    cloud["models"]["de-fr"] = {"pivot": ["de-en", "en-fr"], "middle_per_src": 0.5}
    cloud["memory_gb"] = 3
    result = simnmt.run(scenario | {"policies": {"cloud": {}}, "replications": 1}, jobs=1)
    log = result.requests
    plane = read_profile(Path(cloud["models"]["de-en"]["profile"])).plane
    once_s = plane.seconds(log["src_len"], log["tgt_len"])
    twice_s = plane.seconds(log["src_len"], 0.5 * log["src_len"]) + plane.seconds(0.5 * log["src_len"], log["tgt_len"])
    pivots = log["workload"] == "de-fr"
    factor = log["t_exe_s"] / np.where(pivots, twice_s, once_s)
    assert factor[pivots].mean() == pytest.approx(1.0, abs=0.05) and 0 < pivots.sum() < len(log)
    loads = {row["workload"]: row["model_loads"] for row in result.summary_rows}
    assert loads["all"] == 2.0, "each model once, whichever workload asks for it first"
    # The resolved scenario states every default, and can be run again.
    open_source(result.scenario)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"models": {"de-en": "@a", "fr-en": ["de-en"]}}, "devices.cloud.models.fr-en"),
        ({"models": {"de-en": "@a", "fr-en": ["de-en", "en-fr"]}}, "devices.cloud.models.fr-en"),
        ({"models": {"de-en": "@a", "fr-en": ["de-en", "de-en"]}}, "devices.cloud.models.fr-en"),
        ({"models": {"de-en": "@a", "fr-en": {"pivot": ["de-en", "en-fr"], "load_s": 1}}}, "models.fr-en.load_s"),
        ({"models": {"de-en": "@a", "fr-en": {"profile": "@a", "middle_per_src": 2}}}, "models.fr-en.middle_per_src"),
        ({"models": {"de-en": "@tx2-gru", "en-fr": "@cpu1-marian", "fr-en": ["de-en", "en-fr"]}}, "devices.cloud.models.fr-en"),
    ],
)
def test_a_pivot_that_cannot_be_is_refused_with_its_place(scenario: dict[str, Any], change: dict[str, Any], place: str) -> None:
    scenario["devices"]["cloud"] = {**change}
    with pytest.raises(InputError, match=place.replace(".", r"\.")):
        simnmt.run(scenario, jobs=1)


def test_the_models_of_a_pivot_must_fit_into_memory_together(scenario: dict[str, Any]) -> None:
    cloud = scenario["devices"]["cloud"]
    cloud["models"] |= {"en-fr": cloud["models"]["fr-en"], "fr-en": ["de-en", "en-fr"]}
    with pytest.raises(InputError, match=r"devices\.cloud\.memory_gb"):
        simnmt.run(scenario, jobs=1)
