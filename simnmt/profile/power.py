"""Electric power of a box, and what a request alone costs in joules or in money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration, misfit
from simnmt.profile.blocks import EnergyBlock

Watts = Annotated[float, Field(ge=0.0, le=1e7)]
SECONDS_PER_HOUR = 3600.0


class PowerConfiguration(Configuration):
    """Electric power of one box of a device, as a scenario gives it."""

    idle_w: Watts
    """Power of a box that executes nothing. It is drawn at all times, and is the static part of the power."""
    busy_w: Watts
    """Power of a box that executes on all its workers, or batches; with fewer busy workers it is in proportion."""

    @model_validator(mode="after")
    def _busy_is_not_below_idle(self) -> PowerConfiguration:
        if self.busy_w < self.idle_w:
            raise misfit("busy_w", f"{self.busy_w:g} W while busy is less than the {self.idle_w:g} W while idle")
        return self


@dataclass(frozen=True, slots=True)
class BoxPower:
    """The power of one box; `busy_w`: while it executes on all its workers, or batches."""

    idle_w: float
    busy_w: float
    kind: str
    """How the numbers are known: `given` in the scenario, or the kind of the profile's block `energy`."""

    @classmethod
    def of(cls, given: PowerConfiguration | None, measured: EnergyBlock | None) -> BoxPower | None:
        """Return the power that a scenario gives, else that of a profile; None without both."""
        if given is not None:
            return cls(given.idle_w, given.busy_w, "given")
        if measured is None:
            return None
        return cls(measured.idle_w, max(measured.active_w, measured.idle_w), measured.kind)


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What one request costs, in joules or in money: linear in its seconds of execution and its source and target tokens."""

    per_s: float = 0.0
    per_token: float = 0.0

    def of(self, src_len: ArrayLike, tgt_len: ArrayLike, execution_s: ArrayLike) -> Floats:
        """Return the cost of each request; broadcasts over its arguments."""
        src, tgt, seconds = (np.asarray(column, np.float64) for column in (src_len, tgt_len, execution_s))
        return np.asarray(self.per_s * seconds + self.per_token * (src + tgt))
