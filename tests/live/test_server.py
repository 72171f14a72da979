"""A live server on real sockets: limits, wrong bytes, lost engines, and its end."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import signal
import socket
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.results.live_log import read_live_log
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.http_server import Access, Limits
from simnmt.service.messages import ServiceError
from tests.campaigns.harness import SCALE
from tests.live.fake_engines import FATAL
from tests.live.live_services import FRONT, Services, ask, host_port, together, unit_of

LIMITS = Limits(body_bytes=2000, read_s=0.2, idle_s=0.4, drain_s=5.0)


@pytest.fixture(scope="module")
def served(services: Services, faulty: EngineProcess) -> LiveServer:
    return services.server(faulty, limits=LIMITS)


def speak(services: Services, server: LiveServer, data: bytes, *, end: bool = False) -> bytes:
    """All that the server answers to these bytes until it closes the connection."""

    async def work() -> bytes:
        reader, writer = await asyncio.open_connection(*host_port(server.front.service.url))
        writer.write(data)
        if end:
            writer.write_eof()
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    return services.run(work())


def post(body: bytes, *, length: int | None = None, headers: str = "") -> bytes:
    head = f"POST /translate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_text(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"])


BODY = json.dumps({"q": "a b", "source": "de", "target": "en"}).encode()


def assert_serves(services: Services, server: LiveServer) -> None:
    (answer,) = services.translate(server.front.service.url, ask())
    assert isinstance(answer, Exchange), answer


def test_an_answer_states_times_lengths_and_what_is_left(services: Services, served: LiveServer) -> None:
    (answer,) = services.translate(served.front.service.url, ask("a b c", number="n7"))
    assert isinstance(answer, Exchange)
    times = answer.answer.times
    assert times is not None
    assert 0.0 < times.execution_s <= times.total_s <= answer.received_s - answer.sent_s
    assert (answer.answer.lengths, answer.answer.report) == ((4, 4, 1), (0, 0))
    assert answer.headers["Simnmt-Request"] == "n7"


def test_bodies_beyond_the_limit_are_refused(services: Services, served: LiveServer) -> None:
    stated = speak(services, served, post(b"", length=10**9))
    chunked = speak(
        services,
        served,
        post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"fa0\r\n" + bytes(4000) + b"\r\n0\r\n\r\n",
    )
    assert [status(stated), status(chunked)] == [413, 413]
    assert "2,000 bytes" in error_text(stated)
    assert_serves(services, served)


@pytest.mark.parametrize("form", ["gzip"])
def test_compressed_bodies_are_refused_unread(services: Services, front: Any, form: str) -> None:
    for body in (gzip.compress(BODY), b"no gzip at all", b""):
        assert status(speak(services, front, post(body, headers=f"Content-Encoding: {form}\r\n"))) == 415
    assert status(speak(services, front, post(BODY, headers="Content-Encoding: identity\r\n"))) == 200
    assert services.errors == []


def form_of(*fields: tuple[str, str]) -> tuple[bytes, str]:
    """A body and its header, as `curl -F` sends them."""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join([*parts, "--x--\r\n"]).encode(), "Content-Type: multipart/form-data; boundary=x"


FIELDS = (("source", "de"), ("target", "en"), ("format", "text"), ("api_key", ""))


def post_form(target: str, body: bytes, header: str) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.fixture(scope="module", params=["server", "gateway"])
def front(request: pytest.FixtureRequest, services: Services, faulty: EngineProcess) -> Any:
    """A server, or a gateway that offloads everything to it."""
    server = services.server(faulty)
    if request.param == "server":
        return server
    unit, servers = unit_of("@open-loop", "fit.inferences=0"), {"cloud": server.front.service.url}
    return services.gateway(GatewaySettings(unit, "cloud", servers, FRONT, any_model=True), None, faulty)


@pytest.mark.parametrize("texts", [1, 100])
def test_forms_and_queries_are_translated_as_json_is(services: Services, front: Any, texts: int) -> None:
    fields = [*(("q", f"a b {number}") for number in range(texts)), *FIELDS]
    plain = urlencode(fields)
    answers = [
        speak(services, front, request)
        for request in (
            post_form("/translate", *form_of(*fields)),
            post_form("/translate", plain.encode(), "Content-Type: application/x-www-form-urlencoded"),
            post_form(f"/translate?{plain}", b"", "Accept: */*"),
        )
    ]
    assert [status(answer) for answer in answers] == [200] * 3
    first, *others = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert others == [first] * 2
    assert texts == 1 or len(first["translatedText"]) == texts


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\na\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"q=a&source=de", "application/x-www-form-urlencoded"),
    ],
)
def test_a_body_that_is_no_form_is_refused(services: Services, served: LiveServer, body: bytes, kind: str) -> None:
    assert status(speak(services, served, post_form("/translate", body, f"Content-Type: {kind}"))) == 400
    assert services.errors == []


def test_a_language_left_to_the_service_is_stated(services: Services, front: Any) -> None:
    for q, expected in (("a", {"language": "de", "confidence": 0}), (["a", "b"], [{"language": "de", "confidence": 0}] * 2)):
        answer = speak(services, front, post(json.dumps({"q": q, "source": "auto", "target": "en"}).encode()))
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["detectedLanguage"] == expected
    assert b"detectedLanguage" not in speak(services, front, post(BODY))


def test_a_body_that_does_not_come_is_refused_in_time(services: Services, served: LiveServer) -> None:
    answer = speak(services, served, post(BODY[:5], length=len(BODY)))
    assert (status(answer), error_text(answer)) == (408, "the body did not come within 0.2 s")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 20_000,
    ],
)
def test_bytes_that_are_no_request_close_only_their_connection(services: Services, served: LiveServer, data: bytes) -> None:
    answer = speak(services, served, data)
    assert answer == b"" or 400 <= status(answer) < 500
    assert services.errors == []
    assert_serves(services, served)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is no JSON"),
        (b'{"q": 3, "source": "de", "target": "en"}', "q must be a text, or a list of at least one text"),
        (b'{"q": "\\ud800", "source": "de", "target": "en"}', "q holds half of a surrogate pair, which is no text"),
        (b'{"q": "a", "source": "de", "target": "en", "format": "html"}', "format html is not supported (send text)"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(services: Services, served: LiveServer, body: bytes, message: str) -> None:
    answer = speak(services, served, post(body))
    assert (status(answer), error_text(answer)) == (400, message)


def test_connections_opened_reset_and_half_closed_leave_nothing(services: Services, served: LiveServer) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))  # those of tests before may close meanwhile
    for number in range(300 if SCALE < 2.0 else 10_000):
        with socket.create_connection(host_port(served.front.service.url)) as end:
            if number % 3 == 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif number % 3 == 1:
                end.sendall(post(BODY))
                end.shutdown(socket.SHUT_WR)
        if number % 20 == 0:
            services.wait(0.001)
    services.wait(0.3)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2
    assert_serves(services, served)


def test_a_client_that_does_not_read_its_answers_keeps_nobody_waiting(services: Services, served: LiveServer) -> None:
    with socket.create_connection(host_port(served.front.service.url)) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.setblocking(False)
        request = post(BODY).replace(b"Connection: close\r\n", b"")
        sent = 0
        for _ in range(400):
            with suppress(BlockingIOError):
                sent += end.send(request)
            services.wait(0.0)
        assert sent > 0
        assert_serves(services, served)


def test_texts_that_could_never_be_translated_are_refused_for_good(services: Services, faulty: EngineProcess) -> None:
    server = services.server(faulty, FrontSettings(waiting=3))
    body = json.dumps({"q": ["a"] * 4, "source": "de", "target": "en"}).encode()
    answer = speak(services, server, post(body))
    assert (status(answer), error_text(answer)) == (400, "q has 4 texts, and 3 at most are translated at a time; send fewer")
    assert_serves(services, server)
    services.stop(server)


def test_a_text_longer_than_the_model_takes_is_refused_and_not_cut(services: Services, served: LiveServer) -> None:
    body = json.dumps({"q": "w " * 600, "source": "de", "target": "en"}).encode()
    answer = speak(services, served, post(body))
    message = "a text has more than the 512 tokens that the model takes; send it in parts"
    assert (status(answer), error_text(answer)) == (400, message)


def test_a_full_queue_refuses_and_says_when_to_come_back(services: Services, faulty: EngineProcess) -> None:
    server = services.server(faulty, FrontSettings(waiting=3))
    answers = services.translate(server.front.service.url, *[ask()] * 8)
    refused = [answer for answer in answers if isinstance(answer, ServiceError)]
    assert len(refused) == 5
    assert {(error.status, error.retry_after_s) for error in refused} == {(429, 1.0)}
    assert server.front.outcomes == {"done": 3, "refused": 5}
    assert_serves(services, server)
    services.stop(server)


def test_requests_without_the_token_are_refused_and_it_is_never_shown(services: Services, faulty: EngineProcess) -> None:
    log = io.StringIO()
    server = services.server(faulty, access=Access(token="s3cret-t0ken"), log=log)
    wrong = {"\ud800": 403, "": 403, "s3cret": 403, "s3cret-t0ken": 200}
    for token, expected in wrong.items():
        body = json.dumps(json.loads(BODY) | {"api_key": token}).encode()
        answer = speak(services, server, post(body))
        assert status(answer) == expected
        assert b"s3cret" not in answer
    bearer = speak(services, server, post(BODY, headers="Authorization: Bearer s3cret-t0ken\r\n"))
    health = speak(services, server, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    wrong_health = speak(
        services, server, b"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\nConnection: close\r\n\r\n"
    )
    metrics = speak(services, server, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert [status(answer) for answer in (bearer, health, wrong_health, metrics)] == [200, 200, 403, 403]
    services.stop(server)
    assert "s3cret" not in log.getvalue()


def test_a_request_beyond_its_deadline_is_answered_and_not_decoded(services: Services, faulty: EngineProcess) -> None:
    server = services.server(faulty)
    requests = [ask(deadline_s=5.0), *[ask(deadline_s=0.003)] * 20]
    answers = services.translate(server.front.service.url, *requests)
    assert isinstance(answers[0], Exchange)
    late = [answer for answer in answers[1:] if isinstance(answer, ServiceError)]
    assert late
    assert {error.status for error in late} == {504}
    assert faulty.waiting == 0
    services.stop(server)


def test_one_text_of_a_list_that_fails_fails_the_list_once(services: Services, served: LiveServer) -> None:
    body = json.dumps({"q": ["a", "b", "c"], "source": "de", "target": "en"}).encode()
    before = Counter(served.front.outcomes)
    answer = speak(services, served, post(body, headers=f"Simnmt-Target-Tokens: 3,{FATAL + 1},3\r\n"))
    assert (status(answer), error_text(answer)) == (400, "14 tokens are too many")
    assert sum((served.front.outcomes - before).values()) == 3
    assert served.front.waiting == 0
    good = speak(services, served, post(body))
    assert len(json.loads(good.partition(b"\r\n\r\n")[2])["translatedText"]) == 3


def test_too_little_memory_in_a_step_fails_its_batch_only(
    services: Services, served: LiveServer, faulty: EngineProcess
) -> None:
    restarts = faulty.restarts
    answers = services.translate(served.front.service.url, ask(), ask(forced=FATAL + 2), ask())
    assert isinstance(answers[1], ServiceError)
    assert (answers[1].status, "too little memory" in answers[1].message) == (503, True)
    assert isinstance(answers[0], Exchange)
    assert isinstance(answers[2], Exchange)
    assert faulty.restarts == restarts


@pytest.mark.parametrize("how", ["killed", "died"])
def test_a_lost_engine_fails_what_it_held_and_is_started_again(
    services: Services, served: LiveServer, faulty: EngineProcess, how: str
) -> None:
    restarts, process = faulty.restarts, faulty.pid

    async def work() -> list[Any]:
        async with TranslationClient(served.front.service.url) as client:
            forced = FATAL if how == "died" else None
            requests = [ask(f"{number}", forced if number == 10 else None) for number in range(30)]
            pending = asyncio.ensure_future(together(client, requests))
            await asyncio.sleep(0.02)
            if how == "killed":
                os.kill(process, signal.SIGKILL)
            answers = await pending
            while not faulty.alive:
                await asyncio.sleep(0.01)
            return answers

    answers = services.run(work())
    assert len(answers) == 30
    lost = [answer for answer in answers if isinstance(answer, ServiceError)]
    assert lost
    assert {error.status for error in lost} == {503}
    assert faulty.restarts == restarts + 1
    assert services.errors.pop().startswith("the engine's process ended (s")
    assert_serves(services, served)
    assert faulty.pid != process


def test_a_draining_server_finishes_what_is_under_way(services: Services, faulty: EngineProcess, tmp_path: Path) -> None:
    with (tmp_path / "log.jsonl").open("w") as log:
        server = services.server(faulty, log=log)

        async def work() -> list[Any]:
            async with TranslationClient(server.front.service.url) as client:
                pending = asyncio.ensure_future(together(client, [ask(f"t{number}") for number in range(20)]))
                while server.front.waiting < 20:
                    await asyncio.sleep(0.001)
                await server.front.service.stop()
                return await pending

        assert all(isinstance(answer, Exchange) for answer in services.run(work()))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(host_port(server.front.service.url))
        services.stop(server)
    requests = read_live_log(tmp_path / "log.jsonl").requests
    assert sorted(record.request for record in requests) == list(range(20))
    assert {record.outcome for record in requests} == {"done"}


def test_web_pages_of_the_allowed_origin_may_ask(services: Services, faulty: EngineProcess) -> None:
    server = services.server(faulty, access=Access(allow_origin="https://a.example"))
    preflight = b"OPTIONS /translate HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\nConnection: close\r\n\r\n"
    answer = speak(services, server, preflight)
    assert status(answer) == 200
    assert b"Access-Control-Allow-Origin: https://a.example" in answer
    assert b"Access-Control-Allow-Origin: https://a.example" in speak(services, server, post(BODY))
    services.stop(server)


def test_a_server_for_others_needs_a_token_and_encryption() -> None:
    from simnmt.base.errors import InputError
    from simnmt.service.http_server import Address

    everywhere = Address("0.0.0.0", 0)
    for settings in ({}, {"token": "t"}, {"behind_proxy": True}, {"token": "t", "tls_cert": Path("c.pem")}):
        with pytest.raises(InputError):
            Access(everywhere, **settings)
    Access(everywhere, token="t", behind_proxy=True)
