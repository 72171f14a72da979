"""A process in words."""

from __future__ import annotations

from simnmt.network.synthesis.process import RttProcess


def title(process: RttProcess) -> str:
    """How many numbers it is, for how long a lap, and what parts it has."""
    shifts = sum(count for *_, count in process.levels.shifts)
    spikes, bursts = (each.runs if each else 0 for each in (process.spikes, process.bursts))
    swing = (
        f"a daily swing of {1e3 * (max(process.daily.hours_s) - min(process.daily.hours_s)):.3g} ms" if process.daily else ""
    )
    parts = [f"{len(process.levels.levels_s)} levels", f"{shifts} shifts", f"{spikes} lone spikes", f"{bursts} bursts", swing]
    lap = f"{process.lap_samples:,} samples {process.step_s:g} s apart"
    return f"a process of {process.parameters} numbers for {lap}: {', '.join(part for part in parts if part)}"
