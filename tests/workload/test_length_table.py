from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import WORDS, TokensPerWord, keep
from simnmt.workload.length_regression import fit_lengths
from simnmt.workload.length_table import LengthTable, read_table, write_table


def test_tokens_per_word_go_with_a_table(tmp_path: Path) -> None:
    by_words = LengthTable.of_pairs("t", "s", "word", "word", [3, 9], [3, 1])
    by_char = by_words.with_fertility(5.0, 1.0, "char", "char")
    assert (by_words.tokens_per_word, by_char.tokens_per_word) == (WORDS, TokensPerWord(5.0, 1.0))
    write_table(tmp_path / "t.csv", by_char)
    again = read_table(tmp_path / "t.csv")
    assert again.tokens_per_word == TokensPerWord(5.0, 1.0)
    columns = (again.src_len, again.tgt_len, again.count)
    assert keep("cnmt", *columns, per_word=again.tokens_per_word)[0].tolist() == [True, False]
    assert keep("cnmt", *columns)[0].tolist() == [False, False]
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("5.0 1.0", "5.0 -2"))
    with pytest.raises(CorpusError, match=r"t\.csv:8: tokens_per_word is '5\.0 -2' \(give source and target"):
        read_table(tmp_path / "t.csv")


def table_of(pairs: dict[tuple[int, int], int], name: str = "test") -> LengthTable:
    src_len, tgt_len = zip(*pairs, strict=True)
    return LengthTable.of_pairs(name, "made up", "word", "mixed", src_len, tgt_len, list(pairs.values()))


def counts(table: LengthTable) -> Counter[tuple[int, int]]:
    return Counter(
        dict(
            zip(
                zip(table.src_len.tolist(), table.tgt_len.tolist(), strict=True),
                table.count.tolist(),
                strict=True,
            )
        )
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


tables = st.dictionaries(st.tuples(st.integers(1, 60), st.integers(1, 60)), st.integers(1, 500), min_size=1, max_size=30).map(
    table_of
)


# --- the table itself ---


def test_pairs_in_any_order_are_sorted_and_added_up() -> None:
    table = LengthTable.of_pairs("t", "s", "word", "word", [3, 1, 3, 1], [2, 9, 2, 4], [5, 1, 6, 2])
    assert counts(table) == {(1, 4): 2, (1, 9): 1, (3, 2): 11}
    assert table.src_len.tolist() == [1, 1, 3] and table.tgt_len.tolist() == [4, 9, 2]
    assert (table.pairs, table.mean_src_len, table.mean_tgt_len) == (14, 36 / 14, 39 / 14)


def test_a_table_neither_shares_nor_lends_its_columns() -> None:
    """Else a caller could change the workload under everyone's feet."""
    src_len = np.array([1, 2])
    table = LengthTable("t", "s", "word", "word", src_len, np.array([1, 1]), np.array([1, 1]))
    src_len[0] = 99
    assert table.src_len.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        table.count[0] = 7


def test_a_table_goes_to_another_process_and_back() -> None:
    table = table_of({(1, 2): 3, (4, 5): 6})
    assert counts(pickle.loads(pickle.dumps(table))) == counts(table)


@pytest.mark.parametrize(
    ("src_len", "tgt_len", "count", "what"),
    [
        ([], [], [], "no pairs"),
        ([1], [1], [0], "below 1"),
        ([1, 2], [1, 1], [2**62, 2**62], "more than 999999999 pairs"),
    ],
)
def test_columns_that_are_no_table_are_refused(src_len, tgt_len, count, what: str) -> None:
    columns = [np.array(column, dtype=np.int64) for column in (src_len, tgt_len, count)]
    with pytest.raises(CorpusError, match=rf"length table t: .*{what}.* \("):
        LengthTable("t", "s", "word", "word", *columns)


def test_a_unit_that_nothing_here_counts_is_taken_as_it_is(tmp_path: Path) -> None:
    """A device profile may be in the subwords of a model that is not at hand."""
    for unit in ("subword", "sentencepiece opus-mt 0123abcd", "bpe 32k"):
        write_table(tmp_path / "t.csv", LengthTable.of_pairs("t", "s", unit, "word", [1], [1]))
        assert read_table(tmp_path / "t.csv").src_unit == unit


# --- fertility ---


factors = st.floats(0.3, 8.0, allow_nan=False)


@given(tables, st.floats(1.0, 8.0), st.floats(1.0, 8.0))
def test_a_fertility_keeps_the_pairs_and_the_total_of_each_side(table: LengthTable, src: float, tgt: float) -> None:
    scaled = table.with_fertility(src, tgt, "subword", "piece")
    assert scaled.pairs == table.pairs
    for side, factor in (("src_len", src), ("tgt_len", tgt)):
        total = getattr(scaled, side) @ scaled.count
        assert abs(total - factor * (getattr(table, side) @ table.count)) <= 0.5 + 1e-6
    assert (scaled.src_unit, scaled.tgt_unit, scaled.name) == ("subword", "piece", table.name)
    assert "word / mixed" in scaled.source and f"{src:g} / {tgt:g}" in scaled.source


@given(tables, factors, factors)
def test_a_fertility_moves_each_length_to_a_whole_number_beside_its_multiple(
    table: LengthTable, src: float, tgt: float
) -> None:
    scaled = table.with_fertility(src, tgt, "subword", "subword")
    beside = set()
    for n, m in counts(table):
        for low, high in [(max(math.floor(n * src), 1), max(math.floor(m * tgt), 1))]:
            beside |= {(low + a, high + b) for a in (0, 1) for b in (0, 1)}
    assert set(counts(scaled)) <= beside
    assert counts(table.with_fertility(src, tgt, "subword", "subword")) == counts(scaled)


def test_a_fertility_of_one_changes_the_unit_alone() -> None:
    table = table_of({(1, 2): 3, (4, 5): 6})
    assert counts(table.with_fertility(1.0, 1.0, "subword", "subword")) == counts(table)


def test_a_fertility_scales_the_line_with_it() -> None:
    """Of M = g N + d in words comes t M = (t g / s) (s N) + t d in subwords."""
    table = table_of({(n, 2 * n + 3): 100 for n in range(1, 60)})
    line = fit_lengths(table.with_fertility(1.3, 1.7, "subword", "subword"))
    assert line.len_slope == pytest.approx(2 * 1.7 / 1.3, rel=1e-3)
    assert line.len_offset == pytest.approx(3 * 1.7, abs=0.05)


def test_no_length_falls_below_one_token() -> None:
    scaled = table_of({(1, 1): 10, (20, 20): 10}).with_fertility(0.2, 0.2, "subword", "subword")
    assert counts(scaled) == {(1, 1): 10, (4, 4): 10}


# --- filters over a table ---


def test_a_further_filter_is_listed_after_the_first() -> None:
    table = LengthTable.of_pairs(
        "t", "s", "word", "word", [1, 5], [1, 50], [3, 4], filtered="none: 7 pairs read, 0 dropped (empty 0)"
    )
    left = table.only(np.array([True, False]), "second: 7 pairs read, 4 dropped (x 4)")
    assert counts(left) == {(1, 1): 3}
    assert left.filtered == "none: 7 pairs read, 0 dropped (empty 0); then second: 7 pairs read, 4 dropped (x 4)"
    with pytest.raises(CorpusError, match=r"no pair is left, filter second \(choose another"):
        table.only(np.array([False, False]), "second")


# --- split ---


@given(tables.filter(lambda table: table.pairs > 1), st.floats(0.01, 0.99), st.integers(0, 2**32))
@example(table_of({(1, 1): 2}), 0.01, 1)
@example(table_of({(1, 1): 2}), 0.99, 1)
def test_a_split_deals_every_pair_to_exactly_one_side(table: LengthTable, share: float, seed: int) -> None:
    fit, evaluated = table.split(share, seed)
    assert counts(fit) + counts(evaluated) == counts(table)
    assert fit.pairs == min(max(round(share * table.pairs), 1), table.pairs - 1)
    assert (fit.name, fit.source, fit.src_unit, fit.tgt_unit) == ("test", "made up", "word", "mixed")


def test_the_same_seed_splits_alike_and_another_one_otherwise() -> None:
    table = table_of({(n, n): 50 for n in range(1, 40)})
    assert counts(table.split(0.3, 7)[0]) == counts(table.split(0.3, 7)[0])
    assert counts(table.split(0.3, 7)[0]) != counts(table.split(0.3, 8)[0])


def test_a_split_draws_without_replacement() -> None:
    """Mean and variance of a multivariate hypergeometric draw: drawn with it, the variance would double."""
    table = table_of({(1, 1): 300, (2, 2): 100, (3, 3): 600})
    drawn = np.array([[counts(table.split(0.5, seed)[0])[n, n] for n in (1, 2, 3)] for seed in range(600)])
    share = np.array([300, 100, 600]) / 1000
    variance = 500 * share * (1 - share) * (1000 - 500) / (1000 - 1)
    assert np.all(np.abs(drawn.mean(axis=0) - 500 * share) < 4 * np.sqrt(variance / 600))
    assert np.all(np.abs(drawn.var(axis=0) / variance - 1) < 4 * np.sqrt(2 / 600))


# --- sample ---


@given(tables, st.integers(0, 2**32), st.integers(0, 300), st.integers(0, 300))
def test_a_longer_sample_begins_with_the_shorter_one(table: LengthTable, seed: int, one: int, two: int) -> None:
    short, long = sorted((one, two))
    first, second = (np.stack(table.sample(seed, 3, "lengths", size)) for size in (short, long))
    assert first.shape == (2, short) and first.dtype == np.int64
    assert np.array_equal(first, second[:, :short])
    assert set(zip(*second.tolist(), strict=True)) <= set(counts(table))


def test_the_prefix_holds_across_the_blocks_of_a_stream() -> None:
    table = table_of({(n, m): n + m for n in range(1, 9) for m in range(1, 9)})
    long = np.stack(table.sample(1, 0, "lengths", 150_000))
    assert np.array_equal(np.stack(table.sample(1, 0, "lengths", 70_000)), long[:, :70_000])


def test_pairs_are_drawn_by_their_counts() -> None:
    pairs = {(1, 1): 1, (1, 7): 10, (2, 3): 100, (5, 5): 1000, (9, 2): 889}
    src_len, tgt_len = table_of(pairs).sample(11, 0, "lengths", 200_000)
    drawn = Counter(zip(src_len.tolist(), tgt_len.tolist(), strict=True))
    observed = [drawn[pair] for pair in pairs]
    assert stats.chisquare(observed, [100 * count for count in pairs.values()]).pvalue > 0.001


def test_seed_replication_and_stream_name_each_change_the_sample() -> None:
    table = table_of({(n, n): 1 for n in range(1, 100)})
    keys = [(1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b")]
    assert len({table.sample(*key, 50)[0].tobytes() for key in keys}) == 4


# --- the file ---


@given(tables)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, table: LengthTable) -> None:
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "a.csv", table)
    again = read_table(folder / "a.csv")
    assert counts(again) == counts(table)
    for key in ("name", "source", "src_unit", "tgt_unit", "filtered"):
        assert getattr(again, key) == getattr(table, key)
    write_table(folder / "b.csv", again)
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()
    assert names_in(folder) == ["a.csv", "b.csv"]


HEADER = """# simnmt length table, version 1
# name: de-en
# source: somewhere: with a colon, CC0
# any other remark
# src_unit: word
# tgt_unit: mixed
src_len,tgt_len,count
"""


def test_the_form_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes((HEADER + "7,2,3\n4,9,1\n").replace("\n", "\r\n").encode())
    table = read_table(tmp_path / "t.csv")
    assert counts(table) == {(4, 9): 1, (7, 2): 3}
    assert (table.name, table.source, table.filtered) == ("de-en", "somewhere: with a colon, CC0", "")


def test_a_source_of_several_lines_is_written_on_one(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", LengthTable.of_pairs("t", "a\n1,1,1\nb", "word", "word", [1], [1]))
    assert read_table(tmp_path / "t.csv").source == "a 1,1,1 b"


BAD_TABLES = [
    ("empty file", "", r": no line 'src_len,tgt_len,count': the file is empty or cut off \(write it with"),
    ("another file", "a,b\n1,2\n", r":1: not a length table: .*\(write it with `simnmt corpus table`\)"),
    (
        "newer version",
        HEADER.replace("version 1", "version 2"),
        r":1: version 2, this simnmt reads version 1 \(",
    ),
    ("header alone", HEADER.rsplit("\n", 2)[0], r":6: no line 'src_len,tgt_len,count': .*cut off \("),
    (
        "other columns",
        HEADER.replace("count", "n") + "1,1,1\n",
        r":7: expected the column names .*'src_len,tgt_len,n' \(",
    ),
    (
        "no unit",
        HEADER.replace("# tgt_unit: mixed\n", "") + "1,1,1\n",
        r":6: the header has no 'tgt_unit' \(add a line",
    ),
    (
        "empty name",
        HEADER.replace("name: de-en", "name:") + "1,1,1\n",
        r":7: the header has no 'name' \(add a line",
    ),
    ("unknown unit", HEADER.replace("mixed", "mixd"), r":6: unknown unit 'mixd' \(did you mean mixed\?\)"),
    ("two names", HEADER.replace("# any other remark", "# name: b"), r":4: name is given twice \(keep one"),
    ("no rows", HEADER, r":7: no pairs \(write it with"),
    (
        "two columns",
        HEADER + "1,1,1\n2,2\n",
        r":9: expected src_len,tgt_len,count, found '2,2' \(write three",
    ),
    ("blank line", HEADER + "1,1,1\n\n", r":9: expected src_len,tgt_len,count, found '' \(write three"),
    ("negative count", HEADER + "1,1,-4\n", r":8: count is '-4' \(give a whole number from 1"),
    ("zero length", HEADER + "0,1,4\n", r":8: src_len is '0' \(give a whole number from 1"),
    ("a fraction", HEADER + "1,1.5,4\n", r":8: tgt_len is '1\.5' \(give a whole number"),
    ("an underscore", HEADER + "1,1_0,4\n", r":8: tgt_len is '1_0' \(give a whole number"),
    ("other digits", HEADER + "1,\u0661,4\n", r":8: tgt_len is '\u0661' \(give a whole number"),
    ("too large", HEADER + "1,1,1000000000\n", r":8: count is '1000000000' \(give a whole number"),
    (
        "too many pairs",
        HEADER + "1,1,999999999\n1,2,1\n",
        r": length table de-en: more than 999999999 pairs \(",
    ),
    (
        "a repetition",
        HEADER + "1,2,3\n4,4,4\n1,2,5\n",
        r":10: pair 1,2 already appears on line 8 \(add their counts",
    ),
    ("a quoted field", HEADER + '"1",2,3\n', r":8: src_len is '\"1\"' \(give a whole number"),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in BAD_TABLES], ids=[case[0] for case in BAD_TABLES])
def test_a_bad_table_is_named_with_line_and_remedy(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(CorpusError, match=f"^{re.escape(str(path))}{message}"):
        read_table(path)


def test_a_table_states_whether_its_lengths_count_the_end_of_the_sentence(tmp_path: Path) -> None:
    table = LengthTable.of_pairs("t", "s", "word", "word", [3], [4]).counting("target")
    write_table(tmp_path / "t.csv", table)
    assert "# end_of_sentence: target\n" in (tmp_path / "t.csv").read_text()
    again = read_table(tmp_path / "t.csv")
    assert (again.end_of_sentence, again.tgt_len.tolist()) == ("target", [5])
    (tmp_path / "t.csv").write_text(HEADER + "7,2,3\n")
    assert read_table(tmp_path / "t.csv").end_of_sentence == "none", "by default"
    (tmp_path / "t.csv").write_text(HEADER.replace("# any", "# end_of_sentence: perhaps\n# any") + "7,2,3\n")
    with pytest.raises(CorpusError, match=r"t\.csv:4: end_of_sentence is 'perhaps' \(give one of none, source, target, both\)"):
        read_table(tmp_path / "t.csv")
