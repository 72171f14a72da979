"""A client of OpenAI's chat API, as llama-server, vLLM, Ollama and others serve it, which notes when each token arrives."""

from __future__ import annotations

import asyncio
import bisect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan
from time import monotonic
from typing import Any

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.service.client import MOST_BODY_BYTES, Exchange, ServiceClient, TimedText, check_no_error
from simnmt.service.messages import Answer, ServiceError, Times, TranslateRequest, describe_foreign_body

PROMPT = "Translate the following text from {source} to {target}. Answer with the translation alone.\n\n{text}"
MOST_TOKENS = 2_048
"""Most tokens of a measured answer: a model that never ends would be waited for until the timeout."""
_EVENT = re.compile(rb"^(?:event: ?(\w+)\r?\n)?data: ?(\{.*)$", re.MULTILINE)
"""Kind and object of an event of a stream; comments, empty data and `[DONE]`, which hold no object, are none."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to a prompt. All moments are of the client's monotonic clock."""

    text: str
    sent_s: float
    received_s: float
    """Arrival of the last byte."""
    tokens_s: Floats
    """Arrivals of the events that hold text, in order, mostly one for each token; empty if the answer was not a stream."""
    prompt_tokens: int | None
    """As the service states it in `usage`; None: it states none."""
    output_tokens: int | None
    cached_tokens: int | None
    """Tokens of the prompt that the service had kept from another one; None: not stated."""
    thinks: bool
    """Whether the model thought before its answer."""
    is_cut: bool
    """Whether the answer ended at `max_tokens` or the end of the context."""
    timings: Mapping[str, Any] = field(default_factory=dict)
    """llama-server's own times: `prompt_n`, `prompt_ms`, `predicted_n`, `predicted_ms` and others."""

    @property
    def first_s(self) -> float:
        """Arrival of the first token; NaN without a stream."""
        return float(self.tokens_s[0]) if len(self.tokens_s) else nan


class ChatClient(ServiceClient):
    """A client of a service with OpenAI's `/v1/chat/completions`, which is prompted to translate. `url` may end in `/v1`.

    Options that a service does not know and refuses, such as `ignore_eos`, are left out of all later requests.
    """

    echo_path = "/v1/models"
    keeps_prompts = True

    def __init__(self, url: str, *facts: Any, **options: Any) -> None:
        """See `ServiceClient`. Without a `model` the service must have a single one, which `check` chooses."""
        super().__init__(url.rstrip("/").removesuffix("/v1"), *facts, **options)
        self.refused = set[str]()
        """Names of the options that the service refused."""
        self._most_tokens: int | None = None
        self._under_way = 0

    async def check(self) -> None:
        """Raise `InputError` for an unknown model, `ServiceError` if the service does not list its models."""
        names = [model["id"] for model in await self.models()]
        if not self.model and len(names) == 1:
            self.model = names[0]
        if self.model not in names:
            what = f"no model {shorten(self.model)}" if self.model else "several models, or none"
            remedy = did_you_mean(self.model, names) or (f"name one of {format_list(names)}" if names else None)
            raise InputError(f"{self.url} has {what}", remedy=remedy)

    async def models(self) -> list[Mapping[str, Any]]:
        """Return what the service says of each of its models, `id` at least. Raises `ServiceError`."""
        content, _ = await self.get_json("/v1/models", self._timeout_s)
        try:
            return [{**model, "id": str(model["id"])} for model in content["data"]]
        except (TypeError, KeyError):
            raise ServiceError(502, f"{self.url}/v1/models is no list of models") from None

    async def ask(
        self, prompt: str, *, max_tokens: int | None = None, ignore_eos: bool = False, stream: bool = True
    ) -> ChatAnswer:
        """Return the answer to a prompt.

        If the service refuses an option, it is asked again without it; if the longest answer does not fit into its context, and
        `ignore_eos` does not force its length, with half of that length. The times are those of the last request.

        Args:
            prompt: text of the user.
            max_tokens: most tokens of the answer; None: as the service does.
            ignore_eos: go on to `max_tokens`, as llama-server and vLLM can.
            stream: ask for the tokens one by one.

        Raises:
            ServiceError: also for a stream that ends in the middle, and an answer without a choice.
        """
        options: dict[str, Any] = {"temperature": 0, "max_tokens": max_tokens}
        if stream:
            options |= {"stream": True, "stream_options": {"include_usage": True}}
        options |= {"ignore_eos": True} if ignore_eos else {}
        options = {name: value for name, value in options.items() if value is not None and name not in self.refused}
        if self._most_tokens is not None and "max_tokens" in options and not ignore_eos:
            options["max_tokens"] = min(options["max_tokens"], self._most_tokens)
        try:
            return await self._send({"model": self.model, "messages": [{"role": "user", "content": prompt}], **options})
        except ServiceError as error:
            named = [name for name in options if name in error.message]
            if error.status not in (400, 422):
                raise
            is_long = "context length" in error.message
            if is_long and options.get("max_tokens", 0) > 1 and not ignore_eos:
                self._most_tokens = options["max_tokens"] // 2
            elif named and not is_long:
                self.refused.add(max(named, key=len))  # a message about `stream_options` names `stream` too
            else:
                self._most_tokens = None  # halved for a prompt that is too long itself
                raise
        return await self.ask(prompt, max_tokens=max_tokens, ignore_eos=ignore_eos, stream=stream)

    def prompt(self, text: str) -> str:
        """Return the prompt to translate a text."""
        return PROMPT.format(source=self.pair[0], target=self.pair[1], text=text)

    async def measure(self, text: str) -> TimedText:
        """See `ServiceClient`."""
        answer = await self.ask(self.prompt(text), max_tokens=MOST_TOKENS, stream=False)
        return answer.received_s - answer.sent_s, answer.text, {"thinks": answer.thinks, "is_cut": answer.is_cut}

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """Ask for a translation, with the forced length if the request has one. Raises `ServiceError`.

        The execution is what llama-server states, from the begin in a slot to the end. Without a statement it is all but the
        round trip of the greeting. The rest is the queue.
        """
        if len(request.texts) > 1:
            raise ServiceError(400, "a prompt holds one text")
        tokens = None if request.forced_lens is None else self._tokens(request.forced_lens[0])
        prompt = self.prompt(request.texts[0])
        asked = self.ask(prompt, max_tokens=tokens, ignore_eos=tokens is not None, stream=self._streams)
        self._under_way += 1
        try:
            chat = await asyncio.wait_for(asked, timeout_s)
        except asyncio.TimeoutError:
            raise ServiceError(504, f"{self.url} did not answer in time") from None
        finally:
            self._under_way -= 1
        here_s = max(chat.received_s - chat.sent_s - self.round_trip_s, 0.0)
        stated = [chat.timings.get(name) for name in ("prompt_ms", "predicted_ms")]
        stated_s = sum(1e-3 * ms for ms in stated if isinstance(ms, (int, float)))
        execution_s = min(stated_s or here_s, here_s)
        times = Times(here_s - execution_s, execution_s, here_s)
        lengths = chat.prompt_tokens or 0, chat.output_tokens or 0, 0
        return Exchange(Answer((chat.text,), times, self._report(), lengths), chat.sent_s, chat.received_s, {}, chat.first_s)

    def _tokens(self, steps: int) -> int:
        """Return the tokens of an answer for a forced number of decode steps, which counts an end mark."""
        if self._slots is None:
            return steps
        return int(self._slots.output.tokens(np.array([max(steps - self._uncounted, 0)]))[0])

    def _report(self) -> tuple[int, ...]:
        """Return what an answer reports: this client's requests in slots and waiting, as the simulation counts them.

        The slot of the answered request is still free. Requests of other clients are not seen.
        """
        if self._slots is None:
            return ()
        active = min(self._under_way, self._slots.slots - 1)
        return active, self._under_way - active

    async def _send(self, request: Mapping[str, Any]) -> ChatAnswer:
        parts, arrivals_s = list[bytes](), list[float]()
        async with self.exchange("POST", "/v1/chat/completions", json=request) as (response, sent_s):
            size = 0
            async for received in response.content.iter_any():
                arrivals_s.append(monotonic())
                parts.append(received)
                size += len(received)
                if size > MOST_BODY_BYTES:
                    raise ServiceError(502, f"the service's answer has more than {MOST_BODY_BYTES:,} bytes")
            received_s = monotonic()
        # Read after the last byte, so that reading delays the noting of no later arrival.
        body, ends = b"".join(parts), [*accumulate(map(len, parts))]
        is_stream = body.lstrip().startswith((b"data:", b"event:", b":"))
        texts, tokens_s, finish, thinks = list[str](), list[float](), set[object](), False
        facts: dict[str, Any] = {}
        try:
            for place, event in self._events(body, is_stream):
                facts |= {name: event[name] for name in ("usage", "timings") if event.get(name)}
                for choice in event.get("choices", ()):
                    part = choice.get("delta") or {} if is_stream else choice["message"]
                    thought = part.get("reasoning_content") or part.get("reasoning")
                    text = part.get("content") or ""
                    texts.append(text)
                    finish.add(choice.get("finish_reason"))
                    thinks = thinks or bool(thought)
                    if is_stream and (text or thought):
                        tokens_s.append(arrivals_s[bisect.bisect_left(ends, place)])
            thoughts, mark, text = "".join(texts).rpartition("</think>")
            usage, timings = facts.get("usage", {}), facts.get("timings", {})
            details = usage.get("prompt_tokens_details") or {}
            prompt_tokens, output_tokens = (_whole(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
            cached_tokens = _whole(details.get("cached_tokens", timings.get("cache_n")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            texts = []
        if not texts:
            what = describe_foreign_body(body) if body.lstrip()[:1] == b"<" else "holds no text"
            raise ServiceError(502, f"the service's answer {what}")
        if is_stream and finish == {None} and b"[DONE]" not in body:
            raise ServiceError(502, f"{self.url} ended a stream in the middle of an answer")
        return ChatAnswer(
            text=text.lstrip() if mark else text,
            sent_s=sent_s,
            received_s=received_s,
            tokens_s=np.array(tokens_s),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens,
            thinks=thinks or bool(thoughts),
            is_cut="length" in finish,
            timings=timings,
        )

    def _events(self, body: bytes, is_stream: bool) -> Iterator[tuple[int, Any]]:
        """Yield the objects of an answer, each with the place of its last byte. Raises `ServiceError` for an error in one."""
        if not is_stream:
            events = [(len(body), b"", body)]
        else:
            events = [(match.end(), match[1], match[2]) for match in _EVENT.finditer(body)]
        for place, kind, data in events:
            event = json.loads(data)
            check_no_error({"error": event} if kind == b"error" else event, self._token)
            yield place, event


def _whole(count: object) -> int | None:
    return count if isinstance(count, int) and not isinstance(count, bool) else None
