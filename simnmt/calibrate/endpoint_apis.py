"""The APIs of running services that can be measured: one class each, and its line in `APIS`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from simnmt.base.errors import shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.settings import CalibrationError
from simnmt.service.client import HttpClient, TranslationClient, bounded_body, check_no_error
from simnmt.service.messages import ServiceError, TranslateRequest, describe_foreign_body

MOST_TOKENS = 2_048
"""Most tokens of an answer: a model that never ends would be waited for until the timeout."""
PROMPT = "Translate the following text from {source} to {target}. Answer with the translation alone.\n\n{text}"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one sentence, by the client's monotonic clock."""

    sent_s: float
    received_s: float
    """When the whole answer had come."""
    text: str
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
        return (await self.get_body("/languages", self._timeout_s))[1]

    async def ask(self, text: str) -> Reply:
        """Return the answer to one sentence. Raises `ServiceError`."""
        exchange = await self.translate(TranslateRequest((text,), False, *self._pair, self._token))
        return Reply(exchange.sent_s, exchange.received_s, exchange.answer.texts[0])


class Chat(HttpClient):
    """A service with OpenAI's `/v1/chat/completions`, which is prompted to translate."""

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
            raise CalibrationError(f"{self.url} has no model {shorten(self._model)}", remedy=did_you_mean(self._model, models))

    async def echo(self) -> float:
        """Return the seconds of a request that translates nothing. Raises `ServiceError`."""
        return (await self.get_body("/v1/models", self._timeout_s))[1]

    async def ask(self, text: str) -> Reply:
        """Return the answer to one sentence. Raises `ServiceError`.

        If the service refuses an option, it is asked again, and from then on, without that option.
        """
        prompt = PROMPT.format(source=self._languages[0], target=self._languages[1], text=text)
        request = {"model": self._model, "messages": [{"role": "user", "content": prompt}], **self._options}
        sent_s = time.monotonic()
        try:
            async with self.exchange("POST", "/v1/chat/completions", json=request) as response:
                body = await bounded_body(response)
        except ServiceError as error:
            refused = next((name for name in self._options if name in error.message), None)
            if refused is None or error.status not in (400, 422):
                raise
            del self._options[refused]
            return await self.ask(text)
        received_s = time.monotonic()
        try:
            content = json.loads(body)
            check_no_error(content, self._token)
            answer = content["choices"][0]["message"]
            thoughts, mark, translation = (answer["content"] or "").rpartition("</think>")
            thinks = bool(thoughts or answer.get("reasoning_content") or answer.get("reasoning"))
            is_cut = content["choices"][0].get("finish_reason") == "length"
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            what = describe_foreign_body(body) if body.lstrip()[:1] == b"<" else "holds no text"
            raise ServiceError(502, f"the service's answer {what}") from None
        return Reply(sent_s, received_s, translation.lstrip() if mark else translation, thinks, is_cut)


Endpoint = LibreTranslate | Chat
APIS: dict[str, type[LibreTranslate] | type[Chat]] = {"libretranslate": LibreTranslate, "openai": Chat}
"""What measures a service, by the name of its API."""


def refused(error: ServiceError, url: str) -> CalibrationError:
    """Return the error of a service that could not be measured, as one line without the token."""
    what, status = shorten(error.message, 160), error.status
    what = what if url in what else f"{url}: {what}"
    if status in (401, 403) and not error.is_stated:
        return CalibrationError(f"{what} (HTTP {status})", remedy="it asks for a token: put it into $SIMNMT_TOKEN")
    if status == 502 and not error.is_stated:
        return CalibrationError(what, remedy="start the service, or correct --endpoint or --api")
    return CalibrationError(what if error.is_stated or status == 504 else f"{what} (HTTP {status})")
