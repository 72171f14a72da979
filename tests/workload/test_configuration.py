from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from simnmt.errors import InputError
from simnmt.workload.arrivals import BackToBack, Poisson
from simnmt.workload.configuration import WorkloadConfiguration, input_paths, load_lengths, resolved
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import LengthTable, write_table

TEXT = {"source": "de.txt", "target": "en.txt", "src_unit": "word", "tgt_unit": "word"}
TSV = {"tsv": "pairs.tsv", "src_unit": "word", "tgt_unit": "mixed", "filter": "none"}


def lengths_of(value: object):
    return WorkloadConfiguration.model_validate({"lengths": value}).lengths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "de.txt").write_text("ein Haus\nja\n")
    (tmp_path / "en.txt").write_text("one house\nyes it is so now and then\n")
    (tmp_path / "pairs.tsv").write_text("a b c\t你好\n")
    write_table(tmp_path / "t.csv", LengthTable.of_pairs("mine", "s", "word", "word", [3], [4], [5]))
    return tmp_path


def test_a_workload_has_defaults_but_for_its_lengths() -> None:
    workload = WorkloadConfiguration.model_validate({"lengths": "@de-en-news"})
    assert (workload.lengths, workload.arrivals, workload.end_nodes) == ("@de-en-news", BackToBack(), 1)
    with pytest.raises(ValidationError, match="Field required"):
        WorkloadConfiguration.model_validate({})


def test_every_form_of_lengths_is_loaded(folder: Path) -> None:
    assert load_lengths(lengths_of("@de-en-news"), folder).name == "de-en-news"
    assert load_lengths(lengths_of({"table": "t.csv"}), folder).pairs == 5
    text = load_lengths(lengths_of(TEXT), folder)
    assert text.src_len.tolist() == [2] and text.filtered.startswith("cnmt: 2 pairs read, 1 dropped")
    assert load_lengths(lengths_of({**TEXT, "filter": "none"}), folder).tgt_len.tolist() == [7, 2]
    tsv = load_lengths(lengths_of(TSV), folder)
    assert (tsv.src_len.tolist(), tsv.tgt_len.tolist(), tsv.tgt_unit) == ([3], [2], "mixed")


def test_the_files_read_are_known(folder: Path) -> None:
    assert input_paths(lengths_of(TEXT), folder) == [folder / "de.txt", folder / "en.txt"]
    assert input_paths(lengths_of(TSV), folder) == [folder / "pairs.tsv"]
    assert input_paths(lengths_of({"table": "t.csv"}), folder) == [folder / "t.csv"]
    (shipped,) = input_paths(lengths_of("@fr-en-docs"), folder)
    assert shipped.is_file() and shipped.name == "fr-en-docs.csv"


def test_resolved_paths_mean_the_same_from_elsewhere(folder: Path) -> None:
    elsewhere = folder / "not" / "here"
    for value in (TEXT, TSV, {"table": "./t.csv"}, "@de-en-news"):
        config = lengths_of(value)
        absolute = resolved(config, folder)
        assert load_lengths(absolute, elsewhere).pairs == load_lengths(config, folder).pairs
        assert resolved(absolute, elsewhere) == absolute
        # What is dumped into a resolved scenario reads back as the same configuration.
        assert lengths_of(absolute if isinstance(absolute, str) else absolute.model_dump()) == absolute
    assert resolved(lengths_of({"table": "x/../t.csv"}), folder).table == str(folder.resolve() / "t.csv")


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        ("de-en-news", (), r"de-en-news is no @name of a shipped length table"),
        ("@", (), r"@ is no @name of a shipped length table"),
        (7, (), r"expected the @name of a shipped table, or one of table, tsv, source and target"),
        ({}, (), r"expected the @name of a shipped table"),
        ({"tabel": "t.csv"}, (), r"expected the @name of a shipped table"),
        ({"table": 3}, ("table",), r"valid string"),
        ({"table": ""}, ("table",), r"at least 1 character"),
        ({"table": "t.csv", "src_unit": "word"}, ("src_unit",), r"Extra inputs are not permitted"),
        ({**TSV, "src_unit": "wrod"}, ("src_unit",), r"unknown unit wrod \(did you mean word\?\)"),
        ({**TSV, "filter": "cmnt"}, ("filter",), r"unknown filter cmnt \(did you mean cnmt\?\)"),
        ({"tsv": "a.tsv", "src_unit": "word"}, ("tgt_unit",), r"Field required"),
        ({k: v for k, v in TEXT.items() if k != "target"}, ("target",), r"Field required"),
        ({k: v for k, v in TEXT.items() if k != "source"}, ("source",), r"Field required"),
    ],
)
def test_what_lengths_cannot_be(value: object, where: tuple[str, ...], message: str) -> None:
    """One complaint, about the form that was meant: not one per form that might have been."""
    with pytest.raises(ValidationError) as caught:
        lengths_of(value)
    (error,) = caught.value.errors()
    assert re.search(message, error["msg"])
    tags = {"shipped_table", "table_file", "text_files", "tsv_file"}
    assert tuple(part for part in error["loc"] if part not in tags) == ("lengths", *where)


@pytest.mark.parametrize("end_nodes", [0, -1, 1.5, "2", True])
def test_end_nodes_are_counted_from_one(end_nodes: object) -> None:
    with pytest.raises(ValidationError):
        WorkloadConfiguration.model_validate({"lengths": "@de-en-news", "end_nodes": end_nodes})


def test_arrivals_are_told_apart_by_kind() -> None:
    value = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4}}
    assert WorkloadConfiguration.model_validate(value).arrivals == Poisson(kind="poisson", rate_rps=4.0)


def test_faults_of_the_files_are_the_rooms_own_errors(folder: Path) -> None:
    with pytest.raises(InputError, match=r"@de-en-new: .*\(did you mean @de-en-news\?\)"):
        load_lengths(lengths_of("@de-en-new"), folder)
    with pytest.raises(CorpusError, match=r"none\.csv: no such file"):
        load_lengths(lengths_of({"table": "none.csv"}), folder)


def test_the_schema_offers_the_names_that_are_known() -> None:
    text = json.dumps(WorkloadConfiguration.model_json_schema())
    for fragment in (
        '"enum": ["word", "mixed", "char"]',
        '"enum": ["cnmt", "none"]',
        '"pattern": "^@."',
        '"poisson"',
    ):
        assert fragment in text
