"""Numbers at the ends of what a float holds: a result without NaN, or one line; never a traceback or a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.report.typography import significant
from tests.refusals import assert_one_line

SMALL = ("--requests", "50", "--replications", "1", "--out", "run", "--json")


@pytest.mark.parametrize("key", ["len_offset", "len_slope"])
def test_the_least_float_is_a_number_like_others(folder: Path, simnmt: Callable[..., Any], key: str) -> None:
    done = simnmt("run", "small.yaml", "--set", f"policies.cnmt.{key}=5e-324", *SMALL)
    assert (done.status, done.err) == (0, "")
    json.loads(done.out, parse_constant=pytest.fail)


def test_a_subnormal_number_is_typeset() -> None:
    assert significant(5e-324) == f"{significant(4.941)}\u202f\u00b7\u202f10\u207b\u00b3\u00b2\u2074"
    assert significant(2.5e-310).startswith("2.5\u202f")


@pytest.mark.parametrize("command", ["run small.yaml", "run small.yaml --set networks.office.rtt=office.csv"])
def test_one_round_trip_of_a_lifetime_is_refused_by_its_cell(folder: Path, simnmt: Callable[..., Any], command: str) -> None:
    with (folder / "office.csv").open("a") as file:
        file.write("200,1e300\n")
    done = simnmt(*command.split())
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert "office.csv:42:5: rtt_ms is 1e300, but an RTT is at most 86,400,000" in done.err


@pytest.mark.parametrize("coefficient", [1e-310, 1e-14])
def test_a_device_faster_than_any_is_refused(folder: Path, simnmt: Callable[..., Any], coefficient: float) -> None:
    profile = json.loads((folder / "cloud.json").read_text())
    profile["execution"]["plane"] = dict.fromkeys(profile["execution"]["plane"], coefficient)
    (folder / "cloud.json").write_text(json.dumps(profile))
    done = simnmt("run", "small.yaml", *SMALL)
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert "no request would take as long as 1e-12 s" in done.err


@pytest.mark.parametrize("options", [(), ("--requests", "5")])
def test_a_sentence_of_a_thousand_million_tokens_is_named(
    folder: Path, simnmt: Callable[..., Any], options: tuple[str, ...]
) -> None:
    assert simnmt("corpus", "table", "news.de", "news.en", "--out", "table.csv").status == 0
    lines = (folder / "table.csv").read_text().splitlines()
    (folder / "table.csv").write_text("\n".join([*lines[:-1], "999999999,999999999,1"]) + "\n")
    done = simnmt("run", "small.yaml", "--set", "workloads.news.lengths={table: table.csv}", *options)
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert f"table.csv:{len(lines)}: src_len is '999999999' (give a whole number from 1 to 1000000)" in done.err
