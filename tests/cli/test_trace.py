"""`simnmt trace import` and `inspect` as a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.command_line import Command

PING = '{"type": "ping", "prb_id": %d, "msm_id": 5, "timestamp": %d, "result": [{"rtt": %s}, {"x": "*"}]}\n'
CELL = "epoch_s,dl_kbps,ul_kbps,ping_min_ms,ping_loss_pct\n" + "".join(
    f"{1_500_000_000 + second},{8000 + second},{3000 + second},{50 + second if second % 2 else ''},{0 if second % 2 else ''}\n"
    for second in range(60)
)


@pytest.fixture
def results(folder: Path) -> Path:
    path = folder / "atlas.json"
    path.write_text("".join(PING % (1, 1_500_000_000 + 240 * round_, 70 + round_ % 5) for round_ in range(40)))
    return path


def test_results_become_a_series_that_a_scenario_runs_on(folder: Path, results: Path, simnmt: Command) -> None:
    done = simnmt("trace", "import", "atlas.json", "--out", "series.csv")
    assert (done.status, done.err) == (0, "")
    assert done.out == "wrote series.csv: RTT, measured; samples: 40 over 2.667 h; lost: 0 (0 %)\n"
    assert simnmt("run", "small.yaml", "--set", "networks.office.rtt=series.csv", "--out", "run").status == 0
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert any("measured RTT series, mean 72.0 ms" in note for note in summary["notes"])
    assert simnmt("trace", "import", "atlas.json", "--out", "series.csv", "--force").out.startswith("replaced series.csv")


def test_a_cellular_log_becomes_a_link_that_a_scenario_runs_on(folder: Path, simnmt: Command) -> None:
    (folder / "log.csv").write_text(CELL)
    done = simnmt("trace", "import", "log.csv", "--out", "drive.csv", "--kind", "measured")
    assert done.status == 0
    assert [line.split(":")[0] for line in done.out.splitlines() if line.startswith("wrote")] == [
        "wrote drive.rtt.csv",
        "wrote drive.downlink.csv",
        "wrote drive.uplink.csv",
    ]
    office = "networks.office={rtt: drive.rtt.csv, downlink_mbps: drive.downlink.csv, uplink_mbps: drive.uplink.csv}"
    assert simnmt("run", "small.yaml", "--set", office, "--out", "run").status == 0
    inputs = json.loads((folder / "run" / "manifest.json").read_text())["inputs"]
    assert {"drive.rtt.csv", "drive.downlink.csv", "drive.uplink.csv"} <= {Path(name).name for name in inputs}


def test_inspect_says_what_a_trace_is_like(folder: Path, simnmt: Command) -> None:
    rows = "".join(f"{second},{'' if second in (5, 6) else 50 + second % 3}\n" for second in range(100))
    (folder / "a.csv").write_text("# kind: measured\n# source: a test\ntime_s,rtt_ms\n" + rows)
    done = simnmt("trace", "inspect", "a.csv")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "a.csv: RTT, measured; a test"
    figures = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[1:] if "note" not in line)
    assert figures["samples"] == "100 over 100 s"
    assert figures["lost"] == "2 (2 %) in 1 run, the longest of 2, 2 s; held at the value before"
    assert figures["p50"] == "51 ms"
    assert "p99.9" not in figures
    content = json.loads(simnmt("trace", "inspect", "a.csv", "--json").out)
    (series,) = content["series"]
    assert (series["lost"], series["quantiles"]["p50"], series["unit"]) == (2, pytest.approx(0.051), "s")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("import none.json --out x.csv", "none.json: cannot be read: No such file or directory (check the path)"),
        ("import atlas.json --out no/such.csv", "no/such.csv: cannot be written: No such file or directory"),
        ("import atlas.json --out x.csv --probe 2", "atlas.json: no probe 2 among: 1 (40) (choose one by --probe)"),
        ("inspect unsure.csv", "unsure.csv:1:1: no column called like a time among a and b (name it by --column time=NAME)"),
        ("inspect atlas.json --interval 0s", "Invalid value for '--interval': '0s' is not a time"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    folder: Path, results: Path, simnmt: Command, command: str, complaint: str
) -> None:
    (folder / "two.json").write_text(PING % (1, 1_500_000_000, 5) + PING % (2, 1_500_000_000, 5))
    (folder / "unsure.csv").write_text("a,b\n0,90000\n")
    before = results.read_text()
    done = simnmt("trace", *command.split())
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"simnmt: {complaint}")
    assert done.err.count("\n") == 1
    assert not list(folder.glob("x*.csv"))
    assert results.read_text() == before


def test_a_series_that_a_scenario_refuses_names_the_command_that_mends_it(folder: Path, simnmt: Command) -> None:
    (folder / "back.csv").write_text("time_s,rtt_ms\n0,50\n4,60\n2,55\n2,56\n")
    refused = simnmt("run", "small.yaml", "--set", "networks.office.rtt=back.csv", "--out", "run")
    assert refused.status == 2
    assert "back.csv:4:1: " in refused.err
    assert "`simnmt trace import`" in refused.err
    done = simnmt("trace", "import", "back.csv", "--out", "mended.csv")
    assert "1 sample stood behind a later one, by 2 s at most: sorted by time" in done.out
    assert "1 sample repeated the time of another: the first that arrived was kept" in done.out
    assert simnmt("run", "small.yaml", "--set", "networks.office.rtt=mended.csv", "--out", "run").status == 0


def test_of_several_series_all_are_written_or_none(folder: Path, simnmt: Command) -> None:
    (folder / "log.csv").write_text(CELL)
    (folder / "drive.uplink.csv").mkdir()
    done = simnmt("trace", "import", "log.csv", "--out", "drive.csv")
    assert done.status == 2
    assert done.err.startswith("simnmt: drive.uplink.csv: cannot be written: Is a directory")
    assert [path.name for path in folder.glob("*drive*")] == ["drive.uplink.csv"]
    assert not list(folder.glob(".simnmt*"))


def test_iperf3_becomes_a_link_that_a_scenario_runs_on(folder: Path, simnmt: Command) -> None:
    intervals = [{"sum": {"start": at, "bits_per_second": 4e7 + at, "omitted": False, "sender": False}} for at in range(5)]
    report = {"start": {"timestamp": {"timesecs": 1_700_000_000}, "test_start": {"reverse": 1}}, "intervals": intervals}
    (folder / "iperf3.json").write_text(json.dumps(report))
    assert simnmt("trace", "import", "iperf3.json", "--out", "down.csv").out.startswith(
        "wrote down.csv: downlink, measured; samples: 5"
    )
    assert simnmt("run", "small.yaml", "--set", "networks.office.downlink_mbps=down.csv", "--out", "run").status == 0
