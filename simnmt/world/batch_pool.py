"""The batched servers of a target: the pool on the clock, what an oracle foresees, and one server without a clock.

`BatchPool` lets the servers act in time. `ForeseenServer` computes when a request would be done, at a cost that does not grow
with the queue. `decode_all` runs a single server without a clock.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappush
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.batching import Batching
from simnmt.batching.custom import CustomBatching
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Block
from simnmt.world.batch_server import BatchServer, Sentence, ServerCost, StepTimes
from simnmt.world.clock import SERVER_ACTS, Event
from simnmt.world.server import Arrival, Balancer, ByNode, RequestEvent, Row, Serve, Server, Site

Column = NDArray[np.float64]
Arriving = tuple[int, int, int, float, float]
"""Request, source and target tokens, when it arrives, and its factor: the arguments of `BatchServer.arrive`."""


def enough_waiting(batching: Batching) -> int:
    """Return the number of waiting sentences beyond which later arrivals change nothing for now; no number is for a batcher of
    a user, which may take any of them."""
    if isinstance(batching, CustomBatching):
        return sys.maxsize
    return max(4 * batching.size, 2 * (batching.collected or 0), 2 * (batching.encoded_together or 0))


class ForeseenServer:
    """A server, and if many sentences wait there, a copy of it at the later moment when few do.

    While more sentences wait than can be taken at a time, later arrivals change nothing. So the copy advances once, not once a
    request, to the moment at which `enough` wait: four batches, or two collections, or two calls of the encoder.
    """

    __slots__ = ("_enough", "_later", "server")

    def __init__(self, server: BatchServer, batching: Batching) -> None:
        self.server = server
        self._enough = enough_waiting(batching)
        self._later: BatchServer | None = None
        """The copy at that moment, with all sentences that have arrived."""

    def arrived(self, sentence: Arriving) -> None:
        """Note a sentence that has reached the server."""
        if self._later is not None:
            self._later.arrive(*sentence)

    def later(self) -> BatchServer | None:
        """Return the server at the moment when enough sentences wait; None if no more wait now."""
        if self.server.queued <= self._enough:
            self._later = None
            return None
        if self._later is None:
            self._later = self.server.copy()
            self._later.foretells = True
        while self._later.queued > self._enough:
            self._later.act()
        return self._later


class _TrialServer:
    """A copy of a server for the look ahead of one request; with a later copy, arrivals are collected until the finish is asked
    for."""

    __slots__ = ("_come", "_later", "_server", "_tokens")

    def __init__(self, foreseen: ForeseenServer) -> None:
        self._later = foreseen.later()
        self._server = foreseen.server if self._later is not None else foreseen.server.copy()
        self._come: list[Arriving] = []
        self._tokens = 0

    def advance(self, now_s: float) -> None:
        """Advance to a moment, but not past its events."""
        if self._later is None:
            while self._server.next_s < now_s:
                self._server.act()

    def work_left(self, now_s: float) -> int:
        """Return the work left at a moment; if many sentences wait, the present work with the collected arrivals."""
        return self._server.work_left(min(now_s, self._server.next_s)) + self._tokens

    def arrive(self, sentence: Arriving) -> None:
        """Let a sentence enter."""
        if self._later is None:
            self._server.arrive(*sentence)
        else:
            self._come.append(sentence)
            self._tokens += sentence[2]

    def finish_s(self, last: Arriving) -> float:
        """Return when `last`, the last sentence to enter, would finish."""
        server = self._server
        if self._later is not None:
            server = self._later.copy()
            for earlier in self._come:
                server.arrive(*earlier)
        server.foretells = True
        request, _, _, now_s, _ = last
        while True:
            if server.next_s == inf:
                server.close(now_s)
            now_s = server.next_s
            for sentence in server.act():
                if sentence.request == request:
                    return sentence.finish_s


class ForeseenServers(Sequence[_TrialServer]):
    """Trial copies of servers, made on first access."""

    __slots__ = ("_servers", "_visited", "now_s")

    def __init__(self, servers: Sequence[ForeseenServer]) -> None:
        self._servers, self._visited = servers, dict[int, _TrialServer]()
        self.now_s = 0.0

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, number: int) -> _TrialServer:  # type: ignore[override]
        """Return the trial server, advanced to `now_s`."""
        visited = self._visited.get(number)
        if visited is None:
            visited = self._visited[number] = _TrialServer(self._servers[number])
        visited.advance(self.now_s)
        return visited


@dataclass(frozen=True, slots=True)
class BatchServerSpec:
    """How the servers of a target batch, with their costs."""

    batching: Batching
    cost: ServerCost
    varies: bool = False
    """True if sentences of the same lengths take different times: in batches too, a request takes its seconds of execution
    over the usual ones, `cost.solo_s`."""

    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> BatchPool:
        """Return idle servers; without a `balancer` each end node has its server."""
        return BatchPool(self, boxes, balancer)


class _ServerEvent(Event):
    """The moment at which a server acts; ignored if the server now acts at another moment."""

    __slots__ = ("at_s", "box")

    at_s: float
    box: int


class BatchPool(Server):
    """The servers of one target, which act on the clock."""

    records = frozenset({"execution_s", "first_token_s"})
    needs_tgt_len = True

    def __init__(self, batched: BatchServerSpec, boxes: int = 1, balancer: Balancer | None = None) -> None:
        """Create idle servers; without a `balancer` each end node has its server."""
        self.batched = batched
        times = StepTimes(batched.cost)
        self.boxes: Sequence[BatchServer] = [BatchServer(batched.batching, batched.cost, times) for _ in range(boxes)]
        self._foreseen = [ForeseenServer(box, batched.batching) for box in self.boxes]
        self.balancer = ByNode() if balancer is None else balancer
        self._armed: list[set[float]] = [set() for _ in self.boxes]
        """By box, the moments for which it is on the clock."""
        self._events: dict[int, RequestEvent] = {}
        """Requests at the servers, by number."""
        self._callbacks = (self._acts,)
        self._usual_s = batched.cost.solo_s if batched.varies else None
        self.columns = int(batched.varies)

    def row_columns(self, block: Block, execution_s: Column) -> list[Column]:
        """Return the factors of a block's requests, if they vary."""
        if self._usual_s is None:
            return []
        assert block.tgt_len is not None
        usual_s = self._usual_s(block.src_len, block.tgt_len)
        return [np.divide(execution_s, usual_s, out=np.ones(len(usual_s)), where=usual_s > 0.0)]

    def _arriving(self, request: int, row: Row, now_s: float) -> Arriving:
        lengths = self._site.layout.lengths
        factor = row[self._site.added] if self.columns else 1.0
        return request, row[lengths], row[lengths + 1], now_s, factor

    def open(self, site: Site) -> Serve:
        """Register the servers in the world: a request waits at a box, which answers when it acts."""
        self._site = site
        return self._reaches

    def _reaches(self, event: Any) -> None:
        request, row, now_s = event.request, event.row, event.entry_s
        self._events[request] = event
        box = self.balancer.choose(self.boxes, now_s, request, row[1])
        sentence = self._arriving(request, row, now_s)
        self.boxes[box].arrive(*sentence)
        self._foreseen[box].arrived(sentence)
        self._arm(box)

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return what `arrival` would take beyond execution alone after the requests in `ahead`. Has no side effects.

        A batch that waits for company waits until it is due, or full with known arrivals; one that would wait for ever begins
        at once. If more sentences wait than `ForeseenServer` allows, a balancer that compares servers compares their present
        work, not that at the moment of entry.
        """
        boxes, balancer, layout = ForeseenServers(self._foreseen), self.balancer.copy(), self._site.layout
        for boxes.now_s, request, row in (*ahead, arrival):
            chosen = balancer.choose(boxes, boxes.now_s, request, row[1])
            sentence = self._arriving(request, row, boxes.now_s)
            boxes[chosen].arrive(sentence)
        return boxes[chosen].finish_s(sentence) - boxes.now_s - float(row[layout.execution(self._site.target)])

    def close(self) -> bool:
        """Stop waiting for company, since no event is left; return whether a sentence was waiting."""
        holding = [number for number, box in enumerate(self.boxes) if box.holds]
        for number in holding:
            self.boxes[number].close(self._site.clock.now_s)
            self._arm(number)
        return bool(holding)

    def account(self) -> BatchAccount:
        """Return the account of all boxes."""
        first, *others = (box.account.finished() for box in self.boxes)
        return first.merged(others)

    def _arm(self, box: int) -> None:
        at_s, armed = self.boxes[box].next_s, self._armed[box]
        if at_s not in armed and at_s < inf:
            armed.add(at_s)
            event = _ServerEvent()
            event.at_s, event.box = at_s, box
            event.callbacks = self._callbacks
            heappush(self._site.clock.heap, (at_s, SERVER_ACTS, self._site.first_box + box, event))

    def _acts(self, event: Any) -> None:
        box, now_s = event.box, event.at_s
        self._armed[box].discard(now_s)
        server = self.boxes[box]
        if server.next_s != now_s:
            return
        passes = self._site.clock.passes
        while True:
            for sentence in server.act():
                self._answer(sentence, box, server.left)
            now_s = server.next_s
            if not (now_s < inf and passes(now_s)):
                break
        self._arm(box)

    def _answer(self, sentence: Sentence, box: int, left: tuple[int, int]) -> None:
        """Send the answer of a finished sentence; it reports how many sentences were left in its batch, and wait."""
        event, site, finish_s = self._events.pop(sentence.request), self._site, sentence.finish_s
        site.trail["execution_s"][event.request] = finish_s - sentence.begin_s
        site.trail["first_token_s"][event.request] = sentence.first_s - event.entry_s
        site.answer(event, sentence.begin_s, finish_s, box, finish_s, left)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The times of decoded sentences; columns in the order given, shape (sentences,), seconds."""

    finish_s: Column
    """When each sentence was done."""
    first_token_s: Column
    """From its arrival to the end of its first step; NaN without one."""
    begin_s: Column
    """When its encoding began."""
    account: BatchAccount
    total_s: float
    """When the last sentence was done; 0 without sentences."""


def decode_all(
    batching: Batching, cost: ServerCost, src_len: ArrayLike, tgt_len: ArrayLike, arrival_s: ArrayLike | None = None
) -> Decoded:
    """Let one server decode sentences that are all there at 0, or arrive at `arrival_s`, in order of time.

    The server knows when no more will come. Lengths in tokens; `tgt_len`: steps of each sentence, 0 or more. Raises
    `ValueError` for columns of different lengths and for arrivals out of order.
    """
    src_lens, tgt_lens, arrivals = checked_sentences(src_len, tgt_len, arrival_s)
    sources, targets = src_lens.tolist(), tgt_lens.tolist()
    server = BatchServer(batching, cost, foretells=True)
    begin_s, finish_s, first_s = (np.full(len(sources), np.nan).tolist() for _ in range(3))

    def act() -> None:
        for sentence in server.act():
            request = sentence.request
            begin_s[request], finish_s[request], first_s[request] = sentence.begin_s, sentence.finish_s, sentence.first_s

    arrive = server.arrive
    for request, now_s in enumerate(arrivals.tolist()):
        while server.next_s < now_s:
            act()
        arrive(request, sources[request], targets[request], now_s)
    if sources:
        server.close(float(arrivals[-1]))
    while server.holds:
        act()
    return Decoded(
        np.asarray(finish_s, np.float64),
        np.asarray(first_s, np.float64) - arrivals,
        np.asarray(begin_s, np.float64),
        server.account.finished(),
        max(finish_s, default=0.0),
    )


def checked_sentences(
    src_len: ArrayLike, tgt_len: ArrayLike, arrival_s: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Column]:
    """Return source tokens, target tokens and arrivals of sentences, shape (sentences,); errors as of `decode_all`."""
    sources, targets = np.asarray(src_len, np.int64), np.asarray(tgt_len, np.int64)
    arrivals = np.zeros(len(sources)) if arrival_s is None else np.asarray(arrival_s, np.float64)
    if not len(sources) == len(targets) == len(arrivals):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets, {len(arrivals)} arrivals")
    if (np.diff(arrivals) < 0.0).any():
        raise ValueError("arrivals out of order")
    return sources, targets, arrivals
