"""Messages of the API, read back as written and refused from strangers; and a client that sleeps the delays of a network."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.link import Hop, Link
from simnmt.network.series import RttSeries, constant_rtt
from simnmt.service import messages
from simnmt.service.client import DelayedTransport, Exchange, TranslationClient
from simnmt.service.load import LoadLog
from simnmt.service.messages import (
    Answer,
    ServiceError,
    Times,
    TranslateRequest,
    parse_answer,
    parse_json,
    parse_request,
    parse_times,
)
from tests.live.sleeping_service import sleeping

texts = st.text(st.characters(exclude_categories=["Cs"]))
codes = st.sampled_from(["de", "en", "zh-Hans", "auto"])
seconds = st.floats(0.0, 9e5)
header_texts = st.text(st.characters(codec="latin-1"))
requests = st.builds(
    lambda given, is_list, source, target, key, deadline_s, number: TranslateRequest(
        tuple(given) if is_list else (given[0],),
        is_list,
        source,
        target,
        key,
        tuple(len(text) for text in (given if is_list else given[:1])),
        deadline_s,
        number,
    ),
    st.lists(texts, min_size=1, max_size=5),
    st.booleans(),
    codes,
    codes,
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20),
    st.none() | st.floats(1e-3, 9e5),
    st.text("abc019-", max_size=30),
)


@given(requests)
def test_a_request_is_read_back_as_it_was_written(request: TranslateRequest) -> None:
    read = parse_request(parse_json(request.body()), request.headers(), most_texts=5)
    assert replace(read, deadline_s=request.deadline_s) == request
    assert read.deadline_s == (None if request.deadline_s is None else pytest.approx(request.deadline_s, abs=1e-6))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


KEYS = st.sampled_from(["q", "source", "target", "format", "api_key"])
REQUEST_HEADERS = st.sampled_from([messages.FORCED_LENGTH, messages.DEADLINE, messages.REQUEST])
ANSWER_HEADERS = st.sampled_from([messages.TIMING, messages.REPORT, messages.LENGTHS])
wrong_contents = st.builds(lambda key, value: {"q": "a", "source": "de", "target": "en", key: value}, KEYS, json_values)


@given(
    st.binary() | (json_values | wrong_contents).map(lambda value: json.dumps(value).encode()),
    st.dictionaries(REQUEST_HEADERS, header_texts),
)
def test_any_bytes_are_refused_or_mean_what_they_say(body: bytes, headers: Mapping[str, str]) -> None:
    try:
        read = parse_request(parse_json(body), headers, most_texts=3)
    except ServiceError as error:
        assert error.status == 400 and error.message.isprintable()
        return
    assert len(read.texts) >= 1
    assert read.forced_lens is None or all(0 <= length <= messages.MOST_FORCED for length in read.forced_lens)
    assert read.deadline_s is None or 0.0 < read.deadline_s < 1e6
    read.body()  # can be sent on


@given(seconds, seconds, seconds)
def test_times_are_read_back_to_a_microsecond(queue_s: float, execution_s: float, total_s: float) -> None:
    read = parse_times(Times(queue_s, execution_s, total_s).header())
    assert read is not None
    assert (read.queue_s, read.execution_s, read.total_s) == pytest.approx((queue_s, execution_s, total_s), abs=1e-6)


stated_times = st.tuples(*[st.floats() | st.integers()] * 3).map(
    lambda numbers: "queue;dur={}, execution;dur={}, total;dur={}".format(*numbers)
)


@given(
    st.binary() | json_values.map(lambda value: json.dumps({"translatedText": value}).encode()),
    st.dictionaries(ANSWER_HEADERS, header_texts | stated_times),
)
def test_an_answer_of_a_stranger_is_refused_or_has_times_that_are_durations(body: bytes, headers: Mapping[str, str]) -> None:
    """A server that states -1, 1e300 or nan must not reach the estimates of a gateway."""
    times = parse_times(headers.get(messages.TIMING))
    if times is not None:
        assert all(math.isfinite(number) and number >= 0.0 for number in (times.queue_s, times.execution_s, times.total_s))
    try:
        answer = parse_answer(body, headers)
    except ServiceError as error:
        assert error.status == 502
        return
    assert all(number >= 0 for number in (*answer.report, *answer.lengths))
    messages.answer_body(answer.texts or ("",), True)  # can be sent on


def test_what_a_service_reports_is_read() -> None:
    headers = {messages.REPORT: "3,17", messages.LENGTHS: "5,7,4", messages.TIMING: Times(0.1, 0.2, 0.4).header()}
    answer = parse_answer(b'{"translatedText": ["a", "b"]}', headers)
    assert (answer.texts, answer.report, answer.lengths) == (("a", "b"), (3, 17), (5, 7, 4))
    assert parse_answer(b'{"translatedText": "a"}', {messages.LENGTHS: "5,-7,4"}).lengths == (0, 0, 0)


def test_the_first_token_that_a_service_states_counts_as_if_it_had_been_sent_then() -> None:
    log, times = LoadLog.of(2), Times(0.1, 0.2, 0.4, first_token_s=0.15)
    for request, stated in enumerate((times, replace(times, first_token_s=None))):
        log.note(request, Exchange(Answer(("a",), stated, (), (0, 0, 0)), 10.0, 10.5, {}))
    assert log.first_s[0] == pytest.approx(10.25) and math.isnan(log.first_s[1])


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


def test_a_request_takes_the_round_trips_of_all_hops_and_its_bytes_their_time() -> None:
    size = len(REQUEST.body())
    transport = DelayedTransport([hop(0.1), hop(0.2, bps=8.0 * size / 0.2)])
    assert transport.way_s(size, 0) == pytest.approx(0.35, rel=1e-3)
    handshake_s, request_s = exchange_s(transport)
    assert handshake_s >= 0.3 and request_s >= 0.5


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
