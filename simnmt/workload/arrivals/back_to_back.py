"""Back to back: the next request is issued when the one before it is answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Undrawn


class BackToBack(ArrivalsConfiguration):
    """Each request begins when the one before it ends: the paper's protocol, without queues (CNMT-02)."""

    # It has a default for a workload that names no arrivals; whoever names some has to say the kind.
    model_config = ConfigDict(json_schema_extra={"required": ["kind"]})

    kind: Literal["back_to_back"] = "back_to_back"

    def process(self, base: Path) -> BackToBackProcess:
        """The process; nothing is read."""
        return BackToBackProcess()


@dataclass(frozen=True, slots=True)
class BackToBackProcess(Undrawn):
    """The world sets the pace; nothing is drawn."""

    discipline: Discipline = "back_to_back"
    clients: int = 1
    mean_rate_rps: float | None = None
    account: str = "requests are issued back to back, each when the one before it is answered, so that nothing waits"
