"""The whole reproduction in small, and `simnmt reproduce topup`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni import offline, online, topup_reproduction
from simnmt.papers.fni.topup_reproduction import Reproduction, as_text, reproduce
from simnmt.papers.fni.topup_reproduction import document as document_of
from simnmt.profile.profile_file import write_profile
from tests.papers.topup_stand_ins import profile


@pytest.fixture(scope="module", autouse=True)
def few_seeds() -> Iterator[None]:
    """One seed of the paper's sets and two online runs, else it takes as long as for the paper."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topup_reproduction, "SEEDS", (1,))
        patched.setattr(online, "SEEDS", (1, 2))
        yield


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what does not look at the occupancies."""
    monkeypatch.setattr(offline, "SENTENCES", {"europarl": 600, "opensubtitles": 600})


@pytest.fixture(scope="module")
def found() -> Reproduction:
    profiles = [profile("alpha"), profile("alpha-beam5", beam=5, most=64), profile("silent", step=False)]
    return reproduce(profiles=profiles, requests=120)


def test_every_device_that_tells_of_batches_has_all_its_numbers(found: Reproduction) -> None:
    document = document_of(found)
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    assert [(each["device"], each["beam"], each["profile"]) for each in document["devices"]] == [
        ("alpha", 1, "alpha"), ("alpha", 5, "alpha-beam5"),
    ]  # fmt: skip
    assert len(tables["speeds"]) == 2 * 2 * 6 and len(tables["refill-limits"]) == 2 * 2 * 4
    assert len(tables["p95-load"]) == 2 * 2 * 5, "two sets, two p95s, five ways, with the least beam alone"
    assert all(row["relative"] == 1.0 for row in tables["speeds"] if row["strategy"] == "mini")
    assert all(sum(row["share_by_active"]) == pytest.approx(1.0) for row in tables["active"])
    printed = [row for row in tables["occupancies"] if row["published"] is not None]
    assert len(printed) == 3
    assert all(abs(row["ours"] - row["published"]) < 0.04 and abs(row["ours"] - row["stated"]) < 0.02 for row in printed)


def test_claims_have_ids_of_their_own_and_a_verdict(found: Reproduction) -> None:
    assert len({record["id"] for record in found.claims}) == len(found.claims) == 7 + 8 + 1
    assert {record["verdict"] for record in found.claims} <= {"holds", "does not hold", "not measurable here"}
    ours = [record for record in found.claims if record["device"]]
    assert {record["verdict"] for record in ours} == {"not measurable here"}, "120 sentences are one batch"
    assert json.loads(json.dumps(document_of(found), allow_nan=False)) == document_of(found)


def test_the_text_tells_published_beside_ours_and_each_verdict(found: Reproduction) -> None:
    text = as_text(found)
    (line,) = [line for line in text.splitlines() if line.startswith("Europarl maxi ") and " full " in line]
    assert "42.0 %" in line and "42.5 %" in line
    for record in found.claims:
        assert f"{record['verdict'].capitalize()}: {record['id']}." in text
    assert "alpha, beam 5, batches of 64" in text
    assert "Batches of 64 sentences, no more were measured:\n  " in text
    assert max(map(len, text.split("Holds: ")[0].splitlines())) < 140


@pytest.mark.usefixtures("small_sets")
def test_without_a_profile_that_tells_of_batches_the_occupancies_remain() -> None:
    bare = reproduce(profiles=[profile("silent", step=False)])
    assert len(bare.claims) == 7 and not bare.speeds and not bare.held
    assert any("nothing can be said of speeds" in note for note in document_of(bare)["notes"])
    assert "a second" not in as_text(bare).split("Holds: ")[0]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_profile(tmp_path / "mine.json", profile("mine"))
    return tmp_path


def run(*words: str) -> Any:
    from typer.testing import CliRunner

    from simnmt.cli.reproduce import app

    return CliRunner().invoke(app, ["topup", *words])


@pytest.mark.usefixtures("small_sets")
def test_json_is_all_that_is_printed_and_the_folder_holds_it_and_the_page(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("--profile", "mine.json", "--requests", "100", "--jobs", "1", "--p95-ms", "60", "--out", "deep/out", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said.pop("directory") == "deep/out"
    assert {path.name for path in (written / "deep/out").iterdir()} == {"report.html", "reproduction.json"}
    assert json.loads((written / "deep/out/reproduction.json").read_text()) == said
    loads = next(table for table in said["tables"] if table["id"] == "p95-load")["rows"]
    assert {row["p95_ms"] for row in loads} == {60.0}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--requests", "50"), "50 requests: too few"),
        (("--p95-ms", "0"), "--p95-ms 0: no time to hold"),
        (("--p95-ms", "nan"), "--p95-ms nan: no time to hold"),
        (("--profile", "@tx2-gru"), "no costs of decode steps"),
        (("--profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_options_are_refused_in_one_line_and_write_nothing(
    written: Path, words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from simnmt.base.errors import InputError

    done = run(*words)
    assert isinstance(done.exception, InputError) and what in str(done.exception)
    assert "\n" not in str(done.exception)
    assert [path.name for path in written.iterdir()] == ["mine.json"]
