"""Faults of the world: links that are down at times, requests that are lost, and a decider that executes late ones itself.

A message that is sent while a link of its path is down is lost; one under way arrives. The connection of a lost message,
or of a request that a failing box drops, breaks: the decider learns of it then. It knows of no fault before. Every request is
answered once or counted as lost. Boxes that fail are in `failing_boxes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappush
from math import inf, nan
from typing import Any

import numpy as np

from simnmt.base.down_times import DownTimes
from simnmt.results.fault_account import FaultAccount
from simnmt.results.request_log import FALLBACK, LOST
from simnmt.results.requests import Trail
from simnmt.world.clock import CONNECTION_BREAKS, REACHES_SERVER, TIMER, Event
from simnmt.world.deciders import Prepared
from simnmt.world.server import RequestEvent, Row, Site
from simnmt.world.traffic import Handle, Traffic

UNACKNOWLEDGED_S = 0.2
"""Time after which the sender of a lost message gives it up: the least retransmission timeout of Linux (RFC 6298)."""
_OF_SERVERS = {"execution_s", "first_token_s", "state", "stall_s", "deadline_missed"}
"""Columns of a trail that servers fill."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the links of a run, and what deciders do about them."""

    outages: Sequence[Sequence[DownTimes]] = ()
    """By hop and link, when the link is down; the links of a hop are dealt to the end nodes. Empty: no link is ever down."""
    timeout_s: float | None = None
    """Time without an answer after which a decider executes a request itself; None: never."""


class SentRequest(RequestEvent):
    """A request that was sent to a target, or is executed by its decider."""

    __slots__ = ("in_block", "is_closed", "prepared", "target")

    in_block: int
    prepared: Prepared
    target: int
    is_closed: bool
    """True if it is answered, lost, or executed by the decider after a timeout."""


@dataclass(frozen=True, slots=True)
class FaultySite(Site):
    """The place of a server whose requests and answers may be lost."""

    executed: Callable[[SentRequest, float, float, int, float, Any], None]
    """Called with each executed request and the other arguments of `answer`."""
    failed: Callable[[SentRequest, float, float, int], None]
    """Called with each dropped request and the other arguments of `fail`."""

    @property
    def knows_downlinks(self) -> bool:
        """False: an answer may be lost."""
        return False

    def answer(
        self, event: RequestEvent, begin_s: float, finish_s: float, box: int, ordered_s: float, report: Any = None
    ) -> None:
        """Send the answer of an executed request; arguments as of `Site.answer`."""
        assert isinstance(event, SentRequest)
        self.executed(event, begin_s, finish_s, box, ordered_s, report)

    def fail(self, event: RequestEvent, begin_s: float, failed_s: float, box: int) -> None:
        """Note that a box drops a request at `failed_s`, whose execution began at `begin_s`, not after that."""
        assert isinstance(event, SentRequest)
        self.failed(event, begin_s, failed_s, box)


class _Moment(Event):
    """The moment at which a connection breaks, or a decider has waited for long enough."""

    __slots__ = ("at_s", "sent")

    at_s: float
    sent: SentRequest


class FaultyTraffic(Traffic):
    """The deciders and the servers of one run, with links and boxes between them that fail."""

    records = frozenset({"transfer_s", "outcome"})

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        """Create the deciders and register the servers; other arguments as of `Traffic`."""
        self._away: dict[str, Any] = {}
        """The trail of requests at remote servers; it becomes that of the run if they are answered in time."""
        super().__init__(*arguments)
        self._outages = faults.outages
        self._falls_back_after_s = inf if faults.timeout_s is None else faults.timeout_s
        boxes = [len(self.deciders), *(len(self._servers[target].boxes) for target in range(1, self.layout.targets))]
        self._extra_work = [np.zeros(count) for count in boxes]
        self._failed_executions = 0
        self._breaks, self._times_out = (self._connection_breaks,), (self._waited_enough,)

    def _site(self, target: int, added: int, first_box: int) -> Site:
        if not self._away:
            self._away = {name: column[:] for name, column in self.trail.items()}
        trail = self._away if target else self.trail
        return FaultySite(target, self.layout, added, first_box, self._clock, trail, None, self._executed, self._box_failed)

    def handler(self) -> Handle:
        """Return the function that handles every request, in the order of the decisions."""
        deciders, plain, last = self.deciders, self._beliefs.only_heard, self.layout.targets - 1
        queue_s, targets, estimates_s, measured_at_s = (
            self.trail[name] for name in ("queue_s", "target", "estimate_s", "measured_at_s")
        )

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = deciders[row[1] % len(deciders)]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, queue_s)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request], measured_at_s[request] = estimate.value_s, estimate.measured_at_s
            targets[request] = target
            sent = SentRequest()
            sent.request, sent.row, sent.decider, sent.target, sent.sent_s = request, row, decider, target, now_s
            sent.in_block, sent.prepared, sent.is_closed = in_block, self.prepared, False
            if target:
                self._send(sent, now_s)
            else:
                self._execute_here(sent, now_s)

        return self._judging(handle) if self._judged_share > 0.0 else handle

    def _send(self, sent: SentRequest, now_s: float) -> None:
        sent.sent_as = self._announced(sent, now_s) if sent.decider.watches else 0
        if self._falls_back_after_s < inf:
            self._put(now_s + self._falls_back_after_s, TIMER, sent, self._times_out)
        if self._is_path_down(sent, now_s):
            self._put(now_s + UNACKNOWLEDGED_S, CONNECTION_BREAKS, sent, self._breaks)
            return
        sent.entry_s, sent.callbacks = now_s + sent.row[self.layout.uplink(sent.target)], self._serve[sent.target]
        heappush(self._clock.heap, (sent.entry_s, REACHES_SERVER, sent.request, sent))

    def _put(self, at_s: float, kind: int, sent: SentRequest, callbacks: tuple[Callable[[Any], None]]) -> None:
        moment = _Moment()
        moment.at_s, moment.sent, moment.callbacks = at_s, sent, callbacks
        heappush(self._clock.heap, (at_s, kind, sent.request, moment))

    def _announced(self, sent: SentRequest, now_s: float) -> int:
        return sent.decider.announce(sent.prepared, sent.target, sent.request, sent.in_block, now_s)

    def _links(self, node: int, target: int) -> Iterator[DownTimes]:
        """Yield the links from the decider of an end node to a target."""
        return (links[node % len(links)] for links in self._outages[:target])

    def _is_path_down(self, sent: SentRequest, now_s: float) -> bool:
        return any(link.is_down(now_s) for link in self._links(sent.row[1], sent.target))

    def _execute_here(self, sent: SentRequest, now_s: float) -> None:
        """Let the decider's own device execute a request."""
        decider, sent.entry_s, sent.is_closed = sent.decider, now_s, True
        views_itself = bool(decider.views) and decider.views[0] is not None
        watches = views_itself if self._local is None else decider.watches
        sent.sent_as = self._announced(sent, now_s) if watches else 0
        if self._local is not None:
            self._serve[0][0](sent)
            return
        start_s = decider.device.serve(now_s, sent.row[2])
        self._executed(sent, start_s, start_s + sent.row[2], 0, start_s, None)

    def _executed(self, sent: SentRequest, begin_s: float, finish_s: float, box: int, ordered_s: float, report: Any) -> None:
        """Let the decider have an answer, if it is neither lost nor late; arguments as of `Site.answer`."""
        decider, request, target, trail = sent.decider, sent.request, sent.target, self.trail
        heard_s, received_s, transfer_s = ordered_s, finish_s, 0.0
        if target:
            if self._is_path_down(sent, finish_s):
                self._put(finish_s + UNACKNOWLEDGED_S, CONNECTION_BREAKS, sent, self._breaks)
                return
            heard_s = received_s = finish_s + sent.row[self.layout.downlink(target)]
            if received_s > sent.sent_s + self._falls_back_after_s:
                self._add_work(sent, begin_s, finish_s, box)
                return
            transfer_s = (received_s - sent.sent_s) - (finish_s - sent.entry_s)
            sent.is_closed = True
            for name in trail.keys() & _OF_SERVERS:
                trail[name][request] = self._away[name][request]
        trail["queue_s"][request], trail["server"][request] = begin_s - sent.entry_s, box if target else 0
        # Of a request that fell back, the time before that.
        trail["transfer_s"][request] = transfer_s if target else sent.entry_s - sent.sent_s
        if target or (decider.views and decider.views[0] is not None):
            if report is not None and decider.watches:
                decider.reports[request] = report
            decider.answers.add((heard_s, request, target, transfer_s, sent.sent_as, ordered_s), box if target else 0)
        if self._answered is not None:
            self._answered(request, received_s)

    def _add_work(self, sent: SentRequest, begin_s: float, finish_s: float, box: int) -> None:
        """Count an execution that answers no request."""
        tokens = sent.row[self.layout.lengths + 1] + 1.0 if self._batches(sent.target) else 0.0
        self._extra_work[sent.target][box] += tokens or finish_s - begin_s

    def _batches(self, target: int) -> bool:
        return hasattr(self._servers[target], "batched")

    def _box_failed(self, sent: SentRequest, begin_s: float, failed_s: float, box: int) -> None:
        """Let the connection of a request break that a box has dropped; the reset meets no fault."""
        self._failed_executions += 1
        if not self._batches(sent.target):
            self._extra_work[sent.target][box] += failed_s - begin_s
        self._put(failed_s + sent.row[self.layout.downlink(sent.target)], CONNECTION_BREAKS, sent, self._breaks)

    def _connection_breaks(self, moment: _Moment) -> None:
        sent = moment.sent
        if sent.is_closed:
            return
        if self._falls_back_after_s < inf:
            self._fall_back(sent, moment.at_s)
            return
        sent.is_closed = True
        sent.decider.forget(sent.target, sent.request, sent.sent_as)
        request, trail = sent.request, self.trail
        trail["target"][request], trail["outcome"][request] = -1, LOST
        for name in trail.keys() & {"queue_s", "transfer_s", "lost_s"}:
            trail[name][request] = nan
        if self._answered is not None:
            self._answered(request, moment.at_s)

    def _waited_enough(self, moment: _Moment) -> None:
        if not moment.sent.is_closed:
            self._fall_back(moment.sent, moment.at_s)

    def _fall_back(self, sent: SentRequest, now_s: float) -> None:
        """Let the decider execute a request, and forget that it was sent."""
        sent.is_closed = True
        sent.decider.forget(sent.target, sent.request, sent.sent_as)
        here = SentRequest()
        here.request, here.row, here.decider, here.target, here.sent_s = sent.request, sent.row, sent.decider, 0, sent.sent_s
        here.in_block, here.prepared = sent.in_block, sent.prepared
        self.trail["target"][sent.request], self.trail["outcome"][sent.request] = 0, FALLBACK
        self._execute_here(here, now_s)

    def _transfers_s(self, row: Row, request: int, now_s: float) -> list[float]:
        """Return the present transfer times, by target, each direction after the outages of now."""
        waits_s = [2.0 * self._outage_s(row, target, now_s) for target in range(self.layout.targets)]
        return [sum(parts_s) for parts_s in zip(super()._transfers_s(row, request, now_s), waits_s, strict=True)]

    def _outage_s(self, row: Row, target: int, now_s: float) -> float:
        return sum(link.up_from(now_s) - now_s for link in self._links(row[1], target))

    def _entry_s(self, row: Row, request: int, target: int, now_s: float) -> float:
        return super()._entry_s(row, request, target, now_s) + self._outage_s(row, target, now_s)

    def finished(self) -> Trail:
        """Return the trail of the run, with the account of its faults."""
        for target, server in self._servers.items():
            self._extra_work[target] += getattr(server, "wasted_s", 0.0)
        return replace(super().finished(), faults=FaultAccount(self._failed_executions, tuple(self._extra_work)))
