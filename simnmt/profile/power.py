"""Electric power of a box, and what a request costs in joules or in money: the models of LEAF.

LEAF (P. Wiesner and L. Thamsen, "LEAF: Simulating Large Energy-Aware Fog Computing Environments", ICFEC 2021,
doi:10.1109/ICFEC51620.2021.00012; the package `leafsim`) splits power into a static part, which a node draws at all times, and
a dynamic part, which grows linearly with its load. A link takes energy for each bit. Here the line of the dynamic part may
begin with a step, since a box that executes one request alone often draws far more than its share of the full load:

    P(0) = idle_w,    P(k) = busy_w + (load_w - busy_w) (k - 1) / (n - 1)    for k of n requests at a time.

With busy_w = idle_w + (load_w - idle_w) / n, which is assumed if busy_w is left out, this is LEAF's line with a maximum of
load_w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import EnergyBlock

Joules = NDArray[np.float64]
Watts = Annotated[float, Field(ge=0.0, le=1e7)]
SECONDS_PER_HOUR = 3600.0
BITS_PER_BYTE = 8


class PowerConfiguration(Configuration):
    """Electric power of one box of a device, as a scenario gives it."""

    idle_w: Watts
    """Power of a box that executes nothing. It is drawn at all times, and is the static part of the power."""
    busy_w: Watts | None = None
    """Power of a box that executes one request. Left out: on the line from `idle_w` to `load_w`."""
    load_w: Watts | None = Field(default=None, validate_default=True)
    """Power of a box that executes as many requests as it can at a time: a full batch, or one for each of its workers. In
    between, power rises linearly. Left out: `busy_w`, whatever the load."""

    @field_validator("busy_w")
    @classmethod
    def _is_not_below_idle(cls, busy_w: float | None, info: ValidationInfo) -> float | None:
        idle_w = info.data.get("idle_w")
        if busy_w is not None and idle_w is not None and busy_w < idle_w:
            what = f"{busy_w:g} W while busy is less than the {idle_w:g} W while idle (give as much or more)"
            raise PydanticCustomError("busy_below_idle", what)
        return busy_w

    @field_validator("load_w")
    @classmethod
    def _is_not_below_busy(cls, load_w: float | None, info: ValidationInfo) -> float | None:
        if load_w is None:
            if "busy_w" in info.data and info.data["busy_w"] is None:
                raise PydanticCustomError("no_load", "no power under load (give busy_w, load_w or both)")
            return None
        for key in ("busy_w", "idle_w"):
            below_w = info.data.get(key)
            if below_w is not None and load_w < below_w:
                what = f"{load_w:g} W at full load is less than the {below_w:g} W of {key} (give as much or more)"
                raise PydanticCustomError("load_below_busy", what)
        return load_w


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What one request costs, in joules or in money: linear in its execution time and its lengths, never negative."""

    per_s: float = 0.0
    """For each second of its execution."""
    per_src_token: float = 0.0
    per_tgt_token: float = 0.0
    fixed: float = 0.0

    def of(self, src_len: ArrayLike, tgt_len: ArrayLike, execution_s: ArrayLike) -> NDArray[np.float64]:
        """Return the cost of each request; broadcasts over its arguments."""
        src, tgt, seconds = (np.asarray(column, np.float64) for column in (src_len, tgt_len, execution_s))
        cost: NDArray[np.float64] = self.per_s * seconds + (self.per_src_token * src + self.per_tgt_token * tgt + self.fixed)
        return np.maximum(cost, 0.0)

    def plus(self, other: RequestCost) -> RequestCost:
        """Return the sum of two costs; both must be linear without a limit at 0."""
        return RequestCost(
            self.per_s + other.per_s,
            self.per_src_token + other.per_src_token,
            self.per_tgt_token + other.per_tgt_token,
            self.fixed + other.fixed,
        )


@dataclass(frozen=True, slots=True)
class BoxPower:
    """The power of one box that executes up to `capacity` requests at a time."""

    idle_w: float
    busy_w: float
    """With one request."""
    load_w: float
    """With `capacity` requests."""
    capacity: int
    kind: str
    """How the numbers are known: `given` in the scenario, or the kind of the profile's block `energy`."""
    measured: RequestCost | None = None
    """Joules of a request alone above the idle power, if they were measured by lengths."""

    @classmethod
    def given(cls, power: PowerConfiguration, capacity: int) -> BoxPower:
        """Return the power that a scenario gives."""
        busy_w, load_w = power.busy_w, power.load_w
        if busy_w is None:
            assert load_w is not None
            busy_w = power.idle_w + (load_w - power.idle_w) / capacity
        return cls(power.idle_w, busy_w, busy_w if load_w is None else load_w, capacity, "given")

    @classmethod
    def of_profile(cls, energy: EnergyBlock | None, capacity: int) -> BoxPower | None:
        """Return the power that a profile holds; None unless both the idle and the active power are known.

        A profile knows the power of one request alone, which is assumed for any number of them.
        """
        if energy is None or energy.idle_w is None or energy.active_w is None:
            return None
        busy_w, measured = max(energy.active_w, energy.idle_w), None
        if energy.j_per_src_token is not None and energy.j_per_tgt_token is not None and energy.j_fixed is not None:
            measured = RequestCost(-energy.idle_w, energy.j_per_src_token, energy.j_per_tgt_token, energy.j_fixed)
        return cls(energy.idle_w, busy_w, busy_w, capacity, energy.kind, measured)

    @property
    def dynamic_line(self) -> tuple[float, float]:
        """Watts above `idle_w` as a step at the first request, and a slope for each request: step + slope k for k >= 1."""
        slope_w = (self.load_w - self.busy_w) / (self.capacity - 1) if self.capacity > 1 else 0.0
        return self.busy_w - self.idle_w - slope_w, slope_w

    def dynamic_w(self, executing: ArrayLike) -> NDArray[np.float64]:
        """Return the watts above `idle_w` with so many requests at a time, 0 or at least 1; a mean need not be whole."""
        step_w, slope_w = self.dynamic_line
        count = np.asarray(executing, np.float64)
        return np.where(count > 0.0, step_w + slope_w * count, 0.0)

    @property
    def alone(self) -> RequestCost:
        """Joules above the idle power of a request that is executed alone, as a policy predicts them."""
        return self.measured or RequestCost(self.busy_w - self.idle_w)


def transfer_joules(bits: ArrayLike, j_per_bit: ArrayLike) -> Joules:
    """Return the joules of bits that pass a link, LEAF's only term of a link: it draws nothing while it is idle."""
    return np.asarray(bits, np.float64) * np.asarray(j_per_bit, np.float64)
