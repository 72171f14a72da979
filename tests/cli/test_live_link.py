"""`simnmt live link` as a user meets it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.service.link_ends import receive, server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_link_delays_a_connection_and_ends_on_a_signal_with_its_summary(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    with server() as address:
        process = start("live", "link", "--rtt", "30ms", "--bandwidth", "20Mbit/s", "--to", str(address.port))
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert re.fullmatch(
            r"own overhead: round trip without delay \S+ ms \(p99 \S+\), directly \S+ ms \(p99 \S+\): \S+ ms added; "
            r"timers \S+ ms late \(p99 \S+\)\n",
            lines[0],
        )
        assert lines[1] == "link: RTT 30 ms, up 20 Mbit/s, down 20 Mbit/s\n"
        listening = re.fullmatch(rf"listening on 127\.0\.0\.1:(\d+), to {address.port}\n", lines[2])
        assert listening is not None
        with socket.create_connection(("127.0.0.1", int(listening[1])), timeout=20.0) as end:
            end.sendall(b"hallo")
            assert receive(end, 5) == b"hallo"
            process.send_signal(number)
            out, err = process.communicate(timeout=20.0)
    assert (process.returncode, err) == (0, "")
    assert "connections    1 (0 refused, 0 unreachable, 0 reset, 0 idle)" in out
    assert "bytes          5 up, 5 down" in out
    assert re.search(r"nominal mean 15\.\d{3} ms of 2 chunks; realised \+\S+ ms in the mean, \+\S+ ms at p99\n", out)


def test_json_holds_overhead_and_summary(simnmt: Callable[..., Any]) -> None:
    done = simnmt("live", "link", "--rtt", "@cp1", "--rtt-mean", "20ms", "--to", "9", "--duration", "10ms", "--json")
    assert done.status == 0
    document = json.loads(done.out)
    assert (document["summary"]["connections"], document["summary"]["chunks"]) == (0, 0)
    overhead = document["overhead"]
    assert overhead["added_median_s"] == overhead["proxied_median_s"] - overhead["direct_median_s"]
    assert 0.0 < overhead["direct_median_s"] <= overhead["direct_p99_s"]
    assert re.search(r"^link: RTT @cp1: [\d,]+ samples, mean 20 ms, up 100 Mbit/s", done.err, re.MULTILINE)


def test_netem_commands_are_printed(simnmt: Callable[..., Any]) -> None:
    done = simnmt("live", "link", "--rtt", "50ms", "--bandwidth", "20Mbit/s", "--loss", "1.5%", "--netem", "lo")
    line = "tc qdisc replace dev lo root netem limit 100000 delay 25000us rate 20000000bit loss 1.5%\n"
    assert (done.status, done.out) == (0, line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--rtt is missing (give a time such as 50ms, a CSV file or @cp1)"),
        ("--rtt 50ms", "--to is missing (give the address of the server, such as 127.0.0.1:5000)"),
        ("--rtt 50ms --to x", "--to 'x' is not an address (write it as HOST:PORT, such as 127.0.0.1:5000)"),
        ("--rtt 50ms --to 70000", "--to: 70000 is not a valid port (1-65535) (correct it)"),
        ("--rtt 50ms --to 0", "--to 127.0.0.1:0 has no port (give the address of the server)"),
        (
            "--rtt 50ms --to 9 --listen 0.0.0.0:0",
            "--listen 0.0.0.0:0 is open to others, and the link asks for no password (add --allow-remote if that is meant)",
        ),
        ("--rtt 99s --to 9", "--rtt 99 s (give 0 to 10 s)"),
        ("--rtt 5ms --rtt-mean 11s --to 9", "--rtt-mean 11 s (give more than 0 and at most 10 s)"),
        ("--rtt nowhere.csv --to 9", "nowhere.csv: cannot be read: No such file or directory (check the path)"),
        ("--rtt @cp9 --to 9", "@cp9"),
        ("--rtt 5ms --uplink 0bit/s --to 9", "--uplink 0 bit/s (give 1 bit/s to 1e+06 Gbit/s)"),
        ("--rtt 5ms --bandwidth 20MB/s --to 9", "'20MB' is not such a quantity; write it as 500kbit/s or 1Mbit/s"),
        ("--rtt 5ms --to 9 --outage 3s", "'3s' is not an outage; write it as 30s:10s or 30s:10s:reset"),
        ("--rtt 5ms --to 9 --outage 1s:2s --outage 2s:1s", "the outage at 2 s begins before the one before it ends"),
        ("--rtt 5ms --to 9 --loss 2", "'2' is not a percentage between 0 and 100; write 2% for two percent"),
        ("--rtt 5ms --to 9 --idle 0", "a limit of 0 s (give more than 0 s)"),
        ("--rtt 5ms --to 9 --window 0", "a window of 0 bytes (give at least 1,500)"),
        ("--rtt 5ms --netem eth0;reboot", "--netem 'eth0;reboot' is not the name of a device (give one such as lo)"),
    ],
)
def test_wrong_input_is_refused_in_one_line(simnmt: Callable[..., Any], arguments: str, message: str) -> None:
    done = simnmt("live", "link", *arguments.split())
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
