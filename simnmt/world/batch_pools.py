"""The batched servers of one tier, and what an oracle foresees of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simnmt.batching import Batching
from simnmt.results.batches import BatchAccount
from simnmt.world.batch_balancers import Balancer, BatchEntry, ByNode
from simnmt.world.batch_foresight import ForeseenServer, ForeseenServers
from simnmt.world.batch_server import BatchServer
from simnmt.world.server_cost import ServerCost, StepTimes


@dataclass(frozen=True, slots=True)
class Batched:
    """How the servers of a tier batch, and what their work takes."""

    batching: Batching
    cost: ServerCost


class BatchPool:
    """The servers of one tier, idle at first. Entries come in order of time; between them the servers are to be let act."""

    __slots__ = ("_balancer", "_foreseen", "servers")

    def __init__(self, batched: Batched, servers: int = 1, balancer: Balancer | None = None) -> None:
        """`balancer`: None: as the nodes are attached."""
        times = StepTimes(batched.cost)
        self.servers: Sequence[BatchServer] = [BatchServer(batched.batching, batched.cost, times) for _ in range(servers)]
        self._foreseen = [ForeseenServer(server, batched.batching) for server in self.servers]
        self._balancer = ByNode() if balancer is None else balancer

    def enter(self, entry: BatchEntry) -> int:
        """Let a request enter; returns the number of its server, whose `next_s` may have changed."""
        chosen = self._balancer.chosen(self.servers, entry)
        self.servers[chosen].arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)
        self._foreseen[chosen].arrived(entry)
        return chosen

    def finish_s(self, entry: BatchEntry, ahead: Iterable[BatchEntry]) -> float:
        """When a request would be done that enters after those `ahead` of it, in their order, as the last; nothing changes.

        A batch that waits for company waits until it is due, or full with those who are known to come; one that would wait
        for ever does not. Where more wait than `ForeseenServer` says, a balancer that compares servers is taken to compare
        what they have to do at present, and not at the moment of entry.
        """
        servers = ForeseenServers(self._foreseen)
        balancer = self._balancer.copy()
        for each in (*ahead, entry):
            servers.now_s = each.entry_s
            chosen = balancer.chosen(servers, each)
            servers[chosen].arrive(each)
        return servers[chosen].finish_s(entry)

    def account(self) -> BatchAccount:
        """Of all servers together."""
        first, *others = (server.account.finished() for server in self.servers)
        return first.merged(others)
