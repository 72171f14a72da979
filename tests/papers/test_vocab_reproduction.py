"""The reproduction on a part of the vocabulary as documents, text and command, and how it has a model studied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.papers.fvp.reproduction import judge, reproduce
from simnmt.papers.fvp.study import Study
from simnmt.papers.kit.study import write_study
from tests.papers.vocab_stand_ins import study

MAY_LACK_AGREEMENT = ("setting", "table-1", "averages", "table-5", "table-6", "derived", "bench")
"""Tables without a row of translations or of their speed."""


def test_published_and_measured_rows_have_the_same_columns() -> None:
    tables = {table["id"]: table["rows"] for table in judge([study()]).document()["tables"]}
    for name, published in (("table-2", 12), ("table-3", 32), ("table-4", 16), ("table-5", 12)):
        kinds = [row["kind"] for row in tables[name]]
        assert kinds.count("published") == published and ("measured" in kinds) == (name in ("table-2", "table-3"))
        assert all(row.keys() == tables[name][0].keys() for row in tables[name])
    ours = [row for row in tables["table-3"] if row["kind"] == "measured"]
    assert [(row["beam"], row["batch"]) for row in ours[:2]] == [(1, 1), (2, 20)] and "fr-en" in ours[0]["name"]
    assert ours[0]["bleu_change"] == pytest.approx(-0.1) and ours[0]["gain_percent"] == pytest.approx(47.06, abs=0.01)


def test_every_row_on_translations_states_that_it_is_not_exact_and_how_much_stays_the_same() -> None:
    """XP-03."""
    for table in judge([study()]).document()["tables"]:
        if table["id"] not in MAY_LACK_AGREEMENT:
            assert table["rows"] and all(row["agreement"].startswith("not exact: ") for row in table["rows"]), table["id"]
    (row, *_) = next(table["rows"] for table in judge([study()]).document()["tables"] if table["id"] == "real")
    assert row["agreement"] == "not exact: 94.0 % of the sentences the same, 98.50 % of the tokens"


def test_amdahls_prediction_is_shown_with_the_measurement() -> None:
    """XP-07: 40 % of the time, 5 times as fast."""
    (row, *_) = next(table["rows"] for table in judge([study()]).document()["tables"] if table["id"] == "amdahl")
    assert row["predicted"] == pytest.approx(1 / (0.6 + 0.4 / 5)) and row["measured"] == pytest.approx(1 / 0.68)
    assert row["body_ratio"] == 1.0, "as the law takes it"


def test_a_study_without_parts_is_reported_with_its_missing_parts() -> None:
    whole = study()
    report = judge([Study(tool="simnmt test", model=whole.model, texts=whole.texts)])
    assert report.document()["tables"] and report.text()
    measured = [record for record in report.claims if record.device]
    assert measured and all("has no part" in record.why for record in measured)


def test_json_is_finite_and_the_text_has_both_kinds_of_rows_and_every_verdict() -> None:
    reproduction = judge([study()])
    document = reproduction.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    text = reproduction.text()
    (line,) = [line for line in text.splitlines() if line.startswith("ZCode Dense, FrEn") and "348.5" in line]
    assert line.split()[3:8] == ["published", "2", "20", "16.50", "348.5"]
    assert any(line.startswith("gru-xx-en, fr-en, 500 clusters, K = 3") and "measured" in line for line in text.splitlines())
    assert all(f"{record.verdict.capitalize()}: {record.id}." in text for record in reproduction.claims)


def test_shipped_studies_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def studied(**options: Any) -> set[str]:
        return {record.device for record in reproduce(**options).claims} - {""}

    assert "gru-xx-en" in studied(benches=[])
    monkeypatch.setattr(shipped_files, "folder", lambda kind: tmp_path / kind)
    assert not studied() and "Published figures alone" in " ".join(reproduce().all_notes)
    (tmp_path / "calibration/vocabulary").mkdir(parents=True)
    write_study(tmp_path / "calibration/vocabulary/study-gru-xx-en.json", study())
    assert studied() == {"gru-xx-en"} and not studied(studies=[])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quick": True}, "need each other"),
        ({"text": ["a=x,y"]}, "need each other"),
        ({"model": Path("m")}, "need each other"),
        ({"model": Path("m"), "text": ["a=x"]}, "--text a=x"),
        ({"model": Path("m"), "text": ["a=x,y", "a=x,y"]}, "given twice"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reproduce(**options)
