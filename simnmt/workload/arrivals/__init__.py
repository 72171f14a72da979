"""When requests arrive: each kind in a file of its own, with what a scenario may say of it and the process that comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from simnmt.workload.arrivals.closed_loop import BackToBack, Clients
from simnmt.workload.arrivals.engagements import Engagements
from simnmt.workload.arrivals.process import ArrivalProcess, ArrivalsConfiguration
from simnmt.workload.arrivals.recording import Recorded
from simnmt.workload.arrivals.stationary_arrivals import OnOff, Poisson, Renewal
from simnmt.workload.arrivals.varying_rate import Varying
from simnmt.workload.errors import ArrivalsError

__all__ = [
    "ArrivalProcess",
    "Arrivals",
    "ArrivalsConfiguration",
    "ArrivalsError",
    "BackToBack",
    "Clients",
    "Engagements",
    "OnOff",
    "Poisson",
    "Recorded",
    "Renewal",
    "Varying",
    "input_paths",
    "load_arrivals",
    "resolved",
]

Arrivals = Annotated[
    BackToBack | Poisson | Renewal | Varying | OnOff | Recorded | Engagements | Clients, Field(discriminator="kind")
]
"""What a scenario may say under `arrivals`; a new kind is a file and a word here."""


def load_arrivals(config: ArrivalsConfiguration, base: Path) -> ArrivalProcess:
    """The process that a configuration describes; relative paths start at the folder `base`.

    Raises `ArrivalsError`, with line and column, for a file that cannot be used.
    """
    return config.process(base)


def input_paths(config: ArrivalsConfiguration, base: Path) -> list[Path]:
    """The files that `load_arrivals` reads."""
    return config.input_paths(base)


def resolved(config: ArrivalsConfiguration, base: Path) -> ArrivalsConfiguration:
    """The same configuration with absolute paths."""
    return config.resolved(base)
