"""Answers of a chat service: a stream with token times and usage, and what services refuse or leave out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from simnmt.service.chat import ChatAnswer, ChatClient

GAP_S = 0.05
LLAMA_CPP = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}, "timings": {"cache_n": 4, "prompt_n": 5, "prompt_ms": 1.5}}
VLLM = {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}


def answered(last: dict[str, Any], refused: str = "", asked: list[dict[str, Any]] | None = None, **options: Any) -> ChatAnswer:
    """Ask a service that answers `a b c`, a word each 50 ms if it streams; `refused`: an option that it does not know."""

    async def chat(request: web.Request) -> web.StreamResponse:
        question = await request.json()
        if asked is not None:
            asked.append(question)
        if refused and refused in question:
            return web.json_response({"error": {"message": f"Unrecognized request argument supplied: {refused}"}}, status=400)
        if not question.get("stream"):
            choice = {"message": {"role": "assistant", "content": "a b c"}, "finish_reason": "length"}
            return web.json_response({"choices": [choice], **last})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta in ({"role": "assistant", "content": None}, {"content": "a"}, {"content": " b"}, {"content": " c"}):
            await response.write(b"data: %s\n\n" % json.dumps({"choices": [{"delta": delta, "finish_reason": None}]}).encode())
            await asyncio.sleep(GAP_S)
        end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
        for event in (end, {"choices": [], **last}):
            await response.write(b"data: %s\n\n" % json.dumps(event).encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def whole() -> ChatAnswer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with ChatClient(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/", "tiny") as client:
                return await client.ask("question", max_tokens=3, **options)
        finally:
            await runner.cleanup()

    return asyncio.run(whole())


@pytest.mark.parametrize("facts", [LLAMA_CPP, VLLM])
def test_a_stream_gives_the_arrival_of_each_token_and_the_counts_of_the_service(facts: dict[str, Any]) -> None:
    answer = answered(facts)
    assert (answer.text, answer.is_cut, answer.thinks) == ("a b c", True, False)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (9, 3, 4)
    assert answer.tokens_s.shape == (3,) and answer.first_s == answer.tokens_s[0]
    # The service waits before each token, but one that is read late is near the next.
    assert (answer.tokens_s - answer.sent_s > [0.9 * GAP_S * number for number in (1, 2, 3)]).all()
    assert answer.received_s > answer.tokens_s[-1]
    assert answer.timings == facts.get("timings", {})


@pytest.mark.parametrize("refused", ["stream", "stream_options", "temperature", "ignore_eos"])
def test_a_refused_option_is_left_out_and_the_answer_still_comes(refused: str) -> None:
    asked = list[dict[str, Any]]()
    answer = answered({}, refused, asked, ignore_eos=True)
    assert answer.text == "a b c" and answer.prompt_tokens is None
    assert len(answer.tokens_s) == (0 if refused == "stream" else 3)
    assert len(asked) == 2 and asked[0].keys() - asked[1].keys() == {refused}
    assert asked[0]["max_tokens"] == 3
