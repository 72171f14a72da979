"""The whole reproduction of the fused kernel in small, and `simnmt reproduce fused`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnmt.base.errors import InputError
from simnmt.calibrate.decoder_speeds import RealSpeed
from simnmt.cli.reproduce import app
from simnmt.papers.fni import offline
from simnmt.papers.fni.fused_page import render_fused
from simnmt.papers.fni.fused_reproduction import Reproduction, as_text, reproduce
from simnmt.papers.fni.fused_reproduction import document as document_of
from simnmt.profile.profile_file import write_profile
from tests.papers.fused_stand_ins import fused_profile
from tests.papers.topup_stand_ins import profile


@pytest.fixture(scope="module", autouse=True)
def small_sets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "SENTENCES", {"europarl": 1_500, "opensubtitles": 1_500})
        yield


@pytest.fixture(scope="module")
def found() -> Reproduction:
    return reproduce(profiles=[fused_profile(product_fused=0.9), profile("silent")])


def test_every_device_that_tells_of_fusing_has_all_its_numbers(found: Reproduction) -> None:
    tables = {table["id"]: table["rows"] for table in document_of(found)["tables"]}
    assert len(tables["table-2-3"]) == 4 + 4 and len(tables["speeds"]) == 2 * 2 * 4 * 2 and len(tables["shares"]) == 4 * 4
    assert all(row["exact"] is True for row in tables["table-2-3"]), "each row says exact or its agreement (XP-03)"
    assert {row["fidelity"] for row in tables["speeds"]} == {"exact"}
    assert all(row["relative"] == 1.0 for row in tables["speeds"] if not row["fused"] and row["strategy"] in ("mini", "maxi"))
    for row in tables["amdahl"]:
        assert 1.0 < row["predicted_product_left_alone"] < row["predicted"], "beside each other (XP-07)"
        assert row["end_to_end"] > 1.0 and 0.0 < row["output_share"] < 1.0
    published = {(row["set"], row["strategy"], row["fused"]): row["published"] for row in tables["speeds"]}
    assert published["europarl", "mini", True] == 0.23 and published["opensubtitles", "half-empty", True] == 0.57
    assert published["europarl", "maxi half-empty", True] == 0.21 and published["europarl", "maxi", True] is None


def test_claims_have_ids_of_their_own_and_json_is_finite(found: Reproduction) -> None:
    assert len({record["id"] for record in found.claims}) == len(found.claims) == 3 + 2 + 3 + 2 + 5
    document = document_of(found)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert any("silent" in note for note in document["notes"])


def test_the_text_tells_published_beside_ours_and_each_verdict(found: Reproduction) -> None:
    text = as_text(found)
    assert "OpenSubtitles, beam 1, published" in text and "OpenSubtitles, beam 1, made-up" in text
    for record in found.claims:
        assert f"{record['verdict'].capitalize()}: {record['id']}." in text
    assert max(map(len, text.split("Does not hold: ")[0].splitlines())) < 140


def test_a_trained_model_is_not_said_to_have_random_weights(found: Reproduction) -> None:
    def told(weights: str) -> str:
        own = RealSpeed(
            "a-model", 85_000, "europarl", 1, 4, 9, (2.0,), (1.0,), 8, 1, 0, weights,
            {"body": 0.5, "project": 0.3, "softmax": 0.1, "search": 0.1},
            {"body": 1.0, "product": 0.5, "bias": 0.1, "softmax": 0.2, "search": 0.2, "fused_product": 0.4, "fused": 0.1},
        )  # fmt: skip
        document = document_of(replace(found, real=[own]))
        rows = {table["id"]: table["rows"] for table in document["tables"]}["amdahl"]
        (row,) = (row for row in rows if row["kind"] == "measured")
        assert row["predicted"] == pytest.approx(2 / 1.5) and row["predicted_product_left_alone"] == pytest.approx(2 / 1.6)
        assert "<small>a-model, 85,000 words</small>" in render_fused(document)
        return " ".join(document["notes"])

    assert "a-model with random weights" in told("random") and "a-model with trained weights" in told("checkpoint")


def test_without_a_profile_that_tells_of_fusing_the_papers_figures_remain() -> None:
    bare = reproduce(profiles=[profile("silent")])
    assert len(bare.claims) == 5 and not bare.speeds
    assert any("calibrate --only decoder" in note for note in document_of(bare)["notes"])
    assert "Amdahl" in as_text(bare)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_profile(tmp_path / "mine.json", fused_profile("mine"))
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["fused", *words])


def test_json_is_all_that_is_printed_and_the_folder_holds_it_and_the_page(written: Path) -> None:
    done = run("--profile", "mine.json", "--requests", "200", "--jobs", "1", "--out", "deep/out", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said.pop("directory") == "deep/out"
    assert {path.name for path in (written / "deep/out").iterdir()} == {"report.html", "reproduction.json"}
    assert json.loads((written / "deep/out/reproduction.json").read_text()) == said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--requests", "50"), "50 requests: too few"),
        (("--measure", "0"), "--measure 0: no sentence"),
        (("--model", "gru-512"), "--model gru-512 without --measure"),
        (("--profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_options_are_refused_in_one_line_and_write_nothing(written: Path, words: tuple[str, ...], what: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, InputError) and what in str(done.exception) and "\n" not in str(done.exception)
    assert [path.name for path in written.iterdir()] == ["mine.json"]
