"""The account of the faults of a run: the executions that answered no request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FaultAccount:
    """The faults of one run under one policy."""

    failed_executions: int
    """Requests that a failing box dropped."""
    extra_work: tuple[NDArray[np.float64], ...]
    """By target and box, the work of executions that answered no request: seconds, or target tokens with the end of the
    sentence if the target batches."""
