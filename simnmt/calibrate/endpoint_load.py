"""Load on a running service: sentences one after another, then arrivals at growing rates, timed from their schedule.

Every request goes to the journal as soon as it is answered, and so does every level of the ladder.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.errors import shorten
from simnmt.calibrate.endpoint_apis import Endpoint, Reply
from simnmt.calibrate.endpoint_settings import LEAST_ROUNDS, EndpointSettings
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.measurement import Listener
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.blocks import Quantiles
from simnmt.profile.endpoint_block import LoadLevel
from simnmt.service.messages import ServiceError
from simnmt.service.precise_timers import reduce_timer_slack

Floats = NDArray[np.float64]
WARM_UP = 2
"""Requests before those that count, in each session: the first ones open connections and fill caches."""
AGREEMENT, MOST_AGAIN = 0.005, 3
"""A least time is trusted if a second request of the sentence comes within this share of it; with further rounds of the other
sentences, at most so many times the rounds."""
LEAST_REQUESTS, REQUESTS_PER_WORKER = 30, 12
"""Requests of a level: at least so many, and so many for each sentence at once."""
QUICK_LEAST_REQUESTS, QUICK_REQUESTS_PER_WORKER = 24, 8
QUEUE_SHARE = 0.7
"""Largest share of the timeout that the last request of a level is expected to wait."""
SATURATED = 0.85
"""Share of the offered load below which a level is saturated."""
GROWTH = 1.1
"""Growth of the throughput from a level to the next from which the ladder goes on, although requests wait."""
INNER = (0.2, 0.8)
"""Shares of the answered requests of a level between which its throughput is measured: before, workers fill; after, they
empty."""


@dataclass(frozen=True, slots=True)
class AloneRequest:
    """One request while no other was under way."""

    sentence: int
    src_len: int
    tgt_len: int
    elapsed_s: float
    echo_s: float | None = None
    """Time of the echo before it; None if the service answers none."""
    first_token_s: float | None = None
    """None: not streamed."""
    between_tokens_s: float | None = None
    """Mean time between two tokens; None: not streamed, or a single token."""


@dataclass(slots=True)
class EndpointLoad:
    """Sends the sentences of a calibration, and keeps what is measured in the journal."""

    endpoint: Endpoint
    sentences: Sequence[str]
    settings: EndpointSettings
    journal: Journal
    listener: Listener
    spent_s: float = field(default=0.0, init=False)
    """Seconds of measuring so far."""

    async def measure_alone(self, *, echoes: bool) -> list[AloneRequest]:
        """Send the sentences one after another, in rounds of random order. `echoes`: send an echo before each.

        After the rounds of all sentences, those whose least time was not reached twice are sent again.
        """
        reduce_timer_slack()
        requests = list[AloneRequest]()
        for _ in range(WARM_UP):
            if echoes:
                await self.endpoint.echo()
            # A text of its own: a service that remembers translations must not know a sentence that counts.
            await self.endpoint.ask(" ".join(self.sentences[:2]))
        rounds, within_s = self.settings.rounds, self.settings.within_s
        for number in range(MOST_AGAIN * rounds):
            if number >= LEAST_ROUNDS and self.spent_s * (number + 1) / number > within_s:
                self.listener.say(f"endpoint: {number} rounds took {self.spent_s:.0f} s, and further ones are left out")
                break
            chosen = range(len(self.sentences)) if number < rounds else _unsteady(requests)
            if not chosen:
                break
            random = random_streams.stream(self.settings.seed, number, "calibrate_endpoint")
            for sentence in random.permutation(chosen).tolist():
                requests.append(await self._one_alone(number, sentence, echoes))
                self.spent_s += requests[-1].elapsed_s
                share = min(len(requests) / (rounds * len(self.sentences)), 1.0)
                left_s = min(self.spent_s / share - self.spent_s, max(within_s - self.spent_s, 0.0))
                self.listener.measured("endpoint", self.spent_s, left_s)
        return requests

    async def _one_alone(self, number: int, sentence: int, echoes: bool) -> AloneRequest:
        name = f"alone {number} {sentence}"
        if name in self.journal.findings:
            return AloneRequest(**self.journal.findings[name])
        echo_s = await self.endpoint.echo() if echoes else None
        request = self._request(sentence, await self.endpoint.ask(self.sentences[sentence]), echo_s)
        self.journal.finding(name, asdict(request))
        return request

    def _request(self, sentence: int, reply: Reply, echo_s: float | None) -> AloneRequest:
        counters, text = self.settings.counters(), self.sentences[sentence]
        if not reply.text.strip():
            raise CalibrationError(
                f"{self.settings.url} answered {shorten(text, 40)!r} with an empty translation",
                remedy="correct --source, --target or --model: a translation's length is part of the measurement",
            )
        if counters is not None:
            (_, count_src), (_, count_tgt) = counters
            lengths = count_src(text), count_tgt(reply.text)
        elif reply.stated is None:
            raise CalibrationError(
                f"{self.settings.url} does not state its numbers of tokens", remedy="leave out --unit service"
            )
        else:
            lengths = reply.stated
        tokens = reply.token_s
        first_s = tokens[0] - reply.sent_s if tokens else None
        between_s = (tokens[-1] - tokens[0]) / (len(tokens) - 1) if len(tokens) > 1 else None
        return AloneRequest(sentence, *lengths, reply.received_s - reply.sent_s, echo_s, first_s, between_s)

    async def measure_ladder(self, alone_s: Floats) -> list[LoadLevel]:
        """Send the sentences at growing rates until the service answers no faster, or refuses, or the greatest level is done.

        `alone_s`: seconds of each sentence alone, without the round trip; shape (sentences,).
        """
        reduce_timer_slack()
        levels, concurrency = list[LoadLevel](), 1
        while concurrency <= self.settings.max_concurrency:
            name = f"ladder {concurrency}"
            if name in self.journal.findings:
                last = LoadLevel.model_validate_json(json.dumps(self.journal.findings[name]))
            else:
                last = await self._level(concurrency, alone_s, max((level.executed for level in levels), default=1.0))
                self.journal.finding(name, last.model_dump(mode="json"))
            levels.append(last)
            self.listener.say(
                f"{last.concurrency:g} at once: {last.rate_rps:.4g} requests a second, {last.throughput_rps:.4g} answered"
            )
            if last.answered < last.requests or (is_saturated(last) and not _grows(levels)):
                break
            concurrency *= 2
        return levels

    async def _level(self, concurrency: int, alone_s: Floats, most: float) -> LoadLevel:
        """Measure one level. `most`: sentences that the service has executed at once so far."""
        quick, mean_s = self.settings.quick, float(alone_s.mean())
        least, per_worker = (
            (QUICK_LEAST_REQUESTS, QUICK_REQUESTS_PER_WORKER) if quick else (LEAST_REQUESTS, REQUESTS_PER_WORKER)
        )
        # The queue grows while requests are sent: with `most` at once, the last one waits for nearly all before it.
        patient = int(QUEUE_SHARE * self.settings.timeout_s * most / mean_s)
        count = max(min(max(least, per_worker * concurrency), patient), min(least, 2 * concurrency))
        random = random_streams.stream(self.settings.seed, concurrency, "calibrate_endpoint_ladder")
        turns = [random.permutation(len(self.sentences)) for _ in range(-(-count // len(self.sentences)))]
        sentences = np.concatenate(turns)[:count]
        # As much time to the next arrival as this sentence takes, so that the offered load is even.
        gaps_s = alone_s[sentences] / concurrency
        offsets_s = np.cumsum(gaps_s) - gaps_s
        due_s, sent_s, received_s = await self._send([self.sentences[number] for number in sentences], offsets_s)
        answered = np.isfinite(received_s)
        latency_s = (received_s - due_s)[answered]
        executed = _executed_at_once(received_s[answered], alone_s[sentences[answered]])
        self.spent_s += float(offsets_s[-1])
        return LoadLevel(
            concurrency=concurrency,
            rate_rps=concurrency / mean_s,
            requests=count,
            answered=int(answered.sum()),
            throughput_rps=executed / mean_s,
            executed=executed,
            latency=Quantiles.of(latency_s) if latency_s.size else None,
            lateness_p99_s=float(np.quantile(np.maximum(sent_s - due_s, 0.0), 0.99)),
        )

    async def _send(self, texts: Sequence[str], offsets_s: Floats) -> tuple[Floats, Floats, Floats]:
        """Send each text at its offset, whatever the service does; return when each was due, sent and answered (else NaN)."""
        sent_s, received_s = np.full(len(texts), np.nan), np.full(len(texts), np.nan)
        other = list[ServiceError]()

        async def one(request: int) -> None:
            sent_s[request] = time.monotonic()
            try:
                received_s[request] = (await self.endpoint.ask(texts[request])).received_s
            except ServiceError as error:
                if error.status not in (429, 503, 504):
                    other.append(error)

        begin_s = time.monotonic() + 0.01
        due_s, tasks = begin_s + offsets_s, list[asyncio.Task[None]]()
        for request, moment_s in enumerate(due_s.tolist()):
            if (left_s := moment_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            if other:
                break
            tasks.append(asyncio.create_task(one(request)))
        await asyncio.gather(*tasks)
        if other:
            raise other[0]
        return due_s, sent_s, received_s


def _unsteady(requests: Sequence[AloneRequest]) -> list[int]:
    """Return the sentences whose two least times differ: the least may be of a disturbed request."""
    by_sentence = times_by_sentence([request.sentence for request in requests], [request.elapsed_s for request in requests])
    return [number for number, times in by_sentence.items() if sorted(times)[1] > (1.0 + AGREEMENT) * min(times)]


def times_by_sentence(sentences: Sequence[int], seconds: Sequence[float]) -> dict[int, list[float]]:
    """Return the times of each sentence, in their order."""
    by_sentence: dict[int, list[float]] = {}
    for sentence, time_s in zip(sentences, seconds, strict=True):
        by_sentence.setdefault(sentence, []).append(time_s)
    return by_sentence


def is_saturated(level: LoadLevel) -> bool:
    """Return whether the service executed clearly less than was offered."""
    return level.executed < SATURATED * level.concurrency


def _grows(levels: Sequence[LoadLevel]) -> bool:
    return len(levels) < 2 or levels[-1].executed > GROWTH * levels[-2].executed


def _executed_at_once(received_s: Floats, alone_s: Floats) -> float:
    """Return the seconds of executions alone that were answered in a second; 0 with too few answers.

    The slope of least squares over the moments of the inner answers: workers that answer in step would give a quotient of two
    moments an error of a whole step.
    """
    low, high = (int(share * received_s.size) for share in INNER)
    if high - low < 2:
        return 0.0
    order = np.argsort(received_s, kind="stable")
    moments_s = received_s[order][low:high]
    work_s = np.cumsum(alone_s[order])[low:high]
    # Of time over work: the moments are what varies.
    s_per_work = float(np.polyfit(work_s - work_s[0], moments_s - moments_s[0], 1)[0])
    return 1.0 / s_per_work if s_per_work > 0.0 else 0.0
