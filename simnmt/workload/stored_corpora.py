"""Corpora that other tools stored on this disk: test sets of sacrebleu, data sets of Hugging Face; nothing is fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simnmt.base.errors import describe_error
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload.errors import CorpusError

TEST_SET_PREFIX = "sacrebleu:"
"""Prefix of a test set given as a text: sacrebleu:wmt19:de-en."""
WRAPPER = "translation"
"""Key of a row's texts by language in data sets of Hugging Face."""
_SUFFIXES = (".arrow", ".parquet")
_PART = re.compile(r"(^|[-_.])\d+(-of-\d+)?([-_.][0-9a-f]{16})?$")
"""The number of a part in the name of a file of several, such as that of train-00000-of-00002."""
_BATCH = 4_096
"""Rows of a data set that are in memory at once."""


def stored_test_set(name: str, pair: str) -> list[Path]:
    """Return the source and the reference of a test set in sacrebleu's folder, `$SACREBLEU` or `~/.sacrebleu`.

    Args:
        name: such as wmt19, or wmt21/dev for a part of it.
        pair: source and target language, such as de-en.

    Raises `CorpusError` for a test set that is not there.
    """
    root = Path(os.environ.get("SACREBLEU") or Path.home() / ".sacrebleu")
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)*", name) is None or ".." in name or re.fullmatch(r"[\w-]+", pair) is None:
        remedy = "give a name and a pair of languages, as in wmt19 and de-en"
        raise CorpusError(f"{name[:40]}:{pair[:20]} names no test set of sacrebleu", remedy=remedy)
    stem = f"{name.replace('/', '_')}.{pair}"
    references = [root / name / f"{stem}.ref", *sorted((root / name).glob(f"{stem}.ref-*"))]
    files = [root / name / f"{stem}.src", next((file for file in references if file.is_file()), references[0])]
    for file in files:
        if not file.is_file():
            remedy = f"fetch it once with sacrebleu -t {name} -l {pair} --echo src"
            raise CorpusError(f"no test set {name} {pair} of sacrebleu on this disk", path=file, remedy=remedy)
    return files


def named_test_set(text: str) -> list[Path] | None:
    """Return the files of `sacrebleu:NAME:PAIR`; None for another text. Raises as `stored_test_set` does."""
    if not text.startswith(TEST_SET_PREFIX):
        return None
    name, _, pair = text.removeprefix(TEST_SET_PREFIX).partition(":")
    return stored_test_set(name, pair)


def is_data_set(path: Path) -> bool:
    """Return whether a path is a folder, or a file that a data set of Hugging Face may consist of."""
    return path.is_dir() or path.suffix in _SUFFIXES


def data_set_files(path: Path) -> list[Path]:
    """Return the files of a data set, in order: one Arrow or Parquet file, or those in a folder.

    A folder is one split as `save_to_disk` writes it, or as the cache of `datasets` holds it. Raises `CorpusError` for another,
    and for a folder with the files of several splits.
    """
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and not file.name.startswith("cache-"))
    if not files:
        splits = sorted(file.name for file in path.iterdir() if file.is_dir() and any(map(is_data_set, file.iterdir())))
        remedy = (
            f"name one of its splits: {format_list(splits[:9])}" if splits else "name a folder with .arrow or .parquet files"
        )
        raise CorpusError("holds no Arrow or Parquet file", path=path, remedy=remedy)
    stems = {_PART.sub("", file.stem): file.name for file in reversed(files)}
    if len(stems) > 1:
        remedy = f"name one file, or a folder with one split: {format_list(sorted(stems.values())[:9])}"
        raise CorpusError(f"holds several splits, {format_list(sorted(stems)[:9])}", path=path, remedy=remedy)
    return files


def data_set_pairs(path: Path, src_key: str, tgt_key: str) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each row; the keys are looked up under `translation` if the rows have it, else in the row.

    Raises `CorpusError` for a file that cannot be read, a missing key, and a value that is no text.
    """
    for file in data_set_files(path):
        row = 0
        for batch in _batches(file):
            columns = _columns(batch)
            for key in (src_key, tgt_key):
                if key not in columns:
                    texts = [name for name, values in columns.items() if _is_text(values)]
                    known = f"texts are under {format_list(texts[:9])}" if texts else "no column holds texts"
                    raise CorpusError(f"no key {key!r}", path=file, remedy=did_you_mean(key, texts, known))
            for src, tgt in zip(columns[src_key].to_pylist(), columns[tgt_key].to_pylist(), strict=True):
                row += 1
                if not (isinstance(src, str) and isinstance(tgt, str)):
                    key = tgt_key if isinstance(src, str) else src_key
                    what = f"{key} of row {row} is no text"
                    raise CorpusError(what, path=file, remedy="name two keys whose values are texts")
                yield src, tgt


def _batches(file: Path) -> Iterator[Any]:
    """Yield the rows of a file in batches."""
    import pyarrow as pa

    try:
        if file.suffix == ".parquet":
            from pyarrow.parquet import ParquetFile

            with ParquetFile(file) as parquet:
                yield from parquet.iter_batches(batch_size=_BATCH)
            return
        with pa.memory_map(str(file)) as source:
            try:
                reader = pa.ipc.open_stream(source)  # as `datasets` writes
                yield from reader
            except pa.ArrowInvalid:
                source.seek(0)
                whole = pa.ipc.open_file(source)
                yield from (whole.get_batch(number) for number in range(whole.num_record_batches))
    except FileNotFoundError:
        raise CorpusError("no such file", path=file, remedy="check the path") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        remedy = "give a file that datasets or pyarrow wrote"
        raise CorpusError(f"no data set: {describe_error(error)}", path=file, remedy=remedy) from None


def _columns(batch: Any) -> dict[str, Any]:
    """Return the columns of a batch by name, those inside `translation` if it has it."""
    import pyarrow as pa

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    inner = columns.get(WRAPPER)
    if inner is None or not pa.types.is_struct(inner.type):
        return columns
    return dict(zip((field.name for field in inner.type), inner.flatten(), strict=True))


def _is_text(values: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
