from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.errors import CorpusError
from simnmt.workload.length_units import UNITS, count_characters, count_mixed, count_words, source_and_target, unit_and_counter


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


@pytest.mark.parametrize("asked", ["word:", ":word", ":", "", "sentencepiece:"])
def test_a_side_without_a_unit_is_not_made_up(asked: str) -> None:
    with pytest.raises(CorpusError, match=r"no unit on one side of .*\(give SRC:TGT, or one unit for both"):
        source_and_target(asked)
