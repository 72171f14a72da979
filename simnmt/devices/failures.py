"""Boxes that are down at times. When each is down is known to the world, not to policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simnmt.base.down_times import DownTimes
from simnmt.devices.device import Balancer, Box, ByNode, LeastLoadedOfDrawn, LeastWork

MOST_RESTARTS = 10_000
"""Times that a request starts over before it is dropped: one longer than every up time would never end."""


@dataclass(frozen=True, slots=True)
class Failures:
    """When each box of a target is down, and what becomes of the requests in a box that fails."""

    down: Sequence[DownTimes]
    fate: Literal["lost", "requeued", "resumed"] = "lost"
    """Lost: their connection breaks. Requeued: they start over when the box is repaired. Resumed: they go on then."""


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
