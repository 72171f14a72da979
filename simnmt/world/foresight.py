"""What only an oracle knows: the present state of the links, and the wait of a request at every target (CNMT-10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simnmt.world.balancers import BatchEntry
from simnmt.world.batch_pool import BatchPool
from simnmt.world.clock import Clock
from simnmt.world.deciders import Decider
from simnmt.world.fifo_server import Pool, wait_s
from simnmt.world.requests import Row, RowLayout
from simnmt.world.streaming_server import StreamingPool

Wait = Callable[[int, Row, float], float]
"""`wait(request, row, now_s)`: seconds beyond execution alone at one target."""


class Foresight:
    """The true delays of a request on each target, unless a later one overtakes it on the uplink or joins its batch."""

    __slots__ = ("_clock", "_last", "_on_reaching", "_own_waits_s", "_places", "_waits")

    def __init__(
        self,
        clock: Clock,
        places: RowLayout,
        own_pool: BatchPool | StreamingPool | None,
        pools: Sequence[Pool | BatchPool | StreamingPool],
        on_reaching: Sequence[tuple[Callable[[Any], None]]],
    ) -> None:
        """`own_pool`: the deciders' devices where they batch or stream their model; `on_reaching`: what requests on the uplink
        of each pool call."""
        self._clock, self._places, self._on_reaching = clock, places, on_reaching
        self._own_waits_s = None if own_pool is None else self._at(own_pool, 0)
        self._last: tuple[int, list[float]] = (-1, [])
        """The request whose totals were returned last, and its waits, for an oracle that decides on it by the same totals."""
        self._waits = [(target, self._at(pool, target)) for target, pool in enumerate(pools, start=1)]

    def transfers_s(self, row: Row) -> list[float]:
        """To each target and back."""
        places = self._places
        return [0.0] + [row[places.uplink(k)] + row[places.downlink(k)] for k in range(1, places.targets)]

    def add_waits(self, delay_s: list[float], decider: Decider, request: int, row: Row, now_s: float) -> None:
        """Add, per target, what it takes beyond execution there alone: the wait, where servers batch what company costs, and
        where they stream their model what their state does."""
        if self._last[0] == request:
            for target, more_s in enumerate(self._last[1]):
                delay_s[target] += more_s
            return
        if self._own_waits_s is None:
            delay_s[0] += max(decider.device.next_free_s - now_s, 0.0)
        else:
            delay_s[0] += self._own_waits_s(request, row, now_s)
        for target, waits_s in self._waits:
            delay_s[target] += waits_s(request, row, now_s)

    def totals_s(self, decider: Decider, request: int, row: Row, now_s: float) -> list[float]:
        """From the decision to the answer, by target."""
        waits_s = [0.0] * self._places.targets
        self.add_waits(waits_s, decider, request, row, now_s)
        self._last = request, waits_s
        total_s = zip(self.transfers_s(row), waits_s, strict=True)
        return [row[self._places.execution(target)] + sum(beside_s) for target, beside_s in enumerate(total_s)]

    def _at(self, pool: Pool | BatchPool | StreamingPool, target: int) -> Wait:
        if isinstance(pool, BatchPool):
            return self._at_batched(pool, target)
        return self._at_streamed(pool, target) if isinstance(pool, StreamingPool) else self._at_plain(pool, target)

    def _at_streamed(self, pool: StreamingPool, target: int) -> Wait:
        execution, uplink = self._places.execution(target), self._places.uplink(target)

        def waits_s(request: int, row: Row, now_s: float) -> float:
            entry_s = now_s + row[uplink] if target else now_s
            ahead = self._ahead(target, entry_s, request) if target else []
            return pool.finish_s((entry_s, request, row), ahead) - entry_s - float(row[execution])

        return waits_s

    def _at_plain(self, pool: Pool, target: int) -> Wait:
        execution, uplink = self._places.execution(target), self._places.uplink(target)

        def waits_s(request: int, row: Row, now_s: float) -> float:
            entry_s = now_s + row[uplink]
            ahead = self._ahead(target, entry_s, request)
            entries = [(at_s, its_row[execution], earlier, its_row[1]) for at_s, earlier, its_row in ahead]
            return wait_s(pool, (entry_s, row[execution], request, row[1]), entries)

        return waits_s

    def _at_batched(self, pool: BatchPool, target: int) -> Wait:
        execution, uplink, lengths = self._places.execution(target), self._places.uplink(target), self._places.lengths

        def entry(entry_s: float, request: int, row: Row) -> BatchEntry:
            return BatchEntry(entry_s, request, row[lengths], row[lengths + 1], row[1])

        def waits_s(request: int, row: Row, now_s: float) -> float:
            entry_s = now_s + row[uplink] if target else now_s
            ahead = [entry(*earlier) for earlier in self._ahead(target, entry_s, request)] if target else []
            return pool.finish_s(entry(entry_s, request, row), ahead) - entry_s - float(row[execution])

        return waits_s

    def _ahead(self, target: int, entry_s: float, request: int) -> list[tuple[float, int, Row]]:
        """Those on the way to a target that will reach it before a request does.

        What is on the clock and bound for that tier is on its uplink, all of it; of those that reach it in one moment the
        request of the lower number goes first.
        """
        on_reaching = self._on_reaching[target - 1]
        return sorted(
            [
                (at_s, earlier, event.row)
                for at_s, _, earlier, event in self._clock.heap
                if event.callbacks is on_reaching and (at_s, earlier) < (entry_s, request)
            ]
        )
