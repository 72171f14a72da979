"""The traffic of one run: each request is decided on and sent to a server of its target, in every discipline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappush
from typing import Any

from simnmt.policies.decision import Decide
from simnmt.policies.estimates import BatchView
from simnmt.world.balancers import BatchEntry
from simnmt.world.batch_pool import BatchPool, BatchTier, OnCompletion
from simnmt.world.batch_server import Sentence
from simnmt.world.clock import REACHES_SERVER, Clock, Event
from simnmt.world.deciders import Beliefs, Decider
from simnmt.world.fifo_server import Pool
from simnmt.world.foresight import Foresight
from simnmt.world.requests import Block, Row, RowLayout
from simnmt.world.streaming_server import StreamingAccount, StreamingPool
from simnmt.world.trail import Recorder, Trail

Enter = Callable[[float, int, Row], tuple[float, float, int]]
"""`enter(entry_s, request, row)`: when its execution begins and ends, and at which box."""
_ROUNDING = 1.0 + 1e-9


class StreamingTargets:
    """The targets whose boxes stream their model."""

    __slots__ = ("enter", "pools")

    def __init__(self, pools: Mapping[int, StreamingPool], places: RowLayout, has_lengths: bool, trail: Recorder) -> None:
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
        """Return the additional columns that the rows of a block hold for streamed targets."""
        columns: list[list[float]] = []
        for target, pool in self.pools.items():
            columns += pool.streamed.row_columns(block.src_len, block.tgt_len, block.execution_s[target])
        return columns

    def accounts(self, targets: int) -> tuple[StreamingAccount | None, ...]:
        """Per target; empty where none streams."""
        if not self.pools:
            return ()
        accounts = {target: pool.account() for target, pool in self.pools.items()}
        return tuple(accounts.get(target) for target in range(targets))


def _recorded(pool: StreamingPool, target: int, trail: Recorder) -> Enter:
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


PredictedSeconds = Sequence[Sequence[float]]
"""Per target, the seconds of execution that a policy expects of each request of a block."""


StateDelays = Sequence[Sequence[Sequence[float]] | None]
"""Per target that streams its model, and by its state, the seconds beyond the plane that a policy expects of each request of a
block at an idle box."""


class OffloadedRequest(Event):
    """An offloaded request between its decider and a server."""

    __slots__ = ("decider", "entry_s", "request", "row", "sent_as", "sent_s")

    request: int
    row: Row
    decider: Decider
    sent_s: float
    entry_s: float
    """When it reaches the server."""
    sent_as: int
    """What the decider's view of the backlog knows it by."""


Handle = Callable[[int, int, Row, float], None]
"""`handle(request, in_block, row, now_s)`: decide on a request and send it on its way."""


class Traffic:
    """The deciders and the servers of one run, and what passes between them."""

    __slots__ = (
        "_answered",
        "_beliefs",
        "_clock",
        "_foresight",
        "_on_reaching",
        "_places",
        "_tiers",
        "beyond",
        "decide",
        "deciders",
        "judged_share",
        "predicted",
        "predicted_tgt_len",
        "streaming",
        "totals_s",
        "trail",
    )

    def __init__(
        self,
        clock: Clock,
        requests: int,
        pools: Sequence[Pool | BatchPool | StreamingPool],
        deciders: int,
        workers: int,
        beliefs: Beliefs,
        answered: Callable[[int, float], None] | None = None,
        own_pool: BatchPool | StreamingPool | None = None,
        judged_share: float = 0.0,
        has_lengths: bool = False,
    ) -> None:
        """`pools`: of every target but the first. `answered`: called with each request and when its decider has the answer.
        `own_pool`: the deciders' devices, in their order, where they batch or stream their model. `judged_share`: share of
        the requests for which the trail holds `lost_s`. `has_lengths`: whether rows hold lengths."""
        targets = 1 + len(pools)
        self.deciders = [Decider(number, targets, workers, beliefs) for number in range(deciders)]
        batched = {target: pool for target, pool in enumerate((own_pool, *pools)) if isinstance(pool, BatchPool)}
        streamed = {target: pool for target, pool in enumerate((own_pool, *pools)) if isinstance(pool, StreamingPool)}
        self.trail = Recorder(requests, bool(batched), judged_share > 0.0, bool(streamed))
        self.decide: Decide = _no_policy
        """The policy, prepared for the present block."""
        self.predicted: PredictedSeconds = ()
        """What the policy expects of the present block; needed where it sees backlogs."""
        self.predicted_tgt_len: Sequence[float] = ()
        """The tokens that it expects; needed where it sees batches."""
        self.beyond: StateDelays = ()
        """What it expects of states; needed where it sees them."""
        self._beliefs = beliefs
        self._clock = clock
        self._places = RowLayout(targets)
        self.streaming = StreamingTargets(streamed, self._places, has_lengths, self.trail)
        """The targets that stream their model."""
        self._answered = answered
        self.judged_share = judged_share
        self._tiers: dict[int, BatchTier] = {}
        """Those that batch, by target."""
        servers = 0
        for target, pool in batched.items():
            self._tiers[target] = BatchTier(clock, pool, servers, self._done(target))
            servers += len(pool.servers)
        self._on_reaching = [(self._reaching(target, pool),) for target, pool in enumerate(pools, start=1)]
        self._foresight = Foresight(clock, self._places, own_pool, pools, self._on_reaching)
        self.totals_s = self._foresight.totals_s
        """What an oracle foresees."""

    @property
    def prepared(self) -> tuple[Decide, PredictedSeconds, Sequence[float], StateDelays]:
        """The policy as it is prepared for the present block, with what it expects."""
        return self.decide, self.predicted, self.predicted_tgt_len, self.beyond

    @prepared.setter
    def prepared(self, of_block: tuple[Decide, PredictedSeconds, Sequence[float], StateDelays]) -> None:
        self.decide, self.predicted, self.predicted_tgt_len, self.beyond = of_block

    def rows(self, block: Block) -> Iterator[Row]:
        """The requests of a block as plain numbers, with what the boxes need to know of them."""
        return block.rows(self.streaming.columns(block))

    def close(self) -> bool:
        """Nothing is left to happen: who waits for company anywhere is let go; whether there was anyone."""
        return sum(tier.close() for tier in self._tiers.values()) > 0

    def finished(self) -> Trail:
        """What became of the requests."""
        accounts = {target: tier.account() for target, tier in self._tiers.items()}
        batches = tuple(accounts.get(target) for target in range(self._places.targets)) if accounts else ()
        streamed = self.streaming.accounts(self._places.targets)
        return self.trail.finished(self.deciders, batches, streamed)

    def _reaching(self, target: int, pool: Pool | BatchPool | StreamingPool) -> Callable[[Any], None]:
        if isinstance(pool, BatchPool):
            return self._batched_reaching(target)
        return self._streamed_reaching(target) if isinstance(pool, StreamingPool) else self._plain_reaching(target, pool)

    def _plain_reaching(self, target: int, pool: Pool) -> Callable[[Any], None]:
        """What happens when a request reaches its tier: the answer's time is known at once, and what it will tell."""
        execution, downlink = self._places.execution(target), self._places.downlink(target)
        queue_s, servers, answered, enter = self.trail.queue_s, self.trail.server, self._answered, pool.enter

        def reaches(event: Any) -> None:
            row, request = event.row, event.request
            entry_s, service_s = event.entry_s, row[execution]
            start_s, server = enter(entry_s, service_s, request, row[1])
            finish_s = start_s + service_s
            if start_s > entry_s:
                queue_s[request] = start_s - entry_s
            if server:
                servers[request] = server
            received_s = finish_s + row[downlink]
            transfer_s = (received_s - event.sent_s) - (finish_s - entry_s)
            event.decider.answers.add((received_s, request, target, transfer_s, event.sent_as, start_s), server)
            if answered is not None:
                answered(request, received_s)

        return reaches

    def _streamed_reaching(self, target: int) -> Callable[[Any], None]:
        """What happens when a request reaches a tier that streams its model: likewise known at once."""
        enter, downlink, answered = self.streaming.enter[target], self._places.downlink(target), self._answered

        def reaches(event: Any) -> None:
            row, request, entry_s = event.row, event.request, event.entry_s
            start_s, finish_s, server = enter(entry_s, request, row)
            received_s = finish_s + row[downlink]
            transfer_s = (received_s - event.sent_s) - (finish_s - entry_s)
            event.decider.answers.add((received_s, request, target, transfer_s, event.sent_as, start_s), server)
            if answered is not None:
                answered(request, received_s)

        return reaches

    def _batched_reaching(self, target: int) -> Callable[[Any], None]:
        """What happens when a request reaches a tier that batches: it takes its turn there."""
        servers, enter = self.trail.server, self._tiers[target].enter
        lengths = self._places.lengths

        def reaches(event: Any) -> None:
            row, request = event.row, event.request
            server = enter(BatchEntry(event.entry_s, request, row[lengths], row[lengths + 1], row[1]), event)
            if server:
                servers[request] = server

        return reaches

    def _done(self, target: int) -> OnCompletion:
        """What happens when a request is done at a tier that batches: its answer sets out, and tells how it stood there."""
        trail, answered = self.trail, self._answered
        queue_s, execution_s, first_token_s = trail.queue_s, trail.execution_s, trail.first_token_s
        downlink = self._places.downlink(target)

        def done(event: Any, sentence: Sentence, active: int, waiting: int) -> None:
            request, decider, entry_s, finish_s = event.request, event.decider, event.entry_s, sentence.finish_s
            queue_s[request] = sentence.begin_s - entry_s
            execution_s[request] = finish_s - sentence.begin_s
            first_token_s[request] = sentence.first_s - entry_s
            received_s, transfer_s = finish_s, 0.0
            if target:
                received_s += event.row[downlink]
                transfer_s = (received_s - event.sent_s) - (finish_s - entry_s)
            if decider.views and isinstance(decider.views[target], BatchView):
                decider.reports[request] = active, waiting
            if target or (decider.views and decider.views[0] is not None):
                decider.answers.add((received_s, request, target, transfer_s, event.sent_as, finish_s))
            if answered is not None:
                answered(request, received_s)

        return done

    def handler(self) -> Handle:
        """The function that every request is handed to, in the order of the decisions."""
        heap, deciders, answered = self._clock.heap, self.deciders, self._answered
        targets, queue_s = self.trail.target, self.trail.queue_s
        estimates_s, measured_at_s = self.trail.estimate_s, self.trail.measured_at_s
        on_reaching = self._on_reaching
        uplink_before = self._places.uplink(0)
        last = self._places.targets - 1
        keeps, states = self._keeping(), self.trail.state
        plain = self._beliefs.only_heard
        only = deciders[0] if len(deciders) == 1 else None
        count = len(deciders)

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = only or deciders[row[1] % count]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, queue_s, states)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request] = estimate.value_s
            measured_at_s[request] = estimate.measured_at_s
            if target == 0:
                if keeps is not None:
                    keeps(request, in_block, row, decider, now_s)
                    return
                start_s = decider.device.serve(now_s, row[2])
                if start_s > now_s:
                    queue_s[request] = start_s - now_s
                if decider.views and decider.views[0] is not None:
                    # It sees its own device start a request, no sooner; how long one takes it knows when that is done.
                    sent_as = self._announced(decider, 0, request, in_block, now_s)
                    decider.answers.add((start_s, request, 0, 0.0, sent_as, start_s))
                if answered is not None:
                    answered(request, start_s + row[2])
                return
            targets[request] = target
            event = OffloadedRequest()
            event.callbacks = on_reaching[target - 1]
            event.request = request
            event.row = row
            event.decider = decider
            event.sent_s = now_s
            entry_s = event.entry_s = now_s + row[uplink_before + target]
            event.sent_as = self._announced(decider, target, request, in_block, now_s) if decider.watches else 0
            heappush(heap, (entry_s, REACHES_SERVER, request, event))

        return self._judging(handle) if self.judged_share > 0.0 else handle

    def _keeping(self) -> Callable[[int, int, Row, Decider, float], None] | None:
        """What a decider does with a request that it keeps where its own device batches, or streams its model."""
        if 0 in self.streaming.enter:
            return self._keeping_streamed()
        if 0 not in self._tiers:
            return None
        enter, lengths = self._tiers[0].enter, self._places.lengths

        def keeps(request: int, in_block: int, row: Row, decider: Decider, now_s: float) -> None:
            event = OffloadedRequest()
            event.request = request
            event.row = row
            event.decider = decider
            event.sent_s = event.entry_s = now_s
            event.sent_as = self._announced(decider, 0, request, in_block, now_s) if decider.views else 0
            enter(BatchEntry(now_s, request, row[lengths], row[lengths + 1], row[1]), event)

        return keeps

    def _keeping_streamed(self) -> Callable[[int, int, Row, Decider, float], None]:
        enter, answered = self.streaming.enter[0], self._answered

        def keeps(request: int, in_block: int, row: Row, decider: Decider, now_s: float) -> None:
            # Announced first: what the decider expects goes by its device's state before.
            sent_as = self._announced(decider, 0, request, in_block, now_s) if decider.views else 0
            start_s, finish_s, _ = enter(now_s, request, row)
            if decider.views and decider.views[0] is not None:
                decider.answers.add((start_s, request, 0, 0.0, sent_as, start_s))
            if answered is not None:
                answered(request, finish_s)

        return keeps

    def _judging(self, handle: Handle) -> Handle:
        """The same handler, holding the decisions on a share of the requests against what an oracle foresees."""
        deciders, targets, lost_s, totals_s = self.deciders, self.trail.target, self.trail.lost_s, self.totals_s
        limit = round(self.judged_share * 2**32)

        def handle_and_judge(request: int, in_block: int, row: Row, now_s: float) -> None:
            # Multiples of the golden ratio fall evenly: any stretch of requests has its share, whatever turn they come in.
            if (request * 0x9E3779B1) & 0xFFFFFFFF >= limit:
                handle(request, in_block, row, now_s)
                return
            foreseen_s = totals_s(deciders[row[1] % len(deciders)], request, row, now_s)
            handle(request, in_block, row, now_s)
            lost_s[request] = foreseen_s[targets[request]] - min(foreseen_s)

        return handle_and_judge

    def _announced(self, decider: Decider, target: int, request: int, in_block: int, now_s: float) -> int:
        """Note in the decider's views what it sends, as it expects it: half the transfer before the execution."""
        view, entry_s = decider.views[target] if decider.views else None, now_s + decider.estimates[target].value_s / 2
        sent_as = 0
        if isinstance(view, BatchView):
            sent_as = view.sent(now_s, self.predicted_tgt_len[in_block])
        elif view is not None:
            expected_s = self.predicted[target][in_block]
            if target in decider.plans:
                expected_s += self._beyond_s(decider, target, in_block, entry_s)
            sent_as = view.sent(entry_s, expected_s)
        decider.sends(target, request, entry_s)
        return sent_as

    def _beyond_s(self, decider: Decider, target: int, in_block: int, entry_s: float) -> float:
        """What a target's state is believed to add to the plane, for a request that reaches it at a moment."""
        by_state_s = self.beyond[target]
        assert by_state_s is not None
        if target:
            return decider.plans[target].added_s(entry_s, by_state_s, in_block)
        return by_state_s[self.streaming.pools[0].boxes[decider.number].next_state(entry_s)][in_block]

    def delays(self, decider: Decider, request: int, in_block: int, row: Row, now_s: float) -> Sequence[float]:
        """What each target costs beside execution, as the policy is allowed to know it."""
        beliefs = self._beliefs
        if beliefs.probes:
            decider.probe(now_s)
        delay_s = self._foresight.transfers_s(row) if beliefs.true_transfer else list(decider.delay_s)
        if beliefs.true_backlog:
            self._foresight.add_waits(delay_s, decider, request, row, now_s)
            return delay_s
        for target, view in enumerate(decider.views):
            if isinstance(view, BatchView):
                delay_s[target] += view.added_s(now_s, self.predicted_tgt_len[in_block])
            elif view is not None:
                delay_s[target] += view.wait_s(now_s + decider.estimates[target].value_s / 2)
        for target in decider.plans:
            delay_s[target] += self._beyond_s(decider, target, in_block, now_s + decider.estimates[target].value_s / 2)
        return delay_s


def _no_policy(request: int, delay_s: Sequence[float]) -> int:
    raise AssertionError("no block was prepared")
