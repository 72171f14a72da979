"""The plainest server that asks a batcher: one step after the other, all that happens written down.

It counts every active sentence down at every step; `simnmt.devices.batch` and the compiled engine skip steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simnmt.batching import Batcher, Batching, Encode


@st.composite
def batchings(draw: Any, limits: bool = True, collected: bool | None = None) -> Batching:
    """Draw a batching of any kind; `limits`: of padding and of encoding, too; `collected`: whether it collects."""
    size = draw(st.integers(1, 8))
    collects = draw(st.booleans()) if collected is None else collected
    return Batching(
        size,
        draw(st.integers(0, size - 1)),
        size + draw(st.integers(0, 12)) if collects else None,
        draw(st.sampled_from([0.0, 0.125, 0.5, 3.0, inf])),
        draw(st.none() | st.integers(1, 60)) if limits else None,
        draw(st.none() | st.integers(1, 9)) if limits else None,
    )


@dataclass(frozen=True)
class PlainCost:
    """Costs by numbers of sentences alone: of a step, and of a call of the encoder."""

    step_s: Callable[[int], float] = lambda active: 1.0
    encoding_s: Callable[[int], float] = lambda sentences: 0.0
    leave_s: float = 0.0

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        return lambda first, last: (last - first + 1) * self.step_s(batch)

    def source_s(self, batch: int, longest: int) -> float:
        return 0.0

    def encode_s(self, src_lens: Sequence[int]) -> float:
        return self.encoding_s(len(src_lens))

    def solo_s(self, src_len: Any, tgt_len: Any) -> Any:
        return self.encoding_s(1) + np.asarray(tgt_len) * self.step_s(1)

    def refill_s(self, joining: int) -> float:
        return 0.0


@dataclass
class Served:
    """What became of each sentence, and of the server."""

    encoded_s: dict[int, float] = field(default_factory=dict)
    """Begin of its encoding."""
    joined_s: dict[int, float] = field(default_factory=dict)
    first_s: dict[int, float] = field(default_factory=dict)
    """End of its first step."""
    finish_s: dict[int, float] = field(default_factory=dict)
    encodings: list[tuple[int, ...]] = field(default_factory=list)
    joins: list[tuple[int, ...]] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)
    """Of each sentence as it is done: how many remain active, and how many wait; in the order of `finish_s`."""
    steps: list[tuple[float, tuple[int, ...], int]] = field(default_factory=list)
    """Begin, the active sentences, how many wait."""

    @property
    def active(self) -> list[int]:
        """Number of active sentences in each step."""
        return [len(sentences) for _, sentences, _ in self.steps]


def serve(
    batching: Batching,
    arrival_s: Sequence[float],
    src_len: Sequence[int],
    tgt_len: Sequence[int],
    cost: Any = PlainCost(),
) -> Served:
    """Serve sentences that arrive at these times, in order; the batcher is closed when all others are done."""
    batcher, served = Batcher(batching), Served()
    left: dict[int, int] = {}
    now_s, coming, asks_from_s = 0.0, 0, -inf

    def arrive() -> None:
        nonlocal coming, asks_from_s
        while coming < len(arrival_s) and arrival_s[coming] <= now_s:
            batcher.arrive(coming, src_len[coming], arrival_s[coming])
            coming, asks_from_s = coming + 1, -inf

    def finish(ending: list[int]) -> None:
        for request in ending:
            left.pop(request)
            served.finish_s[request] = now_s
        served.left += [(len(left), batcher.waiting)] * len(ending)

    while True:
        arrive()
        longest = max((src_len[request] for request in left), default=0)
        move = batcher.next(len(left), now_s, longest) if now_s >= asks_from_s else None
        asks_from_s = -inf if move is not None or not left else batcher.due_s if batcher.due_s > now_s else inf
        if isinstance(move, Encode):
            served.encodings.append(move.requests)
            served.encoded_s |= dict.fromkeys(move.requests, now_s)
            now_s += cost.encode_s([src_len[request] for request in move.requests])
        elif move is not None:
            served.joins.append(move.requests)
            now_s += cost.refill_s(len(move.requests))
            for request in move.requests:
                served.joined_s[request] = now_s
                left[request] = tgt_len[request]
            finish([request for request in move.requests if tgt_len[request] == 0])
        elif left:
            served.steps.append((now_s, tuple(left), batcher.waiting))
            position = max(tgt_len[request] - steps for request, steps in left.items())
            now_s += cost.steps_at(len(left))(position, position) + cost.source_s(len(left), longest)
            left = {request: steps - 1 for request, steps in left.items()}
            ending = [request for request, steps in left.items() if steps == 0]
            now_s += cost.leave_s if ending else 0.0
            for request, steps in left.items():
                if steps == tgt_len[request] - 1:
                    served.first_s[request] = now_s
            finish(ending)
            asks_from_s = -inf if ending else asks_from_s
        else:
            soonest_s = min(batcher.due_s, arrival_s[coming] if coming < len(arrival_s) else inf)
            if soonest_s < inf:
                assert soonest_s > now_s, "nothing moves although it is due"
                now_s = soonest_s
            elif batcher.waiting:
                batcher.close()
            else:
                return served
