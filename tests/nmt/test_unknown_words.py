"""Unknown words are replaced through the attention, by a dictionary or the source word (SHARP-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.nmt.errors import NmtError
from simnmt.nmt.subwords import TargetPiece, read_dictionary, replace_unknown

SOURCE = ["▁Mon", "sieur", "▁", "K", "owalski", ",", "▁et", "▁", "☃", "."]
"""`Monsieur Kowalski, et ☃.`"""


def target(*pieces: str | int) -> list[TargetPiece]:
    """A string is a known piece, a number an unknown token that attends there."""
    return [TargetPiece("", True, piece) if isinstance(piece, int) else TargetPiece(piece, False, 0) for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "dictionary", "text", "replaced"),
    [
        (["▁Mr", "▁", 4, ",", "▁and", "▁", 8, "."], {}, "Mr Kowalski, and ☃.", 2),
        (["▁", 0, "▁", 3], {"Monsieur": "Mister"}, "Mister Kowalski", 2),
        (["▁", 1, "."], {"monsieur": "mister"}, "mister.", 1),
        (["▁", 2], {"Kowalski": "Smith"}, "Smith", 1),
        (["▁", 3, 4], {"Kowalski": "Smith"}, "Smith", 2),
        (["▁", 4, "▁", 4], {}, "Kowalski Kowalski", 2),
        (["▁snow", 8, "▁ball"], {"☃": "man"}, "snow☃ ball", 1),
        (["▁", 8, "ball"], {}, "☃ball", 1),
        (["▁the", "▁", 10, "▁end"], {}, "the ⁇ end", 0),
        ([8], {"☃": "snow man"}, "snow man", 1),
        (["▁", 5], {}, "Kowalski", 1),
        (["▁", 0, 3], {"Monsieur": "Mister"}, "Mister Kowalski", 2),
        (["▁(", 3, 10, 0, ")"], {}, "(Kowalski ⁇ Monsieur)", 2),
        (["▁snow", 3, 0, "▁ball"], {}, "snowKMon ball", 2),
    ],
    ids=[
        "copied without punctuation",
        "dictionary for one, a copy of the other",
        "dictionary in lower case",
        "a bare blank opens its word",
        "neighbours of one word give it once",
        "separate tokens give it twice",
        "inside a word the piece is copied",
        "before a word too",
        "the end of the source replaces nothing",
        "alone",
        "punctuation belongs to its word",
        "neighbours of two words have a blank between them",
        "and none towards punctuation",
        "inside a word there is none",
    ],
)
def test_sharp_01_an_unknown_token_becomes_the_word_attended_to(
    pieces: list[str | int], dictionary: dict[str, str], text: str, replaced: int
) -> None:
    assert replace_unknown(target(*pieces), SOURCE, dictionary) == (text, replaced)


@pytest.mark.parametrize(
    ("pieces", "dictionary", "text"),
    [
        ([1, 4], {}, "très très"),
        (["▁", 2, 5], {"très": "very"}, "very very"),
        ([1, 2, 4, 5], {}, "très très"),
        (["▁a", 1, 4, "b"], {}, "aèèb"),
        ([1, 1], {}, "très"),
    ],
    ids=["copied", "dictionary", "two tokens for each", "pieces inside a word", "one word is given once"],
)
def test_a_word_that_the_source_has_twice_is_written_twice(
    pieces: list[str | int], dictionary: dict[str, str], text: str
) -> None:
    """A source word that is unknown is cut into pieces; alike, but two words."""
    assert replace_unknown(target(*pieces), ["▁tr", "è", "s", "▁tr", "è", "s"], dictionary)[0] == text


def test_a_dictionary_is_two_columns_of_which_the_first_entry_counts(tmp_path: Path) -> None:
    (path := tmp_path / "words.tsv").write_text("chat\tcat\n\nchat\tkitty\nMünchen\tMunich \n", encoding="utf-8")
    assert read_dictionary(path) == {"chat": "cat", "München": "Munich"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chat", r"words\.tsv:2: 1 columns where a dictionary has 2"),
        ("le chat\tcat", "more than one word"),
    ],
)
def test_a_malformed_dictionary_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (path := tmp_path / "words.tsv").write_text(f"un\tone\n{line}\n", encoding="utf-8")
    with pytest.raises(NmtError, match=message):
        read_dictionary(path)
