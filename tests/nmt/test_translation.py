"""Lines in, lines out: order, gaps, lengths that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sentencepiece", reason="the extra packages of simnmt[models] are not installed")

from simnmt.nmt.architecture import Architecture  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.models import build_model  # noqa: E402
from simnmt.nmt.subwords import Subwords  # noqa: E402
from simnmt.nmt.training.subwords import learn_vocabulary  # noqa: E402
from simnmt.nmt.translation import LONGEST_SOURCE, Translator  # noqa: E402
from tests.nmt import toy_language  # noqa: E402

MARKS = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
VOCAB = toy_language.TRANSFORMER.vocab
GRU = toy_language.GRU.model_copy(update={"src_vocab": VOCAB, "tgt_vocab": VOCAB})
SOURCES = [source for source, _ in toy_language.pairs(40)]


@pytest.fixture(scope="module")
def vocabulary() -> Subwords:
    sources = [text for pair in toy_language.pairs(300) for text in pair]
    return Subwords(learn_vocabulary(sources, VOCAB, side="whole", **MARKS))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def translator(vocabulary: Subwords, architecture: Architecture = GRU, **options: int) -> Translator:
    """Of a model that has learnt nothing; what it says differs from source to source all the same."""
    return Translator(build_model(architecture, seed=4).eval(), vocabulary, vocabulary, **options)


@pytest.mark.parametrize("options", [{"batch": 3}, {"batch": 64}, {"batch": 3, "beam": 3}], ids=str)
def test_each_line_has_its_own_translation_in_its_place(vocabulary: Subwords, options: dict[str, int]) -> None:
    """Whatever the batches are: each line translated alone is the same."""
    ours = translator(vocabulary, max_len=12, **options)
    lines = [*SOURCES[:9], "", SOURCES[0], "   ", *SOURCES[9:], ""]
    found = list(ours.stream(iter(lines)))
    assert len(found) == len(lines)
    assert len({translation.text for translation in found}) > 5
    for line, translation in zip(lines, found, strict=True):
        alone = ours.translate([line])[0]
        assert (translation.text, translation.tgt_len) == (alone.text, alone.tgt_len)
        if not line.strip():
            assert (translation.text, translation.src_len, translation.tgt_len) == ("", 0, 0)


def test_lines_are_translated_as_they_come(vocabulary: Subwords) -> None:
    """A block is out before the next is read, so that any length of text fits."""
    asked = []

    def lines() -> Iterator[str]:
        for number in range(10_000):
            asked.append(number)
            yield SOURCES[number % 40]

    stream = translator(vocabulary, batch=4, max_len=2).stream(lines())
    for _ in range(3):
        next(stream)
    assert len(asked) <= 4 * 8


def test_a_source_that_is_too_long_is_cut_and_says_so(vocabulary: Subwords) -> None:
    most = toy_language.TRANSFORMER.max_positions
    short, long = translator(vocabulary, toy_language.TRANSFORMER, max_len=5).translate([SOURCES[0], "neuf " * 200])
    assert (short.cut, long.cut) == (False, True)
    assert long.src_len == most < LONGEST_SOURCE
    gru = translator(vocabulary, max_len=5)
    one, other = gru.translate(["neuf " * 2_000, "neuf " * 3_000])
    assert (one.src_len, one.cut, one.text) == (LONGEST_SOURCE, True, other.text)


def test_a_translation_that_does_not_end_is_stopped_and_says_so(vocabulary: Subwords) -> None:
    found = translator(vocabulary, max_len=3).translate(SOURCES)
    assert all(translation.tgt_len <= 3 for translation in found)
    assert {translation.ended for translation in found if translation.tgt_len == 3} == {False}
    without = translator(vocabulary).translate(SOURCES[:4])
    longest = max(len(ids) for ids in vocabulary.encode(SOURCES[:4]))
    assert all(translation.tgt_len <= 2 * longest + 10 for translation in without)


def test_options_and_folders_that_mean_nothing_are_refused(vocabulary: Subwords, tmp_path: Path) -> None:
    for options in ({"beam": 0}, {"batch": 0}, {"max_len": 0}, {"beam": 10_000}):
        with pytest.raises(NmtError, match=r"(beam|batch|max_len)"):
            translator(vocabulary, **options)
    with pytest.raises(NmtError, match="no such folder"):
        Translator.load(tmp_path / "none")
    with pytest.raises(NmtError, match=r"no trained model: source\.model is missing"):
        Translator.load(tmp_path)
    for name in ("source.model", "target.model"):
        (tmp_path / name).write_bytes(b"junk")
    with pytest.raises(NmtError, match="no sentencepiece model"):
        Translator.load(tmp_path)
