"""Traffic of a log of requests: rates and peaks, burstiness, repeated texts, lengths, and the shares of language pairs.

To read it, start with `CountingProcess`, the requests in windows of time. The definitions are those of D. R. Cox and
P. A. W. Lewis, The Statistical Analysis of Series of Events (1966), and of R. Gusella, Characterizing the variability of
arrival processes with indexes of dispersion, IEEE JSAC 9 (1991).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.workload import ArrivalsError
from simnmt.workload.arrivals.process import Times
from simnmt.workload.arrivals.recording import FORMATS, Recording, TimeUnit, read_recording
from simnmt.workload.reuse import Reuse

RATE_WINDOWS_S = (1.0, 60.0, 3600.0)
DISPERSION_WINDOWS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
LEAST_WINDOWS = 10
"""Fewest whole windows for an index of dispersion."""
CERTAINTY = 0.95
"""Share of logs of Poisson arrivals whose indices all lie within their intervals, at least."""
LEAST_MEETINGS = 10
"""Pairs of requests that must be expected to meet in a window: where fewer do, the interval of chi-square is too narrow."""
MOST_LENGTH = 1e15
"""Greatest length; a greater number states none."""

TEXTS = ("text", "src_text", "source_text", "sentence", "prompt", "q")
HASHES = ("hash", "text_hash", "sha256", "hash_ids")
LENGTHS: Mapping[str, Sequence[str]] = {
    "source tokens": (*FORMATS["tokens"], "src_len", "prompt_tokens"),
    "target tokens": ("out_tokens", "generatedtokens", "output_tokens", "output_length", "tgt_len", "completion_tokens"),
    "source characters": ("src_chars", "chars", "characters"),
    "target characters": ("tgt_chars",),
}
PAIRS = ("pair", "lang_pair", "language_pair", "direction")
LANGUAGES = (("source_lang", "src_lang", "source"), ("target_lang", "tgt_lang", "target"))
"""Names, in lower case, of further columns: the text of a request or what identifies it, its lengths, its language pair."""
_OTHERS = frozenset([*TEXTS, *HASHES, *PAIRS, *sum(LANGUAGES, ()), *(name for names in LENGTHS.values() for name in names)])


@dataclass(frozen=True, slots=True)
class WindowRate:
    """Rate of the busiest window of one width, which begins at `peak_s`, and quantiles of those one after another.

    A quantile that needs more windows than the log has is None.
    """

    window_s: float
    peak_rps: float
    peak_s: float
    windows: int
    p50_rps: float | None
    p95_rps: float | None
    p99_rps: float | None


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Index of dispersion for counts: variance over mean of the requests in windows of one width.

    `poisson_low` and `poisson_high` end the interval around 1 in which Poisson arrivals have their index: in 95 % of logs, in
    all windows together.
    """

    window_s: float
    windows: int
    index: float
    poisson_low: float
    poisson_high: float

    @property
    def verdict(self) -> str:
        """How the counts vary, beside those of Poisson arrivals."""
        if self.index > self.poisson_high:
            return "burstier"
        return "more regular" if self.index < self.poisson_low else "as Poisson"


@dataclass(frozen=True, slots=True, eq=False)
class CountingProcess:
    """Requests in windows of time, in ticks: the step of the grid to which a log's times are rounded, else 1 s."""

    tick: Times
    """Moment of each request, ascending from 0."""
    ticks: float
    """Length of the log."""
    tick_s: float
    is_grid: bool
    """Whether requests can be counted in whole ticks alone."""

    def width(self, window_s: float) -> float | None:
        """Return the nearest width, in ticks, in which the log can be counted; None if too short or longer than the log."""
        width = window_s / self.tick_s
        if self.is_grid:
            width = float(round(width))
        return width if (1.0 if self.is_grid else 1e-9) <= width <= self.ticks else None

    def counts(self, width: float) -> tuple[int, NDArray[np.int64], Times]:
        """Return the number of whole windows from the first row on, those that are not empty, and the requests in each."""
        windows = int(self.ticks / width * (1.0 + 1e-12))
        index = (self.tick / width + 1e-9).astype(np.int64)  # 0.3 / 0.1 is below 3
        index = index[: np.searchsorted(index, windows)]
        begins = np.flatnonzero(np.diff(index, prepend=-1))
        return windows, index[begins], np.diff(begins, append=len(index)).astype(np.float64)

    def peak(self, width: float) -> tuple[float, float]:
        """Return the most requests in a window, wherever it begins, and its begin in ticks."""
        # A request a window after another one is not in the window; sums of floats may be slightly too high.
        count = np.searchsorted(self.tick, self.tick + width * (1.0 - 1e-9)) - np.arange(len(self.tick))
        best = int(np.argmax(count))
        return float(count[best]), float(self.tick[best])

    def rate(self, window_s: float) -> WindowRate | None:
        """Return the rates of windows of one width; None if the log cannot be counted in them."""
        if (width := self.width(window_s)) is None:
            return None
        windows, _, count = self.counts(width)
        length_s, ordered = width * self.tick_s, np.sort(count)
        most, begin = self.peak(width)

        def quantile(share: float) -> float | None:
            if windows * (1.0 - share) < 1.0 - 1e-9:
                return None
            rank = math.ceil(share * windows - 1e-9) - 1 - (windows - len(ordered))
            return float(ordered[rank]) / length_s if rank >= 0 else 0.0

        return WindowRate(length_s, most / length_s, begin * self.tick_s, windows, *map(quantile, (0.5, 0.95, 0.99)))

    def dispersions(self) -> list[Dispersion]:
        """Return the index of dispersion for each width of window.

        Given their number, requests of Poisson arrivals fall into n windows alike, so that (n - 1) times the index is Pearson's
        statistic. The interval is that of chi-square with n - 1 degrees of freedom, its tails divided by the number of widths
        (Bonferroni), so that a log of Poisson arrivals seldom seems bursty at one of them.
        """
        from scipy.special import chdtri  # here, since it takes a third of the start of a process

        counted = []
        for width in dict.fromkeys(filter(None, map(self.width, DISPERSION_WINDOWS_S))):
            windows, _, count = self.counts(width)
            if windows >= LEAST_WINDOWS and count.sum() ** 2 >= 2.0 * LEAST_MEETINGS * windows:
                counted.append((width, windows, count))
        tail = (1.0 - CERTAINTY) / 2.0 / max(len(counted), 1)
        rows = []
        for width, windows, count in counted:
            requests, freedom = count.sum(), windows - 1
            index = (count @ count - requests**2 / windows) / freedom / (requests / windows)
            low, high = (float(chdtri(freedom, upper)) / freedom for upper in (1.0 - tail, tail))
            rows.append(Dispersion(width * self.tick_s, windows, float(index), low, high))
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """All figures of a log; the moments in them are seconds from the first row on."""

    name: str
    recording: Recording
    process: CountingProcess
    rates: list[WindowRate]
    dispersions: list[Dispersion]
    repeats: dict[str, Any] | None
    """The column that identifies a text, its `distinct` ones, the `repeated_share` of the requests, those of the
    `most_frequent` text, and the `hit_rates` of caches; None without such a column."""
    lengths: list[dict[str, Any]]
    """By the `name` of a length the `column`, the `requests` that state it, `mean`, `p50`, `p95`, `p99` and `most`."""
    pairs: list[dict[str, Any]]
    """The `requests` of each language `pair`, their `share` and `rate_rps`, the most frequent pair first."""

    @property
    def rate_rps(self) -> float:
        """Mean rate."""
        return len(self.process.tick) / self.recording.duration_s

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        recording, process = self.recording, self.process
        stated = {name: getattr(recording, name) for name in ("kind", "source", "format", "clock", "begin_s", "duration_s")}
        return {
            "file": self.name,
            **stated,
            "rate_rps": self.rate_rps,
            "requests": len(process.tick),
            "resolution_s": recording.step_s,
            "rates": [asdict(row) | {"peak": recording.moment(row.peak_s)} for row in self.rates],
            "dispersions": [asdict(row) for row in self.dispersions],
            "lengths": self.lengths,
            "pairs": self.pairs,
            "repeats": self.repeats,
        }


def read_traffic(path: str | os.PathLike[str], time_unit: TimeUnit | None = None) -> Traffic:
    """Read a log as `read_recording` does, with the columns `TEXTS`, `HASHES`, `LENGTHS`, `PAIRS` and `LANGUAGES`.

    Raises `ArrivalsError` for what is no log of requests.
    """
    import pandas as pd  # only recordings need it, and it takes a third of a second

    recording, process = _counted(path, time_unit)
    requests = len(process.tick)
    columns = recording.cells if recording.format != "counts" else pd.DataFrame()  # a row of counts is no request

    def first(names: Sequence[str]) -> str:
        return next((name for name in names if name in columns), "")

    text, lengths = first(TEXTS), list[dict[str, Any]]()
    for name, names in LENGTHS.items():
        if column := first(names):
            value = np.asarray(pd.to_numeric(columns[column], errors="coerce"), np.float64)
        elif text and name == "source characters":
            column, value = text, np.asarray(columns[text].str.len(), np.float64)
        else:
            continue
        stated = value[(value >= 0.0) & (value < MOST_LENGTH)]
        if len(stated):
            figures = [stated.mean(), *np.quantile(stated, (0.5, 0.95, 0.99, 1.0))]
            row = dict(zip(("mean", "p50", "p95", "p99", "most"), map(float, figures), strict=True))
            lengths.append({"name": name, "column": column, "requests": len(stated), **row})
    repeats: dict[str, Any] | None = None
    identity = text or first(HASHES)
    if identity and (given := columns[identity][columns[identity] != ""]).size:
        texts, _ = pd.factorize(given)
        reuse = Reuse.of(texts)
        repeats = {
            "column": identity,
            "distinct": reuse.distinct,
            "repeated_share": reuse.repeated_share,
            "most_frequent": int(np.bincount(texts).max()),
            "hit_rates": reuse.hit_rates(),
        }
    source, target = map(first, LANGUAGES)
    pair: Iterable[Any] = columns[first(PAIRS)] if first(PAIRS) else ()
    if not first(PAIRS) and source and target:
        pair = columns[source] + "-" + columns[target]
    pairs = [
        {"pair": str(name), "requests": count, "share": count / requests, "rate_rps": count / recording.duration_s}
        for name, count in Counter(pair).most_common()
    ]
    rates = [rate for window_s in RATE_WINDOWS_S if (rate := process.rate(window_s))]
    return Traffic(Path(path).name, recording, process, rates, process.dispersions(), repeats, lengths, pairs)


def _counted(path: str | os.PathLike[str], time_unit: TimeUnit | None = None) -> tuple[Recording, CountingProcess]:
    recording = read_recording(path, time_unit, _OTHERS)
    if recording.format == "rates":
        raise ArrivalsError("a log of rates, which has no requests", path=path, remedy="give a log of requests or of counts")
    if step_s := recording.step_s:
        tick, ticks = np.round(recording.time_s / step_s), round(recording.duration_s / step_s)
        return recording, CountingProcess(tick, ticks, step_s, True)
    return recording, CountingProcess(recording.time_s, recording.duration_s, 1.0, False)


@dataclass(frozen=True, slots=True)
class Peak:
    """The busiest window of a log, whose rate a plan takes."""

    rate_rps: float
    account: str
    """The log, the window and its moment, in one line."""
    doubt: str
    """Why Poisson arrivals at this rate are optimistic, and the remedy; empty if they are not."""


def read_peak(path: str | os.PathLike[str], window_s: float) -> Peak:
    """Return the busiest window of a log, with what its own bursts say against Poisson arrivals.

    Raises `ArrivalsError` for what is no log of requests, and a window that is longer than the log or shorter than its steps.
    """
    recording, process = _counted(path)
    rate = process.rate(window_s)
    if rate is None:
        steps = f"steps of {recording.step_s:,.7g} s, and " if recording.step_s else ""
        what = f"no window of {window_s:,.7g} s: the log has {steps}{recording.duration_s:,.7g} s in all"
        raise ArrivalsError(what, path=path, remedy="give a window that fits in")
    width, begin = rate.window_s / process.tick_s, rate.peak_s / process.tick_s
    first, end = np.searchsorted(process.tick, [begin, begin + width * (1.0 - 1e-9)])
    within = CountingProcess(process.tick[first:end] - begin, width, process.tick_s, process.is_grid)
    bursts = [row for row in within.dispersions() if row.verdict == "burstier"]
    window, mean_rps = f"busiest {rate.window_s:g} s of {Path(path).name}", len(process.tick) / recording.duration_s
    moment, times = recording.moment(rate.peak_s), f"{rate.peak_rps / mean_rps:.3g} times its mean"
    account = f"rate of the {window} ({recording.kind}), from {moment} on, {times}"
    doubt = ""
    if bursts:
        burst = max(bursts, key=lambda row: row.index / row.poisson_high)
        doubt = (
            f"within the {window}, requests in windows of {burst.window_s:g} s vary {burst.index:.3g} times as much as Poisson "
            f"arrivals (by chance up to {burst.poisson_high:.3g}): Poisson arrivals at the peak's rate are optimistic (give "
            f"arrivals: {{kind: recorded, file: {Path(path).name}}})"
        )
    return Peak(rate.peak_rps, account, doubt)
