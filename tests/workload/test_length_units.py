"""Units of length: counted by hand, by tokenisers trained here on a few made-up lines, and converted by a fertility."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload import CorpusError
from simnmt.workload.corpus import read_corpus
from simnmt.workload.length_table import LengthTable, read_table, write_table
from simnmt.workload.length_units import (
    UNITS,
    Fertility,
    convert_units,
    count_characters,
    count_mixed,
    count_words,
    source_and_target,
    unit_and_counter,
    unit_of,
)


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


@given(st.text(), st.text(st.characters(max_codepoint=0x2E7F)))
def test_units_order_as_their_definitions_do(text: str, without_han: str) -> None:
    """A mixed token is a part of a word or a whole one, and holds at least one non-blank character."""
    assert count_words(text) <= count_mixed(text) <= count_characters(text)
    assert count_characters(text) == sum(not char.isspace() for char in text)
    assert count_mixed(without_han) == count_words(without_han)
    for count in UNITS.values():
        assert count(f"{text} {without_han}") == count(text) + count(without_han)


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ("word", ("word", "word")),
        ("word:mixed", ("word", "mixed")),
        ("wrod:mixed", ("wrod", "mixed")),
        ("sentencepiece:a.model", ("sentencepiece:a.model", "sentencepiece:a.model")),
        ("sentencepiece:a.model:word", ("sentencepiece:a.model", "word")),
        ("word:sentencepiece:b.model", ("word", "sentencepiece:b.model")),
        ("tokenizers:a:b:sentencepiece:c", ("tokenizers:a:b", "sentencepiece:c")),
        ("sentencepiece:C:/a:1.model:char", ("sentencepiece:C:/a:1.model", "char")),
    ],
)
def test_the_units_of_both_sides_are_separated(asked: str, parts: tuple[str, str]) -> None:
    assert source_and_target(asked) == parts


@pytest.mark.parametrize(("unit", "remedy"), [("words", "did you mean word"), ("xyzzy", "sentencepiece:PATH")])
def test_an_unknown_unit_is_refused_with_the_nearest_name(unit: str, remedy: str) -> None:
    with pytest.raises(CorpusError) as caught:
        unit_and_counter(unit)
    assert remedy in str(caught.value.remedy)


# --- tokenisers ---

TEXT = ["the house is old", "we see the old man", "the man sees an old house", "houses are seen by men"] * 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=trained, vocab_size=40, hard_vocab_limit=False, num_threads=1, minloglevel=2
    )
    path = tmp_path_factory.mktemp("model") / "tiny model.model"
    path.write_bytes(trained.getvalue())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokeniser that adds a mark, truncates and pads, as a model's may."""
    learnt = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    learnt.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    learnt.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(vocab_size=26, special_tokens=["<unk>", "</s>"]))
    learnt.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    learnt.enable_truncation(4)
    learnt.enable_padding(length=30)
    place = tmp_path_factory.mktemp("model")
    learnt.save(str(place / "tokenizer.json"))
    return place


def test_a_text_has_as_many_tokens_as_the_model_makes_pieces(model: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    _, count = unit_and_counter(f"sentencepiece:{model}")
    for text in [*TEXT[:4], "", "   ", "unheard-of Ümläute 你好", "the  house"]:
        assert count(text) == len(processor.encode(text, out_type=str))


def test_a_text_has_as_many_tokens_as_the_tokeniser_makes_without_marks_padding_and_limit(folder: Path) -> None:
    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    name, count = unit_and_counter(f"tokenizers:{folder}")
    for text in [*TEXT[:4], "", "unheard-of 你好", " ".join(TEXT[:9])]:
        assert count(text) == len(plain.encode(text, add_special_tokens=False).tokens)
    assert count(" ".join(TEXT[:9])) > 30
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    assert name == unit_of(folder / "tokenizer.json") == f"tokenizers {digest[:12]}"


def test_the_unit_names_the_model_by_its_content(model: Path, tmp_path: Path) -> None:
    """Whatever the name of the file, which differs between the folder of a model and the copy of a tokeniser."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    other = tmp_path / "other.spm"
    other.write_bytes(model.read_bytes())
    assert unit_of(other) == unit_of(model) == unit_and_counter(f"sentencepiece:{other}")[0] == f"sentencepiece {digest[:12]}"
    other.write_bytes(model.read_bytes() + b"\0")
    assert unit_of(other) != unit_of(model)


def test_a_translation_models_folder_gives_the_tokeniser_of_either_side(model: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(model.read_bytes())
    (tmp_path / "a.tsv").write_text("".join(f"{line}\t{line}\n" for line in TEXT[:4]))
    unit = f"sentencepiece:{tmp_path}"
    with pytest.raises(CorpusError, match=r"without target\.model or target\.spm"):
        read_corpus(tmp_path / "a.tsv", src_unit=unit, tgt_unit=unit)
    (tmp_path / "target.model").write_bytes(model.read_bytes())
    table, _ = read_corpus(tmp_path / "a.tsv", src_unit=unit, tgt_unit="word")
    assert (table.src_unit, table.tgt_unit) == (unit_of(model), "word")
    assert table.src_len @ table.count == sum(map(unit_and_counter(f"sentencepiece:{model}")[1], TEXT[:4]))
    write_table(tmp_path / "t.csv", table)
    assert read_table(tmp_path / "t.csv").src_unit == unit_of(model)
    with pytest.raises(CorpusError, match=r"without source\.model or source\.spm"):
        unit_and_counter(f"sentencepiece:{folder}")


@pytest.mark.parametrize("content", [b"", b"\xff" * 5000, b"{", b"{}", b'{"model": 3}', None])
def test_what_is_no_tokeniser_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "bad.model").write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        unit_and_counter(f"sentencepiece:{tmp_path}/bad.model")
    assert caught.value.path == f"{tmp_path}/bad.model" and caught.value.remedy and "\n" not in str(caught.value)


# --- fertility ---

TABLE = LengthTable.of_pairs("news", "made up", "word", "mixed", [4, 10], [5, 20], [10, 10])


def test_lengths_in_the_requested_units_are_unchanged() -> None:
    assert convert_units(TABLE, Fertility(), "word", "mixed") is TABLE
    assert convert_units(TABLE, Fertility(src=1.0, tgt=1.0), "word", "mixed") is TABLE


def test_each_side_is_scaled_by_what_is_stated_of_it() -> None:
    both = convert_units(TABLE, Fertility(src=1.5, tgt=2.0), "subword", "subword")
    assert (both.src_unit, both.tgt_unit) == ("subword", "subword")
    assert (both.mean_src_len, both.mean_tgt_len) == (1.5 * TABLE.mean_src_len, 2.0 * TABLE.mean_tgt_len)
    one = convert_units(TABLE, Fertility(src={"subword": 1.25, "piece": 3.0}), "subword", "mixed")
    assert (one.mean_src_len, one.mean_tgt_len) == (1.25 * TABLE.mean_src_len, TABLE.mean_tgt_len)
    assert "1.25 / 1" in one.source


@pytest.mark.parametrize(
    ("fertility", "units", "message"),
    [
        (Fertility(), ("subword", "mixed"), r"src lengths of news .*fertility\.src: subword per word"),
        (Fertility(src=1.5), ("subword", "piece"), r"tgt lengths of news .*fertility\.tgt: piece per mixed"),
        (Fertility(src=1.2, tgt=1.5), ("subword", "mixed"), r"fertility\.tgt is 1\.5, but"),
    ],
)
def test_a_mismatch_needs_a_stated_fertility_and_a_match_none(
    fertility: Fertility, units: tuple[str, str], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        convert_units(TABLE, fertility, *units)


def test_one_number_for_profiles_of_several_units_is_refused() -> None:
    for stated in (Fertility(src={"subword": 1.5}), Fertility(src=2), Fertility()):
        stated.check("src", "word", ["word", "subword"])
    with pytest.raises(CorpusError):
        Fertility(src=2).check("src", "word", ["subword", "char"])


def test_the_end_of_the_sentence_is_added_once_and_not_scaled() -> None:
    both = TABLE.counting("both")
    assert (both.src_len.tolist(), both.tgt_len.tolist()) == ([5, 11], [6, 21])
    assert both.counting("both") is both
    target = both.counting("target")
    assert (target.src_len.tolist(), target.tgt_len.tolist()) == ([4, 10], [6, 21])
    scaled = convert_units(both, Fertility(src=1.5, tgt=2.0), "subword", "subword")
    assert (scaled.mean_src_len, scaled.mean_tgt_len) == (1.5 * TABLE.mean_src_len + 1, 2.0 * TABLE.mean_tgt_len + 1)
