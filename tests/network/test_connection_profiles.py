from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.network.connection_profiles import PROFILES, connection_profile, main
from simnmt.network.errors import TraceError
from simnmt.network.series_csv import read_notes, read_rtt_csv

CP = {name: read_rtt_csv(shipped_files.find("traces/rtt", name)) for name in PROFILES}


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
    assert CP[name].duration_s == PROFILES[name].hours * 3600


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("cp1", "e590e794fd5921b0892c4f6dfc85ef7bbcb84215b846180ccee04e039d31296d"),
        ("cp2", "d1bb88e0a21b06027301face0180871e59921dd36bf564d21f547ad883653387"),
    ],
)
def test_the_samples_that_table_one_was_inferred_on_are_still_these(name: str, digest: str) -> None:
    """Whoever draws them anew has to infer the shipped device profiles anew, too."""
    assert hashlib.sha256(shipped_files.find("traces/rtt", name).read_bytes()).hexdigest() == digest


def test_the_command_in_the_header_writes_the_shipped_files_again(tmp_path: Path) -> None:
    made = read_notes(shipped_files.find("traces/rtt", "cp1"))["made"].split()
    assert made[:3] == ["python", "-m", "simnmt.network.connection_profiles"]
    assert main([*made[3:], "--out", str(tmp_path)]) == 0
    for name in PROFILES:
        assert (tmp_path / f"{name}.csv").read_bytes() == shipped_files.find("traces/rtt", name).read_bytes()


def test_another_mean_moves_the_series_and_keeps_its_fluctuations() -> None:
    moved = connection_profile("cp1", 0.060)
    assert moved.mean_s == pytest.approx(0.060)
    assert moved.rtt_s - CP["cp1"].rtt_s == pytest.approx(0.060 - CP["cp1"].mean_s, abs=1e-6)
    assert "moved by -240.844 ms for a mean of 60 ms" in moved.source


def test_a_mean_too_low_for_the_fluctuations_is_refused() -> None:
    with pytest.raises(TraceError, match="fluctuations"):
        connection_profile("cp1", 0.005)


def test_the_slower_profile_must_be_cp1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cp1-mean-ms", "40", "--cp2-mean-ms", "45", "--out", str(tmp_path)]) == 2
    assert "CP1 must be slower" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
