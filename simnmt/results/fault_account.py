"""The account of the faults of a run: what was sent again, sent twice, discarded or lost, and the work without an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COUNTS = ("hedges", "late_answers", "spare_answers", "retransmissions", "messages_given_up", "failed_executions", "retries")
"""What is counted: second copies; answers after the request had fallen back; answers of a request that another copy had
answered; messages sent again; messages given up; requests dropped by a failing box; and requests tried again after that."""


@dataclass(frozen=True, slots=True)
class FaultAccount:
    """The faults of one run under one policy."""

    counts: Mapping[str, int]
    """By the names of `COUNTS`."""
    extra_work: tuple[NDArray[np.float64], ...]
    """By target and box, the work of executions that answered no request: seconds, or target tokens with the end of the
    sentence if the target batches."""

    def shares(self, requests: int) -> dict[str, float | None]:
        """Return the counts per request, by the column of the summary."""
        return {f"{name}_per_request": count / requests for name, count in self.counts.items()}
