"""Sentences sent to a running service one after another. Every request goes to the journal as soon as it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from simnmt.base import random_streams
from simnmt.base.errors import shorten
from simnmt.calibrate.endpoint_apis import Endpoint, Reply
from simnmt.calibrate.endpoint_settings import LEAST_ROUNDS, EndpointSettings
from simnmt.calibrate.endpoint_times import AloneRequest, times_by_sentence
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.measurement import Listener
from simnmt.calibrate.settings import CalibrationError

WARM_UP = 2
"""Requests before those that count, in each session: the first ones open connections and fill caches."""
AGREEMENT, MOST_AGAIN = 0.005, 3
"""A least time is trusted if a second request of the sentence comes within this share of it; with further rounds of the other
sentences, at most so many times the rounds."""


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


def _unsteady(requests: Sequence[AloneRequest]) -> list[int]:
    """Return the sentences whose two least times differ: the least may be of a disturbed request."""
    by_sentence = times_by_sentence([request.sentence for request in requests], [request.elapsed_s for request in requests])
    return [number for number, times in by_sentence.items() if sorted(times)[1] > (1.0 + AGREEMENT) * min(times)]
