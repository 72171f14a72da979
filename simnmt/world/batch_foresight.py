"""What would become of a request at a batched server, at a cost that does not grow with the queue."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simnmt.batching import Batching
from simnmt.world.batch_balancers import BatchEntry
from simnmt.world.batch_server import BatchServer


class ForeseenServer:
    """A server, and where many wait there, as it will be when few do.

    While more wait than anybody takes at a time, who comes later changes nothing. So the server is followed once, not once a
    request, up to the moment at which `enough` wait: four batches, or two collections, or two calls of the encoder.
    """

    __slots__ = ("_enough", "_later", "server")

    def __init__(self, server: BatchServer, batching: Batching) -> None:
        self.server = server
        self._enough = max(4 * batching.size, 2 * (batching.collected or 0), 2 * (batching.encoded_together or 0))
        self._later: BatchServer | None = None
        """The server as it will be; told of all who have come to it."""

    def arrived(self, entry: BatchEntry) -> None:
        """A request has entered."""
        if self._later is not None:
            self._later.arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)

    def later(self) -> BatchServer | None:
        """The server at the moment at which enough wait; None where no more do now."""
        if self.server.queued <= self._enough:
            self._later = None
            return None
        if self._later is None:
            self._later = self.server.copy()
            self._later.foretells = True
        while self._later.queued > self._enough:
            self._later.act()
        return self._later


class _Visited:
    """A server that was looked at for one request's sake: those that are to come there wait to be told to it."""

    __slots__ = ("_come", "_later", "_server", "_tokens")

    def __init__(self, foreseen: ForeseenServer) -> None:
        self._later = foreseen.later()
        self._server = foreseen.server if self._later is not None else foreseen.server.copy()
        self._come: list[BatchEntry] = []
        self._tokens = 0

    def advance(self, now_s: float) -> None:
        """Up to a moment; what happens at that moment has not happened yet."""
        if self._later is None:
            while self._server.next_s < now_s:
                self._server.act()

    def work_left(self, now_s: float) -> int:
        """At a moment; where many wait, at present, with those who have come since."""
        return self._server.work_left(min(now_s, self._server.next_s)) + self._tokens

    def arrive(self, entry: BatchEntry) -> None:
        """A request would enter."""
        if self._later is None:
            self._server.arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)
        else:
            self._come.append(entry)
            self._tokens += entry.tgt_len

    def finish_s(self, last: BatchEntry) -> float:
        """When the last that would enter would be done."""
        server = self._server
        if self._later is not None:
            server = self._later.copy()
            for each in self._come:
                server.arrive(each.request, each.src_len, each.tgt_len, each.entry_s)
        server.foretells = True
        now_s = last.entry_s
        while True:
            if server.next_s == inf:
                server.close(now_s)
            now_s = server.next_s
            for sentence in server.act():
                if sentence.request == last.request:
                    return sentence.finish_s


class ForeseenServers(Sequence[_Visited]):
    """Servers as they will be, of which only those are copied that are looked at."""

    __slots__ = ("_servers", "_visited", "now_s")

    def __init__(self, servers: Sequence[ForeseenServer]) -> None:
        self._servers, self._visited = servers, dict[int, _Visited]()
        self.now_s = 0.0

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, number: int) -> _Visited:  # type: ignore[override]
        """As it will be at `now_s`."""
        visited = self._visited.get(number)
        if visited is None:
            visited = self._visited[number] = _Visited(self._servers[number])
        visited.advance(self.now_s)
        return visited
