"""A running service with slots and no model: it sleeps the costs of its iterations and streams words, as llama-server does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from simnmt.batching.slots import SlotBatcher, SlotLimits
from simnmt.profile.slots_block import SlotsCost
from tests.live.sleeping_service import served_on_a_thread

COST = SlotsCost((0.001, 0.002, 0.003), 0.00004, 0.000002)
TEMPLATE = 5
"""Tokens of the template, which every prompt begins with and which it keeps."""


@dataclass
class FakeSlots:
    """Decodes two requests at once. A word is a token."""

    fault: str = ""
    """What it does instead, after its first `sound` requests."""
    sound: int = 0
    slots: int = 2
    """As it states."""
    asked: int = 0
    url: str = ""
    _tokens: dict[int, asyncio.Queue[None]] = field(default_factory=dict)

    async def _decode(self) -> None:
        batcher, sizes = self._batcher, self._sizes
        while True:
            await self._work.wait()
            end_s = time.monotonic()
            while batcher.active or batcher.waiting:
                work = batcher.next()
                context = sum(sizes[one][0] + sizes[one][1] for one in work.decodes)
                pace = 4.0 if self.fault == "speed" and self.asked > self.sound else 1.0
                end_s += pace * COST.iterations_s(len(work.decodes), context, 1, work.prompt_tokens)
                await asyncio.sleep(end_s - time.monotonic())
                for one in (*work.decodes, *work.ends_prompt):
                    sizes[one][1] += 1
                    self._tokens[one].put_nowait(None)
                    if sizes[one][1] == sizes[one][2]:
                        batcher.leave(one)
            self._work.clear()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked, fault = await request.json(), self.fault
        self.asked += 1
        number, fault = self.asked, fault if self.asked > self.sound else ""
        text = asked["messages"][0]["content"].split("\n\n")[1]
        prompt, most = TEMPLATE + len(text.split()), asked["max_tokens"]
        output = most if asked.get("ignore_eos") else min(most, 4 + 2 * len(text.split()))
        if fault == "close":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if fault == "stream" and asked.get("stream"):
            return _refused("'stream' is not supported by this model")
        if fault == "context":
            return _refused(f"request ({prompt} tokens) exceeds the available context size (8 tokens), try increasing it")
        if fault == "endless":
            output = most
        if fault == "cut":
            output = max(output // 2, 1)
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
        usage["prompt_tokens_details"] = {"cached_tokens": 7 * (number % 3) if fault == "cache" else TEMPLATE}
        if fault == "usage":
            usage = {}
        if fault == "empty":
            output = 0
        if output:
            self._sizes[number], self._tokens[number] = [prompt, 0, output], asyncio.Queue()
            self._batcher.arrive(number, prompt)
            self._work.set()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Keep-Alive": "timeout=5"})
        if asked.get("stream"):
            await response.prepare(request)
        # Of a model that goes on for ever, all tokens are parts of one word.
        words = [f"w{token}" if fault == "endless" else f"w{token} " for token in range(output)]
        for word in words:
            await self._tokens[number].get()
            if asked.get("stream") and fault not in ("buffer", "piece") and (fault != "silent" or output > 1):
                await response.write(_content(word))
            if fault == "break":
                return response
        if asked.get("stream") and fault in ("buffer", "piece"):
            await response.write(b"".join(map(_content, words if fault == "buffer" else ["".join(words)])))
        finish = "length" if output == most or fault == "cut" else "stop"
        if not asked.get("stream"):
            message = {"content": "w " * output}
            return web.json_response({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})
        for event in ({"choices": [{"delta": {}, "finish_reason": finish}]}, {"choices": [], "usage": usage}):
            await response.write(_event(event))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": [{"id": "fake"}]})

    async def _props(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"total_slots": self.slots, "default_generation_settings": {"n_ctx": 512}})

    async def start(self) -> None:
        self._batcher, self._sizes, self._work = (
            SlotBatcher(SlotLimits(2, 2048, 512, TEMPLATE)),
            dict[int, list[int]](),
            asyncio.Event(),
        )
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/props", self._props)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._decoding = asyncio.create_task(self._decode())

    async def stop(self) -> None:
        self._decoding.cancel()
        await self._runner.cleanup()


def _event(content: object) -> bytes:
    return b"data: %s\n\n" % json.dumps(content).encode()


def _content(text: str) -> bytes:
    return _event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})


def _refused(message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": 400}}, status=400)


@contextmanager
def fake_slots(**fields: Any) -> Iterator[FakeSlots]:
    """Run such a service until the block ends."""
    service = FakeSlots(**fields)
    with served_on_a_thread(service.start, service.stop):
        yield service
