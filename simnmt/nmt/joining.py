"""How long sentences take to join a decoder and to leave it: what calibration measures of refilling a batch (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary

EARLY = [6]
GUESTS, LATE = 4, 5
"""Tokens to which they are forced: one other sentence joins a step before the guests, the rest of the others after them."""


class Joining(NamedTuple):
    """Seconds; below 0 where noise is larger than the cost."""

    join_s: float
    leave_s: float
    """What a step with whose end they leave takes beyond one with which none does."""


def timed_joining(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    joining: int,
    *,
    beam: int,
    rounds: int,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Joining:
    """Seconds that the first `joining` of these sources take to join the others, and to leave before these, all in one step.

    Medians of joining, and of what comes after the model in the step with which they leave, less that of the two steps
    before it. One of the others joins a step earlier, so that positions differ, the rest afterwards, so that the last move
    into the holes. A round before the first is not counted. `clock`: on a GPU one that waits for it. Raises as `SlotDecoder`
    does.
    """
    marks: list[float] = []
    decoder = SlotDecoder(
        model,
        beam=beam,
        capacity=len(sources),
        fused=fused,
        vocabulary=vocabulary,
        mark=lambda: marks.append(clock()),
    )
    encoded = decoder.encode(sources)
    guests, early, late = encoded[:joining], encoded[joining : joining + 1], encoded[joining + 1 :]
    keys = list(range(len(sources)))

    def beside_s() -> float:
        """Seconds of a step after the model's part of it."""
        decoder.step()
        return clock() - marks[-1]

    joined_s, between_s, leaving_s = list[float](), list[float](), list[float]()
    for _ in range(1 + rounds):
        if early:
            decoder.join(early, keys[joining : joining + 1], EARLY)
            decoder.step()
        begin_s = clock()
        decoder.join(guests, keys[:joining], [GUESTS] * joining)
        joined_s.append(clock() - begin_s)
        decoder.join(late, keys[joining + 1 :], [LATE] * len(late))
        decoder.step()
        between_s += [beside_s(), beside_s()]
        leaving_s.append(beside_s())
        while decoder.active:
            decoder.step()
    return Joining(median(joined_s[1:]), median(leaving_s[1:]) - median(between_s[2:]))
