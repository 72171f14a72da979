"""Reads from a disk (STI-07): the block of a profile, seconds by size from a table, and a token bucket that paces reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Count, Kind, Positive, Quantiles, RelativeError, RSquared, Seconds


@dataclass(slots=True)
class TokenBucket:
    """A bucket of bytes that may be read at once; it fills at `rate_bytes_per_s` up to `burst_bytes`, and starts full.

    Between any two moments, reads take at most the rate times the time between them, plus one burst. The bucket has no clock:
    a simulated disk and a real disk that is slowed down use it alike.
    """

    rate_bytes_per_s: float
    burst_bytes: float = 0.0
    _empty_s: float = field(default=-inf, init=False, repr=False)
    """Time at which the bucket was, or will be, empty; from then on it fills."""
    _begin_s: float = field(default=-inf, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (isfinite(self.rate_bytes_per_s) and self.rate_bytes_per_s > 0.0):
            raise ValueError("the rate must be a positive number of bytes a second")
        if not (isfinite(self.burst_bytes) and self.burst_bytes >= 0.0):
            raise ValueError("the burst must be a number of bytes, 0 or more")

    def end_s(self, begin_s: float, size_bytes: float) -> float:
        """Return when a read of `size_bytes` that begins at `begin_s` may end, at `begin_s` or later.

        Reads queue in the order of the calls. Raises `ValueError` for a negative size, or a beginning before the last one.
        """
        if not size_bytes >= 0.0:
            raise ValueError("a read has 0 bytes or more")
        if not begin_s >= self._begin_s:
            raise ValueError("reads must be asked for in the order in which they begin")
        self._begin_s = begin_s
        full_since_s = begin_s - self.burst_bytes / self.rate_bytes_per_s
        self._empty_s = max(self._empty_s, full_since_s) + size_bytes / self.rate_bytes_per_s
        return max(begin_s, self._empty_s)


@dataclass(frozen=True, slots=True, eq=False)
class ReadTable:
    """Seconds by size, interpolated on logarithmic scales; never less for more bytes.

    Smaller sizes take the time of the least size, larger sizes have the rate of the greatest.
    """

    size_bytes: Floats
    """Sizes, rising."""
    time_s: Floats
    """Seconds, positive; if a larger size took less, the time of the smaller size counts."""

    def seconds(self, size_bytes: Floats) -> Floats:
        """Return the seconds of one read of each size; same shape."""
        within = np.clip(size_bytes, self.size_bytes[0], self.size_bytes[-1])
        never_less = np.maximum.accumulate(self.time_s)
        inside = np.exp(np.interp(np.log(within), np.log(self.size_bytes), np.log(never_less)))
        beyond: Floats = inside * np.maximum(size_bytes / self.size_bytes[-1], 1.0)
        return beyond


class ReadSample(Quantiles):
    """Repeats of cold reads of one size."""

    bytes: Count


class DiskBlock(Configuration):
    """Time of one read by its size (STI-07)."""

    kind: Kind
    form: Literal["linear", "table"] = "linear"
    """Form that computes: s_fixed + bytes / bytes_per_s, or the medians of `samples`, interpolated on logarithmic scales."""
    s_fixed: Seconds
    bytes_per_s: Positive
    """Slope of the linear form, whichever form computes."""
    r2: RSquared | None = None
    """R2 of the linear form."""
    heldout_error: RelativeError | None = None
    """Mean absolute relative error of the form that computes on sizes left out one by one, without the least and greatest."""
    heldout_error_linear: RelativeError | None = None
    """Error of the linear form on the same sizes."""
    heldout_error_table: RelativeError | None = None
    samples: tuple[ReadSample, ...] = ()
    cold: bool
    """True if the page cache held nothing of what was read."""
    paced_bytes_per_s: Positive | None = None
    """Rate of a slower storage to be imitated, which no read exceeds."""

    @model_validator(mode="after")
    def _can_compute(self) -> DiskBlock:
        sizes = [sample.bytes for sample in self.samples]
        if self.form == "table" and (len(sizes) < 2 or sizes != sorted(set(sizes))):
            raise ValueError("samples: form table needs two at least, of rising bytes")
        return self

    def seconds(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of one read of each size, at the pace if there is one; same shape. Never less for more bytes."""
        size = np.asarray(size_bytes, np.float64)
        unpaced = self.s_fixed + size / self.bytes_per_s
        if self.form == "table":
            unpaced = ReadTable(*np.array([(read.bytes, read.median_s) for read in self.samples], np.float64).T).seconds(size)
        return unpaced if self.paced_bytes_per_s is None else np.maximum(unpaced, size / self.paced_bytes_per_s)
