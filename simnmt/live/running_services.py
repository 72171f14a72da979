"""Services that run already, also those of others, in place of a device: the API that they speak, and their reference requests.

A gateway asks each server through the methods of a `TranslationClient`; `ChatTranslator` gives them to OpenAI's API.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.configuration import EndOfSentence, end_tokens
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.profile.device_profile import DeviceProfile
from simnmt.service.chat import PROMPT, ChatClient
from simnmt.service.client import HEALTH_S, Exchange, TranslationClient
from simnmt.service.messages import Answer, ServiceError, Times, TranslateRequest
from simnmt.workload.length_units import count_words

APIS = ("libretranslate", "openai")
REFERENCES = 10
"""Reference requests to a service before each run, and after it."""


@dataclass(frozen=True, slots=True)
class Api:
    """What a service speaks. Raises `InputError` for an unknown API."""

    name: str = APIS[0]
    model: str = ""
    """Of OpenAI's API, the model that is asked; empty: the only one that the service lists."""

    def __post_init__(self) -> None:
        if self.name not in APIS:
            raise InputError(f"no API {self.name}", remedy=f"one of {', '.join(APIS)}, or openai:MODEL")

    @classmethod
    def of(cls, text: str) -> Api:
        """Return the API of a text such as `openai` or `openai:MODEL`."""
        name, _, model = text.partition(":")
        return cls(name, model)

    def connect(
        self, url: str, profile: DeviceProfile, counted: EndOfSentence, *, streams: bool = False, **connection: Any
    ) -> TranslationClient | ChatTranslator:
        """Return a client.

        Args:
            url: of the service.
            profile: says how many tokens a target length is.
            counted: ends of sentences in the lengths of the requests, as the first device counts them.
            streams: ask for the tokens one by one.
            connection: as of an `HttpClient`.
        """
        if self.name == "openai":
            return ChatTranslator(url, self.model, profile, counted, streams=streams, **connection)
        return TranslationClient(url, **connection)


class CountingTranslator(TranslationClient):
    """A client that counts the words of answers whose lengths the service does not state."""

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """See `TranslationClient`."""
        exchange = await super().translate(request, timeout_s)
        answer = exchange.answer
        if answer.lengths != (0, 0, 0):
            return exchange
        lengths = count_words(request.texts[0]) + 1, count_words(answer.texts[0]) + 1, 0
        return replace(exchange, answer=replace(answer, lengths=lengths))


class ChatTranslator(ChatClient):
    """A service with OpenAI's API under the methods of a `TranslationClient`."""

    def __init__(
        self, url: str, model: str, profile: DeviceProfile, counted: EndOfSentence, *, streams: bool, **connection: Any
    ) -> None:
        super().__init__(url, model, **connection)
        self._streams, self._round_trip_s, self._under_way = streams, 0.0, 0
        self._output = None if profile.slots is None else profile.slots.output
        self._slots = 1 if profile.slots is None else profile.slots.slots
        self._added = 1 - end_tokens(counted)[1]

    async def greet(self, pair: tuple[str, str], token_option: str, remedy: str) -> tuple[Mapping[str, Any], float]:
        """Return no facts, and the seconds of a round trip. Raises `InputError` without an answer or the model."""
        try:
            names = [str(model["id"]) for model in await self.models()]
            _, self._round_trip_s = await self.get_body("/v1/models", HEALTH_S)
        except ServiceError as error:
            raise InputError(f"{self.url}: {error.message}", remedy=error.remedy or remedy) from None
        if not self.model and len(names) == 1:
            self.model = names[0]
        if self.model not in names:
            what = f"no model {self.model}" if self.model else "several models, or none"
            listed = did_you_mean(self.model, names) or f"name one of {format_list(names) or 'nothing'}"
            raise InputError(f"{self.url} has {what}", remedy=listed)
        return {}, self._round_trip_s

    def _tokens(self, steps: int) -> int:
        """Return the tokens of an answer for a forced number of decode steps, which counts an end mark."""
        return steps if self._output is None else int(self._output.tokens(np.array([max(steps - self._added, 0)]))[0])

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """Ask for a translation, with the forced length if the request has one. Raises `ServiceError`.

        The execution is what llama-server states, from the begin in a slot to the end. Without a statement it is all but the
        round trip of the greeting. The rest is the queue. The answer reports the requests of this client that are left in slots
        and that wait, as a live server reports its own; those of other clients are not seen.
        """
        if len(request.texts) > 1:
            raise ServiceError(400, "a prompt holds one text")
        tokens = None if request.forced_lens is None else self._tokens(request.forced_lens[0])
        prompt = PROMPT.format(source=request.source, target=request.target, text=request.texts[0])
        asked = self.ask(prompt, max_tokens=tokens, ignore_eos=tokens is not None, stream=self._streams)
        self._under_way += 1
        try:
            chat = await asyncio.wait_for(asked, timeout_s)
        except asyncio.TimeoutError:
            raise ServiceError(504, f"{self.url} did not answer in time") from None
        finally:
            self._under_way -= 1
        report = min(self._under_way, self._slots), max(self._under_way - self._slots, 0)
        here_s = max(chat.received_s - chat.sent_s - self._round_trip_s, 0.0)
        stated = [chat.timings.get(name) for name in ("prompt_ms", "predicted_ms")]
        stated_s = sum(1e-3 * ms for ms in stated if isinstance(ms, (int, float)))
        execution_s = min(stated_s or here_s, here_s)
        times = Times(here_s - execution_s, execution_s, here_s)
        lengths = chat.prompt_tokens or 0, chat.output_tokens or 0, 0
        return Exchange(Answer((chat.text,), times, report, lengths), chat.sent_s, chat.received_s, {}, chat.first_s)


class RunningService:
    """A service that runs already, in place of the engine of a device."""

    def __init__(self, url: str, api: Api, profile: DeviceProfile, pair: tuple[str, str] = ("de", "en")) -> None:
        self.url, self.api, self._profile, self.pair = url, api, profile, pair
        self._client: TranslationClient | ChatTranslator | None = None

    def connect(self, url: str, **connection: Any) -> TranslationClient | ChatTranslator:
        """Return a client that notes first tokens, as `Api.connect`."""
        if self.counts_words:
            return CountingTranslator(url, **connection)
        counted = self._profile.length_unit.end_of_sentence
        return self.api.connect(url, self._profile, counted, streams=True, **connection)

    @property
    def counts_words(self) -> bool:
        """Whether lengths of answers are words, which can be counted here if the service does not force them."""
        return self.api.name == APIS[0] and self._profile.length_unit.tgt == "word"

    async def ready(self) -> float:
        """Greet the service; return the seconds of a round trip. Raises `InputError` as `greet`."""
        client = self._client = self.connect(self.url, connections=1, timeout_s=60.0)
        await client.__aenter__()
        _, seconds = await client.greet(self.pair, "a service without a token", "start the service, and check the address")
        if isinstance(client, ChatTranslator):
            self.api = replace(self.api, model=client.model)
        return seconds

    async def references_s(self, texts: Sequence[str], steps: int) -> Floats:
        """Return the seconds of requests one after another, each of so many decode steps; infinite for one that fails."""
        assert self._client is not None, "not ready"
        seconds = list[float]()
        for text in map(self.unseen, texts):
            begin_s = time.monotonic()
            try:
                await self._client.translate(TranslateRequest((text,), False, *self.pair, "", (steps,)))
            except ServiceError:
                seconds.append(inf)
            else:
                seconds.append(time.monotonic() - begin_s)
        return np.array(seconds)

    def unseen(self, text: str) -> str:
        """Return a text of the same length that the service has no part of in its cache: a model of chats keeps prompts."""
        words = text.split()
        return " ".join(random.sample(words, len(words))) if self.api.name == "openai" else text

    async def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            await self._client.__aexit__()
