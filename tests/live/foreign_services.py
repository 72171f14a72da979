"""Services of others, as tests pretend them: LibreTranslate's API, which copies, and OpenAI's, which emits numbers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.live.sleeping_service import served_on_a_thread

LANGUAGES = [{"code": "de", "targets": ["en"]}, {"code": "en", "targets": ["de"]}]


class ForeignService:
    """Answers one request after another: a step of `step_s` for each word or token."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.url, self.asked = step_s, "", list[dict[str, Any]]()
        app = web.Application()
        app.router.add_get("/languages", answering(LANGUAGES))
        app.router.add_post("/translate", self._translate)
        app.router.add_get("/v1/models", answering({"data": [{"id": "tiny"}]}))
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner, self._turn = web.AppRunner(app), asyncio.Lock()

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _translate(self, request: web.Request) -> web.Response:
        self.asked.append(content := await request.json())
        async with self._turn:
            await asyncio.sleep(self.step_s * len(content["q"].split()))
        return web.json_response({"translatedText": content["q"]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(content := await request.json())
        streams, tokens = content.get("stream", False), content["max_tokens"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with self._turn:
            begin_s = time.monotonic()
            if streams:
                await response.prepare(request)
            for token in range(tokens):
                await asyncio.sleep(self.step_s)
                if streams:
                    await response.write(event({"choices": [{"delta": {"content": f"{token} "}}]}))
            timings = {"prompt_ms": 0.0, "predicted_ms": 1e3 * (time.monotonic() - begin_s)}
        facts = {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}, "timings": timings}
        if not streams:
            return web.json_response(facts | {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]})
        await response.write(event(facts | {"choices": [{"delta": {}, "finish_reason": "length"}]}) + b"data: [DONE]\n\n")
        return response


def answering(content: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(content)

    return answer


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


@contextmanager
def foreign(step_s: float = 1e-3) -> Iterator[ForeignService]:
    """Run such a service until the block ends."""
    service = ForeignService(step_s)
    with served_on_a_thread(service.start, service.stop):
        yield service
