from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.recording import echo_probes
from simnmt.network.recording.echo_probes import IcmpEcho, checksum
from simnmt.network.recording.protocol import resolve_host
from simnmt.network.recording.recorder import Recorder, RecordingPlan
from simnmt.network.recording.responder import Responder
from simnmt.network.series_csv import read_rtt_csv


def allowed() -> bool:
    try:
        IcmpEcho(resolve_host("127.0.0.1", 0, socket.SOCK_DGRAM)[0]).close()
    except TraceError:
        return False
    return True


needs_leave = pytest.mark.skipif(not allowed(), reason="this user may not send ICMP echo requests")


def test_the_checksum_of_a_packet_that_bears_its_checksum_is_zero() -> None:
    """RFC 1071: that is how a receiver verifies it; with its own example's sum."""
    assert checksum(bytes([0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7])) == 0xFFFF - 0xDDF2
    for length in (8, 9, 64):
        packet = bytes(range(1, length + 1))
        even = packet + b"\0" * (length % 2)
        assert checksum(even + struct.pack("!H", checksum(packet))) == 0


@needs_leave
def test_round_trips_of_this_machine(tmp_path: Path) -> None:
    recorder = Recorder(RecordingPlan("127.0.0.1", None, 0.2, interval_s=0.02, method="icmp"), tmp_path / "mine.csv")
    recorder.run()
    series = read_rtt_csv(tmp_path / "mine.csv")
    assert (series.lost, series.kind) == (0, "measured")
    assert 5 <= len(series.rtt_s) <= 10  # a busy box skips probes that are too late
    assert series.source.startswith("ICMP echo of 56 bytes to 127.0.0.1")
    assert middle(series.rtt_s.tolist()) < 0.05


@needs_leave
def test_transfers_beside_it_need_no_connection_that_stays(
    tmp_path: Path, serve: Callable[..., Responder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A responder that serves once is there for every transfer, and ends when the recording has ended."""
    monkeypatch.setattr("simnmt.network.recording.protocol.LEAST_NS", 1)
    responder = serve(once=True)
    how = {"interval_s": 0.02, "bandwidth_every_s": 0.2, "transfer_bytes": 1_000_000}
    recorder = Recorder(RecordingPlan(*responder.address, 0.5, method="icmp", **how), tmp_path / "mine.csv")
    recorder.run()
    assert len(recorder.samples.transfer_s) >= 2
    assert not any(map(math.isnan, [*recorder.samples.downlink_mbps, *recorder.samples.uplink_mbps]))
    end_s = time.monotonic() + 2.0
    while any(thread.name == str(responder.address) for thread in threading.enumerate()):
        assert time.monotonic() < end_s, "the responder did not hear that it is over"
        time.sleep(0.01)


@needs_leave
def test_replies_to_others_are_not_ours() -> None:
    place = resolve_host("127.0.0.1", 0, socket.SOCK_DGRAM)[0]
    one, other = IcmpEcho(place), IcmpEcho(place)
    try:
        one.send(1)
        end_s = time.monotonic() + 0.1
        heard: list[tuple[int, int]] = []
        while time.monotonic() < end_s:
            heard += other.wait(0.02)
        assert heard == []
        end_s = time.monotonic() + 2.0
        while not heard and time.monotonic() < end_s:
            heard = one.wait(0.1)
        assert [sequence for sequence, _ in heard] == [1]
    finally:
        one.close()
        other.close()


def test_without_leave_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    place = resolve_host("127.0.0.1", 0, socket.SOCK_DGRAM)[0]
    monkeypatch.setattr(echo_probes.socket, "socket", refuse)
    with pytest.raises(
        TraceError, match=r"does not let you send ICMP \(measure by --method tcp, .*ping_group_range"
    ) as refused:
        IcmpEcho(place)
    assert "\n" not in str(refused.value)


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
