"""How long what is left will take: from what the same cells took, else from what their kind of work took. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from simnmt.nmt.engine import Work


class Estimate:
    """Learns as it goes; knows nothing before the first measurement."""

    def __init__(self) -> None:
        self._by_work: dict[Work, float] = {}
        self._seconds = 0.0
        self._effort = 0.0

    def learn(self, work: Work, seconds: float) -> None:
        """This work took so long."""
        self._by_work[work] = seconds
        self._seconds += seconds
        self._effort += _effort(work)

    def seconds(self, works: Iterable[Work]) -> float:
        """What these would take one after another; 0 as long as nothing is known."""
        if self._effort == 0.0:
            return 0.0
        rate = self._seconds / self._effort
        return sum(self._by_work.get(work) or rate * _effort(work) for work in works)


def _effort(work: Work) -> float:
    """Time in units of a decode step of one sentence, as a server processor has it: a row more costs a tenth of a step."""
    rows = work.batch * work.beam
    return work.tgt_len * (0.9 + 0.1 * rows) + 0.03 * work.src_len * work.batch + 1.0
