"""The page of a sweep: metrics over the swept keys and the best policy of each point, in one HTML file without a network."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, panel, plain, short
from simnmt.report.figures import policy_line
from simnmt.report.page import colours_of
from simnmt.report.page_template import Section, render_page, write_page
from simnmt.report.run_tables import cell_of
from simnmt.report.table import Column, Table, estimate
from simnmt.report.words import words
from simnmt.results.metrics import Metric
from simnmt.results.number_text import digits
from simnmt.results.summary import Row
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TABLE, TIED, SweepTable

MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""
MOST_SLICES = 24
"""Most choices of values of the keys that a figure does not show; of more, an even selection."""
MOST_METRICS = 10
MOST_PAIRS = 6
LOG_FROM = 10.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""
SHADES = ((0.0, "wash"), (1.0, "accent"))
GAIN = "over_fixed_percent"
"""Column with the change of the objective against the best policy that sends every request to one device."""
INTERVALS = "with 95 % intervals over replications"


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep's table arranged for figures."""

    table: SweepTable
    colours: Mapping[str, int]
    """Colour of each policy."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics with figures, that of the objective first."""
        return tuple(sorted(self.table.metrics, key=lambda known: known.name != self.table.objective))[:MOST_METRICS]

    @property
    def places(self) -> list[tuple[str, str]]:
        """Workloads and networks."""
        return list(dict.fromkeys(map(cell_of, self.table.rows)))

    @property
    def policies(self) -> list[str]:
        """Names of the policies."""
        return list(dict.fromkeys(row["policy"] for row in self.table.rows))

    def metric(self, name: str) -> Metric:
        """Return the metric of a name."""
        return next(known for known in self.table.metrics if known.name == name)

    def controls(self, shown: Sequence[str], *further: Control) -> list[Control]:
        """Return the choices of metric, workload and network, and of the values of the keys that a figure does not show."""
        labels = [
            ", ".join(f"{short_key(key)} {format_swept(value)}" for key, value in zip(self._others(shown), values, strict=True))
            for values in self._slices(shown)
        ]
        return [
            Control("metric", "Metric", [(known.name, axis_title(known)) for known in self.metrics]),
            *further,
            Control("place", "Workload and network", [(str(at), " on ".join(place)) for at, place in enumerate(self.places)]),
            Control("slice", "at", [(str(at), label or "all") for at, label in enumerate(labels)]),
        ]

    def rows(self, place: str, shown: Sequence[str], at: str) -> list[Row]:
        """Return the rows of a workload and network, at the chosen values of the keys that a figure does not show."""
        others, values = self._others(shown), list(self._slices(shown)[int(at)])
        rows = [row for row in self.table.rows if cell_of(row) == self.places[int(place)]]
        return [row for row in rows if [row[key] for key in others] == values]

    def values(self, key: str) -> list[Any]:
        """Return the values of a key: numbers by size, others as they come."""
        known = list({json.dumps(row[key]): row[key] for row in self.table.rows}.values())
        return sorted(known) if all(map(is_plain_number, known)) else known

    def _others(self, shown: Sequence[str]) -> list[str]:
        return [key for key in self.table.keys if key not in shown]

    def _slices(self, shown: Sequence[str]) -> list[tuple[Any, ...]]:
        every = list(itertools.product(*(self.values(key) for key in self._others(shown))))
        step = max(len(every) / MOST_SLICES, 1.0)
        return [every[int(number * step)] for number in range(min(len(every), MOST_SLICES))]


def is_plain_number(value: Any) -> bool:
    """Return whether a value lies on an axis of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def format_swept(value: Any) -> str:
    """Return a value of a key for a reader."""
    return f"{value:.6g}" if is_plain_number(value) else str(value)


def short_key(key: str) -> str:
    """Return the last parts of a dotted key.

    >>> short_key("workloads.de-en.arrivals.rate_rps")
    'arrivals.rate_rps'
    """
    return ".".join(key.split(".")[-2:])


def axis_title(known: Metric) -> str:
    """Return the name of a metric for an axis: latencies have their unit in the name."""
    return known.name if known.unit == "ms" or not known.unit else f"{known.name}, {known.unit}"


class _Scale:
    """Positions of the values of a key on an axis."""

    def __init__(self, view: SweepView, key: str) -> None:
        values, title = view.values(key), plain(short_key(key))
        self._key = key
        if all(map(is_plain_number, values)):
            self.places = {json.dumps(value): float(value) for value in values}
            self.axis = Axis(title)
        else:
            self.places = {json.dumps(value): float(number) for number, value in enumerate(values)}
            ticks = {float(number): short(format_swept(value), 20) for number, value in enumerate(values)}
            self.axis = Axis(title, ticks=ticks, span=(-0.5, len(values) - 0.5))

    def at(self, row: Row) -> float:
        return self.places[json.dumps(row[self._key])]


def response_panels(view: SweepView) -> list[Panel]:
    """Return, for each swept key, the metrics of every policy over the key."""
    return [_response(view, number, key) for number, key in enumerate(view.table.keys)]


def _response(view: SweepView, number: int, key: str) -> Panel:
    scale = _Scale(view, key)

    def draw(metric: str, place: str, at: str) -> Chart:
        known, rows = view.metric(metric), view.rows(place, [key], at)
        hover = f"%{{y:,.4~g}} {plain(known.unit)} at %{{x}}"
        marks = []
        for policy in view.policies:
            stable = [row for row in rows if row["policy"] == policy and row[metric] is not None and not row["unstable"]]
            stable.sort(key=scale.at)
            values, low, high = ([row[f"{metric}{end}"] for row in stable] for end in ("", "_low", "_high"))
            look: dict[str, Any] = {"low": low, "high": high, "symbol": "circle", "size": 5.0, "hover": hover}
            marks.append(policy_line(policy, view.colours[policy], [scale.at(row) for row in stable], values, **look))
        unstable = sorted({row["policy"] for row in rows if row["unstable"]})
        reading = f"Left out where unstable: {plain(format_list(unstable))}." if unstable else ""
        shown = [value for mark in marks for value in mark.y]
        log = bool(shown) and 0.0 < LOG_FROM * min(shown) < max(shown)
        # An interval that reaches far must not flatten the lines.
        span = (min(shown) / 1.3, max(shown) * 1.3) if log else None
        axis = Axis(plain(axis_title(known)), log=log, span=span, from_zero=True)
        return Chart(marks, scale.axis, axis, reading, message="" if shown else "no steady value anywhere")

    return panel(
        f"response-{number}",
        f"Response over {short_key(key)}",
        f"Metric of each policy over {key}, {INTERVALS}",
        draw,
        view.controls([key]),
        caption=f"Every policy over {key}, {INTERVALS}.",
        across=True,
    )


def heat_panels(view: SweepView) -> list[Panel]:
    """Return, for each of the first pairs of keys, a heat map of the metrics of each policy."""
    pairs = itertools.islice(itertools.combinations(view.table.keys, 2), MOST_PAIRS)
    return [_heat(view, number, pair) for number, pair in enumerate(pairs)]


def _heat(view: SweepView, number: int, keys: tuple[str, str]) -> Panel:
    scales = [_Scale(view, key) for key in keys]
    policies = Control("policy", "Policy", [(str(at), policy) for at, policy in enumerate(view.policies)])

    def draw(metric: str, policy: str, place: str, at: str) -> Chart:
        known = view.metric(metric)
        rows = [row for row in view.rows(place, keys, at) if row["policy"] == view.policies[int(policy)]]
        stable = [row for row in rows if not row["unstable"]]
        shown = [row[metric] for row in stable if row[metric] is not None]
        limits = (min(shown), max(shown)) if shown else (0.0, 1.0)
        hover = f"%{{z:,.4~g}} {plain(known.unit)} at %{{x}}, %{{y}}"
        cells = {tuple(scale.at(row) for scale in scales): row[metric] for row in stable}
        x, y = (list(scale.places.values()) for scale in scales)
        values = [[cells.get((column, line)) for column in x] for line in y]
        heat = Mark("heat map", x, y, values=values, scale=SHADES, limits=limits, hover=hover)
        reading = f"Faint: {digits(limits[0])}, strong: {digits(limits[1])} {plain(known.unit)}." if shown else ""
        missing = len(rows) - len(stable)
        reading += f" Empty: unstable ({missing} points)." if missing else ""
        message = "" if shown else "no steady value anywhere"
        return Chart([heat], scales[0].axis, scales[1].axis, reading.strip(), message=message)

    across, up = keys
    return panel(
        f"heat-{number}",
        f"{short_key(across)} and {short_key(up)}",
        f"Heat map of a metric over {across} and {up}",
        draw,
        view.controls(keys, policies),
        caption=f"One policy over {across} (across) and {up} (up).",
        across=True,
    )


def describe_no_best(rows: Sequence[Row]) -> str:
    """Return why no policy of a point is the best."""
    is_bound = all(row["verdict"] == BOUND for row in rows)
    return "no policy that can be deployed" if is_bound else "every policy is unstable"


def write_sweep_page(path: str | os.PathLike[str], table: SweepTable) -> None:
    """Write the page of a sweep, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_sweep(table))


def render_sweep(table: SweepTable) -> str:
    """Return the page as text; the same table gives the same text, and every name of the input is escaped."""
    view = SweepView(table, colours_of(row["policy"] for row in table.rows))
    panels = [*response_panels(view), *heat_panels(view)] if table.rows else []
    first = table.rows[0] if table.rows else {}
    counts = [(name, first.get(name)) for name in ("replications", "requests") if name not in table.keys]
    facts = [
        ("points", f"{len({row[POINT] for row in table.rows}):,}"),
        ("swept keys", ", ".join(table.keys)),
        *((name, f"{count:,}") for name, count in counts if count is not None),
        ("seed", str(table.seed)),
        ("objective", table.objective),
    ]
    failed = f"{table.failed} points failed and are missing here; `failed.json` has their errors."
    sections = [
        Section("Sweep", "sweep", text=[failed] * bool(table.failed), facts=facts),
        *[Section("Response over the keys", "response", panels=panels)] * bool(panels),
        Section("Best policy of each point", "points", tables=[points_table(view)]),
    ]
    return render_page("simnmt sweep", table.name, sections)


def points_table(view: SweepView) -> Table:
    """Return the best policy of each point, workload and network."""
    table, column = view.table, view.table.objective
    cells: dict[tuple[int, str, str], list[Row]] = {}
    for row in table.rows:
        cells.setdefault((row[POINT], *cell_of(row)), []).append(row)
    rows = []
    for rows_of_cell in cells.values():
        best = next((row for row in rows_of_cell if row["verdict"] == BEST), None)
        rows.append((best or {}) | {
            **{key: rows_of_cell[0][key] for key in (POINT, *table.keys)},
            "place": " on ".join(cell_of(rows_of_cell[0])),
            "best": describe_no_best(rows_of_cell) if best is None else best["policy"],
            "equal": ", ".join(row["policy"] for row in rows_of_cell if row["verdict"] == EQUAL),
            "tied": ", ".join(row["policy"] for row in rows_of_cell if row["verdict"] == TIED),
        })  # fmt: skip

    def swept(key: str) -> Column:
        return Column(short_key(key), lambda row: format_swept(row[key]))

    def colour(row: Row) -> str:
        return f"policy-{view.colours[row['best']]}" if row["best"] in view.colours else ""

    gain = (f"{GAIN}_low", f"{GAIN}_high")
    columns = [
        Column("point", POINT, digits=0),
        *map(swept, table.keys),
        Column("workload and network", "place", words=True),
        Column("best policy", "best", colour=colour, words=True),
        estimate(column, column),
        Column("against the best fixed policy, %", GAIN, signed=True, interval=gain, rounded=True),
        Column("as good", "equal", words=True),
        Column("not distinguishable from", "tied", words=True),
    ]
    more = len(rows) - MOST_ROWS
    note = "\n".join(words("points", more=more, table=TABLE))
    return Table("", columns, rows[:MOST_ROWS], note, id="points")
