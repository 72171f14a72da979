"""A live gateway before live servers: decisions, faults of servers and links, fallback, and what its log replays to."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prometheus_client import CollectorRegistry

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.devices import Fifo
from simnmt.live.engine import Result
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway, _Drift, _Server
from simnmt.live.server import LiveServer
from simnmt.network.outages import DownTimes
from simnmt.profile.device_profile import write_profile
from simnmt.results.live_log import DecisionRecord, read_live_log
from simnmt.results.requests import Requests
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.http_server import Access, Address, Limits
from simnmt.service.messages import ServiceError, TranslateRequest
from simnmt.world.faults import Faults
from tests.calibrate.endpoint_stub import stub_service
from tests.live.fake_engines import STEP_S, load_paced
from tests.live.live_services import (
    FRONT,
    Services,
    ask,
    engine_settings,
    host_port,
    new_engine,
    replayed_targets,
    together,
    unit_of,
)
from tests.worlds import believing, everything_to, in_reference

Scenario = Callable[..., dict[str, Any]]
Start = Callable[..., LiveGateway]
FRENCH = dataclasses.replace(FRONT, pairs=[("fr", "en")])
LONGEST_S = 0.2
"""Longest pause between tries to reach a server in the test of a server that is lost."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simnmt.policies.health.PAUSES_S", (0.05,))


@pytest.fixture(scope="module")
def url(services: Services, faulty: EngineProcess) -> str:
    """A server."""
    return services.server(faulty).http.url


@pytest.fixture
def start(services: Services, faulty: EngineProcess, make_scenario: Scenario) -> Start:
    """Starts a gateway before a server; others: its policy, scenario or unit, log, and settings."""

    def gateway(url: str, policy: str = "cloud", log: Any = None, **others: Any) -> LiveGateway:
        unit = others.pop("unit", None) or unit_of(others.pop("scenario", None) or make_scenario())
        servers = dict.fromkeys([target.device for target in unit.case.targets[1:]], url)
        settings = GatewaySettings(unit, policy, servers, **{"front": FRONT, "offload_s": 1.0} | others)
        return services.gateway(settings, log, faulty)

    return gateway


def at_port(port: int) -> Access:
    return Access(Address(port=port))


def account_of(answer: Any) -> dict[str, str]:
    assert isinstance(answer, Exchange), answer
    return dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";"))


def devices_of(answers: list[Any]) -> list[int]:
    """The device of each answer; every request has one."""
    return [int(account_of(answer)["target"]) for answer in answers]


def translated(services: Services, gateway: LiveGateway, *requests: Any) -> list[int]:
    return devices_of(services.translate(gateway.http.url, *requests))


def logged(log: io.StringIO, folder: Path, gateway: LiveGateway) -> pd.DataFrame:
    """The requests in the log of a gateway; its decisions replay to the same targets."""
    (folder / "log.jsonl").write_text(log.getvalue())
    read, settings = read_live_log(folder / "log.jsonl"), gateway._settings
    events = read.decider_events
    assert read.begin is not None
    targets = replayed_targets(settings.unit, settings.policy, dict(enumerate(read.begin.initial_s, 1)), events)
    assert targets == [event.target for event in events if isinstance(event, DecisionRecord)]
    requests = pd.DataFrame(map(dataclasses.asdict, read.requests))
    assert requests.request.is_unique
    return requests


@pytest.mark.parametrize(
    ("scenario", "policy"), [("@open-loop", "cnmt"), ("@batched-cloud", "reported"), ("@batched-cloud", "queue-aware")]
)
def test_decisions_replay_to_the_same_targets(
    services: Services, url: str, start: Start, tmp_path: Path, scenario: str, policy: str
) -> None:
    log = io.StringIO()
    gateway = start(url, policy, log, unit=unit_of(scenario), any_model=True)
    texts = [" ".join(["w"] * length) for length in (3, 40, 5, 25, 60, 1, 33, 2)] * 3
    for first in range(0, len(texts), 6):
        translated(services, gateway, *map(ask, texts[first : first + 6]))
        services.wait(0.03)
    requests = logged(log, tmp_path, gateway)
    assert len(requests) == 24
    assert set(requests.outcome) == {"done"}
    assert np.all(requests.egress_s >= requests.decision_s)
    assert np.all(requests.decision_s >= requests.ingress_s)


class LongAway:
    """Sends sources of more than three words away, and fails for nine."""

    def prepare(self, src_len: Any) -> Any:
        return lambda request, delay_s: int(src_len[0] > 3) if src_len[0] != 9 else [][request]


def test_a_gateway_decides_by_the_users_policy_and_survives_its_faults(
    services: Services, url: str, start: Start, make_scenario: Scenario
) -> None:
    log = io.StringIO()
    gateway = start(url, "mine", log, scenario=make_scenario(policies={"mine": LongAway()}))
    texts = ("a b", "a b c d", "a", "a b c d e f", "a b c d e f g h i", "a b")
    *answers, failed, after = [services.translate(gateway.http.url, ask(text))[0] for text in texts]
    assert devices_of([*answers, after]) == [0, 1, 0, 1, 0]
    assert isinstance(failed, ServiceError) and failed.status == 500
    assert gateway.outcomes == {"done": 5, "failed": 1}
    (complaint,) = services.errors
    assert "policy mine" in complaint and "IndexError" in complaint
    services.errors.clear()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    targets = [(line["src_len"], line["target"], line["outcome"]) for line in lines if line["event"] == "request"]
    assert targets == [(3, 0, "done"), (5, 1, "done"), (2, 0, "done"), (7, 1, "done"), (10, None, "failed"), (3, 0, "done")]


@pytest.mark.parametrize(("decide_by", "targets"), [("document", [0, 0, 0, 1]), ("sentence", [0, 1, 0, 1])])
def test_a_list_is_a_document_and_says_when_each_of_its_texts_was_done(
    services: Services, url: str, start: Start, make_scenario: Scenario, tmp_path: Path, decide_by: str, targets: list[int]
) -> None:
    workload = {
        "lengths": "@de-en-news",
        "arrivals": {"kind": "poisson", "rate_rps": 5.0},
        "documents": {"sentences": 3},
    }
    scenario = make_scenario(policies={"mine": LongAway()}, workloads={"de-en": workload}, decide_by=decide_by)
    log = io.StringIO()
    gateway = start(url, "mine", log, scenario=scenario)
    request = TranslateRequest(("a b", "a b c d", "a"), True, "de", "en", forced_lens=(4, 9, 2), number="7")
    (answer, alone) = services.translate(gateway.http.url, request, ask("a b c d e"))
    assert isinstance(answer, Exchange) and isinstance(alone, Exchange)
    texts = answer.by_text()
    assert [one.answer.lengths[:2] for one in texts] == [(3, 5), (5, 10), (2, 3)]
    assert [dict(part.split("=") for part in one.answer.decision.split(";"))["target"] for one in texts] == list(
        map(str, targets[:3])
    )
    ends_s = [one.received_s for one in texts]
    assert answer.sent_s < min(ends_s) < max(ends_s) <= answer.received_s + 1e-5
    requests = logged(log, tmp_path, gateway).sort_values("request")
    assert requests.document.tolist() == [0, 0, 0, 3] and requests.target.tolist() == targets


def wait_until(services: Services, gateway: LiveGateway, state: str) -> None:
    """Wait until the health of the gateway says so of its server."""
    deadline_s = time.monotonic() + 10.0
    while state not in gateway.health()["servers"]["cloud"] and time.monotonic() < deadline_s:
        services.wait(0.02)
    assert state in gateway.health()["servers"]["cloud"]


def test_a_server_that_is_lost_under_load_is_left_out_as_in_the_reference_until_it_is_back(
    services: Services, faulty: EngineProcess, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same device executes each request, but for those around the loss, and between the return and the next try."""
    monkeypatch.setattr("simnmt.policies.health.PAUSES_S", (0.1, LONGEST_S))
    server, log = services.server(faulty, limits=Limits(drain_s=0.0)), io.StringIO()
    gateway, port = start(server.http.url, log=log, offload_s=10.0), host_port(server.http.url)[1]

    async def outage_amid_requests() -> list[float]:
        pending = list[asyncio.Future[Any]]()

        async def send_for(seconds: float) -> float:
            for _ in range(round(seconds / 0.01)):
                pending.append(asyncio.ensure_future(together(client, [ask(f"{len(pending)}")])))
                await asyncio.sleep(0.01)
            return time.monotonic() - gateway.begin_s

        async with TranslationClient(gateway.http.url) as client:
            lost_s = await send_for(0.4)
            pending += [asyncio.ensure_future(together(client, [ask("a b")])) for _ in range(20)]
            while server.waiting == 0:
                await asyncio.sleep(0.0)
            await server.http.stop()  # at once, with sentences under way
            back_s = await send_for(0.6)
            await again.start()
            await send_for(LONGEST_S + 0.5)
            assert all(isinstance(answer, Exchange) for (answer,) in await asyncio.gather(*pending))
        return [lost_s, back_s]

    again = LiveServer(faulty, dataclasses.replace(FRONT, access=at_port(port)), keeps_engine=True)
    lost_s, back_s = services.run(outage_amid_requests())
    services.run(again.http.stop())
    assert any("translating here until it answers" in line for line in services.errors)
    services.errors.clear()
    live = logged(log, tmp_path, gateway).sort_values("decision_s")
    assert set(live.outcome) == {"done", "fallback"}
    assert gateway.outcomes["fallback"] == int((live.outcome == "fallback").sum())
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    (returned_s,) = [event["at_s"] for event in events if event["event"] == "handshake"]
    arrival_s = live.decision_s.to_numpy() - gateway.begin_s
    execution_s, half_s = np.full(len(live), 2 * STEP_S), np.full(len(live), 1e-3)
    requests = Requests(np.ones(len(live), np.int64), (execution_s,) * 2, (half_s,), (half_s,), arrival_s)
    box = Fifo(failures=[DownTimes([(lost_s, back_s)])])
    trail = in_reference(requests, everything_to(1), believing(2e-3), [box], faults=Faults(timeout_s=10.0, leave_out=True))
    around_loss = np.abs(arrival_s - lost_s) < 0.15
    until_try = (arrival_s > back_s - 0.15) & (arrival_s < max(returned_s, back_s + LONGEST_S) + 0.15)
    compared = ~(around_loss | until_try)
    executed_at = live.device.map({"gateway": 0, "cloud": 1}).to_numpy()
    np.testing.assert_array_equal(trail.target[compared], executed_at[compared])
    for when, device in ((arrival_s < lost_s, 1), ((arrival_s > lost_s) & (arrival_s < back_s), 0), (arrival_s > back_s, 1)):
        assert set(executed_at[compared & when]) == {device}
    left_out = [gateway._server_health.times(1), gateway._server_health.seconds(1, returned_s)]
    assert trail.faults is not None and left_out[0] == 1
    assert trail.faults.left_out[1] == pytest.approx(left_out, abs=LONGEST_S + 0.15)


def test_a_try_takes_no_longer_than_in_the_simulation(
    services: Services, faulty: EngineProcess, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = services.server(faulty)
    gateway = start(server.http.url)
    services.stop(server)
    monkeypatch.setattr("simnmt.live.gateway.TRY_S", 0.05)
    monkeypatch.setattr(_Server, "shake_hands", lambda server, settings: asyncio.sleep(60.0))
    assert translated(services, gateway, ask()) == [0]
    services.wait(0.5)
    assert gateway._server_health._absences[1].tries >= 2
    assert gateway.health()["servers"]["cloud"] != "ok"
    services.errors.clear()


def kill_engine(services: Services, engine: EngineProcess, gateway: LiveGateway) -> list[Any]:
    """The answers to requests that are sent while an engine is killed, and until it is back."""

    async def work() -> list[Any]:
        async with TranslationClient(gateway.http.url) as client:
            pending = asyncio.ensure_future(together(client, [ask(f"{number}") for number in range(30)]))
            await asyncio.sleep(0.02)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            answers = list(await pending)
            while not engine.alive:
                assert (await client.health())[0]["status"] == "ok"
                answers += await together(client, [ask()])
                await asyncio.sleep(0.02)
            return answers

    return services.run(work())


def test_a_gateway_whose_engine_is_lost_lets_a_server_translate_until_it_is_back(
    services: Services, url: str, make_scenario: Scenario, tmp_path: Path
) -> None:
    log, engine = io.StringIO(), new_engine(load_paced)
    settings = GatewaySettings(unit_of(make_scenario()), "edge", {"cloud": url}, FRONT, any_model=True)
    gateway = services.gateway(settings, log, engine)
    assert translated(services, gateway, *[ask()] * 3) == [0] * 3
    assert set(devices_of(kill_engine(services, engine, gateway))[30:-1]) == {1}, "the last one may have met the new process"
    assert translated(services, gateway, *[ask()] * 3) == [0] * 3
    # A fallback is a request that was in the engine when that was killed; it may have had none.
    assert set(logged(log, tmp_path, gateway).outcome) <= {"done", "fallback"}
    services.stop(gateway)
    services.run(engine.close())
    services.errors.clear()


def test_a_server_whose_engine_is_lost_is_out_of_use_until_it_is_back(services: Services, start: Start) -> None:
    engine = new_engine(load_paced)
    services.run(engine.ready())
    gateway = start(services.server(engine).http.url, any_model=True)
    assert set(devices_of(kill_engine(services, engine, gateway)[30:])) == {0}
    wait_until(services, gateway, "ok")
    assert [line.split(":")[-1] for line in services.errors if "cloud" in line][1:] == [" answers again"]
    services.stop(gateway)
    services.run(engine.close())
    services.errors.clear()


def test_delays_of_the_scenarios_network_are_slept_and_a_client_in_a_hurry_takes_no_server_from_the_others(
    services: Services, url: str, start: Start, make_scenario: Scenario
) -> None:
    scenario = make_scenario(networks={"far": {"rtt": {"constant_ms": 500}}})
    gateway = start(url, scenario=scenario, offload_s=2.0, delays=True)
    hurried, patient = services.translate(gateway.http.url, ask(deadline_s=0.4), ask())
    assert devices_of([hurried, patient]) == [0, 1]
    assert isinstance(patient, Exchange) and patient.received_s - patient.sent_s >= 0.5
    assert float(account_of(patient)["estimate_s"]) >= 0.5
    assert (gateway.health()["servers"]["cloud"], gateway.health()["delays"]) == ("ok", "far")


def test_the_drift_of_a_device_is_a_gauge(make_scenario: Scenario) -> None:
    unit, metrics = unit_of(make_scenario()), CollectorRegistry()
    drift, profile = _Drift(unit.case.targets, metrics), unit.case.targets[1].profile
    src_end, tgt_end = end_tokens(profile.length_unit.end_of_sentence)
    for src_len, tgt_len in ((5, 9), (30, 20), (12, 3)):
        seconds = 1.5 * float(profile.plane.seconds(src_len - 1 + src_end, tgt_len - 1 + tgt_end))
        drift.observe("cloud", Result("", 0.0, seconds, (), (src_len, tgt_len, 1)))
    drift.observe("cloud", Result("", 0.0, 99.0, (), (5, 9, 4)))  # in a batch of four
    assert metrics.get_sample_value("simnmt_execution_over_predicted", {"device": "cloud"}) == pytest.approx(1.5)


def test_a_server_with_another_model_is_refused_with_both_hashes(
    url: str, faulty: EngineProcess, start: Start, make_scenario: Scenario, make_profile: Callable[..., Any], tmp_path: Path
) -> None:
    scenario = make_scenario()
    engine = {"backend": "torch", "compute_type": "int8", "device": "cpu"}
    profile = make_profile((2e-4, 2e-3, 5e-3), name="cloud", engine=engine)
    write_profile(tmp_path / "cloud.json", profile)
    with pytest.raises(InputError) as caught:
        start(url, scenario=scenario)
    assert profile.engine.hash in str(caught.value) and faulty.block.hash in str(caught.value)
    start(url, scenario=scenario, any_model=True)


def test_a_server_of_other_languages_or_none_is_refused_at_the_start(
    services: Services, faulty: EngineProcess, start: Start
) -> None:
    url = services.server(faulty, FRENCH).http.url
    with pytest.raises(InputError, match=rf"^{url} does not translate de to en, but fr to en"):
        start(url)
    with pytest.raises(InputError, match="start the server of cloud first"):
        start("http://127.0.0.1:1")
    french = start(url, front=FRENCH)
    assert translated(services, french, dataclasses.replace(ask(), source="fr")) == [1]
    with stub_service(health='{"status": "ok"}', languages=None, pace=0.01) as stub:  # lists no languages
        unknown = start(stub.url, any_model=True)
        assert translated(services, unknown, ask()) == [1]
        services.stop(unknown)


def test_a_server_that_comes_back_with_other_languages_stays_out_of_use(
    services: Services, faulty: EngineProcess, start: Start
) -> None:
    server = services.server(faulty)
    url = server.http.url
    gateway = start(url)
    services.stop(server)
    assert translated(services, gateway, ask()) == [0]
    services.server(faulty, FRENCH, access=at_port(host_port(url)[1]))
    wait_until(services, gateway, f"{url} does not translate de to en, but fr to en")
    services.errors.clear()


def test_an_overloaded_server_is_left_alone_for_a_while(services: Services, faulty: EngineProcess, start: Start) -> None:
    server = services.server(faulty, dataclasses.replace(FRONT, waiting=2))
    devices = translated(services, start(server.http.url), *[ask()] * 12)
    assert set(devices) == {0, 1}
    assert server.outcomes["done"] == sum(devices)
    services.errors.clear()


@pytest.mark.parametrize("on_refusal", ["fall_back", "pass_on"])
def test_a_full_server_stays_in_use_and_the_gateway_obeys_the_scenario(
    services: Services, local: LiveServer, start: Start, on_refusal: str
) -> None:
    """One sentence is executed at a time and one may wait, as the scenario says of its cloud."""
    engine = new_engine(load_paced)
    services.run(engine.ready())
    server = services.server(engine, dataclasses.replace(FRONT, max_waiting=1))
    unit = unit_of("@open-loop", "devices.cloud.max_waiting=1", f"on_refusal={on_refusal}")
    gateway = start(server.http.url, unit=unit, any_model=True)
    answers = services.translate(gateway.http.url, *[ask(forced=20)] * 8)
    refused = [answer for answer in answers if isinstance(answer, ServiceError)]
    assert {error.status for error in refused} == ({429} if on_refusal == "pass_on" else set())
    assert server.outcomes["refused"] >= 5 and server.outcomes["done"] == 8 - server.outcomes["refused"]
    assert gateway.outcomes["refused" if on_refusal == "pass_on" else "fallback"] == server.outcomes["refused"]
    assert translated(services, gateway, ask()) == [1]
    assert services.errors == []
    services.stop(gateway)
    services.stop(server)
    services.run(engine.close())


@pytest.mark.parametrize("limits", [{"waiting": 2}, {"max_waiting": 1}])
def test_a_list_longer_than_what_a_server_takes_passes_a_gateway_that_does_not_fall_back(
    services: Services, start: Start, tmp_path: Path, limits: dict[str, int]
) -> None:
    """Its texts then go one after another; a list for which the others leave no place is refused as before."""
    server = services.server(engine_settings(load_paced), dataclasses.replace(FRONT, **limits))
    log, unit = io.StringIO(), unit_of("@open-loop", "devices.cloud.max_waiting=1", "on_refusal=pass_on")
    gateway = start(server.http.url, log=log, unit=unit, any_model=True, offload_s=10.0)
    texts = TranslateRequest(("a", "b", "c", "d", "e"), True, "de", "en", forced_lens=(5,) * 5, number="1")
    (answer,) = services.translate(gateway.http.url, texts)
    assert isinstance(answer, Exchange) and len(answer.answer.texts) == 5
    assert server.outcomes["done"] == 5 and server.outcomes["refused"] > 0
    assert logged(log, tmp_path, gateway).device.tolist() == ["cloud"] * 5

    async def behind_others() -> list[Any]:
        async with TranslationClient(gateway.http.url) as client:
            others = []
            for _ in range(3):
                others.append(asyncio.ensure_future(together(client, [ask(forced=400)])))
                await asyncio.sleep(0.1)
            refused = await together(client, [texts])
            await asyncio.gather(*others)
            return refused

    (late,) = services.run(behind_others())
    assert isinstance(late, ServiceError) and late.status == 429 and services.errors == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_server_with_encryption_is_verified(services: Services, faulty: EngineProcess, start: Start, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    url = services.server(faulty, access=Access(tls_cert=cert, tls_key=key)).http.url
    assert url.startswith("https://")
    with pytest.raises(InputError, match=r"no known authority signed its certificate \(name its authorities with --ca-file\)$"):
        start(url)
    with pytest.raises(InputError, match="cannot be reached"):  # plain bytes at an encrypted port
        start(url.replace("https", "http"))
    with pytest.raises(InputError, match="no certificates of authorities"):
        start(url, ca_file=key)
    assert translated(services, start(url, ca_file=cert), *[ask()] * 3) == [1] * 3
    assert services.errors == []


@pytest.fixture(scope="module")
def local(services: Services) -> Iterator[LiveServer]:
    """What is on the box of a gateway without a model, and in the cloud."""
    yield services.server(engine_settings(load_paced))


def test_a_request_that_takes_a_server_too_long_is_translated_here(services: Services, local: LiveServer, start: Start) -> None:
    gateway = start(local.http.url, offload_s=0.15)
    assert translated(services, gateway, ask(forced=200)) == [0]
    assert gateway.outcomes == {"fallback": 1}
    services.wait(0.6)  # until the server is done with it
    assert translated(services, gateway, ask()) == [1]
    services.errors.clear()


def test_a_server_has_any_number_of_requests_of_a_gateway_at_once(services: Services, start: Start) -> None:
    """It answers none before the seventieth is there."""

    async def asked(url: str) -> list[Any]:
        async with TranslationClient(url, connections=0) as client:
            return await together(client, [ask()] * 70)

    with stub_service(waits_for=70, pace=0.0) as service:
        gateway = start(service.url, front=dataclasses.replace(FRONT, waiting=100), offload_s=20.0)
        assert devices_of(services.run(asked(gateway.http.url), 60.0)) == [1] * 70
        services.stop(gateway)
