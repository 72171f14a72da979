"""`simnmt corpus`: the line of a corpus, and its table of lengths."""

from __future__ import annotations

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


def test_rows_of_json_are_read_by_their_keys(folder: Path, fit: Callable[..., Any]) -> None:
    texts = [Path(name).read_text().splitlines() for name in ("news.de", "news.en")]
    rows = [json.dumps({"translation": {"de": source, "en": target}}) for source, target in zip(*texts, strict=True)]
    Path("ab.jsonl").write_text("\n".join(rows) + "\n")
    assert fit("ab.jsonl", "--keys", "de:en") == fit("news.de", "news.en")


def test_for_a_reader_the_same_in_words(folder: Path, simnmt: Command, fit: Callable[..., Any]) -> None:
    document = fit("news.de", "news.en")
    text = simnmt("corpus", "fit", "news.de", "news.en").out
    assert f"target length = {document['len_slope']:.4f} x source length + {document['len_offset']:.4f}  (word -> word)" in text
    assert f"R2 {document['pairs_r2']:.5f}" in text
    assert f"R2 {document['means_r2']:.5f}" in text
    assert "80 pairs read" in text
    assert f"(mean target over mean source tokens: {document['mean_ratio']:.4f})" in text
    assert document["mean_ratio"] == pytest.approx(document["mean_tgt_len"] / document["mean_src_len"])
    assert sum(mean["pairs"] for mean in document["by_src_len"]) == document["pairs_kept"] == 80


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


def test_repeated_lines_are_counted_with_what_caches_would_answer(
    folder: Path, simnmt: Command, fit: Callable[..., Any]
) -> None:
    Path("de").write_text("\n".join(["a b", "c d", "a b", "e", "c d", "c d"]) + "\n")
    document = fit("de", "de")
    assert document["repeated_share"] == pytest.approx(0.5)
    assert [(row["entries"], row["share"]) for row in document["hit_rates"]] == [
        (1, pytest.approx(1 / 6)),
        (2, pytest.approx(1 / 3)),
        (3, pytest.approx(1 / 2)),
    ]
    assert "50 % of the source lines repeat an earlier one" in simnmt("corpus", "fit", "de", "de").out


def test_a_text_and_a_rate_show_what_a_cache_saves(folder: Path, simnmt: Command) -> None:
    Path("de").write_text("ab cd\nef\nab cd\ngh\n" * 50)
    asked = "cache", "de", "--rate", "20", "--ttl", "1d", "--entries", "3"
    done = simnmt("corpus", *asked, "--page", "cache.html")
    assert (done.status, done.err) == (0, "") and done.out.endswith("page: cache.html\n")
    document = json.loads(simnmt("corpus", *asked, "--json").out)
    assert (document["requests"], document["distinct"], document["characters_per_request"]) == (200, 3, 3.0)
    assert document["asked"] == document["sizes"][-1]
    assert document["asked"]["hit_share"] == 0.985 and document["asked"]["misses_rps"] == pytest.approx(0.3)
    assert document["sizes"][1]["hit_share"] == pytest.approx(0.495), "every second request, but for the first"
    assert document["asked"]["characters_left_per_day"] == pytest.approx(20 * 86_400 * 3 * 8 / 600)
    assert "of 20 requests/s 0.3 remain" in done.out
    page = Path("cache.html").read_text(encoding="utf-8")
    assert 'data-table="sizes"' in page and "What a cache saves" in page


def test_a_law_and_a_log_show_what_a_cache_saves(folder: Path, simnmt: Command) -> None:
    document = json.loads(simnmt("corpus", "cache", "--zipf", "1", "--over", "10", "--json").out)
    assert document["sizes"][-1]["hit_share"] == 1.0 and document["sizes"][-1]["misses_rps"] is None
    Path("log.csv").write_text("t_s,hash\n0,a\n10,b\n20,a\n")
    document = json.loads(simnmt("corpus", "cache", "log.csv", "--ttl", "15s", "--json").out)
    assert document["rate_rps"] == 0.1 and document["sizes"][-1]["hit_share"] == 0.0
    assert document["sizes"][-1]["hit_share_without_ttl"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("news.de --ttl 1d", "the lifetime of an entry needs the rate"),
        ("news.de --rate 20 --ttl 0s", "--ttl"),
        ("news.de --rate 0", "--rate"),
        ("news.de --rate 20 --entries 0", "--entries"),
        ("--zipf -1 --over 10", "--zipf"),
        ("--zipf nan --over 10", "--zipf: give an exponent from 0 to 20"),
        ("--zipf 1 --over 0", "--over"),
        ("--zipf 1", "give a text or a log"),
        ("news.de --zipf 1 --over 10", "give a text or a log"),
        ("log.csv", "log.csv:1: no column that identifies the text"),
        ("none.txt", "none.txt: no such file"),
        ("empty.txt", "empty.txt"),
    ],
)
def test_a_cache_of_nothing_is_refused_in_one_line(
    folder: Path, simnmt: Command, tree: Tree, arguments: str, place: str
) -> None:
    Path("log.csv").write_text("t_s,words\n0,a\n10,b\n")
    Path("empty.txt").write_text("")
    before = tree(folder)
    done = simnmt("corpus", "cache", *arguments.split(), "--page", "cache.html")
    assert (done.status, done.out) == (2, "") and place in done.err and tree(folder) == before
    assert "Traceback" not in done.err
