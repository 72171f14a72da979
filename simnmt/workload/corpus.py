"""Parallel text -> the joint counts of its lengths: two files line by line, or one with two columns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from simnmt.workload.counting import Count, counter
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import Dropped, keep
from simnmt.workload.length_table import LengthTable
from simnmt.workload.text_lines import TextLines

FilePath = str | os.PathLike[str]


def read_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    src_unit: str,
    tgt_unit: str,
    filter: str = "cnmt",  # noqa: A002 - the word of the scenario file
    name: str | None = None,
    origin: str | None = None,
) -> tuple[LengthTable, Dropped]:
    """Count the lengths of parallel text, drop outliers, and say how many went by which rule.

    `source` and `target`: two files of which line i is line i's translation; without `target`, `source` is
    one file with two tab-separated columns (quotation marks mean nothing). UTF-8, plain or gzip. The lines
    are counted as they pass; memory holds the distinct length pairs alone. `origin` becomes the table's
    `source`; both default to the files' names.

    Raises `CorpusError` for files that cannot be read or decoded, unequal line counts, a line without exactly
    two columns, an empty corpus, nothing left behind the filter, and an unknown unit or filter.
    """
    count_src, count_tgt = counter(src_unit), counter(tgt_unit)
    keep(filter, *(np.empty(0, dtype=np.int64),) * 3)  # an unknown filter's name is told before a long read
    files = [Path(source)] if target is None else [Path(source), Path(target)]
    if target is None:
        pairs = _count_columns(TextLines(source), count_src, count_tgt)
    else:
        pairs = _count_files(TextLines(source), TextLines(target), count_src, count_tgt)
    if not pairs:
        raise CorpusError("the corpus is empty", path=source, remedy="give a file with one sentence a line")

    lengths = np.array(list(pairs), dtype=np.int64)
    count = np.array(list(pairs.values()), dtype=np.int64)
    kept, dropped = keep(filter, lengths[:, 0], lengths[:, 1], count)
    if not kept.any():
        remedy = "check that line i of both sides belongs together and that each side's unit fits its language"
        raise CorpusError(f"no pair is left, filter {dropped}", path=source, remedy=remedy)
    table = LengthTable.of_pairs(
        name or "-".join(_bare(file) for file in files),
        origin or " and ".join(file.name for file in files),
        src_unit,
        tgt_unit,
        lengths[kept, 0],
        lengths[kept, 1],
        count[kept],
        str(dropped),
    )
    return table, dropped


def _count_files(source: TextLines, target: TextLines, count_src: Count, count_tgt: Count) -> Counter[tuple[int, int]]:
    src_lengths: Iterable[int] = map(count_src, source)
    pairs = Counter(zip(src_lengths, map(count_tgt, target), strict=False))
    src_lines, tgt_lines = source.drain(), target.drain()
    if src_lines != tgt_lines:
        what = f"{src_lines} lines, but {target.path} has {tgt_lines}"
        raise CorpusError(what, path=source.path, remedy="give two files of which line i is line i's translation")
    return pairs


def _count_columns(lines: TextLines, count_src: Count, count_tgt: Count) -> Counter[tuple[int, int]]:
    pairs: Counter[tuple[int, int]] = Counter()
    for text in lines:
        columns = text.split("\t")
        if len(columns) != 2:
            found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            remedy = "put one tab between source and target, e.g. with cut -f1,2; of two files name both"
            raise lines.fault(f"{found}, not 2", remedy=remedy)
        pairs[count_src(columns[0]), count_tgt(columns[1])] += 1
    return pairs


def _bare(file: Path) -> str:
    """The file's name less its endings: de of de.txt.gz."""
    return file.name.removesuffix(".gz").rsplit(".", 1)[0] or file.name
