"""Times of sentences one after another: which of them count, and the round trip that is taken off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.base.arrays import Floats

LEAST_SHARE = 0.05
"""Least share of a request's time that is left when the round trip is taken off."""
REMEMBERED, REMEMBERED_WITHOUT_ECHO, NEARLY_ALL, AS_AN_ECHO = 0.3, 0.1, 0.9, 3.0
"""A service remembers translations if so many of the sentences later took less than this share of their first time, and no
longer than three echoes. A service that was cold is slow at first too, but then still takes the time of its model."""


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
    thinks: bool = False
    """Whether the model thought before it translated: a part of the time, not of the length."""
    is_cut: bool = False
    """True if the translation reached the limit of its tokens."""


@dataclass(frozen=True, slots=True)
class AloneTimes:
    """What requests one after another say about a service."""

    requests: Sequence[AloneRequest]
    busy: bool
    """Whether the box of the load generator was busy: then the least time of a sentence stands for all, else the median."""

    @property
    def remembers(self) -> bool:
        """Whether the service remembers translations, so that only the first request of each sentence counts.

        Nearly every sentence was later answered far faster than at first, and about as fast as an echo.
        """
        repeated = [times for times in self._by_sentence("elapsed_s").values() if len(times) > 1]
        if not repeated:
            return False
        later_s = np.array([min(times[1:]) for times in repeated])
        nearly_all = float(np.quantile(later_s / np.array([times[0] for times in repeated]), NEARLY_ALL))
        echoes_s = self.echoes_s
        if not echoes_s:
            return nearly_all < REMEMBERED_WITHOUT_ECHO
        return nearly_all < REMEMBERED and float(np.median(later_s)) < AS_AN_ECHO * float(np.median(echoes_s))

    @property
    def counted(self) -> list[AloneRequest]:
        """The requests that count for the plane."""
        if not self.remembers:
            return list(self.requests)
        first = {request.sentence: request for request in reversed(self.requests)}
        return list(first.values())

    @property
    def echoes_s(self) -> list[float]:
        """Times of all echoes."""
        return [request.echo_s for request in self.requests if request.echo_s is not None]

    @property
    def separates_round_trip(self) -> bool:
        """Whether an echo is shorter than every sentence. One that is not measures something else than the round trip."""
        echo_s = self._echo_s
        return echo_s is not None and echo_s < (1.0 - LEAST_SHARE) * self._shortest_s

    @property
    def round_trip_s(self) -> float:
        """What is taken off every request; 0 without an echo, or if it is no measure of the round trip."""
        echo_s = self._echo_s
        return echo_s if echo_s is not None and self.separates_round_trip else 0.0

    def executions_s(self) -> Floats:
        """Return the time of each counted request less the round trip."""
        elapsed_s = np.array([request.elapsed_s for request in self.counted])
        return np.maximum(elapsed_s - self.round_trip_s, LEAST_SHARE * elapsed_s)

    def executions_by_sentence_s(self) -> dict[int, list[float]]:
        """Return the times of each sentence less the round trip."""
        return times_by_sentence([request.sentence for request in self.counted], self.executions_s().tolist())

    def sentence_s(self) -> Floats:
        """Return the time of each sentence less the round trip, shape (sentences,).

        The least of its requests, at the level of the median request, which is taken over all sentences. On a busy box half
        the way to that level: what disturbs a single request may slow the service too, or the load generator alone.
        """
        by_sentence = self.executions_by_sentence_s()
        repeats = [np.array(by_sentence[sentence]) for sentence in sorted(by_sentence)]
        least_s = np.array([times.min() for times in repeats])
        ratios = np.concatenate([times / times.min() for times in repeats])
        level = float(np.median(ratios))
        return least_s * (level**0.5 if self.busy else level)

    @property
    def _typical(self) -> Callable[[Sequence[float]], float]:
        return min if self.busy else lambda times: float(np.median(times))

    @property
    def _shortest_s(self) -> float:
        """Typical time of the shortest sentence, the round trip included."""
        by_sentence = times_by_sentence(
            [request.sentence for request in self.counted], [request.elapsed_s for request in self.counted]
        )
        return min(map(self._typical, by_sentence.values()))

    @property
    def _typical_echoes_s(self) -> list[float]:
        """The least or median echo beside each sentence: of as many echoes as the sentence's own time is of requests."""
        return [self._typical(times) for times in self._by_sentence("echo_s").values()]

    @property
    def _echo_s(self) -> float | None:
        typical_s = self._typical_echoes_s
        return float(np.median(typical_s)) if typical_s else None

    def _by_sentence(self, name: str) -> dict[int, list[float]]:
        measured = [(request.sentence, getattr(request, name)) for request in self.requests]
        known = [(sentence, seconds) for sentence, seconds in measured if seconds is not None]
        return times_by_sentence([sentence for sentence, _ in known], [seconds for _, seconds in known])


def times_by_sentence(sentences: Sequence[int], seconds: Sequence[float]) -> dict[int, list[float]]:
    """Return the times of each sentence, in their order."""
    by_sentence: dict[int, list[float]] = {}
    for sentence, time_s in zip(sentences, seconds, strict=True):
        by_sentence.setdefault(sentence, []).append(time_s)
    return by_sentence
