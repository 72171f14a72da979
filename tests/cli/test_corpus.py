"""`simnmt corpus`: the line of a corpus, and its table of lengths."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Command, Tree


@pytest.fixture
def fit(folder: Path, simnmt: Command) -> Callable[..., dict[str, Any]]:
    def run(*arguments: str) -> dict[str, Any]:
        done = simnmt("corpus", "fit", *arguments, "--json")
        assert done.status == 0 and all(" pairs were dropped by the filter " in line for line in done.err.splitlines())
        document: dict[str, Any] = json.loads(done.out)
        return document

    return run


def test_a_line_that_is_exact(folder: Path, fit: Callable[..., Any]) -> None:
    """M = 2 N + 1; one pair is empty, one too long, one out of proportion."""
    lengths = [2, 3, 5, 8, 13]
    Path("a").write_text("".join("x " * n + "\n" for n in lengths) + "\n" + "x " * 201 + "\nx\n")
    Path("b").write_text("".join("y " * (2 * n + 1) + "\n" for n in lengths) + "y\ny\n" + "y " * 9 + "\n")
    document = fit("a", "b")
    assert document["len_slope"] == pytest.approx(2.0)
    assert document["len_offset"] == pytest.approx(1.0)
    for fit in ("pairs", "means"):
        assert document[f"{fit}_r2"] == pytest.approx(1.0)
        assert document[f"{fit}_mse_tokens2"] == pytest.approx(0.0, abs=1e-12)
    assert (document["pairs_read"], document["pairs_dropped"], document["pairs_kept"]) == (8, 3, 5)
    assert document["pairs_dropped_by"] == {"empty": 1, "too_long": 1, "ratio": 1}
    assert document["mean_src_len"] == pytest.approx(6.2)


def test_the_same_text_in_any_form_is_the_same_line(folder: Path, fit: Callable[..., Any]) -> None:
    source, target = Path("news.de").read_text(), Path("news.en").read_text()
    for name, text in (("a.gz", source), ("b.gz", target)):
        Path(name).write_bytes(gzip.compress(text.encode()))
    columns = "".join(f"{a}\t{b}\n" for a, b in zip(source.splitlines(), target.splitlines(), strict=True))
    Path("ab.tsv").write_text(columns)
    Path("ab.tsv.gz").write_bytes(gzip.compress(columns.encode()))
    rows = "".join(
        json.dumps({"translation": {"de": a, "en": b}}) + "\n"
        for a, b in zip(source.splitlines(), target.splitlines(), strict=True)
    )
    Path("ab.jsonl").write_text(rows)
    Path("ab.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    plain = fit("news.de", "news.en")
    assert plain["pairs_kept"] == 80
    assert 0.8 < plain["len_slope"] < 1.1
    assert fit("a.gz", "b.gz") == fit("ab.tsv") == fit("ab.tsv.gz") == plain
    assert fit("ab.jsonl", "--keys", "de:en") == fit("ab.jsonl.gz", "--keys", "de:en") == plain


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


def test_for_a_reader_the_same_in_words(folder: Path, simnmt: Command, fit: Callable[..., Any]) -> None:
    document = fit("news.de", "news.en")
    text = simnmt("corpus", "fit", "news.de", "news.en").out
    assert f"target length = {document['len_slope']:.4f} x source length + {document['len_offset']:.4f}  (word -> word)" in text
    assert f"R2 {document['pairs_r2']:.5f}" in text
    assert f"R2 {document['means_r2']:.5f}" in text
    assert "80 pairs read" in text
    assert f"(mean target over mean source tokens: {document['mean_ratio']:.4f})" in text
    assert document["mean_ratio"] == pytest.approx(document["mean_tgt_len"] / document["mean_src_len"])


def test_json_has_figure_3_by_source_length(folder: Path, fit: Callable[..., Any]) -> None:
    """Two targets for each source length, apart by as much as the source is long: the deviation grows with it."""
    lengths = [1, 2, 3, 10, 12, 14, 40]
    Path("a").write_text("".join("x " * n + "\n" for n in lengths for _ in (0, 1)))
    Path("b").write_text("".join("y " * (2 * n + sign * n // 2) + "\n" for n in lengths for sign in (-1, 1)))
    document = fit("a", "b")
    assert [mean["src_len"] for mean in document["by_src_len"]] == lengths
    ten = document["by_src_len"][3]
    assert (ten["pairs"], ten["mean_tgt_len"], ten["sd_tgt_len"]) == (2, 20.0, pytest.approx(50**0.5))
    assert ten["line_tgt_len"] == pytest.approx(10 * document["len_slope"] + document["len_offset"])


@pytest.mark.parametrize(
    ("arguments", "place", "remedy"),
    [
        ("rows.jsonl", "rows.jsonl:1", "--keys"),
        ("news.de news.en --keys de:en", "keys are for one file of JSON Lines", "leave one of them out"),
        ("news.de news.en --unit sentencepiece:news.de", "news.de", "give the .model file"),
        ("news.de /dev/zero", "/dev/zero", "give a text file"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(
    folder: Path, simnmt: Command, tree: Tree, arguments: str, place: str, remedy: str
) -> None:
    Path("rows.jsonl").write_text('{"translation": {"de": "a", "en": "b"}}\n')
    before = tree(folder)
    for verb in ("fit", "table"):
        done = simnmt("corpus", verb, *arguments.split())
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith(f"simnmt: {place}") and remedy in done.err and done.err.count("\n") == 1
    assert tree(folder) == before


def test_a_table_stands_in_for_its_corpus(folder: Path, simnmt: Command) -> None:
    done = simnmt("corpus", "table", "news.de", "news.en", "--out", "t.csv")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("wrote t.csv: ")
    table = ("--set", "workloads.news.lengths={table: t.csv}")
    assert simnmt("run", "small.yaml", "--out", "one").status == 0
    assert simnmt("run", "small.yaml", *table, "--out", "two").status == 0
    assert Path("one/requests.parquet").read_bytes() == Path("two/requests.parquet").read_bytes()


def test_a_table_replaces_none_of_what_it_was_made_of(folder: Path, simnmt: Command, tree: Tree) -> None:
    before = tree(folder)
    done = simnmt("corpus", "table", "news.de", "news.en", "--out", "news.de", "--force")
    assert (done.status, done.out) == (2, "") and done.err.startswith("simnmt: news.de would replace what is read")
    assert tree(folder) == before
