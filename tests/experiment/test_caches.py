"""Caches in scenarios: what hits are left out of, where they are shown, and where a cache is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from tests.worlds import needs_compiled

POWER = {"power": {"idle_w": 0.0, "busy_w": 10.0}}


def scenario(cache: Any = None, **keys: Any) -> dict[str, Any]:
    repeats = {"zipf": 1.0, "over": 300}
    workload = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4.0}, "repeats": repeats}
    gateway = {"profile": "@tx2-gru", **POWER} | ({} if cache is None else {"cache": cache})
    return {
        "version": 1,
        "name": "cached",
        "requests": 2_000,
        "replications": 2,
        "workloads": {"de-en": workload},
        "networks": {"n": {"rtt": "@cp1"}},
        "devices": {"gateway": gateway, "cloud": {"profile": "@titan-xp-gru", **POWER}},
        "policies": {"edge": {}, "cloud": {}, "cnmt": {}},
    } | keys


CACHE = {"entries": 100, "hit_ms": 0.5}
STREAMED = {"profile": "@cpu1-marian-sti", "sti": {"deadline_ms": 300, "preload_mb": 5}}


@needs_compiled
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_hits_are_counted_and_left_out_of_what_devices_do(engine: Any) -> None:
    result, without = (simnmt.run(keys, replications=1, engine=engine) for keys in (scenario(CACHE), scenario()))
    for row, before in zip(result.summary_rows, without.summary_rows, strict=True):
        log = result.requests[result.requests.policy == row["policy"]]
        hits, translated = log[log.hit > 0], log[log.hit == 0]
        assert before["hit_share"] is None
        assert 0.3 < row["hit_share"] == len(hits) / len(log) < 0.8
        assert row["mean_latency_s"] < before["mean_latency_s"]
        for number, device in enumerate(("gateway", "cloud")):
            there = translated[translated.target == number]
            assert row[f"{device}_share"] == len(there) / len(log)
            assert row[f"{device}_load"] == pytest.approx(there.t_exe_s.sum() / log.arrival_s.max())
        assert row["offloaded_share"] == row["cloud_share"]
        assert row["mean_energy_j"] == pytest.approx(10.0 * translated.t_exe_s.sum() / len(log))
        assert np.all(hits.target == 0) and np.all(hits.energy_j == 0.0) and hits.rtt_estimate_s.isna().all()
        at_once, joined = log[log.hit == 1], log[log.hit == 2]
        assert np.all(at_once.t_queue_s == 0.0) and np.all(joined.t_queue_s > 0.0)
        np.testing.assert_allclose(hits.t_exe_s, 0.0005)
        assert row["mean_estimate_age_s"] is None or row["mean_estimate_age_s"] == translated.rtt_estimate_age_s.mean()
    assert "hit" not in without.requests


def test_a_share_of_hits_can_be_asserted_where_there_is_a_cache() -> None:
    result = simnmt.run(scenario(CACHE, requests=400))
    assert result.meets("hit_share>=20%") and not result.meets("hit_share>=99%")
    assert any("up to 100 sentences" in note for note in result.notes)
    with pytest.raises(InputError, match="no cache"):
        simnmt.run(scenario(slo={"hit_share": 0.2}))


@needs_compiled
def test_back_to_back_each_answer_is_kept_before_the_next_request() -> None:
    keys = scenario(CACHE, requests=300)
    del keys["workloads"]["de-en"]["arrivals"]
    rows = [simnmt.run(keys, engine=engine).summary_rows for engine in ("reference", "compiled")]
    for one, other in zip(*rows, strict=True):
        assert one["hit_share"] == other["hit_share"] > 0.1
        assert one["total_latency_s"] == pytest.approx(other["total_latency_s"])
        assert one["misrouted_share"] == other["misrouted_share"]


def test_a_cache_without_sentences_that_come_back_is_warned_of() -> None:
    keys = scenario(CACHE, requests=200)
    del keys["workloads"]["de-en"]["repeats"]
    result = simnmt.run(keys)
    assert {row["hit_share"] for row in result.summary_rows} == {0.0}
    assert any("answers nothing" in warning for warning in result.warnings)


def test_caches_that_still_fill_are_warned_of_until_hits_are_steady() -> None:
    keys = scenario({"entries": 5_000}, policies={"cloud": {}})
    keys["workloads"]["de-en"]["repeats"] = {"zipf": 1.1, "over": 5_000}

    def filling(requests: int, warm_up: int) -> list[str]:
        result = simnmt.run(keys | {"requests": requests, "warm_up_requests": warm_up})
        (row,) = result.summary_rows
        assert row["late_hit_share"] == pytest.approx(row["hit_share"], abs=0.1)
        return [warning for warning in result.warnings if "still filling" in warning]

    (warning,) = filling(3_000, 0)
    assert "warm_up_requests" in warning and warning.startswith("de-en on n: ")
    assert not filling(103_000, 100_000)
    keys["devices"]["gateway"]["cache"]["entries"] = 10
    assert not filling(3_000, 200), "a small cache is full soon"


def test_sites_have_their_own_caches() -> None:
    small = {"devices": {"gateway": {"profile": "@tx2-gru", "cache": {"entries": 1}}}}
    result = simnmt.run(scenario(CACHE, sites={"large": {}, "small": small, "none": {"devices": {"gateway": None}}}))
    shares = {row["site"]: row["hit_share"] for row in result.summary_rows if row["policy"] == "cloud"}
    assert shares["none"] == 0.0 < shares["small"] < shares["large"]


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (scenario({"entries": 0}), "devices.gateway.cache.entries"),
        (scenario({"entries": -5}), "devices.gateway.cache.entries"),
        (scenario({"entries": 10, "ttl_s": 0}), "devices.gateway.cache.ttl_s"),
        (scenario({"entries": 10, "hit_ms": -1}), "devices.gateway.cache.hit_ms"),
        (scenario({}), "devices.gateway.cache.entries"),
        (
            scenario(devices={"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru", "cache": CACHE}}),
            "devices.cloud.cache",
        ),
        (scenario(devices={"gateway": STREAMED | {"cache": CACHE}}), "devices.gateway.cache"),
    ],
)
def test_a_cache_that_cannot_be_is_refused_in_one_line_with_its_place(keys: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as refused:
        simnmt.run(keys)
    assert place in str(refused.value) and "\n" not in str(refused.value)
