"""A running service without a model: it takes a known time for each token, on a thread of its own, and speaks all APIs."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.live.sleeping_service import served_on_a_thread

TGT_S, SRC_S, FIXED_S = 0.003, 0.0005, 0.004


def plane_s(src_len: int, tgt_len: int) -> float:
    return FIXED_S + SRC_S * src_len + TGT_S * tgt_len


def translation(text: str) -> str:
    """As many words as a checksum of the text says, 4 to 33."""
    return " ".join(f"w{place}" for place in range(4 + zlib.crc32(text.encode()) % 30))


@dataclass
class StubService:
    """Executes one request at a time, each for `seconds(source tokens, target tokens)`; the others wait."""

    seconds: Callable[[int, int], float] = plane_s
    """Of an execution, by source and target words; a chat that streams sends a word after an equal part of them."""
    pace: float = 1.0
    """Factor of all times."""
    token: str = ""
    api_fault: str = ""
    """What it does instead of translating: `html`, `break`, `empty`, `fail after 20`, `error with status 200`."""
    translate: Callable[[str], str] = translation
    thoughts: str = ""
    """Text of a chat answer ahead of its translation."""
    reasoning: str = ""
    """Thoughts of a chat answer in a field of their own."""
    finish_reason: str = "stop"
    refused_option: str = ""
    """Option of a chat request that is refused."""
    context: int = 4096
    """Most tokens of a chat request and its answer."""
    is_streamed: bool = False
    """Whether a chat answer comes as a stream though none is asked for."""
    stream_end: bytes | None = None
    """End of a stream after the words of a translation; None: as it should be."""
    facts: dict[str, Any] | None = None
    """What a chat answer states beside its text; None: its tokens, a word being one, and the time of its execution."""
    options: list[dict[str, Any]] = field(default_factory=list)
    """The requests that were not refused."""
    waits_for: int = 0
    """Requests that must be there before the first is executed."""
    languages: Any = field(default_factory=lambda: [{"code": "de", "targets": ["en"]}])
    health: str = "OK"
    """Body of `/health`; empty: there is no such path."""
    slowed: float = 0.0
    """Share by which each further request that is there when an execution begins makes it longer."""
    memory: Literal["", "last", "all"] = ""
    """Translations that it answers at once: that of the last text, or all."""
    asked: list[str] = field(default_factory=list)
    """The texts, in order."""
    url: str = ""

    async def execute(self, text: str, forced: int | None = None, send: Callable[[str], Awaitable[None]] | None = None) -> str:
        """Translate a text, to `forced` words if that is stated; `send`: sends each word."""
        if self.api_fault == "empty":
            return ""
        answer = self.translate(text)
        if forced is not None:
            answer = " ".join((answer.split() * forced)[:forced])
        self.asked.append(text)
        if self.memory and text in (self.asked[-2:-1] if self.memory == "last" else self.asked[:-1]):
            return answer
        self._inside += 1
        while self._inside < self.waits_for:
            await asyncio.sleep(0.001)
        self.waits_for = 0
        async with self._free:
            seconds = self.pace * self.seconds(len(text.split()), len(answer.split()))
            parts = re.split("(?= )", answer) if send else [answer]
            for part in parts:
                await asyncio.sleep(seconds / len(parts) * (1.0 + self.slowed * (self._inside - 1)))
                if send:
                    await send(part)
        self._inside -= 1
        return answer

    async def _fault(self, request: web.Request) -> web.StreamResponse | None:
        if self.token and (given := request.headers.get("Authorization", "")) != f"Bearer {self.token}":
            return web.json_response({"error": f"token {given or 'missing'} is not known"}, status=401)
        fault = self.api_fault
        if fault.startswith("fail after"):
            if len(self.asked) < int(fault.split()[-1]):
                return None
            return web.json_response({"error": "out of memory"}, status=500)
        if fault == "html":
            return web.Response(text="<!DOCTYPE html><html><body>welcome</body></html>", content_type="text/html")
        if fault == "error with status 200":
            return web.json_response({"error": "out of memory"})
        if fault == "break":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"translatedText": "half')
            assert request.transport is not None
            request.transport.close()
            return response
        return None

    async def _translate(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if (fault := await self._fault(request)) is not None:
            return fault
        self.options.append(asked)
        return web.json_response({"translatedText": await self.execute(asked["q"])})

    async def _languages(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.languages, status=404 if self.languages is None else 200)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": [{"id": "stub"}]})

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self.health, status=200 if self.health else 404)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if (fault := await self._fault(request)) is not None:
            return fault
        if self.refused_option in asked:
            message = f"'{self.refused_option}': Extra inputs are not permitted"
            return web.json_response({"object": "error", "message": message, "code": 400}, status=400)
        if (tokens := len(asked["messages"][0]["content"].split()) + asked.get("max_tokens", 0)) > self.context:
            message = f"This model's maximum context length is {self.context} tokens. However, you requested {tokens} tokens"
            return web.json_response({"object": "error", "message": message, "code": 400}, status=400)
        self.options.append(asked)
        text, streams = asked["messages"][0]["content"].split("\n\n")[-1], self.is_streamed or bool(asked.get("stream"))
        forced, begin_s = asked["max_tokens"] if asked.get("ignore_eos") else None, time.monotonic()
        message = {"role": "assistant", "content": None} | ({"reasoning_content": self.reasoning} if self.reasoning else {})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

        async def send(word: str) -> None:
            await response.write(b"data: \n\n" + event({"choices": [{"delta": {"content": word}, "finish_reason": None}]}))

        if streams:
            await response.prepare(request)
            await response.write(event({"choices": [{"delta": message}]}))
        answer = self.thoughts + await self.execute(text, forced, send if streams else None)
        finish = self.finish_reason if forced is None else "length"
        facts = self.facts
        if facts is None:
            timings = {"prompt_ms": 0.0, "predicted_ms": 1e3 * (time.monotonic() - begin_s)}
            facts = {"usage": {"prompt_tokens": 9, "completion_tokens": len(answer.split())}, "timings": timings}
        if not streams:
            return web.json_response(facts | {"choices": [{"message": message | {"content": answer}, "finish_reason": finish}]})
        whole = event({"choices": [{"delta": {}, "finish_reason": finish}]}) + event(facts | {"choices": []})
        await response.write(whole + b"data: [DONE]\n\n" if self.stream_end is None else self.stream_end)
        return response

    async def start(self) -> None:
        self._free, self._inside = asyncio.Lock(), 0
        app = web.Application()
        app.router.add_post("/translate", self._translate)
        app.router.add_get("/languages", self._languages)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()


def event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


@contextmanager
def stub_service(**fields: Any) -> Iterator[StubService]:
    """Run such a service until the block ends."""
    service = StubService(**fields)
    with served_on_a_thread(service.start, service.stop):
        yield service
