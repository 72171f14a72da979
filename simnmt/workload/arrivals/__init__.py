"""Arrival processes: when requests are issued, one kind per class.

To read it, start with `process.py` (the protocol of all kinds), `stationary.py` (the simplest kinds) and `recording.py` (logs
that are replayed). To add a kind, write a file with a configuration class and add its name to `Arrivals`: the class has the
keys of the scenario file and returns the process; a kind that reads no file is its own process.
It imports only `base`, and the line reader and the reuse of texts of `workload`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simnmt.workload import ArrivalsError
from simnmt.workload.arrivals.engagements import Engagements
from simnmt.workload.arrivals.process import ArrivalProcess, RandomStream
from simnmt.workload.arrivals.recording import Recorded
from simnmt.workload.arrivals.stationary import BackToBack, Clients, Poisson, Renewal
from simnmt.workload.arrivals.varying import OnOff, Varying

__all__ = ["ArrivalProcess", "Arrivals", "ArrivalsError", "BackToBack", "Clients", "Poisson", "RandomStream", "Recorded"]

Arrivals = Annotated[
    BackToBack | Poisson | Renewal | Varying | OnOff | Recorded | Engagements | Clients, Field(discriminator="kind")
]
"""Every kind that a scenario may give under `arrivals`."""
