"""`simnmt corpus`: the line of a corpus, and its table of lengths."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def fit(folder: Path, simnmt: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def run(*arguments: str) -> dict[str, Any]:
        done = simnmt("corpus", "fit", *arguments, "--json")
        assert (done.status, done.err) == (0, "")
        found: dict[str, Any] = json.loads(done.out)
        return found

    return run


def test_a_line_that_is_exact(folder: Path, fit: Callable[..., Any]) -> None:
    """M = 2 N + 1; one pair is empty, one too long, one out of proportion."""
    lengths = [2, 3, 5, 8, 13]
    Path("a").write_text("".join("x " * n + "\n" for n in lengths) + "\n" + "x " * 201 + "\nx\n")
    Path("b").write_text("".join("y " * (2 * n + 1) + "\n" for n in lengths) + "y\ny\n" + "y " * 9 + "\n")
    found = fit("a", "b")
    assert found["len_slope"] == pytest.approx(2.0)
    assert found["len_offset"] == pytest.approx(1.0)
    for of in ("pairs", "means"):
        assert found[f"{of}_r2"] == pytest.approx(1.0)
        assert found[f"{of}_mse_tokens2"] == pytest.approx(0.0, abs=1e-12)
    assert (found["pairs_read"], found["pairs_dropped"], found["pairs_kept"]) == (8, 3, 5)
    assert found["pairs_dropped_by"] == {"empty": 1, "too_long": 1, "ratio": 1}
    assert found["mean_src_len"] == pytest.approx(6.2)


def test_the_same_text_in_any_form_is_the_same_line(folder: Path, fit: Callable[..., Any]) -> None:
    source, target = Path("news.de").read_text(), Path("news.en").read_text()
    for name, text in (("a.gz", source), ("b.gz", target)):
        Path(name).write_bytes(gzip.compress(text.encode()))
    columns = "".join(f"{a}\t{b}\n" for a, b in zip(source.splitlines(), target.splitlines(), strict=True))
    Path("ab.tsv").write_text(columns)
    Path("ab.tsv.gz").write_bytes(gzip.compress(columns.encode()))
    plain = fit("news.de", "news.en")
    assert plain["pairs_kept"] == 80
    assert 0.8 < plain["len_slope"] < 1.1
    assert fit("a.gz", "b.gz") == fit("ab.tsv") == fit("ab.tsv.gz") == plain


def test_units_and_filters_change_what_is_counted(folder: Path, fit: Callable[..., Any]) -> None:
    Path("en").write_text("the cat sat\nwell\none two three four\n")
    Path("zh").write_text("猫坐着。\n好的 ok\n一二三四\n")
    mixed = fit("en", "zh", "--unit", "word:mixed")
    assert (mixed["src_unit"], mixed["tgt_unit"]) == ("word", "mixed")
    assert (mixed["mean_src_len"], mixed["mean_tgt_len"]) == (pytest.approx(8 / 3), pytest.approx((4 + 3 + 4) / 3))
    char = fit("en", "zh", "--unit", "char", "--filter", "none")
    assert char["mean_src_len"] == pytest.approx((9 + 4 + 15) / 3)
    Path("en").write_text("a\n" * 3 + "a b c\n")
    Path("zh").write_text("a\n" * 3 + "a " * 50 + "\n")
    assert fit("en", "zh")["pairs_kept"] == 3
    assert fit("en", "zh", "--filter", "none")["pairs_kept"] == 4


def test_for_a_reader_the_same_in_words(folder: Path, simnmt: Callable[..., Any], fit: Callable[..., Any]) -> None:
    found = fit("news.de", "news.en")
    said = simnmt("corpus", "fit", "news.de", "news.en").out
    assert f"target length = {found['len_slope']:.4f} x source length + {found['len_offset']:.4f}  (word -> word)" in said
    assert f"R2 {found['pairs_r2']:.5f}" in said
    assert f"R2 {found['means_r2']:.5f}" in said
    assert "80 pairs read" in said


def test_where_no_line_is_known_none_is_made_up(folder: Path, simnmt: Callable[..., Any], fit: Callable[..., Any]) -> None:
    Path("a").write_text("x y\n" * 3)
    found = fit("a", "a")
    assert found["pairs_r2"] is None
    done = simnmt("corpus", "fit", "a", "a")
    assert "R2 not defined" in done.out
    assert "note: " in done.out


def test_a_table_stands_in_for_its_corpus(folder: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("corpus", "table", "news.de", "news.en", "--out", "t.csv")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("wrote t.csv: ")
    table = ("--set", "workloads.news.lengths={table: t.csv}")
    assert simnmt("run", "small.yaml", "--out", "one").status == 0
    assert simnmt("run", "small.yaml", *table, "--out", "two").status == 0
    assert Path("one/requests.parquet").read_bytes() == Path("two/requests.parquet").read_bytes()


def test_a_table_says_what_it_replaced(folder: Path, simnmt: Callable[..., Any]) -> None:
    for verb in ("wrote", "replaced"):
        done = simnmt("corpus", "table", "news.de", "news.en", "--out", "t.csv")
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith(f"{verb} t.csv: ")


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("/proc/x", "No such file or directory"),
        (".", "Is a directory"),
        ("none/t.csv", "No such file or directory"),
        ("news.de/t.csv", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("pipe", "not a regular file"),
    ],
)
def test_a_table_that_cannot_be_written_is_told_in_one_line(
    folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any], out: str, why: str
) -> None:
    os.mkfifo("pipe")
    before = tree(folder)
    done = simnmt("corpus", "table", "news.de", "news.en", "--out", out)
    remedy = "name a file in a folder that exists and that you may write to"
    assert (done.status, done.out, done.err) == (2, "", f"simnmt: {out}: cannot be written: {why} ({remedy})\n")
    assert tree(folder) == before
