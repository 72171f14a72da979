"""The cache of a live gateway: what it answers, who waits for whom, and how it agrees with the simulation."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.validation import validate
from simnmt.results.live_log import read_live_log
from simnmt.service.client import Exchange
from simnmt.service.messages import ServiceError
from tests.live.fake_engines import FATAL, STEP_S, load_paced
from tests.live.live_services import FRONT, Services, ask, engine_settings, new_engine, plan_of, unit_of

Scenario = Any
CACHE = "devices.gateway.cache={entries: 2, hit_ms: 0.1}"


def gateway_of(
    services: Services, engine: EngineProcess, scenario: Scenario, *overrides: str, policy: str = "edge", log: Any = None
) -> LiveGateway:
    """A gateway with a cache before a server on the same engine."""
    unit = unit_of(scenario, *(overrides or (CACHE,)))
    server = services.server(engine)
    front = dataclasses.replace(FRONT, deadline_s=5.0)
    return services.gateway(GatewaySettings(unit, policy, {"cloud": server.http.url}, front), log, engine)


def hits_of(answers: list[Any]) -> list[int]:
    """Whether a cache answered each request; every one has an answer."""
    accounts = [dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";")) for answer in answers]
    return [int(account.get("hit", 0)) for account in accounts]


def counts_of(gateway: LiveGateway) -> list[float | None]:
    return [
        gateway.metrics.get_sample_value("simnmt_cache_requests_total", {"result": result})
        for result in ("miss", "hit", "joined")
    ]


def test_a_sentence_that_came_before_is_answered_without_a_decision(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, tmp_path: Any
) -> None:
    log = io.StringIO()
    gateway = gateway_of(services, faulty, make_scenario(), policy="cloud", log=log)
    texts = ("a b c", " a  b c", "d e", "f", "a b c", "f")
    answers = [services.translate(gateway.http.url, ask(text))[0] for text in texts]
    assert hits_of(answers) == [0, 1, 0, 0, 0, 1], "two sentences are kept"
    assert answers[0].answer.texts == answers[1].answer.texts
    assert counts_of(gateway) == [4.0, 2.0, 0.0]
    assert gateway.metrics.get_sample_value("simnmt_decisions_total", {"device": "cache", "outcome": "done"}) == 2.0
    (tmp_path / "log.jsonl").write_text(log.getvalue())
    read = read_live_log(tmp_path / "log.jsonl")
    assert [(one.hit, one.target, one.device) for one in read.requests[:2]] == [(0, 1, "cloud"), (1, None, None)]
    decided = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "decision"]
    assert len(decided) == 4
    forced = services.translate(gateway.http.url, ask("f", forced=3))
    assert hits_of(forced) == [0], "a translation of another length is another one"


def test_requests_for_a_sentence_under_way_wait_for_it(services: Services, make_scenario: Scenario) -> None:
    engine = new_engine(load_paced)
    gateway = gateway_of(services, engine, make_scenario())
    answers = services.translate(gateway.http.url, *[ask("a b c", forced=100)] * 4)
    assert hits_of(answers) == [0, 2, 2, 2]
    assert len({answer.answer.texts for answer in answers if isinstance(answer, Exchange)}) == 1
    assert counts_of(gateway) == [1.0, 0.0, 3.0]
    services.run(engine.close())


def test_who_waits_for_a_translation_that_is_given_up_has_it_translated(services: Services, make_scenario: Scenario) -> None:
    engine = new_engine(load_paced)
    gateway = gateway_of(services, engine, make_scenario())
    hasty, patient = ask("a b c", forced=100, deadline_s=50 * STEP_S), ask("a b c", forced=100)
    failed, *answers = services.translate(gateway.http.url, hasty, patient, patient)
    assert isinstance(failed, ServiceError) and failed.status == 504
    assert hits_of(answers) == [0, 2]
    services.run(engine.close())


def test_a_translation_that_fails_fails_those_that_wait_as_their_own_would(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    gateway = gateway_of(services, faulty, make_scenario())
    answers = services.translate(gateway.http.url, *[ask("a b c", forced=FATAL + 1)] * 3)
    assert all(isinstance(answer, ServiceError) for answer in answers)
    assert counts_of(gateway) == [3.0, 0.0, 0.0]
    assert hits_of(services.translate(gateway.http.url, ask("a b c"))) == [0]
    services.errors.clear()


def test_live_and_simulated_hits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simnmt.calibrate.box.BusyWatch.over_span", lambda: 0.0)
    arrivals = "workloads.de-en.arrivals.rate_rps=60", "workloads.de-en.repeats={zipf: 1.0, over: 60}"
    network, policies = "networks={lan: {rtt: {constant_ms: 10}}}", "policies={edge: {}}"
    cache = "devices.gateway.cache={entries: 15, hit_ms: 0.1}"
    scenario = plan_of("@live-smoke", "requests=240", "replications=1", *arrivals, network, policies, cache)
    engines = {device: engine_settings(load_paced) for device in ("gateway", "cloud")}
    (row,) = validate(scenario, any_model=True, engines=engines).rows
    live, structural, predicted = (figures[4] for figures in (row.live, row.structural, row.predicted))
    assert 0.3 < live < 0.9
    assert structural == pytest.approx(live, abs=0.03) and predicted == pytest.approx(live, abs=0.05)
    assert np.isfinite(row.errors["structural"][:5]).all()


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis on a socket of this test."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()


def test_gateways_share_a_cache_in_redis_and_translate_when_it_is_gone(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, redis_url: str
) -> None:
    cache = f"devices.gateway.cache={{entries: 2, ttl_s: 0.5, redis: '{redis_url}'}}"
    one, other = (gateway_of(services, faulty, make_scenario(), cache) for _ in range(2))
    (first,) = services.translate(one.http.url, ask("a b c"))
    services.wait(0.05)  # the answer does not wait until it is kept
    (second,) = services.translate(other.http.url, ask("a b c"))
    assert hits_of([first, second]) == [0, 1]
    assert isinstance(first, Exchange) and isinstance(second, Exchange)
    assert (first.answer.texts, first.answer.lengths) == (second.answer.texts, second.answer.lengths)
    lookups = [one.metrics.get_sample_value("simnmt_cache_lookup_seconds_count") for one in (one, other)]
    assert lookups == [1.0, 1.0]
    services.wait(0.6)
    assert hits_of(services.translate(other.http.url, ask("a b c"))) == [0], "it has grown too old"


def test_a_redis_that_does_not_answer_fails_no_request(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts connections, and says nothing
        cache = f"devices.gateway.cache={{entries: 2, redis: 'redis://127.0.0.1:{deaf.getsockname()[1]}/0'}}"
        gateway = gateway_of(services, faulty, make_scenario(), cache)
        answers = [services.translate(gateway.http.url, ask("a b c"))[0] for _ in range(3)]
        assert hits_of(answers) == [0, 0, 0]
        assert gateway.metrics.get_sample_value("simnmt_cache_errors_total") == 1.0, "it is left alone for a while"
        (complaint,) = services.errors
        assert "Redis" in complaint
        services.errors.clear()
