"""The workload of a scenario: every form of its lengths, the drawn ones with the moments of FNI-14, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from pydantic import ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.random_streams import stream
from simnmt.workload import CorpusError
from simnmt.workload.arrivals import BackToBack, Poisson
from simnmt.workload.configuration import TableFile, WorkloadConfiguration
from simnmt.workload.corpus import dropped_warning
from simnmt.workload.length_table import LengthTable, write_table
from simnmt.workload.length_units import Fertility
from simnmt.workload.lengths import MIXES, SENTENCES, LognormalLengths

JSONL = {"jsonl": "rows.jsonl", "src_key": "de", "tgt_key": "en", "src_unit": "word", "tgt_unit": "word"}
TEXT = {"source": "de.txt", "target": "en.txt", "src_unit": "word", "tgt_unit": "word"}
TSV = {"tsv": "pairs.tsv", "src_unit": "word", "tgt_unit": "mixed", "filter": "none"}


def lengths_of(value: object):
    return WorkloadConfiguration.model_validate({"lengths": value}).lengths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "de.txt").write_text("ein Haus\nja\n")
    (tmp_path / "en.txt").write_text("one house\nyes it is so now and then\n")
    (tmp_path / "pairs.tsv").write_text("a b c\t你好\n")
    (tmp_path / "rows.jsonl").write_text('{"translation": {"de": "ein Haus", "en": "one old house"}}\n')
    write_table(tmp_path / "t.csv", LengthTable.of_pairs("mine", "s", "word", "word", [3], [4], [5]))
    return tmp_path


def test_a_workload_has_defaults_but_for_its_lengths() -> None:
    workload = WorkloadConfiguration.model_validate({"lengths": "@de-en-news"})
    assert (workload.lengths, workload.arrivals, workload.end_nodes) == (TableFile(table="@de-en-news"), BackToBack(), 1)
    with pytest.raises(ValidationError, match="Field required"):
        WorkloadConfiguration.model_validate({})
    value = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4}}
    assert WorkloadConfiguration.model_validate(value).arrivals == Poisson(kind="poisson", rate_rps=4.0)


def test_every_form_of_lengths_is_loaded(folder: Path) -> None:
    assert lengths_of("@de-en-news").load(folder).name == lengths_of({"table": "@de-en-news"}).load(folder).name == "de-en-news"
    assert lengths_of({"table": "t.csv"}).load(folder).pairs == 5
    text = lengths_of(TEXT).load(folder)
    assert text.src_len.tolist() == [2] and text.filtered.startswith("cnmt: 2 pairs read, 1 dropped")
    assert lengths_of({**TEXT, "filter": "none"}).load(folder).tgt_len.tolist() == [7, 2]
    tsv = lengths_of(TSV).load(folder)
    assert (tsv.src_len.tolist(), tsv.tgt_len.tolist(), tsv.tgt_unit) == ([3], [2], "mixed")
    rows = lengths_of(JSONL).load(folder)
    assert (rows.src_len.tolist(), rows.tgt_len.tolist(), rows.name) == ([2], [3], "de-en")
    assert lengths_of({**JSONL, "src_key": "en", "tgt_key": "de"}).load(folder).src_len.tolist() == [3]


def test_a_filter_may_have_parameters(folder: Path) -> None:
    strict = {"kind": "ratio", "max_ratio": 1.2}
    with pytest.raises(CorpusError, match=r"no pair is left, filter ratio max_ratio=1\.2 max_len=200 tgt_per_src=1: "):
        lengths_of({**JSONL, "filter": strict}).load(folder)
    assert lengths_of({**JSONL, "filter": {**strict, "tgt_per_src": 1.5}}).load(folder).pairs == 1


def test_a_unit_may_be_a_model_beside_the_scenario(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one old house", "ein altes Haus"] * 9),
        model_prefix=str(folder / "tiny"),
        vocab_size=25,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    config = lengths_of({**TEXT, "src_unit": {"sentencepiece": "tiny.model"}})
    assert set(input_files(config, folder).values()) == {folder / "de.txt", folder / "en.txt", folder / "tiny.model"}
    table = config.load(folder)
    assert table.src_unit.startswith("sentencepiece ") and table.tgt_unit == "word"
    assert table.src_len.min() > 2  # "ein Haus" in pieces
    absolute = with_absolute_paths(config, folder)
    assert absolute.src_unit.root == {"sentencepiece": str(folder.resolve() / "tiny.model")}
    assert absolute.load(tmp_path_factory.getbasetemp()).src_unit == table.src_unit
    assert lengths_of(absolute.model_dump()) == absolute
    with pytest.raises(CorpusError, match=r"none\.model: no such file"):
        lengths_of({**TEXT, "tgt_unit": {"sentencepiece": "none.model"}}).load(folder)


def test_a_stated_fertility_waits_for_the_device_profiles(folder: Path) -> None:
    assert lengths_of("@de-en-news").fertility is None is lengths_of(TEXT).fertility
    stated = lengths_of({"table": "@de-en-news", "fertility": {"src": 1.3, "tgt": {"subword": 1.5}}})
    assert stated.fertility == Fertility(src=1.3, tgt={"subword": 1.5})
    assert stated.load(folder).mean_src_len == lengths_of("@de-en-news").load(folder).mean_src_len


def test_the_files_read_are_known_and_mean_the_same_from_elsewhere(folder: Path) -> None:
    def paths(value: object) -> list[Path]:
        return list(input_files(lengths_of(value), folder).values())

    assert paths(TEXT) == [folder / "de.txt", folder / "en.txt"]
    assert paths({"table": "t.csv"}) == [folder / "t.csv"]
    (shipped,) = paths("@fr-en-docs")
    assert shipped.is_file() and shipped.name == "fr-en-docs.csv"
    assert input_files(lengths_of({"table": "@fr-en-docs"}), folder) == {"@fr-en-docs": shipped}
    assert input_files(lengths_of(JSONL), folder) == {str(folder / "rows.jsonl"): folder / "rows.jsonl"}
    # Of the others only a table is looked up among the shipped ones.
    assert paths({**TSV, "tsv": "@fr-en-docs"}) == [folder / "@fr-en-docs"]
    elsewhere = folder / "not" / "here"
    for value in (TEXT, TSV, JSONL, {"table": "./t.csv"}, {"table": "@de-en-news", "fertility": {"src": 2}}, "@de-en-news"):
        config = lengths_of(value)
        absolute = with_absolute_paths(config, folder)
        assert absolute.load(elsewhere).pairs == config.load(folder).pairs
        assert with_absolute_paths(absolute, elsewhere) == absolute
        # What is dumped into a resolved scenario reads back as the same configuration.
        assert lengths_of(absolute.model_dump()) == absolute


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        ("de-en-news", (), r"de-en-news is no @name of a shipped length table"),
        ({"table": 3}, ("table",), r"valid string"),
        ({**TSV, "filter": {"kind": "ratio", "max_ratio": 0.5}}, ("filter", "max_ratio"), r"greater than or equal to 1"),
        ({**TSV, "filter": "cmnt"}, ("filter",), r"'cnmt', 'none' or 'ratio'"),
        ({**TSV, "src_unit": {"spm": "a"}}, ("src_unit", "spm", "[key]"), r"'sentencepiece' or 'tokenizers'"),
        ({**TSV, "fertility": {"src": 0}}, ("fertility", "src"), r"greater than 0"),
        ({k: v for k, v in TEXT.items() if k != "source"}, ("source",), r"Field required"),
        ({"lognormal": {}}, ("lognormal",), r"mix: europarl or mix: opensubtitles, or src_mean and src_sd"),
        ({"lognormal": {"mix": "europarl", "src_mean": 3.0}}, ("lognormal",), r"or src_mean and src_sd"),
        ({"lognormal": {"mix": "news"}}, ("lognormal", "mix"), r"europarl.*opensubtitles"),
    ],
)
def test_what_lengths_cannot_be(value: object, where: tuple[str, ...], message: str) -> None:
    """One complaint, about the form that was meant: not one per form that might have been."""
    with pytest.raises(ValidationError) as caught:
        lengths_of(value)
    error, *others = caught.value.errors()
    assert re.search(message, error["msg"])
    assert all(other["type"] == "extra_forbidden" for other in others)  # the unknown key that stands for a missing one
    tags = {"ShippedTable", "TableFile", "TextFiles", "TsvFile", "JsonLinesFile", "SyntheticLengths"}
    tags |= {"by_name", "by_keys", "one_factor", "by_unit"}
    assert tuple(part for part in error["loc"] if part not in tags) == ("lengths", *where)


@pytest.mark.parametrize(
    ("lengths", "is_valid"),
    [
        ("@de-en-news", True),
        ("de-en-news", False),
        (TSV, True),
        ({**TSV, "src_unit": "wrod"}, False),
        ({**TSV, "src_unit": {"tokenizers": "f"}}, True),
        ({**TSV, "filter": "cmnt"}, False),
        ({"lognormal": {"mix": "europarl"}}, True),
        ({"lognormal": {"mix": "news"}}, False),
    ],
)
def test_the_schema_for_editors_offers_the_names_that_are_known(lengths: object, is_valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(WorkloadConfiguration.model_json_schema())
    assert validator.is_valid({"lengths": lengths}) is is_valid


# --- drawn lengths (FNI-12, FNI-14) ---

TABLE_1 = {"europarl": (30_000, 787_908, 26.3, 14.9), "opensubtitles": (50_000, 467_654, 9.4, 6.1)}
"""Sentences, sub-words, mean, standard deviation."""


@pytest.mark.parametrize("mix", MIXES)
def test_every_workload_has_the_moments_of_table_1_within_2_percent(mix: str) -> None:
    sentences, subwords, mean, sd = TABLE_1[mix]
    assert SENTENCES[mix] == sentences
    for seed in range(5):
        src_len, _ = MIXES[mix].draw(stream(seed, 0, "lengths"), sentences)
        assert (src_len.mean(), src_len.std(), src_len.sum()) == pytest.approx((mean, sd, subwords), rel=0.02)


def test_a_target_is_its_source_give_or_take_the_spread_and_an_end_symbol() -> None:
    src_len, tgt_len = MIXES["europarl"].draw(stream(1, 0, "lengths"), 30_000)
    long = src_len > 40
    log_ratio = np.log((tgt_len[long] - 1) / src_len[long])
    assert log_ratio.mean() == pytest.approx(0.0, abs=0.01)
    assert log_ratio.std() == pytest.approx(0.12, rel=0.05)
    exact = LognormalLengths(26.3, 14.9, spread=0.0).draw(stream(1, 0, "lengths"), 100)
    assert (exact[1] == exact[0] + 1).all()
    # The median tells a log-normal law from a normal one of like moments; order must carry no length.
    assert np.median(src_len) == pytest.approx(26.3 / (1 + (14.9 / 26.3) ** 2) ** 0.5, abs=0.6)
    assert abs(np.corrcoef(src_len[:-1], src_len[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(src_len, np.arange(len(src_len)))[0, 1]) < 0.03


@pytest.mark.parametrize("size", [0, 1, 2])
def test_no_length_falls_below_one(size: int) -> None:
    src_len, tgt_len = LognormalLengths(0.1, 0.1, spread=1.0).draw(stream(3, 0, "lengths"), size)
    assert (src_len.tolist(), len(tgt_len)) == ([1] * size, size)
    assert (tgt_len >= 1).all()


def test_a_scenario_names_a_mix_or_moments_and_its_table_is_marked_synthetic(tmp_path: Path) -> None:
    lengths = lengths_of({"lognormal": {"mix": "opensubtitles"}})
    table = lengths.load(tmp_path)
    assert (table.pairs, table.name, table.end_of_sentence) == (50_000, "lognormal-opensubtitles", "target")
    assert (table.src_unit, table.tgt_unit) == ("subword", "subword") and table.source.startswith("synthetic")
    assert (dropped_warning(table.filtered), input_files(lengths, tmp_path)) == (None, {})
    assert with_absolute_paths(lengths, tmp_path) == lengths
    assert np.array_equal(lengths.load(tmp_path).count, table.count)
    moments = {"src_mean": 40.0, "src_sd": 0.0, "spread": 0.0, "sentences": 7}
    stated = lengths_of({"lognormal": moments, "fertility": {"src": 2.0}}).load(tmp_path)
    assert (stated.src_len.tolist(), stated.tgt_len.tolist(), stated.count.tolist()) == ([40], [41], [7])
