"""Answers of a chat service: a stream with token times and usage, and what services refuse or leave out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simnmt.service.chat import ChatAnswer, ChatClient
from simnmt.service.messages import ServiceError
from tests.calibrate.endpoint_stub import StubService, stub_service

GAP_S = 0.05
LLAMA_CPP = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}, "timings": {"cache_n": 4, "prompt_n": 5, "prompt_ms": 1.5}}
VLLM = {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}
ABC: dict[str, Any] = {"translate": lambda text: "a b c", "seconds": lambda src_len, tgt_len: GAP_S * tgt_len}
"""Answers `a b c`, a word each 50 ms if it streams."""


async def ask(service: StubService, *prompts: str, **options: Any) -> list[ChatAnswer | BaseException]:
    """The answers to prompts that are sent one after another, or their errors."""
    answers = list[ChatAnswer | BaseException]()
    async with ChatClient(f"{service.url}/v1/", model="stub") as client:
        for prompt in prompts:
            answers += await asyncio.gather(client.ask(prompt, **options), return_exceptions=True)
    return answers


def answered(*arguments: Any, **options: Any) -> list[ChatAnswer | BaseException]:
    return asyncio.run(ask(*arguments, **options))


@pytest.mark.parametrize("facts", [LLAMA_CPP, VLLM])
def test_a_stream_gives_the_arrival_of_each_token_and_the_counts_of_the_service(facts: dict[str, Any]) -> None:
    with stub_service(facts=facts, finish_reason="length", **ABC) as service:
        (answer,) = answered(service, "question", max_tokens=3)
    assert isinstance(answer, ChatAnswer)
    assert (answer.text, answer.is_cut, answer.thinks) == ("a b c", True, False)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (9, 3, 4)
    assert answer.tokens_s.shape == (3,) and answer.first_s == answer.tokens_s[0]
    # The service waits before each token, but one that is read late is near the next.
    assert (answer.tokens_s - answer.sent_s > [0.9 * GAP_S * number for number in (1, 2, 3)]).all()
    assert answer.timings == facts.get("timings", {})


@pytest.mark.parametrize("refused", ["stream", "stream_options", "temperature", "ignore_eos"])
def test_a_refused_option_is_left_out_and_the_answer_still_comes(refused: str) -> None:
    with stub_service(refused_option=refused, facts={}, **ABC) as service:
        (answer,) = answered(service, "question", max_tokens=3, ignore_eos=True)
    assert isinstance(answer, ChatAnswer) and answer.text == "a b c" and answer.prompt_tokens is None
    assert len(answer.tokens_s) == (0 if refused == "stream" else 3)
    expected = {"model", "messages", "temperature", "max_tokens", "stream", "stream_options", "ignore_eos"} - {refused}
    assert [options.keys() for options in service.options] == [expected]


def test_a_prompt_beyond_the_context_is_an_error_and_later_answers_are_as_long_as_before() -> None:
    with stub_service(context=40, pace=0.01, **ABC) as service:
        refused, short, forced = (
            *answered(service, "w " * 50, "question", max_tokens=64),
            *answered(service, "w " * 50, max_tokens=4, ignore_eos=True),
        )
    assert isinstance(refused, ServiceError) and isinstance(forced, ServiceError), "a forced length is not shortened"
    assert isinstance(short, ChatAnswer)
    assert [options["max_tokens"] for options in service.options] == [32]
