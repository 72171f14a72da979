"""Results of RIPE Atlas of every firmware, and the network profiles that are shipped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.network.connection_profiles import PROFILES, main
from simnmt.network.series import RttSeries, TraceError
from simnmt.network.series_csv import SeriesTable, read_series
from simnmt.network.traces import read_trace
from simnmt.network.traces.trace import ReadOptions

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "rtt"
needs_traces = pytest.mark.skipif(not REAL.is_dir(), reason=f"the RTT series are not in {REAL}")

SAMPLES = [REAL / f"ripe_atlas_{kind}_samples.json" for kind in ("ping", "traceroute")]


_PINGS = [57.876, 123.894, 43.87, 193.059, 95.389, 29.961, 65.975, 27.301, 34.748, 36.424, 45.939, 47.941, 27.768]
EXPECTED_MS = {
    "ping": [*_PINGS, None, 52.875],
    "traceroute": [None] * 10 + [216.443] + [None] * 4 + [85.785] + [None] * 3,
}
"""The least reply that counts and comes from the destination, read off by eye; None where there is none."""


@needs_traces
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_of_a_firmware_has_the_value_of_its_text(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"results of \d+ probes: .*choose one by --probe"):
        read_trace(path)
    assert len(read_trace(SAMPLES[0], ReadOptions(probe=165))[0].value) == 4
    least_ms: list[float | None] = []
    for result in json.loads(path.read_text()):
        alone = tmp_path / "one.json"
        alone.write_text(json.dumps(result))
        try:
            (trace,) = read_trace(alone, ReadOptions(probe=result["prb_id"]))
            least_ms.append(round(float(trace.value[0]) * 1e3, 3))
        except TraceError as error:
            assert "no sample of 1 arrived: " in str(error)
            least_ms.append(None)
    assert least_ms == EXPECTED_MS[path.stem.split("_")[2]]


CP = {name: read_series(RttSeries, shipped_files.find("traces/rtt", name)) for name in PROFILES}


def test_cp1_is_slower_on_average_and_more_restless_than_cp2() -> None:
    assert CP["cp1"].mean_s > CP["cp2"].mean_s
    spread_s = {name: np.subtract(*np.quantile(series.rtt_s, [0.95, 0.05])) for name, series in CP.items()}
    assert spread_s["cp1"] > 5 * spread_s["cp2"]


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_state_that_they_are_synthetic_and_what_they_represent(name: str) -> None:
    assert CP[name].kind == "synthetic"
    assert CP[name].source.startswith(f"synthetic stand-in for the C-NMT paper's {name.upper()}")
    for message in ("RIPE Atlas probe", "measurement 1010", "commit d090227", "MIT", "seed"):
        assert message in CP[name].source
    assert CP[name].duration_s == PROFILES[name][1] * 3600


DIGESTS = {
    "cp1": "e590e794fd5921b0892c4f6dfc85ef7bbcb84215b846180ccee04e039d31296d",
    "cp2": "d1bb88e0a21b06027301face0180871e59921dd36bf564d21f547ad883653387",
}
"""Of the samples that Table I was inferred on: whoever draws them anew has to infer the shipped device profiles anew, too."""


def test_the_command_in_the_header_writes_the_shipped_files_again(tmp_path: Path) -> None:
    made = SeriesTable(shipped_files.find("traces/rtt", "cp1")).notes["made"].split()
    assert made[:3] == ["python", "-m", "simnmt.network.connection_profiles"]
    main([*made[3:], "--out", str(tmp_path)])
    for name, digest in DIGESTS.items():
        assert hashlib.sha256(shipped_files.find("traces/rtt", name).read_bytes()).hexdigest() == digest
        assert (tmp_path / f"{name}.csv").read_bytes() == shipped_files.find("traces/rtt", name).read_bytes()
