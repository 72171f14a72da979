"""Lines in, lines out: order, gaps, lengths that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import build_model
from simnmt.nmt.source_lines import LONGEST_SOURCE, replace_unknown
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.translation import Translator, parse_batching
from tests.nmt import toy_language

VOCAB = toy_language.TRANSFORMER.vocab
GRU = toy_language.GRU.model_copy(update={"src_vocab": VOCAB, "tgt_vocab": VOCAB})
SOURCES = [source for source, _ in toy_language.pairs(40)]


@pytest.fixture(scope="module")
def vocabulary() -> Subwords:
    return toy_language.subwords([text for pair in toy_language.pairs(300) for text in pair], VOCAB)


pytestmark = pytest.mark.usefixtures("one_thread")


def translator(vocabulary: Subwords, architecture: Architecture = GRU, **options: object) -> Translator:
    """Of a model that has learnt nothing; what it says differs from source to source all the same."""
    return Translator(build_model(architecture, seed=4).eval(), vocabulary, vocabulary, **options)


@pytest.mark.parametrize("beam", [1, 3])
def test_each_line_has_its_own_translation_in_its_place(vocabulary: Subwords, beam: int) -> None:
    """Whatever the batches are: each line translated alone is the same."""
    lines = [*SOURCES[:9], "", SOURCES[0], "   ", *SOURCES[9:20], ""]
    alone = translator(vocabulary, max_len=12, beam=beam)
    singly = [alone.translate([line])[0] for line in lines]
    assert len({translation.text for translation in singly}) > 5
    assert (singly[9].text, singly[9].src_len, singly[9].tgt_len) == ("", 0, 0)
    for named in (("mini", 3), ("maxi", 3), ("maxi", 64), ("top-up", 3), ("top-up", 1)):
        translations = translator(vocabulary, batching=parse_batching(*named), max_len=12, beam=beam).stream(iter(lines))
        assert [(translation.text, translation.tgt_len) for translation in translations] == [
            (translation.text, translation.tgt_len) for translation in singly
        ], named


@pytest.mark.parametrize(
    "batching", [mini(4), maxi(4, 32), top_up(4, 2), top_up(4, 2, 32)], ids=["mini", "maxi", "top-up", "both"]
)
def test_lines_are_translated_as_they_come(vocabulary: Subwords, batching: Batching) -> None:
    """What is read is soon out, so that any length of text fits."""
    asked = []

    def lines() -> Iterator[str]:
        for number in range(10_000):
            asked.append(number)
            yield SOURCES[number % 40]

    stream = translator(vocabulary, batching=batching, max_len=2).stream(lines())
    for _ in range(3):
        next(stream)
    assert len(asked) <= (batching.collected or 8)


def test_a_source_that_is_too_long_is_cut_and_reported(vocabulary: Subwords) -> None:
    most = toy_language.TRANSFORMER.max_positions
    short, long = translator(vocabulary, toy_language.TRANSFORMER, max_len=5).translate([SOURCES[0], "neuf " * 200])
    assert (short.cut, long.cut) == (False, True)
    assert long.src_len == most < LONGEST_SOURCE
    gru = translator(vocabulary, max_len=5)
    one, other = gru.translate(["neuf " * 2_000, "neuf " * 3_000])
    assert (one.src_len, one.cut, one.text) == (LONGEST_SOURCE, True, other.text)


def test_unusable_options_and_folders_are_refused(vocabulary: Subwords, tmp_path: Path) -> None:
    for options in ({"beam": 0}, {"max_len": 0}, {"beam": 10_000}):
        with pytest.raises(NmtError, match=r"(beam|max_len)"):
            translator(vocabulary, **options)
    with pytest.raises(NmtError, match="none"):
        Translator.load(tmp_path / "none")
    with pytest.raises(NmtError, match=r"source\.model"):
        Translator.load(tmp_path)
    for name in ("source.model", "target.model"):
        (tmp_path / name).write_bytes(b"junk")
    with pytest.raises(NmtError, match=r"source\.model"):
        Translator.load(tmp_path)


SOURCE = ["▁Mon", "sieur", "▁", "K", "owalski", ",", "▁et", "▁", "☃", "."]
"""`Monsieur Kowalski, et ☃.` In a translation, a number is an unknown token that attends there."""


@pytest.mark.parametrize(
    ("pieces", "text", "replaced"),
    [
        (["▁Mr", "▁", 4, ",", "▁and", "▁", 8, "."], "Mr Kowalski, and ☃.", 2),  # copied without punctuation
        (["▁", 2], "Kowalski", 1),  # a bare blank opens its word
        (["▁", 3, 4], "Kowalski", 2),  # neighbours of one word give it once
        (["▁", 4, "▁", 4], "Kowalski Kowalski", 2),  # separate tokens give it twice
        (["▁snow", 8, "▁ball"], "snow☃ ball", 1),  # a sign is no letter
        (["▁the", "▁", 10, "▁end"], "the ⁇ end", 0),  # the end of the source replaces nothing
        ([8], "☃", 1),  # alone
        (["▁", 5], "Kowalski", 1),  # punctuation belongs to its word
        (["▁", 0, 3], "Monsieur Kowalski", 2),  # neighbours of two words have a blank between them
        (["▁(", 3, 10, 0, ")"], "(Kowalski ⁇ Monsieur)", 2),  # and none towards punctuation
        (["▁snow", 3, 0, "ball"], "snow Kowalski Monsieur ball", 2),  # nor does one join letters beside it
    ],
)
def test_sharp_01_an_unknown_token_becomes_the_word_attended_to(pieces: list[str | int], text: str, replaced: int) -> None:
    assert replace_unknown(pieces, SOURCE) == (text, replaced)
