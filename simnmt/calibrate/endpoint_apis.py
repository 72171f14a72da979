"""The APIs of running services that can be measured: one class each, and its line in `APIS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.chat_client import HEALTH, MODELS, ChatClient
from simnmt.calibrate.endpoint_settings import EndpointSettings
from simnmt.calibrate.settings import CalibrationError
from simnmt.service.client import TranslationClient
from simnmt.service.messages import ServiceError, TranslateRequest, describe_foreign_body

CONNECTIONS = 2_048
"""Most connections; a request of the ladder that waits keeps one."""
DEFAULT = "default"
"""Model or target language that the configuration of a ctranslate2-server names."""
PROMPT = "Translate the following text from {source} to {target}. Answer with the translation alone.\n\n{text}"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one sentence, by the client's monotonic clock."""

    sent_s: float
    received_s: float
    text: str
    token_s: tuple[float, ...] = ()
    """When each token came; empty for an answer that came as a whole."""
    stated: tuple[int, int] | None = None
    """Source and target tokens, as the service counts them; None if it does not say."""
    thinks: bool = False
    """Whether the model thought before it translated."""
    is_cut: bool = False
    """True if the translation reached the limit of its tokens."""


class Endpoint(Protocol):
    """A running service, between `async with`."""

    echo_name: str
    """The request that translates nothing, for the reader."""

    @property
    def client(self) -> AbstractAsyncContextManager[object]:
        """The client, which is entered around all calls."""

    @property
    def remarks(self) -> Sequence[str]:
        """What the service did not take of the requests so far, one line each."""

    async def check(self) -> bool:
        """Return whether the service answers the echo. Raises `CalibrationError` if it does not translate what is asked."""

    async def echo(self) -> float:
        """Return the seconds of a request that translates nothing. Raises `ServiceError`."""

    async def ask(self, text: str) -> Reply:
        """Return the answer to one sentence. Raises `ServiceError`."""


class LibreTranslateEndpoint:
    """A service with LibreTranslate's `/translate` and `/languages`, as simnmt's own server and gateway are."""

    echo_name, remarks = "GET /languages", ()

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self.client = TranslationClient(
            settings.url,
            token=settings.token,
            connections=CONNECTIONS,
            timeout_s=settings.timeout_s,
            ca_file=settings.ca_file,
        )

    async def check(self) -> bool:
        """See `Endpoint`."""
        settings = self._settings
        try:
            await self.client.check_languages(settings.source, settings.target, settings.timeout_s)
        except ServiceError as error:
            if error.status in (404, 405):
                return False
            raise
        except InputError as error:
            raise CalibrationError(error.what, remedy=error.remedy) from None
        return True

    async def echo(self) -> float:
        """See `Endpoint`."""
        _, seconds = await self.client.languages(self._settings.timeout_s)
        return seconds

    async def ask(self, text: str) -> Reply:
        """See `Endpoint`."""
        settings = self._settings
        exchange = await self.client.translate(
            TranslateRequest((text,), False, settings.source, settings.target, settings.token)
        )
        src_len, tgt_len, _ = exchange.answer.lengths
        stated = (src_len, tgt_len) if src_len and tgt_len else None
        return Reply(exchange.sent_s, exchange.received_s, exchange.answer.texts[0], stated=stated)


def _chat_client(settings: EndpointSettings, model: str, options: Mapping[str, Any] | None = None) -> ChatClient:
    return ChatClient(
        settings.url,
        model,
        options=options,
        max_tokens=settings.max_tokens,
        token=settings.token,
        connections=CONNECTIONS,
        timeout_s=settings.timeout_s,
        ca_file=settings.ca_file,
    )


class ChatEndpoint:
    """A service with OpenAI's `/v1/chat/completions`, which is prompted to translate."""

    echo_name = f"GET {MODELS}"

    def __init__(self, settings: EndpointSettings) -> None:
        """Raises `CalibrationError` without the name of a model."""
        if settings.model is None:
            raise CalibrationError(
                f"{settings.api} needs the name of a model", remedy="give --model NAME, as the service calls it"
            )
        self._settings = settings
        self._prompt_tokens = 0
        """Tokens of a prompt without a sentence, as the service counts them."""
        self.client = _chat_client(settings, settings.model)
        self.remarks = self.client.remarks

    async def check(self) -> bool:
        """See `Endpoint`."""
        try:
            models, _ = await self.client.models(self._settings.timeout_s)
        except ServiceError as error:
            if error.status not in (404, 405):
                raise
            models = ()
        if models and self.client.model not in models:
            what = f"{self.client.url} has no model {shorten(self.client.model)}"
            raise CalibrationError(what, remedy=did_you_mean(self.client.model, models))
        if self._settings.counts_by_service:
            empty = await self.client.complete(self._prompt(""))
            self._prompt_tokens = empty.prompt_tokens
        return bool(models)

    async def echo(self) -> float:
        """See `Endpoint`."""
        _, seconds = await self.client.models(self._settings.timeout_s)
        return seconds

    async def ask(self, text: str) -> Reply:
        """See `Endpoint`."""
        answer = await self.client.complete(self._prompt(text))
        stated = None
        if answer.prompt_tokens > self._prompt_tokens and answer.completion_tokens:
            stated = (answer.prompt_tokens - self._prompt_tokens, answer.completion_tokens)
        token_s = tuple(answer.token_s)
        return Reply(answer.sent_s, answer.received_s, answer.text, token_s, stated, answer.thinks, answer.is_cut)

    def _prompt(self, text: str) -> str:
        return PROMPT.format(source=self._settings.source, target=self._settings.target, text=text)


class CTranslate2ServerEndpoint:
    """A service of the project ctranslate2-server, which translates the last message of `/v1/chat/completions` as it is.

    Such a service has OpenAI's path, but neither a list of models, nor streams, nor counts of tokens, and an instruction to
    translate would be translated itself. `target_lang` becomes the first token of the translation, so that it is written as
    the model's vocabulary has it. Source: github.com/any35/ctranslate2-server, README.md and src/api/openai.rs at 90bca0e.
    """

    echo_name = f"GET {HEALTH}"

    def __init__(self, settings: EndpointSettings) -> None:
        """Raises `CalibrationError` for a target that is no token of a model."""
        if settings.target == "en":  # the default of the other APIs
            raise CalibrationError(
                f"{settings.api} needs the language of the translations as the model writes it",
                remedy=f"give --target, such as eng_Latn, en_XX or __en__; {DEFAULT}: that of the service's configuration",
            )
        self._settings = settings
        options = {} if settings.target == DEFAULT else {"target_lang": settings.target}
        self.client = _chat_client(settings, settings.model or DEFAULT, options)
        self.remarks = self.client.remarks

    async def check(self) -> bool:
        """See `Endpoint`."""
        try:
            body, _ = await self.client.get_body(HEALTH, self._settings.timeout_s)
        except ServiceError as error:
            if error.status in (404, 405):
                return False
            raise
        if body.strip() != b"OK":
            is_page = body.lstrip()[:1] == b"<"
            fault = describe_foreign_body(body) if is_page else "does not answer OK, as ctranslate2-server does"
            raise ServiceError(502, f"{self.client.url}{HEALTH} {fault}")
        return True

    async def echo(self) -> float:
        """See `Endpoint`."""
        _, seconds = await self.client.get_body(HEALTH, self._settings.timeout_s)
        return seconds

    async def ask(self, text: str) -> Reply:
        """See `Endpoint`."""
        answer = await self.client.complete(text)
        return Reply(answer.sent_s, answer.received_s, answer.text, thinks=answer.thinks, is_cut=answer.is_cut)


APIS: dict[str, Callable[[EndpointSettings], Endpoint]] = {
    "libretranslate": LibreTranslateEndpoint,
    "openai": ChatEndpoint,
    "ctranslate2-server": CTranslate2ServerEndpoint,
}
"""What measures a service, by the name of its API."""


def refused(error: ServiceError, settings: EndpointSettings) -> CalibrationError:
    """Return the error of a service that could not be measured, as one line without the token."""
    what = shorten(error.message, 160)
    if settings.url not in what:
        what = f"{settings.url}: {what}"
    remedies = {
        400: "correct --source, --target or --model, or give shorter lines in --text",
        404: "correct --endpoint or --api: there is no such service",
        429: "it limits requests: measure it with a higher limit",
        502: "start the service, or correct --endpoint or --api",
        503: "it takes no requests at present: try again later",
        504: "give a longer --timeout, or shorter lines in --text",
    }
    if error.status in (401, 403):
        has = f"it does not accept that of ${settings.token_env}" if settings.token else f"put it into ${settings.token_env}"
        return CalibrationError(f"{what} (HTTP {error.status})", remedy=f"it asks for a token: {has}")
    status = "" if error.status in (502, 504) else f" (HTTP {error.status})"
    remedy = None if error.is_stated else remedies.get(error.status, "see the service's log")
    return CalibrationError(f"{what}{status}", remedy=remedy)
