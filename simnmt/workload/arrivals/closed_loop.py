"""Arrivals that wait for answers: requests back to back (CNMT-02), and clients that think between answer and request."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from simnmt.workload.arrivals.durations import ThinkTime
from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Times, Undrawn


class BackToBack(Undrawn, ArrivalsConfiguration):
    """Each request is issued when the one before it is answered: the paper's protocol, without queues (CNMT-02)."""

    # The default is for a workload without arrivals; a mapping of arrivals must state the kind.
    model_config = ConfigDict(json_schema_extra={"required": ["kind"]})

    kind: Literal["back_to_back"] = "back_to_back"
    discipline: ClassVar[Discipline] = "back_to_back"
    clients: ClassVar[int] = 1
    mean_rate_rps: ClassVar[float | None] = None
    account: ClassVar[str] = "requests are issued back to back, each when the one before it is answered, so that nothing waits"


class Clients(Undrawn, ArrivalsConfiguration):
    """Clients that think, issue a request, wait for the answer and think again."""

    kind: Literal["clients"]
    clients: int = Field(ge=1, le=1_000_000)
    """Number of clients, over all end nodes."""
    think_time: ThinkTime
    """Time between an answer and the client's next request."""
    discipline: ClassVar[Discipline] = "closed"
    mean_rate_rps: ClassVar[float | None] = None
    """None: the answers set the pace, at most `clients` over the mean think time."""

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        many = f"{self.clients:,} client{'s' * (self.clients != 1)}"
        return (
            f"an assumed closed loop: {many}, think time {self.think_time}; no request is issued before its client has the "
            "last answer"
        )

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return the seconds from the client's last answer to request i, shape (size,)."""
        return self.think_time.draw(size, seed, replication, stream_name)
