"""Limits and clients in whole scenarios: the accounts are complete, and nobody gains by refusing requests."""

from __future__ import annotations

from typing import Any

import pytest

import simnmt
from simnmt.results.requests import DONE, FALLBACK, GAVE_UP, REFUSED


def scenario(**keys: Any) -> dict[str, Any]:
    """A cloud that gets a little more than it can do, before which end nodes share a gateway."""
    base: dict[str, Any] = {
        "version": 1,
        "name": "limits",
        "requests": 3_000,
        "replications": 2,
        "fit": {"inferences": 500},
        "workloads": {
            "w": {
                "lengths": "@de-en-news",
                "arrivals": {"kind": "poisson", "rate_rps": 90.0},
                "end_nodes": 20,
                "clients": {"timeout_ms": 1_000.0, "retries": {"most": 2, "first_ms": 50.0}},
            }
        },
        "networks": {"n": {"rtt": {"constant_ms": 20}, "hops": {"gateway": {"rtt": {"constant_ms": 4}}}}},
        "devices": {
            "gateway": {"profile": "@tx2-bilstm", "power": {"idle_w": 0.0, "busy_w": 10.0}},
            "cloud": {"profile": "@titan-xp-bilstm", "max_waiting": 4, "power": {"idle_w": 0.0, "busy_w": 100.0}},
        },
        "on_refusal": "pass_on",
        "policies": {"cloud": {}, "cnmt": {}},
    }
    return base | keys


@pytest.fixture(scope="module")
def result() -> Any:
    return simnmt.run(scenario())


def test_every_request_has_one_outcome_and_the_latency_contains_all_tries(result: Any) -> None:
    for _, row in result.rows.iterrows():
        shares = [row[name] for name in ("answered_share", "refused_share", "gave_up_share", "lost_share")]
        assert sum(shares) == pytest.approx(1.0) and row["refused_share"] > 0.01
        parts = [row[f"mean_{part}_s"] for part in ("queue", "execution", "transfer", "retry")]
        assert sum(parts) == pytest.approx(row["mean_latency_s"]) and row["mean_retry_s"] > 0.0
    requests = result.requests.query("policy == 'cloud'")
    answered = requests["outcome"] == DONE
    assert set(requests["outcome"]) <= {DONE, GAVE_UP, REFUSED}
    parts = requests[["t_queue_s", "t_exe_s", "t_tx_s", "retry_s"]]
    assert requests.loc[answered, "latency_s"].to_numpy() == pytest.approx(parts.sum(axis=1)[answered].to_numpy())
    assert requests.loc[~answered, ["t_queue_s", "t_exe_s", "t_tx_s", "latency_s"]].isna().all(axis=None)
    assert (requests.loc[~answered, "target"] == -1).all()
    refused = requests["tries"].sum() - (requests["outcome"] != REFUSED).sum()
    one = simnmt.run(scenario(replications=1, policies={"cloud": {}})).rows.iloc[0]
    assert one["refused_tries_share"] == pytest.approx(refused / requests["tries"].sum()) and one["refused_share"] > 0.0
    assert one["refused_tries_share"] > one["refused_share"]
    again = requests["tries"] > 1
    # A pause takes 50 ms or twice as long, up to a half more or less, beside the way to the cloud and that to the client.
    once = requests.loc[requests["tries"] == 2, "retry_s"] - 0.024
    assert requests["tries"].max() == 3 and 0.025 <= once.min() < 0.03 and 0.07 < once.max() <= 0.075
    assert requests.loc[again, "retry_s"].max() < 1.0 and (requests.loc[~again, "retry_s"] == 0.0).all()
    assert [warning for warning in result.warnings if "requests are refused" in warning]


def test_all_policies_meet_clients_with_the_same_pauses(result: Any) -> None:
    """A request that two policies let come back once, refused by the cloud, was away for the same time."""
    ours, theirs = (result.requests.query(f"policy == '{name}'").set_index("request_id") for name in ("cloud", "cnmt"))
    both = (ours["tries"] == 2) & (theirs["tries"] == 2)
    assert both.sum() > 10
    assert ours.loc[both, "retry_s"].to_numpy() == pytest.approx(theirs.loc[both, "retry_s"].to_numpy())


def test_a_gateway_that_falls_back_refuses_nobody_and_its_answers_are_late_by_the_way_to_the_cloud() -> None:
    falling = simnmt.run(scenario(on_refusal=None, policies={"cloud": {}}))
    row, requests = falling.rows.iloc[0], falling.requests
    assert row["refused_share"] == 0.0 and row["fallback_share"] + row["gave_up_share"] > 0.02
    fell_back = requests["outcome"] == FALLBACK
    assert (requests.loc[fell_back, "target"] == 0).all()
    assert requests.loc[fell_back, "retry_s"].to_numpy() == pytest.approx(0.020, abs=1e-3)


def without_limit(**workload: Any) -> dict[str, Any]:
    base = scenario(policies={"cloud": {}}, on_refusal=None)
    del base["devices"]["cloud"]["max_waiting"]
    base["workloads"]["w"]["arrivals"]["rate_rps"] = 75.0
    base["workloads"]["w"]["clients"] = None
    base["workloads"]["w"] |= workload
    return base


def test_devices_execute_requests_whose_clients_have_given_up_and_their_answers_count_for_nothing() -> None:
    patient, hurried = (simnmt.run(without_limit(clients=clients)) for clients in (None, {"timeout_ms": 150.0}))
    (one,), (other,) = (run.rows.to_dict("records") for run in (patient, hurried))
    assert one["gave_up_share"] is None and other["refused_share"] is None
    assert 0.05 < other["gave_up_share"] < 0.9
    late = patient.requests["latency_s"] > 0.15
    assert ((hurried.requests["outcome"] == GAVE_UP) == late).all()
    assert hurried.requests["latency_s"].max() <= 0.15
    assert other["cloud_load"] == pytest.approx(one["cloud_load"])
    assert other["mean_dynamic_j"] * other["answered_share"] == pytest.approx(one["mean_dynamic_j"], rel=0.02)
    assert other["goodput_rps"] == pytest.approx(one["goodput_rps"] * other["answered_share"], rel=0.02)


def test_batches_load_their_device_too_with_sentences_whose_clients_have_given_up() -> None:
    devices = {
        "gateway": {"profile": "@cpu1-gru"},
        "cloud": {"profile": "@cpu1-gru", "batching": {"kind": "top_up", "size": 4}},
    }
    arrivals = {"kind": "poisson", "rate_rps": 4.0}
    patient = simnmt.run(without_limit(arrivals=arrivals) | {"devices": devices})
    timeout_ms = 1e3 * float(patient.requests["latency_s"].median())
    hurried = simnmt.run(without_limit(arrivals=arrivals, clients={"timeout_ms": timeout_ms}) | {"devices": devices})
    one, other = patient.rows.iloc[0], hurried.rows.iloc[0]
    assert 0.3 < other["gave_up_share"] < 0.7
    assert other["cloud_load"] == pytest.approx(one["cloud_load"], rel=0.05)


def test_a_service_level_is_not_met_by_refusing_requests(result: Any) -> None:
    """The few that the cloud takes are fast, and the 99th percentile of all is infinite."""
    (_, assessment), *_ = [(row, row) for row in result.assess("cloud: p99_ms<=5000")]
    assert assessment.lost and not assessment.met and "not answered" in str(assessment)
    waiting = simnmt.run(without_limit())
    assert waiting.assess("cloud: p99_ms<=5000")[0].met


def test_each_workload_of_a_mix_has_its_own_clients_and_both_engines_agree() -> None:
    """At three sites before one cloud: some try again, some give up early, and some do neither."""
    mix = scenario(policies={"cloud": {}}, sites={"a": {}, "b": {"count": 2}}, requests=1_500, replications=1)
    workload = mix["workloads"]["w"]
    clients = {"patient": {"retries": {"most": 3, "first_ms": 30.0}}, "hasty": {"timeout_ms": 80.0}, "plain": None}
    mix["workloads"] = {name: {**workload, "clients": of_workload} for name, of_workload in clients.items()}
    for one in mix["workloads"].values():
        one["arrivals"] = {"kind": "poisson", "rate_rps": 32.0}
    ours, reference = (simnmt.run(mix, engine=engine) for engine in ("compiled", "reference"))
    of_workload = ours.requests.groupby("workload")
    assert of_workload["tries"].max().to_dict() == {"patient": 4, "hasty": 1, "plain": 1}
    gave_up = of_workload["outcome"].apply(lambda outcome: (outcome == GAVE_UP).any()).to_dict()
    assert gave_up == {"patient": False, "hasty": True, "plain": False}
    for name in ("outcome", "tries", "retry_s", "latency_s"):
        assert ours.requests[name].to_numpy() == pytest.approx(reference.requests[name].to_numpy(), nan_ok=True)
    for _, row in ours.rows.iterrows():
        assert row["answered_share"] + row["refused_share"] + row["gave_up_share"] == pytest.approx(1.0)


def test_no_device_is_called_as_a_share_of_requests_is(result: Any) -> None:
    """Its own share would stand in that column."""
    names = {column.removesuffix("_share") for column in result.rows if column.endswith("_share")} - {"gateway", "cloud"}
    assert {"hit", "refused", "gave_up", "deadline_met", "refused_tries"} <= names
    for name in names:
        with pytest.raises(simnmt.InputError, match=f"devices.{name}: "):
            simnmt.Scenario(scenario(devices={"gateway": {"profile": "@tx2-bilstm"}, name: {"profile": "@tx2-bilstm"}}))


def test_clients_of_a_closed_loop_try_again_too() -> None:
    """Those that wait for answers leave too little waiting for a limit of four, and one of a single place is felt."""
    closed = scenario(policies={"cloud": {}}, requests=500)
    closed["workloads"]["w"]["arrivals"] = {"kind": "clients", "clients": 12, "think_time": {"constant_s": 0.05}}
    closed["devices"]["cloud"]["max_waiting"] = 1
    run = simnmt.run(closed)
    assert set(run.engines.values()) == {"reference"}
    row = run.rows.iloc[0]
    assert row["answered_share"] + row["refused_share"] + row["gave_up_share"] == pytest.approx(1.0)
    assert run.requests["tries"].max() == 3 and row["refused_share"] > 0.0


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        ({"clients": {"timeout_ms": 0.01}}, "clients a longer timeout_ms"),
        ({"clients": None, "max_waiting": 1, "arrivals": {"kind": "poisson", "rate_rps": 1e6}}, "a greater max_waiting"),
    ],
)
def test_a_run_without_answers_names_the_remedy_of_its_cause(keys: dict[str, Any], remedy: str) -> None:
    base = scenario(policies={"cloud": {}}, requests=200, late_answers={"timeout_ms": 5_000.0}, warm_up_requests=100)
    if "max_waiting" in keys:
        base["devices"]["cloud"]["max_waiting"] = keys.pop("max_waiting")
    base["workloads"]["w"] |= keys
    with pytest.raises(simnmt.InputError, match=f"{remedy}.*, or give fewer warm_up_requests"):
        simnmt.run(base)


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("devices.cloud.max_waiting", 0, "devices.cloud.max_waiting"),
        ("devices.cloud.max_waiting", -4, "devices.cloud.max_waiting"),
        ("devices.gateway.on_full", "refuse", "devices.gateway.on_full"),
        ("devices.cloud.on_full", "wait", "on_refusal"),
        ("devices.cloud.sti", {"deadline_ms": 9, "preload_mb": 0}, "devices.cloud.max_waiting"),
        ("workloads.w.arrivals", None, "workloads.w"),
        ("workloads.w.clients", {}, "workloads.w.clients"),
        ("workloads.w.clients", {"retries": {"first_ms": 10.0}}, "workloads.w.clients.retries"),
        ("workloads.w.clients.retries", {"first_ms": 0.1, "factor": 1.0}, "workloads.w.clients.retries"),
        ("workloads.w.clients.retries.factor", 0.5, "workloads.w.clients.retries.factor"),
        ("workloads.w.clients.retries.jitter", 1.5, "workloads.w.clients.retries.jitter"),
        ("workloads.w.clients.retries.first_ms", 0.0, "workloads.w.clients.retries.first_ms"),
        ("workloads.w.clients.timeout_ms", 0.0, "workloads.w.clients.timeout_ms"),
        ("workloads.w.clients.retries.most", 0, "workloads.w.clients.retries.most"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_key(path: str, value: Any, key: str) -> None:
    wrong = scenario()
    *parents, last = path.split(".")
    part = wrong
    for name in parents:
        part = part[name]
    part[last] = value
    with pytest.raises(simnmt.InputError) as refused:
        simnmt.run(wrong)
    line = str(refused.value)
    assert f"{key}:" in line and "\n" not in line
    if key == "on_refusal":
        assert "leave devices.cloud.on_full: wait out" in line
