"""The record of a run: what only the simulation knows of each request, and the accounts of the servers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from simnmt.results.device_accounts import BatchAccount
from simnmt.world.deciders import Decider
from simnmt.world.streaming_server import StreamingAccount


@dataclass(frozen=True, slots=True)
class Trail:
    """What only the simulation knows; one entry per request, in request order. The rest follows from the columns."""

    arrival_s: NDArray[np.float64]
    """When the request was issued; in an open loop, when its decider had it."""
    decided_s: NDArray[np.float64]
    """When its decider had it."""
    target: NDArray[np.int8]
    server: NDArray[np.int16]
    """Which server of the target's tier; 0 on the decider's own device."""
    queue_s: NDArray[np.float64]
    """Waited before execution."""
    estimate_s: NDArray[np.float64]
    """The transfer time to the last target that the decider believed in when it decided."""
    measured_at_s: NDArray[np.float64]
    """When that estimate had been measured; 0 for the initial one."""
    probes: int = 0
    """Probes sent, by all deciders."""
    node: NDArray[np.int32] | None = None
    """The end nodes that asked, where the loop is closed and the clients' answers say who asks next."""
    execution_s: NDArray[np.float64] | None = None
    """At a target that batches, from the begin of its encoding to its end, and at one that streams its model, from its turn at
    the processor to its end; NaN elsewhere. None where no target does either."""
    first_token_s: NDArray[np.float64] | None = None
    """At such a target, from its arrival there to the end of its first step, or of the model where it takes none; NaN elsewhere
    and, at a target that batches, without output."""
    batches: tuple[BatchAccount | None, ...] = ()
    """Per target, the account of its batches; None where it does not batch. Empty where no target does."""
    lost_s: NDArray[np.float64] | None = None
    """By how much the chosen target would take longer than the best one, as an oracle foresees both when the decision is made;
    NaN for requests that were not judged. None if none was."""
    state: NDArray[np.int8] | None = None
    """At a target that streams its model: 0 cold, k in the k-th turn of an engagement; -1 elsewhere. None where no target does,
    and so the next two."""
    stall_s: NDArray[np.float64] | None = None
    """There, how long the processor waited for reads in its turn; 0 elsewhere."""
    deadline_missed: NDArray[np.bool_] | None = None
    """There, whether it ended later after it had come than the deadline says; False elsewhere."""
    streamed: tuple[StreamingAccount | None, ...] = ()
    """Per target, the account of its boxes; None where they do not stream their model. Empty where no target's do."""


class Recorder:
    """A trail under way: plain columns, 35 bytes a request, 51 where servers batch, 61 where they stream; 8 with `lost_s`."""

    __slots__ = (
        "arrival_s",
        "deadline_missed",
        "estimate_s",
        "execution_s",
        "first_token_s",
        "lost_s",
        "measured_at_s",
        "queue_s",
        "server",
        "stall_s",
        "state",
        "target",
    )

    def __init__(self, requests: int, batched: bool = False, lost: bool = False, streamed: bool = False) -> None:
        self.arrival_s, self.queue_s, self.estimate_s, self.measured_at_s = (array("d", [0.0]) * requests for _ in range(4))
        self.target, self.server = array("b", [0]) * requests, array("h", [0]) * requests
        unknown = array("d", [nan])
        self.execution_s, self.first_token_s = (unknown * (requests if batched or streamed else 0) for _ in range(2))
        self.lost_s = unknown * (requests if lost else 0)
        there = requests if streamed else 0
        self.state, self.stall_s, self.deadline_missed = array("b", [-1]) * there, array("d", [0.0]) * there, bytearray(there)

    def finished(
        self,
        deciders: Sequence[Decider],
        batches: tuple[BatchAccount | None, ...] = (),
        streamed: tuple[StreamingAccount | None, ...] = (),
    ) -> Trail:
        """The trail as columns; `batches`, `streamed`: per target, empty where no target batches, or streams its model."""
        arrival_s = np.frombuffer(self.arrival_s, np.float64)
        return Trail(
            arrival_s,
            arrival_s,
            np.frombuffer(self.target, np.int8),
            np.frombuffer(self.server, np.int16),
            np.frombuffer(self.queue_s, np.float64),
            np.frombuffer(self.estimate_s, np.float64),
            np.frombuffer(self.measured_at_s, np.float64),
            sum(decider.probes_sent for decider in deciders),
            execution_s=np.frombuffer(self.execution_s) if batches or streamed else None,
            first_token_s=np.frombuffer(self.first_token_s) if batches or streamed else None,
            batches=batches,
            lost_s=np.frombuffer(self.lost_s) if self.lost_s else None,
            state=np.frombuffer(self.state, np.int8) if streamed else None,
            stall_s=np.frombuffer(self.stall_s) if streamed else None,
            deadline_missed=np.frombuffer(self.deadline_missed, np.bool_) if streamed else None,
            streamed=streamed,
        )
