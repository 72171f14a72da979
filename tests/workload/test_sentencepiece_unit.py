"""Lengths in the pieces of a sentencepiece model, on one trained here on a few made-up lines."""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from pathlib import Path

import pytest
import sentencepiece

from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import read_table, write_table
from simnmt.workload.length_units import TokeniserCounter, count_words, unit_and_counter, unit_of

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


@pytest.mark.parametrize("content", [b"", b"the house\t0.5\n", b"\x0a\x07\x0a", b"\0" * 5000, b"\xff" * 5000])
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.model").write_bytes(content)
    with pytest.raises(CorpusError, match=r"bad\.model: no sentencepiece model \(give the \.model file") as caught:
        TokeniserCounter(tmp_path / "bad.model")
    assert "\n" not in str(caught.value)


def test_a_cut_model_is_refused(model: Path, tmp_path: Path) -> None:
    for size in (10, 100, len(model.read_bytes()) // 2):
        (tmp_path / "cut.model").write_bytes(model.read_bytes()[:size])
        with pytest.raises(CorpusError, match="no sentencepiece model"):
            TokeniserCounter(tmp_path / "cut.model")


def test_a_missing_model_a_folder_and_a_device_are_named(tmp_path: Path) -> None:
    for path, what in (
        (tmp_path / "none.model", "no such file"),
        (tmp_path, "cannot be read: Is a directory"),
        ("/dev/zero", "a device, not a file"),
    ):
        with pytest.raises(CorpusError, match=what):
            TokeniserCounter(path)


def test_without_the_package_the_error_names_the_remedy(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(CorpusError, match=r"need the package sentencepiece \(pip install 'simnmt\[sentencepiece\]'\)"):
        TokeniserCounter(model)
    assert unit_and_counter("word")[1]("a b") == 2
