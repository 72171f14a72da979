"""Parallel text: its pairs of lines, the filters of pairs (CNMT-08), and the joint counts of its lengths.

The text is two files, one file of two columns, or JSON Lines. The paper only cites the rules of its filter. A rule here uses
the two lengths and runs over the few thousand distinct pairs of a corpus, so it applies to a table of counts too.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from simnmt.base.configuration import Configuration, describe_validation_error
from simnmt.base.suggestions import did_you_mean
from simnmt.workload import CorpusError
from simnmt.workload.length_table import IntArray, LengthTable
from simnmt.workload.length_units import unit_and_counter
from simnmt.workload.reuse import MOST_REQUESTS
from simnmt.workload.text_lines import TextLines

# --- pairs of lines ---


def text_pairs(files: Sequence[Path], keys: tuple[str, str] | None, *, kept: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each pair in two text files, in one file of two columns, or in JSON Lines under `keys`.

    `kept`: as in `TextLines`. Raises `CorpusError` if the files cannot be read or do not pair, and for keys of two files.
    """
    if len(files) == 2 and keys is not None:
        raise CorpusError("keys are for one file of JSON Lines, not for two files", remedy="leave one of them out")
    lines = [TextLines(file, kept=kept) for file in files]
    if len(files) == 2:
        return _of_files(*lines)
    return json_pairs(lines[0], *keys) if keys else _of_columns(lines[0])


def _of_files(source: TextLines, target: TextLines) -> Iterator[tuple[str, str]]:
    yield from zip(source, target, strict=False)
    for _ in chain(source, target):  # the rest of the longer one, to count its lines
        pass
    if source.line != target.line:
        what = f"{source.line} lines, but {target.path} has {target.line}"
        raise CorpusError(what, path=source.path, remedy="give two files of which line i is line i's translation")


def _of_columns(lines: TextLines) -> Iterator[tuple[str, str]]:
    for text in lines:
        if not text.strip(" "):  # News Commentary separates its documents so
            continue
        source, *targets = text.split("\t")
        if len(targets) != 1:
            remedy = "put one tab between source and target, e.g. with cut -f1,2"
            if not targets:
                remedy = "give the file of the translations too, or put one tab between source and target"
            if text.startswith("{"):
                remedy = "of JSON Lines name the keys of the texts: --keys SRC:TGT, in a scenario jsonl, src_key and tgt_key"
            raise lines.fault(f"{1 + len(targets)} column{'s' if targets else ''}, not 2", remedy=remedy)
        yield source, targets[0]


def json_pairs(lines: TextLines, src_key: str, tgt_key: str) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each row, one JSON object per line; blank lines and other keys are ignored.

    The keys may stand under `translation`, as in the rows of Hugging Face. Raises `CorpusError` for a line without two texts.
    """
    for line in lines:
        if not line.strip():
            continue
        row: Mapping[str, object] = lines.json_object(line)
        if isinstance(inner := row.get("translation"), dict):
            row = inner
        src, tgt = row.get(src_key), row.get(tgt_key)
        if not (isinstance(src, str) and isinstance(tgt, str)):
            missing = tgt_key if isinstance(src, str) else src_key
            texts = [key[:40] for key, value in row.items() if isinstance(value, str)]
            raise lines.fault(f"no text under {missing!r}", remedy=did_you_mean(missing, texts))
        try:
            if "\\u" in line:  # few lines have an escape
                (src + tgt).encode()
        except UnicodeEncodeError:
            what = "an escape that is half a character (\\ud800 to \\udfff)"
            raise lines.fault(what, remedy="write the file again as UTF-8") from None
        yield src, tgt


# --- filters of pairs ---

MAX_WORDS = 200
"""Most words of a side, by default."""
MAX_RATIO, RATIO_COUNTS_ABOVE = 3.0, 5
"""Greatest ratio of the sides for `cnmt`, and the words of the longer one above which it counts: short phrases differ more."""
WARNED_SHARE = 0.05
"""Share of dropped pairs above which a user is warned."""
_PER_WORD = {"word": 1, "mixed": 1, "char": 5}
"""Tokens per word, which convert limits in words to limits in tokens of a unit; 2 in the pieces of a tokeniser."""


class RatioFilter(Configuration):
    """A filter of pairs whose lengths are out of proportion, and of long pairs."""

    kind: Literal["ratio"] = "ratio"
    max_ratio: Annotated[float, Field(ge=1.0, le=1000.0)] = 2.0
    """Greatest factor between the length of a side and the length expected from the other side."""
    max_len: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens of either side; left out: 200 words, 400 pieces of a tokeniser, 1,000 characters."""
    tgt_per_src: Annotated[float, Field(ge=0.001, le=1000.0)] | None = None
    """Expected target tokens per source token, 1.65 for English words to Han characters. Left out: 1 if both sides are counted
    in words, else the ratio of the corpus."""


FilterName = Literal["cnmt", "none", "ratio"]
"""Filters without parameters of their own; each drops pairs with an empty side, which make no request."""


def filter_named(name: str) -> str | RatioFilter:
    """Return the filter of a name; `ratio:max_ratio=1.5,max_len=80` sets parameters. Raises `CorpusError`."""
    kind, _, given = name.partition(":")
    if name in ("cnmt", "none"):
        return name
    if kind != "ratio":
        raise CorpusError(f"unknown filter {name!r}", remedy=did_you_mean(name, ["cnmt", "none", "ratio"]))
    parameters = [part.partition("=")[::2] for part in given.split(",") if part]
    if len(dict(parameters)) < len(parameters):
        raise CorpusError(f"filter {name!r} has a parameter twice", remedy="give each once")
    try:
        return RatioFilter.model_validate_strings(dict(parameters))
    except ValidationError as error:
        what = f"filter {name!r}: {describe_validation_error(error)}"
        raise CorpusError(what, remedy="e.g. ratio:max_ratio=2,max_len=200,tgt_per_src=1.65") from None


class Dropped(NamedTuple):
    """Number of pairs that a filter dropped from a corpus: in `rejects` by the first rule that dropped them."""

    filter: str
    """Name with the parameters, if there are any."""
    pairs_read: int
    rejects: Mapping[str, int]

    @property
    def pairs_dropped(self) -> int:
        """Number of dropped pairs."""
        return sum(self.rejects.values())

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by the keys of `simnmt corpus fit --json`."""
        counts = {"pairs_read": self.pairs_read, "pairs_dropped": self.pairs_dropped}
        counts["pairs_kept"] = self.pairs_read - self.pairs_dropped
        return counts | {"pairs_dropped_by": dict(self.rejects), "filter": self.filter}

    def __str__(self) -> str:
        by_rule = ", ".join(f"{rule} {count}" for rule, count in self.rejects.items())
        return f"{self.filter}: {self.pairs_read} pairs read, {self.pairs_dropped} dropped ({by_rule})"


def keep(
    rule: str | RatioFilter,
    src_len: IntArray,
    tgt_len: IntArray,
    count: IntArray,
    src_unit: str = "word",
    tgt_unit: str = "word",
) -> tuple[NDArray[np.bool_], Dropped]:
    """Apply a filter, by its name or its parameters, to distinct pairs that occur `count` times, shape (pairs,) each.

    Returns (mask of the kept pairs, number of dropped ones). Raises `CorpusError` for an unknown filter.
    """
    rule = filter_named(rule) if isinstance(rule, str) else rule
    rules = {"empty": (src_len == 0) | (tgt_len == 0)}
    name = "none"
    if rule != "none":
        limits = RatioFilter(max_ratio=MAX_RATIO) if isinstance(rule, str) else rule
        per_word = [_PER_WORD.get(unit, 2) for unit in (src_unit, tgt_unit)]
        src_max, tgt_max = (limits.max_len or MAX_WORDS * tokens for tokens in per_word)
        tgt_per_src = limits.tgt_per_src
        if tgt_per_src is None:
            in_words = per_word == [1, 1] or not (count @ src_len and count @ tgt_len)
            tgt_per_src = 1.0 if in_words else float(count @ tgt_len / (count @ src_len))
        expected = tgt_per_src * src_len
        longer, shorter = np.maximum(expected, tgt_len), np.minimum(expected, tgt_len)
        rules["too_long"] = (src_len > src_max) | (tgt_len > tgt_max)
        rules["ratio"] = longer > limits.max_ratio * shorter
        if rule == "cnmt":
            name = "cnmt"
            rules["ratio"] &= longer > RATIO_COUNTS_ABOVE * per_word[1]
        else:
            longest = "/".join(dict.fromkeys(f"{tokens:g}" for tokens in (src_max, tgt_max)))
            name = f"ratio max_ratio={limits.max_ratio:g} max_len={longest} tgt_per_src={tgt_per_src:.4g}"
    rejects: dict[str, int] = {}
    kept = np.ones(len(count), dtype=np.bool_)
    for reason, drops in rules.items():
        rejects[reason] = int(count[kept & drops].sum())
        kept &= ~drops
    return kept, Dropped(name, int(count.sum()), rejects)


def dropped_warning(filtered: str) -> str | None:
    """Return one sentence on the dropped pairs if there are many; `filtered`: the filter that a length table states."""
    counts = re.search(r"(\d{1,15}) pairs read, (\d{1,15}) dropped", filtered)
    read, dropped = map(int, counts.groups()) if counts else (0, 0)
    if dropped <= WARNED_SHARE * read or not read:
        return None
    remedy = "check that the units fit both languages, that the lines pair up, or choose another filter"
    return f"{100 * dropped / read:.1f} % of the pairs were dropped by the filter {filtered} ({remedy})"


# --- joint counts ---


def read_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    src_unit: str,
    tgt_unit: str,
    keys: tuple[str, str] | None = None,
    filter: str | RatioFilter = "cnmt",  # noqa: A002 - the word of the scenario file
    name: str | None = None,
    origin: str | None = None,
    source_hashes: array[int] | None = None,
) -> tuple[LengthTable, Dropped]:
    """Count the lengths of parallel text, drop outliers, and return the table and the number of pairs dropped by each rule.

    Args:
        source: a text file, UTF-8, plain or gzip.
        target: the file whose line i is the translation of line i of `source`; None: `source` has two tab-separated columns
            (quotation marks are not special) or, with `keys`, JSON Lines.
        src_unit, tgt_unit: names of `length_units.UNITS`, `sentencepiece:PATH` or `tokenizers:PATH`.
        keys: keys of the two texts in JSON Lines.
        filter: the name or the parameters of a filter.
        name, origin: name and source of the table; None: the names of the files.
        source_hashes: the hashes of the first `MOST_REQUESTS` source texts that are not blank are added, for their reuse.

    Raises `CorpusError` for files that cannot be read or decoded, different numbers of lines, a line without exactly two
    columns or two texts, an empty corpus, no pair left behind the filter, and an unknown unit or filter.
    """
    rule = filter_named(filter) if isinstance(filter, str) else filter  # refused before a long read
    (src_unit, count_src), (tgt_unit, count_tgt) = unit_and_counter(src_unit), unit_and_counter(tgt_unit, "tgt")
    files = [Path(source)] if target is None else [Path(source), Path(target)]
    texts = text_pairs(files, keys)
    if source_hashes is not None:
        texts = _hashing(texts, source_hashes)
    pairs = Counter((count_src(src), count_tgt(tgt)) for src, tgt in texts)
    pairs.pop((0, 0), None)  # two blank lines separate documents, and are no pair that a filter drops
    if not pairs:
        raise CorpusError("the corpus is empty", path=source, remedy="give a file with one sentence a line")
    src_len, tgt_len, count = np.array([(*pair, times) for pair, times in pairs.items()], dtype=np.int64).T
    kept, dropped = keep(rule, src_len, tgt_len, count, src_unit, tgt_unit)
    if not kept.any():
        remedy = "check that line i of both sides belongs together and that each side's unit fits its language"
        raise CorpusError(f"no pair is left, filter {dropped}", path=source, remedy=remedy)
    stems = dict.fromkeys(file.name.removesuffix(".gz").rsplit(".", 1)[0] or file.name for file in files)
    labels = name or "-".join(keys or stems), origin or " and ".join(file.name for file in files), src_unit, tgt_unit
    pairs_kept = src_len[kept], tgt_len[kept], count[kept]
    return LengthTable.of_pairs(*labels, *pairs_kept, filtered=str(dropped)), dropped


def _hashing(pairs: Iterator[tuple[str, str]], hashes: array[int]) -> Iterator[tuple[str, str]]:
    for src, tgt in pairs:
        if len(hashes) < MOST_REQUESTS and src.strip():
            hashes.append(hash(src))
        yield src, tgt
