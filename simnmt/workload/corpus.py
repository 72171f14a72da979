"""Parallel text -> the joint counts of its lengths: two files line by line, one with two columns, or JSON Lines."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from simnmt.workload.byte_lines import Kept
from simnmt.workload.counting import mixed, unit_and_counter
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import WORDS, Dropped, RatioFilter, TokensPerWord, filter_named, keep
from simnmt.workload.json_rows import json_pairs, refuse_as_columns
from simnmt.workload.language_order import languages_in
from simnmt.workload.length_table import LengthTable
from simnmt.workload.sentencepiece_unit import Side
from simnmt.workload.text_lines import TextLines

FilePath = str | os.PathLike[str]


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
    """Count the lengths of parallel text, drop outliers, and say how many went by which rule.

    `source` and `target`: two files of which line i is line i's translation; without `target`, `source` is
    one file with two tab-separated columns (quotation marks mean nothing) or, with `keys`, one of JSON Lines with
    the two texts under these keys. UTF-8, plain or gzip. The lines are counted as they pass; memory holds the distinct
    length pairs alone. A unit is a name of `counting.UNITS` or `sentencepiece:PATH`. Limits of a filter are stated in words and
    converted to tokens by what the corpus has of either. `origin` becomes the table's `source`; both default to the files'
    names.

    Raises `CorpusError` for files that cannot be read or decoded, unequal line counts, a line without exactly
    two columns or without two texts, an empty corpus, nothing left behind the filter, and an unknown unit or filter.
    """
    # What is unknown is told before a long read.
    rules = filter_named(filter)
    (src_name, count_src), (tgt_name, count_tgt) = unit_and_counter(src_unit), unit_and_counter(tgt_unit, "tgt")
    files = [Path(source)] if target is None else [Path(source), Path(target)]
    if target is not None and keys is not None:
        raise CorpusError("keys are for one file of JSON Lines, not for two files", remedy="leave one of them out")
    texts = text_pairs(files, keys)
    rejects: dict[str, int] = {}
    kept_texts = rules.passed(texts, rejects) if rules.text_rules else texts
    words = _Words(in_words=src_name in _WORD_UNITS and tgt_name in _WORD_UNITS)
    pairs = Counter((count_src(src), count_tgt(tgt)) for src, tgt in words.counted(kept_texts))
    if not pairs and not rejects:
        raise CorpusError("the corpus is empty", path=source, remedy="give a file with one sentence a line")

    lengths = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    count = np.array(list(pairs.values()), dtype=np.int64)
    per_word = words.tokens_per(*(count @ lengths))
    kept, dropped = keep(filter, lengths[:, 0], lengths[:, 1], count, rejects, per_word)
    if not kept.any():
        remedy = "check that line i of both sides belongs together and that each side's unit fits its language"
        raise CorpusError(f"no pair is left, filter {dropped}", path=source, remedy=remedy)
    name = name or "-".join(keys or [_bare(file) for file in files])
    languages = _languages(files, keys)
    table = LengthTable.of_pairs(
        name,
        origin or " and ".join(file.name for file in files),
        src_name,
        tgt_name,
        lengths[kept, 0],
        lengths[kept, 1],
        count[kept],
        str(dropped),
        languages if languages != languages_in(name) else "",
        per_word,
    )
    return table, dropped


def count_tokens(
    files: list[Path], units: Mapping[Side, Sequence[str]], keys: tuple[str, str] | None = None
) -> dict[Side, list[int]]:
    """Count the tokens of both sides of parallel text, each in several units, in one reading.

    Args:
        files: two text files, or one of two columns or JSON Lines, as `read_corpus` takes them.
        units: by side, names of `counting.UNITS` or `sentencepiece:PATH`.
        keys: those of the two texts in JSON Lines.

    Returns the totals by side in the order of the units. A pair of which a side has no token of its first unit does not count.

    Raises `CorpusError` as `read_corpus` does for files and units.
    """
    src_counters, tgt_counters = ([unit_and_counter(unit, side)[1] for unit in units[side]] for side in ("src", "tgt"))
    src_totals, tgt_totals = [0] * len(src_counters), [0] * len(tgt_counters)
    for src, tgt in text_pairs(files, keys):
        src_tokens, tgt_tokens = [count(src) for count in src_counters], [count(tgt) for count in tgt_counters]
        if src_tokens[0] and tgt_tokens[0]:
            src_totals = [total + more for total, more in zip(src_totals, src_tokens, strict=True)]
            tgt_totals = [total + more for total, more in zip(tgt_totals, tgt_tokens, strict=True)]
    return {"src": src_totals, "tgt": tgt_totals}


_WORD_UNITS = ("word", "mixed")
"""Units in which the limits of filters are stated."""


class _Words:
    """Counts the words of each side as pairs of lines pass, unless both sides are counted in words anyway."""

    def __init__(self, *, in_words: bool) -> None:
        self._in_words = in_words
        self._src = self._tgt = 0

    def counted(self, pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Pass the pairs on."""
        if self._in_words:
            yield from pairs
            return
        for src, tgt in pairs:
            self._src += mixed(src)
            self._tgt += mixed(tgt)
            yield src, tgt

    def tokens_per(self, src_tokens: int, tgt_tokens: int) -> TokensPerWord:
        """Return what a word has in tokens of each side, given the totals of both sides."""
        words = max(self._src, self._tgt)
        if self._in_words or not (words and src_tokens and tgt_tokens):
            return WORDS
        return TokensPerWord(float(src_tokens / words), float(tgt_tokens / words))


def text_pairs(files: list[Path], keys: tuple[str, str] | None, *, kept: Kept = "nothing") -> Iterator[tuple[str, str]]:
    """Source and target of each pair, as `read_corpus` takes them: two text files, one TSV file, or JSON Lines under `keys`.

    `kept`: what of it the caller keeps in memory. Raises `CorpusError` where the files cannot be read or do not pair.
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
        columns = text.split("\t")
        if len(columns) != 2:
            if lines.read == 1 and text.startswith("{"):
                refuse_as_columns(lines, text)
            found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            remedy = "put one tab between source and target, e.g. with cut -f1,2; of two files name both"
            raise lines.fault(f"{found}, not 2", remedy=remedy)
        yield columns[0], columns[1]


def _bare(file: Path) -> str:
    """The file's name less its endings: de of de.txt.gz."""
    return file.name.removesuffix(".gz").rsplit(".", 1)[0] or file.name


def _languages(files: list[Path], keys: tuple[str, str] | None) -> str:
    """`de-en` where the keys or the files' names tell the languages, else nothing."""
    if keys:
        found = [re.fullmatch("([a-z]{2})([_-].*)?", key) for key in keys]
    else:
        names = [file.name.lower().removesuffix(".gz").removesuffix(".txt") for file in files]
        found = [re.fullmatch(r"(?:.*[._-])?([a-z]{2})", name) for name in names]
    codes = [match[1] for match in found if match]
    return "-".join(codes) if len(codes) == 2 else ""
