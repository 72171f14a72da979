"""Traffic of a log of requests: rates and peaks, burstiness, repeated texts, lengths, and the shares of pairs.

To read it, start with `CountingProcess`, the number of requests before each moment, from which all rates and all indices of
dispersion follow. Their definitions are those of D. R. Cox and P. A. W. Lewis, The Statistical Analysis of Series of Events
(1966), and of R. Gusella, Characterizing the variability of arrival processes with indexes of dispersion, IEEE JSAC 9 (1991).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.workload import ArrivalsError
from simnmt.workload.arrivals.process import Times
from simnmt.workload.arrivals.recording import FORMATS, Clock, Recording, TimeUnit, read_recording

RATE_WINDOWS_S = (1.0, 60.0, 3600.0)
DISPERSION_WINDOWS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
LEAST_WINDOWS = 10
"""Fewest whole windows for an index of dispersion."""
CERTAINTY = 0.95
"""Share of logs of Poisson arrivals whose indices all lie within their intervals, at least."""
LEAST_MEETINGS = 10
"""Pairs of requests that must be expected to meet in a window: where fewer do, the interval of chi-square is too narrow."""
MOST_WINDOWS = 5_000_000
"""Most windows of a log of rates, each of which takes memory."""
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
    """Rates of windows of one width, in requests per second."""

    window_s: float
    peak_rps: float
    """Rate of the busiest window, wherever it begins."""
    peak_s: float
    """Begin of the busiest window, from the first row on."""
    windows: int
    """Whole windows, one after another from the first row on; a quantile that needs more of them is None."""
    p50_rps: float | None
    p95_rps: float | None
    p99_rps: float | None


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Index of dispersion for counts: variance over mean of the requests in windows of one width."""

    window_s: float
    windows: int
    index: float
    poisson_low: float
    """Ends of the interval around 1 in which Poisson arrivals have their index: in 95 % of logs, in all windows together."""
    poisson_high: float

    @property
    def verdict(self) -> str:
        """How the counts vary, beside those of Poisson arrivals."""
        return (
            "burstier" if self.index > self.poisson_high else "more regular" if self.index < self.poisson_low else "as Poisson"
        )


@dataclass(frozen=True, slots=True)
class Repeats:
    """Requests with the text of an earlier one."""

    column: str
    distinct: int
    repeated_share: float
    most_frequent: int
    """Requests with the most frequent text."""


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Distribution of one length of the requests that state it."""

    name: str
    column: str
    requests: int
    mean: float
    p50: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class PairTraffic:
    """Requests of one language pair."""

    pair: str
    requests: int
    share: float
    rate_rps: float
    busiest_minute_rps: float | None
    mean_length: float | None
    """Mean of the first length that the log has."""


@dataclass(frozen=True, slots=True, eq=False)
class CountingProcess:
    """Number of requests before each moment of a log, in ticks: the step of the grid to which times are rounded, else 1 s."""

    tick: Times
    """Moment of each request, ascending from 0; of a log of rates, begin of each row and the end of the last."""
    ticks: float
    """Length of the log."""
    tick_s: float
    least: float
    """Shortest window, in ticks, in which requests can be counted."""
    expected: Times | None = None
    """Requests expected before each of these moments of a log of rates; None if each moment is a request."""

    @classmethod
    def of(cls, recording: Recording) -> Self:
        """Return the process of a log."""
        if recording.format == "rates":
            edge_s = np.append(recording.time_s, recording.duration_s)
            row_s = np.diff(edge_s)
            expected = np.append(0.0, np.cumsum(recording.value * row_s))
            return cls(edge_s, recording.duration_s, 1.0, float(row_s.min()), expected)
        if step_s := recording.step_s:
            return cls(np.round(recording.time_s / step_s), round(recording.duration_s / step_s), step_s, 1.0)
        return cls(recording.time_s, recording.duration_s, 1.0, 0.0)

    @property
    def requests(self) -> float:
        """Number of requests, or the expected number."""
        return len(self.tick) if self.expected is None else float(self.expected[-1])

    @property
    def resolution_s(self) -> float:
        """Shortest window in which requests can be counted; 0 if times are exact."""
        return self.least * self.tick_s

    def width(self, window_s: float) -> float | None:
        """Return the nearest width, in ticks, in which the log can be counted; None if too short or longer than the log."""
        width = window_s / self.tick_s
        if self.expected is None and self.least:
            width = float(round(width))
        return width if max(self.least, 1e-9) <= width <= self.ticks else None

    def counts(self, width: float) -> tuple[int, NDArray[np.int64], Times]:
        """Return the number of whole windows from the first row on, those that are not empty, and the requests in each."""
        windows = int(self.ticks / width * (1.0 + 1e-12))
        if self.expected is None:
            index = (self.tick / width + 1e-9).astype(np.int64)  # 0.3 / 0.1 is below 3
            index = index[: np.searchsorted(index, windows)]
            begins = np.flatnonzero(np.diff(index, prepend=-1))
            return windows, index[begins], np.diff(begins, append=len(index)).astype(np.float64)
        count = np.diff(np.interp(np.arange(windows + 1) * width, self.tick, self.expected))
        index = np.flatnonzero(count > 0.0)
        return windows, index, count[index]

    def peak(self, width: float) -> tuple[float, float]:
        """Return the most requests in a window, wherever it begins, and its begin in ticks."""
        if self.expected is None:
            # A request a window after another one is not in the window; sums of floats may be slightly too high.
            count = np.searchsorted(self.tick, self.tick + width * (1.0 - 1e-9)) - np.arange(len(self.tick))
            best = int(np.argmax(count))
            return float(count[best]), float(self.tick[best])
        # A line in pieces gains most in a window that begins or ends at an edge.
        begin = np.clip(np.concatenate([self.tick, self.tick - width]), 0.0, self.ticks - width)
        ends = (np.interp(at, self.tick, self.expected) for at in (begin + width, begin))
        gain = np.subtract(*ends)
        best = int(np.argmax(gain))
        return float(gain[best]), float(begin[best])

    def part(self, begin: float, width: float) -> CountingProcess:
        """Return the requests of one window."""
        first, end = np.searchsorted(self.tick, [begin, begin + width * (1.0 - 1e-9)])
        return CountingProcess(self.tick[first:end] - begin, width, self.tick_s, self.least)

    def rate(self, window_s: float) -> WindowRate | None:
        """Return the rates of windows of one width; None if the log cannot be counted in them."""
        width = self.width(window_s)
        if width is None or (self.expected is not None and self.ticks / width > MOST_WINDOWS):
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
        """Return the index of dispersion for each width of window; none for a log of rates, which has no requests.

        Given their number, requests of Poisson arrivals fall into n windows alike, so that (n - 1) times the index is Pearson's
        statistic. The interval is that of chi-square with n - 1 degrees of freedom, its tails divided by the number of widths
        (Bonferroni), so that a log of Poisson arrivals seldom seems bursty at one of them.
        """
        from scipy.special import chdtri  # here, since it takes a third of the start of a process

        if self.expected is not None:
            return []
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
    """All figures of a log; its moments are seconds from the first row on."""

    name: str
    kind: str
    source: str
    format: str
    process: CountingProcess
    clock: Clock
    begin_s: float
    duration_s: float
    lengths_of: dict[str, Times]
    """By name of the length: the values of the requests that state it."""
    rates: list[WindowRate]
    dispersions: list[Dispersion]
    repeats: Repeats | None
    lengths: list[LengthSummary]
    pairs: list[PairTraffic]

    @property
    def rate_rps(self) -> float:
        """Mean rate."""
        return self.process.requests / self.duration_s

    def moment(self, seconds: float) -> str:
        """Return a moment on the log's clock as text."""
        return format_moment(self.begin_s + seconds, self.clock)

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        shown = ("kind", "source", "format", "clock", "begin_s", "duration_s", "rate_rps")
        document = {"file": self.name} | {name: getattr(self, name) for name in shown}
        document |= {"requests": self.process.requests, "resolution_s": self.process.resolution_s}
        for name in ("rates", "dispersions", "lengths", "pairs"):
            document[name] = [asdict(row) for row in getattr(self, name)]
        for row in document["rates"]:
            row["peak"] = self.moment(row["peak_s"])
        return document | {"repeats": self.repeats and asdict(self.repeats)}


def format_moment(seconds: float, clock: Clock) -> str:
    """Return a moment as text: a date and a time, or seconds of a clock without dates."""
    if clock == "relative":
        return f"{round(seconds, 3):,.10g} s"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S") + " UTC" * (clock == "UTC")


def read_traffic(path: str | os.PathLike[str], time_unit: TimeUnit | None = None) -> Traffic:
    """Read a log as `read_recording` does, with the columns `TEXTS`, `HASHES`, `LENGTHS`, `PAIRS` and `LANGUAGES`.

    Raises `ArrivalsError` for what is no log.
    """
    import pandas as pd  # only recordings need it, and it takes a third of a second

    recording = read_recording(path, time_unit, _OTHERS)
    process = CountingProcess.of(recording)
    is_by_request = recording.format in ("tokens", "times")
    columns = {name: pd.Series(cells, dtype=object) for name, cells in recording.columns.items() if is_by_request}

    def first(names: Sequence[str]) -> str:
        return next((name for name in names if name in columns), "")

    text = first(TEXTS)
    lengths: list[LengthSummary] = []
    lengths_of: dict[str, Times] = {}
    length: Times | None = None
    for name, names in LENGTHS.items():
        column = first(names)
        if column:
            value = np.asarray(pd.to_numeric(columns[column], errors="coerce"), np.float64)
        elif text and name == "source characters":
            column, value = text, np.asarray(columns[text].str.len(), np.float64)
        else:
            continue
        is_stated = (value >= 0.0) & (value < MOST_LENGTH)
        if is_stated.any():
            stated = value[is_stated]
            length = np.where(is_stated, value, np.nan) if length is None else length
            lengths_of[name] = stated
            quantiles = map(float, np.quantile(stated, (0.5, 0.95, 0.99, 1.0)))
            lengths.append(LengthSummary(name, column, len(stated), float(stated.mean()), *quantiles))
    repeats = None
    if identity := text or first(HASHES):
        frequency = columns[identity][columns[identity] != ""].value_counts()
        if requests := int(frequency.sum()):
            repeats = Repeats(identity, len(frequency), 1.0 - len(frequency) / requests, int(frequency.iloc[0]))
    pair = columns[first(PAIRS)] if first(PAIRS) else None
    source, target = map(first, LANGUAGES)
    if pair is None and source and target:
        pair = columns[source] + "-" + columns[target]
    return Traffic(
        Path(path).name,
        recording.kind,
        recording.source,
        recording.format,
        process,
        recording.clock,
        recording.begin_s,
        recording.duration_s,
        lengths_of,
        [rate for window_s in RATE_WINDOWS_S if (rate := process.rate(window_s))],
        process.dispersions(),
        repeats,
        lengths,
        [] if pair is None else _by_pair(pair, process, length),
    )


def _by_pair(pair: Any, process: CountingProcess, length: NDArray[np.float64] | None) -> list[PairTraffic]:
    rows = []
    for name, places in pair.groupby(pair).indices.items():
        of_pair = CountingProcess(process.tick[places], process.ticks, process.tick_s, process.least)
        minute = of_pair.rate(60.0)
        stated = np.empty(0) if length is None else length[places][np.isfinite(length[places])]
        duration_s = process.ticks * process.tick_s
        mean = float(stated.mean()) if len(stated) else None
        figures = len(places), len(places) / len(process.tick), len(places) / duration_s
        rows.append(PairTraffic(str(name), *figures, None if minute is None else minute.peak_rps, mean))
    return sorted(rows, key=lambda row: (-row.requests, row.pair))


@dataclass(frozen=True, slots=True)
class Peak:
    """The busiest window of a log, whose rate a plan takes."""

    file: str
    kind: str
    window_s: float
    rate_rps: float
    moment: str
    mean_rate_rps: float
    burst: Dispersion | None
    """Counts within the window that vary more than those of Poisson arrivals, those that do most; None if none do."""

    def __str__(self) -> str:
        """Return the rate and where it comes from, in one line."""
        return (
            f"rate of the busiest {self.window_s:g} s of {self.file} ({self.kind}), from {self.moment} on, "
            f"{self.rate_rps / self.mean_rate_rps:.3g} times its mean"
        )

    @property
    def doubt(self) -> str:
        """Why Poisson arrivals at this rate are optimistic, and the remedy; empty if they are not."""
        burst = self.burst
        if burst is None:
            return ""
        return (
            f"within the busiest {self.window_s:g} s of {self.file}, requests in windows of {burst.window_s:g} s vary "
            f"{burst.index:.3g} times as much as Poisson arrivals (by chance up to {burst.poisson_high:.3g}): Poisson arrivals "
            f"at the peak's rate are optimistic (give arrivals: {{kind: recorded, file: {self.file}}})"
        )


def read_peak(path: str | os.PathLike[str], window_s: float) -> Peak:
    """Return the busiest window of a log, with what its own bursts say against Poisson arrivals.

    Raises `ArrivalsError` for what is no log, and for a window that is longer than the log or shorter than its steps.
    """
    recording = read_recording(path)
    process = CountingProcess.of(recording)
    width = process.width(window_s)
    rate = process.rate(window_s)
    if width is None or rate is None:
        steps = f"steps of {process.resolution_s:,.7g} s, and " if process.least else ""
        what = f"no window of {window_s:,.7g} s: the log has {steps}{recording.duration_s:,.7g} s in all"
        raise ArrivalsError(what, path=path, remedy="give a window that fits in")
    begin = rate.peak_s / process.tick_s
    inner = [] if process.expected is not None else process.part(begin, width).dispersions()
    bursts = [row for row in inner if row.index > row.poisson_high]
    burst = max(bursts, key=lambda row: row.index / row.poisson_high, default=None)
    moment = format_moment(recording.begin_s + rate.peak_s, recording.clock)
    mean_rps = process.requests / recording.duration_s
    return Peak(Path(path).name, recording.kind, rate.window_s, rate.peak_rps, moment, mean_rps, burst)
