"""Timed experiments on a decoder: joining and leaving, steps of two batches in turn, and the stages of one step.

Calibration measures refilling (FNI-10) and padding with the first two; the third compares the plain and the fused output
layer in the decoder's own shapes (FNI-01, FNI-15, FNI-17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simnmt.nmt.output_layer import FusedOutput, PlainOutput, largest, largest_sums, log_softmax_
from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.step_model import BannedTokens, Limit, StepModel, check_lengths
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary

EARLY_TOKENS = [6]
GUEST_TOKENS, LATE_TOKENS = 4, 5
"""Tokens to which they are forced: one other sentence joins a step before the guests, the rest of the others after them."""


class JoiningTime(NamedTuple):
    """Seconds; below 0 where noise is larger than the cost."""

    join_s: float
    leave_s: float
    """What a step with whose end they leave takes beyond one with which none does."""


def time_joining(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    joining: int,
    *,
    beam: int,
    rounds: int,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    clock: Callable[[], float] = perf_counter,
) -> JoiningTime:
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
            decoder.join(early, keys[joining : joining + 1], EARLY_TOKENS)
            decoder.step()
        begin_s = clock()
        decoder.join(guests, keys[:joining], [GUEST_TOKENS] * joining)
        joined_s.append(clock() - begin_s)
        decoder.join(late, keys[joining + 1 :], [LATE_TOKENS] * len(late))
        decoder.step()
        between_s += [beside_s(), beside_s()]
        leaving_s.append(beside_s())
        while decoder.active:
            decoder.step()
    return JoiningTime(median(joined_s[1:]), median(leaving_s[1:]) - median(between_s[2:]))


def time_steps_in_turn(
    model: StepModel,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    *,
    steps: int,
    beam: int,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    clock: Callable[[], float] = perf_counter,
) -> list[tuple[float, float]]:
    """Seconds of the model's steps under these sources and under those, by position from 1 on: the first step stands apart.

    At every other position the second batch goes first. `clock`: on a GPU one that waits for it. Raises as `SlotDecoder` does.
    """
    marks: list[float] = []
    decoders = []
    for sources in (first, second):
        decoder = SlotDecoder(
            model,
            beam=beam,
            capacity=len(sources),
            fused=fused,
            vocabulary=vocabulary,
            mark=lambda: marks.append(clock()),
        )
        decoder.join(decoder.encode(sources), range(len(sources)), [steps] * len(sources))
        decoders.append(decoder)
    pairs = []
    for position in range(steps):
        took_s = [0.0, 0.0]
        for turn in (0, 1) if position % 2 else (1, 0):
            marks.clear()
            decoders[turn].step()
            took_s[turn] = marks[1] - marks[0]
        pairs.append((took_s[0], took_s[1]))
    return pairs[1:]


SRC_LEN = 25
ROUNDS = 9
LEAST_ROUNDS, ENOUGH_S = 3, 5.0
"""So many rounds at least; no more of them once they have taken so long."""


@dataclass(frozen=True, slots=True)
class OutputStages:
    """Seconds of one decode step of all rows; medians of interleaved rounds. What lies between two steps is not in it."""

    body_s: float
    product_s: float
    """All columns at once, without the bias."""
    bias_s: float
    """What the product with the bias takes beyond it: torch adds within the product where it can. 0 where noise is larger."""
    softmax_s: float
    """0 where none is taken."""
    search_s: float
    """The best tokens of each row and among a beam's rows."""
    fused_product_s: float
    """The product as the fused layer takes it, block by block."""
    fused_s: float
    """Bias, softmax and search in one pass, the choice among a beam's rows included."""


STAGES = tuple(field.name.removesuffix("_s") for field in fields(OutputStages))


@torch.inference_mode()
def output_stages_s(
    model: StepModel,
    batch: int,
    beam: int,
    *,
    src_len: int = SRC_LEN,
    scored: bool = False,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = perf_counter,
) -> OutputStages:
    """Time the stages of steps of `batch` sentences of so many source tokens, forced to go on.

    `scored`: a greedy search takes probabilities, which the engine's does not. `clock`: on a GPU one that waits for it. Raises
    `NmtError` for lengths beyond the model's positions, and what torch raises where memory is short.
    """
    check_lengths(model.max_positions, src_len, rounds + 1)
    best = beam if beam > 1 else int(scored)
    slots = model.slots(batch * beam)
    src = torch.full((batch, src_len), model.eos_token, device=model.device)
    slots.join(model.encode(src, torch.full((batch,), src_len, device=model.device)), range(batch), [src_len] * batch, beam)
    banned = BannedTokens.of(model)
    banned.see([Limit(rounds + 1, True)] * batch, beam)
    products = _TimedProducts(model, clock)
    plain, fused = PlainOutput(model, banned), FusedOutput(products, banned)
    tokens, scores = torch.full((batch * beam,), model.eos_token, device=model.device), torch.zeros((batch, beam))
    scores = scores.to(model.device)

    def once() -> tuple[float, ...]:
        """In the order of `STAGES`, but in the place of the bias the product with it."""
        lap = _Stopwatch(clock)
        hidden = slots.body(tokens)
        body_s = lap()
        next(model.products(hidden))
        product_s = lap()
        logits = plain.project(hidden, best)
        with_bias_s = lap()
        logits = log_softmax_(logits) if best else logits
        softmax_s = lap() if best else 0.0
        banned.ban(logits)
        if beam > 1:
            largest_sums(logits, scores, 2 * beam)
        else:
            largest(logits)
        search_s = lap()
        del logits  # two of them would not be what the decoder needs
        products.taken_s = 0.0
        lap()
        projected: Any = fused.project(hidden, best)
        if beam > 1:
            fused.largest_sums(projected, scores, 2 * beam)
        fused_s = lap() - products.taken_s
        return body_s, product_s, with_bias_s, softmax_s, search_s, products.taken_s, fused_s

    once()
    begin_s, samples = clock(), list[tuple[float, ...]]()
    while len(samples) < rounds and (len(samples) < LEAST_ROUNDS or clock() - begin_s < ENOUGH_S):
        samples.append(once())
    body_s, product_s, _, *others = (median(part) for part in zip(*samples, strict=True))
    return OutputStages(body_s, product_s, max(0.0, median(one[2] - one[1] for one in samples)), *others)


class _Stopwatch:
    """Seconds since the last call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._before = clock, clock()

    def __call__(self) -> float:
        now = self._clock()
        lap_s, self._before = now - self._before, now
        return lap_s


class _TimedProducts:
    """A model that tells how long its products took."""

    def __init__(self, model: StepModel, clock: Callable[[], float]) -> None:
        self._model, self._clock, self.taken_s = model, clock, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """See `StepModel`."""
        blocks = self._model.products(hidden, block)
        while True:
            lap = _Stopwatch(self._clock)
            made = next(blocks, None)
            self.taken_s += lap()
            if made is None:
                return
            yield made
