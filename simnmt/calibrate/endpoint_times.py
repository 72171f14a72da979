"""Times of sentences one after another: which of them count, the round trip that is taken off, and the mean time alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.calibrate.endpoint_knee import UnloadedTime, median_interval
from simnmt.profile.execution_fit import fit_relative_plane

Floats = NDArray[np.float64]
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
        the way to that level: what disturbs a single request may slow the loaded service too, or its load generator alone.
        """
        least_s, ratios = self._least_and_ratios()
        level = float(np.median(ratios))
        return least_s * (level**0.5 if self.busy else level)

    def unloaded(self) -> UnloadedTime:
        """Return the mean time of a sentence alone.

        Its interval holds that of the median request, the spread of the round trip, and for a busy box all from the least to
        the median request. If the echo is no measure of the round trip, it holds all that the round trip may be: the fixed
        part of the plane.
        """
        least_s, ratios = self._least_and_ratios()
        low, high = (1.0, float(np.median(ratios))) if self.busy else median_interval(ratios)
        low_s, high_s = low * float(least_s.mean()), high * float(least_s.mean())
        if self.separates_round_trip:
            echo_s, typical_echoes_s = self.round_trip_s, self._typical_echoes_s
            low_s -= max(float(np.quantile(typical_echoes_s, 0.75)) - echo_s, 0.0)
            high_s += max(echo_s - float(np.quantile(typical_echoes_s, 0.25)), 0.0)
        elif self.echoes_s:
            low_s -= self._most_round_trip_s
        mean_s = float(self.sentence_s().mean())
        return UnloadedTime(mean_s, max(low_s, LEAST_SHARE * mean_s), high_s)

    def _least_and_ratios(self) -> tuple[Floats, Floats]:
        """Return the least time of each sentence, and the ratio of each request to the least of its sentence."""
        by_sentence = self.executions_by_sentence_s()
        repeats = [np.array(by_sentence[sentence]) for sentence in sorted(by_sentence)]
        return np.array([times.min() for times in repeats]), np.concatenate([times / times.min() for times in repeats])

    @property
    def _most_round_trip_s(self) -> float:
        """The fixed part of the requests, which holds the round trip; at most the shortest sentence."""
        src_len, tgt_len, elapsed_s = (
            np.array([getattr(request, name) for request in self.counted], np.float64)
            for name in ("src_len", "tgt_len", "elapsed_s")
        )
        fixed_s = fit_relative_plane(src_len, tgt_len, elapsed_s, quantile=0.0 if self.busy else 0.5).plane.s_fixed
        return min(max(fixed_s, 0.0), (1.0 - LEAST_SHARE) * self._shortest_s)

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
