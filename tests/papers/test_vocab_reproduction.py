"""The reproduction on a part of the vocabulary as documents, text and command, and how it has a model studied."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.calibrate.settings import CalibrationError
from simnmt.cli.reproduce import app
from simnmt.papers.fvp import study_run
from simnmt.papers.fvp.reproduction import judge, reproduce
from simnmt.papers.fvp.study import PARTS, QUICK, StudySettings
from simnmt.papers.fvp.study_texts import Direction, directions_of
from simnmt.papers.kit.study import shipped_measurements, write_study
from tests.papers.vocab_stand_ins import LABELS, run, speed, study

MAY_LACK_AGREEMENT = (
    "setting",
    "table-1",
    "averages",
    "table-5",
    "table-6",
    "figure-4",
    "derived",
    "runs",
    "bench",
    "break-even",
)
"""Tables without a row of translations or of their speed."""


def test_published_and_measured_rows_have_the_same_columns() -> None:
    tables = {table["id"]: table["rows"] for table in judge([study()]).report().document()["tables"]}
    for name, published in (("table-2", 12), ("table-3", 32), ("table-4", 16), ("table-5", 12)):
        kinds = [row["kind"] for row in tables[name]]
        assert kinds.count("published") == published and (name == "table-4" or "measured" in kinds)
        assert all(row.keys() == tables[name][0].keys() for row in tables[name])
    ours = [row for row in tables["table-3"] if row["kind"] == "measured"]
    assert [(row["row"], row["beam"], row["batch"]) for row in ours[:2]] == [("fr-en", 1, 1), ("fr-en", 2, 20)]
    assert ours[0]["bleu_change"] == pytest.approx(-0.1) and ours[0]["gain_percent"] == pytest.approx(47.06, abs=0.01)


def test_every_row_on_translations_states_that_it_is_not_exact_and_how_much_stays_the_same() -> None:
    """XP-03."""
    for table in judge([study()]).report().document()["tables"]:
        if table["id"] not in MAY_LACK_AGREEMENT:
            assert table["rows"] and all(row["agreement"].startswith("not exact: ") for row in table["rows"]), table["id"]
    (row, *_) = (row for row in judge([study()]).report().document()["tables"][1]["rows"])
    assert row["agreement"] == "not exact: 94.0 % of the sentences the same, 98.50 % of the tokens"


def test_the_agreement_of_a_speed_is_that_of_its_decoding_not_of_the_sweep() -> None:
    """XP-03: a beam or a batch keeps others than single sentences."""
    tables = judge([study(speeds=(speed("fr-en", 500, 3, 0.2),))]).report().tables
    (row,) = next(table.rows for table in tables if table.id == "figure-3")
    assert row["agreement"] == "not exact: 92.5 % of the sentences the same, 98.00 % of the tokens"


def test_a_note_names_a_direction_until_that_direction_is_measured_again() -> None:
    again = run("sweep", ("de-en",), notes=("sweep: anew.",))
    notes = judge([study(runs=(run("sweep"), again))]).report().document()["notes"]
    assert [note for note in notes if note.startswith("gru-xx-en, sweep")] == [
        "gru-xx-en, sweep of fr-en: sweep: nothing was left out.",
        "gru-xx-en, sweep of de-en: sweep: anew.",
    ]


def test_amdahls_prediction_is_shown_with_the_measurement() -> None:
    """XP-07: 40 % of the time, 5 times as fast."""
    (row, *_) = next(table["rows"] for table in judge([study()]).report().document()["tables"] if table["id"] == "amdahl")
    assert row["predicted"] == pytest.approx(1 / (0.6 + 0.4 / 5)) and row["measured"] == pytest.approx(1 / 0.68)
    assert row["body_ratio"] == 1.0, "as the law takes it"


def test_a_study_without_parts_is_reported_with_its_missing_parts() -> None:
    bare = study(**dict.fromkeys(PARTS, ()), runs=())
    reproduction = judge([bare])
    assert reproduction.report().document()["tables"] and reproduction.report().text()
    measured = [record for record in reproduction.claims if record.device]
    assert measured and all("has no part" in record.why for record in measured)


def test_json_is_finite_and_the_text_has_both_kinds_of_rows_and_every_verdict() -> None:
    reproduction = judge([study()])
    document = reproduction.report().document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    text = reproduction.report().text()
    (line,) = [line for line in text.splitlines() if line.startswith("ZCode Dense, FrEn") and "348.5" in line]
    assert line.split()[3:8] == ["published", "2,", "20", "16.50", "348.5"]
    assert any(line.startswith("gru-xx-en, fr-en, 500 clusters, K = 3") and "measured" in line for line in text.splitlines())
    assert all(f"{record.verdict.capitalize()}: {record.id}." in text for record in reproduction.claims)
    assert "gru-xx-en (fr-en with 500 clusters, K = 3 and de-en with 500 clusters, K = 3): 3.0 to 12.0 % of 10,000 " in text


def test_shipped_studies_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_files, "folder", lambda kind: tmp_path / kind)
    assert shipped_measurements("vocabulary", "study") == [] and reproduce().studies == []
    assert "Published figures alone" in reproduce().report().text()
    (tmp_path / "calibration/vocabulary").mkdir(parents=True)
    write_study(tmp_path / "calibration/vocabulary/study-gru-xx-en.json", study())
    assert [entry.model.name for entry in reproduce().studies] == ["gru-xx-en"]
    assert reproduce(studies=[]).studies == []


def test_two_studies_of_one_model_are_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write_study(tmp_path / name, study())
    with pytest.raises(InputError, match="two studies of gru-xx-en"):
        reproduce(studies=[tmp_path / "a.json", tmp_path / "b.json"])


def test_every_shipped_study_is_read_and_printed() -> None:
    assert shipped_measurements("vocabulary", "study")
    for path in shipped_measurements("vocabulary", "study"):
        assert reproduce(studies=[path]).report().text(), path.name


@pytest.fixture
def studied(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of `run_study`, which takes an hour."""
    asked: list[dict[str, Any]] = []

    def pretend(folder: Path, directions: Any, **options: Any) -> Any:
        asked.append({"folder": folder, "directions": directions, **options})
        return study()

    monkeypatch.setattr(study_run, "run_study", pretend)
    return asked


def both(tmp_path: Path) -> list[Direction]:
    return directions_of(
        train={label: tmp_path / f"train.{label}" for label in LABELS},
        heldout={label: tmp_path / f"heldout.{label}" for label in LABELS},
        references={"fr-en": tmp_path / "references"},
    )


def test_a_model_is_studied_in_every_part_that_its_texts_suffice_for(tmp_path: Path, studied: list[dict[str, Any]]) -> None:
    kept = tmp_path / "study.json"
    reproduction = reproduce(model=tmp_path, directions=both(tmp_path), studies=[kept], quick=True)
    (asked,) = studied
    assert reproduction.quick and reproduction.studies[0].model.name == "gru-xx-en"
    assert asked["parts"] == [part for part in PARTS if part != "candidates"], "no translations of the training text"
    assert [(direction.label, direction.references is None) for direction in asked["directions"]] == [
        ("fr-en", False),
        ("de-en", True),
    ]
    assert asked["out"] == kept and asked["settings"] == QUICK
    reproduce(model=tmp_path, directions=[Direction("a", tmp_path / "x", tmp_path / "z", train_targets=tmp_path / "y")])
    assert "by_language" not in studied[1]["parts"] and "candidates" in studied[1]["parts"]


def test_a_stopped_study_continues_with_the_missing_parts(tmp_path: Path, studied: list[dict[str, Any]]) -> None:
    kept = tmp_path / "study.json"
    runs = (*(run(part) for part in PARTS[:4]), run("memory", ("fr-en",)))
    write_study(kept, study(runs=runs))
    reproduce(model=tmp_path, directions=both(tmp_path), studies=[kept])
    assert studied[0]["parts"] == ["memory", "chosen", "speeds"], "memory was of one direction"
    write_study(kept, study())
    reproduce(model=tmp_path, directions=both(tmp_path), studies=[kept], parts=["speeds", "chosen"])
    assert studied[1]["parts"] == ["chosen", "speeds"], "asked for again"
    less = [run(part, settings=StudySettings(quick=True)) if part == "volume" else run(part) for part in PARTS]
    write_study(kept, study(runs=tuple(less)))
    reproduce(model=tmp_path, directions=both(tmp_path), studies=[kept])
    assert studied[2]["parts"] == ["volume"], "of less than is asked for now"


def test_a_complete_study_is_reported_as_it_is_if_model_and_texts_are_unchanged(
    tmp_path: Path, studied: list[dict[str, Any]]
) -> None:
    kept, weights, directions = tmp_path / "study.json", tmp_path / "model.safetensors", both(tmp_path)
    weights.write_bytes(b"weights")
    for direction in directions:
        for path in direction.files.values():
            path.write_text("a sentence\n")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    whole = study().model_copy(update={"texts": (), "model": study().model.model_copy(update={"sha256": sha256})})
    write_study(kept, whole)
    messages = list[str]()
    assert (
        reproduce(model=tmp_path, directions=directions, studies=[kept], say=messages.append).studies == [whole] and not studied
    )
    assert messages == ["candidates: left out, which needs --targets"]
    write_study(kept, whole.model_copy(update={"texts": study().texts}))
    with pytest.raises(CalibrationError, match=r"another text train\.fr-en for fr-en"):
        reproduce(model=tmp_path, directions=directions, studies=[kept])
    write_study(kept, whole)
    weights.write_bytes(b"others")
    with pytest.raises(CalibrationError, match="a study of another model, gru-xx-en"):
        reproduce(model=tmp_path, directions=directions, studies=[kept])


X, Y = Path("x"), Path("y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"directions": [Direction("a", X, Y)]}, "--text without a model"),
        ({"quick": True}, "--quick without a model"),
        ({"model": Path("m"), "directions": [Direction("a", X, Y)], "studies": [X, Y]}, "more than one --study"),
    ],
)
def test_contradictory_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        reproduce(**options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def command(*words: str) -> Any:
    return CliRunner().invoke(app, ["vocab", *words])


def test_the_command_writes_page_and_json_and_prints_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study.json", study())
    done = command("--study", "study.json", "--out", "deep/out", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    assert printed.pop("directory") == "deep/out"
    assert json.loads((tmp_path / "deep/out/reproduction.json").read_text()) == printed
    assert (tmp_path / "deep/out/report.html").is_file()
    assert [model["model"] for model in printed["models"]] == ["gru-xx-en"]
