"""Back to back: the next request is issued when the one before it is answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Times


class BackToBack(ArrivalsConfiguration):
    """Each request begins when the one before it ends: the paper's protocol, without queues (CNMT-02)."""

    kind: Literal["back_to_back"] = "back_to_back"

    def process(self, base: Path) -> BackToBackProcess:
        """The process; nothing is read."""
        return BackToBackProcess()


@dataclass(frozen=True, slots=True)
class BackToBackProcess:
    """The world sets the pace; nothing is drawn."""

    discipline: Discipline = "back_to_back"
    clients: int = 1
    mean_rate_rps: float | None = None
    account: str = "requests are issued back to back, each when the one before it is answered, so that nothing waits"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Nobody knows before the run: raises `TypeError`."""
        raise TypeError("back to back, the world sets the pace")

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Nobody thinks: raises `TypeError`."""
        raise TypeError("back to back, nobody thinks")

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """None: the corpus draws the lengths alone."""
        return None
