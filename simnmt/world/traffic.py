"""The traffic of one run: how each request is decided on and sent to a server of its target, and what an oracle foresees of it.

Servers of every kind are used through `Server` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappush
from math import nan

from simnmt.results.columns import recorder
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world.clock import REACHES_SERVER, Clock
from simnmt.world.deciders import Beliefs, Decider, DecisionInput, Prepared
from simnmt.world.fifo_server import FifoServer
from simnmt.world.server import Alone, Arrival, RequestEvent, Row, RowLayout, Serve, Server, Site

Handle = Callable[[int, int, Row, float], None]
"""`handle(request, in_block, row, now_s)`: decide on a request and send it on its way."""


class Traffic:
    """The deciders and the servers of one run, with the requests between them."""

    records: frozenset[str] = frozenset()
    """Optional columns of the `Trail` that it fills itself."""

    def __init__(
        self,
        clock: Clock,
        requests: Requests,
        servers: Sequence[Server],
        deciders: int,
        workers: int,
        beliefs: Beliefs,
        answered: Callable[[int, float], None] | None = None,
        local: Server | None = None,
        judged_share: float = 0.0,
    ) -> None:
        """Create the deciders and register the servers.

        Args:
            clock: the clock of the run.
            requests: the requests of the run.
            servers: of every target but the first.
            deciders: number of deciders.
            workers: workers of each decider's device, without `local`.
            beliefs: how deciders estimate delays.
            answered: called with each request and when its decider has the answer.
            local: the deciders' devices, in their order; None: each executes first in, first out.
            judged_share: share of the requests for which the trail holds `lost_s`.
        """
        by_target = dict(enumerate(servers, start=1)) | ({} if local is None else {0: local})
        self._servers = dict(sorted(by_target.items()))
        for target, server in self._servers.items():
            if server.needs_tgt_len and requests.tgt_len is None:
                raise ValueError(f"the server of target {target} takes a step for each token: requests need a tgt_len")
        has_lengths = any(server.needs_tgt_len for server in self._servers.values())
        self.layout = layout = RowLayout(1 + len(servers), has_lengths)
        optional = self.records.union(*(server.records for server in self._servers.values()))
        self.trail = recorder(len(requests), optional | ({"lost_s"} if judged_share > 0.0 else frozenset()))
        states = [None if local is None else local.state_view(number) for number in range(deciders)]
        self.deciders = [
            Decider(number, layout.targets, FifoServer(workers), beliefs, state) for number, state in enumerate(states)
        ]
        self.prepare(Prepared(_no_policy))
        self._beliefs, self._clock, self._answered, self._judged_share = beliefs, clock, answered, judged_share
        self._local = local
        self._last: tuple[int, list[float]] = (-1, [])
        """The last request whose totals were computed, with its waits, for an oracle that decides on it by the same totals."""
        self._serve: dict[int, tuple[Serve]] = {}
        """By target, the callbacks of an event whose request reaches it."""
        added, first_box = layout.added, 0
        for target, server in self._servers.items():
            self._serve[target] = (server.open(self._site(target, added, first_box)),)
            added, first_box = added + server.columns, first_box + len(server.boxes)

    def _site(self, target: int, added: int, first_box: int) -> Site:
        """Return the place of the server of a target; arguments as of `Site`."""
        return Site(target, self.layout, added, first_box, self._clock, self.trail, self._answered)

    def prepare(self, prepared: Prepared) -> None:
        """Decide by this prepared policy from now on."""
        self.prepared, self.decide = prepared, prepared.decide

    @property
    def alone(self) -> dict[int, Alone]:
        """By target, the function that executes a request back to back, if that depends on the requests before."""
        return {target: server.alone for target, server in self._servers.items() if server.alone is not None}

    def rows(self, block: Block) -> Iterator[Row]:
        """Return the requests of a block as rows, with the columns of the servers."""
        added = (server.row_columns(block, block.execution_s[target]) for target, server in self._servers.items())
        return self.layout.rows(block, [column.tolist() for columns in added for column in columns])

    def close(self) -> bool:
        """Stop waiting for company everywhere, since no event is left; return whether a request was waiting."""
        return sum(server.close() for server in self._servers.values()) > 0

    def finished(self) -> Trail:
        """Return the trail of the run."""
        accounts = {target: server.account() for target, server in self._servers.items()}
        return Trail.recorded(self.trail, tuple(map(accounts.get, range(self.layout.targets))))

    def handler(self) -> Handle:
        """Return the function that handles every request, in the order of the decisions."""
        heap, deciders, answered = self._clock.heap, self.deciders, self._answered
        targets, queue_s = self.trail["target"], self.trail["queue_s"]
        estimates_s, measured_at_s = self.trail["estimate_s"], self.trail["measured_at_s"]
        callbacks = self._serve
        uplink_before = self.layout.uplink(0)
        last = self.layout.targets - 1
        keep = None if self._local is None else self._serve[0][0]
        plain = self._beliefs.only_heard
        only = deciders[0] if len(deciders) == 1 else None
        count = len(deciders)

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = only or deciders[row[1] % count]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, queue_s)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request] = estimate.value_s
            measured_at_s[request] = estimate.measured_at_s
            if target == 0 and keep is None:
                start_s = decider.device.serve(now_s, row[2])
                if start_s > now_s:
                    queue_s[request] = start_s - now_s
                if decider.views and decider.views[0] is not None:
                    # It sees its own device start a request, no sooner; how long one takes it knows when that is done.
                    sent_as = decider.announce(self.prepared, 0, request, in_block, now_s)
                    decider.answers.add((start_s, request, 0, 0.0, sent_as, start_s))
                if answered is not None:
                    answered(request, start_s + row[2])
                return
            targets[request] = target
            event = RequestEvent()
            event.request = request
            event.row = row
            event.decider = decider
            event.sent_s = now_s
            # Announced before it enters: what the decider expects follows from its device's state before.
            event.sent_as = decider.announce(self.prepared, target, request, in_block, now_s) if decider.watches else 0
            if target == 0 and keep is not None:
                event.entry_s = now_s
                keep(event)
                return
            event.callbacks = callbacks[target]
            entry_s = event.entry_s = now_s + row[uplink_before + target]
            heappush(heap, (entry_s, REACHES_SERVER, request, event))

        return self._judging(handle) if self._judged_share > 0.0 else handle

    def _judging(self, handle: Handle) -> Handle:
        """Return the handler that also compares the decisions on a share of the requests with an oracle's foresight."""
        deciders, targets, totals_s = self.deciders, self.trail["target"], self.totals_s
        lost_s, limit = self.trail["lost_s"], round(self._judged_share * 2**32)

        def handle_and_judge(request: int, in_block: int, row: Row, now_s: float) -> None:
            # Multiples of the golden ratio fall evenly: any stretch of requests has its share, whatever turn they come in.
            if (request * 0x9E3779B1) & 0xFFFFFFFF >= limit:
                handle(request, in_block, row, now_s)
                return
            foreseen_s = totals_s(deciders[row[1] % len(deciders)], request, row, now_s)
            handle(request, in_block, row, now_s)
            lost_s[request] = foreseen_s[targets[request]] - min(foreseen_s)

        return handle_and_judge

    def delays(self, decider: Decider, request: int, in_block: int, row: Row, now_s: float) -> DecisionInput:
        """Return the delay of each target beside execution, as far as the policy may know it, or the view with it."""
        beliefs = self._beliefs
        delay_s = self._transfers_s(row, request, now_s) if beliefs.true_transfer else list(decider.delay_s)
        if beliefs.true_backlog:
            for target, wait_s in enumerate(self._waits_s(decider, request, row, now_s)):
                delay_s[target] += wait_s
            return delay_s
        decider.add_views(delay_s, self.prepared, in_block, now_s)
        if beliefs.shows_view:
            return decider.view(delay_s, now_s, decider.device.work_left(now_s) if self._local is None else nan)
        return delay_s

    def totals_s(self, decider: Decider, request: int, row: Row, now_s: float) -> list[float]:
        """Return, by target, the seconds from the decision to the answer, as an oracle foresees them.

        They hold unless a later request overtakes this one on the uplink or joins its batch (CNMT-10).
        """
        waits_s = self._waits_s(decider, request, row, now_s)
        self._last = request, waits_s
        beside_s = zip(self._transfers_s(row, request, now_s), waits_s, strict=True)
        return [row[self.layout.execution(target)] + sum(parts_s) for target, parts_s in enumerate(beside_s)]

    def _transfers_s(self, row: Row, request: int, now_s: float) -> list[float]:
        """Return the present transfer times, by target."""
        layout = self.layout
        return [0.0] + [row[layout.uplink(k)] + row[layout.downlink(k)] for k in range(1, layout.targets)]

    def _waits_s(self, decider: Decider, request: int, row: Row, now_s: float) -> list[float]:
        """Return, by target, the seconds of a request beyond execution alone: the wait, the delay by company in a batch, and
        the delay by a streamed model's state."""
        if self._last[0] == request:
            return self._last[1]
        waits_s = [decider.device.work_left(now_s)] if self._local is None else []
        for target, server in self._servers.items():
            entry_s = self._entry_s(row, request, target, now_s) if target else now_s
            waits_s.append(server.wait_s((entry_s, request, row), self._ahead(target, entry_s, request) if target else []))
        return waits_s

    def _entry_s(self, row: Row, request: int, target: int, now_s: float) -> float:
        """Return when a request that is sent now would reach a remote target."""
        entry_s: float = now_s + row[self.layout.uplink(target)]
        return entry_s

    def _ahead(self, target: int, entry_s: float, request: int) -> list[Arrival]:
        """Return the requests on their way to a target that will reach it before `request` does.

        All requests on the clock for that tier are on its uplink; of those that reach it in one moment the lower number goes
        first.
        """
        reaching = self._serve[target]
        return sorted(
            (at_s, earlier, event.row)
            for at_s, _, earlier, event in self._clock.heap
            if event.callbacks is reaching and (at_s, earlier) < (entry_s, request)
        )


def _no_policy(request: int, delay_s: DecisionInput) -> int:
    raise AssertionError("no block was prepared")
