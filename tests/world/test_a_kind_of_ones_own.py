"""A fourth kind of server is one class: the world runs it, foresees it and hears its reports without a line of its own."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind
from simnmt.devices.device import Arrival, Balancer
from simnmt.policies import TransferEstimate
from simnmt.results.requests import Requests
from simnmt.world import simulation
from simnmt.world.deciders import Beliefs
from simnmt.world.reference import Clients, simulate
from tests.worlds import believing, everything_to


@dataclass
class TickingBox:
    """Begins an execution at a whole second alone, one after the other."""

    free_s: float = 0.0

    def begin_s(self, entry_s: float) -> float:
        return float(ceil(max(self.free_s, entry_s)))


class TickingPool(Kind):
    """Boxes that all follow one clock of seconds; an answer reports how many seconds its request had to wait."""

    records = frozenset({"execution_s"})

    def __init__(self, boxes: int) -> None:
        self.boxes = [TickingBox() for _ in range(boxes)]

    def open(self, site: Site) -> Serve:
        self._execution = site.layout.execution(site.target)

        def reaches(event: Any) -> None:
            number, begin_s, finish_s = self._enter(self.boxes, event.entry_s, event.row)
            site.trail["execution_s"][event.request] = finish_s - begin_s
            site.answer(event, begin_s, finish_s, number, begin_s, begin_s - event.entry_s)

        return reaches

    def _enter(self, boxes: Sequence[TickingBox], entry_s: float, row: Any) -> tuple[int, float, float]:
        number = row[1] % len(boxes)
        begin_s = boxes[number].begin_s(entry_s)
        boxes[number].free_s = finish_s = begin_s + row[self._execution]
        return number, begin_s, finish_s

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        boxes = [TickingBox(box.free_s) for box in self.boxes]
        for entry_s, _, row in (*ahead, arrival):
            _, begin_s, _ = self._enter(boxes, entry_s, row)
        return begin_s - arrival[0]


@dataclass(frozen=True)
class TickingSpec:
    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> TickingPool:
        return TickingPool(boxes)


class Reports:
    """A view that keeps what answers report, and believes in no wait."""

    at_entry = True

    def __init__(self) -> None:
        self.heard: list[tuple[float, float]] = []

    def added_s(self, at_s: float, expected: float) -> float:
        return 0.0

    def sent(self, at_s: float, expected: float) -> int:
        return 0

    def reported(self, number: int, wait_s: float, report: float, at_s: float) -> None:
        self.heard.append((wait_s, report))


def asked(requests: int = 300) -> Requests:
    random = np.random.default_rng(5)
    execution_s, (uplink_s, downlink_s) = random.random((2, requests)), 0.1 * random.random((2, requests))
    arrival_s, node = np.cumsum(random.exponential(0.5, requests)), np.arange(requests) % 3
    return Requests(np.ones(requests, np.int64), tuple(execution_s), (uplink_s,), (downlink_s,), arrival_s, node)


def test_as_a_remote_target_it_runs_is_foreseen_and_reports() -> None:
    requests, views = asked(), list[Reports]()
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1), views=(None, lambda: views.append(Reports()) or views[-1]))
    trail = simulate(
        requests,
        everything_to(1),
        beliefs,
        [TickingPool(3)],
        judged_share=1.0,
        expected_for=lambda block: [[0.0] * len(block)] * 2,
    )
    begins_s = requests.arrival_s + requests.uplink_s[0] + trail.queue_s
    np.testing.assert_allclose(begins_s, np.round(begins_s), atol=1e-9)
    np.testing.assert_allclose(trail.execution_s, requests.execution_s[1])
    assert set(trail.server) == {0, 1, 2} and trail.queue_s.mean() > 0.3
    assert np.isfinite(trail.lost_s).all() and (trail.lost_s >= 0.0).all() and (trail.lost_s > 0.0).any()
    assert len(views[0].heard) > 250 and all(wait_s == report for wait_s, report in views[0].heard)


@pytest.mark.parametrize("discipline", ["open", "closed"])
def test_as_the_deciders_device_it_keeps_requests_in_every_discipline(discipline: str) -> None:
    requests, closed = asked(), {}
    if discipline == "closed":
        requests = Requests(requests.src_len, requests.execution_s, (), (), None, requests.node)
        think_s = np.full(len(requests) + 3, 0.75)
        closed = {"clients": Clients(3, 3, think_s), "route": lambda request, node, now_s: ((), (), 0.0, 0.0)}
        requests = Requests(requests.src_len, requests.execution_s[:1], (), (), None, requests.node)
    servers = [] if closed else [Fifo()]
    trail = simulate(requests, everything_to(0), believing(0.1), servers, deciders=3, local=TickingSpec(), **closed)
    begins_s = trail.arrival_s + trail.queue_s
    np.testing.assert_allclose(begins_s, np.round(begins_s), atol=1e-9)
    assert (trail.queue_s > 0.0).mean() > 0.9


def test_an_oracle_is_told_what_the_request_will_wait_there() -> None:
    requests, foreseen_s = asked(), list[float]()
    beliefs = believing(0.1, clairvoyant=True)
    trail = simulate(
        requests, lambda block: lambda request, delay_s: foreseen_s.append(delay_s[1]) or 1, beliefs, [TickingPool(3)]
    )
    overtaken = np.array(foreseen_s) - requests.uplink_s[0] - requests.downlink_s[0] - trail.queue_s
    assert (np.abs(overtaken) < 1e-9).mean() > 0.9, "unless a later request overtakes it on the uplink"


def test_the_world_asks_nowhere_of_what_kind_a_server_is() -> None:
    """Traffic, disciplines and foresight name no kind and ask for none."""
    folder = Path(simulation.__file__).parent
    for name in ("traffic.py", "simulation.py", "server.py", "deciders.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        asks = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "isinstance"]
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not asks and not imported & {"simnmt.world.batch_pool", "simnmt.world.streaming_server"}, name


def test_a_row_holds_links_lengths_and_what_servers_add() -> None:
    assert (RowLayout(3).added, RowLayout(3, has_lengths=True).added) == (9, 11)
