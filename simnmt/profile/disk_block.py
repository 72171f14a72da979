"""The block of a device profile that says how long reads from its disk take (STI-07)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Count, Kind, Positive, Quantiles, RelativeError, RSquared, Seconds
from simnmt.profile.device_cost import ReadTable


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
