"""Every real series at hand is imported, or refused for one clear reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.series_csv import read_rtt_csv
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.summary import summarise
from simnmt.network.traces.trace_file import read_trace, write_traces
from tests.campaigns.harness import thinned

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "rtt"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason=f"the RTT series are not in {REAL}")

PINGS, CELLS = (sorted((REAL / folder).glob("*.csv")) for folder in ("ripe_atlas_ping", "cell_5g"))
SAMPLES = [REAL / f"ripe_atlas_{kind}_samples.json" for kind in ("ping", "traceroute")]
BACK_BY_2_S = {"probe11297.csv", "probe11824.csv", "probe12919.csv"}
SOME_PINGS = [path for number, path in enumerate(PINGS) if path.name in BACK_BY_2_S or number % 8 == 0]


def test_all_are_there() -> None:
    assert (len(PINGS), len(CELLS)) == (34, 5)


@pytest.mark.parametrize("path", thinned(PINGS, SOME_PINGS), ids=lambda path: path.stem)
def test_every_ping_series_is_imported_and_then_read_by_a_scenario(path: Path, tmp_path: Path) -> None:
    (trace,) = read_trace(path)
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    assert len(trace.value) + trace.lost_before == len({row[0] for row in rows})
    assert trace.lost_samples == sum(not row[1] for row in rows)
    back = "1 sample stood behind a later one, by 2 s at most: sorted by time"
    assert (back in trace.remarks) is (path.name in BACK_BY_2_S)
    (out,) = write_traces([trace], tmp_path / "series.csv")
    assert read_rtt_csv(out).lost == trace.lost_samples
    if path.name in BACK_BY_2_S:
        with pytest.raises(TraceError, match=r"earlier than the row before .*`simnmt trace import` mends"):
            read_rtt_csv(path, time_column="epoch_s")
    else:
        direct = read_rtt_csv(path, time_column="epoch_s")
        assert direct.time_s.tolist() == trace.time_s.tolist()
        assert direct.rtt_s == pytest.approx(trace.value)


@pytest.mark.parametrize("path", CELLS, ids=lambda path: path.stem)
def test_every_cellular_log_gives_rtt_and_both_bandwidths_at_their_own_clocks(path: Path) -> None:
    rtt, down, up = (summarise(trace) for trace in read_trace(path))
    assert [trace.quantity for trace in (rtt, down, up)] == ["rtt", "downlink", "uplink"]
    assert (rtt.spacing_s, down.spacing_s, up.spacing_s) == (14.0, 1.0, 1.0)
    assert 0.06 < rtt.quantiles[0.5] < 0.09  # type: ignore[operator]
    assert 0 < rtt.lost_share < 0.06
    assert 1e6 < up.mean * 20 < down.mean


EXPECTED_MS = {
    "ping": [
        57.876,
        123.894,
        43.87,
        193.059,
        95.389,
        29.961,
        65.975,
        27.301,
        34.748,
        36.424,
        45.939,
        47.941,
        27.768,
        None,
        52.875,
    ],
    "traceroute": [None] * 10 + [216.443] + [None] * 4 + [85.785] + [None] * 3,
}
"""The least reply that counts and comes from the destination, read off by eye; None where there is none."""


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_of_a_firmware_has_the_value_of_its_text(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"results of \d+ probes: .*choose one by --probe"):
        read_trace(path)
    least_ms: list[float | None] = []
    for result in json.loads(path.read_text()):
        alone = tmp_path / "one.json"
        alone.write_text(json.dumps(result))
        try:
            (trace,) = read_trace(alone, ReadOptions(probe=result["prb_id"], measurement=result["msm_id"]))
            least_ms.append(round(float(trace.value[0]) * 1e3, 3))
        except TraceError as error:
            assert "no sample of 1 arrived: " in str(error)
            least_ms.append(None)
    assert least_ms == EXPECTED_MS[path.stem.split("_")[2]]


def test_one_probe_of_several_makes_a_series() -> None:
    (trace,) = read_trace(SAMPLES[0], ReadOptions(probe=165))
    assert (trace.value * 1e3).tolist() == pytest.approx([123.894, 193.059, 95.389, 65.975])
    assert trace.lost_samples == 0
