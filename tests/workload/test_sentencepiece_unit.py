"""Lengths in the pieces of a sentencepiece model, on one trained here on a few made-up lines."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path

import pytest
import sentencepiece
import tokenizers

from simnmt.workload.configuration import TsvFile
from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import read_table, write_table
from simnmt.workload.length_units import (
    TokeniserCounter,
    count_words,
    source_and_target,
    unit_and_counter,
    unit_of,
)

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


def test_a_text_has_as_many_tokens_as_the_model_makes_pieces(model: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    count = TokeniserCounter(model)
    for text in [*TEXT[:4], "", "   ", "unheard-of Ümläute 你好", "the  house"]:
        assert count(text) == len(processor.encode(text, out_type=str))
    assert count("") == 0 and count("the house is old") >= count_words("the house is old")


def test_the_unit_names_the_model_by_its_content(model: Path, tmp_path: Path) -> None:
    """Whatever the name of the file, which differs between the folder of a model and the copy of a tokeniser."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert TokeniserCounter(model).unit == unit_of(model) == f"sentencepiece {digest[:12]}"
    other = tmp_path / "other.spm"
    other.write_bytes(model.read_bytes())
    assert TokeniserCounter(other).unit == TokeniserCounter(model).unit
    other.write_bytes(model.read_bytes() + b"\0")
    assert unit_of(other) != unit_of(model)


def test_a_translation_models_folder_gives_the_tokeniser_of_either_side(model: Path, tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(model.read_bytes())
    (tmp_path / "a.tsv").write_text("".join(f"{line}\t{line}\n" for line in TEXT[:4]))
    with pytest.raises(CorpusError, match=r"a folder without target\.model or target\.spm \(name a sentencepiece model, or"):
        read_corpus(tmp_path / "a.tsv", src_unit=f"sentencepiece:{tmp_path}", tgt_unit=f"sentencepiece:{tmp_path}")
    (tmp_path / "target.model").write_bytes(model.read_bytes())
    table, _ = read_corpus(tmp_path / "a.tsv", src_unit=f"sentencepiece:{tmp_path}", tgt_unit=f"sentencepiece:{tmp_path}")
    assert (table.src_unit, table.tgt_unit) == (unit_of(model), unit_of(model))


def test_a_corpus_is_counted_in_pieces_on_one_side_or_on_both(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{line}\t{line}\n" for line in TEXT[:4]))
    asked = f"sentencepiece:{model}"
    unit, count = unit_and_counter(asked)
    both, _ = read_corpus(tmp_path / "a.tsv", src_unit=asked, tgt_unit=asked, filter="none")
    assert (both.src_unit, both.tgt_unit) == (unit, unit)
    assert sorted(both.src_len.tolist()) == sorted({count(line) for line in TEXT[:4]})
    one, _ = read_corpus(tmp_path / "a.tsv", src_unit="word", tgt_unit=asked, filter="none")
    assert (one.src_unit, one.tgt_unit) == ("word", unit)
    assert both.tgt_len @ both.count == one.tgt_len @ one.count
    write_table(tmp_path / "t.csv", one)
    assert read_table(tmp_path / "t.csv").tgt_unit == unit


def test_a_counter_goes_to_another_process_as_long_as_its_model_stays(model: Path, tmp_path: Path) -> None:
    moved = tmp_path / "m.model"
    moved.write_bytes(model.read_bytes())
    packed = pickle.dumps(TokeniserCounter(moved))
    assert len(packed) < 1000  # the path, not the model
    assert pickle.loads(packed)("the house") == TokeniserCounter(model)("the house")
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["other words here"] * 9),
        model_writer=trained,
        vocab_size=12,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    moved.write_bytes(trained.getvalue())
    with pytest.raises(CorpusError, match=r"the model is now sentencepiece \w{12}, it was sentencepiece \w{12}"):
        pickle.loads(packed)
    moved.unlink()
    with pytest.raises(CorpusError, match="no such file"):
        pickle.loads(packed)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 5000,
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.model").write_bytes(content)
    with pytest.raises(CorpusError, match=r"bad\.model: no sentencepiece model \(give the \.model file") as caught:
        TokeniserCounter(tmp_path / "bad.model")
    assert "\n" not in str(caught.value)


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


def test_a_counter_survives_pickling(folder: Path) -> None:
    counter = TokeniserCounter(folder / "tokenizer.json")
    assert pickle.loads(pickle.dumps(counter))("the house") == counter("the house")


def test_both_sides_of_a_corpus_may_have_tokenisers_of_different_libraries() -> None:
    assert source_and_target("tokenizers:a:b:sentencepiece:c") == ("tokenizers:a:b", "sentencepiece:c")
    assert source_and_target("tokenizers:a") == ("tokenizers:a", "tokenizers:a")


def test_a_scenario_counts_by_the_tokeniser_of_a_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{line}\t{line}\n" for line in TEXT))
    unit = {"tokenizers": str(folder)}
    table, _ = read_corpus(tmp_path / "a.tsv", src_unit=f"tokenizers:{folder}", tgt_unit="word")
    lengths = TsvFile.model_validate({"tsv": "a.tsv", "src_unit": unit, "tgt_unit": "word"})
    loaded = lengths.load(tmp_path)
    assert loaded.src_unit == table.src_unit == unit_of(folder / "tokenizer.json")
    assert loaded.mean_src_len == table.mean_src_len > table.mean_tgt_len
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        TsvFile.model_validate({"tsv": "a.tsv", "src_unit": unit | {"sentencepiece": "a"}, "tgt_unit": "word"})


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "no tokeniser: "), ("{}", "no tokeniser: "), ('{"model": 3}', "no tokeniser: ")],
    ids=range(3),
)
def test_a_damaged_tokeniser_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CorpusError) as caught:
        unit_and_counter(f"tokenizers:{tmp_path}")
    assert message in str(caught.value) and "tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)
