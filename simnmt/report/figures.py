"""The figures of one workload on one network: latency and its parts, load, the network, lengths and devices.

A figure is thinned first, so that a page does not grow with the number of requests. Times are milliseconds
here, because a person reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.suggestions import format_list
from simnmt.network.traces.summary import time_unit
from simnmt.report.charts import (
    DASHES,
    POLICY_COLOURS,
    SYMBOLS,
    Axis,
    Chart,
    Control,
    Mark,
    Panel,
    extremes,
    numbers,
    plain,
    quantile_shares,
    quantiles,
    short,
)
from simnmt.report.page_template import number, significant
from simnmt.results import Cell
from simnmt.results.columns import NO_DEVICE, executed_on
from simnmt.results.requests import were_answered
from simnmt.results.stability import device_timeline
from simnmt.results.summary import PARTS, TRIES, Row

ESTIMATE_OF = "cnmt"
"""The policy whose transfer estimate is drawn over the RTT series, where the scenario has it."""
RTT_POINTS = 2_000
SPANS = 200
"""Spans of time of a timeline: together a few thousand numbers for each place of a page."""
LEAST_SHOWN = 0.01
"""Least backlog on a logarithmic axis."""
PLANE_REQUESTS = 1_500
_PART_NAMES = {"queue": "waiting", "execution": "execution", "transfer": "transfer", "retry": "earlier tries"}

Log = Mapping[str, NDArray[Any]]
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell with its rows, and the colours of policies."""

    cell: Cell
    rows: Sequence[Row]
    colours: Mapping[str, int]

    def row(self, policy: str) -> Row:
        """Return the row of a policy; empty if there is none."""
        return next((row for row in self.rows if row["policy"] == policy), {})

    def unstable(self, policy: str) -> str:
        """Return which devices a policy overloads; empty for a stable one."""
        return self.row(policy).get("unstable") or ""

    def line(self, policy: str, x: Any, y: Any, **style: Any) -> Mark:
        """Return the line of a policy in the colour and dash that it has on the whole page."""
        return policy_line(policy, self.colours[policy], x, y, unstable=bool(self.unstable(policy)), **style)

    def device_look(self, number: int) -> tuple[str, str]:
        """Return colour and symbol of a device."""
        return f"policy-{number % POLICY_COLOURS}", SYMBOLS[number % len(SYMBOLS)]


def policy_line(policy: str, colour: int, x: Any, y: Any, *, unstable: bool = False, **style: Any) -> Mark:
    """Return the line of a policy; `style`: further attributes of the mark."""
    look: dict[str, Any] = {"colour": f"policy-{colour}", "dash": DASHES[colour]}
    return Mark("line", x, y, **{"name": short(policy) + (", unstable" if unstable else ""), **look, **style})


def latency(view: CellView) -> Panel:
    """Draw the share of requests answered within a time; requests that never ended are left out."""
    done = {policy: log["latency_s"][were_answered(log["outcome"])] for policy, log in view.cell.logs.items()}
    grid = quantile_shares(max((values.size for values in done.values()), default=1))
    times_ms = {policy: quantiles(values, grid) * 1e3 for policy, values in done.items()}
    shown = {policy: numbers(ms) for policy, ms in times_ms.items()}
    share = [round(value, 7) for value in grid.tolist()]

    def draw(y: str) -> Chart:
        beyond = y == "beyond"
        heights = [round(1.0 - value, 7) for value in share[:-1]] if beyond else share
        hover = f"{'%{y:.3~%} take longer than' if beyond else '%{y:.2%} within'} %{{x:,.4~g}} ms"
        marks = [view.line(policy, ms[: len(heights)], heights if ms else [], hover=hover) for policy, ms in shown.items()]
        slower = Axis("share of requests slower", log=True, tick_format="~%")
        answered = Axis("share of requests answered", span=(0.0, 1.01), tick_format=".0%")
        return Chart(marks, Axis("latency of a request, ms", log=True), slower if beyond else answered)

    return Panel(
        "latency",
        "How long requests take",
        f"Cumulative distribution of latency, one line per policy, {view.cell.name}",
        draw,
        [Control("y", "Share axis", [("within", "all"), ("beyond", "slowest")])],
        caption="Share of requests answered within a time, per policy. A line may hide another.",
    )


def parts(view: CellView) -> Panel:
    """Draw the mean latency of each policy with its interval, as the sum of waiting, execution and transfer."""
    rows = [row for policy in view.cell.logs if not (row := view.row(policy)).get("unstable")]
    rows = [row for row in rows if all(row.get(f"mean_{part}_s") is not None for part in PARTS)]
    shown = [*PARTS, *(part for part in TRIES if any(row.get(f"mean_{part}_s") for row in rows))]
    total_ms = [1e3 * sum(row[f"mean_{part}_s"] for part in shown) for row in rows]
    at, hover = [*range(len(rows))], "%{x:,.4~g} ms"
    marks = [
        Mark("bars", numbers(np.array([1e3 * row[f"mean_{part}_s"] for row in rows])), at, _PART_NAMES[part],
             f"part-{part}", level=True, hover=hover)
        for part in shown
    ]  # fmt: skip
    low, high = (
        [None if (value := row.get(f"mean_latency_s_{end}")) is None else 1e3 * value for row in rows]
        for end in ("low", "high")
    )
    marks.append(Mark("points", total_ms, at, low=low, high=high, size=5.0, level=True, hover=hover))
    ticks = {float(place): f"{short(row['policy'], 20)}, {significant(total_ms[place])} ms" for place, row in enumerate(rows)}
    unstable = [f"{policy} ({overload})" for policy in view.cell.logs if (overload := view.unstable(policy))]
    chart = Chart(
        marks if rows else [],
        Axis("latency, ms", from_zero=True, hidden=not rows),
        Axis(ticks=ticks, span=(len(rows) - 0.5, -0.5), hidden=not rows),
        f"Left out, because no steady mean exists: {format_list(unstable)}." if unstable else "",
        stacked=True,
        message="" if rows else "no policy has a steady mean",
    )
    return Panel(
        "parts",
        "What the time is made of",
        f"Mean waiting, execution and transfer time, one stacked bar per policy, {view.cell.name}",
        lambda: chart,
        caption="Mean waiting, execution and transfer, per policy, with the 95 % interval of their sum.",
    )


_PRICES = {
    "latency": ("mean latency", "mean_latency_s", 1e3, "ms"),
    "p95": ("p95 of latency", "p95_latency_s", 1e3, "ms"),
    "cost": ("cost", "mean_cost", 1.0, "per request"),
    "energy": ("energy", "mean_energy_j", 1.0, "J"),
}
"""What quality is drawn against: in words, by column of the summary, its factor and its unit."""


def quality(view: CellView) -> Panel:
    """Draw the corpus chrF of each policy against its latency, cost and energy, with both intervals."""

    def draw(price: str) -> Chart:
        words, column, factor, unit = _PRICES[price]
        marks = []
        for row in view.rows:
            values = (row.get(f"{column}{end}") for end in ("", "_low", "_high"))
            x, low, high = ([None if value is None else factor * value] for value in values)
            if x != [None] and row.get("chrf") is not None and not row.get("unstable"):
                colour = view.colours[row["policy"]]
                look: dict[str, Any] = {"symbol": SYMBOLS[colour % len(SYMBOLS)], "size": 9.0, "across": (low, high)}
                look |= {"low": [row["chrf_low"]], "high": [row["chrf_high"]]}
                hover = f"chrF %{{y:.2f}} at %{{x:,.4~g}} {unit}"
                marks.append(Mark("points", x, [row["chrf"]], short(row["policy"]), f"policy-{colour}", hover=hover, **look))
        unstable = [policy for policy in view.cell.logs if view.unstable(policy)]
        reading = f"Left out, because no steady mean exists: {plain(format_list(unstable))}." if unstable else ""
        message = "" if marks else "no policy has a steady mean"
        return Chart(marks, Axis(f"{words}, {unit}", from_zero=True), Axis("corpus chrF"), reading, message=message)

    known = [price for price, (_, column, *_) in _PRICES.items() if any(row.get(column) is not None for row in view.rows)]
    return Panel(
        "quality",
        "Quality and its price",
        f"Corpus chrF over latency, cost or energy, one point per policy, {view.cell.name}",
        draw,
        [Control("against", "Against", [(price, _PRICES[price][0]) for price in known])],
        caption="Corpus chrF of each policy with its 95 % interval over sentences, and latency, cost or energy with that over "
        "replications.",
    )


def timeline(view: CellView) -> Panel:
    """Draw what waits at a device, and how much of it works, over the time of the run: means over spans of time."""
    cell = view.cell
    runs = {policy: device_timeline(log.whole, cell.devices, SPANS) for policy, log in cell.logs.items()}
    length_s, unit = time_unit(max(float(run.edges_s[-1]) for run in runs.values()))
    edges = {policy: run.edges_s / length_s for policy, run in runs.items()}
    arrivals = max(float(log.whole["arrival_s"].max(initial=0.0)) for log in cell.logs.values()) / length_s
    log = any(map(view.unstable, cell.logs))

    def draw(device: str, quantity: str) -> Chart:
        number, backlog = int(device), quantity == "waiting"
        hover = f"{'%{y:,.4~g} waiting' if backlog else '%{y:.1f} % busy'} at %{{x:.4~g}} {unit}"
        marks = []
        for policy, run in runs.items():
            values = run.waiting[number] if backlog else 100.0 * run.busy_share[number]
            shown = numbers(np.where(log & backlog & (values < LEAST_SHOWN), np.nan, values), 3)
            marks.append(view.line(policy, edges[policy], [*shown, shown[-1]], width=1.4, step=True, hover=hover))
        height = Axis("requests waiting", log=log, from_zero=not log) if backlog else Axis("workers busy, %", span=(0.0, 102.0))
        span = (0.0, arrivals) if arrivals > 0.0 else None
        return Chart(marks, Axis(f"time of the run, {unit}", span=span), height)

    devices = [(str(number), device.name) for number, device in enumerate(cell.devices)]
    return Panel(
        "timeline",
        "Backlog and utilisation",
        f"Requests waiting, or share of workers busy, over the time of the run, one line per policy, {view.cell.name}",
        draw,
        [
            Control("device", "At the", devices, devices[-1][0]),
            Control("of", "Of", [("waiting", "backlog"), ("busy", "utilisation")]),
        ],
        caption="What waits at all boxes of a device, and how much of it works, while requests come; means over spans of time.",
        across=True,
    )


def rtt(view: CellView) -> Panel:
    """Draw the RTT series over one lap, and the transfer estimate that one policy held while it met that lap.

    Only the span in use is shown, unless requests met at least half of the lap, or met its end and began anew.
    """
    cell, series = view.cell, view.cell.series
    begin_s, end_s = _used_span_s(cell) or (0.0, max(series.duration_s, float(series.time_s[-1])))
    first, last = np.searchsorted(series.time_s, (begin_s, end_s), side="right")
    first = max(int(first) - 1, 0)
    rtt_s = series.rtt_s[first:last]
    kept = extremes(rtt_s, RTT_POINTS - 1)
    time_s = np.append(series.time_s[first:last][kept], end_s)
    length_s, unit = time_unit(end_s - begin_s)
    policy = estimating_policy(cell.logs)
    hover = f"%{{y:,.4~g}} ms at %{{x:.4~g}} {unit}"
    heights_ms = 1e3 * np.append(rtt_s[kept], rtt_s[-1])
    marks = [Mark("line", time_s / length_s, heights_ms, "RTT", "rtt", width=1.2, step=True, hover=hover)]
    if policy is not None:
        held_s, estimate_s = _estimate_on_lap(cell.logs[policy], float(series.duration_s))
        symbol, name = "" if held_s.size > 1 else "circle", f"estimate of {plain(policy)}"
        look = {"name": name, "dash": "solid", "width": 1.2, "step": True, "symbol": symbol, "hover": hover}
        marks.append(view.line(policy, held_s / length_s, estimate_s * 1e3, **look))
    many = len(cell.devices) > 2
    link = f", the last link on the way to the {cell.devices[-1].name}" if many else ""
    learns = (
        "" if policy is None else f", and the transfer time that {policy} assumes, which learns only from what it sends away"
    )
    return Panel(
        "rtt",
        "The network, and what was believed of it",
        f"Round-trip time in milliseconds over the time of the trace, with the transfer estimate over it, {view.cell.name}",
        lambda: Chart(marks, Axis(f"time on the trace, {unit}"), Axis("round trip, ms")),
        caption=f"Round-trip time of {series.name} ({series.kind}){link}{learns}.",
    )


def estimating_policy(logs: Mapping[str, Log]) -> str | None:
    """Return C-NMT where it runs, else the first policy that predicts lengths and so needs an estimate; None without one."""
    ordered = sorted(logs, key=lambda policy: policy != ESTIMATE_OF)
    needed = ("rtt_estimate_s", "tgt_len_predicted")
    return next((policy for policy in ordered if all(np.isfinite(logs[policy][key]).any() for key in needed)), None)


def _estimate_on_lap(log: Log, duration_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times on the trace and the estimate held then, over the first lap, thinned to where the estimate changes."""
    time_s, estimate_s = log["rtt_time_s"], log["rtt_estimate_s"]
    lap = np.isfinite(estimate_s)
    if duration_s > 0:
        lap &= time_s < time_s[0] + duration_s
        time_s = time_s % duration_s
    order = np.argsort(time_s[lap], kind="stable")
    time_s, estimate_s = time_s[lap][order], estimate_s[lap][order]
    kept = extremes(estimate_s, RTT_POINTS)
    return time_s[kept], estimate_s[kept]


def _used_span_s(cell: Cell) -> tuple[float, float] | None:
    """Return the span of the lap in which requests looked up RTTs, s; None for half of the lap or more."""
    spans_s = [(float(at_s.min()), float(at_s.max())) for log in cell.logs.values() if (at_s := log["rtt_time_s"]).size]
    begin_s = min((begin for begin, _ in spans_s), default=0.0)
    end_s = max((end for _, end in spans_s), default=0.0)
    return (begin_s, end_s) if 0.0 < end_s - begin_s < 0.5 * cell.series.duration_s else None


def plane(view: CellView) -> Panel:
    """Draw a sample of the requests by source and target length, coloured by the device that a policy chose.

    Between two devices the border is where the believed planes make both equally fast at the mean RTT of the trace. A policy
    that predicts lengths follows its own curve.
    """
    cell = view.cell
    log = next(iter(cell.logs.values()))
    requests = log["src_len"].size
    sampled = np.unique(np.linspace(0, max(requests - 1, 0), min(PLANE_REQUESTS, requests)).astype(np.int64))
    ends = axis_ends(cell)
    axes = Axis("source length N, tokens", span=(0.0, ends[0])), Axis("target length M, tokens", span=(0.0, ends[1]))
    border, looks = _border(cell, ends), [view.device_look(number) for number in range(len(cell.devices))]
    names = [plain(device.name) for device in cell.devices]

    def draw(policy: str) -> Chart:
        name = [*cell.logs][int(policy)]
        decided = sampled[executed_on(cell.logs[name])[sampled] != NO_DEVICE]
        src_len, tgt_len, targets = (cell.logs[name][column][decided].tolist() for column in ("src_len", "tgt_len", "target"))
        colours, symbols = zip(*(looks[target] for target in targets), strict=True) if targets else ((), ())
        # One mark for all requests, in their order: with one a device, the later would hide the earlier.
        points = Mark(
            "points", src_len, tgt_len, colour=colours, symbol=symbols, opacity=0.6, text=[names[target] for target in targets],
            hover="N %{x}, M %{y}: %{text}",
        )  # fmt: skip
        legend = [
            Mark("points", [None], [None], device, colour, symbol=symbol)
            for device, (colour, symbol) in zip(names, looks, strict=True)
        ]
        return Chart([*border, points, *legend, *_assumption(view, name)], *axes)

    estimating = estimating_policy(cell.logs)
    line = ", and the border where both are believed equally fast, queues left out" if border else ""
    options = [(str(place), name) for place, name in enumerate(cell.logs)]
    return Panel(
        "plane",
        "Who sent what where",
        f"Requests in the plane of source and target length, by the device they went to{line}, {view.cell.name}",
        draw,
        [Control("policy", "Policy", options, "" if estimating is None else str([*cell.logs].index(estimating)))],
        caption=f"{number(sampled.size, 0)} of {number(log.requests, 0)} requests by source length N and target length M, "
        f"coloured by the device that translated them{line}.",
    )


def axis_ends(cell: Cell) -> Ends:
    """Return the ends of the axes of source and target length, which show 99 % of the requests."""
    log = next(iter(cell.logs.values()))
    src, tgt = (float(np.ceil(1.2 * np.quantile(log[key], 0.99))) if log[key].size else 1.0 for key in ("src_len", "tgt_len"))
    return src, tgt


def _border(cell: Cell, ends: Ends) -> list[Mark]:
    """Return the line where two devices are believed equally fast; none if no line divides the plane, or for more devices."""
    if len(cell.planes) != 2:
        return []
    gateway, cloud = cell.planes
    per_src, per_tgt, fixed = (a - b for a, b in zip(gateway, cloud, strict=True))
    rest, (src_end, tgt_end) = float(cell.series.mean_s) - fixed, ends
    if abs(per_tgt) * tgt_end > 1e-6 * abs(per_src) * src_end:
        src = np.array([0.0, src_end])
        tgt = (rest - per_src * src) / per_tgt
    elif per_src != 0:
        src, tgt = np.full(2, rest / per_src), np.array([0.0, tgt_end])
    else:
        return []
    return [Mark("line", numbers(src), numbers(tgt), "equally fast", hover="")]


def _assumption(view: CellView, policy: str) -> list[Mark]:
    """Return the curve of the target lengths that a policy assumes, the same for all requests of a source length."""
    predicted, src_len = view.cell.logs[policy]["tgt_len_predicted"], view.cell.logs[policy]["src_len"]
    known = np.isfinite(predicted)
    src, first = np.unique(src_len[known], return_index=True)
    look: dict[str, Any] = {"name": "assumed M", "dash": "dash", "width": 2.4, "hover": "N %{x}, M assumed %{y}"}
    return [view.line(policy, src.tolist(), numbers(predicted[known][first], 4), **look)] if src.size else []
