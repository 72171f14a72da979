"""Route: before any translation, send what the last device is expected to translate better to it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import field_validator
from pydantic_core import PydanticCustomError

from simnmt.base.arrays import Floats
from simnmt.policies.decision import LeastTotal
from simnmt.policies.gains import NO_TRANSLATION, GainPolicySettings, Signal


class RoutePolicy(GainPolicySettings):
    """Decide once between the first device and the last one, by a signal of the source.

    Example:
        >>> RoutePolicy(kind="route", signal="src_len", seconds_per_point=0.01).decides_again
        False
    """

    kind: Literal["route"]

    @field_validator("signal")
    @classmethod
    def _of_the_source(cls, signal: Signal) -> Signal:
        if signal not in NO_TRANSLATION:
            known = ", ".join(NO_TRANSLATION)
            what = f"{signal} needs a translation, and route decides before there is one (choose {known}, or kind: cascade)"
            raise PydanticCustomError("no_translation", "{what}", {"what": what})
        return signal

    def weighed(self, times: LeastTotal, keeping_s: Floats) -> LeastTotal:
        """Return the decision, with the execution at the first device as part of what keeping costs."""
        return super().weighed(times, np.asarray(keeping_s + times.execution_s[0]))
