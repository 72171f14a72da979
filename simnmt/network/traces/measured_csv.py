"""CSV logs of other tools: RTT and throughput, each at its own times, in columns found by their usual names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.errors import shorten
from simnmt.base.suggestions import format_list
from simnmt.network.series import BPS_PER, SECONDS_PER, BandwidthSeries, RttSeries, TraceError
from simnmt.network.series_csv import SeriesTable, parse_number
from simnmt.network.traces.json_tools import Source
from simnmt.network.traces.trace import Quantity, ReadOptions, Trace, mend

_SPELT = {"gbit/s": "gbps", "mbit/s": "mbps", "kbit/s": "kbps", "bit/s": "bps", "µs": "us", "usec": "us"}
_SPELT |= dict.fromkeys(("sec", "secs", "second", "seconds"), "s") | dict.fromkeys(("msec", "milliseconds"), "ms")
"""Other spellings of units, in small letters."""
_PER_UNIT = {**SECONDS_PER, **BPS_PER}
_UNITS: Mapping[str, Mapping[str, float]] = {"time": SECONDS_PER, "rtt": SECONDS_PER, "downlink": BPS_PER, "uplink": BPS_PER}
"""Units by the role of a column in `--column ROLE=NAME`; a bandwidth without a direction has the role of the downlink."""
_BEHIND = re.compile(r"^(.*?)(?:[\s_]*[(\[]\s*([^)\]]+?)\s*[)\]]|[\s_.]([A-Za-zµ/]+))\s*$")

_TIME = ("epoch", "unixtime", "unix", "timestamp", "datetime", "time", "date", "ts", "t")
_LOSS = ("pingloss", "pinglosspct", "loss", "losspct", "packetloss")
_RTT = ("rtt", "roundtriptime", "roundtrip", "latency", "ping", "pingtime", "responsetime", "delay")
_RTT_MEAN = ("rttavg", "avgrtt", "pingavg", "avgping", "avg", "mean")
_NAMES: Mapping[Quantity, tuple[str, ...]] = {
    "rtt": (*_RTT, "rttmin", "minrtt", "pingmin", "minping", "min", *_RTT_MEAN),
    "downlink": ("dl", "dlbitrate", "dlthroughput", "downlink", "download", "downlinkbitrate", "down", "rxrate"),
    "uplink": ("ul", "ulbitrate", "ulthroughput", "uplink", "upload", "uplinkbitrate", "up", "txrate"),
    # The empty name means a column that is named after its unit alone, such as `mbps`.
    "bandwidth": ("bandwidth", "throughput", "bitrate", ""),
}
_MISSING = frozenset(("", "-", "--", "nan", "na", "n/a", "null", "none", "*", "timeout", "lost", "inf", "-inf"))


def parse_columns(texts: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """Return (name, unit) by role of texts such as `rtt=latency`, `rtt=latency:s` or `rtt=:s`. Raises `TraceError`."""
    columns: dict[str, tuple[str | None, str | None]] = {}
    for text in texts:
        role, _, rest = text.partition("=")
        if role not in _UNITS or not rest:
            what = f"--column {text}: is neither ROLE=NAME nor ROLE=NAME:UNIT"
            raise TraceError(what, remedy=f"roles: {', '.join(_UNITS)}")
        name, _, unit = rest.rpartition(":")
        unit = _SPELT.get(unit.lower(), unit)
        if ":" not in rest:
            columns[role] = (rest, None)
        elif unit in _UNITS[role]:
            columns[role] = (name or None, unit)
        else:
            raise TraceError(f"--column {text}: {unit} is no unit of it", remedy=f"one of {', '.join(_UNITS[role])}")
    return columns


def read_measured_csv(source: Source, options: ReadOptions) -> list[Trace]:
    """Return the RTTs of a file, or its bandwidths, or both.

    Beside a bandwidth, a row without an RTT was written for the bandwidth; its RTT is lost only if a column of losses has a
    value there. Raises `TraceError` if no column, or more than one, could be meant.
    """
    if re.search(r"\d [KMGT]?bits/sec", source.text[:4000]):
        raise TraceError("what iperf prints for people", path=source.path, remedy="run iperf3 with -J")
    table = SeriesTable(source.path, source.text)
    remarks: list[str] = []
    time_s = _times(table, source, options, remarks)
    chosen = [(quantity, name) for quantity in _NAMES if (name := options.columns.get(quantity, (None, None))[0]) is not None]
    columns: list[tuple[Quantity, str]] = chosen or _guessed(table, options, remarks)
    loss = next((name for name in table.names if _split_unit(name)[0] in _LOSS), None)
    traces: list[Trace] = []
    for quantity, name in columns:
        notes = list(remarks)
        value = _values(table, quantity, name, options, notes)
        kept = np.ones(len(value), dtype=bool)
        if quantity == "rtt" and len(columns) > 1:
            cells = table.cells_of(name if loss is None else loss)
            kept = ~np.isnan(value) | np.array([cell.strip().lower() not in _MISSING for cell in cells], dtype=bool)
        if quantity != "rtt":
            notes += _suspicions(quantity, value, traces)
        lost_before = max(0, table.lost - int((np.isnan(value) & kept).sum()))
        origin = table.kind, table.source, notes
        traces.append(mend(quantity, time_s[kept], value[kept], *origin, lost_before=lost_before, path=source.path))
    return traces


def _split_unit(column: str) -> tuple[str, str | None]:
    """Return (the quantity in small letters and digits, the unit or None): `Ping RTT (ms)` gives `pingrtt` and `ms`."""
    lowered = " ".join(column.lower().split())  # on many blanks the pattern would take quadratic time
    match = _BEHIND.fullmatch(lowered)
    unit = lowered if lowered in BPS_PER else None
    if match is not None and unit is None:
        unit = match[2] or match[3]
        unit = _SPELT.get(unit, unit)
    if unit not in _PER_UNIT:
        return re.sub(r"[^a-z0-9]", "", lowered), None
    return "" if match is None else re.sub(r"[^a-z0-9]", "", match[1]), unit


def _only(table: SeriesTable, quantity: str, names: Sequence[str], role: str) -> str | None:
    """Return the column that has the first of `names` that any column has. Raises `TraceError` for several."""
    for name in names:
        matching = [column for column in table.names if _split_unit(column)[0] == name]
        if len(matching) > 1:
            table.cells_of(matching[0])  # refuses two columns of one name, which no option can tell apart
            text = f"{format_list(map(shorten, matching), ',')} could each be {quantity}"
            raise table.wrong(text, matching[0], f"choose by --column {role}={shorten(matching[0])}")
        if matching:
            return matching[0]
    return None


def _guessed(table: SeriesTable, options: ReadOptions, remarks: list[str]) -> list[tuple[Quantity, str]]:
    columns: list[tuple[Quantity, str]] = []
    for quantity, names in _NAMES.items():
        if quantity == "bandwidth" and any(other in ("downlink", "uplink") for other, _ in columns):
            continue
        column_names = (*_RTT, *_RTT_MEAN) if quantity == "rtt" and options.reply == "mean" else names
        if name := _only(table, f"the {quantity}", column_names, "downlink" if quantity == "bandwidth" else quantity):
            columns.append((quantity, name))
            synonyms = _RTT if quantity == "rtt" else names
            if others := [other for other in table.names if other != name and _split_unit(other)[0] in synonyms]:
                remarks.append(f"column {shorten(name)} is read, and not {format_list(map(shorten, others), ',')}")
    if not columns:
        raise table.missing("called like an RTT or a bandwidth", "name it by --column rtt=NAME")
    return columns


def _values(table: SeriesTable, quantity: Quantity, name: str, options: ReadOptions, notes: list[str]) -> Floats:
    """Return the values of a column in seconds or bit/s, and note a guessed unit. Raises `TraceError` for a wrong one."""
    numbers, role = table.numbers(name, _MISSING), "downlink" if quantity == "bandwidth" else quantity
    stated, shown = options.columns.get(role, (None, None))[1], shorten(name)
    words = Counter(word for cell in table.cells_of(name) if (word := cell.strip()) and parse_number(word) is None)
    if words:
        notes.append(f"cells of {shown} without a number: {format_list(f'{word} ({n:,})' for word, n in words.items())}")
    unit = stated or _split_unit(name)[1]
    if unit is None:
        unit = "ms" if quantity == "rtt" else "kbps"
        if quantity != "rtt" and not name.lower().endswith("bitrate"):  # those of G-NetTrack, always in kbit/s
            raise table.wrong(f"column {shown} names no unit", name, f"say it by --column {role}={shown}:mbps")
        notes.append(f"column {shown}, read in {unit}, as it names no unit")
    if unit not in _UNITS[role]:
        raise table.wrong(f"column {shown} is in {unit}, which is no unit of the {quantity}", name, "choose another column")
    values = numbers * _PER_UNIT[unit]
    kind = RttSeries if quantity == "rtt" else BandwidthSeries
    if not np.isnan(values).all() and (doubt := kind.doubt_unit(values, unit, stated is not None or table.by_simnmt)):
        what, likely = doubt
        remedy = f"state it by --column {role}={shown}:{likely}" if likely else "correct the values"
        raise table.wrong(f"column {shown}: {what}", name, f"{remedy}, or :{unit} if it is right" if likely == "s" else remedy)
    return values


def _suspicions(quantity: Quantity, rate_bps: Floats, before: Sequence[Trace]) -> list[str]:
    """Return why a throughput may be less than what the network could carry."""
    known, suspicions = rate_bps[~np.isnan(rate_bps)], []
    if known.size and (slow := float(np.mean(known < 0.01 * np.quantile(known, 0.9)))) > 0.05:
        suspicions.append(f"{100 * slow:.0f} % of the values are below 1 % of their p90: perhaps nothing was sent then")
    down_bps = [trace.value.mean() for trace in before if trace.quantity == "downlink"]
    if quantity == "uplink" and known.size and down_bps and known.mean() < 0.05 * down_bps[0]:
        suspicions.append("little beside the downlink: perhaps acknowledgements of a download, not what the uplink can carry")
    return suspicions


_DATE = re.compile(r"(\d{4})[-./](\d\d)[-./](\d\d)[T _]+(\d\d)[:.](\d\d)[:.](\d\d)")
_LARGEST_OF_UNIT = ((1e11, "s"), (1e14, "ms"), (1e17, "us"), (math.inf, "ns"))
"""Greatest Unix times of recent decades by unit; small numbers are in seconds."""


def parse_dates_s(cells: Sequence[str]) -> Floats:
    """Return the Unix times of dates with the year first, in UTC unless they name a zone; NaN for anything else."""
    import pandas as pd  # here, since most logs hold numbers

    texts = [_DATE.sub(r"\1-\2-\3T\4:\5:\6", cell.strip()).replace(",", ".").replace(" UTC", "Z") for cell in cells]
    dates = pd.to_datetime(pd.Series(texts, dtype=object), utc=True, format="ISO8601", errors="coerce").dt.tz_localize(None)
    moments = dates.to_numpy().astype("datetime64[us]")  # nanoseconds overflow in the year 2262
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def _times(table: SeriesTable, source: Source, options: ReadOptions, remarks: list[str]) -> Floats:
    """Return the time of each row in seconds, from dates or numbers, and remark a unit that is guessed."""
    name, unit = options.columns.get("time", (None, None))
    name = name or _only(table, "a time", _TIME, "time")
    if name is None:
        cells = re.split(r"[,;\t\n]", source.text[:4000].partition("\n")[2])
        if any(parse_number(cell) is not None for cell in cells if cell.strip()):
            raise table.missing("called like a time", "name it by --column time=NAME")
        remedy = "give output of ping, results of RIPE Atlas, JSON of iperf3 -J or irtt -o, or a CSV log"
        raise TraceError("no reader knows a file of this form", path=source.path, remedy=remedy)
    cells = table.cells_of(name)
    if cells and parse_number(cells[0]) is None:
        time_s = parse_dates_s(cells)
    else:
        unit = unit or _split_unit(name)[1]
        time_s = table.numbers(name, (), "write all times as numbers, or as dates with the year first")
        if unit is None:
            finite = time_s[np.isfinite(time_s)]
            unit = next(unit for largest, unit in _LARGEST_OF_UNIT if np.abs(finite).max(initial=0.0) < largest)
            remarks.append(f"column {shorten(name)}, read in {unit}, as it names no unit")
        if unit not in SECONDS_PER:
            raise table.wrong(f"column {shorten(name)} is in {unit}, which is no unit of a time", name, "choose another column")
        time_s = time_s * SECONDS_PER[unit]
    remedy = "write all times as numbers, or as dates with the year first, and their unit by --column time=NAME:UNIT"
    table.check(np.abs(time_s) < 1e11, name, "is no time", remedy)
    return time_s
