"""What a cache of translations would save: hits by its size and lifetime, for a text, a log or Zipf's law at a rate."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.base.files import is_standard
from simnmt.workload import ArrivalsError
from simnmt.workload.arrivals import RandomStream
from simnmt.workload.arrivals.process import DAY_S
from simnmt.workload.arrivals.recording import TIME_COLUMNS, read_recording
from simnmt.workload.arrivals.traffic import HASHES, LENGTHS, TEXTS
from simnmt.workload.length_units import count_characters
from simnmt.workload.repeats import ZipfRepeats
from simnmt.workload.reuse import MOST_REQUESTS, Reuse, Texts, cache_sizes
from simnmt.workload.text_lines import TextLines

ZIPF_REQUESTS = 2_000_000
"""Requests that are drawn of Zipf's law; the first half only fills the cache."""
_CHARACTERS = LENGTHS["source characters"]


@dataclass(frozen=True, slots=True, eq=False)
class RequestedTexts:
    """The texts of requests, in the order of the requests; columns of shape (requests,)."""

    name: str
    account: str
    """Origin: a clause."""
    texts: Texts
    characters: Floats | None = None
    """Characters that are not blank; None if unknown."""
    time_s: Floats | None = None
    """Moments, ascending; None: at an even pace."""
    first_counted: int = 0
    """Requests before this one only fill the cache."""

    @property
    def rate_rps(self) -> float | None:
        """Mean rate of its own moments; None without moments."""
        return None if self.time_s is None else (len(self.time_s) - 1) / float(self.time_s[-1] - self.time_s[0])


def read_requested_texts(path: str | os.PathLike[str]) -> RequestedTexts:
    """Read a text with a request a line, or a log of requests with a column of `TEXTS` or `HASHES`.

    A log is JSON Lines, or CSV with a column of times. Blank lines, and rows of a log without a text, are no requests. Raises
    `CorpusError` or `ArrivalsError`.
    """
    return _read_log(Path(path)) if _is_log(Path(path)) else _read_text(Path(path))


def _is_log(path: Path) -> bool:
    if is_standard(path) or not path.is_file():
        return False
    first = next((line for line in TextLines(path) if line.strip() and not line.startswith("#")), "").lower()
    names = {name.strip() for name in re.split("[,;\t]", first)}
    return first.startswith("{") or not names.isdisjoint(TIME_COLUMNS)


def _read_text(path: Path) -> RequestedTexts:
    lines = TextLines(path)
    rows = [(hash(line), count_characters(line)) for line in islice(filter(str.strip, lines), MOST_REQUESTS)]
    if len(rows) < 2:
        raise lines.fault("fewer than two requests", remedy="give a text with a request a line")
    texts, characters = np.array(rows, np.int64).T
    return RequestedTexts(path.name, "a text with a request a line", texts.copy(), characters.astype(np.float64))


def _read_log(path: Path) -> RequestedTexts:
    import pandas as pd  # only logs need it, and it takes a third of a second

    recording = read_recording(path, None, (*TEXTS, *HASHES, *_CHARACTERS))
    cells = recording.cells
    column = next((name for name in (*TEXTS, *HASHES) if name in cells), None)
    if column is None or recording.format in ("counts", "rates"):
        remedy = f"give a log of requests with a column {TEXTS[0]} or {HASHES[0]}"
        raise ArrivalsError("no column that identifies the text of a request", path=path, line=1, remedy=remedy)
    known = (cells[column] != "").to_numpy()
    if not np.ptp(time_s := recording.time_s[known] if known.any() else np.zeros(1)):
        raise ArrivalsError(f"fewer than two moments of requests with a {column}", path=path, remedy="give a log of requests")
    characters: Floats | None = None
    if counted := next((name for name in _CHARACTERS if name in cells), None):
        characters = pd.to_numeric(cells[counted], errors="coerce").fillna(0.0).to_numpy(np.float64)[known]
    elif column in TEXTS:
        characters = np.array([count_characters(text) for text in cells[column][known]], np.float64)
    texts = pd.factorize(cells[column][known])[0].astype(np.int64)
    return RequestedTexts(path.name, f"a log, column {column}", texts, characters, time_s)


def draw_requested_texts(zipf: float, over: int, seed: int = 1) -> RequestedTexts:
    """Return texts drawn by Zipf's law of this exponent over this many texts."""
    repeats = ZipfRepeats(zipf=zipf, over=over).read(Path())
    texts = repeats.draw(ZIPF_REQUESTS, RandomStream(seed, 0, "sentences")).astype(np.int64)
    return RequestedTexts("Zipf's law", repeats.account, texts, first_counted=ZIPF_REQUESTS // 2)


@dataclass(frozen=True, slots=True)
class Saving:
    """What a cache of one size answers, and what remains to be translated; None where rate or characters are unknown."""

    entries: int
    hit_share: float
    hit_share_without_ttl: float
    """Share of hits if entries stayed for ever."""
    misses_rps: float | None
    characters_saved_share: float | None
    characters_left_per_day: float | None


@dataclass(frozen=True)
class CacheSavings:
    """What least-recently-used caches of any size save of some requests."""

    source: RequestedTexts
    rate_rps: float | None
    """Mean rate at which the requests come; None if unknown."""
    ttl_s: float | None
    """Time for which an entry is kept from the request that stored it on, however often it is used; None: for ever."""

    @cached_property
    def reuse(self) -> Reuse:
        """The reuse of the requests' texts."""
        return Reuse.of(self.source.texts)

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.source.texts)

    @property
    def characters_per_request(self) -> float | None:
        """Mean characters of a request that are not blank."""
        characters = self.source.characters
        return None if characters is None else float(characters.mean())

    @cached_property
    def _expiry(self) -> NDArray[np.int64]:
        """Places at which entries have expired, as `Reuse.hits` takes them."""
        source = self.source
        assert self.ttl_s is not None and self.rate_rps is not None
        time_s = np.arange(self.requests) / self.rate_rps
        if source.time_s is not None and source.rate_rps is not None:
            time_s = (source.time_s - source.time_s[0]) * (source.rate_rps / self.rate_rps)
        return self.reuse.expiries(time_s, self.ttl_s)

    @cached_property
    def _unlimited(self) -> tuple[int, NDArray[np.bool_]]:
        """The size above which a greater one changes nothing, and the hits from there on."""
        entries = self.reuse.most_useful_entries(self._expiry)
        return entries, self.reuse.hits(entries, self._expiry)

    def _hits_until_expiry(self, entries: int) -> NDArray[np.bool_]:
        most, hits = self._unlimited  # counted once: short lives make them slow to count, and many sizes alike
        return hits if entries >= most else self.reuse.hits(entries, self._expiry)

    def saving(self, entries: int) -> Saving:
        """Return what a cache of this size saves."""
        counted = slice(self.source.first_counted, None)
        lasting = self.reuse.hits(entries)[counted]
        hits = lasting if self.ttl_s is None else self._hits_until_expiry(entries)[counted]
        hit_share, saved_share, misses_rps, left_per_day = float(hits.mean()), None, None, None
        if self.source.characters is not None:
            characters = self.source.characters[counted]
            saved_share = float(hits @ characters / characters.sum())
        if self.rate_rps is not None:
            misses_rps = self.rate_rps * (1.0 - hit_share)
            if saved_share is not None and self.characters_per_request is not None:
                left_per_day = self.rate_rps * DAY_S * self.characters_per_request * (1.0 - saved_share)
        return Saving(entries, hit_share, float(lasting.mean()), misses_rps, saved_share, left_per_day)

    @cached_property
    def rows(self) -> list[Saving]:
        """What caches of 1, 2, 5, 10 and so on up to all texts save."""
        return [self.saving(size) for size in cache_sizes(self.reuse.distinct)]

    def document(self, entries: int | None) -> dict[str, Any]:
        """Return the figures as JSON; `entries`: the size that was asked for."""
        keys = ("requests", "rate_rps", "ttl_s", "characters_per_request")
        return {
            "name": self.source.name,
            "account": self.source.account,
            **{key: getattr(self, key) for key in keys},
            "distinct": self.reuse.distinct,
            "repeated_share": self.reuse.repeated_share,
            "asked": None if entries is None else asdict(self.saving(entries)),
            "sizes": [asdict(row) for row in self.rows],
        }


def cache_savings(source: RequestedTexts, rate_rps: float | None = None, ttl_s: float | None = None) -> CacheSavings:
    """Return what caches save of requests that come at a mean rate; None: the rate of their own moments, if they have some.

    Raises `InputError` for a lifetime without a rate.
    """
    rate_rps = source.rate_rps if rate_rps is None else rate_rps
    if ttl_s is not None and rate_rps is None:
        raise InputError("the lifetime of an entry needs the rate of the requests", remedy="give --rate too, such as --rate 20")
    return CacheSavings(source, rate_rps, ttl_s)
