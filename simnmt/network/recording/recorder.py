"""The recorder: a plan of what to record, probes on a schedule that does not drift, transfers between them."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from simnmt.network.errors import TraceError
from simnmt.network.recording.echo_probes import IcmpEcho, TcpEcho
from simnmt.network.recording.protocol import (
    LEAST_NS,
    WARM_UP_SHARE,
    Endpoint,
    connect,
    connect_first,
    resolve_host,
    send_bye,
    transfer,
)
from simnmt.network.recording.samples import RecordingFiles, RecordingSamples, bandwidth_path

Method = Literal["tcp", "icmp"]

SHORTEST_INTERVAL_S = 0.01
MOST_PROBES = 10_000_000
TRANSFER_BYTES = (10_000, 1_000_000_000)
"""Fewer hardly leave the start of TCP, more are no short transfer; the responder has a bound of its own."""


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Where to, how long, how often. Raises `TraceError` for what makes no sense."""

    host: str
    port: int | None
    """Of the responder; None for ICMP alone."""
    duration_s: float
    interval_s: float = 1.0
    """Probe i goes out this many seconds times i after the start."""
    timeout_s: float = 2.0
    """An echo later than this is lost."""
    bandwidth_every_s: float = 60.0
    """Between the starts of transfers; 0 for none."""
    transfer_bytes: int = 256_000
    """Of one transfer, of which there is one each way."""
    method: Method = "tcp"

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise TraceError(f"--method {self.method}: no such method", remedy=f"one of {', '.join(get_args(Method))}")
        if self.port is not None and not 0 < self.port < 65_536:
            raise TraceError(f"--port {self.port} is not a valid port (1-65535)", remedy="give what the responder printed")
        if self.port is None and self.method == "tcp":
            raise TraceError("--port is missing", remedy="give the one that `simnmt trace respond` printed")
        if not self.duration_s > 0.0:
            raise TraceError("--duration 0: records nothing", remedy="give 60s, 10m or 2h")
        if not SHORTEST_INTERVAL_S <= self.interval_s <= 240.0:
            raise TraceError(f"--interval {self.interval_s:g} s", remedy=f"give {1e3 * SHORTEST_INTERVAL_S:g} ms to 240 s")
        if self.probes > MOST_PROBES:
            what = f"{self.probes:,} probes in one recording, more than {MOST_PROBES:,}"
            raise TraceError(what, remedy="give a shorter --duration or a longer --interval")
        if not 0.0 < self.timeout_s <= 60.0:
            raise TraceError(f"--timeout {self.timeout_s:g} s", remedy="give more than 0 and at most 60 s")
        least, most = TRANSFER_BYTES
        if not least <= self.transfer_bytes <= most:
            what = f"--transfer {self.transfer_bytes:,} bytes"
            raise TraceError(what, remedy=f"give {least // 1000} kB to {most // 1_000_000} MB")

    @property
    def probes(self) -> int:
        """How many go out if none is held back."""
        return max(1, math.ceil(round(self.duration_s / self.interval_s, 9)))

    @property
    def transfers(self) -> bool:
        """Whether bandwidth is measured, too."""
        return self.bandwidth_every_s > 0.0 and self.port is not None


Progress = Callable[[float, RecordingSamples], None]
"""Takes the seconds that have passed and what was found."""

_GREETING_S = 5.0
_BYE_S = 1.0
_TOLD_EACH_NS, _TOLD_AT_LATEST_NS = 250_000_000, 2_000_000_000
"""What is found is written and shown so often, while no echo is under way that this could delay; and at the latest so."""
_CLOCK_SET_S = 1.0
_TOO_BRIEF = "too brief to trust, hence lost (raise --transfer)"


class Prober(Protocol):
    """Sends probes and collects their echoes."""

    reconnections: int
    method: str

    def send(self, sequence: int) -> None:
        """Send probe `sequence`, or lose it; never waits."""

    def wait(self, at_most_s: float) -> list[tuple[int, int]]:
        """(sequence, monotonic nanoseconds of its arrival) of echoes that came; may return before the time is up."""

    def close(self) -> None:
        """Let go of the network."""


class Recorder:
    """Makes the connection and the partial files; `run` records. Raises `TraceError` where there is nothing to record."""

    def __init__(self, plan: RecordingPlan, out: str | os.PathLike[str]) -> None:
        self.samples = RecordingSamples()
        self.written: list[Path] = []
        """The files that stand there once `run` has ended."""
        self.left: list[Path] = []
        """Partial files that a failure left, with what was recorded until then."""
        self.oddities: list[str] = []
        """What a reader of the files should know, once `run` has ended."""
        self.targets = (Path(out), bandwidth_path(out))
        """Where the RTTs go, and where the bandwidths."""
        for path in self.targets[: 1 + plan.transfers]:
            if path.exists():
                # A recording cannot be had again.
                raise TraceError("stands there already", path=path, remedy="choose another --out, or remove it")
        self._plan, self._out = plan, out
        self._sent: deque[tuple[int, int]] = deque()  # (sequence, monotonic nanoseconds) of probes not yet decided
        self._rtt_ns: dict[int, int] = {}
        self._late = self._held_back = self._missed = self._brief = 0
        self._place, self._responder, self._prober = _opened(plan)

    def run(self, progress: Progress | None = None) -> None:
        """Record until the time is up, and write the files.

        An interruption keeps what was recorded so far: the files are written and the exception goes on. Raises `TraceError`
        where no probe came back, or where the files cannot be written.
        """
        self._began_unix_s, self._start_ns = time.time(), time.monotonic_ns()
        try:
            self._files = RecordingFiles(self._out, self._began_unix_s, self._about(), self._plan.transfers)
            try:
                self._record(progress)
                if not self.samples.arrived:
                    raise self._nothing_came()
                self.written = self._files.finish(self.samples, self._closing_notes())
            except TraceError:
                if self.samples.arrived:
                    self.left = self._files.leave()
                else:
                    self._files.discard()
                raise
            except BaseException:
                if self.samples.arrived:
                    self.written = self._files.finish(self.samples, self._closing_notes())
                else:
                    self._files.discard()
                raise
        finally:
            if self.samples.rtt_ms:  # else another try may follow, and the responder is to wait for it
                self._say_bye()
            self._prober.close()

    def _say_bye(self) -> None:
        if isinstance(self._prober, TcpEcho):
            self._prober.say_bye()
        elif self._responder is not None:
            with suppress(TraceError):
                connection, _ = connect(self._responder, _BYE_S)
                with connection:
                    send_bye(connection)

    def _record(self, progress: Progress | None) -> None:
        plan = self._plan
        interval_ns, timeout_ns = round(plan.interval_s * 1e9), round(plan.timeout_s * 1e9)
        end_ns = self._start_ns + round(plan.duration_s * 1e9)
        # Half an interval off, so that a transfer finds the link empty and probes find it empty again.
        transfer_ns = self._start_ns + interval_ns // 2
        between = False  # whether a probe went out since the last transfer
        slot, reported_ns, every_ns = 0, 0, round(plan.bandwidth_every_s * 1e9)
        while True:
            now_ns = time.monotonic_ns()
            self._decide(now_ns - timeout_ns)
            if slot >= plan.probes and not self._sent:
                return
            due_ns = self._start_ns + slot * interval_ns if slot < plan.probes else end_ns + timeout_ns
            # No probe goes out until the transfer, which waits for the echoes of those that are on their way.
            pausing = plan.transfers and between and transfer_ns <= now_ns < end_ns
            if pausing and not self._sent:
                self._transfer(now_ns)
                between, after_ns = False, time.monotonic_ns()
                first = min(plan.probes, _up(after_ns - self._start_ns, interval_ns))
                self._held_back += max(0, first - slot)
                slot = max(slot, first)
                transfer_ns += every_ns * max(1, _up(after_ns - transfer_ns, every_ns))
            elif slot < plan.probes and now_ns >= due_ns and not pausing:
                behind = min((now_ns - due_ns) // interval_ns, plan.probes - 1 - slot)
                self._missed += behind
                self._send(slot + behind)
                slot, between = slot + behind + 1, True
            else:
                if now_ns - reported_ns > (_TOLD_AT_LATEST_NS if self._sent else _TOLD_EACH_NS):
                    reported_ns = now_ns
                    self._files.add(self.samples)
                    if progress is not None:
                        progress((now_ns - self._start_ns) / 1e9, self.samples)
                until_ns = min(end_ns + timeout_ns if pausing else due_ns, now_ns + _TOLD_EACH_NS)
                if self._sent:
                    until_ns = min(until_ns, self._sent[0][1] + timeout_ns)
                elif between and transfer_ns > now_ns:
                    until_ns = min(until_ns, transfer_ns)
                self._collect(max(until_ns - now_ns, 0) / 1e9)

    def _collect(self, at_most_s: float) -> None:
        for sequence, arrived_ns in self._prober.wait(at_most_s):
            sent_ns = next((sent_ns for number, sent_ns in self._sent if number == sequence), None)
            if sent_ns is None or arrived_ns - sent_ns > self._plan.timeout_s * 1e9:
                self._late += 1
            else:
                self._rtt_ns.setdefault(sequence, arrived_ns - sent_ns)

    def _send(self, sequence: int) -> None:
        self._sent.append((sequence, time.monotonic_ns()))
        self._prober.send(sequence)

    def _decide(self, lost_before_ns: int) -> None:
        """Move probes into the samples in the order of their sending, each once it was answered or its time is up."""
        while self._sent:
            sequence, sent_ns = self._sent[0]
            rtt_ns = self._rtt_ns.pop(sequence, None)
            if rtt_ns is None and sent_ns > lost_before_ns:
                return
            self._sent.popleft()
            self.samples.add(round((sent_ns - self._start_ns) / 1e9, 6), math.nan if rtt_ns is None else rtt_ns / 1e6)

    def _transfer(self, now_ns: int) -> None:
        assert self._responder is not None
        rates = transfer(self._responder, self._plan.transfer_bytes, max(self._plan.timeout_s, _GREETING_S))
        self._brief += rates.brief
        self.samples.transfer_s.append(round((now_ns - self._start_ns) / 1e9, 6))
        for bps, column in ((rates.downlink_bps, self.samples.downlink_mbps), (rates.uplink_bps, self.samples.uplink_mbps)):
            column.append(math.nan if bps is None else bps / 1e6)

    def _about(self) -> dict[str, str]:
        plan = self._plan
        about = {
            "source": f"{self._prober.method} to {self._place}, each {plan.interval_s:g} s",
            "timeout": f"{plan.timeout_s:g} s",
        }
        if plan.transfers:
            counted = f"the first {100 * WARM_UP_SHARE:.0f} % left out as TCP's warm-up"
            about["bandwidth"] = f"goodput of {plan.transfer_bytes:,} bytes each way, {counted}; no probes meanwhile"
        return about

    def _nothing_came(self) -> TraceError:
        probes = len(self.samples.rtt_ms)
        remedy = "check that the other end answers, or give a longer --timeout"
        return TraceError(f"{self._place}: all {probes:,} probes were lost", remedy=remedy)

    def _closing_notes(self) -> dict[str, str]:
        """Return the notes that are known only at the end of the recording."""
        samples, plan = self.samples, self._plan
        passed_s = (time.monotonic_ns() - self._start_ns) / 1e9
        notes = {"probes": f"{len(samples.rtt_ms):,} sent, {samples.lost:,} lost"}
        if plan.transfers:
            down, up = (sum(map(math.isnan, column)) for column in (samples.downlink_mbps, samples.uplink_mbps))
            notes["transfers"] = f"{len(samples.transfer_s):,} each way, lost: {down:,} down, {up:,} up"
        oddities = {
            f"probes held back while a transfer ran: {self._held_back:,}": self._held_back,
            f"probes not sent as the recorder itself had been stopped: {self._missed:,}": self._missed,
            f"echoes later than the timeout: {self._late:,}": self._late,
            f"times that the connection was made anew: {self._prober.reconnections:,}": self._prober.reconnections,
            f"transfers that took less than {LEAST_NS / 1e6:g} ms, {_TOO_BRIEF}: {self._brief:,}": self._brief,
            f"cut short after {passed_s:.0f} s of {plan.duration_s:g} s": passed_s < plan.duration_s - plan.interval_s,
        }
        moved_s = time.time() - self._began_unix_s - passed_s
        oddities[f"the machine's clock was set by {moved_s:+.1f} s meanwhile, the times here were not"] = (
            abs(moved_s) > _CLOCK_SET_S
        )
        self.oddities = [what for what, count in oddities.items() if count]
        return notes | ({"oddities": "; ".join(self.oddities)} if self.oddities else {})


def _opened(plan: RecordingPlan) -> tuple[Endpoint, Endpoint | None, Prober]:
    """(where probes go, where transfers go, what sends the probes)."""
    if plan.port is None:
        place = _first(plan.host)
        return place, None, IcmpEcho(place)
    responder, connection, most = connect_first(plan.host, plan.port, max(plan.timeout_s, _GREETING_S))
    try:
        if plan.transfers and plan.transfer_bytes > most:
            what = f"--transfer {plan.transfer_bytes:,} bytes: the responder grants {most:,}"
            raise TraceError(what, remedy="give fewer")
        if plan.method == "tcp":
            return responder, responder, TcpEcho(responder, connection, max(plan.timeout_s, _GREETING_S))
        place = Endpoint(responder.host, responder.family, (responder.address[0], 0, *responder.address[2:]))
        prober = IcmpEcho(place)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return place, responder, prober


def _first(host: str) -> Endpoint:
    endpoints = resolve_host(host, 0, socket.SOCK_DGRAM)
    if not endpoints:
        raise TraceError(f"--host {host}: has no address", remedy="check the name")
    return endpoints[0]


def _up(length: int, step: int) -> int:
    """How many steps it takes to cover the length."""
    return -(-length // step)
