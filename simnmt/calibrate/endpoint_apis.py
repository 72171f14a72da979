"""The APIs of running services that can be measured: one class each, and its line in `APIS`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from simnmt.base.errors import shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.settings import CalibrationError
from simnmt.service.client import HttpClient, TranslationClient, bounded_body, check_no_error
from simnmt.service.messages import ServiceError, TranslateRequest, describe_foreign_body

MOST_TOKENS = 2_048
"""Most tokens of an answer: a model that never ends would be waited for until the timeout."""
PROMPT = "Translate the following text from {source} to {target}. Answer with the translation alone.\n\n{text}"


@dataclass(slots=True)
class Reply:
    """The answer to one sentence, by the client's monotonic clock."""

    sent_s: float
    received_s: float = 0.0
    """When the last token, or the whole answer, had come."""
    text: str = ""
    token_s: list[float] = field(default_factory=list)
    """When each part of the text came, which is a token at most services; empty for an answer that came as a whole."""
    thinks: bool = False
    """Whether the model thought before it translated."""
    is_cut: bool = False
    """True if the translation reached the limit of its tokens."""


class LibreTranslate(TranslationClient):
    """A service with LibreTranslate's `/translate` and `/languages`, as simnmt's own server and gateway are."""

    echo_name = "GET /languages"

    def __init__(self, url: str, source: str, target: str, model: str | None = None, **connection: Any) -> None:
        super().__init__(url, **connection)
        self._pair = source, target

    async def check(self) -> None:
        """Raise `InputError` if the service does not translate what is asked, `ServiceError` if it does not answer the echo."""
        await self.check_languages(*self._pair, self._timeout_s)

    async def echo(self) -> float:
        """Return the seconds of a request that translates nothing. Raises `ServiceError`."""
        _, seconds = await self.languages(self._timeout_s)
        return seconds

    async def ask(self, text: str) -> Reply:
        """Return the answer to one sentence. Raises `ServiceError`."""
        exchange = await self.translate(TranslateRequest((text,), False, *self._pair, self._token))
        return Reply(exchange.sent_s, exchange.received_s, exchange.answer.texts[0])


class Chat(HttpClient):
    """A service with OpenAI's `/v1/chat/completions`, which is prompted to translate.

    An answer is streamed as server-sent events: each line `data: {...}` holds a part of the text, the last is `data: [DONE]`.
    """

    echo_name = "GET /v1/models"

    def __init__(self, url: str, source: str, target: str, model: str | None = None, **connection: Any) -> None:
        super().__init__(url.rstrip("/").removesuffix("/v1"), **connection)
        if model is None:
            raise CalibrationError("openai needs the name of a model", remedy="give --model NAME, as the service calls it")
        self._languages, self._model = (source, target), model
        self._options: dict[str, Any] = {"temperature": 0, "max_tokens": MOST_TOKENS}

    async def check(self) -> None:
        """Raise `CalibrationError` for an unknown model, `ServiceError` if the service does not list its models."""
        content, _ = await self.get_json("/v1/models", self._timeout_s)
        try:
            models = [str(model["id"]) for model in content["data"]]
        except (TypeError, KeyError):
            raise ServiceError(502, f"{self.url}/v1/models is no list of models") from None
        if self._model not in models:
            what = f"{self.url} has no model {shorten(self._model)}"
            raise CalibrationError(what, remedy=did_you_mean(self._model, models))

    async def echo(self) -> float:
        """Return the seconds of a request that translates nothing. Raises `ServiceError`."""
        _, seconds = await self.get_body("/v1/models", self._timeout_s)
        return seconds

    async def ask(self, text: str) -> Reply:
        """Return the answer to one sentence. Raises `ServiceError`.

        If the service refuses an option, it is asked again, and from then on, without that option.
        """
        try:
            return await self._ask(text)
        except ServiceError as error:
            refused = [name for name in self._options if name in error.message]
            if error.status not in (400, 422) or not refused:
                raise
        del self._options[refused[0]]
        return await self.ask(text)

    async def _ask(self, text: str) -> Reply:
        source, target = self._languages
        message = {"role": "user", "content": PROMPT.format(source=source, target=target, text=text)}
        content = {"model": self._model, "messages": [message], "stream": True, **self._options}
        reply = Reply(time.monotonic())
        async with self.exchange("POST", "/v1/chat/completions", json=content) as response:
            if response.content_type == "text/event-stream":
                await self._read_stream(response, reply)
            else:
                self._read_whole(await bounded_body(response), reply)
        thoughts, mark, answer = reply.text.rpartition("</think>")
        reply.text, reply.thinks = answer.lstrip() if mark else answer, reply.thinks or bool(thoughts)
        return reply

    async def _read_stream(self, response: aiohttp.ClientResponse, reply: Reply) -> None:
        ended, kind = False, b""
        async for line in response.content:
            name, _, value = line.partition(b":")
            data = value.strip()
            if name == b"event":
                kind = data
            if name != b"data" or not data:
                continue  # comments and empty data that keep the connection open, and blank lines between events
            if data == b"[DONE]":
                ended = True  # and read on: a connection whose answer was not read to its end is closed
                continue
            try:
                event = json.loads(data)
                check_no_error(event, self._token, is_error=kind == b"error")
                for choice in event.get("choices") or ():
                    ended = _take(reply, choice.get("delta") or {}, choice) or ended
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise ServiceError(502, "the service's answer holds an event that is no part of a text") from None
        if not ended:
            raise ServiceError(502, f"{self.url} closed the connection in the middle of an answer")
        reply.received_s = reply.token_s[-1] if reply.token_s else time.monotonic()

    def _read_whole(self, body: bytes, reply: Reply) -> None:
        """Take an answer that was not streamed."""
        try:
            answer = json.loads(body)
            check_no_error(answer, self._token)
            choice = answer["choices"][0]
            _take(reply, choice["message"], choice)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            what = describe_foreign_body(body) if body.lstrip()[:1] == b"<" else "holds no text"
            raise ServiceError(502, f"the service's answer {what}") from None
        reply.received_s, reply.token_s = time.monotonic(), []


def _take(reply: Reply, message: Mapping[str, Any], choice: Mapping[str, Any]) -> bool:
    """Add a message or a part of one; return whether it is the last."""
    if text := message.get("content"):
        reply.text += text
        reply.token_s.append(time.monotonic())
    reply.thinks = reply.thinks or bool(message.get("reasoning_content") or message.get("reasoning"))
    reply.is_cut = reply.is_cut or choice.get("finish_reason") == "length"
    return choice.get("finish_reason") is not None


Endpoint = LibreTranslate | Chat
APIS: dict[str, type[LibreTranslate] | type[Chat]] = {"libretranslate": LibreTranslate, "openai": Chat}
"""What measures a service, by the name of its API."""


def refused(error: ServiceError, url: str) -> CalibrationError:
    """Return the error of a service that could not be measured, as one line without the token."""
    what = shorten(error.message, 160)
    what = what if url in what else f"{url}: {what}"
    if error.is_stated or error.status not in (401, 403, 502):
        return CalibrationError(what if error.is_stated or error.status == 504 else f"{what} (HTTP {error.status})")
    if error.status == 502:
        return CalibrationError(what, remedy="start the service, or correct --endpoint or --api")
    return CalibrationError(f"{what} (HTTP {error.status})", remedy="it asks for a token: put it into $SIMNMT_TOKEN")
