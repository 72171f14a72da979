"""All sentences at hand from the beginning: which step has how many active, without any clock (FNI-12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from simnmt.batching.batcher import Batcher, Encode
from simnmt.batching.batching import Batching


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps that a batcher needs for some sentences."""

    active: NDArray[np.int64]
    """Sentences under way in each step, shape (steps,)."""
    finish_step: NDArray[np.int64]
    """The step after which each sentence is done, shape (sentences,), from 1; without output, the one before it joined."""

    def share_below(self, active: int) -> float:
        """Share of the steps with fewer than so many active; NaN without a step."""
        return float((self.active < active).mean()) if self.active.size else float("nan")

    def share_full(self, size: int) -> float:
        """Share of the steps with a full batch; NaN without a step."""
        return float((self.active == size).mean()) if self.active.size else float("nan")


def schedule(batching: Batching, src_len: Sequence[int], tgt_len: Sequence[int]) -> Schedule:
    """Decode sentences that have all arrived, in the order given; `tgt_len`: the steps that each takes, 0 or more."""
    batcher = Batcher(batching)
    for request, length in enumerate(src_len):
        batcher.arrive(request, length, 0.0)
    batcher.close()
    finishing: list[tuple[int, int]] = []
    sizes: list[int] = []
    counts: list[int] = []
    finish_step = np.zeros(len(src_len), np.int64)
    step = 0
    while True:
        longest = max((src_len[request] for _, request in finishing), default=0) if batching.padded_tokens else 0
        move = batcher.next(len(finishing), 0.0, longest)
        if isinstance(move, Encode):
            continue
        if move is not None:
            for request in move.requests:
                if tgt_len[request] > 0:
                    heappush(finishing, (step + tgt_len[request], request))
                else:
                    finish_step[request] = step
            continue
        if not finishing:
            return Schedule(np.repeat(np.asarray(sizes, np.int64), counts), finish_step)
        sizes.append(len(finishing))
        counts.append(finishing[0][0] - step)
        step = finishing[0][0]
        while finishing and finishing[0][0] == step:
            finish_step[heappop(finishing)[1]] = step
