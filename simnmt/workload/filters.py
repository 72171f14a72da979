"""Filters of sentence pairs, applied before a fit or a replay, with the number of pairs that each rule drops (CNMT-08).

The paper only cites its rules. A rule uses the two lengths and runs over the few thousand distinct pairs of a corpus, so it
applies to a table too.

Remaining shift of the regression's slope with 10 % of randomly matched pairs added, as a share of the shift without a filter
(mean of three draws; up to 30,000 lines of each corpus):

    corpus               cnmt  ratio  ratio:tgt_per_src
    DE-EN news           0.44   0.15        0.15 (1.00)
    FR-EN news           0.43   0.14        0.14 (0.92)
    FR-EN documentation  0.24   0.05        0.07 (0.92)
    EN-ZH documentation  0.40   0.28        0.05 (1.65)
    EN-ZH FLORES, TICO   0.67   0.51        0.41 (1.65)
    DE-EN Tatoeba        0.74   0.33        0.33 (1.00)
    FR-EN Tatoeba        0.70   0.20        0.14 (0.92)
    EN-ZH Tatoeba        0.59   0.08        0.09 (1.65)

So the default halves the shift on long sentences, but not on short everyday ones, where few mismatches have odd lengths; the
stricter filter does. It also drops more correct pairs: around a ratio of 1, a fifth of FLORES.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from simnmt.base.configuration import Configuration, describe_validation_error
from simnmt.base.suggestions import did_you_mean
from simnmt.workload.errors import CorpusError

IntArray = NDArray[np.int64]
LengthRule = Callable[[IntArray, IntArray], NDArray[np.bool_]]
"""Function of (src_len, tgt_len) that is True for pairs to drop."""

MAX_LEN = 200
"""Most words of a side."""
MAX_RATIO = 3
"""Greatest ratio of the longer side to the shorter one."""
RATIO_COUNTS_ABOVE = 5
"""Words of the longer side above which the ratio counts, since correct short phrases differ more."""
WARNED_SHARE = 0.05
"""Share of dropped pairs above which a user is warned."""
MEANING = MappingProxyType(
    {
        "empty": "a side without a token",
        "too_long": "a side longer than the limit",
        "ratio": "one side out of proportion to the other",
    }
)
"""Reason for which a rule on lengths drops a pair."""


@dataclass(frozen=True, slots=True)
class TokensPerWord:
    """Mean tokens of each side's unit per word, which convert limits in words to limits in tokens.

    A word is a token of the unit `mixed`. Both sides are divided by the words of the side with more words, so that ratios of
    lengths are compared with the ratio of the corpus, whatever the scripts.
    """

    src: float = 1.0
    tgt: float = 1.0


WORDS = TokensPerWord()
"""Factors of the units `word` and `mixed`, in which the limits are stated."""


def empty(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
    """Return True for pairs with a side without tokens."""
    drops: NDArray[np.bool_] = (src_len == 0) | (tgt_len == 0)
    return drops


def _longest(per_word: TokensPerWord) -> tuple[float, float]:
    """Return the tokens of `MAX_LEN` words on each side; a unit of several words keeps `MAX_LEN` itself."""
    return MAX_LEN * max(per_word.src, 1.0), MAX_LEN * max(per_word.tgt, 1.0)


def _cnmt(per_word: TokensPerWord) -> Filter:
    """Return the default filter for lengths in a unit of `per_word` tokens per word."""

    def ratio(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
        src_words, tgt_words = src_len / per_word.src, tgt_len / per_word.tgt
        longer, shorter = np.maximum(src_words, tgt_words), np.minimum(src_words, tgt_words)
        drops: NDArray[np.bool_] = (longer > RATIO_COUNTS_ABOVE) & (longer > MAX_RATIO * shorter)
        return drops

    unit = "" if per_word == WORDS else f" tokens_per_word={per_word.src:.4g}/{per_word.tgt:.4g}"
    return _length_filter(f"cnmt{unit}", _longest(per_word), ratio)


@dataclass(frozen=True, slots=True)
class Filter:
    """Rules by name in the order of their application; a pair counts for the first rule that drops it.

    Every filter drops pairs with an empty side, which make no request.
    """

    name: str
    """Name with the parameters, if there are any."""
    length_rules: Mapping[str, LengthRule]


def _length_filter(name: str, longest: tuple[float, float], ratio: LengthRule) -> Filter:
    """Return a filter of pairs with an empty side, a side of more tokens than `longest`, or sides out of proportion."""

    def too_long(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
        return (src_len > longest[0]) | (tgt_len > longest[1])

    return Filter(name, {"empty": empty, "too_long": too_long, "ratio": ratio})


class RatioFilter(Configuration):
    """A filter of pairs whose lengths are out of proportion, and of long pairs."""

    kind: Literal["ratio"] = "ratio"
    max_ratio: Annotated[float, Field(ge=1.0, le=1000.0)] = 2.0
    """Greatest factor between the length of a side and the length expected from the other side."""
    max_len: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens of either side in the counted unit; left out: the tokens of 200 words."""
    tgt_per_src: Annotated[float, Field(ge=0.001, le=1000.0)] | None = None
    """Expected target tokens per source token, 1.65 for English words to Han characters. Left out: 1 if both sides are counted
    in words, else the ratio of the corpus."""

    def filter(self, per_word: TokensPerWord = WORDS) -> Filter:
        """Return the rules for lengths in a unit of `per_word` tokens per word."""
        src_max, tgt_max = _longest(per_word) if self.max_len is None else (self.max_len, self.max_len)
        tgt_per_src = per_word.tgt / per_word.src if self.tgt_per_src is None else self.tgt_per_src

        def ratio(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
            expected = tgt_per_src * src_len
            drops: NDArray[np.bool_] = (tgt_len > self.max_ratio * expected) | (expected > self.max_ratio * tgt_len)
            return drops

        longest = f"{src_max:g}" if src_max == tgt_max else f"{src_max:.4g}/{tgt_max:.4g}"
        name = f"ratio max_ratio={self.max_ratio:g} max_len={longest} tgt_per_src={tgt_per_src:.4g}"
        return _length_filter(name, (src_max, tgt_max), ratio)


FILTERS: dict[str, Callable[[TokensPerWord], Filter]] = {
    "cnmt": _cnmt,
    "none": lambda per_word: Filter("none", {"empty": empty}),
    "ratio": RatioFilter().filter,
}
"""Makers of filters by their names in files and on the command line."""


def filter_named(name: str | RatioFilter, per_word: TokensPerWord = WORDS) -> Filter:
    """Return the filter of a name; `ratio:max_ratio=1.5,max_len=80` sets the parameters of `ratio`.

    `per_word`: tokens per word of the counted units.

    Raises `CorpusError` for an unknown name or parameter, and for a parameter out of bounds.
    """
    if isinstance(name, RatioFilter):
        return name.filter(per_word)
    if name in FILTERS:
        return FILTERS[name](per_word)
    kind, colon, given = name.partition(":")
    if not colon or kind != "ratio":
        what = f"filter {kind!r} takes no parameters" if kind in FILTERS else f"unknown filter {name!r}"
        raise CorpusError(what, remedy=f"write {kind}" if kind in FILTERS else did_you_mean(name, FILTERS))
    parameters = {}
    for part in given.split(","):
        key, _, value = part.partition("=")
        if key not in RatioFilter.model_fields or key == "kind":
            known = [known for known in RatioFilter.model_fields if known != "kind"]
            raise CorpusError(f"filter {name!r}: no parameter {key!r}", remedy=did_you_mean(key, known))
        parameters[key] = value
    try:
        return RatioFilter.model_validate_strings(parameters).filter(per_word)
    except ValidationError as error:
        what = f"filter {name!r}: {describe_validation_error(error)}"
        raise CorpusError(what, remedy="e.g. ratio:max_ratio=2,max_len=200") from None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Number of pairs that a filter dropped from a corpus."""

    filter: str
    pairs_read: int
    rejects: Mapping[str, int]
    """Number of pairs by the first rule that dropped them, zeros included, in the filter's order."""

    @property
    def pairs_dropped(self) -> int:
        """Number of dropped pairs."""
        return sum(self.rejects.values())

    @property
    def pairs_kept(self) -> int:
        """Number of kept pairs."""
        return self.pairs_read - self.pairs_dropped

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by the keys of `simnmt corpus fit --json`."""
        return {
            "pairs_read": self.pairs_read,
            "pairs_dropped": self.pairs_dropped,
            "pairs_dropped_by": dict(self.rejects),
            "pairs_kept": self.pairs_kept,
            "filter": self.filter,
        }

    def __str__(self) -> str:
        by_rule = ", ".join(f"{rule} {count}" for rule, count in self.rejects.items())
        return f"{self.filter}: {self.pairs_read} pairs read, {self.pairs_dropped} dropped ({by_rule})"


def keep(
    name: str | RatioFilter,
    src_len: IntArray,
    tgt_len: IntArray,
    count: IntArray,
    per_word: TokensPerWord = WORDS,
) -> tuple[NDArray[np.bool_], Dropped]:
    """Apply a filter's rules to distinct pairs; return (mask of the kept pairs, number of dropped ones).

    Args:
        name: the name or the parameters of the filter.
        src_len: source lengths, shape (pairs,).
        tgt_len: target lengths, shape (pairs,).
        count: occurrences of each pair, shape (pairs,).
        per_word: tokens per word of the counted units.

    Raises `CorpusError` for an unknown filter.
    """
    rules = filter_named(name, per_word)
    rejects = dict.fromkeys(rules.length_rules, 0)
    read = int(count.sum())
    kept = np.ones(len(count), dtype=np.bool_)
    for rule, drops in rules.length_rules.items():
        rejected = kept & drops(src_len, tgt_len)
        rejects[rule] += int(count[rejected].sum())
        kept &= ~rejected
    return kept, Dropped(filter=rules.name, pairs_read=read, rejects=rejects)


_FILTERED = re.compile(r"([^;]+): (\d{1,15}) pairs read, (\d{1,15}) dropped \(([^)]*)\)")


def dropped_share(filtered: str) -> float:
    """Return the share of dropped pairs that the filters of a length table state."""
    applied = _FILTERED.findall(filtered)
    read = int(applied[0][1]) if applied else 0
    return sum(int(dropped) for _, _, dropped, _ in applied) / read if read else 0.0


def dropped_warning(filtered: str) -> str | None:
    """Return one sentence on the number of dropped pairs and the reasons; None up to `WARNED_SHARE`.

    `filtered`: the filters that a length table states.
    """
    share = dropped_share(filtered)
    if share <= WARNED_SHARE:
        return None
    applied = _FILTERED.findall(filtered)
    rejects: dict[str, int] = {}
    for _, _, _, by_rule in applied:
        for rule, count in re.findall(r"(\w+) (\d+)", by_rule):
            rejects[rule] = rejects.get(rule, 0) + int(count)
    most = sorted(((count, rule) for rule, count in rejects.items() if count), reverse=True)[:3]
    why = ", ".join(f"{count:,} by {rule}" + (f" ({MEANING[rule]})" if rule in MEANING else "") for count, rule in most)
    names = " and ".join(name.removeprefix(" then ").strip() for name, *_ in applied)
    return (
        f"the filter {names} dropped {100 * share:.1f} % of {int(applied[0][1]):,} pairs: {why} (check that the units fit both "
        "languages, that these are in order and that the lines pair up, or choose another filter)"
    )
