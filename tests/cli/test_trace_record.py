"""`simnmt trace record` and `respond` as a user meets them, over real sockets of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt.network.recording.responder import Responder
from simnmt.network.series_csv import read_notes, read_rtt_csv


@pytest.fixture
def port() -> Iterator[str]:
    """Where a responder listens."""
    responder = Responder()
    thread = threading.Thread(target=responder.serve, daemon=True)
    thread.start()
    yield str(responder.address[1])
    responder.close()
    thread.join(5.0)


def asked(to: str, **options: str) -> list[str]:
    chosen = {"--host": "127.0.0.1", "--port": to, "--duration": "300ms", "--interval": "20ms", "--out": "mine.csv"}
    chosen |= {f"--{name.replace('_', '-')}": text for name, text in options.items()}
    return ["trace", "record", *(word for pair in chosen.items() for word in pair)]


def test_a_recording_is_a_network_that_a_scenario_runs_on(
    folder: Path, port: str, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simnmt.network.recording.protocol.LEAST_NS", 1)  # this machine is as fast as that
    done = simnmt(*asked(port, bandwidth_every="150ms", transfer="2MB"))
    assert (done.status, done.err) == (0, "")
    rtt, bandwidth, *_ = done.out.splitlines()
    assert re.fullmatch(r"wrote mine\.csv: RTT, measured; \d+ probes, 0 lost; median \S+ ms, from \S+ to \S+", rtt)
    assert re.match(
        r"wrote mine-bandwidth\.csv: bandwidth, measured; \d transfers? each way; downlink median \S+ Mbit/s", bandwidth
    )
    rates = ", ".join(f"{way}link_mbps: {{csv: mine-bandwidth.csv, column: {way}link_mbps}}" for way in ("down", "up"))
    office = f"networks.office={{rtt: {{csv: mine.csv}}, {rates}}}"
    assert simnmt("run", "small.yaml", "--set", office, "--replications", "1", "--out", "run").status == 0
    notes = json.loads((folder / "run" / "summary.json").read_text())["notes"]
    assert any("measured RTT series" in note for note in notes)
    inspected = simnmt("trace", "inspect", "mine-bandwidth.csv")
    assert inspected.out.startswith(
        "mine-bandwidth.csv: downlink, measured; TCP echo of 64 bytes on one connection to 127.0.0.1"
    )
    kept = Path("mine.csv").read_bytes()
    refused = simnmt(*asked(port))
    assert (refused.status, refused.err) == (
        2,
        "simnmt: mine.csv: exists already (choose another name, or replace it with --force)\n",
    )
    assert Path("mine.csv").read_bytes() == kept


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": "1"}, "127.0.0.1 port 1: connection refused (start `simnmt trace respond` there, or correct"),
        ({"host": "no.such.name"}, "--host no.such.name: cannot be resolved: Name or service not known (check the name, or"),
        ({"host": "a" * 300 + ".b"}, "--host aaa"),
        ({"duration": "0"}, "--duration 0: records nothing (give 60s, 10m or 2h)"),
        (
            {"duration": "long"},
            "Invalid value for '--duration': 'long' is not such a quantity; write it as 600s, 10m, 2h, 1d or 500ms",
        ),
        ({"interval": "1ms"}, "--interval 0.001 s (give 10 ms to 240 s)"),
        ({"duration": "999999d"}, "4,319,995,680,000 probes in one recording, more than 10,000,000"),
        ({"transfer": "1kB"}, "--transfer 1,000 bytes (give 10 kB to 1000 MB)"),
        ({"transfer": "900MB"}, "--transfer 900,000,000 bytes: the responder grants 16,000,000"),
        ({"timeout": "0"}, "--timeout 0 s (give more than 0 and at most 60 s)"),
        ({"method": "udp"}, "Invalid value for '--method': "),
        ({"out": "no/such.csv"}, "no/such.csv: cannot be written: No such file or directory"),
        ({"out": "."}, "--out '.' names no file"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    folder: Path,
    port: str,
    simnmt: Callable[..., Any],
    tree: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    said: str,
) -> None:
    resolve = socket.getaddrinfo

    def without_asking(host: str, *others: Any, **named: Any) -> Any:
        if host == "no.such.name":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", without_asking)
    before = tree(folder)
    done = simnmt(*asked(port, **options))
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"simnmt: {said}")
    assert tree(folder) == before


def test_who_is_no_responder_is_named_so(folder: Path, simnmt: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with server.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        done = simnmt(*asked(str(server.getsockname()[1])))
        thread.join(2.0)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "the program that listens there is no simnmt responder" in done.err


def test_without_a_port_tcp_cannot_be_recorded(folder: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("trace", "record", "--host", "127.0.0.1", "--duration", "1s", "--out", "x.csv")
    assert (done.status, done.err) == (2, "simnmt: --port is missing (give the one that `simnmt trace respond` printed)\n")


def test_both_ends_as_processes_and_an_interrupt_that_keeps_what_was_recorded(folder: Path, start: Callable[..., Any]) -> None:
    """The responder is ended by an interrupt as well, and gives its address back."""
    responder: subprocess.Popen[str] = start("trace", "respond")
    recorder: subprocess.Popen[str] | None = None
    try:
        listening = responder.stdout.readline()  # type: ignore[union-attr]
        found = re.fullmatch(r"listening on 127\.0\.0\.1 port (\d+)\n", listening)
        assert found
        recorder = start(*asked(found[1], duration="10m"))
        end_s = time.monotonic() + 20.0
        while not (folder / "mine.csv.partial").exists() or (folder / "mine.csv.partial").read_text().count("\n") < 20:
            assert time.monotonic() < end_s, "waited too long"
            time.sleep(0.02)
        os.killpg(recorder.pid, signal.SIGINT)
        out, err = recorder.communicate(timeout=20)
        assert (recorder.returncode, err) == (130, "simnmt: interrupted; nothing is left half-written\n")
        assert out.startswith("wrote mine.csv: RTT, measured; ")
        assert re.search(r"note: .*cut short after \d+ s of 600 s", out)
        assert len(read_rtt_csv(folder / "mine.csv").rtt_s) > 8
        assert "cut short" in read_notes(folder / "mine.csv")["oddities"]
        assert not list(folder.glob("*.partial"))
        os.killpg(responder.pid, signal.SIGINT)
        out, err = responder.communicate(timeout=20)
        assert (responder.returncode, out, err) == (130, "", "simnmt: interrupted; nothing is left half-written\n")
    finally:
        for process in (responder, recorder):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(found[1])))
