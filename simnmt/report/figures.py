"""The figures of one workload on one network: latency and its parts, backlog, shares, the network, causes of loss, load.

A figure is thinned first (`thinning.py`), so that a page does not grow with the number of requests. Times are milliseconds
here, because a person reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.suggestions import format_list
from simnmt.report import thinning
from simnmt.report.charts import DASHES, SYMBOLS, Axis, Chart, Control, Mark, Panel, panel, plain, short
from simnmt.report.run_tables import batches_of, batching_devices
from simnmt.report.typography import number, significant
from simnmt.results import Cell, RecordedCell
from simnmt.results.device_accounts import SMALL_BATCH, BatchAccount
from simnmt.results.device_timeline import device_timeline
from simnmt.results.request_log import were_answered
from simnmt.results.stability import busiest_device
from simnmt.results.summary import PARTS, Row

ESTIMATE_OF = "cnmt"
"""The policy whose transfer estimate is drawn over the RTT series, where the scenario has it."""
RTT_POINTS = 2_000
SPANS, FEWEST_SPANS = 400, 50
LENGTH_BINS = 30
TIMELINE_NUMBERS = 60_000
"""Most numbers of all timelines of a page, which limits its size."""
MANY_MS = 1e5
"""Milliseconds from which figures show seconds."""
LEAST_SHOWN = 0.01
"""Least backlog on a logarithmic axis."""
_MIDDLE_DEVICES = (4, 6, 5, 8, 7, 10, 9, 11, 3, 2)

Log = Mapping[str, NDArray[Any]]
AnyCell = TypeVar("AnyCell", bound=RecordedCell, covariant=True)


@dataclass(frozen=True, slots=True)
class CellView(Generic[AnyCell]):
    """One cell with the data that its figures share: rows, colours of policies, and the number of cells of the page."""

    cell: AnyCell
    rows: Sequence[Row]
    gaps: Sequence[Row]
    colours: Mapping[str, int]
    cells: int = 1

    @property
    def policies(self) -> list[str]:
        """The policies in the order of the scenario."""
        return list(self.cell.logs)

    @property
    def place(self) -> str:
        """Workload and network."""
        return f"{self.cell.workload}/{self.cell.network}"

    def row(self, policy: str) -> Row:
        """Return the row of a policy; empty if there is none."""
        return next((row for row in self.rows if row["policy"] == policy), {})

    def unstable(self, policy: str) -> str:
        """Return which devices a policy overloads; empty for a stable one."""
        return self.row(policy).get("unstable") or ""

    def line(self, policy: str, x: Any, y: Any, **style: Any) -> Mark:
        """Return the line of a policy in the colour and dash that it has on the whole page."""
        return policy_line(policy, self.colours[policy], x, y, unstable=bool(self.unstable(policy)), **style)

    def device_colour(self, number: int) -> str:
        """Return the colour of a device: the first and the last have those of the policies edge and cloud."""
        last = len(self.cell.devices) - 1
        place = 0 if number == 0 else 1 if number == last else _MIDDLE_DEVICES[(number - 1) % len(_MIDDLE_DEVICES)]
        return f"policy-{place}"

    def device_symbol(self, number: int) -> str:
        """Return the symbol of a device."""
        return SYMBOLS[number % len(SYMBOLS)]

    def left_out(self) -> str:
        """Return the sentence on unstable policies that a figure of means leaves out."""
        names = [f"{policy} ({self.unstable(policy)})" for policy in self.policies if self.unstable(policy)]
        return f" Left out, because no steady mean exists: {format_list(names)}." if names else ""

    def device_control(self, label: str, shown: int | str = 0, first: Sequence[tuple[str, str]] = ()) -> Control:
        """Return the choice of a device, after the options in `first`."""
        names = [(str(number), device.name) for number, device in enumerate(self.cell.devices)]
        return Control("device", label, [*first, *names], str(shown))


def policy_line(policy: str, colour: int, x: Any, y: Any, *, unstable: bool = False, **style: Any) -> Mark:
    """Return the line of a policy; `style`: further attributes of the mark."""
    look: dict[str, Any] = {"colour": f"policy-{colour}", "dash": DASHES[colour]}
    return Mark("line", x, y, **{"name": short(policy) + (", unstable" if unstable else ""), **look, **style})


def time_scale(values_ms: Sequence[float | None]) -> tuple[str, float]:
    """Return the unit for these latencies, and the factor from milliseconds to this unit."""
    return ("s", 1e-3) if any(value is not None and value >= MANY_MS for value in values_ms) else ("ms", 1.0)


def coinciding(lines: Mapping[str, Sequence[float | None]], tolerance: float) -> str:
    """Return which lines hide each other: no two of their heights differ by more than `tolerance`; else an empty text."""
    hidden = []
    known = {name: np.array(heights, np.float64) for name, heights in lines.items() if len(heights)}
    for place, (name, heights) in enumerate(known.items()):
        for other, others in [*known.items()][place + 1 :]:
            if heights.shape == others.shape and np.nanmax(np.abs(heights - others), initial=0.0) <= tolerance:
                hidden.append(f"{name} under {other}")
                break
    return f"Lines that coincide hide each other: {format_list(hidden)}." if hidden else ""


def latency(view: CellView[RecordedCell]) -> Panel:
    """Draw the share of requests answered within a time; requests that never ended are left out."""
    done = {policy: log["latency_s"][were_answered(log["outcome"])] for policy, log in view.cell.logs.items()}
    grid = thinning.shares(max((values.size for values in done.values()), default=1))
    quantiles = {policy: thinning.quantiles(values, grid) * 1e3 for policy, values in done.items()}
    unit, factor = time_scale([float(values.max(initial=0.0)) for values in quantiles.values()])
    body = (grid > 0.01) & (grid < 0.99)
    reading = coinciding({policy: np.log(ms[body]).tolist() for policy, ms in quantiles.items() if ms.size}, 0.005)
    shown = {policy: thinning.numbers(ms * factor) for policy, ms in quantiles.items()}
    share = [round(value, 7) for value in grid.tolist()]

    def draw(x: str, y: str) -> Chart:
        beyond = y == "beyond"
        heights = [round(1.0 - value, 7) for value in share[:-1]] if beyond else share
        verb = "%{y:.3~%} take longer than" if beyond else "%{y:.2%} within"
        marks = [
            view.line(policy, ms[: len(heights)], heights if ms else [], hover=f"{verb} %{{x:,.4~g}} {unit}")
            for policy, ms in shown.items()
        ]
        slower = Axis("share of requests slower", log=True, tick_format="~%")
        answered = Axis("share of requests answered", span=(0.0, 1.01), tick_format=".0%")
        time_axis = Axis(f"latency of a request, {unit}", log=x == "log", from_zero=x != "log")
        return Chart(marks, time_axis, slower if beyond else answered, reading)

    return panel(
        "latency",
        "How long requests take",
        f"Cumulative distribution of latency, one line per policy, {view.place}",
        draw,
        [
            Control("x", "Time axis", [("log", "log time"), ("linear", "linear")]),
            Control("y", "Share axis", [("within", "all"), ("beyond", "slowest")]),
        ],
        caption="Share of requests answered within a time, per policy.",
    )


_PART_NAMES = {"queue": "waiting", "execution": "execution", "transfer": "transfer"}
_SLOWEST = {
    "all": ("mean", "Means over all requests."),
    "p95": ("beyond_p95", "Means over the slowest twentieth."),
    "p99": ("beyond_p99", "Means over the slowest hundredth."),
}


def parts(view: CellView[RecordedCell]) -> Panel:
    """Draw the mean waiting, execution and transfer time of each policy: of all requests, or of the slowest."""

    def draw(of: str) -> Chart:
        prefix, reading = _SLOWEST[of]
        means = {
            policy: [milliseconds(view.row(policy).get(f"{prefix}_{part}_s")) for part in PARTS] for policy in view.policies
        }
        known = {
            policy: [ms for ms in parts_ms if ms is not None]
            for policy, parts_ms in means.items()
            if None not in parts_ms and not view.unstable(policy)
        }
        totals = [sum(parts_ms) for parts_ms in known.values()]
        unit, factor = time_scale(totals)
        at = list(range(len(known)))
        marks = [
            Mark("bars", [parts_ms[number] * factor for parts_ms in known.values()], at, _PART_NAMES[part], f"part-{part}",
                 level=True, hover=f"%{{x:,.4~g}} {unit}")
            for number, part in enumerate(PARTS)
        ]  # fmt: skip
        sums = [total * factor for total in totals]
        labels = [f" {significant(total)} {unit}" for total in sums]
        marks.append(Mark("text", sums, at, text=labels, hover=""))
        names = {float(place): short(policy, 20) for place, policy in enumerate(known)}
        hidden = not known
        return Chart(
            marks if known else [],
            Axis(f"latency, {unit}", span=(0.0, 1.25 * max(sums, default=0.0) or 1.0), hidden=hidden),
            Axis(ticks=names, span=(len(known) - 0.5, -0.5), hidden=hidden),
            reading + view.left_out(),
            stacked=True,
            message="no policy has a steady mean" if hidden else "",
        )

    return panel(
        "parts",
        "What the time is made of",
        f"Mean waiting, execution and transfer time, one stacked bar per policy, {view.place}",
        draw,
        [Control("of", "Requests", [("all", "all"), ("p95", "beyond p95"), ("p99", "beyond p99")])],
        caption="Waiting, execution and transfer, per policy: of all requests, or of those slower than p95 or p99.",
    )


def milliseconds(seconds: float | None) -> float | None:
    """Return milliseconds with five significant digits; None stays None."""
    return None if seconds is None else float(f"{1e3 * seconds:.5g}")


def time_unit(duration_s: float) -> tuple[str, float]:
    """Return the unit that suits a span of time, and its length in seconds."""
    if duration_s > 2 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if duration_s > 120 else ("s", 1.0)


def timeline(view: CellView[RecordedCell]) -> Panel:
    """Draw what waits at a device, and how much of it works, over the time of the run: means over spans of time."""
    cell = view.cell
    span_budget = TIMELINE_NUMBERS // (max(view.cells, 1) * 2 * len(cell.logs) * len(cell.devices))
    spans = min(max(span_budget, FEWEST_SPANS), SPANS)
    runs = {policy: device_timeline(log.whole, cell.devices, spans) for policy, log in cell.logs.items()}
    unit, length_s = time_unit(max(float(run.edges_s[-1]) for run in runs.values()))
    edges = {policy: run.edges_s / length_s for policy, run in runs.items()}
    arrivals = max(float(values[_turn(values)]) for values in edges.values())
    log = any(map(view.unstable, view.policies))

    def draw(device: str, of: str) -> Chart:
        number, backlog = int(device), of == "waiting"
        heights = {policy: run.waiting[number] if backlog else 100.0 * run.busy_share[number] for policy, run in runs.items()}
        idle = [policy for policy, values in heights.items() if not values.any()]
        hover = f"{'%{y:,.4~g} waiting' if backlog else '%{y:.1f} % busy'} at %{{x:.4~g}} {unit}"
        marks = []
        for policy, values in heights.items():
            if policy not in idle:
                shown = thinning.numbers(np.where(log & backlog & (values < LEAST_SHOWN), np.nan, values), 3)
                marks.append(view.line(policy, edges[policy], [*shown, shown[-1]], width=1.4, step=True, hover=hover))
        name = cell.devices[number].name
        waits, works = f"Requests that wait at all boxes of {name} together.", f"Busy share of the workers of {name}."
        nothing = f" Nothing {'waits' if backlog else 'is executed'} there under {format_list(idle)}." if idle else ""
        height = Axis("requests waiting", log=log, from_zero=not log) if backlog else Axis("workers busy, %", span=(0.0, 102.0))
        width = Axis(f"time of the run, {unit}", span=(0.0, arrivals))
        return Chart(marks, width, height, (waits if backlog else works) + nothing)

    estimating = estimating_policy(cell.logs)
    busiest = busiest_device([row for row in view.rows if row["policy"] == (estimating or row["policy"])])
    names = [device.name for device in cell.devices]
    return panel(
        "timeline",
        "Backlog and utilisation",
        f"Requests waiting, or share of workers busy, over the time of the run, one line per policy, {view.place}",
        draw,
        [
            view.device_control("At the", names.index(busiest) if busiest in names else 0),
            Control("of", "Of", [("waiting", "backlog"), ("busy", "utilisation")]),
        ],
        caption="What waits at a device, and how much of it works, while requests come; means over spans of time.",
        across=True,
    )


def _turn(edges: NDArray[np.float64]) -> int:
    """Return the edge at which equal spans give way to spans of another length (see `device_timeline.edges`), or the last."""
    length = np.diff(edges)
    return int(np.argmax(~np.isclose(length, length[0], rtol=1e-6))) or length.size


def shares(view: CellView[RecordedCell]) -> Panel:
    """Draw the share of requests that each policy sends away, or to one device, over source length."""
    cell = view.cell
    src_len, by_device = share_by_length(cell.logs, len(cell.devices))
    last = cell.devices[-1].name
    two = len(cell.devices) == 2

    def draw(device: str) -> Chart:
        percent = {
            policy: values[1:].sum(0) if device == "away" else values[int(device)] for policy, values in by_device.items()
        }
        to = last if two else "" if device == "away" else cell.devices[int(device)].name
        marks = [
            view.line(policy, src_len, thinning.numbers(values, 4), symbol="" if len(src_len) > 1 else "circle",
                      hover="%{y:.1f} % of those near %{x:.0f} tokens")
            for policy, values in percent.items()
        ]  # fmt: skip
        title = f"sent to the {plain(to)}, %" if to else "sent away, %"
        reading = coinciding({policy: values.tolist() for policy, values in percent.items()}, 0.5)
        return Chart(marks, Axis("source length N, tokens", from_zero=True), Axis(title, span=(-2.0, 102.0)), reading)

    target = f"to the {last}" if two else f"away from the {cell.devices[0].name}, or to one device,"
    away = [("away", "away")]
    return panel(
        "share",
        "What is sent away",
        f"Percentage of requests offloaded over source length in tokens, one line per policy, {view.place}",
        draw,
        [Control("device", "Sent to", away) if two else view.device_control("Sent to", "away", away)],
        caption=f"Share of requests sent {target} over their source length, in bins of equally many requests.",
    )


def share_by_length(logs: Mapping[str, Log], devices: int) -> tuple[list[float | None], dict[str, NDArray[np.float64]]]:
    """Return mean source lengths of bins of about equally many requests, and per policy the percentages by device and bin."""
    src_len = next(iter(logs.values()))["src_len"]
    edges = np.unique(np.quantile(src_len, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1], method="lower"))
    bins = np.searchsorted(edges, src_len, side="left")
    count = np.bincount(bins, minlength=edges.size + 1)
    filled = count > 0
    targets = max(devices, 2)
    # One count for all devices: a bin's number and a target's make one number.
    percent = {
        policy: np.bincount(bins * targets + np.minimum(log["target"], targets - 1), minlength=count.size * targets)
        .reshape(-1, targets)[filled]
        .T
        * (100.0 / count[filled])
        for policy, log in logs.items()
    }
    return thinning.numbers(np.bincount(bins, src_len, edges.size + 1)[filled] / count[filled]), percent


def rtt(view: CellView[Cell]) -> Panel:
    """Draw the RTT series over one lap, and the transfer estimate that one policy held while it met that lap.

    Only the span in use is shown, unless requests met at least half of the lap, or met its end and began anew.
    """
    cell, series = view.cell, view.cell.series
    begin_s, end_s = _used_span_s(cell) or (0.0, max(series.duration_s, float(series.time_s[-1])))
    first, last = np.searchsorted(series.time_s, (begin_s, end_s), side="right")
    first = max(int(first) - 1, 0)
    rtt_s = series.rtt_s[first:last]
    kept = thinning.extremes(rtt_s, RTT_POINTS - 1)
    time_s = np.append(series.time_s[first:last][kept], end_s)
    unit, length_s = time_unit(end_s - begin_s)
    policy = estimating_policy(cell.logs)
    hover = f"%{{y:,.4~g}} ms at %{{x:.4~g}} {unit}"
    heights_ms = 1e3 * np.append(rtt_s[kept], rtt_s[-1])
    marks = [Mark("line", time_s / length_s, heights_ms, "RTT", "rtt", width=1.2, step=True, hover=hover)]
    if policy is not None:
        held_s, estimate_s = _estimate_on_lap(cell.logs[policy], float(series.duration_s))
        symbol, name = "" if held_s.size > 1 else "circle", f"estimate of {plain(policy)}"
        look = {"name": name, "dash": "solid", "width": 1.2, "step": True, "symbol": symbol, "hover": hover}
        marks.append(view.line(policy, held_s / length_s, estimate_s * 1e3, **look))
    destination = cell.devices[-1].name if len(cell.devices) > 2 else ""
    link = f", the last link on the way to the {destination}," if destination else ""
    to = f"to the {destination} " if destination else ""
    learns = f" and the transfer time {to}that {policy} assumes. It learns only from requests that it sends away."
    return panel(
        "rtt",
        "The network, and what was believed of it",
        f"Round-trip time in milliseconds over the time of the trace, with the transfer estimate over it, {view.place}",
        lambda y: Chart(marks, Axis(f"time on the trace, {unit}"), Axis("round trip, ms", log=y == "log")),
        [Control("y", "RTT axis", [("linear", "linear"), ("log", "log RTT")])],
        caption=f"Round-trip time of {series.name} ({series.kind}){link}" + ("." if policy is None else learns),
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
    step = thinning.changes(estimate_s)
    time_s, estimate_s = time_s[step], estimate_s[step]
    kept = thinning.extremes(estimate_s, RTT_POINTS)
    return time_s[kept], estimate_s[kept]


def _used_span_s(cell: Cell) -> tuple[float, float] | None:
    """Return the span of the lap in which requests looked up RTTs, s; None for half of the lap or more."""
    spans_s = [(float(at_s.min()), float(at_s.max())) for log in cell.logs.values() if (at_s := log["rtt_time_s"]).size]
    begin_s = min((begin for begin, _ in spans_s), default=0.0)
    end_s = max((end for _, end in spans_s), default=0.0)
    return (begin_s, end_s) if 0.0 < end_s - begin_s < 0.5 * cell.series.duration_s else None


def gaps(view: CellView[RecordedCell]) -> Panel:
    """Draw the change of the total time by source of loss removed, with its interval."""
    rows = [row for row in view.gaps if row["removed"] != "nothing"]
    change = [row["change_percent"] for row in rows]
    low, high = (
        [row[key] if row[key] is not None else row["change_percent"] for row in rows] for key in ("low_percent", "high_percent")
    )
    colours = ["good" if most < 0 else "bad" if least > 0 else "rtt" for least, most in zip(low, high, strict=True)]
    ends = [0.0, *low, *high]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    names = {float(place): plain(row["removed"]).replace(" ", "<br>", 1) for place, row in enumerate(rows)}
    bars = Mark(
        "bars", change, list(range(len(rows))), colour=colours, level=True, low=low, high=high,
        text=[row["removed"] for row in rows], hover="%{x:+.2f} % without %{text}",
    )  # fmt: skip
    chart = Chart(
        [bars],
        Axis("change of the total time, %", span=(min(ends) - margin, max(ends) + margin), zero_line=True),
        Axis(ticks=names, span=(len(rows) - 0.5, -0.5)),
    )
    policy = rows[0]["policy"]
    caption = (
        f"Change of {policy}'s total time when one source of loss after another is replaced by the truth, and when all are."
    )
    alt = f"Change of the total time in percent with its interval, by source of loss removed, {view.place}"
    return panel("gaps", "What wrong beliefs cost", alt, lambda: chart, caption=caption)


MOST_BARS = 64
"""Most bars of batch sizes; larger batches are grouped evenly."""
BATCH_NUMBERS = 40_000
"""Most numbers of all timelines of a page, which limits its size."""
FEWEST_CHANGES = 100


def batch_panels(view: CellView[RecordedCell]) -> list[Panel]:
    """Return the figures of batches: how many sentences are active, step by step and in all; empty without batches."""
    cell = view.cell
    devices = batching_devices(cell)
    if not devices:
        return []
    share = BATCH_NUMBERS // max(2 * view.cells * len(devices) * len(cell.logs), 1)
    changes = max(share, FEWEST_CHANGES)
    accounts = {
        (str(device), policy): account
        for device in devices
        for policy in cell.logs
        if (account := batches_of(cell, policy, device)) is not None and account.steps.sum()
    }

    def active(device: str, policy: str) -> Chart:
        name = view.policies[int(policy)]
        axes = Axis("decode step of the first server"), Axis("active sentences", from_zero=True)
        account = accounts.get((device, name))
        if account is None:
            return Chart([], *axes, f"Nothing is decoded there under {name}.")
        if not len(account.timeline):
            return Chart([], *axes, f"Nothing is decoded at the first server under {name}. {_describe_batches(account)}")
        step, sentences = account.timeline[:changes].T.tolist()
        hover = "%{y} active from step %{x} on"
        curve = view.line(name, step, sentences, dash="solid", width=1.4, step=True, fill="rtt-wash", hover=hover)
        limit = Mark("line", [0, step[-1]], [account.size] * 2, "largest batch", dash="dot", width=1.2, hover="")
        reading = f"The first {number(len(step), 0)} changes of the batch. In all: {_describe_batches(account)}"
        return Chart([curve, limit], *axes, reading)

    def sizes(device: str, of: str) -> Chart:
        used = {policy: account for (place, policy), account in accounts.items() if place == device}
        marks = [_size_line(view, policy, account, of) for policy, account in used.items()]
        unused = [policy for policy in cell.logs if policy not in used]
        title = "share of the decoding time, %" if of == "time" else "share of the decode steps, %"
        reading = f"Nothing is decoded there under {format_list(unused)}." if unused else ""
        return Chart(marks, Axis("active sentences", from_zero=True), Axis(title, from_zero=True), reading)

    at = Control("device", "At the", [(str(device), cell.devices[device].name) for device in devices])
    policies = Control("policy", "Policy", [(str(place), name) for place, name in enumerate(cell.logs)], str(most_used(cell)))
    return [
        panel(
            "active",
            "The batch, step by step",
            f"Active sentences over decode steps, with the largest batch, {view.place}",
            active,
            [at, policies],
            caption="Sentences decoded together from one step to the next, at the beginning of the run.",
        ),
        panel(
            "sizes",
            "How full the batches are",
            f"Percentage of decode steps or of their time by active sentences, one line per policy, {view.place}",
            sizes,
            [at, Control("of", "Share", [("steps", "of the steps"), ("time", "of the time")])],
            caption="Share of the decode steps, or of their time, by the number of sentences active in them.",
        ),
    ]


def _size_line(view: CellView[RecordedCell], policy: str, account: BatchAccount, of: str) -> Mark:
    """Return the shares of steps, or of their time, by active sentences; large batches in even groups of sizes."""
    wide = -(-account.size // MOST_BARS)
    first = np.arange(1, account.size + 1, wide)
    # Sizes begin at 1: every step has an active sentence.
    values = np.add.reduceat((account.step_s if of == "time" else account.steps)[1:], first - 1)
    last = np.minimum(first + wide - 1, account.size)
    labels = [f"{low}" if low == high else f"{low} to {high}" for low, high in zip(first.tolist(), last.tolist(), strict=True)]
    symbol = SYMBOLS[view.policies.index(policy) % len(SYMBOLS)]
    shares = thinning.numbers(100.0 * values / max(values.sum(), 1e-300), 4)
    return view.line(policy, first.tolist(), shares, width=1.6, symbol=symbol, text=labels, hover="%{text} active: %{y:.2f} %")


def most_used(cell: RecordedCell) -> int:
    """Return the place of the policy with the most decode steps, whose batches are shown first."""
    steps = [
        sum(int(account.steps.sum()) for account in cell.batches.get(policy, ()) if account is not None) for policy in cell.logs
    ]
    return steps.index(max(steps))


def _describe_batches(account: BatchAccount) -> str:
    total = int(account.steps.sum())
    return (
        f"{number(total, 0)} steps, {significant(account.mean_active, 3)} of {account.size} active on average; full in "
        f"{number(100 * account.share_full, 1)} % of them, fewer than {SMALL_BATCH} in "
        f"{number(100 * account.share_below(SMALL_BATCH), 1)} %."
    )
