"""Read parallel text into joint counts of its lengths: two text files, one file of two columns, or JSON Lines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import WORDS, Dropped, RatioFilter, TokensPerWord, filter_named, keep
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import count_mixed, unit_and_counter
from simnmt.workload.text_lines import Kept, TextLines, json_kind, json_object

_WRAPPER = "translation"
"""Key of a row's texts by language in the rows of Hugging Face."""


def json_pairs(lines: TextLines, src_key: str, tgt_key: str) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each row, one JSON object per line; blank lines and other keys are ignored.

    The keys are looked up in the object under `translation`, if the row has one, else in the row.

    Raises `CorpusError` with the line for a line that is no JSON object, a missing key, and a value that is no text.
    """
    for line in lines:
        if not line.strip():
            continue
        row = _row(lines, line)
        inner = row.get(_WRAPPER)
        if isinstance(inner, dict):
            row = inner
        try:
            src, tgt = row[src_key], row[tgt_key]
        except KeyError:
            _refuse_keys(lines, row, src_key if src_key not in row else tgt_key)
        if not (isinstance(src, str) and isinstance(tgt, str)):
            key, value = (tgt_key, tgt) if isinstance(src, str) else (src_key, src)
            raise lines.fault(f"{key} is {json_kind(value)}, not a text", remedy="name two keys whose values are texts")
        # A JSON escape can be half a character, which no text may hold; few lines have an escape.
        if "\\u" in line and _has_surrogate(src + tgt):
            raise lines.fault("an escape that is half a character (\\ud800 to \\udfff)", remedy="write the file again as UTF-8")
        yield src, tgt


def text_keys(row: Mapping[str, object]) -> list[str]:
    """Return the keys of the texts of a row, those inside `translation` if the row has it."""
    inner = row.get(_WRAPPER)
    return [key for key, value in (inner if isinstance(inner, dict) else row).items() if isinstance(value, str)]


def refuse_as_columns(lines: TextLines, line: str) -> NoReturn:
    """Raise `CorpusError` for a first line that is a row of JSON Lines, with its keys."""
    keys = text_keys(_row(lines, line))
    under = f" with texts under {_listed(keys)}" if keys else ""
    example = ":".join(keys[:2]) if len(keys) > 1 else "SRC:TGT"
    remedy = f"name the keys of source and target: --keys {example}, in a scenario jsonl with src_key and tgt_key"
    raise lines.fault(f"a row of JSON Lines{under}, not of columns", remedy=remedy)


def _row(lines: TextLines, line: str) -> dict[str, object]:
    return json_object(line, lines.fault, first=lines.line == 1, wanted="an object with two texts")


def _refuse_keys(lines: TextLines, row: Mapping[str, object], missing: str) -> NoReturn:
    texts = text_keys(row)
    if not texts:
        raise lines.fault(f"no key {missing!r}, and no text under any other", remedy="name the keys of the two texts")
    remedy = did_you_mean(missing, texts, "name the keys of the two texts")
    raise lines.fault(f"no key {missing!r}; there are texts under {_listed(texts)}", remedy=remedy)


def _listed(keys: Sequence[str]) -> str:
    return format_list((repr(key if len(key) <= 40 else key[:37] + "...") for key in keys), ",")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


FilePath = str | os.PathLike[str]
_WORD_UNITS = {"word", "mixed"}
"""Units in which the limits of filters are stated."""


def read_corpus(
    source: FilePath,
    target: FilePath | None = None,
    *,
    src_unit: str,
    tgt_unit: str,
    keys: tuple[str, str] | None = None,
    filter: str | RatioFilter = "cnmt",  # noqa: A002 - the word of the scenario file
    name: str | None = None,
    origin: str | None = None,
) -> tuple[LengthTable, Dropped]:
    """Count the lengths of parallel text, drop outliers, and return the table and the number of pairs dropped by each rule.

    Memory holds only the distinct pairs of lengths. The limits of a filter are in words and converted to tokens by the ratio of
    both in the corpus.

    Args:
        source: a text file, UTF-8, plain or gzip.
        target: the file whose line i is the translation of line i of `source`; None: `source` has two tab-separated columns
            (quotation marks are not special) or, with `keys`, JSON Lines.
        src_unit: a name of `length_units.UNITS`, `sentencepiece:PATH` or `tokenizers:PATH`.
        tgt_unit: the same for the target.
        keys: keys of the two texts in JSON Lines.
        filter: the name or the parameters of a filter.
        name: name of the table; None: the names of the files.
        origin: source of the table; None: the names of the files.

    Raises `CorpusError` for files that cannot be read or decoded, different numbers of lines, a line without exactly two
    columns or two texts, an empty corpus, no pair left behind the filter, and an unknown unit or filter.
    """
    # Unknown names are refused before a long read.
    filter_named(filter)
    (src_name, count_src), (tgt_name, count_tgt) = unit_and_counter(src_unit), unit_and_counter(tgt_unit, "tgt")
    files = [Path(source)] if target is None else [Path(source), Path(target)]
    if target is not None and keys is not None:
        raise CorpusError("keys are for one file of JSON Lines, not for two files", remedy="leave one of them out")
    texts = text_pairs(files, keys)
    words = [0, 0]

    def counted() -> Iterator[tuple[int, int]]:
        in_words = {src_name, tgt_name} <= _WORD_UNITS
        for src, tgt in texts:
            if not in_words:
                words[0] += count_mixed(src)
                words[1] += count_mixed(tgt)
            yield count_src(src), count_tgt(tgt)

    pairs = Counter(counted())
    if not pairs:
        raise CorpusError("the corpus is empty", path=source, remedy="give a file with one sentence a line")

    lengths = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    count = np.array(list(pairs.values()), dtype=np.int64)
    tokens = count @ lengths
    per_word = TokensPerWord(*(tokens / max(words)).tolist()) if any(words) and tokens.all() else WORDS
    kept, dropped = keep(filter, lengths[:, 0], lengths[:, 1], count, per_word)
    if not kept.any():
        remedy = "check that line i of both sides belongs together and that each side's unit fits its language"
        raise CorpusError(f"no pair is left, filter {dropped}", path=source, remedy=remedy)
    name = name or "-".join(keys or [_bare(file) for file in files])
    table = LengthTable.of_pairs(
        name,
        origin or " and ".join(file.name for file in files),
        src_name,
        tgt_name,
        lengths[kept, 0],
        lengths[kept, 1],
        count[kept],
        filtered=str(dropped),
        tokens_per_word=per_word,
    )
    return table, dropped


def text_pairs(files: list[Path], keys: tuple[str, str] | None, *, kept: Kept = "nothing") -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each pair in two text files, one TSV file, or JSON Lines under `keys`.

    `kept`: the lines that the caller keeps in memory. Raises `CorpusError` if the files cannot be read or do not pair.
    """
    if len(files) == 2:
        source, target = (TextLines(file, kept=kept) for file in files)
        return _of_files(source, target)
    lines = TextLines(files[0], kept=kept)
    return json_pairs(lines, *keys) if keys else _of_columns(lines)


def _of_files(source: TextLines, target: TextLines) -> Iterator[tuple[str, str]]:
    yield from zip(source, target, strict=False)
    src_lines, tgt_lines = source.drain(), target.drain()
    if src_lines != tgt_lines:
        what = f"{src_lines} lines, but {target.path} has {tgt_lines}"
        raise CorpusError(what, path=source.path, remedy="give two files of which line i is line i's translation")


def _of_columns(lines: TextLines) -> Iterator[tuple[str, str]]:
    for text in lines:
        if not text.strip(" "):  # News Commentary separates its documents so
            continue
        columns = text.split("\t")
        if len(columns) != 2:
            if lines.line == 1 and text.startswith("{"):
                refuse_as_columns(lines, text)
            column_count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            remedy = "put one tab between source and target, e.g. with cut -f1,2; of two files name both"
            raise lines.fault(f"{column_count}, not 2", remedy=remedy)
        yield columns[0], columns[1]


def _bare(file: Path) -> str:
    """Return the name of a file without its suffixes: de for de.txt.gz."""
    return file.name.removesuffix(".gz").rsplit(".", 1)[0] or file.name
