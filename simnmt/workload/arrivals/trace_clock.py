"""How a table tells its times: in seconds, or as date-times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from simnmt.workload.arrivals.trace_rows import TraceTable, shown

Clock = Callable[[list[bytes]], float]
"""The cells of the table's current row -> seconds."""

_MOMENT = re.compile(rb"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:\.\d*)?)(?:Z|([+-])(0\d|1[0-4]):?([0-5]\d))?")


def clock(table: TraceTable, time_at: int, first: list[bytes]) -> Clock:
    """The clock of the column `time_at`, known by the first row. It raises `ArrivalsError` for what it cannot tell."""
    if _MOMENT.match(first[time_at].strip(b' "')):
        return _calendar(table, time_at)
    return lambda cells: table.seconds(time_at)


def _calendar(table: TraceTable, time_at: int) -> Clock:
    """Seconds since the day before the first: a Unix time in a float would lose the tenths of a microsecond."""
    days: dict[bytes, float] = {}
    eve = 0

    def seconds(cells: list[bytes]) -> float:
        nonlocal eve
        match = _MOMENT.fullmatch(cells[time_at].strip(b' "'))
        if match is None:
            what = f"{table.names[time_at]} is {shown(cells[time_at])}, among date-times"
            raise table.wrong(what, time_at, "give all times as 2023-11-16 18:15:46.68, a zone as +02:00")
        day, hour, minute, second, sign, zone_hour, zone_minute = match.groups()
        if day not in days:
            try:
                ordinal = date.fromisoformat(day.decode()).toordinal()
            except ValueError:
                raise table.wrong(f"there is no day {day.decode()}", time_at, "correct the date") from None
            eve = eve or ordinal - 1
            days[day] = (ordinal - eve) * 86_400.0
        time_s = days[day] + int(hour) * 3600 + int(minute) * 60 + float(second)
        if sign:
            offset_s = int(zone_hour) * 3600 + int(zone_minute) * 60
            time_s += offset_s if sign == b"-" else -offset_s
        return time_s

    return seconds
