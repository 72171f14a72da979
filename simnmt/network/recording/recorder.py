"""The recorder: a plan, probes on a schedule that does not drift, and transfers between the probes."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from simnmt.network.errors import TraceError
from simnmt.network.recording.echo_probes import IcmpEcho, TcpEcho
from simnmt.network.recording.protocol import LEAST_NS, WARM_UP_SHARE, Endpoint, connect_first, resolve_host, transfer
from simnmt.network.recording.samples import RecordingFiles, RecordingSamples, bandwidth_path

Method = Literal["tcp", "icmp"]

SHORTEST_INTERVAL_S = 0.01
MOST_PROBES = 10_000_000
TRANSFER_BYTES = (10_000, 1_000_000_000)
"""Least and most bytes: fewer end within the start of TCP, more are no short transfer. The responder has its own limit."""


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Target, length and frequency of a recording. Raises `TraceError` for values out of range."""

    host: str
    port: int | None
    """Port of the responder; None for ICMP without transfers."""
    duration_s: float
    interval_s: float = 1.0
    """Probe i goes out this many seconds times i after the start."""
    timeout_s: float = 2.0
    """An echo later than this is lost."""
    bandwidth_every_s: float = 60.0
    """Time between the starts of transfers; 0: no transfers."""
    transfer_bytes: int = 256_000
    """Size of one transfer; there is one each way."""
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
        """Number of probes if none is held back."""
        return max(1, math.ceil(round(self.duration_s / self.interval_s, 9)))

    @property
    def transfers(self) -> bool:
        """Whether bandwidth is measured too."""
        return self.bandwidth_every_s > 0.0 and self.port is not None


Progress = Callable[[float, RecordingSamples], None]
"""Function of the seconds since the start and the samples so far."""

_GREETING_S = 5.0
_REPORT_EVERY_NS, _REPORT_AT_LATEST_NS = 250_000_000, 2_000_000_000
"""Samples are written and shown at the first interval if no echo is under way that this could delay, else at the second."""
_CLOCK_SET_S = 1.0
_TOO_BRIEF = "too brief to trust, hence lost (raise --transfer)"


class Recorder:
    """A recording: the constructor connects, `run` records.

    `replace`: whether files of an earlier recording are replaced at the end. Raises `TraceError` if the other end does not
    answer, and for files that exist and are not to be replaced.
    """

    def __init__(self, plan: RecordingPlan, out: str | os.PathLike[str], *, replace: bool = False) -> None:
        self.samples = RecordingSamples()
        self.written: list[Path] = []
        """The files that `run` wrote."""
        self.left: list[Path] = []
        """Partial files with the samples before a failure of `run`."""
        self.oddities: list[str] = []
        """Remarks for readers of the files, set when `run` ends."""
        self.targets = (Path(out), bandwidth_path(out))
        """Files of the RTTs and of the bandwidths."""
        for path in self.targets[: 1 + plan.transfers]:
            if path.exists() and not replace:
                raise TraceError("exists already", path=path, remedy="choose another name, or replace it with --force")
        self._plan, self._out = plan, out
        self._sent: deque[tuple[int, int]] = deque()  # (sequence, monotonic nanoseconds) of probes in flight
        self._rtt_ns: dict[int, int] = {}
        self._late = self._held_back = self._missed = self._brief = 0
        self._place, self._responder, self._prober = _opened(plan)

    def run(self, progress: Progress | None = None) -> None:
        """Record until the time is up, and write the files.

        After an interruption the files are written and the exception is raised again. Raises `TraceError` if no echo came
        back, or if the files cannot be written.
        """
        self._began_unix_s, self._start_ns = time.time(), time.monotonic_ns()
        try:
            self._files = RecordingFiles(self._out, self._began_unix_s, self._about(), self.samples, self._plan.transfers)
            try:
                self._record(progress)
                if not self.samples.arrived:
                    raise self._nothing_came()
                self.written = self._files.finish(self._closing_notes())
            except BaseException as error:
                if not self.samples.arrived:
                    self._files.discard()
                elif isinstance(error, TraceError):
                    self.left = self._files.leave()
                else:
                    self.written = self._files.finish(self._closing_notes())
                raise
        finally:
            if self.samples.rtt_ms:  # without samples the responder shall wait for another attempt
                self._prober.say_bye()
            self._prober.close()

    def _record(self, progress: Progress | None) -> None:
        plan = self._plan
        interval_ns, timeout_ns = round(plan.interval_s * 1e9), round(plan.timeout_s * 1e9)
        end_ns = self._start_ns + round(plan.duration_s * 1e9)
        # Half an interval later, so that transfers and probes find the link empty.
        transfer_ns = self._start_ns + interval_ns // 2
        between = False  # whether a probe went out since the last transfer
        slot, reported_ns, every_ns = 0, 0, round(plan.bandwidth_every_s * 1e9)
        while True:
            now_ns = time.monotonic_ns()
            self._decide(now_ns - timeout_ns)
            if slot >= plan.probes and not self._sent:
                return
            due_ns = self._start_ns + slot * interval_ns if slot < plan.probes else end_ns + timeout_ns
            # Before a transfer no probe goes out, and the transfer waits for the echoes that are on their way.
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
                if now_ns - reported_ns > (_REPORT_AT_LATEST_NS if self._sent else _REPORT_EVERY_NS):
                    reported_ns = now_ns
                    self._files.add()
                    if progress is not None:
                        progress((now_ns - self._start_ns) / 1e9, self.samples)
                until_ns = min(end_ns + timeout_ns if pausing else due_ns, now_ns + _REPORT_EVERY_NS)
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
        """Move probes that were answered, or sent before `lost_before_ns`, into the samples in the order of their sending."""
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
        """Return the notes that are known at the end of the recording, and set `oddities`."""
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


def _opened(plan: RecordingPlan) -> tuple[Endpoint, Endpoint | None, TcpEcho | IcmpEcho]:
    """Return (target of the probes, responder for transfers, prober)."""
    if plan.port is None:
        place = resolve_host(plan.host, 0, socket.SOCK_DGRAM)[0]
        return place, None, IcmpEcho(place)
    responder, connection, most = connect_first(plan.host, plan.port, max(plan.timeout_s, _GREETING_S))
    try:
        if plan.transfers and plan.transfer_bytes > most:
            what = f"--transfer {plan.transfer_bytes:,} bytes: the responder grants {most:,}"
            raise TraceError(what, remedy="give fewer")
        if plan.method == "tcp":
            return responder, responder, TcpEcho(responder, connection, max(plan.timeout_s, _GREETING_S))
        place = Endpoint(responder.host, responder.family, (responder.address[0], 0, *responder.address[2:]))
        prober = IcmpEcho(place, responder)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return place, responder, prober


def _up(length: int, step: int) -> int:
    """Return how many steps cover the length."""
    return -(-length // step)
