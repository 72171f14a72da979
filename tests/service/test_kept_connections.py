"""A client and a raw service that closes connections: idle ones, fresh ones, and in the middle of an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from simnmt.network.link import Hop, Link
from simnmt.network.series import constant_rtt
from simnmt.service.client import DelayedTransport, HttpClient
from simnmt.service.messages import ServiceError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nKeep-Alive: timeout=%d\r\n\r\ntrue"


class RawService:
    """Answers each request of a connection, counted from 0, by bytes; None closes the connection instead."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self.requests, self.connections, self.url = list[bytes](), 0, ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
                self.requests.append(head + await reader.readexactly(length))
                answer = self._answer(number)
                number += 1
                if answer is not None:
                    writer.write(answer)
                if answer is None or not answer.endswith(b"true"):
                    break
        writer.close()


async def asked(service: RawService, use: Callable[[HttpClient], Awaitable[Any]], **options: Any) -> Any:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server, HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options) as client:
        return await use(client)


async def post(client: HttpClient) -> float:
    """Send a POST; return the seconds until its last sending."""
    begin_s = time.monotonic()
    async with client.exchange("POST", "/", data=b"question") as (response, sent_s):
        await response.read()
    return sent_s - begin_s


async def twice(client: HttpClient) -> float:
    await post(client)
    return await post(client)


def test_a_request_on_a_kept_connection_that_is_closed_is_sent_once_more_in_whole() -> None:
    service = RawService(lambda number: OK % 5 if number == 0 else None)
    asyncio.run(asked(service, twice))
    assert service.connections == 2 and len(service.requests) == 3
    assert service.requests[1] == service.requests[2] and service.requests[1].endswith(b"question")


def test_a_kept_connection_that_breaks_later_is_an_error_since_the_request_may_have_been_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simnmt.service.client.AT_ONCE_S", 0.0)
    service = RawService(lambda number: OK % 5 if number == 0 else None)
    with pytest.raises(ServiceError, match="closed the connection"):
        asyncio.run(asked(service, twice))
    assert len(service.requests) == 2


def test_the_time_of_a_request_that_is_sent_again_begins_with_its_second_sending() -> None:
    """The first sending travels for half of a round trip before the closed connection is noticed."""
    service = RawService(lambda number: OK % 5 if number == 0 else None)
    transport = DelayedTransport([Hop((Link(constant_rtt(0.2), 1e9, 1e9),), (0.0,))])
    assert asyncio.run(asked(service, twice, transport=transport)) >= 0.1


def test_a_fresh_connection_that_is_closed_is_an_error_at_once() -> None:
    service = RawService(lambda number: None)
    with pytest.raises(ServiceError, match="closed the connection"):
        asyncio.run(asked(service, post))
    assert len(service.requests) == 1


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nhalf"])
def test_an_answer_that_breaks_off_is_not_asked_for_again(part: bytes) -> None:
    service = RawService(lambda number: part if number else OK % 5)
    with pytest.raises(ServiceError):
        asyncio.run(asked(service, twice))
    assert len(service.requests) == 2


@pytest.mark.parametrize(("timeout_s", "connections"), [(1, 2), (60, 1)])
def test_a_connection_is_kept_no_longer_than_the_service_says(timeout_s: int, connections: int) -> None:
    async def pause(client: HttpClient) -> None:
        await post(client)
        await asyncio.sleep(0.7)
        await post(client)

    service = RawService(lambda number: OK % timeout_s)
    asyncio.run(asked(service, pause))
    assert service.connections == connections
