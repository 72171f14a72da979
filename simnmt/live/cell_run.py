"""One cell of a validation, live: a policy, a batching, a load and a link on the testbed, with all that was measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import SimnmtError
from simnmt.calibrate.processor_use import BusyWatch
from simnmt.experiment.cases import Unit
from simnmt.live.decider import replayed_targets
from simnmt.live.deployment import ReplayedRequests, engine_settings
from simnmt.live.front import FrontSettings
from simnmt.live.gateway import GatewaySettings
from simnmt.live.server import ServerSettings
from simnmt.live.testbed import EndService, Node, ServeGateway, ServeLink, ServeModel
from simnmt.network.link import bytes_per_token
from simnmt.results.live_log import DecisionRecord, LiveColumns, read_decider_events, read_live_log
from simnmt.service.addresses import parse_address
from simnmt.service.client import TranslationClient
from simnmt.service.link import LinkSettings
from simnmt.service.load import Load, LoadLog, send_load
from simnmt.service.precise_timers import reduce_timer_slack, run_precisely

Column = NDArray[np.float64]
REFERENCE_EVERY_S = 0.5
"""Time between the reference executions of an idle engine."""


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Reference executions of a device during a run; columns of shape (references,), seconds."""

    begin_s: Column
    """After the moment from which the offsets of the run's requests count; below 0 before the first request."""
    busy_s: Column
    """For which each kept the engine busy."""
    execution_s: Column


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """One live run of a cell; columns of shape (requests,), seconds."""

    log: LoadLog
    transfer_s: Column
    """Measured by the gateway; 0 for requests that it executed, NaN if unknown."""
    link_s: Column
    """What the link prescribes for each request's way there and back."""
    link_begin_s: float
    """Moment of the link's series at which the first request was due, less that request's own offset."""
    begun_s: float
    """Moment of the box's clock from which the offsets of the requests count."""
    references: Mapping[str, References]
    """By device."""
    handover_s: tuple[float, float]
    """Of each device, the usual time from sending a sentence to an idle engine to the begin of its execution."""
    turnaround_s: tuple[float, float]
    """Of each device, the usual time from the end of an execution to the begin of the next one that waits: the engine sends the
    answer and takes the next sentence, and its front may use the same processor meanwhile."""
    decisions_identical: bool
    """True if the policy, given what the gateway had measured, makes the same decisions again."""
    others_cpus: float | None
    """Processors' worth of time that programs beside the testbed used; None if the system does not count it."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Requests that were answered as decided, without a fallback."""
        valid: NDArray[np.bool_] = self.log.answered & ~self.log.fell_back
        return valid

    @property
    def span_s(self) -> float:
        """From the first request to the last answer, seconds."""
        return float(np.nanmax(self.log.received_s) - np.nanmin(self.log.due_s))

    @property
    def waiting_s(self) -> Column:
        """Wait for an execution, without the handover to the engine."""
        waiting_s: Column = np.maximum(self.log.queue_s - np.take(self.handover_s, np.maximum(self.log.target, 0)), 0.0)
        return waiting_s

    @property
    def overhead_s(self) -> Column:
        """Latency beside waiting, execution and what the link prescribes for requests that were offloaded."""
        log = self.log
        link_s = np.where(log.target > 0, self.link_s, 0.0)
        overhead_s: Column = log.latency_s - self.waiting_s - log.execution_s - link_s
        return overhead_s


@dataclass(frozen=True, slots=True)
class Served:
    """What a testbed serves."""

    url: str
    """Of the gateway."""
    logs: list[Path]
    """Of gateway and server."""
    link_s: float
    """When the link began, by the box's clock."""


@dataclass(slots=True)
class LiveTestbed:
    """A gateway, a link and a server in pinned processes, which run one cell after another. Use it within `with`."""

    folder: Path
    """Where logs and architectures are written."""
    any_model: bool = False
    cpus: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Processors of the gateway and of the server."""
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _gateway: Node = field(init=False)
    _link: Node = field(init=False)
    _server: Node = field(init=False)
    _runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.cpus == ((), ()) and hasattr(os, "sched_getaffinity"):
            allowed = sorted(os.sched_getaffinity(0))
            self.cpus = ((allowed[0],), (allowed[1 % len(allowed)],))

    def __enter__(self) -> LiveTestbed:
        gateway, server = self.cpus
        # The link shares the server's processor, since the load generator already loads that of the gateway.
        self._gateway, self._link, self._server = (self._stack.enter_context(Node(cpus)) for cpus in (gateway, server, server))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def run(self, unit: Unit, policy: str, requests: ReplayedRequests, *, link_begin_s: float = 0.0) -> LiveRun:
        """Run one cell: the requests of a unit under a policy. Raises `SimnmtError` if a part of the testbed fails."""
        with self.serving(unit, policy, link_begin_s=link_begin_s) as served:
            watch = BusyWatch(process_s=lambda: _tree_s(os.getpid()))
            log = _sent(requests, served.url)
            others_cpus = watch.others_cpus()
        return self._gathered(unit, policy, requests, log, served.logs, link_begin_s - served.link_s, others_cpus)

    @contextmanager
    def serving(self, unit: Unit, policy: str, *, link_begin_s: float = 0.0) -> Iterator[Served]:
        """Serve a unit under a policy within `with`. Raises `SimnmtError` if a part of the testbed fails."""
        self._runs += 1
        front = FrontSettings(forced_lengths=True, deadline_s=120.0, waiting=100_000)
        gateway, *others = unit.case.targets
        if len(others) != 1:
            raise SimnmtError("a testbed of this box has a gateway and one server behind it")
        (server,) = others
        logs = [self.folder / f"{self._runs:04}-{target.device}.jsonl" for target in (gateway, server)]
        placed = {
            target.device: engine_settings(target, self.folder, cpus=cpus, reference_every_s=REFERENCE_EVERY_S)
            for target, cpus in zip((gateway, server), self.cpus, strict=True)
        }
        try:
            url = self._server.ask(ServeModel(ServerSettings(placed[server.device], front), logs[1]))
            to = parse_address(url.removeprefix("http://"), "--to")
            address = self._link.ask(ServeLink(unit.links.link, to, LinkSettings(begin_s=link_begin_s)))
            link_s = time.monotonic()
            settings = GatewaySettings(
                unit,
                policy,
                {server.device: f"http://{address}"},
                placed[gateway.device],
                front,
                any_model=self.any_model,
                offload_s=60.0,
            )
            yield Served(self._gateway.ask(ServeGateway(settings, logs[0])), logs, link_s)
        finally:
            for node in (self._gateway, self._link, self._server):
                with suppress(SimnmtError):  # a node that has ended says so when it is asked to serve
                    node.ask(EndService())

    def _gathered(
        self,
        unit: Unit,
        policy: str,
        requests: ReplayedRequests,
        log: LoadLog,
        paths: list[Path],
        link_shift_s: float,
        others_cpus: float | None,
    ) -> LiveRun:
        requests = requests.decoded(log)
        live, server = (read_live_log(path) for path in paths)
        assert live.begin is not None
        transfer_s = np.full(len(log.due_s), np.nan)
        rows = live.requests
        for sender, seconds in zip(rows.sender.tolist(), rows.transfer_s.tolist(), strict=True):
            if sender.isdecimal():
                transfer_s[int(sender)] = seconds
        events = read_decider_events(paths[0])
        initial_s = dict(enumerate(live.begin.initial_s, start=1))
        decided = [event.target for event in events if isinstance(event, DecisionRecord)]
        first_s = 0.0 if requests.offsets_s is None else float(requests.offsets_s[0])
        devices = [target.device for target in unit.case.targets]
        engines = [_engine_gaps_s(log_rows, name) for log_rows, name in ((rows, devices[0]), (server.requests, "server"))]
        begun_s = float(log.due_s[0]) - first_s
        link_begin_s = begun_s + link_shift_s
        at_s = log.due_s - float(log.due_s[0]) + first_s + link_begin_s
        token_bytes = bytes_per_token(unit.case.profiles[-1].model.vocab)
        up_s, down_s = unit.links.link.ways_s(at_s, requests.src_len, requests.tgt_len, token_bytes)
        return LiveRun(
            log=log,
            transfer_s=transfer_s,
            link_s=up_s + down_s,
            link_begin_s=link_begin_s,
            begun_s=begun_s,
            references={
                device: References(of_box.at_s - begun_s, of_box.busy_s, of_box.execution_s)
                for device, of_box in zip(devices, (live.references, server.references), strict=True)
            },
            handover_s=(engines[0][0], engines[1][0]),
            turnaround_s=(engines[0][1], engines[1][1]),
            decisions_identical=replayed_targets(unit, policy, initial_s, events) == decided,
            others_cpus=others_cpus,
        )


IDLE_S = 0.02
"""Time without an execution after which an engine surely was idle, and longer than any turnaround."""
USUAL_S = 3e-4
"""Handover and turnaround where none was measured."""


def _engine_gaps_s(requests: LiveColumns, device: str) -> tuple[float, float]:
    """Return the median handover and the median turnaround of a device, by a log of its own box."""
    done = requests.at((requests.device == device) & (requests.outcome == "done"))
    begin_s = done.decision_s + done.queue_s
    order = np.argsort(begin_s)
    begin_s, queue_s, end_s = begin_s[order][1:], done.queue_s[order][1:], (begin_s + done.execution_s)[order][:-1]
    gap_s = begin_s - end_s
    handover_s = queue_s[gap_s > IDLE_S]
    usual_s = float(np.median(handover_s)) if handover_s.size else USUAL_S
    turnaround_s = gap_s[(queue_s > 2.0 * usual_s + 1e-3) & (gap_s >= 0.0) & (gap_s < IDLE_S)]
    return usual_s, float(np.median(turnaround_s)) if turnaround_s.size >= 3 else usual_s


def _sent(requests: ReplayedRequests, url: str) -> LoadLog:
    async def send() -> LoadLog:
        reduce_timer_slack()
        async with TranslationClient(url, connections=1_000, timeout_s=180.0) as client:
            forced_lens = requests.tgt_len.tolist() if requests.forced else None
            load = Load(requests.texts, "de", "en", forced_lens, _listed(requests.offsets_s))
            await send_load(load.warm_up(), client, timeout_s=180.0)
            return await send_load(load, client, timeout_s=180.0)

    return run_precisely(send())


def _listed(column: Column | None) -> list[float] | None:
    return None if column is None else column.tolist()


def _tree_s(process: int) -> float:
    """Return the processor seconds of a process and of those below it that live."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / tick
    total, waiting = 0.0, [process]
    while waiting:
        number = waiting.pop()
        total += seconds.get(number, 0.0)
        waiting += children.get(number, [])
    return total
