"""Bandwidth of one way of a link as a step function of time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.network.rtt_series import Kind
from simnmt.network.step_function import StepFunction


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class BandwidthSeries:
    """Bits per second over one lap, held and repeated as `RttSeries` does it, each on a lap of its own.

    A moment without bandwidth would hold a request for ever, so zero counts as lost: the value before it holds on. Raises
    `TraceError` where the columns make no such function.
    """

    name: str
    kind: Kind
    """Whether somebody measured it, a process drew it, it is one number, or nobody says."""
    source: str
    """Where it came from, in words."""
    time_s: NDArray[np.float64]
    """Shape (samples,); starts at 0 and strictly increases."""
    rate_bps: NDArray[np.float64]
    """Shape (samples,); positive."""
    lost: int = 0
    """Samples that were lost or zero and replaced by the value before them, or dropped from the start."""
    duration_s: float = field(init=False)
    """One lap: the last time plus the median spacing; 1 s where there is one sample only."""
    _steps: StepFunction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        steps = StepFunction(f"bandwidth series {self.name}", self.time_s, self.rate_bps)
        built = {"time_s": steps.time_s, "rate_bps": steps.value, "duration_s": steps.duration_s, "_steps": steps}
        for key, content in built.items():
            object.__setattr__(self, key, content)

    def at(self, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bits per second at each time, of any sign and any number of laps away; same shape.

        Raises `TraceError` on a time that is not finite.
        """
        return self._steps.at(time_s)

    def at_one(self, time_s: float) -> float:
        """Bits per second at one finite time: what `at` says, on plain floats for a moving clock."""
        return self._steps.at_one(time_s)
