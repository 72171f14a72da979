"""Timed experiments on a decoder: joining and leaving, alternating steps of two batches, and the stages of one step.

Calibration measures refilling (FNI-10) and padding with the first two; the third compares the plain and the fused output
layer in the decoder's own shapes (FNI-01, FNI-15, FNI-17). A `clock` of a GPU waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import torch
from torch import Tensor

from simnmt.batching import mini
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.output_layer import BannedTokens, FusedOutput, Limit, Output, PlainOutput, largest, largest_sums, log_softmax_
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.step_model import StepModel, check_lengths

EARLY_TOKENS, GUEST_TOKENS, LATE_TOKENS = 6, 4, 5
"""Forced lengths: of the sentence that joins one step before the guests, of the guests, and of those that join after them."""

Clock = Callable[[], float]
Timer = Callable[[], dict[str, float]]
"""Runs an experiment once and returns its seconds by name; callers repeat it in rounds."""


def joining_timer(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    joining: int,
    *,
    beam: int,
    output: Output = Output(),  # noqa: B008 - frozen
    clock: Clock = perf_counter,
) -> Timer:
    """Return a timer of the first `joining` sources as they join the others in one step, and leave before them in one step.

    `join_s` is the time of joining, `leave_s` the time after the model's part in the step after which they leave, less the mean
    of the two steps before it: below 0 if noise is larger than the cost. One of the others joins one step earlier, so that
    positions differ, the rest later, so that the last slots move into the holes. Raises the errors of `Decoder`.
    """
    decoder, marks = _timed_decoder(model, len(sources), beam, output, clock)
    lens = [*[GUEST_TOKENS] * joining, EARLY_TOKENS, *[LATE_TOKENS] * len(sources)][: len(sources)]
    encoded = decoder.encode([DecodeRequest(*pair) for pair in zip(sources, lens, strict=True)])

    def join(first: int, last: int) -> None:
        decoder.join(encoded[first:last], range(first, min(last, len(encoded))))

    def beside_s() -> float:
        """Take a step and return the seconds after the model's part of it."""
        decoder.step()
        return clock() - marks[-1]

    def once() -> dict[str, float]:
        join(joining, joining + 1)
        decoder.step()
        begin_s = clock()
        join(0, joining)
        join_s = clock() - begin_s
        join(joining + 1, len(sources))
        decoder.step()
        between_s = (beside_s() + beside_s()) / 2.0
        leave_s = beside_s() - between_s
        while decoder.active:
            decoder.step()
        return {"join_s": join_s, "leave_s": leave_s}

    return once


def time_steps_in_turn(
    model: StepModel,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    *,
    steps: int,
    beam: int,
    output: Output = Output(),  # noqa: B008 - frozen
    clock: Clock = perf_counter,
) -> list[tuple[float, float]]:
    """Return the seconds of the model's part of each step of both batches, which alternate; the first step is left out.

    At every other position the second batch goes first. Raises the errors of `Decoder`.
    """
    timed = [_timed_decoder(model, len(sources), beam, output, clock) for sources in (first, second)]
    for (decoder, _), sources in zip(timed, (first, second), strict=True):
        decoder.join(decoder.encode([DecodeRequest(source, steps) for source in sources]), range(len(sources)))
    pairs = []
    for position in range(steps):
        took_s = [0.0, 0.0]
        for turn in (0, 1) if position % 2 else (1, 0):
            decoder, marks = timed[turn]
            decoder.step()
            took_s[turn] = marks[-1] - marks[-2]
        pairs.append((took_s[0], took_s[1]))
    return pairs[1:]


def _timed_decoder(model: StepModel, size: int, beam: int, output: Output, clock: Clock) -> tuple[Decoder, list[float]]:
    """Return a decoder, and the list to which it appends the time before and after the model's part of each step."""
    marks: list[float] = []
    return Decoder(model, mini(size), Search(beam), output, mark=lambda: marks.append(clock())), marks


STAGES = ("body", "product", "bias", "softmax", "search", "fused_product", "fused")
"""Stages of a decode step of all rows, without the time between steps: `product` of all columns at once, without the bias;
`bias`, what a product with bias takes more, since torch adds within the product where it can; `softmax`, 0 if none is computed;
`search` of the best tokens of each row and among the rows of a beam; `fused_product` of the fused layer, block by block;
`fused`: bias, softmax and search in one pass."""
SRC_LEN, MOST_CALLS = 25, 40
"""Source tokens; steps that a timer may take."""


@torch.inference_mode()
def stage_timer(model: StepModel, batch: int, beam: int, *, src_len: int = SRC_LEN, clock: Clock = perf_counter) -> Timer:
    """Return a timer of `STAGES` in steps of `batch` sentences of `src_len` source tokens, which are forced to go on.

    Each call is a step, of which there are at most `MOST_CALLS`. A greedy search computes no probabilities, as in the engine.
    Raises `NmtError` for lengths beyond the model's positions; errors of torch for too little memory pass through.
    """
    check_lengths(model.max_positions, src_len, MOST_CALLS)
    best = beam if beam > 1 else 0
    slots = model.slots(batch * beam)
    src = torch.full((batch, src_len), model.eos_token, device=model.device)
    slots.join(model.encode(src, torch.full((batch,), src_len, device=model.device)), range(batch), [src_len] * batch, beam)
    banned = BannedTokens(model)
    banned.update([Limit(MOST_CALLS, True)] * batch, beam)
    plain, fused = PlainOutput(model, banned), _TimedFusedOutput(model, banned)
    fused.clock = clock
    tokens = torch.full((batch * beam,), model.eos_token, device=model.device)
    scores = torch.zeros((batch, beam), device=model.device)

    @torch.inference_mode()
    def once() -> dict[str, float]:
        before_s = clock()

        def lap() -> float:
            nonlocal before_s
            now_s = clock()
            took_s, before_s = now_s - before_s, now_s
            return took_s

        hidden = slots.body(tokens)
        seconds = {"body": lap()}
        next(model.products(hidden))
        seconds["product"] = lap()
        logits = plain.project(hidden, best)
        seconds["bias"] = lap() - seconds["product"]
        logits = log_softmax_(logits) if best else logits
        seconds["softmax"] = lap() if best else 0.0
        banned.ban(logits)
        if beam > 1:
            largest_sums(logits, scores, 2 * beam)
        else:
            largest(logits)
        seconds["search"] = lap()
        del logits  # the decoder never holds two of them
        fused.product_s = 0.0
        lap()
        projected = fused.project(hidden, best)
        if beam > 1:
            fused.largest_sums(projected, scores, 2 * beam)
        fused_s = lap()
        return seconds | {"fused_product": fused.product_s, "fused": fused_s - fused.product_s}

    return once


class _TimedFusedOutput(FusedOutput):
    """A fused output layer that sums up the seconds of its products."""

    clock: Clock
    product_s = 0.0

    def _products(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        blocks = super()._products(hidden)
        while True:
            begin_s = self.clock()
            block = next(blocks, None)
            self.product_s += self.clock() - begin_s
            if block is None:
                return
            yield block
