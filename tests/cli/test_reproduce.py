"""`simnmt reproduce cnmt`: what it prints, what it writes, and how its options get on with each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnmt.papers.cnmt import replay
from tests.command_line import Command
from tests.papers.stand_ins import write_stand_ins

SMALL = ("reproduce", "cnmt", "--requests", "300", "--jobs", "1")


@pytest.fixture(scope="module", autouse=True)
def few_replications() -> Iterator[None]:
    """Others only cost time here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replay, "REPLICATIONS", 1)
        yield


@pytest.fixture
def scenario(folder: Path) -> str:
    return str(write_stand_ins(folder))


def test_json_is_all_that_is_printed_and_the_folder_holds_it_and_the_page(scenario: str, simnmt: Command) -> None:
    done = simnmt(*SMALL, "--measured", scenario, "--out", "deep/out", "--json")
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    assert document.pop("directory") == "deep/out"
    assert {path.name for path in Path("deep/out").iterdir()} == {"report.html", "reproduction.json"}
    assert json.loads(Path("deep/out/reproduction.json").read_text()) == document
    assert len({claim["id"] for claim in document["claims"]}) == len(document["claims"]) == 16


def test_without_a_name_the_folder_is_a_new_one_under_reports(scenario: str, simnmt: Command) -> None:
    done = simnmt(*SMALL, "--measured", scenario)
    assert (done.status, done.err) == (0, "")
    (written,) = Path("reports").iterdir()
    assert done.out.endswith(f"page: {written}/report.html\n")
    assert "published, two ways" in done.out


def test_a_folder_that_holds_something_is_refused_before_anything_runs(
    scenario: str, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simnmt.papers.cnmt.reproduction.replays", lambda *_, **_others: pytest.fail("it ran"))
    Path("mine").mkdir()
    Path("mine/note").touch()
    done = simnmt(*SMALL, "--measured", scenario, "--out", "mine")
    assert done.status == 2 and "the output folder is not empty" in done.err
    assert [path.name for path in Path("mine").iterdir()] == ["note"]


def test_a_run_that_fails_leaves_nothing(scenario: str, simnmt: Command) -> None:
    before = sorted(path.name for path in Path().iterdir())
    Path("cpu2-gru.json").write_text('{"schema_version": 1')
    for out in (("--out", "deep/out"), ()):
        done = simnmt(*SMALL, "--measured", scenario, *out)
        assert done.status == 2 and "cpu2-gru.json" in done.err and done.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--measured", "@nosuch"), "@nosuch: nothing of that name is shipped under scenarios"),
        (("--measured", "small.yaml"), "no scenario of Table I: needs one of the workloads de-en, fr-en, en-zh"),
    ],
)
def test_what_cannot_be_asked_is_one_line(folder: Path, simnmt: Command, arguments: tuple[str, ...], complaint: str) -> None:
    done = simnmt("reproduce", "cnmt", *arguments)
    assert done.status == 2 and complaint in done.err and done.err.count("\n") == 1
    assert not Path("reports").exists()
