"""Fetching from RIPE Atlas, against a local server that answers as we tell it."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from simnmt.network import http_get
from simnmt.network.errors import TraceError
from simnmt.network.ripe_atlas_api import Cache, Query, fetch, read_key

START_S = 1_525_305_600
RESULTS = json.dumps(
    [
        {
            "fw": 4900,
            "type": "ping",
            "prb_id": 6222,
            "msm_id": 1437285,
            "timestamp": START_S + 240 * round_,
            "dst_name": "probe.example",
            "result": [{"rtt": 70.0 + round_}, {"x": "*"}],
        }
        for round_ in range(5)
    ]
).encode()


@dataclass
class Site:
    """What a server was asked, and what it will answer in turn; the last answer again and again."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def will(self, status: int = 200, body: bytes = RESULTS, **headers: str) -> Site:
        message = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self.answers.append((status, message | {key.replace("_", "-"): value for key, value in headers.items()}, body))
        return self

    def query(self, **other: Any) -> Query:
        return Query(
            **({"measurement": 1437285, "probe": 6222, "start_s": START_S, "stop_s": START_S + 86_400} | other),
            base_url=self.url,
        )


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Site]]:
    """Begins a server; pauses between tries are only noted, and no proxy stands between."""
    monkeypatch.setenv("no_proxy", "*")
    servers = []

    def begin() -> Site:
        site = Site()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, dict(self.headers)))
                status, headers, body = site.answers[0] if len(site.answers) == 1 else site.answers.pop(0)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        site.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return site

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(serve: Callable[[], Site]) -> Site:
    return serve()


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; none takes any time."""
    made: list[float] = []
    monkeypatch.setattr(http_get, "pause", made.append)
    return made


def test_the_query_is_that_of_the_api(site: Site) -> None:
    fetched = fetch(site.will().query())
    path, headers = site.asked[0]
    assert path == f"/api/v2/measurements/1437285/results/?probe_ids=6222&start={START_S}&stop={START_S + 86_400}&format=json"
    assert "Authorization" not in headers
    assert (fetched.trace.value * 1e3).tolist() == pytest.approx([70, 71, 72, 73, 74])
    assert (fetched.trace.kind, fetched.trace.began_s) == ("measured", START_S)
    assert fetched.kept.sha256 == hashlib.sha256(RESULTS).hexdigest()


def test_the_answer_is_cached_unchanged_and_fetched_once(site: Site, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    query = site.will().query()
    first, second = fetch(query, cache), fetch(query, cache)
    assert (len(site.asked), first.from_cache, second.from_cache) == (1, False, True)
    body, manifest = cache.files(query.url)
    assert body.read_bytes() == RESULTS
    assert json.loads(manifest.read_text()) == {
        "url": query.url,
        "fetched": first.kept.fetched,
        "sha256": hashlib.sha256(RESULTS).hexdigest(),
        "size_bytes": len(RESULTS),
    }
    assert second.trace.value.tolist() == first.trace.value.tolist()
    assert second.kept == first.kept


def test_another_query_has_another_cached_answer(site: Site, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    site.will()
    fetch(site.query(), cache)
    fetch(site.query(stop_s=START_S + 3600), cache)
    assert len(site.asked) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "manifest"])
def test_a_damaged_cache_is_fetched_again_with_a_remark(site: Site, tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    query = site.will().query()
    fetch(query, cache)
    body, manifest = cache.files(query.url)
    if damage == "cut":
        body.write_bytes(RESULTS[:-20])
    elif damage == "changed":
        body.write_bytes(RESULTS.replace(b"70.0", b"10.0"))
    elif damage == "gone":
        body.unlink()
    else:
        manifest.write_text('{"url": 3}')
    again = fetch(query, cache)
    assert (len(site.asked), again.from_cache, again.remarks) == (2, False, (f"{body} is damaged: fetched again",))
    assert again.trace.value[0] == pytest.approx(0.070)
    assert fetch(query, cache).from_cache


def test_what_was_fetched_before_its_time_was_over_is_not_taken_for_whole(site: Site, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    query = site.will().query(stop_s=4_000_000_000)
    assert fetch(query, cache).remarks == ("--stop lies ahead: results that come until then are not in it",)
    assert "older than the last results" in fetch(query, cache).remarks[0]
    assert len(site.asked) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_request_to_a_busy_site_is_repeated_after_a_pause(site: Site, pauses: list[float], status: int) -> None:
    site.will(status, b"").will(status, b"", Retry_After="7").will()
    assert len(fetch(site.query()).trace.value) == 5
    assert pauses == [1.0, 7.0]


def test_a_site_that_stays_busy_is_given_up(site: Site, pauses: list[float]) -> None:
    with pytest.raises(TraceError, match=r"^127\.0\.0\.1:\d+: answered with status 503, 4 times in a row \(try again later\)$"):
        fetch(site.will(503, b"", Retry_After="100000").query())
    assert pauses == [60.0, 60.0, 60.0]


def test_an_incomplete_answer_is_fetched_again(site: Site, pauses: list[float]) -> None:
    site.will(200, RESULTS[:100], Content_Length=str(len(RESULTS))).will()
    assert len(fetch(site.query()).trace.value) == 5
    assert pauses == [1.0]


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (200, b"[]", {}, "measurement 1437285, probe 6222, 2018-05-03T00:00Z to 2018-05-04T00:00Z: no results ("),
        (400, b"{}", {}, "SITE does not understand measurement 1437285, probe 6222"),
        (401, b"{}", {}, "SITE does not know the API key"),
        (403, b"{}", {}, "measurement 1437285 is not public (give --api-key-file)"),
        (404, b"{}", {}, "SITE has no measurement 1437285 (check --measurement)"),
        (418, b"{}", {}, "SITE answered with status 418 (check --base-url)"),
        (200, b"<html>sign in", {"Content_Type": "text/html; charset=utf-8"}, "SITE sent a page instead of results"),
        (200, b"<!doctype html>", {}, "SITE sent a page instead of results"),
        (200, RESULTS[:-40], {}, "SITE sent what is no JSON, perhaps cut off on its way"),
        (200, b'{"error": 1}', {}, "SITE sent no list of results"),
        (200, b"[" * 100_000, {}, "SITE sent what is no JSON"),
        (200, RESULTS.replace(b'"ping"', b'"dns"'), {}, "measurement 1437285 is of type 'dns' (give one that is a ping or a"),
        (200, RESULTS.replace(b"6222", b"7"), {}, "RIPE Atlas measurement 1437285, probe 6222, "),
        (200, b"", {"Content_Length": str(1 << 40)}, "SITE: broke off after 0 of 1,099,511,627,776 bytes, 4 times in a row"),
        (
            302,
            b"",
            {"Location": "http://localhost:1/x"},
            "SITE sends us to another site, http://localhost:1 (check --base-url)",
        ),
        (302, b"", {"Location": "file:///etc/hostname"}, "SITE sends us to another site, file:// (check --base-url)"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_is_not_kept(
    site: Site, tmp_path: Path, status: int, body: bytes, headers: dict[str, str], message: str
) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(TraceError) as refused:
        fetch(site.will(status, body, **headers).query(), cache)
    text = str(refused.value)
    assert text.startswith(message.replace("SITE", site.url.removeprefix("http://")))
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_an_endless_answer_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "MOST_BYTES", 100)
    with pytest.raises(TraceError, match="sends more than"):
        fetch(site.will().query())


def test_a_site_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps it from being silent, but not from being too slow."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(http_get, "LONGEST_S", 0.1)

    def drip() -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n")
            for _ in range(60):
                connection.sendall(b"[")
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began_s = time.monotonic()
        with pytest.raises(TraceError, match=r"sends longer than 0\.1 s"):
            http_get.get(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, {})
        assert time.monotonic() - began_s < 0.8
        thread.join(2.0)


def test_an_answer_ends_at_its_stated_length_though_the_connection_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(http_get, "TIMEOUT_S", 0.5)
    done = threading.Event()

    def answer() -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]")
            done.wait(2.0)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert http_get.get(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, {}) == b"[]"
        done.set()
        thread.join(2.0)


def test_redirections_within_the_site_are_followed(site: Site) -> None:
    site.will(301, b"", Location="/elsewhere").will()
    fetch(site.query())
    assert site.asked[1][0] == "/elsewhere"


def test_the_key_goes_to_the_site_alone(serve: Callable[[], Site]) -> None:
    site, other = serve(), serve()
    fetch(site.will().query(), key="secret")
    assert site.asked[0][1]["Authorization"] == "Key secret"
    site.answers.clear()
    site.will(302, b"", Location=f"{other.url}/x")
    with pytest.raises(TraceError, match="sends us to another site"):
        fetch(site.query(), key="secret")
    assert other.asked == []


def test_the_key_is_neither_kept_nor_shown(site: Site, tmp_path: Path) -> None:
    fetched = fetch(site.will().query(), Cache(tmp_path), key="secret")
    assert all(b"secret" not in path.read_bytes() for path in tmp_path.iterdir())
    assert "secret" not in repr(fetched)
    site.answers.clear()
    with pytest.raises(TraceError, match="the owner of the API key may not see it") as refused:
        fetch(site.will(403, b"").query(), key="secret")
    assert "secret" not in str(refused.value)


def test_no_key_goes_out_in_the_open() -> None:
    with pytest.raises(TraceError, match="an API key would be sent without encryption"):
        fetch(Query(1, 2, 3, 4, "http://atlas.example"), key="secret")


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 300, b"line\nline"])
def test_a_file_that_holds_no_key_is_refused_unseen(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(TraceError, match="is no API key") as refused:
        read_key(tmp_path / "key")
    assert "two" not in str(refused.value)
    (tmp_path / "key").write_text("0123-abcd\n")
    assert read_key(tmp_path / "key") == "0123-abcd"


def test_a_site_that_is_not_there(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(TraceError, match=r"^127\.0\.0\.1:1: cannot be reached: Connection refused, 4 times in a row"):
        fetch(Query(1, 2, 3, 4, "http://127.0.0.1:1"))
    assert pauses == [1.0, 4.0, 15.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"measurement": 0}, "--measurement 0: is not a valid number of RIPE Atlas"),
        ({"probe": -1}, "--probe -1: is not a valid number of RIPE Atlas"),
        ({"stop_s": 0}, "--stop 1970-01-01T00:00Z is not after --start 1970-01-01T00:01Z"),
        ({"base_url": "atlas.ripe.net"}, "--base-url atlas.ripe.net: is no address of a web site"),
        ({"base_url": "file:///etc"}, "--base-url file:///etc: is no address"),
        ({"base_url": "https://a:b@c"}, "--base-url https://a:b@c: is no address"),
        ({"base_url": "https://c:x"}, "--base-url https://c:x: is no address"),
        ({"base_url": "https://[c"}, "--base-url"),
    ],
)
def test_an_invalid_query_sends_no_request(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as refused:
        Query(**({"measurement": 1, "probe": 2, "start_s": 60, "stop_s": 120} | wrong))
    assert str(refused.value).startswith(message)
