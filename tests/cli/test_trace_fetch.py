"""`simnmt trace fetch` as a user meets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from simnmt.network.series_csv import read_notes, read_rtt_csv

START_S = 1_525_359_600


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a site that knows measurement 5 as probe 7 saw it."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path.startswith("/api/v2/measurements/5/results/?probe_ids=7&")
            rounds = [
                {"type": "ping", "prb_id": 7, "msm_id": 5, "timestamp": START_S + 240 * k, "result": [{"rtt": 70 + k % 5}]}
                for k in range(60)
            ]
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(rounds).encode() if known else b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("no_proxy", "*")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_fetched_series_is_of_the_form_that_a_scenario_reads(folder: Path, site: str, simnmt: Callable[..., Any]) -> None:
    asked = "trace fetch --measurement 5 --probe 7 --start 2018-05-03T15:00 --stop 2018-05-03T19:00 --out cp1.csv --cache kept"
    done = simnmt(*asked.split(), "--base-url", site)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == "wrote cp1.csv: RTT, measured; 60 over 4 h; lost: 0 (0 %)"
    assert done.out.splitlines()[1].startswith("  kept in kept/")
    notes = read_notes("cp1.csv")
    assert notes["made"] == "simnmt trace fetch"
    assert notes["fetched"].startswith(
        f"{site}/api/v2/measurements/5/results/?probe_ids=7&start=1525359600&stop=1525374000&format=json at 2"
    )
    assert notes["began"] == "2018-05-03 15:00:00+00:00"
    assert len(notes["sha256"]) == 64
    series = read_rtt_csv("cp1.csv")
    assert (series.kind, len(series.rtt_s), series.mean_s) == ("measured", 60, pytest.approx(0.072))
    first = Path("cp1.csv").read_bytes()
    again = simnmt(*asked.split(), "--base-url", site, "--force")
    assert again.out.splitlines()[1].startswith("  from kept/")
    assert Path("cp1.csv").read_bytes() == first


def test_without_a_folder_it_is_kept_where_caches_lie(
    folder: Path, site: str, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "caches"))
    asked = "trace fetch --measurement 5 --probe 7 --start 2018-05-03 --stop 2018-05-04 --out cp1.csv --base-url"
    assert simnmt(*asked.split(), site).status == 0
    assert len(list((folder / "caches" / "simnmt" / "ripe-atlas").iterdir())) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("--measurement 6", " has no measurement 6 (check --measurement)"),
        ("--start soon", "simnmt: --start soon: is no date (write it as 2026-01-01 or 2026-01-01T12:30, in UTC)"),
        ("--stop 2018-05-02", "simnmt: --stop 2018-05-02T00:00Z is not after --start 2018-05-03T00:00Z (swap them)"),
        ("--probe 0", "simnmt: --probe 0: is not a valid number of RIPE Atlas"),
        ("--api-key-file none", "simnmt: none: cannot be read: No such file or directory"),
        ("--base-url ftp://a", "simnmt: --base-url ftp://a: is no address of a web site"),
        ("--out no/such.csv", "simnmt: no/such.csv: cannot be written: No such file or directory"),
        ("--cache small.yaml", "simnmt: small.yaml: cannot be written: File exists (choose another --cache)"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    folder: Path, site: str, simnmt: Callable[..., Any], changed: str, said: str
) -> None:
    asked = {"--measurement": "5", "--probe": "7", "--start": "2018-05-03", "--stop": "2018-05-04"}
    asked |= {"--out": "x.csv", "--cache": "kept", "--base-url": site}
    asked |= [changed.split()]
    done = simnmt("trace", "fetch", *(word for pair in asked.items() for word in pair))
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err
    assert not list(folder.glob("x*.csv"))
