"""What an energy meter answers, and a meter that integrates a sampled power. What cannot be read is None, never 0."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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


class PowerIntegral:
    """Joules under a power that is taken to be a straight line from each sample to the next."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.longest_gap_s = 0.0
        """Between two samples: what happened within was not seen."""
        self._last: tuple[float, float] | None = None

    def add(self, at_s: float, watts: float) -> None:
        """Take in a sample; times must not go back."""
        if self._last is not None:
            gap_s = at_s - self._last[0]
            self.joules += gap_s * (watts + self._last[1]) / 2
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._last = (at_s, watts)


class SampledMeter:
    """Integrates a power in a thread of its own, from when it is made until it is closed.

    The thread takes some of the interpreter's time: measure seconds without it, joules with it.
    """

    def __init__(
        self,
        source: str,
        scope: str,
        domains: Sequence[str],
        read_w: Callable[[], float],
        interval_s: float,
        *,
        now: Callable[[], float] = time.perf_counter,
        closing: Callable[[], object] | None = None,
        in_thread: bool = True,
    ) -> None:
        """`read_w` may fail with any exception, which ends the counting; raises it if the first reading fails."""
        self.source = source
        self.scope = scope
        self.domains = tuple(domains)
        self.resolution_s = interval_s
        self._read_w = read_w
        self._now = now
        self._closing = closing
        self._integral = PowerIntegral()
        self._failed = False
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._integral.add(now(), read_w())
        self._thread = threading.Thread(target=self._run, name=f"simnmt-{source}", daemon=True)
        if in_thread:
            self._thread.start()

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two samples so far."""
        return self._integral.longest_gap_s

    def read_j(self) -> float | None:
        """Joules since the meter was opened, up to this very moment; None from the first failed sample on."""
        self._sample()
        return None if self._failed else self._integral.joules

    def close(self) -> None:
        """End the thread."""
        if self._end.is_set():
            return
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._closing is not None:
            with suppress(Exception):
                self._closing()

    def _run(self) -> None:
        while not self._end.wait(self.resolution_s):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            if self._failed or self._end.is_set():
                return
            try:
                watts = self._read_w()
            except Exception:  # the source is gone, in whatever way it says so
                self._failed = True
                return
            self._integral.add(self._now(), watts)
