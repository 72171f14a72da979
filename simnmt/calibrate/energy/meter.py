"""What an energy counter answers, and what stands in the way of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

STILL_S = 0.25
"""A counter that has not moved after this long stands still: RAPL counts every millisecond, NVML every 20 to 100 ms."""


class EnergyMeter(Protocol):
    """A counter of the energy that a device has used since the meter was opened.

    Ask it at least once a minute: between two readings a counter may wrap around once, not twice.
    """

    source: str
    """rapl, ina3221 or nvml."""
    scope: str
    """What the joules are of, for a reader: the processor packages, the whole module, the GPU."""
    domains: tuple[str, ...]
    """The counters or rails that are summed, by the system's names."""
    resolution_s: float
    """The counter moves, or is sampled, this often: measure at least a hundred times as long."""

    def read_j(self) -> float | None:
        """Joules since the meter was opened; None from the first failed reading on, never 0 for unknown."""

    def close(self) -> None:
        """Let go of the counter; a sampling thread ends. Twice does no harm."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one source gives no energy."""

    source: str
    why: str
    remedy: str | None = None
    """What the user can do, as an imperative; None where nothing helps."""

    def __str__(self) -> str:
        return f"{self.source}: {self.why}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class FoundMeter:
    """A meter, or the reasons why there is none."""

    meter: EnergyMeter | None
    obstacles: tuple[Obstacle, ...] = ()
    """Of the sources that were tried in vain."""


def moves(read: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether a counter changes within `STILL_S`: one that stands still would give 0 J for everything."""
    first = read()
    for _ in range(25):
        sleep(STILL_S / 25)
        if read() != first:
            return True
    return False
