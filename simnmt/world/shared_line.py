"""A shared line: the messages on it share its bandwidth equally, which is egalitarian processor sharing.

The line keeps a virtual time: the bits that each message on it has been sent since the line was last idle. A message that
enters is done when the virtual time has grown by its bits, however many others come and go, so one heap of finishes in virtual
time holds the state. The real time of the next finish is a closed form since the last message came or went.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Generic, Protocol, TypeVar

from simnmt.network.message_paths import Capacity
from simnmt.world.clock import LINE_ACTS, Clock, Event

MessageT = TypeVar("MessageT")
SentT = TypeVar("SentT", contravariant=True)


class Medium(Protocol[SentT]):
    """What carries messages whose time depends on each other. A further kind implements this."""

    def send(self, message: SentT, number: int, bits: float, now_s: float) -> None:
        """Let a message enter; once it is done, the medium hands it over. `number` orders messages that are done together."""
        ...

    def foreseen_s(self, bits: float, now_s: float) -> float:
        """Return the seconds of a message that entered now if none came after it. Has no side effects."""
        ...


class SharedLine(Generic[MessageT]):
    """One direction of a shared link, with the messages on it; `next_s` is when it has to act."""

    __slots__ = ("_base_s", "_base_work", "_capacity", "_messages", "next_s")

    def __init__(self, capacity: Capacity) -> None:
        self.next_s = inf
        """When the next message is done; infinity if the line is idle."""
        self._capacity = capacity
        self._messages: list[tuple[float, int, MessageT]] = []
        """A heap of (virtual time at which it is done, number, message)."""
        self._base_s = 0.0
        """When a message came or went last."""
        self._base_work = 0.0
        """The virtual time then, bits of each message."""

    def __len__(self) -> int:
        return len(self._messages)

    def enter(self, message: MessageT, number: int, bits: float, now_s: float) -> None:
        """Let a message enter, at a moment not after `next_s`."""
        self._advance(now_s)
        heappush(self._messages, (self._base_work + bits, number, message))
        self._foresee()

    def act(self) -> list[MessageT]:
        """Return the messages that are done at `next_s`, which becomes later."""
        messages, done = self._messages, []
        # Set, not computed: the finish that was the first is now, whatever rounding says.
        self._base_s, self._base_work = self.next_s, messages[0][0]
        while messages and messages[0][0] <= self._base_work:
            done.append(heappop(messages)[2])
        self._foresee()
        return done

    def foreseen_s(self, bits: float, now_s: float) -> float:
        """Return the seconds of a message that entered now if none came after it. Has no side effects."""
        messages = self._messages
        if not messages:
            return self._capacity.end_of(now_s, bits) - now_s
        work = self._work_at(now_s)
        # It shares with each other message until that is done: the bits that the line carries until its own are.
        # In their order, not the heap's, so that the compiled engine adds the same numbers.
        shared = 0.0
        for finish, _, _ in sorted(messages):
            shared += min(finish - work, bits)
        return self._capacity.end_of(now_s, bits + shared) - now_s

    def _work_at(self, now_s: float) -> float:
        """Return the virtual time at a moment, with messages on the line."""
        work = self._base_work + self._capacity.bits_between(self._base_s, now_s) / len(self._messages)
        return min(work, self._messages[0][0])

    def _advance(self, now_s: float) -> None:
        self._base_work = self._work_at(now_s) if self._messages else 0.0
        self._base_s = now_s

    def _foresee(self) -> None:
        messages = self._messages
        if not messages:
            self.next_s = inf
            return
        carried = (messages[0][0] - self._base_work) * len(messages)
        self.next_s = self._capacity.end_of(self._base_s, carried)


class _LineEvent(Event):
    """The moment at which a line acts; ignored if the line now acts at another moment."""

    __slots__ = ("at_s",)

    at_s: float


class LineOnClock(Generic[MessageT]):
    """A shared line that acts on the clock of a run; a `Medium`."""

    __slots__ = ("_armed", "_callbacks", "_clock", "_done", "_line", "_number")

    def __init__(self, capacity: Capacity, number: int, clock: Clock, done: Callable[[MessageT, float], None]) -> None:
        """`number`: of the line among all lines; `done`: called with each message that was sent, and when."""
        self._line = SharedLine[MessageT](capacity)
        self._number, self._clock, self._done = number, clock, done
        self._armed = set[float]()
        """Moments for which it is on the clock."""
        self._callbacks = (self._acts,)

    def send(self, message: MessageT, number: int, bits: float, now_s: float) -> None:
        """Let a message enter; `number` orders messages that are done together."""
        self._line.enter(message, number, bits, now_s)
        self._arm()

    def foreseen_s(self, bits: float, now_s: float) -> float:
        """Return the seconds of a message that entered now if none came after it. Has no side effects."""
        return self._line.foreseen_s(bits, now_s)

    def _arm(self) -> None:
        at_s = self._line.next_s
        if at_s < inf and at_s not in self._armed:
            self._armed.add(at_s)
            event = _LineEvent()
            event.at_s, event.callbacks = at_s, self._callbacks
            heappush(self._clock.heap, (at_s, LINE_ACTS, self._number, event))

    def _acts(self, event: _LineEvent) -> None:
        self._armed.discard(event.at_s)
        if self._line.next_s != event.at_s:
            return
        for message in self._line.act():
            self._done(message, event.at_s)
        self._arm()
