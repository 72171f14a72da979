"""Power at rest and at work, and joules per inference, by whatever counter the device has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simnmt.calibrate.energy import EnergyMeter
from simnmt.calibrate.plan import corner_cells
from simnmt.calibrate.progress import Listener, Silent
from simnmt.calibrate.settings import Settings
from simnmt.costs import fit_energy
from simnmt.nmt.engine import Engine, Work

RESOLUTIONS = 100
"""A span must be so many times the counter's resolution."""
QUICK_SPAN_S = 2.5
"""No span of a quick calibration is longer, however coarse the counter."""


@dataclass(frozen=True, slots=True)
class _Span:
    seconds: float
    joules: float


def measure_energy(
    engine: Engine,
    meter: EnergyMeter,
    settings: Settings,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
    listener: Listener = Silent,
) -> dict[str, Any] | None:
    """The `energy` block of a profile; None where the counter fails meanwhile.

    The device rests for a while, then does each corner cell over and over, for long enough that the counter's resolution
    does not matter; in quick mode for a few seconds at most. The joules are of all that the counter sees, what the box draws
    at rest included.
    """
    span_s = max(1.0 if settings.mode == "quick" else 3.0, RESOLUTIONS * meter.resolution_s)
    if settings.mode == "quick":
        span_s = min(span_s, QUICK_SPAN_S)
    works = corner_cells(settings)
    listener.measured("energy", 0.0, (2 + len(works)) * span_s)
    idle = _span(meter, lambda: sleep(2 * span_s), clock)
    rows: list[tuple[Work, float, float]] = []
    for done, work in enumerate(works, start=1):
        times = 0

        def repeat(work: Work = work) -> None:
            nonlocal times
            times, begin_s = 0, clock()
            while times == 0 or clock() - begin_s < span_s:
                engine.run(work)
                times += 1

        active = _span(meter, repeat, clock)
        if active is None:
            return None
        rows.append((work, active.seconds / times, active.joules / times))
        listener.measured("energy", (2 + done) * span_s, (len(works) - done) * span_s)
    if idle is None or min(joules for _, _, joules in rows) <= 0.0 or idle.joules <= 0.0:
        return None
    src_len, tgt_len = [work.src_len for work, _, _ in rows], [work.tgt_len for work, _, _ in rows]
    joules = [each for _, _, each in rows]
    return {
        "kind": "measured",
        "source": meter.source,
        "idle_w": idle.joules / idle.seconds,
        "active_w": sum(joules) / sum(seconds for _, seconds, _ in rows),
        **fit_energy(src_len, tgt_len, joules),
    }


def _span(meter: EnergyMeter, doing: Callable[[], None], clock: Callable[[], float]) -> _Span | None:
    """Time and energy of doing something; None where the counter does not tell."""
    before_j, begin_s = meter.read_j(), clock()
    doing()
    seconds, after_j = clock() - begin_s, meter.read_j()
    if before_j is None or after_j is None:
        return None
    return _Span(seconds, after_j - before_j)
