"""`simnmt traffic` as a user meets it: text, JSON and page of a log, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Command, assert_one_line

LOG = "timestamp,src_len,pair\n" + "".join(
    f"2024-03-01T{minute // 60:02d}:{minute % 60:02d}:{7 * minute % 60:02d}Z,{minute % 9},de-en\n" for minute in range(300)
)


def test_text_json_and_page_have_the_same_figures(folder: Path, simnmt: Command) -> None:
    Path("log.csv").write_text(LOG)
    done = simnmt("traffic", "log.csv", "--page", "page.html")
    assert (done.status, done.err) == (0, "") and done.out.endswith("page: page.html\n")
    document = json.loads(simnmt("traffic", "log.csv", "--json").out)
    assert (document["requests"], document["clock"], document["resolution_s"]) == (300, "UTC", 0.0)
    assert [row["window_s"] for row in document["rates"]] == [1.0, 60.0, 3600.0]
    assert document["rates"][2]["peak"] in done.out and document["pairs"][0]["pair"] in done.out
    assert document["repeats"] is None
    Path("texts.csv").write_text("t_s,text\n" + "".join(f"{number},text {number % 4 // 2}\n" for number in range(40)))
    repeats = json.loads(simnmt("traffic", "texts.csv", "--json").out)["repeats"]
    assert repeats["hit_rates"] == [{"entries": 1, "share": 0.5}, {"entries": 2, "share": 0.95}]
    assert "Hits of a least-recently-used cache" in simnmt("traffic", "texts.csv").out
    page = Path("page.html").read_text(encoding="utf-8")
    assert "300 requests" in page and 'data-table="rates"' in page


@pytest.mark.parametrize(
    ("text", "place"),
    [("", "log.csv: "), ("t_s\n1\n", "log.csv: "), ("t_s\n1\n3\n2\n", "log.csv:4: "), ("a,b\n1,2\n", "log.csv:1:1: ")],
)
def test_what_is_no_log_is_refused_in_one_line(folder: Path, simnmt: Command, text: str, place: str) -> None:
    Path("log.csv").write_text(text)
    done = simnmt("traffic", "log.csv", "--page", "page.html")
    assert done.status == 2 and f"simnmt: {place}" in done.err and not Path("page.html").exists()
    assert_one_line(done.err)
    assert simnmt("traffic", str(folder)).status == 2
