"""A live gateway before live servers: decisions, faults of servers and links, fallback, and what its log replays to."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.live.decider import replayed_targets
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway, _Drift
from simnmt.live.server import Result
from simnmt.results.live_log import DecisionRecord, read_live_log
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.http_server import Access, Metrics
from tests.calibrate.endpoint_stub import stub_service
from tests.live.fake_engines import load_paced
from tests.live.live_services import FRONT, Services, ask, engine_settings, host_port, together, unit_of
from tests.live.live_services import services as running_services

Scenario = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simnmt.live.gateway.PAUSES_S", (0.05,))


def settings(
    scenario: dict[str, Any], url: str, engine: EngineProcess, policy: str = "cloud", **others: Any
) -> GatewaySettings:
    unit = unit_of(scenario, "fit.inferences=0")
    return GatewaySettings(unit, policy, {"cloud": url}, **{"front": FRONT, "offload_s": 1.0} | others)


def device_of(answer: Exchange) -> int:
    return int(dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";"))["target"])


def answered(answers: list[Any]) -> list[Exchange]:
    assert [answer for answer in answers if not isinstance(answer, Exchange)] == []
    return answers


def logged(path: Path, gateway: LiveGateway, unit: Any, policy: str) -> Any:
    """The log of a gateway that was stopped; its decisions replay to the same targets."""
    log = read_live_log(path)
    events = log.decider_events
    assert log.begin is not None
    targets = replayed_targets(unit, policy, dict(enumerate(log.begin.initial_s, 1)), events)
    assert targets == [event.target for event in events if isinstance(event, DecisionRecord)]
    requests = pd.DataFrame(map(dataclasses.asdict, log.requests))
    assert requests.request.is_unique
    return requests


@pytest.mark.parametrize(
    ("policy", "overrides"),
    [
        ("cnmt", []),
        ("cnmt", ["policies.cnmt.sees_backlog=true"]),
    ],
    ids=["plain", "backlog"],
)
def test_decisions_replay_to_the_same_targets(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, tmp_path: Path, policy: str, overrides: list[str]
) -> None:
    server = services.server(faulty)
    scenario = make_scenario(workloads={"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 5.0}}})
    unit = unit_of(scenario, "fit.inferences=0", *overrides)
    path = tmp_path / "log.jsonl"
    with path.open("w") as log:
        gateway = services.gateway(
            dataclasses.replace(settings(scenario, server.front.service.url, faulty, policy), unit=unit), log, faulty
        )
        texts = [" ".join(["w"] * length) for length in (3, 40, 5, 25, 60, 1, 33, 2)] * 3
        for first in range(0, len(texts), 6):
            answered(services.translate(gateway.front.service.url, *map(ask, texts[first : first + 6])))
            services.wait(0.03)
        services.stop(gateway)
    services.stop(server)
    requests = logged(path, gateway, unit, policy)
    assert len(requests) == 24
    assert set(requests.outcome) == {"done"}
    assert np.all(requests.egress_s >= requests.decision_s)
    assert np.all(requests.decision_s >= requests.ingress_s)


def test_batched_targets_are_seen_by_their_reports(services: Services, faulty: EngineProcess, tmp_path: Path) -> None:
    unit = unit_of("@batched-cloud", "fit.inferences=0")
    policy = next(name for name, chosen in unit.scenario.policies.items() if chosen.estimation.hears_batches)
    server = services.server(faulty)
    path = tmp_path / "log.jsonl"
    with path.open("w") as log:
        devices = {target.device: server.front.service.url for target in unit.case.targets[1:]}
        gateway = services.gateway(GatewaySettings(unit, policy, devices, FRONT, any_model=True), log, faulty)
        for _ in range(3):
            answered(services.translate(gateway.front.service.url, *[ask("w " * 30)] * 10))
        services.stop(gateway)
    services.stop(server)
    assert len(logged(path, gateway, unit, policy)) == 30


def serve_paced(port: int) -> None:
    """Serve until the process is killed."""
    with running_services() as running:
        server = running.server(engine_settings(load_paced), port=port)
        print(server.front.service.url, flush=True)
        running.loop.run_forever()


@contextmanager
def process_of_a_server(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, with its address."""
    command = [sys.executable, "-c", f"from {__name__} import serve_paced; serve_paced({port})"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until_in_use(services: Services, gateway: LiveGateway) -> None:
    deadline_s = time.monotonic() + 10.0
    while gateway.health()["servers"]["cloud"] != "ok" and time.monotonic() < deadline_s:
        services.wait(0.02)


def test_a_server_killed_under_load_is_replaced_by_the_gateway_until_it_is_back(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, tmp_path: Path
) -> None:
    scenario, path, log = make_scenario(), tmp_path / "log.jsonl", io.StringIO()
    with process_of_a_server() as (process, url):
        gateway = services.gateway(settings(scenario, url, faulty), log, faulty)
        before = answered(services.translate(gateway.front.service.url, *[ask()] * 5))

        async def under_load() -> list[Any]:
            async with TranslationClient(gateway.front.service.url) as client:
                pending = asyncio.ensure_future(together(client, [ask(f"{number}") for number in range(60)]))
                while gateway.front.waiting < 20:  # a busy box has answered the first before the last has come
                    await asyncio.sleep(0.001)
                process.kill()
                return await pending

        killed = answered(services.run(under_load()))
        while_down = answered(services.translate(gateway.front.service.url, *[ask()] * 5))
    assert any("translating here until it answers" in line for line in services.errors)
    with process_of_a_server(host_port(url)[1]):
        wait_until_in_use(services, gateway)
        after = answered(services.translate(gateway.front.service.url, *[ask()] * 5))
        services.stop(gateway)
    path.write_text(log.getvalue())
    services.errors.clear()
    assert [{device_of(answer) for answer in answers} for answers in (before, while_down, after)] == [{1}, {0}, {1}]
    assert 0 in {device_of(answer) for answer in killed}
    requests = logged(path, gateway, gateway._settings.unit, "cloud")
    assert sorted(requests.request.tolist()) == list(range(75))  # each exactly once
    assert set(requests.outcome) == {"done", "fallback"}
    assert gateway.fallbacks == int((requests.outcome == "fallback").sum())


@pytest.mark.deep
def test_a_server_that_falls_silent_is_survived_and_used_again(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    with process_of_a_server() as (process, server_url):
        gateway = services.gateway(settings(make_scenario(), server_url, faulty, offload_s=0.2), None, faulty)
        url = gateway.front.service.url
        before = answered(services.translate(url, *[ask()] * 3))
        process.send_signal(signal.SIGSTOP)
        silent = answered(services.translate(url, *[ask()] * 3))
        process.send_signal(signal.SIGCONT)
        wait_until_in_use(services, gateway)
        after = answered(services.translate(url, *[ask()] * 3))
        services.stop(gateway)
    services.errors.clear()
    assert [{device_of(answer) for answer in answers} for answers in (before, silent, after)] == [{1}, {0}, {1}]


def test_delays_of_the_scenarios_network_are_slept_before_the_server(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    server = services.server(faulty)
    scenario = make_scenario(networks={"far": {"rtt": {"constant_ms": 80}}})
    gateway = services.gateway(settings(scenario, server.front.service.url, faulty, delays=True), None, faulty)
    (answer,) = answered(services.translate(gateway.front.service.url, ask()))
    account = dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";"))
    assert answer.received_s - answer.sent_s >= 0.08
    assert float(account["estimate_s"]) >= 0.08
    assert gateway.health()["delays"] == "far"
    services.stop(gateway)
    services.stop(server)


def test_the_drift_of_a_device_is_a_gauge(make_scenario: Scenario) -> None:
    unit, metrics = unit_of(make_scenario(), "fit.inferences=0"), Metrics()
    drift, profile = _Drift(unit.case.targets, metrics), unit.case.targets[1].profile
    src_end, tgt_end = end_tokens(profile.length_unit.end_of_sentence)
    for src_len, tgt_len in ((5, 9), (30, 20), (12, 3)):
        seconds = 1.5 * float(profile.plane.seconds(src_len - 1 + src_end, tgt_len - 1 + tgt_end))
        drift.observe("cloud", Result("", 0.0, seconds, (), (src_len, tgt_len, 1)))
    drift.observe("cloud", Result("", 0.0, 99.0, (), (5, 9, 4)))  # in a batch of four
    value = metrics.registry.get_sample_value("simnmt_execution_over_predicted", {"device": "cloud"})
    assert value == pytest.approx(1.5)


def test_a_client_in_a_hurry_takes_no_server_from_the_others(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    server = services.server(faulty)
    scenario = make_scenario(networks={"far": {"rtt": {"constant_ms": 500}}})
    gateway = services.gateway(settings(scenario, server.front.service.url, faulty, offload_s=2.0, delays=True), None, faulty)
    (hurried,) = answered(services.translate(gateway.front.service.url, ask(deadline_s=0.4)))
    (patient,) = answered(services.translate(gateway.front.service.url, ask()))
    assert (device_of(hurried), device_of(patient)) == (0, 1)
    assert gateway.health()["servers"]["cloud"] == "ok"
    services.stop(gateway)
    services.stop(server)


def test_a_server_with_another_model_is_refused_with_both_hashes(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, make_profile: Callable[..., Any], tmp_path: Path
) -> None:
    from simnmt.profile.profile_file import write_profile

    scenario = make_scenario()
    profile = make_profile(
        (2e-4, 2e-3, 5e-3), name="cloud", engine={"backend": "torch", "compute_type": "int8", "device": "cpu"}
    )
    write_profile(tmp_path / "cloud.json", profile)
    server = services.server(faulty)
    with pytest.raises(InputError) as caught:
        services.gateway(settings(scenario, server.front.service.url, faulty), None, faulty)
    assert profile.engine.hash in str(caught.value)
    assert faulty.block.hash in str(caught.value)
    gateway = services.gateway(settings(scenario, server.front.service.url, faulty, any_model=True), None, faulty)
    services.stop(gateway)
    services.stop(server)


def test_a_server_of_other_languages_is_refused_at_the_start(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    server = services.server(faulty, dataclasses.replace(FRONT, source="fr"))
    url = server.front.service.url
    message = rf"^{url} does not translate de to en, but fr to en \(give --source and --target\)$"
    with pytest.raises(InputError, match=message):
        services.gateway(settings(make_scenario(), url, faulty), None, faulty)
    french = dataclasses.replace(FRONT, source="fr")
    gateway = services.gateway(settings(make_scenario(), url, faulty, front=french), None, faulty)
    request = dataclasses.replace(ask(), source="fr")
    assert [device_of(answer) for answer in answered(services.translate(gateway.front.service.url, request))] == [1]
    services.stop(gateway)
    services.stop(server)


@pytest.mark.parametrize("languages", [None], ids=["none"])
def test_a_server_that_does_not_list_its_pairs_is_used(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, languages: Any
) -> None:
    with stub_service(health='{"status": "ok"}', languages=languages, pace=0.01) as stub:
        gateway = services.gateway(settings(make_scenario(), stub.url, faulty, any_model=True), None, faulty)
        assert [device_of(answer) for answer in answered(services.translate(gateway.front.service.url, ask()))] == [1]
        services.stop(gateway)


def test_a_server_that_comes_back_with_other_languages_stays_out_of_use(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    server = services.server(faulty)
    url = server.front.service.url
    gateway = services.gateway(settings(make_scenario(), url, faulty), None, faulty)
    services.stop(server)
    down = answered(services.translate(gateway.front.service.url, ask()))
    other = dataclasses.replace(FRONT, source="fr")
    server = services.server(faulty, other, port=host_port(url)[1])
    deadline_s = time.monotonic() + 10.0
    while "does not translate" not in gateway.health()["servers"]["cloud"] and time.monotonic() < deadline_s:
        services.wait(0.02)
    assert gateway.health()["servers"]["cloud"].startswith(f"{url} does not translate de to en, but fr to en")
    assert [device_of(answer) for answer in down] == [0]
    services.stop(gateway)
    services.stop(server)
    services.errors.clear()


def test_an_overloaded_server_is_left_alone_for_a_while(
    services: Services, faulty: EngineProcess, make_scenario: Scenario
) -> None:
    server = services.server(faulty, dataclasses.replace(FRONT, waiting=2))
    gateway = services.gateway(settings(make_scenario(), server.front.service.url, faulty), None, faulty)
    answers = answered(services.translate(gateway.front.service.url, *[ask()] * 12))
    assert {device_of(answer) for answer in answers} == {0, 1}
    assert server.front.outcomes["done"] == sum(device_of(answer) for answer in answers)
    services.stop(gateway)
    services.stop(server)
    services.errors.clear()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_server_with_encryption_is_verified(
    services: Services, faulty: EngineProcess, make_scenario: Scenario, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    server = services.server(faulty, access=Access(tls_cert=cert, tls_key=key))
    url = server.front.service.url
    assert url.startswith("https://")
    with pytest.raises(InputError, match="no known authority signed its certificate"):
        services.gateway(settings(make_scenario(), url, faulty), None, faulty)
    with pytest.raises(InputError, match="cannot be reached"):  # plain bytes at an encrypted port
        services.gateway(settings(make_scenario(), url.replace("https", "http"), faulty), None, faulty)
    with pytest.raises(InputError, match="no certificates of authorities"):
        services.gateway(settings(make_scenario(), url, faulty, ca_file=key), None, faulty)
    gateway = services.gateway(settings(make_scenario(), url, faulty, ca_file=cert), None, faulty)
    assert [device_of(answer) for answer in answered(services.translate(gateway.front.service.url, *[ask()] * 3))] == [1] * 3
    services.stop(gateway)
    services.stop(server)
    assert services.errors == []
