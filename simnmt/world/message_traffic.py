"""Traffic whose requests and answers are messages: they cross the legs of their path event by event, since others delay them.

It replaces `Traffic` where a link is shared. Deciders, servers and policies are the same, and see what they saw before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappush
from typing import Any

from simnmt.network.message_paths import NO_LINE, Leg, MessagePaths
from simnmt.world.clock import MESSAGE_MOVES, Clock
from simnmt.world.deciders import Decider
from simnmt.world.server import Arrival, RequestEvent, Row, Site
from simnmt.world.shared_line import LineOnClock, Medium
from simnmt.world.traffic import Handle, Traffic

Arrives = Callable[[Any, float], None]
"""`arrives(message, now_s)`: called when a message has crossed its path."""


class Message(RequestEvent):
    """A request on its way to its target, at it, or on its way back as the answer."""

    __slots__ = ("arrives", "begin_s", "box", "due_s", "finish_s", "leg", "legs", "report", "target")

    target: int
    due_s: float
    """When its delay on the leg ends."""
    legs: Sequence[Leg]
    leg: int
    """Number of the leg that it is on."""
    arrives: Arrives
    begin_s: float
    """When its execution began."""
    finish_s: float
    box: int
    report: Any


class Messenger:
    """Moves messages over their legs: through shared lines, and by the clock."""

    __slots__ = ("_heap", "_moves", "lines")

    def __init__(self, paths: MessagePaths, clock: Clock) -> None:
        self._heap = clock.heap
        self.lines: list[Medium[Message]] = [
            LineOnClock[Message](capacity, number, clock, self._leaves_line) for number, capacity in enumerate(paths.capacities)
        ]
        self._moves = (self._crossed,)

    def send(self, message: Message, legs: Sequence[Leg], now_s: float, arrives: Arrives) -> None:
        """Send a message over its legs; `arrives` is called when it has crossed them."""
        message.legs, message.leg, message.arrives = legs, 0, arrives
        self._enter_leg(message, now_s)

    def _enter_leg(self, message: Message, now_s: float) -> None:
        leg = message.legs[message.leg]
        if leg.line == NO_LINE:
            self._delay(message, now_s + leg.delay_s)
        else:
            self.lines[leg.line].send(message, message.request, leg.bits, now_s)

    def _leaves_line(self, message: Message, now_s: float) -> None:
        self._delay(message, now_s + message.legs[message.leg].delay_s)

    def _delay(self, message: Message, until_s: float) -> None:
        message.due_s, message.callbacks = until_s, self._moves
        heappush(self._heap, (until_s, MESSAGE_MOVES, message.request, message))

    def _crossed(self, message: Message) -> None:
        now_s = message.due_s
        message.leg += 1
        if message.leg < len(message.legs):
            self._enter_leg(message, now_s)
        else:
            message.arrives(message, now_s)

    def foreseen_s(self, legs: Sequence[Leg], now_s: float) -> float:
        """Return the seconds of a message over its legs, with those on the lines now and none that come later."""
        total_s = 0.0
        for leg in legs:
            total_s += leg.delay_s + (0.0 if leg.line == NO_LINE else self.lines[leg.line].foreseen_s(leg.bits, now_s))
        return total_s


@dataclass(frozen=True, slots=True)
class MessageSite(Site):
    """The place of a server whose answers are messages."""

    leaves: Callable[[Message], None]
    """Called with each answer when it leaves a remote server."""
    kept: Callable[[Message, float], None]
    """Called with each request that the decider's own device has taken up, and the moment at which it learns of that."""

    @property
    def knows_downlinks(self) -> bool:
        """False: when an answer is received depends on the others."""
        return False

    def answer(
        self, event: RequestEvent, begin_s: float, finish_s: float, box: int, ordered_s: float, report: Any = None
    ) -> None:
        """Note an execution, and let its answer leave at the end; arguments as of `Site.answer`."""
        assert isinstance(event, Message)
        event.begin_s, event.finish_s, event.box, event.report = begin_s, finish_s, box, report
        if not self.target:
            self.kept(event, ordered_s)
            return
        event.callbacks = (self.leaves,)
        heappush(self.clock.heap, (finish_s, MESSAGE_MOVES, event.request, event))


class MessageTraffic(Traffic):
    """The deciders and the servers of one run, with messages between them."""

    records = frozenset({"transfer_s"})

    def __init__(self, paths: MessagePaths, *arguments: Any) -> None:
        """Create the deciders and register the servers; `paths`: of all messages, other arguments as of `Traffic`."""
        super().__init__(*arguments)
        self._paths = paths
        self._messenger = Messenger(paths, self._clock)

    def _site(self, target: int, added: int, first_box: int) -> Site:
        return MessageSite(
            target, self.layout, added, first_box, self._clock, self.trail, None, self._answer_leaves, self._kept
        )

    def handler(self) -> Handle:
        """Return the function that handles every request, in the order of the decisions."""
        deciders, plain, last = self.deciders, self._beliefs.only_heard, self.layout.targets - 1
        targets, queue_s, estimates_s, measured_at_s = (
            self.trail[name] for name in ("target", "queue_s", "estimate_s", "measured_at_s")
        )

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = deciders[row[1] % len(deciders)]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, queue_s)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request], measured_at_s[request] = estimate.value_s, estimate.measured_at_s
            targets[request] = target
            message = Message()
            message.request, message.row, message.decider, message.target = request, row, decider, target
            message.sent_s = message.entry_s = now_s
            if target:
                message.sent_as = decider.announce(self.prepared, target, request, in_block, now_s) if decider.watches else 0
                self._messenger.send(message, self._legs(message, back=False), now_s, self._reaches)
            else:
                self._keep(message, in_block, now_s)

        return self._judging(handle) if self._judged_share > 0.0 else handle

    def _keep(self, message: Message, in_block: int, now_s: float) -> None:
        """Let the decider's own device execute a request."""
        decider = message.decider
        watches = self._watches_itself(decider)
        message.sent_as = decider.announce(self.prepared, 0, message.request, in_block, now_s) if watches else 0
        if self._local is not None:
            self._serve[0][0](message)
            return
        start_s = decider.device.serve(now_s, message.row[2])
        message.begin_s, message.finish_s, message.box, message.report = start_s, start_s + message.row[2], 0, None
        # It sees its own device start a request, no sooner; how long one takes it knows when that is done.
        self._kept(message, start_s)

    def _watches_itself(self, decider: Decider) -> bool:
        """Return whether a decider notes the requests that its own device executes."""
        return decider.watches if self._local is not None else bool(decider.views) and decider.views[0] is not None

    def _kept(self, message: Message, heard_s: float) -> None:
        decider, request = message.decider, message.request
        if decider.views and decider.views[0] is not None:
            if message.report is not None:
                decider.reports[request] = message.report
            decider.answers.add((heard_s, request, 0, 0.0, message.sent_as, heard_s))
        self._received(message, message.finish_s)

    def _legs(self, message: Message, *, back: bool) -> list[Leg]:
        request, row = message.request, message.row
        return self._paths.legs(request, row[1], self._issued_s(request), message.target, back=back)

    def _issued_s(self, request: int) -> float:
        at_s: float = self.trail["arrival_s"][request]
        return at_s

    def _reaches(self, message: Message, now_s: float) -> None:
        """Let a request enter the server of its target."""
        message.entry_s = now_s
        self._serve[message.target][0](message)

    def _answer_leaves(self, message: Message) -> None:
        self._messenger.send(message, self._legs(message, back=True), message.finish_s, self._answer_arrives)

    def _answer_arrives(self, message: Message, now_s: float) -> None:
        """Let the decider measure the transfer of a request."""
        decider, request = message.decider, message.request
        transfer_s = (now_s - message.sent_s) - (message.finish_s - message.entry_s)
        if message.report is not None and decider.watches:
            decider.reports[request] = message.report
        decider.answers.add((now_s, request, message.target, transfer_s, message.sent_as, now_s))
        self.trail["server"][request] = message.box
        self.trail["transfer_s"][request] = transfer_s
        self._received(message, now_s)

    def _received(self, message: Message, now_s: float) -> None:
        """Note the times of a request whose answer the decider has, or will have at `now_s`."""
        request = message.request
        self.trail["queue_s"][request] = message.begin_s - message.entry_s
        if not message.target:
            self.trail["transfer_s"][request] = 0.0
        if self._answered is not None:
            self._answered(request, now_s)

    def _transfers_s(self, row: Row, request: int, now_s: float) -> list[float]:
        """Return the present transfer times, by target, with the messages that are on the lines now."""
        issued_s, foreseen_s = self._issued_s(request), self._messenger.foreseen_s
        transfers_s = [0.0]
        for target in range(1, self.layout.targets):
            there, back = (self._paths.legs(request, row[1], issued_s, target, back=back) for back in (False, True))
            transfers_s.append(foreseen_s(there, now_s) + foreseen_s(back, now_s))
        return transfers_s

    def _entry_s(self, row: Row, request: int, target: int, now_s: float) -> float:
        legs = self._paths.legs(request, row[1], self._issued_s(request), target, back=False)
        return now_s + self._messenger.foreseen_s(legs, now_s)

    def _ahead(self, target: int, entry_s: float, request: int) -> list[Arrival]:
        """Return the requests on the last leg to a target that will reach it before `request` does."""
        reaches = self._reaches
        return sorted(
            (message.due_s, message.request, message.row)
            for _, kind, _, message in self._clock.heap
            if kind == MESSAGE_MOVES
            and message.target == target
            and message.arrives == reaches
            and message.leg == len(message.legs) - 1
            and (message.due_s, message.request) < (entry_s, request)
        )
