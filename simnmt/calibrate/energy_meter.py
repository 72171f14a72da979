"""The interface of energy meters, and a meter that integrates a sampled power. An unreadable energy is None, never 0."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

STILL_S = 0.25
"""Seconds after which a counter counts as not moving: RAPL counts every millisecond, NVML every 20 to 100 ms."""


class EnergyMeter(Protocol):
    """A counter of the energy that a device has used since the meter was opened.

    Read it at least once a minute: between two readings a counter may wrap around once, not twice.
    """

    source: str
    """rapl, ina3221 or nvml."""
    scope: str
    """Parts whose joules are counted, for a reader: the processor packages, the whole module, the GPU."""
    domains: tuple[str, ...]
    """The counters or rails that are summed, by the system's names."""
    resolution_s: float
    """Seconds between two updates or samples: measure at least a hundred times as long."""

    def read_j(self) -> float | None:
        """Return the joules since the meter was opened; None after the first failed reading, never 0 for unknown."""

    def close(self) -> None:
        """Release the counter and end a sampling thread. A second call has no effect."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a source gives no energy."""

    source: str
    why: str
    remedy: str | None = None
    """Action of the user, as an imperative; None if there is none."""

    def __str__(self) -> str:
        return f"{self.source}: {self.why}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class FoundMeter:
    """A meter, or the obstacles to it."""

    meter: EnergyMeter | None
    obstacles: tuple[Obstacle, ...] = ()
    """Obstacles of the sources that failed."""


def moves(read: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> bool:
    """Return whether a counter changes within `STILL_S`: a counter that does not would give 0 J for everything."""
    first = read()
    for _ in range(25):
        sleep(STILL_S / 25)
        if read() != first:
            return True
    return False


class PowerIntegral:
    """Joules of a power that is linear from each sample to the next."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._last: tuple[float, float] | None = None

    def add(self, at_s: float, watts: float) -> None:
        """Add a sample; times must not go back."""
        if self._last is not None:
            self.joules += (at_s - self._last[0]) * (watts + self._last[1]) / 2
        self._last = (at_s, watts)


@dataclass
class SampledMeter:
    """A meter that integrates a power in a thread, from its creation until it is closed.

    The thread takes some of the interpreter's time: measure seconds without it, joules with it. `read_w` may fail with any
    exception, which ends the counting; the constructor raises it if the first reading fails.
    """

    source: str
    scope: str
    domains: tuple[str, ...]
    read_w: Callable[[], float]
    resolution_s: float
    now: Callable[[], float] = time.perf_counter
    closing: Callable[[], object] | None = None
    in_thread: bool = True
    _integral: PowerIntegral = field(default_factory=PowerIntegral, init=False)
    _failed: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _end: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        self._integral.add(self.now(), self.read_w())
        self._thread = threading.Thread(target=self._run, name=f"simnmt-{self.source}", daemon=True)
        if self.in_thread:
            self._thread.start()

    def read_j(self) -> float | None:
        """Return the joules since the meter was opened, up to this moment; None after the first failed sample."""
        self._sample()
        return None if self._failed else self._integral.joules

    def close(self) -> None:
        """End the thread and release the source."""
        if self._end.is_set():
            return
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.closing is not None:
            with suppress(Exception):
                self.closing()

    def _run(self) -> None:
        while not self._end.wait(self.resolution_s):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            if self._failed or self._end.is_set():
                return
            try:
                watts = self.read_w()
            except Exception:  # the exceptions depend on the source
                self._failed = True
                return
            self._integral.add(self.now(), watts)
