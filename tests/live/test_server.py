"""A live server on real sockets: limits, wrong bytes, lost engines, and its end."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.live.decider import live_unit
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, with_classes
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.results.live_log import read_live_log
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.http_server import Access, Address, Limits
from simnmt.service.messages import ServiceError
from tests.experiment.test_classes import classed
from tests.live.fake_engines import FATAL, load_paced
from tests.live.live_services import FRONT, Services, ask, engine_settings, host_port, plan_of, together

LIMITS = Limits(body_bytes=2000, read_s=0.2, idle_s=0.4, drain_s=5.0)
PLAIN = {"q": "a b", "source": "de", "target": "en"}
BODY = json.dumps(PLAIN).encode()


@pytest.fixture(scope="module")
def served(services: Services, faulty: EngineProcess) -> LiveServer:
    return services.server(faulty, limits=LIMITS)


@pytest.fixture(scope="module", params=["server", "gateway"])
def front(request: pytest.FixtureRequest, services: Services, faulty: EngineProcess) -> Any:
    return services.front(request.param, faulty)


def speak(services: Services, server: LiveServer, data: bytes) -> tuple[int, Any]:
    """The status and the content of the answer to these bytes, once the connection closes; (0, None) without an answer."""

    async def work() -> bytes:
        reader, writer = await asyncio.open_connection(*host_port(server.http.url))
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    head, _, body = services.run(work()).partition(b"\r\n\r\n")
    with suppress(ValueError):
        return int(head.split(b" ", 2)[1]), json.loads(body)
    return (int(head.split(b" ", 2)[1]), body) if head else (0, None)


def request(target: str, body: bytes = b"", *headers: str, method: str = "POST", length: int | None = None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def post(body: bytes | dict[str, Any], *headers: str, length: int | None = None) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request("/translate", data, "Content-Type: application/json", *headers, length=length)


def assert_serves(services: Services, server: LiveServer) -> None:
    (answer,) = services.translate(server.http.url, ask())
    assert isinstance(answer, Exchange), answer


def test_an_answer_states_times_lengths_and_what_is_left(services: Services, served: LiveServer) -> None:
    (answer,) = services.translate(served.http.url, ask("a b c", number="n7"))
    assert isinstance(answer, Exchange)
    times = answer.answer.times
    assert times is not None
    assert 0.0 < times.execution_s <= times.total_s <= answer.received_s - answer.sent_s
    assert (answer.answer.lengths, answer.answer.report) == ((4, 4, 1), (0, 0))
    assert answer.headers["Simnmt-Request"] == "n7"


CHUNKED = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"fa0\r\n" + bytes(4000) + b"\r\n0\r\n\r\n"
URL_ENCODED = "Content-Type: application/x-www-form-urlencoded"
FORM, NO_NAME = "Content-Type: multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n"


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (post(b"", length=10**9), 413, "2,000 bytes"),
        (CHUNKED, 413, "2,000 bytes"),
        (post(gzip.compress(BODY), "Content-Encoding: gzip"), 415, "compressed"),
        (post(BODY[:5], length=len(BODY)), 408, "did not come within 0.2 s"),
        (request("/translate", NO_NAME, FORM), 400, "no form"),
        (request("/translate", b"--x\r\n\r\na\r\n--x--\r\n", FORM), 400, "no form"),
        (request("/translate", b"q=a&source=de", URL_ENCODED), 400, "target"),
        (post(b"{"), 400, "no JSON"),
        (post(BODY[:-1] + b', "target": "fr"}'), 400, "'target' is given twice"),
        (request("/translate?source=fr", b"q=a&source=de&target=en", URL_ENCODED), 400, "'source' is given twice"),
        (post(PLAIN | {"q": 3}), 400, "q must be"),
        (post(PLAIN | {"q": "\ud800"}), 400, "surrogate"),
        (post(PLAIN | {"format": "html"}), 400, "format must be text"),
        (post(PLAIN | {"q": "w " * 600}), 400, "512 tokens"),
        (post(PLAIN | {"target": "fr"}), 400, "de to fr is not translated here"),
        (request("/translate?q=%ff%fe&source=de&target=en"), 400, "UTF-8"),
        (request("/translates", BODY), 404, "no POST /translates"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), None, ""),
        (b"GET / HTTP/9.9\r\n\r\n", None, ""),
        (b"A" * 20_000, None, ""),
    ],
)
def test_wrong_bytes_are_refused_and_close_only_their_connection(
    services: Services, served: LiveServer, data: bytes, status: int | None, message: str
) -> None:
    answered, content = speak(services, served, data)
    if status is None:
        assert answered == 0 or 400 <= answered < 500
    else:
        assert answered == status and message in content["error"]
    assert services.errors == []
    assert_serves(services, served)


def form_of(*fields: tuple[str, str]) -> bytes:
    """A body as `curl -F` sends it."""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join([*parts, "--x--\r\n"]).encode()


@pytest.mark.parametrize("texts", [1, 100])
def test_forms_and_queries_are_translated_as_json_is(services: Services, front: Any, texts: int) -> None:
    fields = [*(("q", f"a b {number}") for number in range(texts)), ("source", "de"), ("target", "en"), ("api_key", "")]
    plain = urlencode(fields)
    forms = request("/translate", form_of(*fields), FORM), request("/translate", plain.encode(), URL_ENCODED)
    answers = [speak(services, front, data) for data in (*forms, request(f"/translate?{plain}"))]
    assert answers == [(200, answers[0][1])] * 3
    assert texts == 1 or len(answers[0][1]["translatedText"]) == texts


def test_a_language_left_to_the_service_is_stated(services: Services, front: Any) -> None:
    language = {"language": "de", "confidence": 0}
    for q, expected in (("a", language), (["a", "b"], [language] * 2)):
        assert speak(services, front, post({"q": q, "source": "auto", "target": "en"}))[1]["detectedLanguage"] == expected
    assert "detectedLanguage" not in speak(services, front, post(BODY, "Content-Encoding: identity"))[1]


def test_a_full_queue_refuses_and_says_when_to_come_back(services: Services, faulty: EngineProcess) -> None:
    log = io.StringIO()
    server = services.server(faulty, FrontSettings(waiting=3), log)
    never = speak(services, server, post(PLAIN | {"q": ["a"] * 4}))
    assert never == (400, {"error": "q has 4 texts, and 3 at most are translated at a time; send fewer"})
    answers = services.translate(server.http.url, *[ask()] * 8)
    refused = [answer for answer in answers if isinstance(answer, ServiceError)]
    assert len(refused) == 5
    assert {(error.status, error.retry_after_s) for error in refused} == {(429, 1.0)}
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    logged = [(line["request"], line["outcome"]) for line in lines if line["event"] == "request"]
    assert [number for number, _ in sorted(logged)] == list(range(8))
    assert Counter(outcome for _, outcome in logged) == server.outcomes == {"done": 3, "refused": 5}
    assert_serves(services, server)


def test_a_higher_class_is_served_before_requests_that_came_earlier(services: Services) -> None:
    log, front = io.StringIO(), replace(FRONT, classes=("interactive", "files"))
    batching = Batching(1, max_wait_s=(inf, inf))
    server = services.server(engine_settings(load_paced, batching=batching), front, log)
    asked = [*(ask("a", 30, request_class="files") for _ in range(4)), ask("a", 30), ask("a", 30, request_class="bulk")]
    *answers, refused = services.translate(server.http.url, *asked)
    assert isinstance(refused, ServiceError) and (refused.status, "bulk" in refused.message) == (400, True)
    ends_s = [answer.received_s for answer in answers if isinstance(answer, Exchange)]
    assert sorted(ends_s).index(ends_s[4]) <= 1, "one may have begun before it came"
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    classes = Counter(line["request_class"] for line in logged if line["event"] == "request")
    assert classes == {"files": 4, "interactive": 1}


def test_a_gateway_sends_the_class_of_its_workload_on(services: Services, faulty: EngineProcess) -> None:
    log, plan = io.StringIO(), plan_of(classed(policies={"cloud": {}}))
    front = with_classes(FRONT, unit := live_unit(plan, "job"))
    engine = engine_settings(batching=Batching(1, max_wait_s=unit.scenario.max_wait_s))
    server = services.server(engine, replace(FRONT, classes=front.classes), log)
    settings = GatewaySettings(unit, "cloud", {"cloud": server.http.url}, front, any_model=True)
    gateway = services.gateway(settings, None, faulty)
    (answer,) = services.translate(gateway.http.url, ask())
    assert isinstance(answer, Exchange)
    assert json.loads(log.getvalue().splitlines()[-1])["request_class"] == "files"


async def greeted(client: TranslationClient) -> object:
    async with client:
        return await client.greet("--token-file", "start it")


def test_requests_without_the_token_are_refused_and_it_is_never_shown(services: Services, faulty: EngineProcess) -> None:
    log = io.StringIO()
    server = services.server(faulty, access=Access(token="s3cret-t0ken"), log=log)
    for token, expected in {"\ud800": 403, "": 403, "s3cret": 403, "s3cret-t0ken": 200}.items():
        status, content = speak(services, server, post(PLAIN | {"api_key": token}))
        assert status == expected
        assert "s3cret" not in str(content)
    right, wrong = "Authorization: Bearer s3cret-t0ken", "Authorization: Bearer no"
    others = [("/health", ()), ("/health", (wrong,)), ("/metrics", ()), ("/metrics", (right,))]
    statuses = [speak(services, server, request(path, b"", *headers, method="GET"))[0] for path, headers in others]
    assert [speak(services, server, post(BODY, right))[0], *statuses] == [200, 200, 403, 403, 200]
    with pytest.raises(InputError, match="the token is missing or wrong") as refused:
        services.run(greeted(TranslationClient(server.http.url, token="no")))
    assert refused.value.remedy == "give its token by --token-file"
    services.stop(server)
    assert "s3cret" not in log.getvalue()


def test_a_request_beyond_its_deadline_is_answered_and_not_decoded(services: Services, faulty: EngineProcess) -> None:
    requests = [ask(deadline_s=5.0), *[ask(deadline_s=0.003)] * 20]
    answers = services.translate(services.server(faulty).http.url, *requests)
    assert isinstance(answers[0], Exchange)
    assert {answer.status for answer in answers if isinstance(answer, ServiceError)} == {504}
    assert faulty.waiting == 0


def test_one_text_of_a_list_that_fails_fails_the_list_once(services: Services, served: LiveServer) -> None:
    body, before = PLAIN | {"q": ["a", "b", "c"]}, Counter(served.outcomes)
    answer = speak(services, served, post(body, f"Simnmt-Target-Tokens: 3,{FATAL + 1},3"))
    assert answer == (400, {"error": "14 tokens are too many"})
    assert sum((served.outcomes - before).values()) == 3
    assert served.waiting == 0
    assert len(speak(services, served, post(body))[1]["translatedText"]) == 3


def test_too_little_memory_in_a_step_fails_its_batch_only(
    services: Services, served: LiveServer, faulty: EngineProcess
) -> None:
    restarts = faulty.restarts
    first, failed, last = services.translate(served.http.url, ask(), ask(forced=FATAL + 2), ask())
    assert isinstance(failed, ServiceError)
    assert (failed.status, "too little memory" in failed.message) == (503, True)
    assert isinstance(first, Exchange) and isinstance(last, Exchange)
    assert faulty.restarts == restarts


@pytest.mark.parametrize("loss", ["killed", "died"])
def test_a_lost_engine_fails_what_it_held_and_is_started_again(
    services: Services, served: LiveServer, faulty: EngineProcess, loss: str
) -> None:
    restarts, process = faulty.restarts, faulty.pid
    assert process is not None

    async def work() -> list[Any]:
        async with TranslationClient(served.http.url) as client:
            forced = FATAL if loss == "died" else None
            requests = [ask(f"{number}", forced if number == 10 else None) for number in range(30)]
            pending = asyncio.ensure_future(together(client, requests))
            await asyncio.sleep(0.02)
            if loss == "killed":
                os.kill(process, signal.SIGKILL)
            answers = await pending
            with pytest.raises(ServiceError, match=r"^the engine is starting$") as starting:
                await client.health()
            assert (starting.value.status, starting.value.retry_after_s) == (503, 1.0)
            while not faulty.alive:
                await asyncio.sleep(0.01)
            assert (await client.health())[0]["status"] == "ok"
            return answers

    answers = services.run(work())
    assert len(answers) == 30
    assert {answer.status for answer in answers if isinstance(answer, ServiceError)} == {503}
    assert faulty.restarts == restarts + 1
    assert services.errors.pop().startswith("the engine's process ended (s")
    assert_serves(services, served)
    assert faulty.pid != process


def test_an_engine_that_stands_still_keeps_no_front_waiting(
    services: Services, faulty: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process takes no sentences: more than a pipe holds wait in the front, at last none, and /health answers."""
    monkeypatch.setattr(EngineProcess, "MOST_UNSENT_BYTES", 100_000)
    server, pid = services.server(faulty, FrontSettings(waiting=1000, deadline_s=1.0)), faulty.pid
    assert pid is not None
    goes_on = threading.Timer(15.0, os.kill, (pid, signal.SIGCONT))  # a front that waits would do so for ever

    async def work() -> tuple[Counter[int], float]:
        async with TranslationClient(server.http.url) as client:
            os.kill(pid, signal.SIGSTOP)
            goes_on.start()
            pending = asyncio.ensure_future(together(client, [ask("w " * 500)] * 600))
            begin_s = time.monotonic()
            while not server.waiting:
                await asyncio.sleep(0.01)
            async with client.exchange("GET", "/health") as (response, _):
                assert response.status == 200
            answers = await pending
            answered_s = time.monotonic() - begin_s
            os.kill(pid, signal.SIGCONT)
            return Counter(answer.status for answer in answers if isinstance(answer, ServiceError)), answered_s

    restarts = faulty.restarts
    statuses, answered_s = services.run(work())
    goes_on.cancel()
    assert answered_s < 10.0
    assert (set(statuses), statuses.total()) == ({503, 504}, 600)
    assert_serves(services, server)
    assert (faulty.waiting, faulty.restarts) == (0, restarts)


def test_a_draining_server_finishes_what_is_under_way_and_closes_each_connection(
    services: Services, faulty: EngineProcess, tmp_path: Path
) -> None:
    with (tmp_path / "log.jsonl").open("w") as log:
        server = services.server(faulty, log=log)

        async def work() -> tuple[list[Any], int]:
            reader, writer = await asyncio.open_connection(*host_port(server.http.url))
            writer.write(b"GET /languages HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"]}]")  # the connection is idle from now on
            async with TranslationClient(server.http.url) as client:
                pending = asyncio.ensure_future(together(client, [ask(f"t{number}") for number in range(20)]))
                while server.waiting + server.outcomes["done"] < 20:
                    await asyncio.sleep(0.001)
                unanswered, stopped = server.waiting, asyncio.ensure_future(server.http.stop())
                assert await reader.read() == b"" and server.waiting > 0, "the idle connection is closed at once"
                writer.close()
                await stopped
                return await pending, unanswered

        answers, unanswered = services.run(work())
        assert all(isinstance(answer, Exchange) for answer in answers)
        assert [answer.headers.get("Connection") for answer in answers].count("close") == unanswered
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(host_port(server.http.url))
        services.stop(server)
    requests = read_live_log(tmp_path / "log.jsonl").requests
    assert sorted(record.request for record in requests) == list(range(20))
    assert {record.outcome for record in requests} == {"done"}


def test_web_pages_of_the_allowed_origin_may_ask(services: Services, faulty: EngineProcess) -> None:
    url = services.server(faulty, access=Access(allow_origin="https://a.example")).http.url

    async def work() -> list[Any]:
        async with TranslationClient(url) as client:
            allowed = []
            for method, path in (("OPTIONS", "/translate"), ("GET", "/health")):
                async with client.exchange(method, path, headers={"Origin": "https://a.example"}) as (response, _):
                    allowed.append(response.headers["Access-Control-Allow-Origin"])
            return allowed

    assert services.run(work()) == ["https://a.example"] * 2


@pytest.mark.parametrize("settings", [{}, {"token": "t"}, {"behind_proxy": True}, {"token": "t", "tls_cert": Path("c.pem")}])
def test_a_server_for_others_needs_a_token_and_encryption(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Access(Address("0.0.0.0", 0), **settings)
    Access(Address("0.0.0.0", 0), token="t", behind_proxy=True)
