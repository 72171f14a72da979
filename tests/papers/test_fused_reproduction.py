"""The fused output layer reproduced in small: JSON, text, page, and `simnmt reproduce fused`."""

from __future__ import annotations

import json
import re
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
from simnmt.papers.fni.fused import Reproduction, reproduce
from simnmt.papers.kit.report import PaperReport
from simnmt.profile.profile_file import write_profile
from tests.browser import part_of, rows_of
from tests.papers.fni_stand_ins import fused_profile, profile

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def small_sets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "SENTENCES", {"europarl": 1_000, "opensubtitles": 1_000})
        yield


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    return reproduce(profiles=[fused_profile(HOSTILE, product_fused=0.9, box=HOSTILE), profile("silent")])


@pytest.fixture(scope="module")
def document(reproduction: Reproduction) -> dict[str, Any]:
    return reproduction.report().document()


@pytest.fixture(scope="module")
def page(reproduction: Reproduction) -> str:
    return reproduction.report().page()


def test_every_device_with_a_fused_variant_has_all_its_numbers(document: dict[str, Any]) -> None:
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    assert len(tables["table-2-3"]) == 4 + 4 and len(tables["speeds"]) == 2 * 2 * 4 * 2 and len(tables["shares"]) == 4 * 4
    assert all(row["exact"] is True for row in tables["table-2-3"]), "each row is exact or has its agreement (XP-03)"
    assert {row["fidelity"] for row in tables["speeds"]} == {"exact"}
    assert all(row["relative"] == 1.0 for row in tables["speeds"] if not row["fused"] and row["strategy"] in ("mini", "maxi"))
    for row in tables["amdahl"]:
        assert 1.0 < row["predicted_product_left_alone"] < row["predicted"], "beside each other (XP-07)"
        assert row["end_to_end"] > 1.0 and 0.0 < row["output_share"] < 1.0
    published = {(row["set"], row["strategy"], row["fused"]): row["published"] for row in tables["speeds"]}
    assert published["europarl", "mini", True] == 0.23 and published["opensubtitles", "half-empty", True] == 0.57
    assert published["europarl", "maxi half-empty", True] == 0.21 and published["europarl", "maxi", True] is None


def test_claims_have_distinct_ids_and_json_is_finite(reproduction: Reproduction, document: dict[str, Any]) -> None:
    assert len({record.id for record in reproduction.claims}) == len(reproduction.claims) == 3 + 2 + 3 + 2 + 5
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert any("silent" in note for note in document["notes"])


def test_the_weights_of_the_real_decoder_are_named(reproduction: Reproduction) -> None:
    def report(weights: str) -> PaperReport:
        real_speed = RealSpeed(
            "a-model", 85_000, "europarl", 1, 4, 9, (2.0,), (1.0,), 8, 1, 0, weights,
            {"body": 0.5, "project": 0.3, "softmax": 0.1, "search": 0.1},
            {"body": 1.0, "product": 0.5, "bias": 0.1, "softmax": 0.2, "search": 0.2, "fused_product": 0.4, "fused": 0.1},
        )  # fmt: skip
        return replace(reproduction, real=[real_speed]).report()

    random, trained = report("random"), report("checkpoint")
    assert any("a-model with random weights" in note for note in random.notes)
    assert any("a-model with trained weights" in note for note in trained.notes)
    tables = {table["id"]: table["rows"] for table in trained.document()["tables"]}
    (row,) = (row for row in tables["amdahl"] if row["kind"] == "measured")
    assert row["predicted"] == pytest.approx(2 / 1.5) and row["predicted_product_left_alone"] == pytest.approx(2 / 1.6)
    (measured,) = tables["real"]
    assert (measured["plain_s"], measured["fused_product_s"], measured["fused_s"]) == ([2.0], 0.4, 0.1)
    assert "a-model, 85,000 words" in trained.page().replace("\u202f", ",")


def test_without_a_profile_with_a_fused_variant_the_papers_figures_remain() -> None:
    bare = reproduce(profiles=[profile("silent")])
    assert len(bare.claims) == 5 and not bare.speeds
    report = bare.report()
    assert any("calibrate --part decoder" in note for note in report.notes)
    assert "published" in report.text() and "Amdahl" in report.text()
    page = report.page()
    assert 'id="table-2-3"' in page and 'id="figures-1-5"' not in page and 'id="speeds"' not in page


def test_every_claim_is_on_the_page_with_its_verdict_and_hostile_names_are_escaped(
    reproduction: Reproduction, page: str
) -> None:
    shown = re.findall(r'data-column="verdict" data-outcome="([^"]*)"', page)
    assert sorted(shown) == sorted(record.verdict for record in reproduction.claims)
    assert HOSTILE not in page and "&lt;img src=x" in page
    assert page == reproduction.report().page()
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_the_slip_of_table_3_is_beside_the_change_derived_from_its_seconds(page: str) -> None:
    section = part_of(page, "table-2-3")
    row = next(" ".join(row) for row in rows_of(section) if row[0] == "OpenSubtitles, beam 5 published")
    assert "+0.44" in row and "printed +4.4" in row and "2.81" in row and "1.629" in row
    assert section.count("printed ") == 1, "the one slip"


def test_the_page_opens_with_the_gains_of_fusing_and_the_number_of_claims_that_hold(
    document: dict[str, Any], page: str
) -> None:
    summary = part_of(page, "summary").replace("\u2212", "-")
    rows = next(table["rows"] for table in document["tables"] if table["id"] == "amdahl")
    gains = [100 * (row["end_to_end"] - 1.0) for row in rows]
    alone = [100 * (row["predicted_product_left_alone"] - 1.0) for row in rows]
    assert f"changes the speed of translating by {min(gains):+.1f}" in summary
    assert f"the product left alone, as in the paper, {min(alone):+.1f} to {max(alone):+.1f} % would remain" in summary
    by_claim: dict[str, set[str]] = {}
    for record in document["claims"]:
        by_claim.setdefault(record["bare"], set()).add(record["verdict"])
    holding = sum(verdicts - {"not measurable here"} == {"holds"} for verdicts in by_claim.values())
    assert f"{holding} of {len(by_claim)} claims hold" in summary
    assert f"{holding} of {len(by_claim)} claims hold" in document["summary"]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_profile(tmp_path / "mine.json", fused_profile("mine"))
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["fused", *words])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--requests", "50"), "50 requests: too few"),
        (("--profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_options_are_refused_in_one_line_and_write_nothing(written: Path, words: tuple[str, ...], what: str) -> None:
    done = run(*words)
    fault = str(done.exception) if isinstance(done.exception, InputError) else " ".join(done.stderr.split())
    assert done.exit_code and what in fault and "\n" not in fault
    assert [path.name for path in written.iterdir()] == ["mine.json"]
