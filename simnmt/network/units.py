"""Whether the numbers of a series can be in the unit that they were read in."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError

PLAUSIBLE_MEDIAN_S = 10.0
"""A median RTT above this is a wrong unit, not a network."""
LAN_MEDIAN_S = 0.5e-3
"""A median RTT below this is that of a cable across a room, or of seconds read as milliseconds."""
PLAUSIBLE_MEDIAN_BPS = 1e12
"""A median bandwidth above this is a wrong unit, not a network."""

MOST_RTT_S = 86_400.0
"""A single round trip above this, a day, is a slip of whoever wrote the file; sums of such times overflow."""
MOST_BANDWIDTH_BPS = 1e15

_SMALLER = {"s": "milliseconds read as seconds", "ms": "microseconds read as milliseconds"}


def check_rtt_unit(rtt_s: NDArray[np.float64], unit: str, what: str, path: str | os.PathLike[str] | None, remedy: str) -> None:
    """Raise `TraceError` where the median betrays that `what` was not in `unit`; NaN does not count."""
    median_s = float(np.nanmedian(rtt_s))
    if median_s > PLAUSIBLE_MEDIAN_S:
        cause = _SMALLER.get(unit, "numbers of a smaller unit")
        raise TraceError(f"the median {what} would be {median_s:.4g} s; these look like {cause}", path=path, remedy=remedy)


def like_seconds_read_as_ms(rtt_s: NDArray[np.float64]) -> str | None:
    """Return why a series that was read as milliseconds may hold seconds; None where it need not. NaN does not count."""
    known = rtt_s[~np.isnan(rtt_s)]
    median_s = float(np.median(known)) if known.size else LAN_MEDIAN_S
    if median_s >= LAN_MEDIAN_S:
        return None
    return f"the median would be {median_s * 1e3:.3g} ms, as across a room: these look like seconds read as milliseconds"


def check_rate_unit(
    rate_bps: NDArray[np.float64], unit: str, what: str, path: str | os.PathLike[str] | None, remedy: str
) -> None:
    """Raise `TraceError` where the median betrays that `what` was not in `unit`; NaN does not count."""
    median_bps = float(np.nanmedian(rate_bps))
    if median_bps > PLAUSIBLE_MEDIAN_BPS:
        cause = f"a smaller unit read as {unit}"
        said = f"the median {what} would be {median_bps / 1e9:.4g} Gbit/s; these look like {cause}"
        raise TraceError(said, path=path, remedy=remedy)
