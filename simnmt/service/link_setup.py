"""What surrounds a replayed link: its series, its own overhead, and the same link as commands for the kernel's netem."""

from __future__ import annotations

import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.errors import SimnmtError, short_repr
from simnmt.network.configuration import ConstantRtt, CsvBandwidth, CsvRtt, NetworkConfiguration, load_network
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries, constant_rtt
from simnmt.service.addresses import Address
from simnmt.service.link import LinkError, LinkProxy
from simnmt.service.precise_timers import measure_lateness_s

_NO_RTT_S = 1e-9
_NO_LIMIT_BPS = 1e15
_LONGEST_RTT_S = 10.0
_RATE_RANGE_BPS = (1.0, 1e15)


def read_link(
    rtt: float | str,
    uplink: float | str = 100e6,
    downlink: float | str = 100e6,
    *,
    rtt_mean_s: float | None = None,
) -> Link:
    """Return a link as a scenario would build it.

    Args:
        rtt: a constant in seconds, else a CSV file or the `@name` of a shipped series.
        uplink: bandwidth towards the server, bit/s, else a CSV file, `FILE:COLUMN` for a column other than `mbps`.
        downlink: the same from the server.
        rtt_mean_s: multiply the RTT series so that this is its mean over time; None leaves it unchanged.

    Raises `LinkError` for numbers out of range, `TraceError` for a file that cannot be used, `InputError` for an unknown name.
    """
    if not isinstance(rtt, str) and not 0.0 <= rtt <= _LONGEST_RTT_S:
        raise LinkError(f"--rtt {rtt:g} s", remedy=f"give 0 to {_LONGEST_RTT_S:g} s")
    if rtt_mean_s is not None and not 0.0 < rtt_mean_s <= _LONGEST_RTT_S:
        raise LinkError(f"--rtt-mean {rtt_mean_s:g} s", remedy=f"give more than 0 and at most {_LONGEST_RTT_S:g} s")
    config = NetworkConfiguration(
        rtt=CsvRtt(csv=rtt) if isinstance(rtt, str) else ConstantRtt(constant_ms=max(rtt, _NO_RTT_S) * 1e3),
        rtt_mean_ms=None if rtt_mean_s is None else rtt_mean_s * 1e3,
        uplink_mbps=_bandwidth("--uplink", uplink),
        downlink_mbps=_bandwidth("--downlink", downlink),
    )
    return load_network(config, Path(), rtt if isinstance(rtt, str) else "constant").link


def _bandwidth(option: str, value: float | str) -> float | CsvBandwidth:
    if isinstance(value, str):
        file, _, column = value.rpartition(":")
        return CsvBandwidth(csv=file, column=column) if file and not Path(value).exists() else CsvBandwidth(csv=value)
    least, most = _RATE_RANGE_BPS
    if not least <= value <= most:
        raise LinkError(f"{option} {value:g} bit/s", remedy=f"give {least:g} bit/s to {most / 1e9:g} Gbit/s")
    return value / 1e6


def describe_link(link: Link) -> str:
    """Return a link in one line."""
    rates = [rate.mean if isinstance(rate, BandwidthSeries) else rate for rate in (link.uplink_bps, link.downlink_bps)]
    up, down = (f"{rate / 1e6:.6g} Mbit/s" for rate in rates)
    samples = len(link.rtt.value)
    rtt = f"RTT {link.rtt.name}: {samples:,} samples, mean" if samples > 1 else "RTT"
    return f"{rtt} {link.rtt.mean_s * 1e3:.6g} ms, up {up}, down {down}"


@dataclass(frozen=True, slots=True)
class LinkOverhead:
    """Round trips of 64 bytes over loopback, directly and through a link without delay, and the lateness of its timers."""

    direct_median_s: float
    direct_p99_s: float
    proxied_median_s: float
    proxied_p99_s: float
    timer_median_s: float
    timer_p99_s: float

    @property
    def added_median_s(self) -> float:
        """Seconds that the proxy adds to a round trip beyond the RTT."""
        return self.proxied_median_s - self.direct_median_s

    def as_json(self) -> dict[str, Any]:
        """Return the measurement for `--json`."""
        return asdict(self) | {"added_median_s": self.added_median_s}

    def format(self) -> str:
        """Return the measurement as one line."""
        ms = {key: f"{value * 1e3:.3f}" for key, value in self.as_json().items()}
        return (
            f"round trip without delay {ms['proxied_median_s']} ms (p99 {ms['proxied_p99_s']}), directly "
            f"{ms['direct_median_s']} ms (p99 {ms['direct_p99_s']}): {ms['added_median_s']} ms added; "
            f"timers {ms['timer_median_s']} ms late (p99 {ms['timer_p99_s']})"
        )


def measure_overhead(round_trips: int = 200) -> LinkOverhead:
    """Measure what a replayed link adds on this box: `round_trips` echoes each way, interleaved, and as many timers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_serve_echo, args=(server,), daemon=True)
        echo.start()
        here = Address("127.0.0.1", server.getsockname()[1])
        with LinkProxy(Link(constant_rtt(_NO_RTT_S), _NO_LIMIT_BPS, _NO_LIMIT_BPS), here) as proxy:
            direct, proxied = (socket.create_connection((end.host, end.port)) for end in (here, proxy.address))
            with direct, proxied:
                for end in (direct, proxied):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _round_trip_s(end)  # the first waits for the connection
                pairs = [(_round_trip_s(direct), _round_trip_s(proxied)) for _ in range(round_trips)]
        echo.join()
    columns = (*map(sorted, zip(*pairs, strict=True)), measure_lateness_s(round_trips))
    figures = [figure for column in columns for figure in (statistics.median(column), _p99(column))]
    return LinkOverhead(*figures)


def _p99(ascending: Sequence[float]) -> float:
    return ascending[min(int(0.99 * len(ascending)), len(ascending) - 1)]


_FRAME = bytes(64)


def _round_trip_s(end: socket.socket) -> float:
    began_s = time.perf_counter()
    end.sendall(_FRAME)
    left = len(_FRAME)
    while left:
        received = end.recv(left)
        if not received:
            raise SimnmtError("the link closed a connection while its overhead was measured")
        left -= len(received)
    return time.perf_counter() - began_s


def _serve_echo(server: socket.socket) -> None:
    """Answer two connections, each in a thread of its own, until they end."""

    def answer(end: socket.socket) -> None:
        with end, suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := end.recv(1024):
                end.sendall(data)

    threads = [threading.Thread(target=answer, args=(server.accept()[0],), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def netem_commands(link: Link, device: str, loss: float = 0.0) -> Iterator[str]:
    """Yield shell lines that replay one lap of a link's uplink with the kernel's netem, on the client's `device`.

    netem shapes what a device sends, so each line delays by half of the RTT: on `lo` both directions pass the device; between
    two boxes the server's box needs the same for its side. The lines need the rights of an administrator. Raises `LinkError`
    for a device that has no name of one.
    """
    if not re.fullmatch(r"[\w.@-]{1,15}", device, re.ASCII):
        raise LinkError(f"--netem {short_repr(device)} is not the name of a device", remedy="give one such as lo")
    bandwidth = link.uplink_bps
    times = link.rtt.time_s
    if isinstance(bandwidth, BandwidthSeries):
        times = np.union1d(times, bandwidth.time_s[bandwidth.time_s < link.rtt.duration_s])
    steps = np.diff(times, append=link.rtt.duration_s).tolist()
    lost = f" loss {loss * 100:g}%" if loss else ""
    verb = "replace"
    for at_s, step_s in zip(times.tolist(), steps, strict=True):
        bps = bandwidth.at_one(at_s) if isinstance(bandwidth, BandwidthSeries) else bandwidth
        delay_us = round(link.rtt_one_s(at_s) / 2 * 1e6)
        yield f"tc qdisc {verb} dev {device} root netem limit 100000 delay {delay_us}us rate {round(bps)}bit{lost}"
        if len(times) > 1:
            yield f"sleep {step_s:.6g}"
        verb = "change"
