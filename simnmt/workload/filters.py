"""Which pairs are dropped before anything is fitted or replayed, by name, with the rejects of each rule (CNMT-08).

The paper only cites its rules. A rule looks either at the two lengths or at the two lines. Rules of the first kind run
over the few thousand distinct pairs of a corpus, so they can be asked of a table too; the others run over every line.

What is left of the shift of the regression's slope with 10 % of randomly matched pairs added, as a share of the shift
without a filter (mean of three draws; up to 30,000 lines of each corpus):

    corpus               cnmt  ratio  ratio:tgt_per_src  paracrawl
    DE-EN news           0.44   0.15        0.15 (1.00)       0.15
    FR-EN news           0.43   0.14        0.14 (0.92)       0.17
    FR-EN documentation  0.24   0.05        0.07 (0.92)       0.10
    EN-ZH documentation  0.40   0.28        0.05 (1.65)       0.16
    EN-ZH FLORES, TICO   0.67   0.51        0.41 (1.65)       0.29
    DE-EN Tatoeba        0.74   0.33        0.33 (1.00)       0.30
    FR-EN Tatoeba        0.70   0.20        0.14 (0.92)       0.28
    EN-ZH Tatoeba        0.59   0.08        0.09 (1.65)       0.09

So the default halves it on long sentences, but not on short everyday ones, where few mismatches look odd; the stricter ones
do. They also drop more that is right: about a ratio of 1, `ratio` drops a fifth of FLORES, `paracrawl` a twelfth of the
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from simnmt.base.configuration import Configuration
from simnmt.base.suggestions import did_you_mean
from simnmt.workload import paracrawl_rules
from simnmt.workload.errors import CorpusError
from simnmt.workload.paracrawl_rules import TextRule

IntArray = NDArray[np.int64]
LengthRule = Callable[[IntArray, IntArray], NDArray[np.bool_]]
"""(src_len, tgt_len) -> True where the pair is to be dropped."""

MAX_LEN = 200
"""Words of either side."""
MAX_RATIO = 3
"""Of the longer side to the shorter one ..."""
RATIO_COUNTS_ABOVE = 5
"""... where the longer side has more words than this: short phrases differ by more without being wrong."""
WARNED_SHARE = 0.05
"""Share of dropped pairs above which a user is warned."""
MEANING = MappingProxyType(
    {
        "empty": "a side without a token",
        "too_long": "a side longer than the limit",
        "ratio": "one side out of proportion to the other",
    }
)
"""Why a rule on lengths drops a pair."""


@dataclass(frozen=True, slots=True)
class TokensPerWord:
    """Mean tokens of each side's unit in a word, by which limits in words become limits in tokens.

    A word is a token of the unit `mixed`. Both sides are measured against the words of the side that has more of them, so
    that a ratio of lengths is judged about the ratio of the corpus itself, whatever the scripts.
    """

    src: float = 1.0
    tgt: float = 1.0


WORDS = TokensPerWord()
"""Of the units `word` and `mixed`, which the limits are stated in."""


def empty(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
    """Return True for a side without a token: no sentence to translate."""
    drops: NDArray[np.bool_] = (src_len == 0) | (tgt_len == 0)
    return drops


def _longest(per_word: TokensPerWord) -> tuple[float, float]:
    """Return the tokens of each side that `MAX_LEN` words have; units of more than a word keep `MAX_LEN` itself."""
    return MAX_LEN * max(per_word.src, 1.0), MAX_LEN * max(per_word.tgt, 1.0)


def _cnmt(per_word: TokensPerWord) -> Filter:
    """Return the default filter for lengths in a unit of so many tokens per word."""

    def ratio(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
        src_words, tgt_words = src_len / per_word.src, tgt_len / per_word.tgt
        longer, shorter = np.maximum(src_words, tgt_words), np.minimum(src_words, tgt_words)
        drops: NDArray[np.bool_] = (longer > RATIO_COUNTS_ABOVE) & (longer > MAX_RATIO * shorter)
        return drops

    unit = "" if per_word == WORDS else f" tokens_per_word={per_word.src:.4g}/{per_word.tgt:.4g}"
    return _length_filter(f"cnmt{unit}", _longest(per_word), ratio)


@dataclass(frozen=True, slots=True)
class Filter:
    """Rules by name, in the order they are asked; a pair is booked under the first that drops it.

    Rules on lines are asked before rules on lengths. Every filter drops empty sides, which are never a request.
    """

    name: str
    """With its parameters, where it has any."""
    length_rules: Mapping[str, LengthRule]
    text_rules: Mapping[str, TextRule] = field(default_factory=lambda: MappingProxyType({}))

    def passed(self, pairs: Iterable[tuple[str, str]], rejects: dict[str, int]) -> Iterator[tuple[str, str]]:
        """The pairs of lines that no rule on lines drops; the others are added to `rejects` by rule."""
        rules = list(self.text_rules.items())
        for src, tgt in pairs:
            for rule, drops in rules:
                if drops(src, tgt):
                    rejects[rule] = rejects.get(rule, 0) + 1
                    break
            else:
                yield src, tgt


def _length_filter(name: str, longest: tuple[float, float], ratio: LengthRule) -> Filter:
    """Return a filter that drops empty sides, sides of more tokens than `longest`, and pairs out of proportion."""

    def too_long(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
        return (src_len > longest[0]) | (tgt_len > longest[1])

    return Filter(name, {"empty": empty, "too_long": too_long, "ratio": ratio})


class RatioFilter(Configuration):
    """Drops pairs whose lengths are not in proportion, and long ones."""

    kind: Literal["ratio"] = "ratio"
    max_ratio: Annotated[float, Field(ge=1.0, le=1000.0)] = 2.0
    """How many times longer either side may be than the other leads to expect."""
    max_len: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Tokens of either side in the unit that is counted; left out: as many as 200 words have."""
    tgt_per_src: Annotated[float, Field(ge=0.001, le=1000.0)] | None = None
    """Target tokens of a typical source token, about which the ratio is taken; 1.65 for English words to Han characters. Left
    out: 1 where both sides are counted in words, else the corpus's own ratio."""

    def filter(self, per_word: TokensPerWord = WORDS) -> Filter:
        """Return the rules for lengths in a unit of so many tokens per word."""
        src_max, tgt_max = _longest(per_word) if self.max_len is None else (self.max_len, self.max_len)
        tgt_per_src = per_word.tgt / per_word.src if self.tgt_per_src is None else self.tgt_per_src

        def ratio(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
            expected = tgt_per_src * src_len
            drops: NDArray[np.bool_] = (tgt_len > self.max_ratio * expected) | (expected > self.max_ratio * tgt_len)
            return drops

        longest = f"{src_max:g}" if src_max == tgt_max else f"{src_max:.4g}/{tgt_max:.4g}"
        name = f"ratio max_ratio={self.max_ratio:g} max_len={longest} tgt_per_src={tgt_per_src:.4g}"
        return _length_filter(name, (src_max, tgt_max), ratio)


def _none(_: TokensPerWord) -> Filter:
    return Filter("none", {"empty": empty})


def _paracrawl(_: TokensPerWord) -> Filter:
    return Filter("paracrawl", {"empty": empty}, paracrawl_rules.RULES)


FILTERS: dict[str, Callable[[TokensPerWord], Filter]] = {
    "cnmt": _cnmt,
    "none": _none,
    "ratio": RatioFilter().filter,
    "paracrawl": _paracrawl,
}
"""By the names they have in files and on the command line."""


def filter_named(name: str | RatioFilter, per_word: TokensPerWord = WORDS) -> Filter:
    """Return the filter of that name; `ratio:max_ratio=1.5,max_len=80` sets parameters of the one that has some.

    `per_word`: of the unit that the lengths are counted in.

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
        first = error.errors(include_url=False)[0]
        what = f"filter {name!r}: {first['loc'][0]}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise CorpusError(what, remedy="e.g. ratio:max_ratio=2,max_len=200") from None


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a filter took out of a corpus."""

    filter: str
    pairs_read: int
    rejects: Mapping[str, int]
    """Pairs by the first rule that dropped them, zeros included, in the filter's order."""

    @property
    def pairs_dropped(self) -> int:
        """Pairs that no longer count."""
        return sum(self.rejects.values())

    @property
    def pairs_kept(self) -> int:
        """Pairs that remain."""
        return self.pairs_read - self.pairs_dropped

    def as_json(self) -> dict[str, Any]:
        """By the keys that `simnmt corpus fit --json` prints."""
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
    rejected_before: Mapping[str, int] | None = None,
    per_word: TokensPerWord = WORDS,
) -> tuple[NDArray[np.bool_], Dropped]:
    """Return which of the distinct pairs, each occurring `count` times, a filter's rules on lengths keep, and what it drops.

    `rejected_before`: what the filter's rules on lines have dropped already; None where there are no lines any more.
    `per_word`: of the unit that the lengths are counted in.

    Raises `CorpusError` for an unknown filter, and for one that needs the lines where there are none.
    """
    rules = filter_named(name, per_word)
    if rules.text_rules and rejected_before is None:
        lengths_only = [known for known, make in FILTERS.items() if not make(WORDS).text_rules]
        what = f"filter {rules.name} looks at the text, and a table holds lengths alone"
        raise CorpusError(what, remedy="filter the text, or take " + ", ".join(lengths_only))
    rejects = dict.fromkeys([*rules.text_rules, *rules.length_rules], 0) | dict(rejected_before or {})
    read = int(count.sum()) + sum(rejects.values())
    kept = np.ones(len(count), dtype=np.bool_)
    for rule, drops in rules.length_rules.items():
        rejected = kept & drops(src_len, tgt_len)
        rejects[rule] += int(count[rejected].sum())
        kept &= ~rejected
    return kept, Dropped(filter=rules.name, pairs_read=read, rejects=rejects)


_FILTERED = re.compile(r"([^;]+): (\d{1,15}) pairs read, (\d{1,15}) dropped \(([^)]*)\)")


def dropped_share(filtered: str) -> float:
    """Return the share of the pairs read that filters dropped, from what a length table states of them."""
    applied = _FILTERED.findall(filtered)
    read = int(applied[0][1]) if applied else 0
    return sum(int(dropped) for _, _, dropped, _ in applied) / read if read else 0.0


def dropped_warning(filtered: str) -> str | None:
    """Return one sentence on how many pairs filters dropped and why; None up to `WARNED_SHARE`.

    `filtered`: what a length table states of its filters.
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
