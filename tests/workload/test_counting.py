from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.errors import CorpusError
from simnmt.workload.fertility import Fertility, convert_units
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import UNITS, count_characters, count_mixed, count_words, source_and_target, unit_and_counter
from simnmt.workload.lognormal_lengths import LognormalLengths


@pytest.mark.parametrize(
    ("text", "word", "mix", "char"),
    [
        ("", 0, 0, 0),
        (" \t \u3000 ", 0, 0, 0),
        ("the quick  brown\tfox", 4, 4, 16),
        ("don't stop.", 2, 2, 10),
        ("你好，世界。", 1, 6, 6),
        ("返回值将会用 :func:`quote` 函数加以编码。", 3, 14, 26),
        ("有4个月大", 1, 5, 5),
        ("使用（foo）：bar！", 1, 8, 12),
        ("使用Python3编程", 1, 5, 11),
        ("《紅樓夢》……", 1, 6, 7),
        ("他说：“好的”。", 1, 8, 8),
        ("𠀀𪜶", 1, 2, 2),
        ("ＡＢＣ１２", 1, 1, 5),
    ],
)
def test_lengths_counted_by_hand(text: str, word: int, mix: int, char: int) -> None:
    assert (count_words(text), count_mixed(text), count_characters(text)) == (word, mix, char)


@given(st.text())
def test_units_order_as_their_definitions_do(text: str) -> None:
    """A mixed token is a part of a word or a whole one, and holds at least one non-blank character."""
    assert count_words(text) <= count_mixed(text) <= count_characters(text)
    assert count_characters(text) == sum(not char.isspace() for char in text)


@given(st.text(st.characters(max_codepoint=0x2E7F)))
def test_without_han_text_mixed_counts_words(text: str) -> None:
    assert count_mixed(text) == count_words(text)


@given(st.text(), st.text())
def test_a_blank_between_two_texts_adds_their_lengths_up(left: str, right: str) -> None:
    for count in UNITS.values():
        assert count(f"{left} {right}") == count(left) + count(right)


def test_an_unknown_unit_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(CorpusError, match=r"unknown unit 'words' \(did you mean word\?\)"):
        unit_and_counter("words")
    with pytest.raises(CorpusError, match=r"known: word, mixed, char, sentencepiece:PATH"):
        unit_and_counter("xyzzy")


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ("word", ("word", "word")),
        ("word:mixed", ("word", "mixed")),
        ("wrod:mixed", ("wrod", "mixed")),
        ("sentencepiece:a.model", ("sentencepiece:a.model", "sentencepiece:a.model")),
        ("sentencepiece:a.model:word", ("sentencepiece:a.model", "word")),
        ("word:sentencepiece:b.model", ("word", "sentencepiece:b.model")),
        ("sentencepiece:a.model:sentencepiece:b.model", ("sentencepiece:a.model", "sentencepiece:b.model")),
        ("sentencepiece:C:/a b.model", ("sentencepiece:C:/a b.model", "sentencepiece:C:/a b.model")),
        ("sentencepiece:C:/a:1.model:char", ("sentencepiece:C:/a:1.model", "char")),
    ],
)
def test_the_units_of_both_sides_are_separated(asked: str, parts: tuple[str, str]) -> None:
    assert source_and_target(asked) == parts


TABLE = LengthTable.of_pairs("news", "made up", "word", "mixed", [4, 10], [5, 20], [10, 10])


def test_lengths_in_the_requested_units_are_unchanged() -> None:
    assert convert_units(TABLE, None, "word", "mixed") is TABLE
    assert convert_units(TABLE, Fertility(), "word", "mixed") is TABLE
    assert convert_units(TABLE, Fertility(src=1.0, tgt=1.0), "word", "mixed") is TABLE


def test_each_side_is_scaled_by_what_is_stated_of_it() -> None:
    both = convert_units(TABLE, Fertility(src=1.5, tgt=2.0), "subword", "subword")
    assert (both.src_unit, both.tgt_unit) == ("subword", "subword")
    assert (both.mean_src_len, both.mean_tgt_len) == (1.5 * TABLE.mean_src_len, 2.0 * TABLE.mean_tgt_len)
    one = convert_units(TABLE, Fertility(src=1.25), "subword", "mixed")
    assert (one.mean_src_len, one.mean_tgt_len) == (1.25 * TABLE.mean_src_len, TABLE.mean_tgt_len)
    assert "1.25 / 1" in one.source


@pytest.mark.parametrize(
    ("fertility", "units", "message"),
    [
        (None, ("subword", "mixed"), r"src lengths of news are counted by word, the profile's by subword \(.*fertility\.src"),
        (
            Fertility(src=1.5),
            ("subword", "piece"),
            r"tgt lengths of news are counted by mixed, .* state fertility\.tgt: piece per mixed",
        ),
        (Fertility(src=1.2, tgt=1.5), ("subword", "mixed"), r"fertility\.tgt is 1\.5, but .* both count it by mixed"),
    ],
)
def test_a_mismatch_needs_a_stated_fertility_and_a_match_none(fertility, units, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        convert_units(TABLE, fertility, *units)


def test_the_end_of_the_sentence_is_added_once_and_not_scaled() -> None:
    both = convert_units(TABLE, None, "word", "mixed", "both")
    assert (both.src_len.tolist(), both.tgt_len.tolist()) == ([5, 11], [6, 21])
    assert convert_units(both, None, "word", "mixed", "both") is both
    target = convert_units(both, None, "word", "mixed", "target")
    assert (target.src_len.tolist(), target.tgt_len.tolist()) == ([4, 10], [6, 21])
    scaled = convert_units(both, Fertility(src=1.5, tgt=2.0), "subword", "subword", "both")
    assert (scaled.mean_src_len, scaled.mean_tgt_len) == (1.5 * TABLE.mean_src_len + 1, 2.0 * TABLE.mean_tgt_len + 1)


def test_drawn_lengths_count_the_end_of_the_target_alone() -> None:
    assert LognormalLengths(10.0, 5.0).table(50).end_of_sentence == "target"
    assert LognormalLengths(10.0, 5.0, end=0).table(50).end_of_sentence == "none"
