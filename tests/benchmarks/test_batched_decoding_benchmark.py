"""The benchmark of real batched decoding does what it says, on a tiny model and a profile that was measured on none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from benchmarks.batched_decoding import BARS, main
from simnmt.base import shipped_files

TINY = {"kind": "gru", "layers": 1, "hidden": 16, "embedding": 16, "src_vocab": 50, "tgt_vocab": 50}
RUN = ["--sentences", "160", "--batch", "8", "--mix", "opensubtitles"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def test_every_bar_is_about_a_figure(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--model", model, *RUN, "--beam", "2", "--json"])
    part = json.loads(capsys.readouterr().out)["mixes"]["opensubtitles"]
    assert {name for name in BARS if name.startswith("half-empty")} <= set(part["ratios"])
    mini, maxi, half_empty, immediate = part["batchers"]
    assert [row["batcher"] for row in part["batchers"]] == ["mini", "maxi", "half-empty", "immediate"]
    assert mini["steps"] > half_empty["steps"] > immediate["steps"] and mini["steps"] > maxi["steps"]
    assert mini["mean_active"] * mini["steps"] == pytest.approx(immediate["mean_active"] * immediate["steps"])
    assert part["ratios"]["half-empty_over_mini"] == pytest.approx(mini["total_s"] / half_empty["total_s"])


def test_a_profile_of_another_model_beam_or_engine_is_refused(model: str, tmp_path: Path) -> None:
    profile = json.loads(shipped_files.find("calibration", "@cpu1-gru").read_text())
    profile["engine"]["backend"] = "ctranslate2"
    (tmp_path / "ctranslate2.json").write_text(json.dumps(profile))
    for arguments, message in (
        (["--profile", "@cpu1-gru", "--model", model], "another model"),
        (["--profile", "@cpu1-gru", "--beam", "5"], "measured with beam 1"),
        (["--profile", str(tmp_path / "ctranslate2.json")], "not measured with torch"),
        (["--profile", "@tx2-gru"], "has no costs of decode steps"),
    ):
        with pytest.raises(SystemExit, match=message):
            main([*arguments, *RUN])


def test_a_compute_type_that_the_device_lacks_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--model", model, *RUN, "--compute-type", "float16"])
    assert "--compute-type float16: cpu takes float32" in capsys.readouterr().err
