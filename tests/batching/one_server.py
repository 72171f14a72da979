"""The plainest server that asks a batcher: one step after the other, all that happens written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from simnmt.batching import Batcher, Batching, Encode


@dataclass
class Served:
    """What became of each sentence, and of the server."""

    encoded_s: dict[int, float] = field(default_factory=dict)
    """Begin of its encoding."""
    joined_s: dict[int, float] = field(default_factory=dict)
    finish_s: dict[int, float] = field(default_factory=dict)
    encodings: list[tuple[int, ...]] = field(default_factory=list)
    joins: list[tuple[int, ...]] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)
    """Of each sentence as it is done: how many remain active, and how many wait; in the order of `finish_s`."""
    steps: list[tuple[float, tuple[int, ...], int]] = field(default_factory=list)
    """Begin, who is active, how many wait."""
    end_s: float = 0.0


def serve(
    batching: Batching,
    arrival_s: Sequence[float],
    src_len: Sequence[int],
    tgt_len: Sequence[int],
    step_s: Callable[[int], float] = lambda active: 1.0,
    encode_s: Callable[[int], float] = lambda sentences: 0.0,
) -> Served:
    """Serve sentences that arrive at these times, in order; nothing more is told to come after the last."""
    batcher, served = Batcher(batching), Served()
    left: dict[int, int] = {}
    now_s, coming = 0.0, 0

    def let_in() -> None:
        nonlocal coming
        while coming < len(arrival_s) and arrival_s[coming] <= now_s:
            batcher.arrive(coming, src_len[coming], arrival_s[coming])
            coming += 1
        if coming == len(arrival_s):
            batcher.close()

    def done(request: int) -> None:
        left.pop(request)
        served.finish_s[request] = now_s

    while True:
        let_in()
        move = batcher.next(len(left), now_s, max((src_len[request] for request in left), default=0))
        if isinstance(move, Encode):
            served.encodings.append(move.requests)
            served.encoded_s |= dict.fromkeys(move.requests, now_s)
            now_s += encode_s(len(move.requests))
        elif move is not None:
            served.joins.append(move.requests)
            for request in move.requests:
                served.joined_s[request] = now_s
                left[request] = tgt_len[request]
            for request in [each for each in move.requests if tgt_len[each] == 0]:
                done(request)
                served.left.append((len(left), batcher.waiting))
        elif left:
            served.steps.append((now_s, tuple(left), batcher.waiting))
            now_s += step_s(len(left))
            for request in left:
                left[request] -= 1
            ending = [request for request in left if left[request] == 0]
            for request in ending:
                done(request)
            served.left += [(len(left), batcher.waiting)] * len(ending)
        else:
            soonest_s = min(batcher.due_s, arrival_s[coming] if coming < len(arrival_s) else inf)
            if soonest_s == inf:
                served.end_s = now_s
                return served
            assert soonest_s > now_s, "nothing moves although it is due"
            now_s = soonest_s
