"""RTT as a step function of time (CNMT-04)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.step_function import StepFunction
from simnmt.network.units import MOST_RTT_S

Kind = Literal["measured", "synthetic", "constant", "unstated"]


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class RttSeries:
    """Round-trip times over one lap; after the lap it begins again, and before time 0 it has already run.

    Each sample holds until the next. A lost sample has no meaning for a request, so the value before it holds
    on and the loss is counted; outages belong to a fault model. Raises `TraceError` where the columns make no
    such function.
    """

    name: str
    kind: Kind
    """Whether somebody measured it, a process drew it, it is one number, or nobody says."""
    source: str
    """Where it came from, in words."""
    time_s: NDArray[np.float64]
    """Shape (samples,); starts at 0 and strictly increases."""
    rtt_s: NDArray[np.float64]
    """Shape (samples,); positive."""
    lost: int = 0
    """Samples that were lost and replaced by the value before them, or dropped from the start."""
    duration_s: float = field(init=False)
    """One lap: the last time plus the median spacing; 1 s where there is one sample only."""
    _steps: StepFunction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if np.size(self.rtt_s) and np.nanmax(self.rtt_s) > MOST_RTT_S:
            what = (
                f"RTT series {self.name}: a round trip of {np.nanmax(self.rtt_s):.3g} s, where {MOST_RTT_S:,.0f} s is the most"
            )
            raise TraceError(what, remedy="correct the sample, or leave it out")
        steps = StepFunction(f"RTT series {self.name}", self.time_s, self.rtt_s)
        built = {"time_s": steps.time_s, "rtt_s": steps.value, "duration_s": steps.duration_s, "_steps": steps}
        for key, content in built.items():
            object.__setattr__(self, key, content)

    def at(self, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """RTT in seconds at each time, of any sign and any number of laps away; same shape.

        Raises `TraceError` on a time that is not finite.
        """
        return self._steps.at(time_s)

    def at_one(self, time_s: float) -> float:
        """RTT in seconds at one finite time: what `at` says, on plain floats for a moving clock."""
        return self._steps.at_one(time_s)

    @property
    def mean_s(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return self._steps.mean

    def scaled_to_mean(self, mean_s: float) -> RttSeries:
        """The same shape at another mean: every RTT times one factor, which `source` then states."""
        if not (math.isfinite(mean_s) and mean_s > 0.0):
            what = f"RTT series {self.name}: cannot be scaled to a mean of {mean_s} s, which is not positive"
            raise TraceError(what)
        factor = mean_s / self.mean_s
        note = f"every RTT times {factor:.4g} for a mean of {mean_s * 1e3:.6g} ms"
        return replace(self, rtt_s=self.rtt_s * factor, source=f"{self.source}; {note}" if self.source else note)


def constant(rtt_s: float, name: str = "constant") -> RttSeries:
    """A network whose RTT never changes."""
    return RttSeries(name, "constant", f"{rtt_s * 1e3:.6g} ms at all times", np.zeros(1), np.array([rtt_s]))
