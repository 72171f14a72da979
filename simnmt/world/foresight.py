"""What only an oracle is told: the present links, and what a request would wait where (CNMT-10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simnmt.world.batch_pools import BatchEntry, BatchPool
from simnmt.world.batch_tier import BatchTier
from simnmt.world.clock import Clock
from simnmt.world.deciders import Decider
from simnmt.world.pools import Pool, wait_s
from simnmt.world.requests import Places, Row


class Foresight:
    """The true delays of a request on each target, unless a later one overtakes it on the uplink or joins its batch."""

    __slots__ = ("_clock", "_on_reaching", "_own", "_places", "_pools")

    def __init__(
        self,
        clock: Clock,
        places: Places,
        own: BatchTier | None,
        pools: Sequence[Pool | BatchPool],
        on_reaching: Sequence[tuple[Callable[[Any], None]]],
    ) -> None:
        """`own`: the deciders' own devices where they batch; `on_reaching`: what requests on the uplink of each pool call."""
        self._clock, self._places, self._own, self._pools, self._on_reaching = clock, places, own, pools, on_reaching

    def transfers_s(self, row: Row) -> list[float]:
        """To each target and back."""
        places = self._places
        return [0.0] + [row[places.uplink(k)] + row[places.downlink(k)] for k in range(1, places.targets)]

    def waits_s(self, decider: Decider, request: int, row: Row, now_s: float) -> list[float]:
        """At each target, beyond its execution there alone: the wait, and where servers batch what company costs."""
        own, places = self._own, self._places
        if own is None:
            waits_s = [max(decider.device.next_free_s - now_s, 0.0)]
        else:
            waits_s = [self._company_s(own.pool, 0, self._entry(now_s, request, row), row, ())]
        for target, pool in enumerate(self._pools, start=1):
            entry_s = now_s + row[places.uplink(target)]
            ahead = self._ahead(target, entry_s, request)
            if isinstance(pool, BatchPool):
                before = [self._entry(at_s, earlier, its_row) for at_s, earlier, its_row in ahead]
                waits_s.append(self._company_s(pool, target, self._entry(entry_s, request, row), row, before))
            else:
                execution = places.execution(target)
                entries = [(at_s, its_row[execution], earlier, its_row[1]) for at_s, earlier, its_row in ahead]
                waits_s.append(wait_s(pool, (entry_s, row[execution], request, row[1]), entries))
        return waits_s

    def totals_s(self, decider: Decider, request: int, row: Row, now_s: float) -> list[float]:
        """From the decision to the answer, by target."""
        places = self._places
        columns = self.transfers_s(row), self.waits_s(decider, request, row, now_s)
        return [row[places.execution(k)] + there_s + wait_s for k, (there_s, wait_s) in enumerate(zip(*columns, strict=True))]

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

    def _company_s(self, pool: BatchPool, target: int, entry: BatchEntry, row: Row, ahead: Sequence[BatchEntry]) -> float:
        return pool.finish_s(entry, ahead) - entry.entry_s - float(row[self._places.execution(target)])

    def _entry(self, entry_s: float, request: int, row: Row) -> BatchEntry:
        lengths = self._places.lengths
        return BatchEntry(entry_s, request, row[lengths], row[lengths + 1], row[1])
