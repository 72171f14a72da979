"""A client of OpenAI's `/v1/chat/completions`, which measures each request: its first token, and the time between tokens.

An answer is streamed as server-sent events. Each line `data: {...}` holds a part of the text; the last one before
`data: [DONE]` holds the numbers of tokens, as the service counts them. Only what measuring needs is read. What a model thinks
before it answers is no part of the text.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from simnmt.service.client import MOST_BODY_BYTES, HttpClient, bounded_body, check_no_error
from simnmt.service.messages import ServiceError, describe_foreign_body

COMPLETIONS, MODELS, HEALTH = "/v1/chat/completions", "/v1/models", "/health"
MOST_TOKENS = 2_048
"""Most tokens of an answer: a model that never ends would be waited for until the timeout."""
CUT = "length"
"""Reason of an answer's end: it reached the limit of its tokens."""
_DISPENSABLE = frozenset({"stream_options", "max_completion_tokens", "max_tokens", "temperature"})
"""Options without which a service that refuses them can be asked."""


@dataclass(slots=True)
class ChatExchange:
    """An answered request, by the client's monotonic clock."""

    sent_s: float
    received_s: float = 0.0
    """When the last token, or the whole answer, had come."""
    text: str = ""
    token_s: list[float] = field(default_factory=list)
    """When each part of the text came, which is a token at most services; empty for an answer that was not streamed."""
    prompt_tokens: int = 0
    """Tokens of the whole prompt, as the service counts them; 0 if it does not say."""
    completion_tokens: int = 0
    """Tokens of the answer without those of thinking; 0 if the service does not say."""
    thinks: bool = False
    """Whether the model thought before it answered."""
    is_cut: bool = False
    """True if the answer reached the limit of its tokens."""
    _counts_thinking: bool = False
    """Whether the service states how many tokens it thought."""

    def take(self, event: Mapping[str, Any], now_s: float) -> bool:
        """Add a streamed part, and return whether it is the last one. Raises `ServiceError` for an event without parts."""
        self.count(event.get("usage"))
        ended = False
        try:
            for choice in event.get("choices") or ():
                if self.add(choice.get("delta") or {}):
                    self.token_s.append(now_s)
                    self.received_s = now_s
                reason = choice.get("finish_reason")
                ended = ended or reason is not None
                self.is_cut = self.is_cut or reason == CUT
        except (TypeError, KeyError, AttributeError):
            raise ServiceError(502, "the service's answer holds an event without a delta") from None
        return ended

    def add(self, message: Mapping[str, Any]) -> bool:
        """Add the text of a message or of a part of one, and return whether it held any."""
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = [part["text"] for part in parts if part.get("type") == "text"]
        self.text += "".join(texts)
        self.thinks = self.thinks or any(message.get(key) for key in _THINKING_KEYS) or len(texts) < len(parts)
        return any(texts)

    def count(self, usage: object) -> None:
        """Take the numbers of tokens that the service states."""
        if isinstance(usage, dict):
            self.prompt_tokens, self.completion_tokens = (_count(usage, f"{side}_tokens") for side in ("prompt", "completion"))
            thinking = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
            self.completion_tokens = max(self.completion_tokens - thinking, 0)
            self._counts_thinking = thinking > 0
            self.thinks = self.thinks or thinking > 0

    def finish(self) -> None:
        """Take the thinking out of the whole text, and the count of tokens if it holds an unknown number of those."""
        _, mark, after = self.text.rpartition("</think>")
        answer, opened, _ = after.partition("<think>")
        self.thinks = self.thinks or bool(mark or opened)
        self.text = answer.lstrip() if mark else answer
        if self.thinks and not self._counts_thinking:
            self.completion_tokens = 0


_THINKING_KEYS = ("reasoning_content", "reasoning")


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0


class ChatClient(HttpClient):
    """A client of a service with OpenAI's API."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        options: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        **connection: Any,
    ) -> None:
        """Raises `InputError` as `HttpClient` does.

        Args:
            url: with or without the `/v1` at its end.
            model: name of the model.
            options: what a request holds beside model and prompt; None: a streamed answer of at most `max_tokens` that does not
                depend on chance.
            max_tokens: most tokens of an answer, without `options`.
            connection: further arguments of `HttpClient`.
        """
        super().__init__(url.rstrip("/").removesuffix("/v1"), **connection)
        self.model = model
        streamed = {"temperature": 0, "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
        self._options = dict(streamed if options is None else options)
        self.remarks: list[str] = []
        """What the service does not take, one line each."""

    async def complete(self, prompt: str) -> ChatExchange:
        """Ask for the answer to a prompt. Raises `ServiceError` as `TranslationClient` does.

        If the service refuses an option, it is asked again without that option, and never sent it again.
        """
        while True:
            options = dict(self._options)
            try:
                return await self._complete(prompt, options)
            except ServiceError as error:
                if error.status not in (400, 422) or not self._drop_refused(error.message, options):
                    raise

    def _drop_refused(self, message: str, sent: Mapping[str, Any]) -> bool:
        """Drop or rename the option of a request that a service names in its refusal; return whether there is one."""
        options, limit = self._options, "max_completion_tokens"
        if limit in message and "max_tokens" in sent:
            refused, change = "max_tokens", f"sent as {limit}"
            options.setdefault(limit, sent["max_tokens"])
        else:
            named = [name for name in sent if name in _DISPENSABLE and name in message]
            if "maximum context length" in message:
                named += [name for name in ("max_tokens", limit) if name in sent]
            refused, change = (named or [""])[0], "left out"
        if refused and options.pop(refused, None) is not None:
            self.remarks.append(f"{self.url} refuses {refused}, which is {change}: {message}")
        return bool(refused)

    async def _complete(self, prompt: str, options: Mapping[str, Any]) -> ChatExchange:
        content = {"model": self.model, "messages": [{"role": "user", "content": prompt}], **options}
        exchange = ChatExchange(time.monotonic())
        async with self.exchange("POST", COMPLETIONS, json=content) as response:
            if response.content_type == "text/event-stream":
                await self._read_stream(response, exchange)
            else:
                _read_whole(await bounded_body(response), exchange, self._token)
        exchange.finish()
        return exchange

    async def _read_stream(self, response: aiohttp.ClientResponse, exchange: ChatExchange) -> None:
        ended, kind = False, b""
        async for line in _lines(response):
            field_name, _, value = line.partition(b":")
            data = value.strip()
            if field_name == b"event":
                kind = data
            if field_name != b"data" or not data:
                kind = kind if line.strip() else b""
                continue  # comments and empty data that keep the connection open, and blank lines between events
            if data == b"[DONE]":
                ended = True  # and read on: a connection whose answer was not read to its end is closed
                continue
            event = _event(data)
            check_no_error(event, self._token, is_error=kind == b"error")
            ended = exchange.take(event, time.monotonic()) or ended
        if not ended:
            raise ServiceError(502, f"{self.url} closed the connection in the middle of an answer")
        exchange.received_s = exchange.received_s or time.monotonic()

    async def models(self, timeout_s: float = 5.0) -> tuple[tuple[str, ...], float]:
        """Return the names of the models, and the seconds of the round trip. Raises `ServiceError`."""
        content, seconds = await self.get_json(MODELS, timeout_s)
        try:
            return tuple(str(model["id"]) for model in content["data"]), seconds
        except (TypeError, KeyError):
            raise ServiceError(502, f"{self.url}{MODELS} is no list of models") from None


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Return the lines of a body as they come. Raises `ServiceError` for a body that no translation needs."""
    rest, size = b"", 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MOST_BODY_BYTES:
            raise ServiceError(502, f"the service's answer has more than {MOST_BODY_BYTES:,} bytes")
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def _event(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise ServiceError(502, "the service's answer holds an event that is no JSON object")
    return event


def _read_whole(body: bytes, exchange: ChatExchange, token: str) -> None:
    """Take an answer that was not streamed. Raises `ServiceError` for another body, and for an error that it states."""
    exchange.received_s = time.monotonic()
    try:
        answer = json.loads(body)
        check_no_error(answer, token)
        choice = answer["choices"][0]
        exchange.add(choice["message"])
        exchange.is_cut = choice.get("finish_reason") == CUT
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        what = describe_foreign_body(body) if body.lstrip()[:1] == b"<" else "holds no text"
        raise ServiceError(502, f"the service's answer {what}") from None
    exchange.count(answer.get("usage"))
