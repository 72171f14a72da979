"""Calibration of a running service as an engine with slots: requests at once, prompts, long outputs and a queue.

A block sends some requests, the same kinds in each round in random order. From the arrivals of their tokens follow the costs of
iterations (`simnmt.profile.slots_fit`), the block `slots` of a profile; requests alone give its plane.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from simnmt.base.arrays import Floats
from simnmt.base.errors import shorten
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import describe
from simnmt.calibrate.calibration import Calibrated, kept_journal, refuse_unwritable
from simnmt.calibrate.endpoint import (
    EndpointSettings,
    ServiceTimes,
    choose_sentences,
    endpoint_profile,
    journal_header,
    refused,
)
from simnmt.calibrate.harness import Case, Listener, Silent, nothing, rounds
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.device_profile import write_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.execution_fit import nonnegative_line
from simnmt.profile.slots_block import SlotsBlock, TokenCount
from simnmt.profile.slots_fit import StreamedRequest, fit_slots
from simnmt.service.chat import ChatAnswer, ChatClient
from simnmt.service.messages import ServiceError
from simnmt.workload.length_units import unit_and_counter
from simnmt.workload.text_lines import TextLines

ROUNDS, QUICK_ROUNDS = 4, 3
WITHIN_S, QUICK_WITHIN_S = 420.0, 75.0
"""Seconds of all rounds, which decide the lengths of prompts and outputs."""
LEAST_OUTPUT, MOST_OUTPUT = 12, 96
"""Tokens of an output, but for a few long ones."""
LONG = 4
"""Times as many tokens has a long output."""
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

Result = TypeVar("Result")
Lane = list[tuple[str, int]]
"""Texts, and most tokens of their answers (0: to their own end), sent one after another."""


def calibrate_slots(
    settings: EndpointSettings,
    out: str | os.PathLike[str],
    *,
    device_name: str | None = None,
    listener: Listener = Silent,
    replaces_journal: bool = False,
) -> Calibrated:
    """Measure a running service with OpenAI's API as an engine with slots, and write its device profile to `out`.

    Arguments and journal as for `simnmt.calibrate.endpoint.calibrate_endpoint`. Raises `InputError`.
    """
    path = Path(out)
    refuse_unwritable(path, "--out")
    sentences, words = choose_sentences(settings), " ".join(TextLines(Path(settings.text), kept=True)).split()
    before = profile_assembly.state(describe())
    with kept_journal(path, journal_header(settings, words), listener, replaces=replaces_journal) as journal:
        endpoint = settings.connect()
        if not isinstance(endpoint, ChatClient):
            raise CalibrationError("slots are measured through OpenAI's API", remedy="give --api openai, or leave out --kind")
        ladder = _Ladder(settings, endpoint, sentences, words)
        try:
            frame = ladder.measure(journal, listener)
        except ServiceError as error:
            raise refused(error, settings.url) from None
        try:
            requests = pd.DataFrame([one | {"block": n, "kind": k} for n, k, of in _blocks(frame) for one in of])
            times, block, doubts = _evaluate(ladder, requests)
        except CalibrationError:
            journal.findings.clear()  # other measurements are needed, not more of these
            raise
        profile = endpoint_profile(settings, path, device_name, times, before, doubts, slots=block)
        write_profile(path, profile)
        journal.remove()
    return Calibrated(profile, tuple(doubt.message for doubt in profile_doubts(profile)))


def _blocks(frame: pd.DataFrame) -> list[tuple[int, str, list[dict[str, Any]]]]:
    return [(n, kind, of) for n, (kind, of) in enumerate(zip(frame["case"], frame["requests"], strict=True))]


@dataclass(slots=True)
class _Limits:
    """What is known of the engine, and how."""

    slots: int
    chunk: int
    context: int | None
    notes: list[str] = field(default_factory=list)


class _Ladder:
    """The requests that one calibration sends, sized for the service's speed."""

    def __init__(self, settings: EndpointSettings, endpoint: ChatClient, sentences: list[str], words: list[str]) -> None:
        self.settings, self._endpoint, self._sentences, self._words = settings, endpoint, sentences, words
        # Without a seed: the service may still have prompts of an earlier calibration in its cache.
        self._starts = random.sample(range(len(words)), len(words))
        (_, self._count_src), (_, self._count_tgt) = (
            unit_and_counter(settings.src_unit, "src"),
            unit_and_counter(settings.tgt_unit, "tgt"),
        )
        self.limits = _Limits(0, 0, None)
        self.knots: list[int] = []

    def measure(self, journal: Journal, listener: Listener) -> pd.DataFrame:
        """Return one row for each block: its `case` and its `requests`. Raises `ServiceError`, `CalibrationError`."""
        loop, settings = asyncio.new_event_loop(), self.settings
        try:
            loop.run_until_complete(self._endpoint.__aenter__())
            cases = {
                kind: Case(
                    partial(lambda kind, lanes: {"requests": loop.run_until_complete(self._block(kind, lanes))}, kind, lanes),
                    prepare=nothing,
                    most_rounds=1 if kind == "sentences" else None,
                )
                for kind, lanes in loop.run_until_complete(self._plan()).items()
            }
            return rounds(
                cases,
                QUICK_ROUNDS if settings.quick else ROUNDS,
                3.0 * (QUICK_WITHIN_S if settings.quick else WITHIN_S),
                journal=journal,
                name="slots",
                shuffle=settings.seed,
                watch=None,  # a service on this box would count as another program
                listener=listener,
            )
        finally:
            loop.run_until_complete(self._endpoint.__aexit__())
            loop.close()

    def _text(self, count: int) -> str:
        """Return so many words of the text, which no other request begins with."""
        if not self._starts:
            what = f"the text has {len(self._words):,} words, too few for prompts that differ from the first word on"
            raise CalibrationError(what, path=self.settings.text, remedy="give a longer text")
        start = self._starts.pop()
        return " ".join((self._words[start:] + self._words * (1 + count // len(self._words)))[:count])

    async def _plan(self) -> dict[str, list[list[tuple[int, int]]]]:
        """Return the lanes of each kind of block: words of a prompt and tokens of its output, one request after another.

        Raises `CalibrationError` for a service that does not tell the tokens of a request, or their times.
        """
        await self._endpoint.check()
        self.limits = limits = await self._find_limits()
        url, slots = self.settings.url, limits.slots
        await self._ask(self._text(SHORT_WORDS), 4)  # refused options, and what is slow at first
        first = await self._ask(self._text(SHORT_WORDS), LEAST_OUTPUT)
        longer = await self._ask(self._text(4 * SHORT_WORDS), LEAST_OUTPUT)
        prompts = [answer.prompt_tokens or 0 for answer in (first, longer)]
        per_word = max((prompts[1] - prompts[0]) / (3 * SHORT_WORDS), 0.5)
        # Each slot has now had a prompt, so that what it keeps of the template is kept from here on.
        await _together([self._ask(self._text(SHORT_WORDS), 2) for _ in range(slots)])
        self.knots = knots = [
            together for together in range(1, slots + 1) if together <= 8 or not together & (together - 1) or together == slots
        ]
        step_s = max(float(np.median(np.diff(longer.tokens_s))), 1e-5)
        prompt_s = max((longer.first_s - longer.sent_s - step_s) / max(prompts[1], 1), 1e-6)
        settings = self.settings
        round_s = QUICK_WITHIN_S / QUICK_ROUNDS if settings.quick else WITHIN_S / ROUNDS
        # Half of a round decodes, half of it reads prompts.
        tokens = 0.5 * round_s / (step_s * (sum(1.0 + 0.8 * together for together in knots) + LONG + 3.0))
        output = int(min(max(tokens, LEAST_OUTPUT), MOST_OUTPUT))
        fixed = prompts[0] - per_word * SHORT_WORDS
        most = min(
            MOST_PROMPT,
            (limits.context or 1 << 30) - LONG * output - 8,
            limits.chunk // slots - 8,
            int(0.5 * round_s / (prompt_s * (sum(knots) + 1.5 * slots + 6.0))) + prompts[0],
        )
        long = int((0.85 * most - fixed) / per_word)
        if long < 2 * SHORT_WORDS:
            long = 2 * SHORT_WORDS
            if limits.context is not None and fixed + 1.3 * per_word * long + output > limits.context:
                raise CalibrationError(f"{url} has a context of {limits.context} tokens, too few for a ladder of prompts")
        middle = (SHORT_WORDS + long) // 2
        most_output = (limits.context or 1 << 30) - int(fixed + 1.3 * per_word * SHORT_WORDS) - 8
        long_output = max(min(LONG * output, most_output), output)
        lengths = np.linspace(SHORT_WORDS, long, 5).astype(int).tolist()
        blocks: dict[str, list[list[tuple[int, int]]]] = {}
        for together in knots:
            blocks[f"{together} short"] = [[(SHORT_WORDS, output)]] * together
            blocks[f"{together} long"] = [[(long, output)]] * together
        blocks["prompts"] = [[(length, 3) for length in lengths]]
        blocks["outputs"] = [[(SHORT_WORDS, long_output)]]
        blocks["queue"] = [[(middle, 1)]] * min(3 * slots + 1, 2 * slots + 16)
        if slots > 1:
            blocks["joining"] = [[(SHORT_WORDS, min(2 * output, long_output))], [(middle, 4)] * 4]
        blocks["sentences"] = [[(-1 - place, 0) for place in range(SENTENCES)]]
        return blocks

    async def _find_limits(self) -> _Limits:
        """Ask the service for its slots and their context, as llama-server and vLLM state them."""
        settings, endpoint, notes = self.settings, self._endpoint, list[str]()
        try:
            facts, _ = await endpoint.get_json("/props", settings.timeout_s)
        except ServiceError:
            facts = {}
        facts = facts if isinstance(facts, dict) else {}
        models = {model["id"]: model for model in await endpoint.models()}
        defaults = facts.get("default_generation_settings")
        context = defaults.get("n_ctx") if isinstance(defaults, dict) else None
        context = context or models[endpoint.model].get("max_model_len")
        slots = settings.slots or facts.get("total_slots")
        if not isinstance(slots, int) or slots < 1:
            what = f"{settings.url} does not state how many requests it decodes together"
            raise CalibrationError(what, remedy="give --slots N: as started, vLLM's is --max-num-seqs")
        if settings.chunk is None:
            notes.append(f"iterations of at most {ASSUMED_CHUNK:,} tokens are assumed, the default of llama-server and vLLM")
        if not isinstance(context, int):
            context = None
            notes.append("the service does not state its context")
        return _Limits(slots, max(settings.chunk or ASSUMED_CHUNK, slots), context, notes)

    async def _ask(self, text: str, tokens: int) -> ChatAnswer:
        """Ask for a translation, of exactly so many tokens if the service can; 0: to its own end."""
        settings, most = self.settings, tokens or 30 + 3 * len(text.split())
        answer = await self._endpoint.ask(self._endpoint.prompt(text), max_tokens=most, ignore_eos=tokens > 0)
        remedy = "measure it as a plane, without --kind slots"
        if not answer.text.strip() and not len(answer.tokens_s):
            what = f"{settings.url} answered {shorten(text, 40)!r} with an empty translation"
            raise CalibrationError(what, remedy="correct --model, --source or --target")
        if not len(answer.tokens_s):
            what = f"{settings.url} does not stream: iterations are told apart by the arrivals of tokens"
            raise CalibrationError(what, remedy=remedy)
        if answer.prompt_tokens is None or not answer.output_tokens:
            raise CalibrationError(f"{settings.url} states no numbers of tokens (usage)", remedy=remedy)
        if answer.is_cut and (answer.output_tokens or most) < most:
            held = (answer.prompt_tokens or 0) + (answer.output_tokens or 0)
            raise CalibrationError(
                f"{settings.url} cut an answer at {held} tokens of prompt and output: its context is smaller"
            )
        return answer

    async def _block(self, kind: str, lanes: Sequence[Sequence[tuple[int, int]]]) -> list[dict[str, Any]]:
        """Send a block; return what is known of each request, its tokens by seconds after it was sent."""

        async def one_by_one(lane: Lane) -> list[dict[str, Any]]:
            requests = list[dict[str, Any]]()
            for text, tokens in lane:
                echo_s = None
                if len(lanes) == 1:
                    _, echo_s = await self._endpoint.get_body(self._endpoint.echo_path, self.settings.timeout_s)
                answer = await self._ask(text, tokens)
                requests.append(
                    {
                        "sent_s": answer.sent_s,
                        "seconds": answer.received_s - answer.sent_s,
                        "prompt": answer.prompt_tokens,
                        "output": answer.output_tokens,
                        "cached": answer.cached_tokens,
                        "tokens_s": np.round(_by_token(answer) - answer.sent_s, 7).tolist(),
                        "src_len": self._count_src(text),
                        "tgt_len": self._count_tgt(answer.text),
                        "is_forced": tokens > 0,
                        "is_alone": len(lanes) == 1,
                        "thinks": answer.thinks,
                        "is_cut": answer.is_cut,
                        "echo_s": echo_s,
                    }
                )
            return requests

        def text(words: int) -> str:
            return self._text(words) if words > 0 else self._sentences[(-words * len(self._sentences)) // (SENTENCES + 1)]

        texts = [[(text(words), tokens) for words, tokens in lane] for lane in lanes]
        return [request for requests in await _together([*map(one_by_one, texts)]) for request in requests]


async def _together(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of works that run together; the first error ends them all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return [*await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _by_token(answer: ChatAnswer) -> Floats:
    """Return the arrival of each token; where an event holds several or a part of one, events are spread over the tokens."""
    events, tokens = len(answer.tokens_s), answer.output_tokens or 0
    if events in (tokens, tokens - 1):  # the token that ends an output has no text
        return answer.tokens_s
    return np.interp(np.linspace(0.0, events - 1, tokens), np.arange(events), answer.tokens_s)


def _evaluate(ladder: _Ladder, requests: pd.DataFrame) -> tuple[ServiceTimes, SlotsBlock, list[str]]:
    """Fit the block `slots` and the times of requests alone; return them with doubts. Raises `CalibrationError`."""
    limits, url, doubts = ladder.limits, ladder.settings.url, list[str]()
    cached = requests["cached"].fillna(0).to_numpy(np.int64)
    prefix = int(np.median(cached))
    if (np.abs(cached - prefix) > CACHE_TOKENS).mean() > CACHE_SHARE:
        what = f"{url} took {cached.min()} to {cached.max()} tokens of different prompts from a cache"
        raise CalibrationError(what, remedy="give a text without repeated passages, or turn the service's cache off")
    streamed = [
        StreamedRequest(block, kind, sent_s, sent_s + np.array(tokens_s), prompt, max(prompt - kept, 1))
        for block, kind, sent_s, tokens_s, prompt, kept in zip(
            *(requests[name] for name in ("block", "kind", "sent_s", "tokens_s", "prompt")), cached.tolist(), strict=True
        )
    ]
    try:
        fit = fit_slots(streamed, limits.slots, ladder.knots)
    except ValueError as error:
        raise CalibrationError(f"{url}: {error}") from None
    if fit.most_decoding < limits.slots:
        what = f"{url} decoded at most {fit.most_decoding} requests together, not {limits.slots}"
        raise CalibrationError(what, remedy=f"give --slots {fit.most_decoding}, or longer texts")
    if fit.speed_change > MOST_SPEED_CHANGE:
        what = f"the service changed its speed between blocks: the slowest stretch took {100 * fit.speed_change:.0f} % longer"
        raise CalibrationError(what, remedy="measure again while nothing else uses the service or its box")
    if fit.stalled_share > MOST_STALLED:
        what = f"the service changed its speed between blocks: {100 * fit.stalled_share:.0f} % of the time it was far slower"
        raise CalibrationError(what, remedy="measure again while nothing else uses the service or its box")
    output, whole = TokenCount(), requests[~requests["is_forced"] & ~requests["is_cut"]]
    if len(whole) > SENTENCES // 2 and whole["tgt_len"].nunique() > 2:
        tgt_len, outputs = (whole[name].to_numpy(np.float64) for name in ("tgt_len", "output"))
        fixed, per_token = nonnegative_line(tgt_len, outputs, 1.0 / outputs)
        output = TokenCount(fixed=fixed, per_token=per_token)
    else:
        doubts.append("the model ended too few outputs itself: a target token is taken as one token of the model")
    src_len, prompts = (requests[name].to_numpy(np.float64) for name in ("src_len", "prompt"))
    fixed, per_token = nonnegative_line(src_len, prompts, 1.0 / prompts)
    alone = requests[requests["is_alone"]].reset_index(drop=True)
    of_output = np.maximum(np.rint((alone["output"] - output.fixed) / (output.per_token or 1.0)), 1).astype(np.int64)
    alone = alone.assign(case=alone.index, tgt_len=alone["tgt_len"].where(~alone["is_forced"], of_output))
    times = ServiceTimes(alone.astype({"echo_s": float}))
    if fit.stalled_share > CACHE_SHARE:
        doubts.append(
            f"{100 * fit.stalled_share:.0f} % of the measured time were stalls of the service or this box, and do not count"
        )
    if not fit.knows_reading:
        doubts.append("no iteration that only reads prompts was seen: it counts like a step of one request")
    if alone["thinks"].any():
        doubts.append("the model thinks before it translates (turn it off at the service)")
    block = SlotsBlock(
        kind="measured",
        slots=limits.slots,
        chunk=limits.chunk,
        context=limits.context,
        cached_prefix=prefix,
        step_s=tuple(fit.cost.step_s),
        s_per_prompt_token=fit.cost.s_per_prompt_token,
        s_per_context_token=fit.cost.s_per_context_token,
        request_s=max(fit.cost.request_s - times.round_trip_s, 0.0),
        prompt=TokenCount(fixed=fixed, per_token=per_token),
        output=output,
        iterations=fit.iterations,
        heldout_error=fit.heldout_error,
        heldout_how="times of requests in blocks that were left out, a third at a time",
        notes=tuple(limits.notes),
    )
    return times, block, doubts
