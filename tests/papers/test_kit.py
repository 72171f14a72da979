"""A sixth paper is one data file, one module and one line; the judge's rules."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simnmt.cli.reproduce
from simnmt import papers
from simnmt.base.errors import InputError
from simnmt.papers.kit.claims import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Bound,
    Claim,
    Effect,
    Facts,
    Result,
    Undecided,
    about,
    above,
    at_least,
    at_most,
    below,
    between,
    describe_verdicts,
    judge,
)
from simnmt.papers.kit.paper import read_paper
from simnmt.results.statistics import Estimate

DATA = """
heading = "A toy, reproduced"
reference = "A. Toy: Toys. 2026"
summary = ["It doubles."]
main_claims = ["TOY-01"]
terminal = ["table-1"]
slips = []
setting = { box = "a toy" }
values = { beam = 6 }
[tables.table-1]
title = "Table 1"
columns = [{ name = "key" }, { name = "speed", head = "published, times", digits = 1 }, { name = "note", head = "note" }]
rows = [
  ["plain", 1.0, "-"],
  ["double", 2.1, "by halves"],
]
"""
MODULE = """
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from simnmt.papers.kit.claims import Claim, Facts, at_least, judge
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Report
from simnmt.report.table import Column, Table

PAPER = read_paper("toy", Path(__file__).parent)
TABLE = PAPER.table("table-1")

@dataclass(frozen=True)
class Box(Facts):
    ratio: tuple[float, ...]
    device = "this box"

CLAIMS = [
    Claim("TOY-01", "It is twice as fast", f"{TABLE['double', 'speed']}", value=lambda box: box.ratio, holds=at_least(2.0)),
]

def reproduce(*, speed: Annotated[float, typer.Option(metavar="X", help="How fast it is.")] = 2.0, progress=None) -> Report:
    rows = [{"key": key, **TABLE.beside(key), "ours": speed} for key in TABLE.column("key")]
    table = Table(TABLE.title, [Column("toy", "key"), *TABLE.columns_beside, Column("ours", "ours")], rows, id="table-1")
    return Report(PAPER, judge(CLAIMS, [Box((speed, speed))]), [table])
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the toy's two files; the registry has its line."""
    (tmp_path / "toy.toml").write_text(DATA, encoding="utf-8")
    (tmp_path / "toy.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    monkeypatch.setitem(papers.PAPERS, "toy", papers.Reproduction("toy", "A toy."))
    importlib.reload(simnmt.cli.reproduce)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    importlib.reload(simnmt.cli.reproduce)
    read_paper.cache_clear()


def run(*words: str) -> Any:
    """Run `simnmt reproduce toy`."""
    return CliRunner().invoke(simnmt.cli.reproduce.app, ["toy", *words])


def test_a_sixth_paper_is_one_data_file_one_module_and_one_line(toy: Path) -> None:
    assert sorted(path.name for path in toy.iterdir()) == ["toy.py", "toy.toml"]
    done = run("--speed", "1.5", "--json", "--out", "out")
    assert (done.exit_code, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert [(claim["id"], claim["ours"], claim["verdict"]) for claim in document["claims"]] == [
        ("TOY-01, this box", "1.50", "does not hold")
    ]
    assert document["tables"][1]["rows"][1] == {
        "key": "double",
        "published_speed": 2.1,
        "published_note": "by halves",
        "ours": 1.5,
    }
    assert "by halves" in Path("out/report.html").read_text(encoding="utf-8")


def test_a_published_column_is_shown_wherever_its_table_is(toy: Path) -> None:
    """It touches the data file alone."""
    text = DATA.replace('{ name = "key" },', '{ name = "key" }, { name = "bytes", head = "published, bytes", digits = 0 },')
    text = text.replace('["plain",', '["plain", 8,').replace('["double",', '["double", 16,')
    (toy / "toy.toml").write_text(text, encoding="utf-8")
    done = run()
    assert done.exit_code == 0, done.output
    heads, _, double = (line for line in done.stdout.splitlines() if line.startswith(("toy", "plain", "double")))
    assert "published, bytes" in heads and double.split()[1] == "16"


def test_a_fault_of_the_data_is_one_line_with_its_place(toy: Path) -> None:
    (toy / "toy.toml").write_text(DATA.replace("beam = 6", 'beam = "6"'), encoding="utf-8")
    with pytest.raises(InputError, match=r"^\S*toy\.toml: [^\n]*values\.beam[^\n]*$"):
        read_paper("toy", toy)


@pytest.mark.parametrize(
    ("bound", "effect", "verdict"),
    [
        (at_least(2.0), 2.0, HOLDS),
        (above(2.0), 2.0, FAILS),
        (at_most(2.0), (1.9, 2.0), HOLDS),
        (below(2.0), (1.9, 2.0), UNCLEAR),
        (between(1.0, 2.0), (0.5, 2.5), FAILS),
        (about(1.0, 0.15), (0.86, 1.14), HOLDS),
        (Bound(), True, HOLDS),
        (Bound(), [False, True], UNCLEAR),
        (above(0.0), Estimate(2.0, 1.5, 2.5), HOLDS),
        (above(0.0), Estimate(2.0, -1.0, 5.0), UNCLEAR),
        (above(0.0), Estimate(-2.0, -5.0, -1.0), FAILS),
        (above(0.0), Estimate(0.0, 0.0, 0.0), FAILS),
        (at_least(0.0), Estimate(0.0, 0.0, 0.0), HOLDS),
        (above(0.0), Estimate(2.0, None, None), UNCLEAR),
        (above(0.0), Estimate(-2.0, None, None), FAILS),
        (above(0.0), Undecided("nothing"), UNKNOWN),
    ],
)
def test_an_effect_is_judged_by_its_values_or_its_interval(bound: Bound, effect: Effect, verdict: str) -> None:
    assert bound.verdict(effect) == verdict


def test_a_claim_may_need_some_of_its_cases() -> None:
    assert above(0.0, spare=1).overall([HOLDS, FAILS, HOLDS]) == HOLDS
    assert above(0.0, spare=1).overall([FAILS, FAILS, HOLDS]) == FAILS
    assert above(0.0, spare=1).overall([UNCLEAR, FAILS]) == UNCLEAR


def test_a_claim_without_what_it_needs_is_not_measurable_but_may_fail() -> None:
    class Box(Facts):
        def lacks(self, need: str) -> Undecided | None:
            return Undecided("needs a study", "needs --study") if need == "study" else None

    def verdict(value: Any, needs: str = "") -> tuple[str, str, str]:
        (record,) = judge([Claim("X", "It is.", value=lambda _: value, holds=above(0.0), needs=needs)], [Box()])
        return record.verdict, record.why, record.basis

    assert verdict(1.0, "study") == (UNKNOWN, "needs a study", "needs --study")
    assert verdict(Result({"a": 1.0, "b": Undecided("", needed=True)}, words=None))[0] == UNKNOWN
    assert verdict(Result({"a": -1.0, "b": Undecided("", needed=True)}, words=None))[0] == FAILS
    assert verdict({"a": 1.0, "b": Undecided("extrapolated")}) == (
        HOLDS,
        "in every case looked at; extrapolated, and no part of the verdict: b",
        "measured",
    )
    claims: list[Claim[Facts]] = [Claim("X", "It is.")]
    records = judge(claims, [], Undecided("needs a study", "needs --study"))
    assert [(record.verdict, record.basis) for record in records] == [(UNKNOWN, "needs --study")]
    assert describe_verdicts(records).startswith("0 of 1 claims hold")
