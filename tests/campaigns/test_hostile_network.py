"""Sites and clients that speak HTTP or the recorder's protocol wrongly: refused in one line, and nobody else waits."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from simnmt.network import http_get
from simnmt.network.errors import TraceError
from simnmt.network.recording.protocol import ASK, DOWN, ECHO, HEAD, UPLOAD, connect, receive, resolve_host
from simnmt.network.recording.responder import Limits, Responder
from simnmt.network.ripe_atlas_api import Query, fetch
from tests.campaigns.harness import assert_short_lines, mutate_bytes, run_cases

START_S = 1_525_305_600
BODY = json.dumps(
    [
        {"type": "ping", "prb_id": 7, "msm_id": 5, "timestamp": START_S + 240 * probe, "result": [{"rtt": 70.5}, {"x": "*"}]}
        for probe in range(4)
    ]
).encode()
STATUS_LINES = [
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 206 Partial", b"HTTP/1.1 204 No",
    b"", b"HTTP/1.1 302 Found", b"HTTP/1.1 307 Again", b"HTTP/1.1 429 Busy", b"HTTP/1.1 503 No", b"HTTP/1.1 999 Odd",
    b"HTTP/9.9 200 OK", b"HTTP/1.1 99999999999 X", b"HTTP/1.1 -1 X", b"ICY 200 OK", b"\x00\xff", b"HTTP/1.1 100 Continue",
    b"HTTP/1.1 404 " + b"x" * 70_000,
]  # fmt: skip
HEADERS = [
    b"Content-Length: %d" % len(BODY), b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: 99999999999999999999",
    b"Content-Length: 5", b"Content-Length: \xd9\xa3", b"Transfer-Encoding: chunked", b"Transfer-Encoding: \x00",
    b"Connection: close", b"Content-Encoding: gzip", b"Content-Type: text/html",
    b"Content-Type: application/json; charset=nope", b"Location: /again", b"Location: http://[x/",
    b"Location: file:///etc/hostname", b"Location: //", b"Location: \x1b[31m", b"Location: http://a b/",
    b"Location: http://example.org:99999/", b"Retry-After: 1e9", b"Retry-After: -1", b"Retry-After: \xb2",
    b"X: " + b"y" * 70_000, b"no colon", b": empty", b"X: a\r\n folded", b"Set-Cookie: a=\x1b[31m",
]  # fmt: skip


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], str]]:
    """Sets what a site answers to every request from now on, and gives its address."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(http_get, "pause", lambda length_s: None)
    monkeypatch.setattr(http_get, "TIMEOUT_S", 1.0)
    current = [b""]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5.0)
                    connection.recv(1 << 16)
                    connection.sendall(current[0])

    threading.Thread(target=serve, daemon=True).start()

    def set_answer(content: bytes) -> str:
        current[0] = content
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield set_answer
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def answered(generator: random.Random) -> bytes:
    """Return an answer that is wrong somewhere, most of the time."""
    status = generator.choice(STATUS_LINES)
    headers = generator.sample(HEADERS, generator.choice([0, 1, 1, 2, 3]))
    body = generator.choice(
        [BODY, BODY, b"", BODY[:-30], b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), b"ffffffffff\r\n[", b"-1\r\n"]
    )
    whole = b"\r\n".join([status, *headers, b"", body])
    return mutate_bytes(whole, generator) if generator.random() < 0.4 else whole


def test_a_hostile_site_is_refused_in_one_line(answer: Callable[[bytes], str]) -> None:
    def check(generator: random.Random) -> None:
        site = answer(answered(generator))
        began_s = time.monotonic()
        try:
            fetch(Query(measurement=5, probe=7, start_s=START_S, stop_s=START_S + 86_400, base_url=site))
        except TraceError as error:
            assert_short_lines(error)
        assert time.monotonic() - began_s < 30.0, "an answer that is over is waited for"

    run_cases("hostile site", 150, check)


FRAMES = [HEAD.pack(ECHO, 1, 5) + b"hello", HEAD.pack(DOWN, 1000, 0), HEAD.pack(UPLOAD, 0, 300) + bytes(300)]


def test_a_hostile_client_disturbs_no_other(serve: Callable[..., Responder]) -> None:
    responder = serve(Limits(greeting_s=0.2, transfer_s=0.2))
    place = resolve_host(*responder.address)[0]
    honest = connect(place, 5.0)[0]

    def check(generator: random.Random) -> None:
        frames = b"".join(generator.choices(FRAMES, k=generator.choice([0, 1, 3])))
        with socket.create_connection(responder.address[:2], timeout=5.0) as hostile, suppress(OSError):
            hostile.sendall(mutate_bytes(ASK + frames, generator))
            if generator.random() < 0.5:
                hostile.shutdown(socket.SHUT_WR)
                while hostile.recv(1 << 16):
                    pass
        frame = HEAD.pack(ECHO, generator.randrange(1 << 32), 3) + b"abc"
        honest.sendall(frame)
        assert receive(honest, len(frame), time.monotonic() + 5.0) == frame

    with honest:
        run_cases("hostile client", 40, check)
