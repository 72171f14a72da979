"""A small reproduction of the sharp decoder, and `simnmt reproduce sharp`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnmt.calibrate import sharp_agreement, sharp_speeds
from simnmt.calibrate.sharp_agreement import RungAgreement
from simnmt.calibrate.sharp_speeds import rung_settings
from simnmt.cli.reproduce import app
from simnmt.kernels.packed_products import Clipping
from simnmt.papers.kit.rendering import Report
from simnmt.papers.sharp import LADDER, SYSTEMS, report
from tests.papers.sharp_stand_ins import as_published


@pytest.fixture
def reproduction() -> Report:
    return report(as_published(table={"activations": 360.0}))


def test_every_rung_has_its_published_and_its_measured_speed_and_is_exact_or_not(reproduction: Report) -> None:
    tables = {table["id"]: table["rows"] for table in reproduction.document()["tables"]}
    rows = tables["table-1"]
    names = ["baseline", "int16", "embeddings", "attention", *["activations"] * 2, *["merge"] * 2]
    assert [row["rung"] for row in rows] == names
    assert [row["adds_noise"] for row in rows] == [False, True, False, False, True, True, False, False]
    for row in rows:
        if row["activations"] != "table":
            assert row["words_per_s"] == pytest.approx(LADDER[row["rung"], "words_per_s"])
            assert row["factor"] == pytest.approx(row["published_factor"])
    (slower,) = [row for row in rows if (row["rung"], row["activations"]) == ("activations", "table")]
    assert slower["step"] == pytest.approx(360 / 342), "the paper's rung is measured beside the polynomial"
    assert {row["key"] for row in tables["table-2"]} == set(SYSTEMS.column("key"))
    assert [row["factor"] for row in tables["table-2"]] == pytest.approx([row["published_factor"] for row in tables["table-2"]])


def test_a_rung_shows_its_agreement_on_a_trained_model() -> None:
    """XP-03: exact, or how many words stay the same with all rungs so far."""
    speeds = as_published()
    settings = rung_settings(6, None, "polynomial")["merge"]
    agreements = [RungAgreement("merge", settings, 1_000, 999, 10, 9, 0.7)]
    reproduction = report(speeds, agreements)
    assert any(
        line.split()[:3] == ["+", "merge", "polynomial"] and " 99.90 " in line for line in reproduction.text().splitlines()
    )
    table = reproduction.document()["tables"][1]
    rows = {(row["rung"], row["activations"]): row["agreement"] for row in table["rows"]}
    assert rows["merge", "polynomial"] == 0.999 and rows["merge", "table"] is None


def test_json_is_finite_and_the_text_shows_both_speeds_and_each_verdict(reproduction: Report) -> None:
    document = reproduction.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    text = reproduction.text()
    line, by_amdahl = [line for line in text.splitlines() if line.startswith("+ 16-bit product")]
    assert line.split()[4:10] == ["248", "2.59", "2.611", "248.0", "2.611", "2.611"] and line.endswith("adds noise")
    merged = [line for line in text.splitlines() if line.startswith("+ merge")]
    assert len(merged) == 2 and all(line.endswith("  exact over the rung before") for line in merged)
    (amdahl,) = next(table["rows"] for table in document["tables"] if table["id"] == "amdahl")
    assert by_amdahl.split()[-2:] == [f"{amdahl['predicted']:.3f}", "2.611"], "XP-07, in the document too"
    for record in reproduction.claims:
        assert f"{record.verdict.capitalize()}: {record.id}." in text


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["sharp", *words])


def test_the_command_writes_page_and_json_and_prints_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = []

    def timed(setting: sharp_speeds.Setting, progress: object = None) -> sharp_speeds.SharpSpeeds:
        settings.append(setting)
        return as_published()

    monkeypatch.setattr(sharp_speeds, "sharp_speeds", timed)
    done = run("--quick", "--rounds", "2", "--out", "deep/out", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document.pop("directory") == "deep/out"
    assert json.loads((tmp_path / "deep/out/reproduction.json").read_text()) == document
    assert (tmp_path / "deep/out/report.html").is_file()
    assert settings[0].rounds == 2 and settings[0].vocab == sharp_speeds.QUICK.vocab
    assert any("quick look" in note for note in document["notes"])


def test_weights_that_16_bit_products_clip_give_one_warning_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rung with 16-bit products reports the same weights of the trained model."""
    rungs = rung_settings(6, None, "polynomial")
    agreements = [
        RungAgreement(key, rungs[key], 1_000, 1_000, 10, 10, 0.7, clipping=None if key == "baseline" else Clipping(7, 35_000))
        for key in ("baseline", "int16", "merge")
    ]
    monkeypatch.setattr(sharp_agreement, "sharp_agreement", lambda *_, **__: agreements)
    monkeypatch.setattr(sharp_speeds, "sharp_speeds", lambda *_: as_published())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("un\n")
    done = run("--model", "folder", "--text", "text", "--out", "out", "--json")
    assert done.exit_code == 0, done.output
    message = "7 of 35,000 weights (0.02 %) lie beyond [-1, 1], where 16-bit products clip them"
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith(f"simnmt: warning: {message}")] == lines
    assert len(done.stderr.splitlines()) == 1
    assert any(message in note for note in json.loads(done.stdout)["notes"])
