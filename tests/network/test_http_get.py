"""A site that answers badly is refused in one line, and within the time that a fetch may take."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from simnmt.network import http_get
from simnmt.network.errors import TraceError
from simnmt.network.http_get import get

Site = Callable[..., str]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Serves parts of an answer with a pause between them, to any number of requests; gives the address."""
    monkeypatch.setattr(http_get, "pause", lambda length_s: None)
    listeners: list[socket.socket] = []

    def serve(*parts: bytes, pause_s: float = 0.0) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def answer() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1 << 16)
                        for part in parts:
                            connection.sendall(part)
                            time.sleep(pause_s)
            except OSError:
                pass  # the test has ended

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/results"

    yield serve
    for listener in listeners:
        listener.close()


def test_a_whole_answer_is_read(site: Site) -> None:
    assert get(site(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"[]"), {}, {}) == b"[]"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
    assert get(site(chunked), {}, {}) == b"[]"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b""])
def test_dripped_headers_respect_the_total_time(site: Site, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(http_get, "LONGEST_S", 0.4)
    drips = [head, *[b"x"] * 100]
    began_s = time.monotonic()
    with pytest.raises(TraceError, match=r"sends longer than 0.4 s \(ask for a shorter time\)"):
        get(site(*drips, pause_s=0.05), {}, {})
    assert time.monotonic() - began_s < 3.0


@pytest.mark.parametrize("location", [b"http://[x/", b"http://[::1", b"//[", b"http://a:b:c/"])
def test_a_redirection_to_no_address_is_one_line(site: Site, location: bytes) -> None:
    with pytest.raises(TraceError, match=r"sends us to (an address that is not valid|another site, \S+) \(check --base-url\)"):
        get(site(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"), {}, {})


@pytest.mark.parametrize(
    "head", [b"Content-Length: 4611686018427387904\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n3fffffffffffffff\r\n"]
)
def test_the_body_of_a_redirection_is_not_read(site: Site, head: bytes) -> None:
    """However large it says that it is."""
    with pytest.raises(TraceError, match=r"answered with status 302 \(check --base-url\)"):
        get(site(b"HTTP/1.1 302 Found\r\nLocation: /results\r\n" + head + b"x"), {}, {})
