"""CSV logs of other tools: RTT and throughput, each at its own times, in columns found by their usual names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import short_repr, shorten
from simnmt.base.suggestions import format_list
from simnmt.network.errors import TraceError
from simnmt.network.series import BPS_PER, SECONDS_PER, like_seconds_read_as_ms
from simnmt.network.series_csv import Rows
from simnmt.network.trace_options import RATES, SPELT, ReadOptions, Reply, epoch_unit, parse_date_s
from simnmt.network.traces.readings import NOUN, ROLE, Quantity, Readings

_BEHIND = re.compile(r"^(.*?)(?:[\s_]*[(\[]\s*([^)\]]+?)\s*[)\]]|[\s_.]([A-Za-zµ/]+))\s*$")

TIME = ("epoch", "unixtime", "unix", "timestamp", "datetime", "time", "date", "ts", "t")
RTT = ("rtt", "roundtriptime", "roundtrip", "latency", "ping", "pingtime", "responsetime", "delay")
_RTT_OF: Mapping[Reply, tuple[str, ...]] = {
    "min": ("rttmin", "minrtt", "pingmin", "minping", "min", "rttavg", "avgrtt", "pingavg", "avgping", "avg", "mean"),
    "mean": ("rttavg", "avgrtt", "pingavg", "avgping", "avg", "mean"),
    "first": (),
}
LOSS = ("pingloss", "pinglosspct", "loss", "losspct", "packetloss")
DOWNLINK = ("dl", "dlbitrate", "dlthroughput", "downlink", "download", "downlinkbitrate", "down", "rxrate")
UPLINK = ("ul", "ulbitrate", "ulthroughput", "uplink", "upload", "uplinkbitrate", "up", "txrate")
BANDWIDTH = ("bandwidth", "throughput", "bitrate", "")
"""The empty name means a column that is named after its unit alone, such as `mbps`."""


def split_unit(column: str) -> tuple[str, str | None]:
    """Return (the quantity in small letters and digits, the unit or None): `Ping RTT (ms)` gives `pingrtt` and `ms`."""
    lowered = " ".join(column.lower().split())  # on many blanks the pattern below would take quadratic time
    if lowered in RATES:
        return "", lowered
    match = _BEHIND.fullmatch(lowered)
    unit = None if match is None else match[2] or match[3]
    unit = SPELT.get(unit, unit) if unit else None
    if match is None or unit not in _PER_UNIT:
        return re.sub(r"[^a-z0-9]", "", lowered), None
    return re.sub(r"[^a-z0-9]", "", match[1]), unit


def find(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that have the first of `names` that any column has."""
    bare = {column: split_unit(column)[0] for column in columns}
    for name in names:
        matching = [column for column in columns if bare[column] == name]
        if matching:
            return matching
    return []


_MISSING = {"", "-", "--", "nan", "na", "n/a", "null", "none", "*", "timeout", "lost", "inf", "-inf"}
_PER_UNIT = {**SECONDS_PER, **BPS_PER}
_ROLES: tuple[Literal["rtt", "downlink", "uplink"], ...] = ("rtt", "downlink", "uplink")
_NO_TIME_S = 1e11
_IDLE_SHARE, _IDLE_OF_P90 = 0.05, 0.01
_ACKNOWLEDGEMENTS = 0.05


@dataclass(slots=True)
class _Column:
    """A column of one quantity, with its samples in the order of the rows."""

    quantity: Quantity
    name: str
    at: int
    unit: str
    unit_guessed: bool
    unit_stated: bool
    """Whether the user stated the unit, not the column's name."""
    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    oddities: Counter[str] = field(default_factory=Counter)

    @property
    def si(self) -> NDArray[np.float64]:
        """The values in seconds or bit/s."""
        return np.array(self.values) * _PER_UNIT[self.unit]


def read_measured_csv(path: Path, text: str, how: ReadOptions) -> list[Readings]:
    """Return the RTTs of a file, or its bandwidths, or both.

    Beside a bandwidth, a row without an RTT was written for the bandwidth; its RTT is lost only if a column of losses has a
    value there. Raises `TraceError` if no column, or more than one, could be meant.
    """
    rows = Rows(path, text)
    granted: list[str] = []
    if how.column("time").name is None and not find(rows.names, TIME) and not rows.has_numbers:
        what = "no log of ping and no other measurement: below the first line is no number"
        remedy = "give output of ping, results of RIPE Atlas, JSON of iperf3 or irtt, or a CSV log"
        raise TraceError(what, path=path, remedy=remedy)
    time_column = how.column("time").name or _only(rows, "a time", find(rows.names, TIME), "time")
    time_of = _time_reader(rows, rows.index(time_column), how, granted)
    columns = _value_columns(rows, how)
    loss = find(rows.names, LOSS)
    loss_at = rows.index(loss[0]) if loss else None
    shared = len({column.quantity == "rtt" for column in columns}) > 1
    for cells in rows:
        time_s = time_of(cells)
        for column in columns:
            value = math.nan
            if cells[column.at].strip().lower() not in _MISSING:
                value = rows.number(column.at)
            elif shared and column.quantity == "rtt" and (loss_at is None or cells[loss_at].strip().lower() in _MISSING):
                continue
            if value <= 0.0:
                column.oddities["zero" if value == 0.0 else "negative"] += 1
                value = math.nan
            column.times_s.append(time_s)
            column.values.append(value)
    down = next((column.si for column in columns if column.quantity == "downlink"), None)
    return [_readings(rows, column, how, granted, down) for column in columns]


def _readings(rows: Rows, column: _Column, how: ReadOptions, granted: list[str], down: NDArray[np.float64] | None) -> Readings:
    """Return the samples of a column; `granted`: assumptions about the times, `down`: bandwidths of the downlink."""
    values = column.si
    guesses = [*granted, *([_guess(column.name, column.unit)] if column.unit_guessed else [])]
    repairs = [f"{sign} values, so lost: {count:,}" for sign, count in column.oddities.items()]
    if column.quantity == "rtt":
        _refuse_seconds_as_ms(rows, column, values)
    else:
        if how.idle_below_bps > 0.0:
            idle = values < how.idle_below_bps
            values = np.where(idle, math.nan, values)
            repairs.append(f"values below {how.idle_below_bps / 1e3:g} kbit/s, so pauses and lost: {int(idle.sum()):,}")
        else:
            guesses += _suspect_pauses(values)
        if column.quantity == "uplink" and down is not None:
            guesses += _suspect_acknowledgements(values, down)
    lost_before = max(0, rows.lost - int(np.isnan(values).sum()))
    times_s, kind, source = np.array(column.times_s), rows.kind, rows.source
    return Readings(column.quantity, times_s, values, kind, source, tuple(repairs), tuple(guesses), lost_before, column.unit)


def _guess(column: str, unit: str) -> str:
    return f"column {shorten(column)}, read in {unit}, as it names no unit"


def _refuse_seconds_as_ms(rows: Rows, column: _Column, rtt_s: NDArray[np.float64]) -> None:
    """Raise `TraceError` for numbers that are more likely seconds, unless the user stated the unit or simnmt wrote the file."""
    if column.unit != "ms" or column.unit_stated or rows.ours:
        return
    if why := like_seconds_read_as_ms(rtt_s):
        name = shorten(column.name)
        remedy = f"state the unit: --column rtt={name}:s if they are seconds, --column rtt={name}:ms if not"
        raise rows.wrong_column(f"column {name}: {why}", column.at, remedy)


def _suspect_pauses(rate_bps: NDArray[np.float64]) -> list[str]:
    # A throughput is what an application sent, which may be less than the network could carry.
    known = rate_bps[~np.isnan(rate_bps)]
    slow = float(np.mean(known < _IDLE_OF_P90 * np.quantile(known, 0.9))) if known.size else 0.0
    if slow <= _IDLE_SHARE:
        return []
    what = f"{100 * slow:.0f} % of the values are below 1 % of their 90th percentile"
    return [f"{what}: perhaps nothing was sent then; --idle-below counts these as lost"]


def _suspect_acknowledgements(up_bps: NDArray[np.float64], down_bps: NDArray[np.float64]) -> list[str]:
    if np.isnan(up_bps).all() or np.isnan(down_bps).all() or np.nanmean(up_bps) >= _ACKNOWLEDGEMENTS * np.nanmean(down_bps):
        return []
    return ["little beside the downlink: perhaps the acknowledgements of a download rather than what the uplink can carry"]


def _value_columns(rows: Rows, how: ReadOptions) -> list[_Column]:
    stated: list[tuple[Quantity, str]] = [(role, name) for role in _ROLES if (name := how.column(role).name) is not None]
    columns = []
    for quantity, name in stated or _guessed(rows, how):
        at = rows.index(name)
        unit = _unit(rows, quantity, name, how)
        guessed = unit is None
        if unit is None:
            unit = "ms" if quantity == "rtt" else "kbps"
            if quantity != "rtt" and not name.lower().endswith("bitrate"):  # those of G-NetTrack, always in kbit/s
                remedy = f"say it by --column {ROLE[quantity]}={shorten(name)}:mbps"
                raise rows.wrong_column(f"column {shorten(name)} names no unit", at, remedy)
        columns.append(_Column(quantity, name, at, unit, guessed, how.column(ROLE[quantity]).unit is not None))
    return columns


def _guessed(rows: Rows, how: ReadOptions) -> list[tuple[Quantity, str]]:
    guesses: list[tuple[Quantity, Sequence[str], str]] = [
        ("rtt", RTT + _RTT_OF[how.reply], "rtt"),
        ("downlink", DOWNLINK, "downlink"),
        ("uplink", UPLINK, "uplink"),
        ("bandwidth", BANDWIDTH, "downlink"),
    ]
    guessed_columns: list[tuple[Quantity, str]] = []
    for quantity, names, role in guesses:
        columns = find(rows.names, names)
        one_way = any(other in ("downlink", "uplink") for other, _ in guessed_columns)
        if columns and not (quantity == "bandwidth" and one_way):
            guessed_columns.append((quantity, _only(rows, f"the {NOUN[quantity]}", columns, role)))
    if not guessed_columns:
        _only(rows, "an RTT or a bandwidth", [], "rtt")
    return guessed_columns


def _unit(rows: Rows, quantity: Quantity, name: str, how: ReadOptions) -> str | None:
    stated_unit = split_unit(name)[1]
    unit = how.column(ROLE[quantity]).unit or stated_unit
    if unit is not None and (unit in RATES) is (quantity == "rtt"):
        what = f"column {shorten(name)} is in {unit}, which is no unit of the {NOUN[quantity]}"
        raise rows.wrong_column(what, rows.index(name), "choose another column")
    return unit


def _only(rows: Rows, what: str, names: Sequence[str], role: str) -> str:
    if len(names) == 1:
        return names[0]
    rows.refuse_numbers("time_s, rtt_ms")
    if names:
        text = f"{format_list(map(shorten, names), ',')} could each be {what}"
        raise rows.wrong_column(text, rows.index(names[0]), f"choose by --column {role}={shorten(names[0])}")
    text = f"no column is called like {what}: {format_list(map(shorten, rows.names), ',')}"
    raise rows.wrong_column(text, 0, f"name it by --column {role}=NAME")


def _time_reader(rows: Rows, time_at: int, how: ReadOptions, granted: list[str]) -> Callable[[list[str]], float]:
    """Return a function that reads the time of a row in seconds and adds a unit that it guesses to `granted`."""
    unit = how.column("time").unit or split_unit(rows.names[time_at])[1]
    if unit in RATES:
        what = f"column {shorten(rows.names[time_at])} is in {unit}, which is no unit of a time"
        raise rows.wrong_column(what, time_at, "choose another column")
    per_unit = None if unit is None else _PER_UNIT[unit]
    form: Literal["dates", "numbers"] | None = None

    def time_of(cells: list[str]) -> float:
        nonlocal per_unit, form
        time_s = parse_date_s(cells[time_at])
        here: Literal["dates", "numbers"] = "numbers" if math.isnan(time_s) else "dates"
        if here == "numbers":
            time = rows.number(time_at, "write numbers, or dates with the year first")
            if per_unit is None and math.isfinite(time):
                guessed = epoch_unit(time)
                granted.append(_guess(rows.names[time_at], guessed))
                per_unit = _PER_UNIT[guessed]
            time_s = time * (per_unit or 1.0)
        form = form or here
        if form != here:
            what = f"{shorten(rows.names[time_at])} is {short_repr(cells[time_at].strip())}, but the rows before give {form}"
            raise rows.wrong(what, time_at, "write all times in one form")
        if not abs(time_s) < _NO_TIME_S:
            what = f"{shorten(rows.names[time_at])} is {shorten(cells[time_at])}, which is no time"
            raise rows.wrong(what, time_at, "give every row a time, and its unit by --column time=NAME:UNIT")
        return time_s

    return time_of
