"""Test sets of sacrebleu and data sets of Hugging Face, written here as those tools store them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from simnmt.workload.configuration import DataSet, WorkloadConfiguration
from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.stored_corpora import data_set_files

PAIRS = [("das ist ein Haus", "this is a house"), ("ja", "yes of course"), ("wir gehen aus", "we go out today")] * 3
WORDS = {"src_unit": "word", "tgt_unit": "word", "filter": "none"}


@pytest.fixture
def test_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sacrebleu's folder, with one test set of one reference and one of several."""
    for name, reference in (("wmt19", "ref"), ("wmt21", "ref-A")):
        (tmp_path / name).mkdir()
        for side, suffix in enumerate(("src", reference)):
            lines = "".join(pair[side] + "\n" for pair in PAIRS)
            (tmp_path / name / f"{name}.de-en.{suffix}").write_text(lines, encoding="utf-8")
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["wmt19", "wmt21"])
def test_a_test_set_of_sacrebleu_is_read_from_its_folder(test_sets: Path, name: str) -> None:
    table, _ = read_corpus(f"sacrebleu:{name}:de-en", **WORDS)
    assert (table.pairs, table.mean_src_len, table.mean_tgt_len) == (9, pytest.approx(8 / 3), pytest.approx(11 / 3))
    lengths = WorkloadConfiguration.model_validate({"lengths": {"sacrebleu": name, "pair": "de-en", **WORDS}}).lengths
    loaded = lengths.resolved(test_sets / "elsewhere").load(test_sets / "elsewhere")
    assert loaded.mean_src_len == table.mean_src_len
    inputs = lengths.named_inputs(test_sets)
    assert {path.parent for path in inputs.values()} == {test_sets / name} and len(inputs) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sacrebleu:wmt19:de-fr", "no test set wmt19 de-fr of sacrebleu on this disk (fetch it once with sacrebleu -t wmt19"),
        ("sacrebleu:wmt20:de-en", "no test set wmt20 de-en of sacrebleu on this disk"),
        ("sacrebleu:wmt19", "wmt19: names no test set of sacrebleu (give a name and a pair"),
        ("sacrebleu:../wmt19:de-en", "names no test set of sacrebleu"),
    ],
    ids=range(4),
)
def test_a_test_set_that_is_not_there_is_refused_in_one_line(test_sets: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        read_corpus(text, **WORDS)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def table_of(*, wrapped: bool) -> Any:
    rows = [{"de": source, "en": target} for source, target in PAIRS]
    return pa.Table.from_pylist(
        [{"id": str(number), "translation": row} for number, row in enumerate(rows)] if wrapped else rows
    )


def write(path: Path, table: Any, *, stream: bool = True) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "file.arrow"])
def test_a_data_set_is_read_under_its_keys(tmp_path: Path, name: str, wrapped: bool) -> None:
    write(tmp_path / name, table_of(wrapped=wrapped), stream=name != "file.arrow")
    table, _ = read_corpus(tmp_path / name, keys=("de", "en"), **WORDS)
    assert (table.pairs, table.mean_src_len, table.mean_tgt_len) == (9, pytest.approx(8 / 3), pytest.approx(11 / 3))


def test_a_folder_of_a_split_is_read_whole_and_a_folder_of_splits_names_them(tmp_path: Path) -> None:
    (tmp_path / "news" / "train").mkdir(parents=True)
    for number in range(2):
        write(tmp_path / "news" / "train" / f"data-0000{number}-of-00002.arrow", table_of(wrapped=True))
    (tmp_path / "news" / "train" / "state.json").write_text("{}")
    keys = {"src_key": "de", "tgt_key": "en"}
    lengths = WorkloadConfiguration.model_validate({"lengths": {"dataset": "news/train", **keys, **WORDS}}).lengths
    assert isinstance(lengths, DataSet)
    assert lengths.load(tmp_path).pairs == 18
    assert [path.name for path in lengths.named_inputs(tmp_path).values()] == [
        "data-00000-of-00002.arrow", "data-00001-of-00002.arrow",
    ]  # fmt: skip
    with pytest.raises(CorpusError, match=r"news: holds no Arrow or Parquet file \(name one of its splits: train\)"):
        read_corpus(tmp_path / "news", keys=("de", "en"), **WORDS)


def test_a_faulty_data_set_is_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path / "rows.parquet", table_of(wrapped=True))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "broken.arrow").write_bytes(b"no arrow at all")
    holes = pa.table({"de": ["ja", None], "en": ["yes", "no"]})
    write(tmp_path / "holes.arrow", holes)
    for name, keys, message in (
        ("rows.parquet", ("de", "fr"), "no key 'fr' (texts are under"),
        ("broken.parquet", ("de", "en"), "no data set: "),
        ("broken.arrow", ("de", "en"), "no data set: "),
        ("holes.arrow", ("de", "en"), "de of row 2 is no text"),
        ("missing.arrow", ("de", "en"), "no such file"),
    ):
        with pytest.raises(CorpusError) as caught:
            read_corpus(tmp_path / name, keys=keys, **WORDS)
        assert message in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["{}-00000-of-00001.parquet", "{}-00000-of-00001-a09b74b3ef9c3b56.parquet", "wmt-{}.arrow"])
def test_a_folder_with_the_files_of_several_splits_is_refused_with_their_names(tmp_path: Path, form: str) -> None:
    for split in ("train", "validation"):
        write(tmp_path / form.format(split), table_of(wrapped=True))
    with pytest.raises(CorpusError, match=r"holds several splits, .*train and .*validation \(name one file, or") as refused:
        data_set_files(tmp_path)
    assert form.format("train") in str(refused.value)


@pytest.mark.parametrize("names", [("0000", "0001"), ("part-0", "part-1"), ("train-00000-of-00002", "train-00001-of-00002")])
def test_the_numbered_files_of_one_split_are_one_corpus(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        write(tmp_path / f"{name}.parquet", table_of(wrapped=True))
    assert [file.stem for file in data_set_files(tmp_path)] == list(names)
