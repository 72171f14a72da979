"""Load on a running service: sentences one after another, then arrivals at growing rates, timed from their schedule.

Every request goes to the journal as soon as it is answered, and so does every level of the ladder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.errors import shorten
from simnmt.calibrate.endpoint_apis import Endpoint, Reply
from simnmt.calibrate.endpoint_knee import LevelRound, is_ladder_done, levels_to_repeat, pool_rounds
from simnmt.calibrate.endpoint_settings import LEAST_ROUNDS, EndpointSettings
from simnmt.calibrate.endpoint_times import AloneRequest, times_by_sentence
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.measurement import Listener
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.endpoint_block import LoadLevel
from simnmt.service.messages import ServiceError

Floats = NDArray[np.float64]
WARM_UP = 2
"""Requests before those that count, in each session: the first ones open connections and fill caches."""
AGREEMENT, MOST_AGAIN = 0.005, 3
"""A least time is trusted if a second request of the sentence comes within this share of it; with further rounds of the other
sentences, at most so many times the rounds."""
LEAST_REQUESTS, REQUESTS_PER_WORKER = 30, 12
"""Requests of a level: at least so many, and so many for each sentence at once."""
QUICK_LEAST_REQUESTS, QUICK_REQUESTS_PER_WORKER = 24, 8
LATER_SHARE = 0.6
"""Share of a level's requests for each sentence at once that its further rounds have."""
QUEUE_SHARE = 0.7
"""Largest share of the timeout that the last request of a level is expected to wait."""
INNER = (0.2, 0.8)
"""Shares of the answered requests of a level between which its throughput is measured: before, workers fill; after, they
empty."""


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
        requests = list[AloneRequest]()
        for _ in range(WARM_UP):
            if echoes:
                await self.endpoint.echo()
            # A text of its own: a service that remembers translations must not know a sentence that counts.
            await self.endpoint.ask(" ".join(self.sentences[:2]))
        for remark in self.endpoint.remarks:
            self.listener.say(f"endpoint: {remark}")
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
            what = "does not state its numbers of tokens" + ", without those of thinking" * reply.thinks
            raise CalibrationError(f"{self.settings.url} {what}", remedy="leave out --unit service")
        else:
            lengths = reply.stated
        tokens = reply.token_s
        first_s = tokens[0] - reply.sent_s if tokens else None
        between_s = (tokens[-1] - tokens[0]) / (len(tokens) - 1) if len(tokens) > 1 else None
        return AloneRequest(
            sentence, *lengths, reply.received_s - reply.sent_s, echo_s, first_s, between_s, reply.thinks, reply.is_cut
        )

    async def measure_ladder(self, alone_s: Floats) -> list[LoadLevel]:
        """Send the sentences at growing rates until the service answers no faster, or refuses, or the greatest level is done.

        The levels near the knee are sent in several rounds of random order; if they then show that the first round ended the
        ladder too early, it goes on. No further round is begun that would end after `settings.within_s`.

        `alone_s`: seconds of each sentence alone, without the round trip; shape (sentences,).
        """
        rounds: dict[int, list[LevelRound]] = {}
        within_s = self.settings.within_s
        while True:
            levels = [pool_rounds(rounds[concurrency], float(alone_s.mean())) for concurrency in sorted(rounds)]
            following = 2 * max(rounds, default=0) or 1
            if following <= self.settings.max_concurrency and not is_ladder_done(levels):
                await self._add_round(rounds, following, alone_s)
                continue
            spent_s = sum(one.elapsed_s for level in rounds.values() for one in level)
            chosen = levels_to_repeat(levels)
            next_s = sum(rounds[concurrency][-1].elapsed_s for concurrency in chosen)
            if not chosen:
                return levels
            if spent_s + next_s > within_s:
                self.listener.say(f"endpoint: levels of load took {spent_s:.0f} s, and further rounds are left out")
                return levels
            number = len(rounds[chosen[0]])
            random = random_streams.stream(self.settings.seed, number, "calibrate_endpoint_order")
            for concurrency in random.permutation(chosen).tolist():
                await self._add_round(rounds, concurrency, alone_s)

    async def _add_round(self, rounds: dict[int, list[LevelRound]], concurrency: int, alone_s: Floats) -> None:
        """Add one round of a level, from the journal or from the service."""
        earlier = rounds.setdefault(concurrency, [])
        name = f"ladder {concurrency} {len(earlier)}"
        if name in self.journal.findings:
            kept = self.journal.findings[name]
            earlier.append(LevelRound(**kept | {"latency_s": tuple(kept["latency_s"])}))
        else:
            medians = [float(np.median([one.executed for one in level])) for level in rounds.values() if level]
            most = max(medians, default=1.0)
            earlier.append(await self._round(concurrency, len(earlier), alone_s, most))
            self.journal.finding(name, asdict(earlier[-1]))
        level = pool_rounds(earlier, float(alone_s.mean()))
        again = "" if len(earlier) == 1 else f" (median of {len(earlier)} rounds)"
        self.listener.say(
            f"{concurrency} at once: {level.rate_rps:.4g} requests a second, {level.throughput_rps:.4g} answered{again}"
        )

    async def _round(self, concurrency: int, number: int, alone_s: Floats, most: float) -> LevelRound:
        """Measure a level once. `most`: sentences that the service has executed at once so far."""
        quick, mean_s = self.settings.quick, float(alone_s.mean())
        least, per_worker = (
            (QUICK_LEAST_REQUESTS, QUICK_REQUESTS_PER_WORKER) if quick else (LEAST_REQUESTS, REQUESTS_PER_WORKER)
        )
        # The queue grows while requests are sent: with `most` at once, the last one waits for nearly all before it.
        patient = int(QUEUE_SHARE * self.settings.timeout_s * most / mean_s)
        several = round(per_worker * concurrency * (1.0 if number == 0 else LATER_SHARE))
        count = max(min(max(least, several), patient), min(least, 2 * concurrency))
        random = random_streams.stream(self.settings.seed, concurrency, "calibrate_endpoint_ladder", number)
        turns = [random.permutation(len(self.sentences)) for _ in range(-(-count // len(self.sentences)))]
        sentences = np.concatenate(turns)[:count]
        # As much time to the next arrival as this sentence takes, so that the offered load is even.
        gaps_s = alone_s[sentences] / concurrency
        offsets_s = np.cumsum(gaps_s) - gaps_s
        due_s, sent_s, received_s = await self._send([self.sentences[number] for number in sentences], offsets_s)
        answered = np.isfinite(received_s)
        elapsed_s = float(np.max(received_s[answered], initial=due_s[-1]) - due_s[0])
        self.spent_s += elapsed_s
        return LevelRound(
            concurrency=concurrency,
            requests=count,
            executed=_executed_at_once(received_s[answered], alone_s[sentences[answered]]),
            latency_s=tuple((received_s - due_s)[answered].tolist()),
            lateness_p99_s=float(np.quantile(np.maximum(sent_s - due_s, 0.0), 0.99)),
            elapsed_s=elapsed_s,
        )

    async def _send(self, texts: Sequence[str], offsets_s: Floats) -> tuple[Floats, Floats, Floats]:
        """Send each text at its offset, whatever the service does; return when each was due, sent and answered (else NaN)."""
        sent_s, received_s = np.full(len(texts), np.nan), np.full(len(texts), np.nan)
        other = list[ServiceError]()
        now = asyncio.get_running_loop().time  # the monotonic clock, by which replies are timed too

        async def one(request: int) -> None:
            sent_s[request] = now()
            try:
                received_s[request] = (await self.endpoint.ask(texts[request])).received_s
            except ServiceError as error:
                if error.status not in (429, 503, 504):
                    other.append(error)

        begin_s = now() + 0.01
        due_s, tasks = begin_s + offsets_s, list[asyncio.Task[None]]()
        for request, moment_s in enumerate(due_s.tolist()):
            if (left_s := moment_s - now()) > 0.0:
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
