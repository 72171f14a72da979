"""Boxes that stream their model, in the traffic of one run: what rows hold for them, and what is recorded of who enters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

from simnmt.world.requests import Block, Places, Row
from simnmt.world.streamed import StreamedAccount
from simnmt.world.streamed_pools import StreamedPool
from simnmt.world.trail import Recorder

Enter = Callable[[float, int, Row], tuple[float, float, int]]
"""`enter(entry_s, request, row)`: when its execution begins and ends, and at which box."""
_ROUNDING = 1.0 + 1e-9


class Streaming:
    """The targets whose boxes stream their model."""

    __slots__ = ("enter", "pools")

    def __init__(self, pools: Mapping[int, StreamedPool], places: Places, has_lengths: bool, trail: Recorder) -> None:
        """`has_lengths`: whether rows hold lengths."""
        self.pools = pools
        self.enter: dict[int, Enter] = {}
        """By target, what happens to a request there."""
        at = places.lengths + (2 if has_lengths else 0)
        for target, pool in pools.items():
            if pool.streamed.needs_tgt_len and not has_lengths:
                raise ValueError(f"target {target} streams a decoder: requests need a tgt_len")
            pool.place(places.execution(target), at)
            at += pool.streamed.columns
            self.enter[target] = _recorded(pool, target, trail)

    def columns(self, block: Block) -> list[list[float]]:
        """What rows of a block hold besides."""
        found: list[list[float]] = []
        for target, pool in self.pools.items():
            found += pool.streamed.row_columns(block.src_len, block.tgt_len, block.execution_s[target])
        return found

    def accounts(self, targets: int) -> tuple[StreamedAccount | None, ...]:
        """Per target; empty where none streams."""
        if not self.pools:
            return ()
        accounts = {target: pool.account() for target, pool in self.pools.items()}
        return tuple(accounts.get(target) for target in range(targets))


def _recorded(pool: StreamedPool, target: int, trail: Recorder) -> Enter:
    queue_s, servers, execution_s, first_token_s = trail.queue_s, trail.server, trail.execution_s, trail.first_token_s
    states, stall_s, missed = trail.state, trail.stall_s, trail.deadline_missed
    enter, first = pool.enter, pool.columns_at
    phases = pool.streamed.phases()
    changes_at_s = [at_s for at_s, _, _ in phases[1:]]
    columns = [(first + offset, streamed.deadline_s * _ROUNDING) for _, streamed, offset in phases]
    at, deadline_s = columns[0]

    def entered(entry_s: float, request: int, row: Row) -> tuple[float, float, int]:
        (begin_s, finish_s, state, stalled_s), box = enter(entry_s, request, row)
        if begin_s > entry_s:
            queue_s[request] = begin_s - entry_s
        if box and target:
            servers[request] = box
        execution_s[request] = finish_s - begin_s
        latency_s = finish_s - entry_s
        after_first, within_s = columns[bisect_right(changes_at_s, entry_s)] if changes_at_s else (at, deadline_s)
        first_token_s[request] = latency_s - row[after_first]
        states[request] = state
        if stalled_s:
            stall_s[request] = stalled_s
        if latency_s - row[after_first + 1] > within_s:
            missed[request] = 1
        return begin_s, finish_s, box

    return entered
