"""Calibration of a running service as an engine with slots: requests at once, prompts, long outputs and a queue.

A block sends some requests, the same kinds in each round in random order. From the arrivals of their tokens follow the costs of
iterations (`simnmt.profile.slots_fit`), the block `slots` of a profile; requests alone give its plane.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simnmt.base.arrays import Floats
from simnmt.base.errors import shorten
from simnmt.batching.slots import SlotLimits
from simnmt.calibrate.endpoint import EndpointSettings, ServiceTimes, choose_sentences
from simnmt.calibrate.harness import Case, Listener, nothing
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import nonnegative_line
from simnmt.profile.slots_block import SlotsBlock, TokenCount
from simnmt.profile.slots_fit import SlotsFit, StreamedRequest, fit_slots
from simnmt.service.chat import ChatAnswer, ChatClient
from simnmt.service.client import ServiceClient
from simnmt.service.messages import ServiceError
from simnmt.workload.text_lines import TextLines

ROUNDS, QUICK_ROUNDS = 4, 3
WITHIN_S, QUICK_WITHIN_S = 420.0, 75.0
"""Seconds of all rounds, which decide the lengths of prompts and outputs."""
LEAST_OUTPUT, MOST_OUTPUT = 12, 96
"""Tokens of an output, but for a few long ones."""
MOST_AT_ONCE = 4
"""Most tokens of an output that arrive at one moment, on average: some tokens have no text, as parts of a character."""
LONG = 4
"""Tokens of a long output, in outputs."""
SHORT_WORDS = 10
MOST_PROMPT = 512
"""Tokens of the longest prompt."""
ASSUMED_CHUNK = 2048
SENTENCES = 6
"""Sentences that are translated to their own end, which shows the tokens of an output by its length."""
MOST_SPEED_CHANGE = 0.25
"""Relative difference between slow and fast blocks beyond which there is no profile."""
MOST_STALLED = 0.25
"""Share of the time in stalls beyond which there is none, since a stretch that is far slower looks like stalls."""
CACHE_TOKENS, CACHE_SHARE = 4, 0.1
"""A cached prefix is constant if at most this share of the requests differs from its median by more tokens."""

Lane = list[tuple[int, int]]
"""Requests that are sent one after another: words of the prompt, and tokens of the output that is forced. With 0 tokens, a
sentence is translated to its own end, and the first number is its place."""


class SlotLadder:
    """The `Method` whose requests show the iterations of an engine with slots, sized for the service's speed."""

    name = "slots"

    def __init__(self, settings: EndpointSettings, service: ServiceClient) -> None:
        """Raises `CalibrationError` for a service with another API than OpenAI's."""
        if not isinstance(service, ChatClient):
            raise CalibrationError("slots are measured through OpenAI's API", remedy="give --api openai, or leave out --kind")
        self._settings, self._service, self._sentences = settings, service, choose_sentences(settings)
        self.texts: Sequence[str] = " ".join(TextLines(Path(settings.text), kept=True)).split()
        number, within_s = (QUICK_ROUNDS, QUICK_WITHIN_S) if settings.quick else (ROUNDS, WITHIN_S)
        self.rounds, self._round_s = (number, 3.0 * within_s), within_s / number
        # Without a seed: the service may still have prompts of an earlier calibration in its cache.
        self._starts = random.sample(range(len(self.texts)), len(self.texts))
        self._knots, self.notes = list[int](), list[str]()

    async def cases(self, run: Callable[..., Any]) -> Mapping[Any, Case]:
        """Return a case for each kind of block."""
        await self._service.check()
        self._limits = await self._find_limits()
        lanes_of = await self.plan(self._limits)
        return {
            kind: Case(partial(run, self._block, lanes), prepare=nothing, most_rounds=1 if kind == "sentences" else None)
            for kind, lanes in lanes_of.items()
        }

    def _text(self, count: int) -> str:
        """Return so many words of the text, which no other request begins with."""
        self._require_texts(1)
        start = self._starts.pop()
        return " ".join(self.texts[(start + place) % len(self.texts)] for place in range(count))

    def _require_texts(self, count: int) -> None:
        """Raise `CalibrationError` if the text has not as many words left that a prompt may begin with."""
        if count > len(self._starts):
            what = f"the text has {len(self.texts):,} words, too few for prompts that differ from the first word on"
            raise CalibrationError(what, path=self._settings.text, remedy=f"give {count - len(self._starts):,} more words")

    async def plan(self, limits: SlotLimits) -> dict[str, list[Lane]]:
        """Return the lanes of each kind of block.

        Raises `CalibrationError` for a service that does not state the tokens of a request, or sends them together.
        """
        slots, context = limits.slots, limits.context or 1 << 30
        await self._ask(self._text(SHORT_WORDS), 4)  # refused options, and what is slow at first
        first = await self._ask(self._text(SHORT_WORDS), LEAST_OUTPUT)
        longer = await self._ask(self._text(4 * SHORT_WORDS), LEAST_OUTPUT)
        prompt, longer_prompt = first.prompt_tokens or 0, longer.prompt_tokens or 0
        per_word = max((longer_prompt - prompt) / (3 * SHORT_WORDS), 0.5)
        # Each slot has now had a prompt, so that what it keeps of the template is kept from here on.
        await asyncio.gather(*[self._ask(self._text(SHORT_WORDS), 2) for _ in range(slots)])
        self._knots = knots = [n for n in range(1, slots + 1) if n <= 8 or not n & (n - 1) or n == slots]
        step_s = max(float(np.diff(longer.tokens_s).mean()), 1e-5)
        prompt_s = max((longer.first_s - longer.sent_s - step_s) / max(longer_prompt, 1), 1e-6)
        # Half of a round decodes, half of it reads prompts.
        tokens = 0.5 * self._round_s / (step_s * (sum(1.0 + 0.8 * count for count in knots) + LONG + 3.0))
        output = int(min(max(tokens, LEAST_OUTPUT), MOST_OUTPUT))
        fixed = prompt - per_word * SHORT_WORDS
        most = min(
            MOST_PROMPT,
            context - LONG * output - 8,
            limits.chunk // slots - 8,
            int(0.5 * self._round_s / (prompt_s * (sum(knots) + 1.5 * slots + 6.0))) + prompt,
        )
        long = int((0.85 * most - fixed) / per_word)
        if long < 2 * SHORT_WORDS:
            long = 2 * SHORT_WORDS
            if fixed + 1.3 * per_word * long + output > context:
                what = f"{self._settings.url} has a context of {context} tokens, too few for a ladder of prompts"
                raise CalibrationError(what)
            if slots * (fixed + per_word * long) > limits.chunk:
                self.notes.append("prompts that were sent together took several iterations, which the fit takes for one")
        middle, most_output = (SHORT_WORDS + long) // 2, context - int(fixed + 1.3 * per_word * SHORT_WORDS) - 8
        long_output = max(min(LONG * output, most_output), output)
        blocks: dict[str, list[Lane]] = {}
        for count in knots:
            blocks[f"{count} short"] = [[(SHORT_WORDS, output)]] * count
            blocks[f"{count} long"] = [[(long, output)]] * count
        blocks["prompts"] = [[(length, 3) for length in np.linspace(SHORT_WORDS, long, 5).astype(int).tolist()]]
        blocks["outputs"] = [[(SHORT_WORDS, long_output)]]
        blocks["queue"] = [[(middle, 1)]] * min(3 * slots + 1, 2 * slots + 16)
        if slots > 1:
            blocks["joining"] = [[(SHORT_WORDS, min(2 * output, long_output))], [(middle, 4)] * 4]
        self._require_texts(self.rounds[0] * sum(len(lane) for lanes in blocks.values() for lane in lanes))
        return blocks | {"sentences": [[(place, 0) for place in range(1, SENTENCES + 1)]]}

    async def _find_limits(self) -> SlotLimits:
        """Ask the service for its slots and their context, as llama-server and vLLM state them."""
        settings, service = self._settings, self._service
        try:
            facts, _ = await service.get_json("/props", settings.timeout_s)
        except ServiceError:
            facts = {}
        facts = facts if isinstance(facts, dict) else {}
        models = {model["id"]: model for model in await service.models()}
        defaults = facts.get("default_generation_settings")
        context = defaults.get("n_ctx") if isinstance(defaults, dict) else None
        context = context or models[service.model].get("max_model_len")
        slots = settings.slots or facts.get("total_slots")
        if not isinstance(slots, int) or slots < 1:
            what = f"{settings.url} does not state how many requests it decodes together"
            raise CalibrationError(what, remedy="give --slots N: as started, vLLM's is --max-num-seqs")
        if settings.chunk is not None and settings.chunk < slots:
            raise CalibrationError(f"--chunk must be at least the slots, {slots} (got {settings.chunk})")
        if settings.chunk is None:
            self.notes.append(
                f"iterations of at most {ASSUMED_CHUNK:,} tokens are assumed, the default of llama-server and vLLM"
            )
        if not isinstance(context, int) or context < 2:
            context = None
            self.notes.append("the service does not state its context")
        return SlotLimits(slots, max(settings.chunk or ASSUMED_CHUNK, slots), context)

    async def _ask(self, text: str, tokens: int) -> ChatAnswer:
        """Ask for a translation, of exactly so many tokens if the service can; 0: to its own end."""
        settings, remedy = self._settings, "measure it as a plane, without --kind slots"
        most = tokens or 30 + 3 * len(text.split())
        answer = await self._service.ask(self._service.prompt(text), max_tokens=most, ignore_eos=tokens > 0)
        output, moments = answer.output_tokens or 0, len(set(answer.tokens_s.tolist()))
        if tokens < LEAST_OUTPUT and len(answer.tokens_s) < min(tokens, output) and (moments or tokens == 1):
            # Parts of a character, and special tokens, have no text; the last one has arrived by the end of the answer.
            answer = replace(answer, tokens_s=np.append(answer.tokens_s, answer.received_s))
            moments += 1
        if not answer.text.strip() and not moments:
            what = f"{settings.url} answered {shorten(text, 40)!r} with an empty translation"
            raise CalibrationError(what, remedy="correct --model, --source or --target")
        if answer.prompt_tokens is None or not output:
            raise CalibrationError(f"{settings.url} states no numbers of tokens (usage)", remedy=remedy)
        if "stream" in self._service.refused:
            raise CalibrationError(f"{settings.url} refuses stream", remedy=remedy)
        if not moments or (tokens >= LEAST_OUTPUT and moments < max(output // MOST_AT_ONCE, 2)):
            what = f"{settings.url} does not stream token by token: {output} tokens arrived at {moments} moments"
            remedy += ", or without a proxy that buffers"
            raise CalibrationError(what, remedy=remedy)
        if answer.is_cut and output < most:
            held = answer.prompt_tokens + output
            raise CalibrationError(
                f"{settings.url} cut an answer at {held} tokens of prompt and output: its context is smaller"
            )
        return answer

    async def _block(self, lanes: Sequence[Lane]) -> dict[str, Any]:
        """Send a block; return what is known of each of its `requests`, the tokens by seconds after it was sent."""
        service, is_alone, (count_src, count_tgt) = self._service, len(lanes) == 1, self._settings.counters

        async def one_by_one(lane: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
            requests = list[dict[str, Any]]()
            for text, tokens in lane:
                echo_s = (await service.get_body(service.echo_path, self._settings.timeout_s))[1] if is_alone else None
                answer = await self._ask(text, tokens)
                requests.append(
                    {
                        "sent_s": answer.sent_s,
                        "seconds": answer.received_s - answer.sent_s,
                        "prompt": answer.prompt_tokens,
                        "output": answer.output_tokens,
                        "cached": answer.cached_tokens,
                        "tokens_s": np.round(_by_token(answer) - answer.sent_s, 7).tolist(),
                        "src_len": count_src(text),
                        "tgt_len": count_tgt(answer.text),
                        "is_forced": tokens > 0,
                        "is_alone": is_alone,
                        "thinks": answer.thinks,
                        "is_cut": answer.is_cut,
                        "echo_s": echo_s,
                    }
                )
            return requests

        def text(number: int, tokens: int) -> str:
            return self._text(number) if tokens else self._sentences[number * len(self._sentences) // (SENTENCES + 1)]

        texts = [[(text(number, tokens), tokens) for number, tokens in lane] for lane in lanes]
        return {"requests": [request for requests in await asyncio.gather(*map(one_by_one, texts)) for request in requests]}

    def profile(self, frame: pd.DataFrame, finish: Callable[..., DeviceProfile], listener: Listener) -> DeviceProfile:
        """Return the profile with a block `slots`, and with the plane of requests alone."""
        blocks = enumerate(zip(frame["case"], frame["requests"], strict=True))
        requests = pd.DataFrame([row | {"block": block, "kind": kind} for block, (kind, rows) in blocks for row in rows])
        cached = requests["cached"].fillna(0).to_numpy(np.int64)
        prefix = int(np.median(cached))
        if (np.abs(cached - prefix) > CACHE_TOKENS).mean() > CACHE_SHARE:
            what = f"{self._settings.url} took {cached.min()} to {cached.max()} tokens of different prompts from a cache"
            raise CalibrationError(what, remedy="give another --seed or a text without repeated passages")
        fit, doubts = self._fit(requests.assign(cached=cached)), list[str]()
        output, whole = TokenCount(), requests[~requests["is_forced"] & ~requests["is_cut"]]
        alone = requests[requests["is_alone"]].reset_index(drop=True)
        counts_words = ~alone["is_forced"]
        if len(whole) > SENTENCES // 2 and whole["tgt_len"].nunique() > 2:
            output = _token_count(whole["tgt_len"], whole["output"])
        else:
            doubts.append("the model ended too few outputs itself: a target token is taken as one token of the model")
            counts_words &= False
        from_output = np.maximum(np.rint((alone["output"] - output.fixed) / (output.per_token or 1.0)), 1).astype(np.int64)
        alone = alone.assign(case=alone.index, tgt_len=alone["tgt_len"].where(counts_words, from_output))
        times = ServiceTimes(alone.astype({"echo_s": float}))
        if fit.stalled_share > CACHE_SHARE:
            doubts.append(f"{100 * fit.stalled_share:.0f} % of the measured time were stalls, which lengthen all costs alike")
        if not fit.knows_reading:
            doubts.append("no iteration that only reads prompts was seen: it counts like a step of one request")
        if alone["thinks"].any():
            doubts.append("the model thinks before it translates (turn it off at the service)")
        block = SlotsBlock(
            kind="measured",
            **asdict(replace(self._limits, cached_prefix=prefix)),
            **asdict(replace(fit.cost, request_s=max(fit.cost.request_s - times.round_trip_s, 0.0))),
            prompt=_token_count(requests["src_len"], requests["prompt"]),
            output=output,
            iterations=fit.iterations,
            heldout_error=fit.heldout_error,
            heldout_how="times of requests in blocks that were left out, a third at a time",
            notes=tuple(self.notes),
        )
        return finish(times, doubts, slots=block)

    def _fit(self, requests: pd.DataFrame) -> SlotsFit:
        """Fit the costs of iterations. Raises `CalibrationError` if the requests do not determine them."""
        names, url, slots = ("block", "kind", "sent_s", "tokens_s", "prompt", "cached"), self._settings.url, self._limits.slots
        streamed = [
            StreamedRequest(block, kind, sent_s, sent_s + np.array(tokens_s), prompt, max(prompt - cached, 1))
            for block, kind, sent_s, tokens_s, prompt, cached in zip(*(requests[name] for name in names), strict=True)
        ]
        try:
            fit = fit_slots(streamed, slots, self._knots)
        except ValueError as error:
            raise CalibrationError(f"{url}: {error}") from None
        if fit.most_decoding < slots:
            what = f"{url} decoded at most {fit.most_decoding} requests together, not {slots}"
            raise CalibrationError(what, remedy=f"give --slots {fit.most_decoding}, or longer texts")
        changes = []
        if fit.speed_change > MOST_SPEED_CHANGE:
            changes.append(f"the slowest stretch took {100 * fit.speed_change:.0f} % longer")
        if fit.stalled_share > MOST_STALLED:
            changes.append(f"{100 * fit.stalled_share:.0f} % of the time it was far slower")
        if changes:
            what = f"the service changed its speed between blocks: {' and '.join(changes)}"
            raise CalibrationError(what, remedy="measure again while nothing else uses the service or its box")
        return fit


def _by_token(answer: ChatAnswer) -> Floats:
    """Return the arrival of each token; where an event holds several or a part of one, events are spread over the tokens."""
    events, tokens = len(answer.tokens_s), answer.output_tokens or 0
    if events in (tokens, tokens - 1):  # the token that ends an output has no text
        return answer.tokens_s
    return np.interp(np.linspace(0.0, events - 1, tokens), np.arange(events), answer.tokens_s)


def _token_count(lengths: pd.Series[Any], tokens: pd.Series[Any]) -> TokenCount:
    """Fit the tokens of the model by length, by relative errors."""
    x, y = lengths.to_numpy(np.float64), tokens.to_numpy(np.float64)
    fixed, per_token = nonnegative_line(x, y, 1.0 / y)
    return TokenCount(fixed=fixed, per_token=per_token)
