"""A client sleeps the delays of a network, both ways, over real sockets."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import Mock

import pytest

from simnmt.network.link import Hop, Link
from simnmt.network.series import RttSeries, constant_rtt
from simnmt.service.client import DelayedTransport, TranslationClient
from simnmt.service.messages import ServiceError, TranslateRequest
from tests.live.sleeping_service import sleeping

REQUEST = TranslateRequest(("a b c",), False, "de", "en")


def hop(rtt_s: float, bps: float = 1e9) -> Hop:
    return Hop((Link(constant_rtt(rtt_s), bps, bps),), (0.0,))


def exchange_s(transport: DelayedTransport, timeout_s: float = 10.0) -> tuple[float, float]:
    """Return the seconds of a handshake over an open connection, and of a request, to a service that answers at once."""

    async def ask(url: str) -> tuple[float, float]:
        async with TranslationClient(url, transport=transport) as client:
            await client.health()
            _, handshake_s = await client.health()
            begin_s = time.monotonic()
            answered = await client.translate(REQUEST, timeout_s)
            assert answered.answer.texts
            return handshake_s, time.monotonic() - begin_s

    with sleeping(lambda number: 0.0) as service:
        return asyncio.run(ask(service.url))


def test_a_handshake_and_a_request_take_the_round_trips_of_all_hops() -> None:
    handshake_s, request_s = exchange_s(DelayedTransport([hop(0.3), hop(0.2)]))
    assert handshake_s >= 0.5 and request_s >= 0.5


def test_bytes_take_their_time_by_the_bandwidth() -> None:
    slow = hop(1e-3, bps=8.0 * len(REQUEST.body()) / 0.2)
    transport = DelayedTransport([slow])
    assert transport.way_s(len(REQUEST.body()), 0) == pytest.approx(0.2005)
    _, request_s = exchange_s(transport)
    assert request_s >= 0.2


def test_a_response_is_closed_if_its_reader_gives_up_while_it_travels() -> None:
    request, response = Mock(headers={}), Mock(content_length=10**6)

    async def answer(request: Any) -> Any:
        return response

    async def give_up() -> None:
        transport = DelayedTransport([Hop((Link(constant_rtt(1e-6), 1e9, 1e3),), (0.0,))])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport(request, answer), 0.05)

    asyncio.run(give_up())
    response.close.assert_called_once_with()


def test_the_delay_counts_for_the_timeout() -> None:
    with pytest.raises(ServiceError) as caught:
        exchange_s(DelayedTransport([hop(0.4)]), timeout_s=0.1)
    assert caught.value.status == 504


def test_the_series_begins_with_the_transport_and_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    series = RttSeries("two", "measured", "made up", [0.0, 10.0], [0.1, 0.3])
    transport = DelayedTransport([Hop((Link(series, 1e9, 1e9),), (0.0,))])
    assert transport.way_s(0, 0) == 0.05
    transport.begin_s -= 12.0
    assert transport.way_s(0, 0) == 0.15
