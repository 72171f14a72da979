"""The life of a request among faults: it may be sent again, sent twice, fall back to the decider's device, or be lost.

Every request is answered once or counted as lost. Its copies are messages of their own with numbers of their own: copy k of
request r is r + k * requests. A copy leaves its times in a trail of copies; those of the copy that answers become the trail of
the request.

A decider learns of a lost copy when its connection breaks: a message given up by its sender, or a failed box, whose reset
crosses the links without more faults. Nothing of a fault is known to a decider before.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappush
from math import nan
from typing import Any

import numpy as np

from simnmt.base.columns import Array
from simnmt.base.random_streams import KeyedUniforms
from simnmt.network.link_faults import Channel
from simnmt.network.message_paths import NO_LINK, Leg, MessagePaths
from simnmt.results.fault_account import COUNTS, FaultAccount
from simnmt.results.request_log import DONE, FALLBACK, HEDGED, LOST
from simnmt.results.requests import Trail
from simnmt.world.clock import MESSAGE_MOVES, TIMER, Clock, Event
from simnmt.world.deciders import Decider, Prepared
from simnmt.world.message_traffic import Message, MessageSite, MessageTraffic, Messenger
from simnmt.world.server import RequestEvent, Row, Site
from simnmt.world.traffic import Handle


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a run, beside those of its servers, and what deciders do about them."""

    channels: Mapping[int, Channel]
    """The links with faults, by their number among all links of the paths."""
    uniforms: KeyedUniforms
    """By which messages are lost."""
    timeout_s: float | None = None
    """After which a decider executes a request itself; None: never."""
    hedge_after_s: float | None = None
    """After which a second copy is sent; None: never."""
    hedge_target: int | None = None
    """Target of the second copy; None: that of the first, in another box."""
    retries: Mapping[int, tuple[int, float]] | None = None
    """By target, how often and after how many seconds a request is tried again that a failing box has dropped."""
    again_s: tuple[Array | None, ...] = ()
    """By target, seconds of execution of any copy of a request but the first; None if all take the same. Empty: nowhere."""


class _Open:
    """A request that is not answered yet."""

    __slots__ = (
        "copies",
        "decider",
        "hedge_due",
        "in_block",
        "is_closed",
        "prepared",
        "request",
        "retries",
        "row",
        "sent_s",
        "under_way",
    )

    def __init__(self, request: int, in_block: int, row: Row, decider: Decider, prepared: Prepared, sent_s: float) -> None:
        self.request, self.in_block, self.row, self.decider = request, in_block, row, decider
        self.prepared, self.sent_s = prepared, sent_s
        self.copies, self.retries = 0, 0
        self.under_way: dict[int, Copy] = {}
        """Copies of which neither an answer nor a loss is known, by number."""
        self.hedge_due = False
        """True if a second copy will be sent."""
        self.is_closed = False
        """True if it is answered, lost, or executed by the decider after a timeout."""


class Copy(Message):
    """One copy of a request; `request` is its number."""

    __slots__ = ("attempt", "of", "outcome")

    of: _Open
    outcome: int
    """Of the request if this copy answers it."""
    attempt: int
    """How often it was sent on its leg without success."""


class FaultyMessenger(Messenger):
    """Moves messages over links that may lose them."""

    __slots__ = ("_again", "_channels", "_counts", "_gives_up", "_requests", "_uniforms")

    def __init__(
        self,
        paths: MessagePaths,
        clock: Clock,
        faults: Faults,
        requests: int,
        counts: Counter[str],
        gives_up: Callable[[Copy, float], None],
    ) -> None:
        """`gives_up`: called with each message that its sender gives up, and when."""
        super().__init__(paths, clock)
        self._channels, self._uniforms, self._requests = faults.channels, faults.uniforms, requests
        self._counts, self._gives_up, self._again = counts, gives_up, (self._sends_again,)

    def send(self, message: Message, legs: Sequence[Leg], now_s: float, arrives: Callable[[Any, float], None]) -> None:
        """Send a message over its legs; `arrives` is called when it has crossed them, if it does."""
        assert isinstance(message, Copy)
        message.attempt = 0
        super().send(message, legs, now_s, arrives)

    def _enter_leg(self, message: Message, now_s: float) -> None:
        assert isinstance(message, Copy)
        leg = message.legs[message.leg]
        if leg.link == NO_LINK or not self._is_lost(message, leg, now_s):
            message.attempt = 0
            super()._enter_leg(message, now_s)
            return
        self._counts["retransmissions"] += 1
        message.due_s, message.callbacks = now_s + self._channels[leg.link].timeout_of(message.attempt), self._again
        heappush(self._heap, (message.due_s, MESSAGE_MOVES, message.request, message))

    def _is_lost(self, message: Copy, leg: Leg, now_s: float) -> bool:
        copy, request = divmod(message.request, self._requests)
        direction = "back" if message.arrives.__name__ == "_answer_arrives" else "there"
        name = f"link {leg.link} {direction} copy {copy} try {message.attempt}"
        return self._channels[leg.link].loses(now_s, lambda: self._uniforms.of(name, request))

    def _sends_again(self, message: Copy) -> None:
        now_s = message.due_s
        message.attempt += 1
        if message.attempt <= self._channels[message.legs[message.leg].link].times:
            self._enter_leg(message, now_s)
            return
        self._counts["retransmissions"] -= 1
        self._counts["messages_given_up"] += 1
        self._gives_up(message, now_s)

    def foreseen_s(self, legs: Sequence[Leg], now_s: float) -> float:
        """Return the seconds of a message over its legs, after the outages of now, and without losses to come."""
        waits_s = (self._channels[leg.link].outages.up_from(now_s) - now_s for leg in legs if leg.link != NO_LINK)
        return super().foreseen_s(legs, now_s) + sum(waits_s)


@dataclass(frozen=True, slots=True)
class CopySite(MessageSite):
    """The place of a server that executes copies."""

    fails: Callable[[Copy], None]
    """Called with each copy that a failing box drops, at that moment."""

    def fail(self, event: RequestEvent, begin_s: float, failed_s: float, box: int) -> None:
        """Note that a box drops a copy at `failed_s`, whose execution began at `begin_s`, not after that."""
        assert isinstance(event, Copy)
        event.begin_s, event.finish_s, event.box, event.callbacks = begin_s, failed_s, box, (self.fails,)
        heappush(self.clock.heap, (failed_s, MESSAGE_MOVES, event.request, event))


class _Timer(Event):
    __slots__ = ("at_s", "of")

    at_s: float
    of: _Open


class FaultyTraffic(MessageTraffic):
    """The deciders and the servers of one run, with copies of requests between them."""

    records = frozenset({"transfer_s", "outcome", "execution_s"})

    def __init__(self, faults: Faults, paths: MessagePaths, *arguments: Any) -> None:
        """Create the deciders and register the servers; arguments as of `MessageTraffic`."""
        super().__init__(paths, *arguments)
        self._faults, self._requests = faults, len(self.trail["target"])
        self._counts = Counter[str]()
        self._messenger = FaultyMessenger(paths, self._clock, faults, self._requests, self._counts, self._is_lost)
        boxes = [len(self.deciders)] + [
            len(getattr(self._servers.get(k), "boxes", ())) or 1 for k in range(1, self.layout.targets)
        ]
        self._extra_work = [np.zeros(count) for count in boxes]
        self._timed, self._hedged, self._retried = (self._times_out,), (self._hedges,), (self._retries,)

    @cached_property
    def _copies(self) -> dict[str, array[Any]]:
        """The trail of the copies, by their numbers; it grows with the copies."""
        return {name: column[:] for name, column in self.trail.items()}

    def _site(self, target: int, added: int, first_box: int) -> Site:
        return CopySite(
            target,
            self.layout,
            added,
            first_box,
            self._clock,
            self._copies,
            None,
            self._answer_leaves,
            self._kept,
            self._box_failed,
        )

    def handler(self) -> Handle:
        """Return the function that handles every request, in the order of the decisions."""
        deciders, plain, last = self.deciders, self._beliefs.only_heard, self.layout.targets - 1
        targets, estimates_s, measured_at_s = (self.trail[name] for name in ("target", "estimate_s", "measured_at_s"))
        heard_queue_s, timeout_s, hedge_after_s = self._copies["queue_s"], self._faults.timeout_s, self._faults.hedge_after_s

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = deciders[row[1] % len(deciders)]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, heard_queue_s)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request], measured_at_s[request] = estimate.value_s, estimate.measured_at_s
            targets[request] = target
            opened = _Open(request, in_block, row, decider, self.prepared, now_s)
            if not target:
                opened.is_closed = True
                self._execute_here(opened, DONE, now_s)
                return
            if timeout_s is not None:
                self._set_timer(opened, now_s + timeout_s, 0, self._timed)
            if hedge_after_s is not None and self._hedge_target(target) is not None:
                opened.hedge_due = True
                self._set_timer(opened, now_s + hedge_after_s, 1, self._hedged)
            self._send_copy(opened, target, DONE, now_s)

        return self._judging(handle) if self._judged_share > 0.0 else handle

    def _set_timer(self, opened: _Open, at_s: float, number: int, callbacks: tuple[Callable[[Any], None]]) -> None:
        timer = _Timer()
        timer.of, timer.at_s, timer.callbacks = opened, at_s, callbacks
        heappush(self._clock.heap, (at_s, TIMER, 3 * opened.request + number, timer))

    def _hedge_target(self, target: int) -> int | None:
        """Return the target of the second copy of a request for a target; None if there is no other box."""
        other = target if self._faults.hedge_target is None else self._faults.hedge_target
        return None if other == target and len(self._extra_work[target]) == 1 else other

    def _copy_of(self, opened: _Open, target: int, outcome: int, now_s: float) -> Copy:
        copy, number = Copy(), opened.request + opened.copies * self._requests
        if number >= len(self._copies["target"]):
            for name, column in self._copies.items():
                column.extend(type(column)(column.typecode, [_UNSET.get(name, 0)]) * self._requests)
        row, again_s = opened.row, self._faults.again_s[target] if self._faults.again_s else None
        if opened.copies and again_s is not None:
            execution = self.layout.execution(target)
            row = (*row[:execution], float(again_s[opened.request]), *row[execution + 1 :])
        opened.copies += 1
        opened.under_way[number] = copy
        copy.request, copy.row, copy.decider, copy.target, copy.of, copy.outcome = (
            number,
            row,
            opened.decider,
            target,
            opened,
            outcome,
        )
        copy.sent_s = copy.entry_s = now_s
        return copy

    def _send_copy(self, opened: _Open, target: int, outcome: int, now_s: float) -> None:
        copy = self._copy_of(opened, target, outcome, now_s)
        copy.sent_as = self._announced(copy, now_s) if opened.decider.watches else 0
        self._messenger.send(copy, self._legs(copy, back=False), now_s, self._reaches)

    def _announced(self, copy: Copy, now_s: float) -> int:
        opened = copy.of
        return opened.decider.announce(opened.prepared, copy.target, copy.request, opened.in_block, now_s)

    def _legs(self, message: Message, *, back: bool) -> list[Leg]:
        request = message.request % self._requests
        return self._paths.legs(request, message.row[1], self._issued_s(request), message.target, back=back)

    def _execute_here(self, opened: _Open, outcome: int, now_s: float) -> None:
        """Let the decider's own device execute a request."""
        copy, decider = self._copy_of(opened, 0, outcome, now_s), opened.decider
        copy.sent_as = self._announced(copy, now_s) if self._watches_itself(decider) else 0
        if self._local is not None:
            self._serve[0][0](copy)
            return
        start_s = decider.device.serve(now_s, copy.row[2])
        copy.begin_s, copy.finish_s, copy.box, copy.report = start_s, start_s + copy.row[2], decider.number, None
        self._kept(copy, start_s)

    def _kept(self, message: Message, heard_s: float) -> None:
        assert isinstance(message, Copy)
        decider, copy = message.decider, message
        self._copies["queue_s"][copy.request] = copy.begin_s - copy.entry_s
        if decider.views and decider.views[0] is not None:
            if copy.report is not None:
                decider.reports[copy.request] = copy.report
            decider.answers.add((heard_s, copy.request, 0, 0.0, copy.sent_as, heard_s))
        if copy.outcome != HEDGED:
            del copy.of.under_way[copy.request]
            self._is_answered(copy, copy.finish_s)
            return
        # The first copy may still be faster.
        copy.callbacks = (self._finishes_here,)
        heappush(self._clock.heap, (copy.finish_s, MESSAGE_MOVES, copy.request, copy))

    def _finishes_here(self, copy: Copy) -> None:
        del copy.of.under_way[copy.request]
        if copy.of.is_closed:
            self._discard(copy)
        else:
            copy.of.is_closed = True
            self._is_answered(copy, copy.finish_s)

    def _answer_arrives(self, message: Message, now_s: float) -> None:
        assert isinstance(message, Copy)
        copy, opened, decider = message, message.of, message.decider
        if opened.under_way.pop(copy.request, None) is None:
            # The decider has given it up, and hears no answer to it.
            self._counts["late_answers"] += 1
            self._add_work(copy)
            return
        transfer_s = (now_s - copy.sent_s) - (copy.finish_s - copy.entry_s)
        self._copies["queue_s"][copy.request] = copy.begin_s - copy.entry_s
        if copy.report is not None and decider.watches:
            decider.reports[copy.request] = copy.report
        decider.answers.add((now_s, copy.request, copy.target, transfer_s, copy.sent_as, now_s))
        if opened.is_closed:
            self._discard(copy)
            return
        opened.is_closed = True
        self._is_answered(copy, now_s)

    def _discard(self, copy: Copy) -> None:
        """Count the answer of a request that another copy has answered."""
        self._counts["spare_answers"] += 1
        self._add_work(copy)

    def _add_work(self, copy: Copy) -> None:
        """Count an execution that answers no request."""
        lengths, boxes = self.layout.lengths, self._extra_work[copy.target]
        box = copy.box if copy.target or self._local is not None else copy.decider.number
        boxes[box] += copy.row[lengths + 1] + 1.0 if self._batches(copy.target) else copy.finish_s - copy.begin_s

    def _batches(self, target: int) -> bool:
        return hasattr(self._servers.get(target), "batched")

    def _is_answered(self, copy: Copy, received_s: float) -> None:
        """Write the trail of a request that a copy answers; `received_s` may be in the future for one that is kept."""
        opened, request, trail = copy.of, copy.of.request, self.trail
        for name in trail.keys() & _OF_SERVERS:
            trail[name][request] = self._copies[name][copy.request]
        queue_s, executed_s = copy.begin_s - copy.entry_s, copy.finish_s - copy.begin_s
        trail["target"][request], trail["outcome"][request], trail["queue_s"][request] = copy.target, copy.outcome, queue_s
        trail["server"][request] = copy.box if copy.target else 0
        if copy.request != request and trail["execution_s"][request] != trail["execution_s"][request]:
            trail["execution_s"][request] = executed_s
        kept = copy.target == 0 and copy.sent_s == opened.sent_s
        trail["transfer_s"][request] = 0.0 if kept else (received_s - opened.sent_s) - (copy.finish_s - copy.entry_s)
        if self._answered is not None:
            self._answered(request, received_s)

    def _times_out(self, timer: _Timer) -> None:
        if not timer.of.is_closed:
            self._falls_back(timer.of, timer.at_s)

    def _falls_back(self, opened: _Open, now_s: float) -> None:
        """Let the decider execute a request that it has waited for long enough; its copies elsewhere are forgotten.

        A second copy that it executes already stands for that.
        """
        for copy in opened.under_way.values():
            if copy.target:
                opened.decider.forget(copy.target, copy.request, copy.sent_as)
        opened.under_way = {number: copy for number, copy in opened.under_way.items() if not copy.target}
        if not opened.under_way:
            opened.is_closed = True
            self._execute_here(opened, FALLBACK, now_s)

    def _hedges(self, timer: _Timer) -> None:
        opened, now_s = timer.of, timer.at_s
        opened.hedge_due = False
        if opened.is_closed:
            return
        target = self._hedge_target(self.trail["target"][opened.request])
        assert target is not None
        self._counts["hedges"] += 1
        if target:
            self._send_copy(opened, target, HEDGED, now_s)
        else:
            self._execute_here(opened, HEDGED, now_s)

    def _box_failed(self, copy: Copy) -> None:
        """Let the connection of a copy that a box has dropped break; the reset meets no fault."""
        now_s = copy.finish_s
        self._counts["failed_executions"] += 1
        if not self._batches(copy.target):
            self._extra_work[copy.target][copy.box] += copy.finish_s - copy.begin_s
        reset_s = sum(leg.delay_s for leg in self._legs(copy, back=True))
        copy.due_s, copy.callbacks = now_s + reset_s, (self._hears_of_failure,)
        heappush(self._clock.heap, (copy.due_s, MESSAGE_MOVES, copy.request, copy))

    def _hears_of_failure(self, copy: Copy) -> None:
        opened, retries = copy.of, (self._faults.retries or {}).get(copy.target)
        if retries is None or opened.is_closed or opened.retries >= retries[0]:
            self._is_lost(copy, copy.due_s)
            return
        opened.retries += 1
        # Under way until it is tried again: the request is not lost yet.
        copy.due_s, copy.callbacks = copy.due_s + retries[1], self._retried
        heappush(self._clock.heap, (copy.due_s, MESSAGE_MOVES, copy.request, copy))

    def _retries(self, copy: Copy) -> None:
        opened = copy.of
        if opened.under_way.pop(copy.request, None) is None:
            return
        opened.decider.forget(copy.target, copy.request, copy.sent_as)
        if not opened.is_closed:
            self._counts["retries"] += 1
            self._send_copy(opened, copy.target, copy.outcome, copy.due_s)

    def _is_lost(self, copy: Copy, now_s: float) -> None:
        """Take in that a copy will not be answered."""
        opened = copy.of
        if opened.under_way.pop(copy.request, None) is None:
            return
        opened.decider.forget(copy.target, copy.request, copy.sent_as)
        if opened.is_closed or opened.under_way or opened.hedge_due:
            return
        if self._faults.timeout_s is not None:
            self._falls_back(opened, now_s)
            return
        opened.is_closed = True
        request, trail = opened.request, self.trail
        trail["target"][request], trail["outcome"][request] = -1, LOST
        for name in trail.keys() & {"queue_s", "transfer_s", "lost_s"}:
            trail[name][request] = nan
        if self._answered is not None:
            self._answered(request, now_s)

    def finished(self) -> Trail:
        """Return the trail of the run, with the account of its faults."""
        for target, server in self._servers.items():
            self._extra_work[target] += getattr(server, "wasted_s", 0.0)
        counts = {name: self._counts[name] for name in COUNTS}
        return replace(super().finished(), faults=FaultAccount(counts, tuple(self._extra_work)))


_OF_SERVERS = {"execution_s", "first_token_s", "state", "stall_s", "deadline_missed"}
"""Columns that servers fill."""
_UNSET = {"execution_s": nan, "first_token_s": nan, "lost_s": nan, "transfer_s": nan, "state": -1}
"""Values of columns of a copy before it is executed, other than 0."""
