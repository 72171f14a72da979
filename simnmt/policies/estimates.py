"""Estimates of the transfer time of a target, learnt from answers (CNMT-11), and their settings in a scenario.

They are pure: the simulated world and the live gateway hold the same objects.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from simnmt.base.configuration import Configuration


class TransferEstimate:
    """An estimate of the transfer time, learnt from answers.

    With weight 1 the last measurement wins, to the bit, which is C-NMT's estimate. Below 1 each measurement moves the estimate
    by that share of the way towards itself, so that k measurements leave (1 - weight)**k of the initial value.
    """

    __slots__ = ("measured_at_s", "value_s", "weight")

    def __init__(self, initial_s: float, weight: float = 1.0) -> None:
        self.value_s = initial_s
        """Estimated transfer time, both ways together."""
        self.measured_at_s = 0.0
        """When the last measurement came; 0 for the initial value."""
        self.weight = weight
        """Weight of each new measurement."""

    def learn(self, transfer_s: float, at_s: float) -> None:
        """Take in the measurement of an answer that came at `at_s`; moments must not decrease."""
        if self.weight == 1.0:
            self.value_s = transfer_s
        else:
            self.value_s += self.weight * (transfer_s - self.value_s)
        self.measured_at_s = at_s


class QuantileEstimate(TransferEstimate):
    """An estimate by a quantile of the last measurements, which single high measurements do not move.

    The quantile is linear between measurements, as that of `numpy.quantile`. The initial value counts until the first
    measurement.
    """

    __slots__ = ("_latest_s", "quantile", "window")

    def __init__(self, initial_s: float, quantile: float, window: int) -> None:
        """`quantile`: a share from 0 to 1; `window`: the number of measurements that count, 1 or more."""
        super().__init__(initial_s)
        self.quantile, self.window = quantile, window
        self._latest_s = deque[float](maxlen=window)

    def learn(self, transfer_s: float, at_s: float) -> None:
        """Take in a measurement, and forget the oldest one if the window is full."""
        self._latest_s.append(transfer_s)
        sorted_s = sorted(self._latest_s)
        place = self.quantile * (len(sorted_s) - 1)
        below = int(place)
        low_s = sorted_s[below]
        high_s = sorted_s[min(below + 1, len(sorted_s) - 1)]
        self.value_s = low_s + (place - below) * (high_s - low_s)
        self.measured_at_s = at_s


class LastMeasured(Configuration):
    """The transfer time of the last offloaded request that was answered."""

    kind: Literal["last"]

    def estimate(self, initial_s: float) -> TransferEstimate:
        return TransferEstimate(initial_s)


class Smoothed(Configuration):
    """An exponentially weighted mean of the measurements."""

    kind: Literal["smoothed"]
    weight: Annotated[float, Field(gt=0.0, le=1.0)] = 0.125
    """Weight of each new measurement; with 1 only the last one counts. TCP smooths its round-trip time with 1/8 (RFC 6298)."""

    def estimate(self, initial_s: float) -> TransferEstimate:
        return TransferEstimate(initial_s, self.weight)


class Quantile(Configuration):
    """A quantile of the last measurements: a low one is close to the usual transfer time, whatever outliers are among them."""

    kind: Literal["quantile"]
    quantile: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """Share of the measurements that are not above the estimate; 0.5 is their median."""
    window: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Number of the last measurements that count; with 1 only the last one does."""

    def estimate(self, initial_s: float) -> TransferEstimate:
        return QuantileEstimate(initial_s, self.quantile, self.window)


def _kind_alone(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _or_kind_alone(schema: dict[str, Any]) -> None:
    schema["oneOf"].append({"enum": ["last", "smoothed", "quantile"], "type": "string"})


TransferEstimateSettings = Annotated[
    LastMeasured | Smoothed | Quantile,
    Field(discriminator="kind", json_schema_extra=_or_kind_alone),
    BeforeValidator(_kind_alone),
]
"""`last`, `smoothed` or `quantile`, or a mapping with one of these as its `kind`."""
