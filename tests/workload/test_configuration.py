from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.workload.arrivals import BackToBack, Poisson
from simnmt.workload.configuration import TableFile, WorkloadConfiguration
from simnmt.workload.errors import CorpusError
from simnmt.workload.fertility import Fertility
from simnmt.workload.length_table import LengthTable, write_table

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


def test_every_form_of_lengths_is_loaded(folder: Path) -> None:
    assert lengths_of("@de-en-news").load(folder).name == "de-en-news"
    assert lengths_of({"table": "t.csv"}).load(folder).pairs == 5
    text = lengths_of(TEXT).load(folder)
    assert text.src_len.tolist() == [2] and text.filtered.startswith("cnmt: 2 pairs read, 1 dropped")
    assert lengths_of({**TEXT, "filter": "none"}).load(folder).tgt_len.tolist() == [7, 2]
    tsv = lengths_of(TSV).load(folder)
    assert (tsv.src_len.tolist(), tsv.tgt_len.tolist(), tsv.tgt_unit) == ([3], [2], "mixed")
    rows = lengths_of(JSONL).load(folder)
    assert (rows.src_len.tolist(), rows.tgt_len.tolist(), rows.name) == ([2], [3], "de-en")
    assert lengths_of({**JSONL, "src_key": "en", "tgt_key": "de"}).load(folder).src_len.tolist() == [3]
    assert lengths_of({"table": "@de-en-news"}).load(folder).name == "de-en-news"


def test_a_filter_may_have_parameters(folder: Path) -> None:
    strict = {"kind": "ratio", "max_ratio": 1.2}
    with pytest.raises(CorpusError, match=r"no pair is left, filter ratio max_ratio=1\.2 max_len=200 tgt_per_src=1: "):
        lengths_of({**JSONL, "filter": strict}).load(folder)
    assert lengths_of({**JSONL, "filter": {**strict, "tgt_per_src": 1.5}}).load(folder).pairs == 1
    assert lengths_of({**JSONL, "filter": "ratio"}).load(folder).filtered.startswith("ratio max_ratio=2 ")


def test_a_table_can_be_filtered_further_by_its_lengths(folder: Path) -> None:
    shipped_table = lengths_of("@en-zh-docs").load(folder)
    config = lengths_of({"table": "@en-zh-docs", "filter": {"kind": "ratio", "tgt_per_src": 1.65, "max_len": 80}})
    filtered = config.load(folder)
    assert max(filtered.src_len.max(), filtered.tgt_len.max()) == 80 and filtered.pairs < shipped_table.pairs
    assert filtered.filtered.startswith(
        f"{shipped_table.filtered}; then ratio max_ratio=2 max_len=80 tgt_per_src=1.65: 74556 pairs"
    )


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
    assert absolute.src_unit.sentencepiece == str(folder.resolve() / "tiny.model")
    assert absolute.load(tmp_path_factory.getbasetemp()).src_unit == table.src_unit
    assert lengths_of(absolute.model_dump()) == absolute
    with pytest.raises(CorpusError, match=r"none\.model: no such file"):
        lengths_of({**TEXT, "tgt_unit": {"sentencepiece": "none.model"}}).load(folder)


def test_what_is_stated_beside_the_lengths_is_handed_on(folder: Path) -> None:
    assert lengths_of("@de-en-news").fertility is None is lengths_of(TEXT).fertility
    stated = lengths_of({"table": "@de-en-news", "fertility": {"src": 1.3, "tgt": 1.5}})
    assert stated.fertility == Fertility(src=1.3, tgt=1.5)
    # Only the device profiles say which unit is wanted, so nothing is scaled yet.
    assert stated.load(folder).mean_src_len == lengths_of("@de-en-news").load(folder).mean_src_len


OUTLIERS = "a b c\td e f\n" * 30 + "a\t" + "b " * 9 + "\n" + "a " * 9 + "\tb\n" + "\tb\n"
"""Thirty pairs in proportion, two out of it, and one with an empty side."""


def test_a_filter_that_drops_more_than_a_twentieth_is_warned_of_with_its_reasons(folder: Path) -> None:
    (folder / "odd.tsv").write_text(OUTLIERS)
    config = lengths_of({"tsv": "odd.tsv", "src_unit": "word", "tgt_unit": "word"})
    (warning,) = config.warnings(config.load(folder))
    assert warning.startswith(
        "the filter cnmt dropped 9.1 % of 33 pairs: 2 by ratio (one side out of proportion to the other), 1 by empty (a side "
    )
    few = "a b c\td e f\n" * 60 + "a\t" + "b " * 9 + "\n"
    (folder / "odd.tsv").write_text(few)
    assert config.warnings(config.load(folder)) == ()


def test_the_files_read_are_known(folder: Path) -> None:
    def paths(value: object) -> list[Path]:
        return list(input_files(lengths_of(value), folder).values())

    assert paths(TEXT) == [folder / "de.txt", folder / "en.txt"]
    assert paths(TSV) == [folder / "pairs.tsv"]
    assert paths({"table": "t.csv"}) == [folder / "t.csv"]
    (shipped,) = paths("@fr-en-docs")
    assert shipped.is_file() and shipped.name == "fr-en-docs.csv"
    assert input_files(lengths_of({"table": "@fr-en-docs"}), folder) == {"@fr-en-docs": shipped}
    assert input_files(lengths_of("@fr-en-docs"), folder) == {"@fr-en-docs": shipped}
    assert input_files(lengths_of(JSONL), folder) == {str(folder / "rows.jsonl"): folder / "rows.jsonl"}
    # Of the others only a table is looked up among the shipped ones.
    assert paths({**TSV, "tsv": "@fr-en-docs"}) == [folder / "@fr-en-docs"]


def test_resolved_paths_mean_the_same_from_elsewhere(folder: Path) -> None:
    elsewhere = folder / "not" / "here"
    for value in (TEXT, TSV, JSONL, {"table": "./t.csv"}, {"table": "@de-en-news", "fertility": {"src": 2}}, "@de-en-news"):
        config = lengths_of(value)
        absolute = with_absolute_paths(config, folder)
        assert absolute.load(elsewhere).pairs == config.load(folder).pairs
        assert with_absolute_paths(absolute, elsewhere) == absolute
        # What is dumped into a resolved scenario reads back as the same configuration.
        assert lengths_of(absolute.model_dump()) == absolute
    assert with_absolute_paths(lengths_of({**TSV, "tsv": "@t"}), folder).tsv == str(folder.resolve() / "@t")
    assert with_absolute_paths(lengths_of({"table": "x/../t.csv"}), folder).table == str(folder / "x/../t.csv")


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        ("de-en-news", (), r"de-en-news is no @name of a shipped length table"),
        ({"table": 3}, ("table",), r"valid string"),
        ({**TSV, "filter": {"kind": "ratio", "max_ratio": 0.5}}, ("filter", "max_ratio"), r"greater than or equal to 1"),
        ({**TSV, "fertility": {"src": 0}}, ("fertility", "src"), r"greater than 0"),
        ({k: v for k, v in TEXT.items() if k != "source"}, ("source",), r"Field required"),
    ],
)
def test_what_lengths_cannot_be(value: object, where: tuple[str, ...], message: str) -> None:
    """One complaint, about the form that was meant: not one per form that might have been."""
    with pytest.raises(ValidationError) as caught:
        lengths_of(value)
    error, *others = caught.value.errors()
    assert re.search(message, error["msg"])
    assert all(other["type"] == "extra_forbidden" for other in others)  # the unknown key that stands for a missing one
    tags = {"ShippedTable", "TableFile", "TextFiles", "TsvFile", "JsonLinesFile"}
    tags |= {"unit_by_name", "unit_of_model", "unit_of_tokenizer"}
    tags |= {"filter_by_name", "filter_with_parameters", "one_factor", "by_unit"}
    assert tuple(part for part in error["loc"] if part not in tags) == ("lengths", *where)


def test_arrivals_are_distinguished_by_kind() -> None:
    value = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4}}
    assert WorkloadConfiguration.model_validate(value).arrivals == Poisson(kind="poisson", rate_rps=4.0)


def test_the_schema_offers_the_names_that_are_known() -> None:
    text = json.dumps(WorkloadConfiguration.model_json_schema())
    for fragment in (
        '"enum": ["word", "mixed", "char"]',
        '"enum": ["cnmt", "none", "ratio"]',
        '"pattern": "^@."',
        '"poisson"',
    ):
        assert fragment in text
