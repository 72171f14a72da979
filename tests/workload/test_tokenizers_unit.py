"""Lengths in the tokens of a tokenizer.json of Hugging Face, on one made here of a few lines."""

from __future__ import annotations

import hashlib
import pickle
import sys
from pathlib import Path

import pytest
import tokenizers

from simnmt.calibrate.overheads import tokenisation_s
from simnmt.workload.configuration import TsvFile
from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_units import TokeniserCounter, source_and_target, tokeniser_in, unit_and_counter, unit_of

TEXT = ["the house is old", "we see the old man", "the man sees an old house", "houses are seen by men"] * 20


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
    lengths = TsvFile.model_validate({"tsv": "a.tsv", "src_unit": unit, "tgt_unit": "word", "models": [str(folder)]})
    loaded = lengths.load(tmp_path)
    assert loaded.src_unit == table.src_unit == unit_of(folder / "tokenizer.json")
    assert loaded.mean_src_len == table.mean_src_len > table.mean_tgt_len
    fertility = lengths.count_fertility(tmp_path, {"src": [], "tgt": [loaded.src_unit]})
    assert fertility["tgt"][loaded.src_unit] == pytest.approx(table.mean_src_len / table.mean_tgt_len)
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


def test_a_folder_without_the_tokeniser_is_refused_with_the_other_library(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"a folder without tokenizer\.json"):
        unit_and_counter(f"tokenizers:{tmp_path}")
    with pytest.raises(CorpusError, match=r"it has a tokenizer\.json: give tokenizers instead of sentencepiece"):
        unit_and_counter(f"sentencepiece:{folder}")


def test_without_the_package_the_remedy_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(CorpusError, match=r"need the package tokenizers \(pip install 'simnmt\[tokenizers\]'\)"):
        TokeniserCounter(folder / "tokenizer.json")


def test_its_time_per_token_is_measured(folder: Path) -> None:
    path = tokeniser_in(folder, "src")
    assert path == folder / "tokenizer.json"
    per_token_s, fixed_s = tokenisation_s(path, seed=1) or (None, None)
    assert per_token_s is not None and fixed_s is not None
    assert 0.0 <= per_token_s < 1e-3 and 0.0 <= fixed_s < 1e-2
