"""A live replay: when requests are sent, what becomes of each, and the run that is made of it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt.api
from simnmt.base.errors import InputError
from simnmt.live.replay import ReplaySettings
from simnmt.live.server import FrontSettings
from simnmt.results.live_log import LIVE_OUTCOMES
from simnmt.results.requests import DONE, GAVE_UP, REFUSED
from simnmt.results.run_directory import check_unchanged, read_manifest
from tests.live.sleeping_service import GATEWAY, refusing, sleeping

Scenario = Callable[..., dict[str, Any]]


def workload(arrivals: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"workloads": {"news": {"lengths": "@de-en-news", "arrivals": arrivals, **others}}}


def poisson(rate_rps: float, **others: Any) -> dict[str, Any]:
    return workload({"kind": "poisson", "rate_rps": rate_rps}, **others)


def replay(scenario: dict[str, Any], url: str, requests: int, replications: int = 1, **settings: Any) -> simnmt.Run:
    out = settings.pop("out", None)
    overrides = ["fit.inferences=0", f"requests={requests}", f"replications={replications}"]
    return simnmt.api.replay(simnmt.Scenario(scenario, overrides), ReplaySettings(url, **settings), out=out)


def columns(result: simnmt.Run) -> dict[str, Any]:
    (cell,) = result.cells
    (log,) = cell.logs.values()
    return dict(log)


@pytest.mark.parametrize("connections", [1, 100])
def test_open_loop_latency_counts_from_the_schedule_while_the_service_stalls(make_scenario: Scenario, connections: int) -> None:
    """One connection: the generator itself cannot send while the service stalls. No latency hides that wait."""
    scenario = make_scenario(**poisson(200.0))
    with sleeping(lambda number: 0.25 if number == 5 else 0.001) as service:
        log = columns(replay(scenario, service.url, 40, connections=connections))
        later = [number for number in range(6, 40) if service.executed[str(number)][0] >= service.executed["5"][1]]
    stall_end_s = log["arrival_s"][5] + log["t_exe_s"][5]
    assert (log["arrival_s"][later] + log["latency_s"][later] >= stall_end_s - 1e-4).all()
    assert (log["latency_s"] > 0.1).sum() >= 10


def test_a_late_load_generator_is_part_of_the_latencies_and_reported(make_scenario: Scenario) -> None:
    def stall(done: int, total: int) -> None:
        if done == 5:
            time.sleep(0.2)

    with sleeping(lambda number: 0.0, workers=100) as service:
        scenario = simnmt.Scenario(make_scenario(**poisson(200.0)), ["fit.inferences=0", "requests=60", "replications=1"])
        result = simnmt.api.replay(scenario, ReplaySettings(service.url), progress=stall)
    log = columns(result)
    # About 40 requests were due while the generator stood still; 20 of them in the first half of that time.
    assert (log["latency_s"] > 0.1).sum() >= 10
    assert result.live is not None and result.live.lateness_ms["max"] > 100.0
    assert any("the load generator itself" in warning for warning in result.warnings)


def test_requests_are_those_of_the_simulation(make_scenario: Scenario) -> None:
    scenario = make_scenario(**poisson(500.0, end_nodes=3))
    with sleeping(lambda number: 0.0, workers=100) as service:
        live = columns(replay(scenario, service.url, 30))
    simulated = simnmt.api.run(scenario, overrides=["fit.inferences=0"], requests=30, replications=1)
    log = simulated.cells[0].logs["cnmt"]
    for name in ("src_len", "tgt_len", "node", "request_id"):
        assert live[name].tolist() == log[name].tolist()
    assert live["arrival_s"] == pytest.approx(log["arrival_s"], abs=1e-6)


def test_a_document_is_sent_as_one_list_and_its_sentences_count_from_its_arrival(make_scenario: Scenario) -> None:
    workload_of_documents = poisson(2.0, documents={"sentences": 3})
    with sleeping(lambda number: 0.02) as service:
        result = replay(make_scenario(**workload_of_documents), service.url, 12)
    log, row = columns(result), result.summary_rows[0]
    assert log["document"].tolist() == np.repeat(range(4), 3).tolist() and {*map(str, range(12))} <= service.executed.keys()
    assert log["t_exe_s"].min() >= 0.02 and log["target"].tolist() == [0, 1] * 6
    latency_s = log["latency_s"].reshape(4, 3)
    assert (np.diff(latency_s, axis=1) >= 0.0195).all()
    assert (log["t_queue_s"].reshape(4, 3) >= [0.0, 0.0195, 0.039]).all(), "no transfer holds the wait for the texts before"
    assert row["mean_document_s"] == pytest.approx(latency_s[:, 2].mean())
    assert row["mean_first_sentence_s"] == pytest.approx(latency_s[:, 0].mean())


def test_closed_loop_obeys_the_interactive_response_time_law(make_scenario: Scenario) -> None:
    clients, think_s = 4, 0.02
    arrivals = {"kind": "clients", "clients": clients, "think_time": {"constant_s": think_s}}
    with sleeping(lambda number: 0.01, workers=2) as service:
        result = replay(make_scenario(**workload(arrivals, end_nodes=clients)), service.url, 100)
    log, row = columns(result), result.summary_rows[0]
    under_way = row["throughput_rps"] * (row["mean_latency_s"] + think_s)
    assert 0.5 * clients < under_way < 1.1 * clients, "a busy box takes time between an answer and the next request"
    assert (np.diff(log["arrival_s"]) >= 0.0).all()
    for node in range(clients):
        mine = log["node"] == node
        arrival_s, answered_s = log["arrival_s"][mine], (log["arrival_s"] + log["latency_s"])[mine]
        # No client asks again before it has its answer and has thought.
        assert (arrival_s[1:] >= answered_s[:-1] + think_s - 1e-6).all()


def test_requests_back_to_back_never_overlap(make_scenario: Scenario) -> None:
    with sleeping(lambda number: 0.002, workers=100) as service:
        log = columns(replay(make_scenario(**workload({"kind": "back_to_back"})), service.url, 25))
        executed = [service.executed[str(number)] for number in range(25)]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(executed))
    assert (log["arrival_s"][1:] >= (log["arrival_s"] + log["latency_s"])[:-1] - 1e-6).all()


def test_every_request_has_one_row_and_failures_their_outcome(make_scenario: Scenario, tmp_path: Path) -> None:
    statuses = {2: 429, 5: 503, 6: 504, 8: 500, 9: 502, 12: 400}
    slow = 14

    def seconds(number: int) -> float:
        return refusing(statuses[number]) if number in statuses else 2.0 if number == slow else 0.001

    scenario = make_scenario(**poisson(60.0))
    for part in scenario["workloads"].values():
        part["deadline_ms"] = 500
    with sleeping(seconds, workers=100, falls_back=True) as service:
        result = replay(scenario, service.url, 30, timeout_s=0.6, out=tmp_path / "run")
    table = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    assert table["request_id"].tolist() == list(range(30))
    expected = [1 if number % 7 == 3 else 0 for number in range(30)]
    for number, status in statuses.items():
        expected[number] = {429: 3, 503: 3, 504: 2}.get(status, 4)
    expected[slow] = 2
    assert table["outcome"].tolist() == expected
    answered = table["outcome"] <= 1
    assert table["latency_s"].notna().tolist() == answered.tolist()
    assert (table["target"] >= 0).tolist() == answered.tolist()
    (row,) = result.summary_rows
    assert row["mean_latency_s"] == pytest.approx(table["latency_s"][answered].mean())
    assert row["offloaded_share"] == pytest.approx((table["target"][answered] == 1).mean())
    assert row["answered_share"] == pytest.approx(answered.mean())
    assert row["deadline_met_share"] == pytest.approx((table["latency_s"] <= 0.5).mean()), "of all requests"
    assert row["goodput_rps"] * row["makespan_s"] == pytest.approx((table["latency_s"] <= 0.5).sum())
    assert result.meets("deadline_met_share>=0.01")
    assert result.live is not None
    outcomes = {name: expected.count(number) for number, name in enumerate(LIVE_OUTCOMES)}
    assert result.live.outcomes == outcomes and outcomes["failed"] == 3
    loaded = simnmt.load(tmp_path / "run")
    assert loaded.live == result.live
    assert loaded.figure("latency").to_dict() == result.figure("latency").to_dict(), "of the answered requests alone"
    assert any("not answered" in warning for warning in result.warnings)


def test_the_run_directory_is_read_as_any_other_and_says_that_it_is_live(make_scenario: Scenario, tmp_path: Path) -> None:
    out = tmp_path / "run"
    scenario = make_scenario(**poisson(200.0))
    with sleeping(lambda number: 0.002, workers=4) as service:
        result = replay(scenario, service.url, 60, 3, out=out, token="secret-of-the-service")
    manifest = read_manifest(out)
    check_unchanged(manifest["outputs"], "a file", lambda name: out / name, "restore it")
    assert manifest["live"]["url"] == service.url
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rows"] == result.summary_rows
    assert summary["live"]["outcomes"]["done"] == 180
    (row,) = summary["rows"]
    assert (row["policy"], row["replications"]) == ("cnmt", 3)
    assert row["mean_latency_s_low"] < row["mean_latency_s"] < row["mean_latency_s_high"]
    assert row["misrouted_share"] is None and row["mean_energy_j"] is None
    assert summary["recommendations"] == []
    page = (out / "report.html").read_text()
    assert "measured live" in page and "Misroutes are not shown" in page
    assert not any("secret" in path.read_text(errors="replace") for path in out.iterdir())
    assert result.figure("rtt").data and result.figure("latency").data
    with pytest.raises(InputError, match="a live replay, which cannot be repeated"):
        simnmt.api.run(out)
    simulated = simnmt.api.run(out / "scenario.resolved.yaml")
    assert simulated.live is None and {row["policy"] for row in simulated.summary_rows} > {"cnmt"}


def test_own_texts_have_the_lengths_that_the_service_counts(make_scenario: Scenario) -> None:
    texts = ("ein Haus", "das ist ein langer Satz")
    with sleeping(lambda number: 0.0, FrontSettings(), workers=9) as service:
        result = replay(make_scenario(**poisson(300.0)), service.url, 6, texts=texts)
    assert columns(result)["src_len"].tolist() == columns(result)["tgt_len"].tolist() == [2, 5] * 3


@pytest.mark.parametrize(
    ("facts", "front", "message"),
    [
        ({"status": "ok"}, FrontSettings(forced_lengths=True), "no gateway of simnmt .*--local-server URL"),
        ({**GATEWAY, "policy": "home-made"}, FrontSettings(forced_lengths=True), "no policy home-made, by which"),
        (GATEWAY, FrontSettings([("de", "fr")], forced_lengths=True), "does not translate de to en, but de to fr"),
    ],
)
def test_a_service_that_does_not_fit_is_refused_in_one_line(
    make_scenario: Scenario, facts: dict[str, Any], front: FrontSettings, message: str, tmp_path: Path
) -> None:
    with sleeping(lambda number: 0.0, front, facts=facts) as service, pytest.raises(InputError, match=message) as error:
        replay(make_scenario(**poisson(300.0)), service.url, 3, out=tmp_path / "run")
    assert error.value.remedy and not (tmp_path / "run").exists()


def test_a_service_that_answers_nothing_leaves_no_run(make_scenario: Scenario, tmp_path: Path) -> None:
    with sleeping(lambda number: refusing(503)) as service, pytest.raises(InputError, match="no request was answered: made"):
        replay(make_scenario(**poisson(300.0)), service.url, 3, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_clients_of_a_replay_try_again_after_their_pauses_and_give_up(make_scenario: Scenario) -> None:
    """Requests 2 and 5 are refused once and always; 8 takes too long."""
    tries = dict.fromkeys(range(12), 0)

    def seconds(number: int) -> float:
        tries[number] += 1
        if number == 5 or (number == 2 and tries[2] == 1):
            return refusing(429)
        return 4.0 if number == 8 else 0.001

    clients = {"timeout_ms": 1500.0, "retries": {"most": 2, "first_ms": 20.0, "jitter": 0.0}}
    scenario = make_scenario(**poisson(60.0, clients=clients))
    scenario["devices"]["cloud"]["max_waiting"] = 1
    with sleeping(seconds, workers=100) as service:
        result = replay(scenario, service.url, 12)
    log, (row,) = columns(result), result.summary_rows
    assert log["outcome"].tolist() == [{5: REFUSED, 8: GAVE_UP}.get(number, DONE) for number in range(12)]
    assert log["tries"].tolist() == [{2: 2, 5: 3}.get(number, 1) for number in range(12)] and tries[5] == 3
    assert log["retry_s"][2] >= 0.02 and log["retry_s"][5] >= 0.06
    parts = (log[name][2] for name in ("t_queue_s", "t_exe_s", "t_tx_s", "retry_s"))
    assert log["latency_s"][2] == pytest.approx(sum(parts))
    assert (row["refused_share"], row["gave_up_share"]) == pytest.approx((1 / 12, 1 / 12))
    assert not result.meets("p99_ms<=60000")
    share, parts = "17 % of the requests are left out", "1 refused (429 or 503) and 1 not answered within 1.5 s"
    assert f"{share}: {parts}" in result.warnings
