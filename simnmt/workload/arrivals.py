"""When requests arrive: back to back, or as a Poisson process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simnmt import streams
from simnmt.configuration import Configuration


class BackToBack(Configuration):
    """Each request begins when the one before it ends: the paper's protocol, without queues (CNMT-02)."""

    kind: Literal["back_to_back"] = "back_to_back"


class Poisson(Configuration):
    """Requests arrive independently of each other at a constant mean rate."""

    kind: Literal["poisson"]
    rate_rps: float = Field(ge=1e-6, le=1e9)
    """Mean requests per second, over all end nodes."""


Arrivals = Annotated[BackToBack | Poisson, Field(discriminator="kind")]
"""What a scenario may say under `arrivals`."""

Gaps = Callable[[np.random.Generator, int], NDArray[np.float64]]


def _poisson_gaps(config: Poisson) -> Gaps:
    return lambda generator, count: generator.standard_exponential(count) / config.rate_rps


_GAPS: dict[type[Configuration], Callable[..., Gaps] | None] = {BackToBack: None, Poisson: _poisson_gaps}
"""The registry of kinds: a configuration -> how its gaps are drawn; None where the world sets the pace."""


def times(
    config: BackToBack | Poisson, size: int, seed: int, replication: int, stream_name: str = "arrivals"
) -> NDArray[np.float64] | None:
    """Arrival times in seconds, shape (size,), sorted, the first one gap after zero; None for back to back.

    `stream_name`: one for each workload, else two workloads would meet the same gaps. A longer run with the same key
    begins with exactly the shorter one.
    """
    gaps = _GAPS[type(config)]
    if gaps is None:
        return None
    # cumsum adds one after another, so that the times of a prefix are the prefix of the times, to the bit.
    return np.cumsum(streams.draw(seed, replication, stream_name, size, gaps(config)))
