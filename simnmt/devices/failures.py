"""Boxes that are down at times, and answers that do not come in time: settings, and a balancer that avoids such boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isnan
from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.devices.device import FAILS, Balancer, Box, ByNode, Clock, Execution, LeastLoadedOfDrawn, LeastWork, Process
from simnmt.network.outages import DownTimes, MeanSeconds, Span, Spans, drawn_spans


class FailureConfiguration(Configuration):
    """When the boxes of a device fail and are repaired; the requests in them are lost."""

    mttf_s: MeanSeconds | None = None
    """Mean time to failure of each box, exponential, from the repair on."""
    mttr_s: MeanSeconds | None = None
    """Mean time to repair of each box, exponential."""
    intervals_s: Spans | None = None
    """Instead: when all boxes are down, as begin and end in seconds after the run began, such as `[[60, 75], [300, 320]]`."""

    @model_validator(mode="after")
    def _has_one_form(self) -> FailureConfiguration:
        given = [self.mttf_s is not None, self.mttr_s is not None]
        if (self.intervals_s is not None) == any(given) or any(given) != all(given):
            raise PydanticCustomError("no_failures", "when do boxes fail? (give mttf_s and mttr_s, or intervals_s)")
        return self

    @property
    def availability(self) -> float | None:
        """Share of the time that a box is up in the long run; None for listed intervals."""
        if self.mttf_s is None or self.mttr_s is None:
            return None
        return self.mttf_s / (self.mttf_s + self.mttr_s)

    def spans(self, seed: int, replication: int, name: str) -> Iterator[Span]:
        """Yield the times at which a box is down; `name`: of its random stream."""
        if self.mttf_s is not None and self.mttr_s is not None:
            return drawn_spans(seed, replication, name, self.mttf_s, self.mttr_s)
        return iter([(span[0], span[1]) for span in self.intervals_s or ()])

    def describe(self) -> str:
        """Describe when boxes fail."""
        when = "boxes are down at the listed times"
        if self.availability is not None:
            mean = f"{self.mttf_s:g} s, is repaired in {self.mttr_s:g} s"
            when = f"each box fails after {mean} in the mean, and is up {100 * self.availability:.4g} % of the time"
        return f"{when}; requests in a box that fails are lost"


class LateAnswers(Configuration):
    """What the device that decides does about a request that it has sent and whose answer does not come."""

    timeout_ms: Annotated[float, Field(gt=0.0, le=1e9)]
    """Time after which it executes the request itself; an answer that comes later is discarded."""
    leave_out: bool = True
    """Whether it then sends nothing to that device until the device answers again, which it tries after 1, 2, 4, up to 30 s, as
    the live gateway does. Policies that know the truth need none of this."""

    def describe(self) -> str:
        """Describe what the deciding device does."""
        return (
            f"after {self.timeout_ms:g} ms without an answer, or when it hears that the request was lost, the device that "
            "decides executes the request itself and discards a later answer"
        ) + ("; it sends nothing more there until one of its tries is answered" if self.leave_out else "")


class AvailableBoxes:
    """Passes over boxes that are down, except for the box of an end node."""

    def __init__(self, balancer: Balancer, down: Sequence[DownTimes]) -> None:
        self._balancer, self._down = balancer, down

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the number of the box; the balancer's own if all are down."""
        up = [box for box in range(len(boxes)) if not self._down[box].is_down(now_s)]
        if isinstance(self._balancer, LeastWork) and up:
            return up[self._balancer.choose([boxes[box] for box in up], now_s, request, node)]
        first = self._balancer.choose(boxes, now_s, request, node)
        if isinstance(self._balancer, ByNode) or not up or first in up:
            return first
        drawn: list[int] = self._balancer.choices[request].tolist() if isinstance(self._balancer, LeastLoadedOfDrawn) else []
        in_turn = [(first + step) % len(boxes) for step in range(len(boxes))]
        return next(box for box in (*drawn, *in_turn) if box in up)

    def copy(self) -> AvailableBoxes:
        """Return a balancer in the same state."""
        return AvailableBoxes(self._balancer.copy(), self._down)


class BoxFailures:
    """Loses the requests in boxes that fail. A failure is on the clock only while its box holds requests."""

    def __init__(self, clock: Clock, down: Sequence[DownTimes] | None, fail: Callable[[int], Iterable[Execution]]) -> None:
        """`down`: by box; None: always up. `fail`: empties a box, and returns what was in it."""
        self._clock, self._down, self._fail, self._watched = clock, down, fail, set[int]()

    def admits(self, execution: Execution) -> bool:
        """Return whether the box of a request is up; lose the request if it is not, or when the box fails."""
        if self._down is None:
            return True
        box, now_s = execution.box, self._clock.now
        if self._down[box].is_down(now_s):
            self._lose(execution)
            return False
        fails_s = self._down[box].next_begin(now_s)
        if box not in self._watched and fails_s < inf:
            self._watched.add(box)
            self._clock.process(self._watch(box, fails_s))
        return True

    def _watch(self, box: int, fails_s: float) -> Process:
        yield self._clock.moment(fails_s, FAILS, box)
        self._watched.discard(box)
        for execution in self._fail(box):
            self._lose(execution)

    def _lose(self, execution: Execution) -> None:
        if isnan(execution.begin_s):
            execution.begin(self._clock.now)
        execution.end(self._clock.now, is_done=False)
