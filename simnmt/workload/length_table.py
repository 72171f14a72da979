"""Joint counts of source and target lengths: the summary of a corpus from which requests are drawn."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.base import random_streams
from simnmt.base.configuration import EndOfSentence, end_tokens
from simnmt.base.files import write_text
from simnmt.workload import CorpusError
from simnmt.workload.text_lines import TextLines

IntArray = NDArray[np.int64]

MAX_LENGTH = 10**6
"""Most tokens of a sentence, as in the range of a profile; tables per length of a policy must fit into memory."""
PACKED_PAIRS = 50_000
"""Requests that stand for all packed ones."""
MAX_PAIRS = 10**9 - 1
"""Most pairs of a table, the limit of numpy's multivariate hypergeometric draw in `split`."""


@dataclass(frozen=True, slots=True, eq=False)
class LengthTable:
    """The count of each pair (source length, target length) in a corpus.

    The three columns have the shape (distinct pairs,), are sorted by (src_len, tgt_len) and read-only. A target length is that
    of the reference translation, or drawn: it represents the output of a model. Raises `CorpusError` for other columns.

    Example:
        >>> table = simnmt.LengthTable.of_pairs("mail", "made up", "word", "word", np.array([3, 3, 9]), np.array([4, 4, 8]))
        >>> table.src_len.tolist(), table.count.tolist()
        ([3, 9], [2, 1])
    """

    name: str
    source: str
    """Origin and licence of the text; one line."""
    src_unit: str
    """Unit of `src_len`: one of `length_units.UNITS`, a tokeniser, or another unit by its name."""
    tgt_unit: str
    """Unit of `tgt_len`."""
    src_len: IntArray
    """Tokens, at least 1."""
    tgt_len: IntArray
    """Tokens, at least 1."""
    count: IntArray
    """Number of pairs, at least 1."""
    filtered: str = ""
    """The filters that were applied and the pairs that they dropped; empty if unknown."""
    end_of_sentence: EndOfSentence = "none"
    """Lengths that count the end-of-sentence token; `none` if a file does not state it."""
    converted_characters: float | None = None
    """Mean characters of a source text, if it was counted in characters before a conversion to another unit."""

    def __post_init__(self) -> None:
        for column in ("src_len", "tgt_len", "count"):
            values = np.array(getattr(self, column), dtype=np.int64)
            values.setflags(write=False)
            object.__setattr__(self, column, values)
        if not self.count.size:
            raise self._fault("no pairs", "give at least one pair")
        if min(self.src_len.min(), self.tgt_len.min(), self.count.min()) < 1:
            raise self._fault("a length or count below 1", "leave such pairs out")
        if (longest := max(self.src_len.max(), self.tgt_len.max())) > MAX_LENGTH:
            what = f"a sentence of {longest:,} tokens, where {MAX_LENGTH:,} is the most"
            raise self._fault(what, "leave such pairs out")
        # Summed as floats, since the integer sum of very large counts would wrap around.
        if self.count.sum(dtype=np.float64) > MAX_PAIRS:
            raise self._fault(f"more than {MAX_PAIRS} pairs", "use a sample of the corpus")

    def _fault(self, what: str, remedy: str) -> CorpusError:
        return CorpusError(f"length table {self.name}: {what}", remedy=remedy)

    @classmethod
    def of_pairs(
        cls,
        name: str,
        source: str,
        src_unit: str,
        tgt_unit: str,
        src_len: ArrayLike,
        tgt_len: ArrayLike,
        count: ArrayLike = 1,
        **facts: Any,
    ) -> LengthTable:
        """Return the table of pairs in any order, equal ones added up; `count` broadcasts over the pairs.

        `facts`: the further fields of the table, such as `filtered`.
        """
        return cls(name, source, src_unit, tgt_unit, *_distinct(src_len, tgt_len, count), **facts)

    @property
    def pairs(self) -> int:
        """Number of sentence pairs."""
        return int(self.count.sum())

    @property
    def mean_src_len(self) -> float:
        """Mean source length of a pair, tokens."""
        return float(self.src_len @ self.count / self.pairs)

    @property
    def mean_tgt_len(self) -> float:
        """Mean target length of a pair, tokens."""
        return float(self.tgt_len @ self.count / self.pairs)

    @property
    def characters(self) -> float | None:
        """Mean characters of a source text that are not blank; None if it was never counted in characters."""
        return self.counting("none").mean_src_len if self.src_unit == "char" else self.converted_characters

    def split(self, fit_share: float, seed: int, replication: int = 0) -> tuple[LengthTable, LengthTable]:
        """Split the pairs at random into (pairs to fit on, pairs to evaluate on), drawn without replacement.

        The first table gets `fit_share` (strictly between 0 and 1) of the pairs, rounded, and each table at least one. Two
        pairs with the same lengths may be in different tables. Raises `CorpusError` for a table of a single pair.
        """
        if self.pairs < 2:
            raise self._fault("one pair cannot be split", "give a corpus of two or more pairs")
        wanted = min(max(round(fit_share * self.pairs), 1), self.pairs - 1)
        random = random_streams.stream(seed, replication, "fit_split")
        fit = random.multivariate_hypergeometric(self.count, wanted, method="marginals")
        return self._with_count(fit), self._with_count(self.count - fit)

    def sample(self, seed: int, replication: int, stream_name: str, size: int) -> tuple[IntArray, IntArray]:
        """Draw (src_len, tgt_len) of `size` requests with replacement, shape (size,) each.

        A longer sample with the same key begins with the shorter one.
        """
        return self.at_quantiles(random_streams.uniform(seed, replication, stream_name, size))

    def at_quantiles(self, uniform: NDArray[np.float64]) -> tuple[IntArray, IntArray]:
        """Return (src_len, tgt_len) at shares in [0, 1) of the sorted pairs, each in the shape of `uniform`.

        The pairs are sorted by source length, so requests in the order of their shares have ascending source lengths.
        """
        # floor(u * pairs) is the index of a pair: u below 1 times a count below 2**53 rounds to less than the count.
        row = np.searchsorted(np.cumsum(self.count), (uniform * self.pairs).astype(np.int64), side="right")
        return self.src_len[row], self.tgt_len[row]

    def with_fertility(self, src: float, tgt: float, src_unit: str, tgt_unit: str) -> LengthTable:
        """Return the table in other units, with `src` and `tgt` of their tokens per token of this table on average.

        Each pair's lengths are multiplied and split between the whole numbers below and above, so that the total of each side
        is kept to within half a token, without random draws. No length falls below 1. `source` records the conversion.
        """
        text = self.counting("none")  # only tokens of text are multiplied, not the end of the sentence
        src_len, tgt_len, count, _ = text.converted_rows(src, tgt)
        units = f"{self.src_unit} / {self.tgt_unit}"
        source = f"{self.source}; lengths scaled from {units} by a stated fertility of {src:g} / {tgt:g}"
        scaled = text._with_pairs(src_len, tgt_len, count)
        scaled = replace(scaled, source=source, src_unit=src_unit, tgt_unit=tgt_unit, converted_characters=self.characters)
        return scaled.counting(self.end_of_sentence)

    def converted_rows(self, src: float, tgt: float) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return src_len, tgt_len and count of the pairs in other units (`with_fertility`), and their rows in this table."""
        src_low, src_up = _split(self.src_len, src, self.count)
        tgt_low, tgt_up = _split(self.tgt_len, tgt, self.count)
        # The roundings of both sides are as independent as whole counts allow.
        both = src_up * tgt_up // self.count
        parts = ((1, 1, both), (1, 0, src_up - both), (0, 1, tgt_up - both), (0, 0, self.count - src_up - tgt_up + both))
        count, row = np.concatenate([part for _, _, part in parts]), np.tile(np.arange(len(self.count)), len(parts))
        src_len = np.concatenate([np.maximum(src_low + more, 1) for more, _, _ in parts])
        tgt_len = np.concatenate([np.maximum(tgt_low + more, 1) for _, more, _ in parts])
        return src_len[count > 0], tgt_len[count > 0], count[count > 0], row[count > 0]

    def packed(self, lines: int, seed: int) -> LengthTable:
        """Return the table of requests of several lines each: summed lengths of lines drawn independently, with one end."""
        if lines == 1:
            return self
        text = self.counting("none")
        uniform = random_streams.uniform(seed, 0, "packed lines", PACKED_PAIRS * lines).reshape(-1, lines)
        src_len, tgt_len = (column.sum(axis=1) for column in text.at_quantiles(uniform))
        packed = text._with_pairs(src_len, tgt_len, np.ones(PACKED_PAIRS, np.int64)).counting(self.end_of_sentence)
        characters = self.converted_characters and lines * self.converted_characters
        return replace(packed, source=f"{self.source}; {lines} lines a request", converted_characters=characters)

    def counting(self, end_of_sentence: EndOfSentence) -> LengthTable:
        """Return the table with lengths that count the end-of-sentence token so; no length falls below 1."""
        if end_of_sentence == self.end_of_sentence:
            return self
        more_src, more_tgt = np.subtract(end_tokens(end_of_sentence), end_tokens(self.end_of_sentence)).tolist()
        src_len, tgt_len = np.maximum(self.src_len + more_src, 1), np.maximum(self.tgt_len + more_tgt, 1)
        return replace(self._with_pairs(src_len, tgt_len, self.count), end_of_sentence=end_of_sentence)

    def _with_pairs(self, src_len: ArrayLike, tgt_len: ArrayLike, count: ArrayLike) -> LengthTable:
        src, tgt, total = _distinct(src_len, tgt_len, count)
        return replace(self, src_len=src, tgt_len=tgt, count=total)

    def _with_count(self, count: IntArray) -> LengthTable:
        occurs = count > 0
        return replace(self, src_len=self.src_len[occurs], tgt_len=self.tgt_len[occurs], count=count[occurs])


def _distinct(src_len: ArrayLike, tgt_len: ArrayLike, count: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a table: sorted distinct pairs, the counts of equal ones added up."""
    src, tgt, times = np.broadcast_arrays(*(np.asarray(column, dtype=np.int64) for column in (src_len, tgt_len, count)))
    pairs, row = np.unique(np.stack([src.ravel(), tgt.ravel()], axis=1), axis=0, return_inverse=True)
    total = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(total, row.ravel(), times.ravel())
    return pairs[:, 0], pairs[:, 1], total


def _split(lengths: IntArray, factor: float, count: IntArray) -> tuple[IntArray, IntArray]:
    """Return (whole length below, number of each row's pairs with one token more), so that every prefix keeps its total."""
    length = lengths.astype(np.float64) * factor
    low = np.floor(length).astype(np.int64)
    upto = np.floor(np.cumsum((length - low) * count) + 0.5).astype(np.int64)
    # The rounding error of a sum could exceed the number of pairs.
    return low, np.clip(np.diff(upto, prepend=0), 0, count)


# --- the file ---

_TITLE = "# simnmt length table, version 1"
_COLUMNS = "src_len,tgt_len,count"
_KEYS = ("name", "source", "src_unit", "tgt_unit", "end_of_sentence", "filtered")
_ROW = re.compile(r"([1-9]\d{0,6}),([1-9]\d{0,6}),([1-9]\d{0,8})", re.ASCII)
_REMEDY = "write it with `simnmt corpus table`"


def write_table(path: str | os.PathLike[str], table: LengthTable) -> None:
    """Write a table as CSV below a commented header, whole or not at all. Raises `CorpusError`."""
    keys = [f"# {key}: {' '.join(getattr(table, key).split())}".rstrip() for key in _KEYS]
    rows = zip(table.src_len.tolist(), table.tgt_len.tolist(), table.count.tolist(), strict=True)
    lines = [_TITLE, *keys, _COLUMNS, *(f"{src_len},{tgt_len},{count}" for src_len, tgt_len, count in rows)]
    write_text(path, "\n".join(lines) + "\n", CorpusError)


def read_table(path: str | os.PathLike[str]) -> LengthTable:
    """Read a table that `write_table` wrote; rows may have any order, and the header further comments.

    Raises `CorpusError`, with the line, for another format, a missing key, and a row that is not three whole numbers from 1 on.
    """
    lines = TextLines(path, kept=True)
    header = _read_header(lines)
    rows = []
    for text in lines:
        if (row := _ROW.fullmatch(text)) is None:
            remedy = f"write three whole numbers with commas between: {_COLUMNS}"
            raise lines.fault(f"{text[:60]!r} is no row of a length table", remedy=remedy)
        rows.append(row.groups())
    src_len, tgt_len, count = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    try:
        return LengthTable.of_pairs(**header, src_len=src_len, tgt_len=tgt_len, count=count)
    except CorpusError as error:
        raise CorpusError(error.what, path=path, remedy=error.remedy) from None


def _read_header(lines: TextLines) -> dict[str, Any]:
    """Return the fields of the table that the header states, above the names of the columns."""
    header: dict[str, Any] = {}
    text = ""
    for text in lines:
        if lines.line == 1 and text.rstrip() != _TITLE:
            raise lines.fault(f"not a length table: it does not begin with {_TITLE!r}", remedy=_REMEDY)
        if not text.startswith("#"):
            break
        key, value = (part.strip() for part in text.removeprefix("#").partition(":")[::2])
        if key == "end_of_sentence" and value not in get_args(EndOfSentence):
            raise lines.fault(f"{key} is {value[:40]!r}", remedy=f"give one of {', '.join(get_args(EndOfSentence))}")
        if key in _KEYS:
            header[key] = value
    if text.strip() != _COLUMNS:
        raise lines.fault(f"no line {_COLUMNS!r} below the header", remedy=_REMEDY)
    for key in _KEYS[:4]:
        if not header.get(key):
            raise lines.fault(f"the header has no {key!r}", remedy=f"add a line '# {key}: ...' above the column names")
    return header
