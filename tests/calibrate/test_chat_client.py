"""OpenAI's streamed answers, from a server that sends bytes by a script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from simnmt.calibrate.chat_client import ChatClient, ChatExchange
from simnmt.service.messages import ServiceError

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(content: Any) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


def part(text: str | None, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"delta": {} if text is None else {"content": text}, "finish_reason": finish_reason}]})


def whole(body: bytes, content_type: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def complete(*pieces: bytes, pause_s: float = 0.0) -> ChatExchange:
    """The exchange with a server that answers with these pieces, a pause before each, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            await asyncio.sleep(pause_s)
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def work() -> ChatExchange:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            async with ChatClient(f"http://{host}:{port}/v1/", "m", timeout_s=5.0) as client:
                return await client.complete("translate")
        finally:
            server.close()

    return asyncio.run(work())


def test_tokens_are_timed_as_they_come_and_counted_as_the_service_says() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    done = complete(STREAM, part("a "), part("b"), part(None, "stop") + usage + b"data: [DONE]\n\n", pause_s=0.02)
    assert (done.text, done.prompt_tokens, done.completion_tokens) == ("a b", 7, 2)
    first_s, second_s = done.token_s
    assert done.received_s == second_s  # the end of the stream is no token
    assert 0.015 < second_s - first_s < 1.0 and first_s - done.sent_s > 0.03


def test_events_may_be_cut_anywhere_and_comments_are_left_out() -> None:
    stream = b": ping\n\n" + part("ü") + part(None, "stop") + b"data: [DONE]\n\n"
    assert complete(STREAM, *(stream[place : place + 7] for place in range(0, len(stream), 7))).text == "ü"


def test_an_answer_that_comes_as_a_whole_has_no_times_of_tokens() -> None:
    body = json.dumps({"choices": [{"message": {"content": "a b"}}], "usage": {"completion_tokens": 2}}).encode()
    done = complete(whole(body))
    assert (done.text, done.token_s, done.completion_tokens) == ("a b", [], 2)


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ((STREAM, part("a")), "closed the connection in the middle of an answer"),
        ((STREAM, event({"choices": [1]})), "without a delta"),
        ((b"HTTP/1.1 400 No\r\nContent-Length: 33\r\n\r\n" + b'{"error":{"message":"no such m"}}',), "no such m"),
    ],
)
def test_answers_that_are_none_are_refused(pieces: tuple[bytes, ...], complaint: str) -> None:
    with pytest.raises(ServiceError, match=complaint):
        complete(*pieces)
