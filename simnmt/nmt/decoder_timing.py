"""Time the stages of a decode step with the plain and the fused output layer, in the decoder's own shapes (FNI-01, 15, 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import torch
from torch import Tensor

from simnmt.nmt.output_layer import BannedTokens, FusedOutput, Limit, PlainOutput, largest, largest_sums, log_softmax_
from simnmt.nmt.step_model import StepModel, check_lengths

Clock = Callable[[], float]
Timer = Callable[[], dict[str, float]]
"""Runs an experiment once and returns its seconds by name; callers repeat it in rounds."""


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
