"""Recordings over real sockets, through a network that is as slow as we make it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.network.errors import TraceError
from simnmt.network.recording.recorder import Recorder, RecordingPlan
from simnmt.network.recording.samples import RecordingFiles, RecordingSamples
from simnmt.network.series_csv import read_bandwidth_csv, read_notes, read_rtt_csv
from simnmt.network.traces.trace_file import read_trace


def recorded(tmp_path: Path, port: int, **how: Any) -> Recorder:
    progress = how.pop("progress", None)
    plan = RecordingPlan("127.0.0.1", port, **{"duration_s": 0.4, "interval_s": 0.02, "bandwidth_every_s": 0.0} | how)
    recorder = Recorder(plan, tmp_path / "mine.csv")
    recorder.run(progress)
    return recorder


def planned(recorder: Recorder) -> int:
    """Probes sent, and those that the recorder says it left out, as a busy machine stopped it for longer than an interval."""
    remark = "probes not sent as the recorder itself had been stopped: "
    left_out = [int(oddity.removeprefix(remark)) for oddity in recorder.oddities if oddity.startswith(remark)]
    return len(recorder.samples.rtt_ms) + sum(left_out)


def test_round_trips_are_those_of_the_network(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    """10 ms each way; a busy machine only ever adds."""
    recorder = recorded(tmp_path, slow_network(one_way_s=0.010).port)
    assert recorder.written == [tmp_path / "mine.csv"]
    series = read_rtt_csv(tmp_path / "mine.csv")
    assert (series.kind, series.lost, planned(recorder)) == ("measured", 0, 20)
    assert len(series.rtt_s) == len(recorder.samples.rtt_ms)
    assert series.rtt_s.min() >= 0.020
    assert np.quantile(series.rtt_s, 0.25) < 0.027
    (trace,) = read_trace(tmp_path / "mine.csv")
    assert (trace.quantity, trace.kind, trace.remarks) == ("rtt", "measured", ())


def test_probes_keep_to_their_schedule_however_late_their_echoes(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    """No drift: probe i at i intervals, though each echo takes three of them."""
    recorder = recorded(tmp_path, slow_network(one_way_s=0.03).port, duration_s=0.4)
    late_s = np.array(recorder.samples.sent_s) % 0.02
    assert planned(recorder) == 20
    assert np.median(late_s) < 0.005
    assert recorder.samples.lost == 0


def test_bandwidth_is_that_of_the_network(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    network = slow_network(one_way_s=0.002, rate_bps=4e6)
    recorded(tmp_path, network.port, duration_s=0.5, bandwidth_every_s=0.1, transfer_bytes=60_000)
    path = tmp_path / "mine-bandwidth.csv"
    for column in ("downlink_mbps", "uplink_mbps"):
        series = read_bandwidth_csv(path, column=column)
        assert (series.kind, series.lost) == ("measured", 0)
        assert np.median(series.rate_bps) == pytest.approx(4e6, rel=0.25)
    assert [trace.quantity for trace in read_trace(path)] == ["downlink", "uplink"]
    notes = read_notes(tmp_path / "mine.csv")
    assert "probes held back while a transfer ran" in notes["oddities"]
    assert "goodput of 60,000 bytes each way" in notes["bandwidth"]


def test_probes_do_not_measure_our_own_transfers(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    """A transfer fills the link for 0.16 s each way, which an echo would have to wait for."""
    network = slow_network(rate_bps=6e6)
    recorder = recorded(tmp_path, network.port, duration_s=0.6, bandwidth_every_s=10.0, transfer_bytes=120_000)
    arrived = np.array(recorder.samples.rtt_ms)
    assert np.quantile(arrived, 0.9) < 50.0
    assert np.diff(recorder.samples.sent_s).max() > 0.25


def test_a_broken_connection_is_made_anew_and_its_probes_are_lost(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    network = slow_network(one_way_s=0.005)

    def disturb() -> None:
        time.sleep(0.2)
        network.accepting = False
        network.break_off()
        time.sleep(0.2)
        network.accepting = True

    thread = threading.Thread(target=disturb)
    thread.start()
    recorder = recorded(tmp_path, network.port, duration_s=0.9, timeout_s=0.1)
    thread.join()
    lost = np.isnan(recorder.samples.rtt_ms)
    assert planned(recorder) == 45
    assert 8 <= lost.sum() <= 40
    assert not lost[:5].any()
    assert not lost[-2:].any()
    assert np.diff(np.flatnonzero(lost)).max() == 1  # one outage
    assert read_rtt_csv(tmp_path / "mine.csv").lost == lost.sum()
    assert "times that the connection was made anew: 1" in read_notes(tmp_path / "mine.csv")["oddities"]


def test_a_responder_that_serves_once_outlasts_a_break_and_ends_with_the_recording(
    tmp_path: Path, serve: Callable[..., Any], slow_network: Callable[..., Any]
) -> None:
    responder = serve(once=True)
    network = slow_network(target=responder.address)

    def breaking(passed_s: float, samples: RecordingSamples) -> None:
        if not broken:
            broken.append(passed_s)
            network.break_off()

    broken: list[float] = []
    recorder = recorded(tmp_path, network.port, duration_s=0.5, timeout_s=0.1, progress=breaking)
    assert broken
    assert "times that the connection was made anew: 1" in recorder.oddities
    assert not np.isnan(recorder.samples.rtt_ms[-1])
    end_s = time.monotonic() + 2.0
    while any(thread.name == str(responder.address) for thread in threading.enumerate()):
        assert time.monotonic() < end_s, "the responder did not hear that it is over"
        time.sleep(0.01)


def test_a_recording_that_never_began_leaves_the_responder_to_the_next(tmp_path: Path, serve: Callable[..., Any]) -> None:
    responder = serve(once=True)
    (tmp_path / "mine.csv.partial").touch()
    with pytest.raises(TraceError, match="is left of a recording"):
        recorded(tmp_path, responder.address[1])
    (tmp_path / "mine.csv.partial").unlink()
    time.sleep(0.1)
    assert recorded(tmp_path, responder.address[1], duration_s=0.05).samples.arrived > 0


def test_while_an_echo_is_under_way_nothing_is_written_or_shown(
    tmp_path: Path, slow_network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take its time from the round trip; but a slow network must not keep it up for ever."""
    monkeypatch.setattr("simnmt.network.recording.recorder._REPORT_EVERY_NS", 10_000_000)
    monkeypatch.setattr("simnmt.network.recording.recorder._REPORT_AT_LATEST_NS", 200_000_000)
    shown: list[float] = []
    recorded(tmp_path, slow_network(one_way_s=0.03).port, duration_s=0.4, progress=lambda passed_s, _: shown.append(passed_s))
    assert 1 <= len(shown) <= 5
    assert min(np.diff(shown[:-1]), default=1.0) > 0.19  # at the end the last echo is back


def test_a_transfer_too_brief_to_trust_is_lost(
    tmp_path: Path, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simnmt.network.recording.protocol.LEAST_NS", 10**12)
    recorder = recorded(tmp_path, serve().address[1], duration_s=0.1, bandwidth_every_s=10.0, transfer_bytes=10_000)
    assert recorder.written == [tmp_path / "mine.csv"]
    assert np.isnan([*recorder.samples.downlink_mbps, *recorder.samples.uplink_mbps]).tolist() == [True, True]
    assert any("too brief to trust, hence lost (raise --transfer): 1" in what for what in recorder.oddities)


def test_late_echoes_are_lost_and_counted(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    network = slow_network(one_way_s=0.002)

    def slower(passed_s: float, samples: RecordingSamples) -> None:
        network.one_way_s = 0.15 if passed_s > 0.2 else 0.002

    recorder = recorded(tmp_path, network.port, duration_s=0.7, timeout_s=0.1, progress=slower)
    assert 5 <= recorder.samples.lost <= 27
    assert any(what.startswith("echoes later than the timeout") for what in recorder.oddities)


def test_losses_at_the_start_keep_the_clock(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    """They stand in the file as empty cells, so that it says when the first probe went out."""
    network = slow_network()
    plan = RecordingPlan("127.0.0.1", network.port, duration_s=0.6, interval_s=0.05, timeout_s=0.1, bandwidth_every_s=0.0)
    recorder = Recorder(plan, tmp_path / "mine.csv")
    network.break_off()
    recorder.run()
    rows = [line for line in (tmp_path / "mine.csv").read_text().splitlines() if not line.startswith("#")][1:]
    assert rows[0].endswith(",")
    assert float(rows[0].split(",")[0]) < 0.04
    assert read_rtt_csv(tmp_path / "mine.csv").lost == recorder.samples.lost > 0


def test_all_probes_lost_is_an_error_that_leaves_nothing(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    network = slow_network(one_way_s=0.0)
    plan = RecordingPlan("127.0.0.1", network.port, duration_s=0.1, interval_s=0.02, timeout_s=0.05, bandwidth_every_s=0.0)
    recorder = Recorder(plan, tmp_path / "mine.csv")
    network.one_way_s = 1.0
    with pytest.raises(TraceError, match=r"^127\.0\.0\.1: all 5 probes were lost \(check"):
        recorder.run()
    assert list(tmp_path.iterdir()) == []


def test_what_is_recorded_is_on_disk_as_it_comes(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    """A partial file is a series of its own: whoever kills the recorder keeps it."""
    seen: list[tuple[int, int]] = []

    def look(passed_s: float, samples: RecordingSamples) -> None:
        if samples.arrived:
            seen.append((len(read_rtt_csv(tmp_path / "mine.csv.partial").rtt_s), len(samples.rtt_ms)))

    recorded(tmp_path, slow_network().port, duration_s=0.4, progress=look)
    assert seen
    assert all(on_disk == known for on_disk, known in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_an_interruption_keeps_what_was_recorded(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    def interrupt(passed_s: float, samples: RecordingSamples) -> None:
        if len(samples.rtt_ms) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(tmp_path, slow_network().port, duration_s=60.0, progress=interrupt)
    assert len(read_rtt_csv(tmp_path / "mine.csv").rtt_s) > 5
    assert "cut short after 0 s of 60 s" in read_notes(tmp_path / "mine.csv")["oddities"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_partial_file_of_before_is_not_written_over(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    (tmp_path / "mine.csv.partial").write_text("precious")
    with pytest.raises(TraceError, match=r"mine\.csv\.partial: is left of a recording that was cut off"):
        recorded(tmp_path, slow_network().port)
    assert (tmp_path / "mine.csv.partial").read_text() == "precious"


def test_a_full_disk_leaves_the_partial_file_and_raises_an_error(
    tmp_path: Path, slow_network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise TraceError("cannot be written: No space left on device", path="mine.csv")

    plan = RecordingPlan("127.0.0.1", slow_network().port, duration_s=0.3, interval_s=0.02, bandwidth_every_s=0.0)
    recorder = Recorder(plan, tmp_path / "mine.csv")
    monkeypatch.setattr(RecordingFiles, "finish", full)
    with pytest.raises(TraceError, match="No space left"):
        recorder.run()
    assert recorder.left == [tmp_path / "mine.csv.partial"]
    assert len(read_rtt_csv(recorder.left[0]).rtt_s) > 3


def test_more_than_the_responder_grants_is_refused_at_once(tmp_path: Path, slow_network: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="the responder grants 16,000,000"):
        recorded(tmp_path, slow_network().port, bandwidth_every_s=1.0, transfer_bytes=64_000_000)


def test_a_transfer_that_breaks_off_is_lost_and_the_recording_goes_on(
    tmp_path: Path, slow_network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1 Mbit/s a transfer of 150 kB takes longer than it may here."""
    monkeypatch.setattr("simnmt.network.recording.protocol.LONGEST_S", 0.1)
    network = slow_network(rate_bps=1e6)
    recorder = recorded(tmp_path, network.port, duration_s=0.3, bandwidth_every_s=10.0, transfer_bytes=150_000)
    assert recorder.written == [tmp_path / "mine.csv"]
    assert read_notes(tmp_path / "mine.csv")["transfers"] == "1 each way, lost: 1 down, 1 up"
