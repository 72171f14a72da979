"""The boxes of one tier that stream their model, and which of them a request enters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simnmt.world.batch_balancers import Balancer, BatchEntry, ByNode
from simnmt.world.pools import CopiedOnUse
from simnmt.world.requests import Row
from simnmt.world.streamed import Served, Streamed, StreamedAccount, StreamedBox

StreamedEntry = tuple[float, int, Row]
"""When a request reaches the tier, its number, and its row."""


class StreamedPool:
    """The boxes of one tier, cold at first; entries come in order of time.

    A balancer that compares boxes compares how long their processors are busy: it knows queues, and nothing of memories.
    """

    __slots__ = ("_attached", "_balancer", "_execution", "boxes", "columns_at", "streamed")

    def __init__(self, streamed: Streamed, boxes: int = 1, balancer: Balancer | None = None) -> None:
        """`balancer`: None: as the nodes are attached."""
        self.streamed = streamed
        self.boxes: Sequence[StreamedBox] = [StreamedBox(streamed) for _ in range(boxes)]
        self._balancer = ByNode() if balancer is None else balancer
        self._attached = boxes == 1 or isinstance(self._balancer, ByNode)
        self.place(0, 0)

    def place(self, execution: int, columns_at: int) -> None:
        """Where rows hold the execution here, and from where on what `Streamed.row_columns` gives."""
        self._execution, self.columns_at = execution, columns_at

    def enter(self, entry_s: float, request: int, row: Row) -> tuple[Served, int]:
        """Let a request enter; what becomes of it, and at which box."""
        boxes = self.boxes
        if self._attached:  # what `ByNode` would say as well
            chosen = row[1] % len(boxes)
        else:
            chosen = self._balancer.chosen(boxes, BatchEntry(entry_s, request, 0, 0, row[1]))
        return boxes[chosen].serve(entry_s, row[self._execution], row, self.columns_at + 2), chosen

    def finish_s(self, entry: StreamedEntry, ahead: Iterable[StreamedEntry]) -> float:
        """When a request would end that enters after those `ahead` of it, in their order; nothing changes."""
        trial = StreamedPool.__new__(StreamedPool)
        trial.streamed, trial.boxes = self.streamed, CopiedOnUse(self.boxes)
        trial._balancer, trial._attached = self._balancer.copy(), self._attached
        trial.place(self._execution, self.columns_at)
        for earlier in ahead:
            trial.enter(*earlier)
        (_, finish_s, _, _), _ = trial.enter(*entry)
        return finish_s

    def account(self) -> StreamedAccount:
        """Of all boxes."""
        reads = [box.reads() for box in self.boxes]
        by_state = tuple(map(sum, zip(*(box.by_state for box in self.boxes), strict=True)))
        return StreamedAccount(
            boxes=len(self.boxes),
            requests=sum(by_state),
            by_state=by_state,
            compute_s=sum(box.compute_s for box in self.boxes),
            stall_s=sum(box.stall_s for box in self.boxes),
            read_s=sum(read_s for read_s, _ in reads),
            read_bytes=sum(read_bytes for _, read_bytes in reads),
            peak_preload_bytes=max(box.peak_bytes for box in self.boxes),
            peak_shard_bytes=max(box.peak_shard_bytes for box in self.boxes),
            working_bytes=max(streamed.working_bytes for _, streamed, _ in self.streamed.phases()),
            ledgers=tuple(self.boxes),
        )
