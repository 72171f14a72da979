"""The page of a sweep: response, best policy and Pareto front over the swept keys, in one HTML file without a network."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, panel, plain, short
from simnmt.report.figures import policy_line
from simnmt.report.page import colours_of
from simnmt.report.page_template import Section, render_page, write_page
from simnmt.report.run_tables import cell_of
from simnmt.report.table import Column, Table, estimate
from simnmt.report.typography import typeset
from simnmt.report.words import words
from simnmt.results.metrics import Metric
from simnmt.results.number_text import digits, percent
from simnmt.results.simplicity import is_tie
from simnmt.results.summary import Row
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TABLE, TIED, UNSTABLE, SweepTable

MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""
MOST_SLICES = 24
"""Most choices of values of the keys that a figure does not show; of more, an even selection."""
MOST_METRICS = 10
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

    def controls(self, shown: Sequence[str] | None = None) -> list[Control]:
        """Return the choices of workload and network, and of the values of the keys that a figure does not show."""
        places = [(str(number), " on ".join(place)) for number, place in enumerate(self.places)]
        controls = [Control("place", "Workload and network", places)]
        if shown is not None:
            labels = [
                ", ".join(
                    f"{short_key(key)} {format_swept(value)}" for key, value in zip(self._others(shown), values, strict=True)
                )
                for values in self._slices(shown)
            ]
            controls.append(Control("slice", "at", [(str(number), label or "all") for number, label in enumerate(labels)]))
        return controls

    def metric_control(self) -> Control:
        """Return the choice of the metric."""
        return Control("metric", "Metric", [(known.name, axis_title(known)) for known in self.metrics])

    def rows(self, place: str, shown: Sequence[str] | None = None, at: str = "") -> list[Row]:
        """Return the rows of a workload and network, and those at the chosen values of the keys that a figure does not show."""
        rows = [row for row in self.table.rows if cell_of(row) == self.places[int(place)]]
        if shown is None:
            return rows
        others, values = self._others(shown), list(self._slices(shown)[int(at)])
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


def _grid(scales: Sequence[_Scale], rows: Iterable[Row], column: str, **look: Any) -> Mark:
    """Return a heat map of a column over two keys."""
    across, up = scales
    cells = {(across.at(row), up.at(row)): row.get(column) for row in rows}
    x, y = (list(scale.places.values()) for scale in scales)
    return Mark("heat map", x, y, values=[[cells.get((column, line)) for column in x] for line in y], **look)


def response_panels(view: SweepView) -> list[Panel]:
    """Return, for each swept key, the metrics of every policy over the key."""
    return [_response(view, number, key) for number, key in enumerate(view.table.keys)]


def _response(view: SweepView, number: int, key: str) -> Panel:
    scale = _Scale(view, key)

    def draw(metric: str, place: str, at: str, y: str) -> Chart:
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
        shown = [value for mark in marks for value in mark.y if value > 0.0]
        # An interval that reaches far must not flatten the lines.
        span = (min(shown) / 1.3, max(shown) * 1.3) if y == "log" and shown else None
        axis = Axis(plain(axis_title(known)), log=y == "log", span=span, from_zero=True)
        return Chart(marks, scale.axis, axis, reading, message="" if shown else "no steady value anywhere")

    return panel(
        f"response-{number}",
        f"Response over {short_key(key)}",
        f"Metric of each policy over {key}, {INTERVALS}",
        draw,
        [view.metric_control(), *view.controls([key]), Control("y", "Axis", [("log", "log"), ("linear", "linear")])],
        caption=f"Every policy over {key}, {INTERVALS}.",
        across=True,
    )


def key_pairs(view: SweepView) -> list[tuple[str, str]]:
    """Return the pairs of swept keys of which a figure over two keys is drawn."""
    return list(itertools.combinations(view.table.keys, 2))[:6]


def heat_panels(view: SweepView) -> list[Panel]:
    """Return, for each pair of keys of a grid, a heat map of the metrics of each policy."""
    return [_heat(view, number, pair) for number, pair in enumerate(key_pairs(view))]


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
        heat = _grid(scales, stable, metric, scale=SHADES, limits=limits, hover=hover)
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
        [view.metric_control(), policies, *view.controls(keys)],
        caption=f"One policy over {across} (across) and {up} (up).",
        across=True,
    )


def best_panels(view: SweepView) -> list[Panel]:
    """Return the maps of the best policy: over each pair of keys, or over the only key."""
    keys = view.table.keys
    shown: list[tuple[str, ...]] = [*key_pairs(view)] if len(keys) > 1 else [(keys[0],)]
    return [_best(view, number, of_figure) for number, of_figure in enumerate(shown)]


def _best(view: SweepView, number: int, keys: tuple[str, ...]) -> Panel:
    scales = [_Scale(view, key) for key in keys]
    flat = len(keys) == 1

    def draw(place: str, at: str) -> Chart:
        by_point: dict[int, list[Row]] = {}
        for row in view.rows(place, keys, at):
            by_point.setdefault(row[POINT], []).append(row)
        kinds: dict[tuple[str, bool], list[Row]] = {}
        texts: dict[int, str] = {}
        for point, rows in by_point.items():
            best, tied, texts[point] = _winner(rows)
            winner = next((row for row in rows if row["policy"] == best), rows[0])
            kinds.setdefault((best, tied), []).append(winner)
        in_order = sorted(kinds.items(), key=lambda item: (item[0][1], view.colours.get(item[0][0], 99)))
        winners = [row for (best, _), rows in in_order for row in rows if best]
        gains = [row[GAIN] for row in winners if row.get(GAIN) is not None]
        limits = (min([*gains, 0.0]), 0.0)
        marks = []
        if not flat and limits[0] < 0.0:
            shades = ((0.0, "accent"), (1.0, "wash"))
            marks.append(_grid(scales, winners, GAIN, scale=shades, limits=limits, opacity=0.6, hover=""))
        marks += [_best_mark(view, kind, rows, scales, texts) for kind, rows in in_order]
        uncertain = sum(len(rows) for (_, tied), rows in kinds.items() if tied)
        reading = f"Open squares: the best policy is not distinguishable from another ({uncertain} of {len(by_point)} points)."
        reading = reading if uncertain else "Every best policy is distinguishable from the others."
        if gains:
            reading += f" The gain over the best fixed policy is {percent_text(max(gains))} to {percent_text(min(gains))}."
        up = Axis("change against the best fixed policy, %", zero_line=True) if flat else scales[1].axis
        return Chart(marks, scales[0].axis, up, reading)

    return panel(
        f"best-{number}",
        f"Best policy over {' and '.join(map(short_key, keys))}, and its gain",
        f"Map of the best policy over {' and '.join(keys)}, with its gain over the best fixed policy",
        draw,
        view.controls(keys),
        caption=f"By {view.table.objective} and the service level, paired by replication; equally good policies count as the "
        "simplest of them. The stronger the shade, the greater the gain.",
        across=True,
    )


def percent_text(change: float) -> str:
    """Return a change in percent with its sign, `none` for one below a thousandth.

    >>> percent_text(0.05), percent_text(12.3)
    ('none', '+12 %')
    """
    return "none" if is_tie(1.0 + change / 100.0, 1.0) else typeset(percent(change / 100.0, signed=True))


def describe_no_best(rows: Sequence[Row]) -> str:
    """Return why no policy of a point is the best."""
    is_bound = all(row["verdict"] == BOUND for row in rows)
    return "no policy that can be deployed" if is_bound else "every policy is unstable"


def _winner(rows: Sequence[Row]) -> tuple[str, bool, str]:
    """Return the best policy of a point (empty without a stable one), whether another is not distinguishable, and a text."""
    winner = next((row for row in rows if row["verdict"] == BEST), None)
    if winner is None:
        return "", False, describe_no_best(rows)
    tied, equal = ([row["policy"] for row in rows if row["verdict"] == verdict] for verdict in (TIED, EQUAL))
    text = f"{winner['policy']} not distinguishable from {format_list(tied)}" if tied else f"{winner['policy']} is best"
    text += f", {format_list(equal)} as good" if equal else ""
    text += f", {percent_text(winner[GAIN])} against the best fixed policy" if winner.get(GAIN) is not None else ""
    return winner["policy"], bool(tied), plain(text)


def _best_mark(
    view: SweepView, kind: tuple[str, bool], winners: Sequence[Row], scales: Sequence[_Scale], texts: Mapping[int, str]
) -> Mark:
    """Return the points at which a policy is best: over one key at its gain, else at the values of both keys."""
    best, tied = kind
    name = f"{short(best)}, not distinguishable" if tied else short(best) if best else "none is stable"
    colour = f"policy-{view.colours[best]}" if best else "ink"
    symbol = ("square-open" if tied else "square") if best else "x-thin-open"
    look: dict[str, Any] = {"symbol": symbol, "size": 12.0, "text": [texts[row[POINT]] for row in winners]}
    x = [scales[0].at(row) for row in winners]
    if len(scales) > 1:
        return Mark("points", x, [scales[1].at(row) for row in winners], name, colour, hover="%{text} (%{x}, %{y})", **look)
    gains, low, high = ([row.get(f"{GAIN}{end}") if best else None for row in winners] for end in ("", "_low", "_high"))
    heights = [gain or 0.0 for gain in gains]
    return Mark("points", x, heights, name, colour, low=low, high=high, hover="%{text} (%{x})", **look)


def pareto_pairs(view: SweepView) -> list[tuple[Metric, Metric]]:
    """Return the pairs of metrics whose fronts are drawn: a latency against cost and energy, else against other latencies."""
    latencies = [known for known in view.metrics if known.unit == "ms"]
    spent = [known for known in view.table.metrics if known.name.startswith(("energy", "cost"))]
    return [(latencies[0], other) for other in (spent or latencies[1:])] if latencies else []


def pareto_panel(view: SweepView) -> Panel | None:
    """Return the points and policies that no other beats in both of two metrics; None with a single metric."""
    pairs = pareto_pairs(view)
    if not pairs:
        return None
    control = Control("pair", "Metrics", [(str(at), f"{one.name} and {other.name}") for at, (one, other) in enumerate(pairs)])

    def draw(pair: str, place: str) -> Chart:
        one, other = pairs[int(pair)]
        rows = [row for row in view.rows(place) if row["verdict"] not in (BOUND, UNSTABLE)]
        rows = [row for row in rows if row[one.name] is not None and row[other.name] is not None]
        front = pareto_front(rows, one.name, other.name)
        on_front = {id(row) for row in front}
        x, y = ([row[known.name] for row in front] for known in (one, other))
        marks = [Mark("line", x, y, "front", width=1.2, step=True, hover="")]
        for policy in view.policies:
            for here in (False, True):
                of_policy = [row for row in rows if row["policy"] == policy and (id(row) in on_front) == here]
                if of_policy:
                    marks.append(_pareto_mark(view, policy, of_policy, here, (one, other)))
        reading = f"{len(front)} of {len(rows)} are on the front: no other is at least as good in both and better in one."
        axes = Axis(plain(axis_title(one))), Axis(plain(axis_title(other)))
        return Chart(marks, *axes, reading if rows else "", message="" if rows else "no stable point")

    return panel(
        "pareto",
        "Pareto front",
        "Two metrics of every point and policy, and those that no other beats in both",
        draw,
        [control, *view.controls()],
        caption="A mark is one policy at one point; large ones are on the front. Oracle and unstable policies are left out.",
        across=True,
    )


def pareto_front(rows: Sequence[Row], one: str, other: str) -> list[Row]:
    """Return the rows that no row beats in both columns, of which less is better, by the first column."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row[one], row[other])):
        if not front or row[other] < front[-1][other]:
            front.append(row)
    return front


def _pareto_mark(view: SweepView, policy: str, rows: Sequence[Row], on_front: bool, pair: tuple[Metric, Metric]) -> Mark:
    colour = view.colours[policy]
    texts = [", ".join(f"{short_key(key)} {format_swept(row[key])}" for key in view.table.keys) for row in rows]
    look: dict[str, Any] = {"size": 9.0, "opacity": 1.0} if on_front else {"size": 4.0, "opacity": 0.5}
    x, y = ([row[known.name] for row in rows] for known in pair)
    look |= {"symbol": SYMBOLS[colour % len(SYMBOLS)], "text": [plain(f"{policy}: {text}") for text in texts]}
    name = short(policy) if on_front else ""
    return Mark("points", x, y, name, f"policy-{colour}", hover="%{text}: %{x:,.4~g}, %{y:,.4~g}", **look)


def write_sweep_page(path: str | os.PathLike[str], table: SweepTable) -> None:
    """Write the page of a sweep, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_sweep(table))


def render_sweep(table: SweepTable) -> str:
    """Return the page as text; the same table gives the same text, and every name of the input is escaped."""
    view = SweepView(table, colours_of(row["policy"] for row in table.rows))
    pareto = pareto_panel(view) if table.rows else None
    groups = [
        ("response", "Response over the keys", [*response_panels(view), *heat_panels(view)] if table.rows else []),
        ("best", "Best policy", best_panels(view) if table.rows else []),
        ("pareto", "Trade-offs", [] if pareto is None else [pareto]),
    ]
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
        *(Section(title, name, panels=panels) for name, title, panels in groups if panels),
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
